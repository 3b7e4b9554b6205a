//! Choosing a token from its logits.

use std::cmp::Ordering;

use crate::error::TokenError;
use crate::settings::settings;

settings! {
    /// How to choose a token.
    #[derive(Copy)]
    pub struct Sampling {
        /// Divides the logits; 0 always takes the most likely token.
        temperature: f64 = 1.0, with_temperature;
        /// Number of most likely tokens to choose from.
        top_k: Option<usize> = None, with_top_k;
        /// Choose from the most likely tokens that together have this probability.
        top_p: Option<f64> = None, with_top_p;
    }
}

impl Sampling {
    /// Always the most likely token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: None, top_p: None };

    /// Every token with its probability in the model.
    pub const PLAIN: Self = Self { temperature: 1.0, top_k: None, top_p: None };

    /// Refuses settings outside their range.
    pub fn validate(&self) -> Result<(), TokenError> {
        let wrong = |text: String| Err(TokenError::Sampling(text));
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return wrong(format!("temperature must be 0 or more, not {}", self.temperature));
        }
        if self.top_k == Some(0) {
            return wrong("top-k must be at least 1".into());
        }
        match self.top_p {
            Some(p) if !(p > 0.0 && p <= 1.0) => wrong(format!("top-p must lie in 0..1, not {p}")),
            _ => Ok(()),
        }
    }

    /// Returns the token that `draw`, uniform in `[0, 1)`, falls on. Tokens are in the order of their
    /// logits, the likeliest first; equal logits are in the order of their tokens.
    pub fn choose(&self, logits: &[f32], draw: f64) -> u32 {
        let mut ranking = Ranking::new(logits);
        let Some(best) = ranking.best() else { return 0 };
        if self.temperature == 0.0 {
            return best;
        }
        ranking.keep(self.top_k.unwrap_or(usize::MAX));
        let logit = |token: u32| f64::from(logits[token as usize]);
        let weight = |token: u32| ((logit(token) - logit(best)) / self.temperature).exp();
        let mut mass: f64 = ranking.tokens.iter().map(|token| weight(*token)).sum();
        if let Some(top_p) = self.top_p {
            let (_, nucleus) = ranking.walk(weight, |so_far| so_far >= top_p * mass);
            mass = nucleus;
        }
        ranking.walk(weight, |so_far| so_far > draw * mass).0
    }
}

/// Tokens from the likeliest down, sorted only as far as they are looked at: a draw rarely reaches
/// far into a vocabulary.
struct Ranking<'a> {
    logits: &'a [f32],
    tokens: Vec<u32>,
    sorted: usize,
}

impl<'a> Ranking<'a> {
    fn new(logits: &'a [f32]) -> Self {
        Self { logits, tokens: (0..logits.len() as u32).collect(), sorted: 0 }
    }

    fn order(logits: &[f32]) -> impl Fn(&u32, &u32) -> Ordering {
        let logit = |token: &u32| logits[*token as usize];
        move |a, b| logit(b).total_cmp(&logit(a)).then(a.cmp(b))
    }

    fn best(&self) -> Option<u32> {
        self.tokens.iter().copied().min_by(Self::order(self.logits))
    }

    /// Keeps the `count` likeliest.
    fn keep(&mut self, count: usize) {
        if count < self.tokens.len() {
            self.tokens.select_nth_unstable_by(count, Self::order(self.logits));
            self.tokens.truncate(count);
            // A sum depends on its order, which must not depend on how the selection works.
            self.tokens.sort_unstable();
        }
    }

    /// Adds up weights, the likeliest token first, until there is `enough`. Returns the token
    /// at which there is, or the last one, and the sum up to it.
    fn walk(&mut self, weight: impl Fn(u32) -> f64, enough: impl Fn(f64) -> bool) -> (u32, f64) {
        let (mut last, mut sum) = (0, 0.0);
        for at in 0..self.tokens.len() {
            if at == self.sorted {
                self.sort_more();
            }
            last = self.tokens[at];
            sum += weight(last);
            if enough(sum) {
                break;
            }
        }
        (last, sum)
    }

