//! What a run writes down about itself: plain data, the same on every machine and thread count.

use serde::{Deserialize, Deserializer, Serialize};

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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// How a text is cut into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Windows that do not overlap; every token of a window is scored, the first ones with little
    /// before them.
    Chunk,
    /// Windows that move on by a stride; only what is new in a window is scored, so that every token
    /// has at least `window - stride` tokens before it, but for those of the first window.
    Sliding,
}

impl Protocol {
    /// What users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chunk => "chunk",
            Self::Sliding => "sliding",
        }
    }
}

impl std::str::FromStr for Protocol {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Chunk, Self::Sliding];
        let found = all.into_iter().find(|protocol| protocol.name() == name);
        found.ok_or_else(|| format!("{name:?} is no protocol; there are chunk and sliding"))
    }
}

/// `perplexity.json`, and what `tra perplexity --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Perplexity {
    /// Steps the model was trained for; 0 where that is not known.
    pub step: u64,
    /// The text, as it was given.
    pub text: String,
    /// Another text or tokenizer has another.
    #[serde(default)]
    pub content: String,
    /// Tokens scored: all of the text, or of its beginning, but the first.
    pub tokens: u64,
    /// Bytes of their text.
    pub bytes: u64,
    /// One for every protocol and window.
    pub results: Vec<PerplexityResult>,
}

/// How surprised a model is by a text, read in windows of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerplexityResult {
    /// How the text was cut.
    pub protocol: Protocol,
    /// Tokens read at once.
    pub window: usize,
    /// By how many tokens the window moves on.
    pub stride: usize,
    /// Mean cross-entropy of a token, in nats.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Its 95% interval (normal, over blocks of consecutive tokens).
    #[serde(deserialize_with = "numbers")]
    pub loss_interval: [f64; 2],
    /// The exponential of the loss.
    #[serde(deserialize_with = "number")]
    pub perplexity: f64,
    /// Its 95% interval.
    #[serde(deserialize_with = "numbers")]
    pub perplexity_interval: [f64; 2],
    /// The loss in bits for each byte of the text, which does not depend on the tokenizer.
    #[serde(deserialize_with = "number")]
    pub bits_per_byte: f64,
    /// How the loss differs from that at another window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// The loss by how much of the window stood before a token.
    pub by_position: Vec<PositionLoss>,
}

/// The difference between two windows, token by token: much surer than the difference of their
/// intervals, for a token that is hard at one window is hard at the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The window compared with.
    pub against: usize,
    /// Mean loss less that at the other window, in nats.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Its 95% interval (normal, over blocks of consecutive tokens).
    #[serde(deserialize_with = "numbers")]
    pub loss_interval: [f64; 2],
}

/// The loss of tokens that stand alike in their windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionLoss {
    /// The fewest tokens of the window before the one predicted; at least 1.
    pub from: usize,
    /// The most.
    pub to: usize,
    /// How many tokens were scored there.
    pub tokens: u64,
    /// Their mean loss, in nats.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
}

/// JSON has no infinity and no NaN: they are written as null.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<[f64; 2], D::Error> {
    Ok(<[Option<f64>; 2]>::deserialize(from)?.map(|x| x.unwrap_or(f64::NAN)))
}

/// Whether no sequence of `split` was right at a length below `shortest`, so that none can be expected there.
pub(crate) fn is_lost(results: &[EvalResult], split: &str, shortest: usize) -> bool {
    results.iter().any(|r| r.split == split && r.length < shortest && r.exact_match == 0.0)
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
    fn what_is_no_number_is_read_back_as_none() {
        let result = PerplexityResult {
            protocol: Protocol::Sliding,
            window: 2,
            stride: 1,
            loss: 800.0,
            loss_interval: [f64::NAN, 900.0],
            perplexity: f64::INFINITY,
            perplexity_interval: [f64::NAN, f64::INFINITY],
            bits_per_byte: f64::NAN,
            change: None,
            by_position: vec![PositionLoss { from: 1, to: 1, tokens: 3, loss: f64::NAN }],
        };
        let text = serde_json::to_string(&result).unwrap();
        let back: PerplexityResult = serde_json::from_str(&text).unwrap();
        assert!(back.loss == 800.0 && back.perplexity.is_nan() && back.bits_per_byte.is_nan());
        assert!(back.loss_interval[0].is_nan() && back.loss_interval[1] == 900.0);
        assert!(text.contains("\"sliding\""));
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
