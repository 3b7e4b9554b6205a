//! Losses and perplexities of the seeds of one mechanism on the same text.

use super::Run;
use super::series::{Place, Series, Spread};
use super::table::best;
use crate::records::{EvalResult, PerplexityResult};
use crate::text::{loss, perplexity, perplexity_spread};

/// The score of one seed.
#[derive(Clone, Copy, Debug)]
pub struct Score {
    pub seed: u64,
    pub loss: f64,
    pub perplexity: f64,
    pub interval: [f64; 2],
    /// `None` if the byte count of the text is unknown.
    pub bits_per_byte: Option<f64>,
}

/// The scores of all seeds. A mean hides seeds that are not finite, so those are counted.
#[derive(Clone, Debug, Default)]
pub struct Scores(pub Vec<Score>);

impl Score {
    pub fn of_split(run: &Run, result: &EvalResult) -> Self {
        Self {
            seed: run.seed,
            loss: result.loss,
            perplexity: result.loss.exp(),
            interval: result.loss_interval.map(f64::exp),
            bits_per_byte: None,
        }
    }

    pub fn of_window(run: &Run, result: &PerplexityResult) -> Self {
        Self {
            seed: run.seed,
            loss: result.loss,
            perplexity: result.perplexity,
            interval: result.perplexity_interval,
            bits_per_byte: Some(result.bits_per_byte),
        }
    }

    fn words(&self) -> String {
        let mut out = format!(
            "seed {}: {} (95% interval {}), loss {}",
            self.seed,
            perplexity(self.perplexity),
            self.interval(),
            loss(self.loss),
        );
        if let Some(bits) = self.bits_per_byte {
            out += &format!(", {} bits per byte", loss(bits));
        }
        out
    }

    pub fn interval(&self) -> String {
        let [low, high] = self.interval;
        format!("{} to {}", perplexity(low), perplexity(high))
    }
}

impl Scores {
    pub fn at_place(series: &Series, place: Place) -> Self {
        let results = series.results(place);
        Self(results.into_iter().map(|(run, result)| Score::of_split(run, result)).collect())
    }

    /// Summarizes the perplexity of the finite seeds.
    pub fn spread(&self) -> Option<Spread> {
        Spread::of(self.0.iter().map(|score| score.perplexity))
    }

    pub fn not_finite(&self) -> usize {
        self.0.iter().filter(|score| !score.perplexity.is_finite()).count()
    }

    /// Returns the value to compare: the mean if every seed is finite, otherwise infinity.
    pub fn comparable(&self) -> Option<f64> {
        match self.not_finite() {
            0 => self.spread().map(|spread| spread.mean),
            _ => Some(f64::INFINITY),
        }
    }

    /// Formats the value as `21.30 ± 0.12`; `None` if there is no score.
    pub fn value(&self) -> Option<String> {
        match self.spread() {
            _ if self.0.is_empty() => None,
            None => Some("not finite".into()),
            Some(Spread { mean, deviation: Some(deviation), .. }) => {
                Some(perplexity_spread(mean, deviation))
            }
            Some(spread) => Some(perplexity(spread.mean)),
        }
    }

    /// Says how many seeds the value leaves out, if it leaves out some but not all.
    pub fn left_out(&self) -> Option<String> {
        let bad = self.not_finite();
        (bad > 0 && bad < self.0.len())
            .then(|| format!("{bad} of {} seeds not finite", self.0.len()))
    }

    /// Lists every seed with its interval.
    pub fn words(&self) -> String {
        self.0.iter().map(Score::words).collect::<Vec<_>>().join("; ")
    }
}

/// Marks the scores whose printed value is the lowest. Marks none if all printed values are equal.
pub fn lowest(all: &[Scores]) -> Vec<bool> {
    let means: Vec<Option<f64>> = all.iter().map(Scores::comparable).collect();
    let best = best(means.iter().copied().flatten(), f64::min).map(perplexity);
    let reads = |mean: &Option<f64>| mean.map(perplexity);
    let equal = means.iter().filter(|mean| mean.is_some()).all(|mean| reads(mean) == best);
    means.iter().map(|mean| !equal && best.is_some() && reads(mean) == best).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(perplexities: &[f64]) -> Scores {
        let score = |(seed, &perplexity): (usize, &f64)| Score {
            seed: seed as u64,
            loss: perplexity.ln(),
            perplexity,
            interval: [perplexity - 1.0, perplexity + 1.0],
            bits_per_byte: Some(1.0),
        };
        Scores(perplexities.iter().enumerate().map(score).collect())
    }

    #[test]
    fn seeds_that_are_not_finite_are_counted_and_count_as_worst() {
        let some = scores(&[20.0, f64::INFINITY]);
        assert_eq!(some.value().unwrap(), "20.00");
        assert_eq!(some.left_out().unwrap(), "1 of 2 seeds not finite");
        assert_eq!(some.comparable(), Some(f64::INFINITY));
        let none = scores(&[f64::NAN]);
        assert_eq!((none.value().unwrap().as_str(), none.left_out()), ("not finite", None));
        assert_eq!((scores(&[]).value(), scores(&[]).comparable()), (None, None));
    }

    #[test]
    fn the_lowest_are_those_that_read_so() {
        let of = |values: &[&[f64]]| {
            lowest(&values.iter().map(|values| scores(values)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[&[20.001], &[20.002], &[21.0], &[]]), [true, true, false, false]);
        assert_eq!(of(&[&[20.001], &[20.002], &[]]), [false; 3]);
        assert_eq!(of(&[&[20.0], &[19.0, f64::NAN]]), [true, false]);
        assert_eq!(of(&[&[f64::NAN], &[f64::INFINITY]]), [false; 2]);
        assert_eq!(of(&[&[20.0]]), [false]);
    }

    #[test]
    fn every_seed_has_its_interval() {
        let both = scores(&[20.0, 22.0]);
        assert_eq!(both.value().unwrap(), "21.00 ± 1.41");
        assert_eq!(both.comparable(), Some(21.0));
        let words = both.words();
        assert!(words.starts_with("seed 0: 20.00 (95% interval 19.00 to 21.00), loss 2.996"));
        assert!(words.contains("; seed 1: 22.00") && words.ends_with("1.000 bits per byte"));
    }
}