    fn sort_more(&mut self) {
        let order = Self::order(self.logits);
        let more = (2 * self.sorted).max(64).min(self.tokens.len());
        let rest = &mut self.tokens[self.sorted..];
        if more - self.sorted < rest.len() {
            rest.select_nth_unstable_by(more - self.sorted, &order);
        }
        rest[..more - self.sorted].sort_unstable_by(&order);
        self.sorted = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, f32::NEG_INFINITY];

    fn share(sampling: Sampling, token: u32) -> f64 {
        let draws = 10_000;
        let hits = (0..draws)
            .filter(|i| sampling.choose(&LOGITS, f64::from(*i) / f64::from(draws)) == token)
            .count();
        hits as f64 / f64::from(draws)
    }

    #[test]
    fn shares_follow_the_softmax() {
        let sum = 1.0 + 2f64.exp() + 1f64.exp();
        assert!((share(Sampling::PLAIN, 1) - 2f64.exp() / sum).abs() < 1e-3);
        assert!((share(Sampling::PLAIN, 0) - 1.0 / sum).abs() < 1e-3);
        assert_eq!(share(Sampling::PLAIN, 3), 0.0);
    }

    #[test]
    fn every_setting_changes_the_outcome() {
        assert_eq!(share(Sampling::GREEDY, 1), 1.0);
        let cold = Sampling { temperature: 0.5, ..Sampling::PLAIN };
        assert!(share(cold, 1) > share(Sampling::PLAIN, 1));
        let two = Sampling { top_k: Some(2), ..Sampling::PLAIN };
        assert!(share(two, 0) == 0.0 && share(two, 2) > 0.0);
        let nucleus = Sampling { top_p: Some(0.7), ..Sampling::PLAIN };
        assert!(share(nucleus, 0) == 0.0 && share(nucleus, 2) > 0.0);
        assert_eq!(share(Sampling { top_p: Some(0.6), ..Sampling::PLAIN }, 1), 1.0);
    }

    /// Against the definition, which sorts everything, over a vocabulary longer than what is sorted
    /// at first.
    #[test]
    fn a_large_vocabulary_is_sampled_as_if_sorted_whole() {
        let stream = tra_random::Stream::new(7);
        let logits: Vec<f32> =
            (0..3000).map(|i| (4.0 * stream.normal(i) as f32).round() / 2.0).collect();
        let plain = |sampling: Sampling, draw: f64| {
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
            order.truncate(sampling.top_k.unwrap_or(usize::MAX));
            let weight = |t: usize| (f64::from(logits[t]) / sampling.temperature).exp();
            let total: f64 = order.iter().map(|t| weight(*t)).sum();
            let (mut mass, mut kept) = (0.0, 0);
            while kept < order.len() && mass < sampling.top_p.unwrap_or(2.0) * total {
                mass += weight(order[kept]);
                kept += 1;
            }
            let mut left = draw * mass;
            let chosen = order[..kept].iter().find(|t| {
                left -= weight(**t);
                left < 0.0
            });
            *chosen.unwrap_or(&order[kept - 1]) as u32
        };
        for (top_k, top_p) in
            [(None, None), (Some(100), None), (None, Some(0.9)), (Some(500), Some(0.5))]
        {
            for temperature in [0.7, 1.5] {
                let sampling = Sampling { temperature, top_k, top_p };
                for i in 0..200 {
                    let draw = f64::from(i) / 200.0 + 0.0013;
                    assert_eq!(
                        sampling.choose(&logits, draw),
                        plain(sampling, draw),
                        "{sampling:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        for bad in [
            Sampling { temperature: -1.0, ..Sampling::PLAIN },
            Sampling { temperature: f64::NAN, ..Sampling::PLAIN },
            Sampling { top_k: Some(0), ..Sampling::PLAIN },
            Sampling { top_p: Some(0.0), ..Sampling::PLAIN },
            Sampling { top_p: Some(1.5), ..Sampling::PLAIN },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
        assert!(Sampling::GREEDY.validate().is_ok() && Sampling::PLAIN.validate().is_ok());
    }
}
