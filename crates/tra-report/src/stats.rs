//! Means, deviations, medians and intervals. Their formulas are defined only here.

/// Half-width of a 95% interval, in standard errors.
const Z95: f64 = 1.959_963_985;

/// Summary of a quantity over several runs or samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation; `None` for a single value.
    pub deviation: Option<f64>,
    /// Smallest value.
    pub least: f64,
    /// Largest value.
    pub most: f64,
}

impl Spread {
    /// Summarizes the finite values; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        let (&first, n) = (values.first()?, values.len() as f64);
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self {
            mean,
            deviation: (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt()),
            least: values.iter().copied().fold(first, f64::min),
            most: values.iter().copied().fold(first, f64::max),
        })
    }
}

/// Returns the half-width of the 95% interval of a mean (normal approximation); 0 for fewer than
/// two values.
pub fn reach_of_mean(values: &[f64]) -> f64 {
    let deviation = Spread::of(values.iter().copied()).and_then(|spread| spread.deviation);
    Z95 * deviation.unwrap_or(0.0) / (values.len() as f64).sqrt()
}

/// Returns the median; NaN if there are no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Returns the 95% Wilson score interval for `hits` out of `n`.
pub fn wilson(hits: u64, n: u64) -> [f64; 2] {
    wilson_share(hits as f64 / n.max(1) as f64, n as f64)
}

/// Returns the 95% interval of a share of tokens, where the tokens of one sequence are not
/// independent.
///
/// Each item is `(hits, of)` of one sequence. The result is the Wilson interval for the effective
/// number of independent tokens. That number is the token count divided by the design effect: the
/// variance between sequences (of a ratio) over the variance of independent tokens. If every token
/// is a hit, or none is, this variance carries no information, and each sequence counts as one
/// token.
pub fn clustered(sequences: &[(u64, u64)]) -> [f64; 2] {
    let sequences: Vec<_> = sequences.iter().filter(|(_, of)| *of > 0).collect();
    let hits: u64 = sequences.iter().map(|(hits, _)| hits).sum();
    let of: u64 = sequences.iter().map(|(_, of)| of).sum();
    let (count, total) = (sequences.len() as f64, of as f64);
    let share = hits as f64 / total.max(1.0);
    let independent = share * (1.0 - share) / total.max(1.0);
    if hits == 0 || hits == of || sequences.len() < 2 {
        return wilson_share(share, count);
    }
    let squares = sequences.iter().map(|(h, n)| (*h as f64 - share * *n as f64).powi(2));
    let variance = squares.sum::<f64>() / (total * total) * count / (count - 1.0);
    wilson_share(share, total / (variance / independent).max(1.0))
}

fn wilson_share(p: f64, n: f64) -> [f64; 2] {
    if n == 0.0 {
        return [0.0, 1.0];
    }
    let z = Z95;
    let centre = p + z * z / (2.0 * n);
    let reach = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    // At the ends the formula is exactly 0 and 1, except for rounding errors.
    let low = if p == 0.0 { 0.0 } else { (centre - reach) / scale };
    let high = if p == 1.0 { 1.0 } else { (centre + reach) / scale };
    [low, high]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_mean_of_more_is_surer() {
        assert_eq!(reach_of_mean(&[1.0]), 0.0);
        let reach = reach_of_mean(&[1.0, 3.0]);
        assert!((reach - 1.959_963_985).abs() < 1e-9, "deviation and root of 2 cancel: {reach}");
        assert!(reach_of_mean(&[1.0, 3.0, 1.0, 3.0]) < reach);
    }

    #[test]
    fn wilson_intervals_are_those_of_the_textbook() {
        let [low, high] = wilson(8, 10);
        assert!((low - 0.4902).abs() < 1e-4 && (high - 0.9433).abs() < 1e-4, "{low} {high}");
        let [low, high] = wilson(64, 64);
        assert!((low - 0.9434).abs() < 1e-4 && high == 1.0, "{low} {high}");
        assert_eq!(wilson(0, 64)[0], 0.0);
        assert_eq!(wilson(0, 0), [0.0, 1.0]);
    }

    /// A sequence that is right or wrong as a whole carries as much information as one token.
    #[test]
    fn tokens_of_a_sequence_are_not_independent() {
        let whole: Vec<_> = (0..40).map(|i| (if i % 4 == 0 { 100 } else { 0 }, 100)).collect();
        let [low, high] = clustered(&whole);
        let [low_of_sequences, high_of_sequences] = wilson(10, 40);
        assert!((low - low_of_sequences).abs() < 0.01 && (high - high_of_sequences).abs() < 0.01);
        // Evenly spread hits carry as much information as independent tokens, and never more.
        let even: Vec<_> = (0..40).map(|_| (25, 100)).collect();
        assert_eq!(clustered(&even), wilson(1000, 4000));
        assert_eq!(clustered(&[(0, 500), (0, 500)]), wilson(0, 2));
        assert_eq!(clustered(&[]), [0.0, 1.0]);
        assert_eq!(clustered(&[(3, 3), (0, 0)]), wilson(1, 1));
    }

    #[test]
    fn a_spread_leaves_out_what_is_not_finite() {
        let spread = Spread::of([1.0, f64::NAN, 3.0]).unwrap();
        assert_eq!((spread.mean, spread.least, spread.most), (2.0, 1.0, 3.0));
        assert!((spread.deviation.unwrap() - 2f64.sqrt()).abs() < 1e-12);
        assert_eq!(Spread::of([0.5]).unwrap().deviation, None);
        assert_eq!(Spread::of([f64::NAN]), None);
    }
}
