//! What a run writes down about itself: plain data, the same on every machine and thread count.

use serde::{Deserialize, Serialize};

/// One line of `metrics.jsonl`.
///
/// It holds nothing that depends on the clock, so that two runs of one command can be compared
/// byte by byte. Timings stand in `timing.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Metric {
    /// A training step.
    Step(StepRecord),
    /// An evaluation in between.
    Evaluation(EvaluationRecord),
}

/// One training step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Steps taken, this one included.
    pub step: u64,
    /// Mean loss over the scored tokens of the step.
    pub loss: f64,
    /// Learning rate of the step.
    pub lr: f64,
    /// Norm of the gradient over all parameters, before clipping.
    pub grad_norm: f64,
    /// Tokens read so far, padding excluded.
    pub tokens: u64,
}

/// An evaluation after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRecord {
    /// Steps taken before it.
    pub step: u64,
    /// One for every split and length.
    pub results: Vec<EvalResult>,
}

/// How well a model does on one split at one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvalResult {
    /// The split.
    pub split: String,
    /// The length, or the longest of a range.
    pub length: usize,
    /// The shortest length of the range; the same as `length` where there is one length.
    pub shortest: usize,
    /// How many sequences were drawn.
    pub sequences: u64,
    /// Share of sequences with every answer right.
    pub exact_match: f64,
    /// Its 95% interval (Wilson).
    pub exact_match_interval: [f64; 2],
    /// How many answer tokens were scored.
    pub scored: u64,
    /// Share of answer tokens that are wrong. For flip-flop this is the error per read.
    pub token_error: f64,
    /// Its 95% interval (Wilson).
    pub token_error_interval: [f64; 2],
    /// Mean cross-entropy of the answer tokens.
    pub loss: f64,
    /// Its 95% interval (normal, over sequences).
    pub loss_interval: [f64; 2],
}

/// `eval.json`, and what `tra eval --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Steps the model was trained for.
    pub step: u64,
    /// The newest results for every split and length.
    pub results: Vec<EvalResult>,
}

/// The Wilson score interval at 95% for `hits` out of `n`.
pub fn wilson(hits: u64, n: u64) -> [f64; 2] {
    if n == 0 {
        return [0.0, 1.0];
    }
    let (z, n) = (1.959_963_985, n as f64);
    let p = hits as f64 / n;
    let centre = p + z * z / (2.0 * n);
    let reach = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    // At the ends the formula gives 0 and 1 but for rounding.
    let low = if p == 0.0 { 0.0 } else { (centre - reach) / scale };
    let high = if p == 1.0 { 1.0 } else { (centre + reach) / scale };
    [low, high]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_intervals_are_those_of_the_textbook() {
        let [low, high] = wilson(8, 10);
        assert!((low - 0.4902).abs() < 1e-4 && (high - 0.9433).abs() < 1e-4, "{low} {high}");
        let [low, high] = wilson(64, 64);
        assert!((low - 0.9434).abs() < 1e-4 && high == 1.0, "{low} {high}");
        assert_eq!(wilson(0, 64)[0], 0.0);
        assert_eq!(wilson(0, 0), [0.0, 1.0]);
    }

    #[test]
    fn lines_of_metrics_come_back_as_what_they_were() {
        let step = StepRecord { step: 3, loss: 0.1, lr: 1e-3, grad_norm: 2.0, tokens: 7 };
        for metric in [
            Metric::Step(step),
            Metric::Evaluation(EvaluationRecord { step: 3, results: Vec::new() }),
        ] {
            let line = serde_json::to_string(&metric).unwrap();
            assert_eq!(serde_json::from_str::<Metric>(&line).unwrap(), metric);
        }
    }
}
