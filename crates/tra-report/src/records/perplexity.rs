//! Perplexity of a text at one or more windows.

use serde::{Deserialize, Serialize};

use super::{number, numbers};

/// How a text is cut into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Windows that do not overlap. Every token is scored, so the first tokens of a window have
    /// little context.
    Chunk,
    /// Windows that advance by a stride. Only the new tokens of a window are scored, so every token
    /// outside the first window has at least `window - stride` tokens of context.
    Sliding,
}

impl Protocol {
    /// Returns the name, as users type it.
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
        found.ok_or_else(|| format!("unknown protocol {name:?}: expected chunk or sliding"))
    }
}

/// `perplexity.json`: the measurements, by ascending step. There is one per step, text and number
/// of tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "PerplexitiesFile")]
pub struct Perplexities {
    measured: Vec<Perplexity>,
}

/// The current file format, or the old one with a single measurement.
#[derive(Deserialize)]
#[serde(untagged)]
enum PerplexitiesFile {
    All { measured: Vec<Perplexity> },
    One(Perplexity),
}

impl From<PerplexitiesFile> for Perplexities {
    fn from(file: PerplexitiesFile) -> Self {
        match file {
            PerplexitiesFile::All { measured } => Self { measured },
            PerplexitiesFile::One(one) => Self { measured: vec![one] },
        }
    }
}

impl Perplexities {
    /// Returns the last measurement of the newest step.
    pub fn newest(&self) -> Option<&Perplexity> {
        self.measured.last()
    }

    /// Returns the measurements of a step, the last one first.
    pub fn at(&self, step: u64) -> impl Iterator<Item = &Perplexity> {
        self.measured.iter().rev().filter(move |found| found.step == step)
    }

    /// Adds results. Results of the same step, text, protocol, window and stride are replaced.
    pub fn add(&mut self, new: &Perplexity) {
        let key = |found: &Perplexity| (found.step, found.content.clone(), found.tokens);
        let mut all = new.clone();
        if let Some(place) = self.measured.iter().position(|old| key(old) == key(new)) {
            let old = self.measured.remove(place);
            let spec = |r: &PerplexityResult| (r.protocol.name(), r.window, r.stride);
            let kept = old.results.into_iter();
            let kept = kept.filter(|r| new.results.iter().all(|other| spec(other) != spec(r)));
            all.results.extend(kept);
            all.results.sort_by_key(spec);
        }
        let place = self.measured.partition_point(|found| found.step <= new.step);
        self.measured.insert(place, all);
    }

    /// Removes the measurements after `step`. Returns whether there were any.
    pub fn forget_after(&mut self, step: u64) -> bool {
        let before = self.measured.len();
        self.measured.retain(|found| found.step <= step);
        self.measured.len() < before
    }
}

/// Perplexity of one text, as `tra perplexity --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Perplexity {
    /// Steps the model was trained for; 0 if unknown.
    pub step: u64,
    /// The text, as named by the user.
    pub text: String,
    /// Identifies the text and the tokenizer.
    #[serde(default)]
    pub content: String,
    /// Number of tokens scored: all of the text, or of its beginning, except the first.
    pub tokens: u64,
    /// Number of bytes of these tokens.
    pub bytes: u64,
    /// One result per protocol, window and stride.
    pub results: Vec<PerplexityResult>,
}

/// Loss and perplexity of a text, read in windows of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerplexityResult {
    /// How the text was cut.
    pub protocol: Protocol,
    /// Tokens read at once.
    pub window: usize,
    /// Number of tokens by which the window advances.
    pub stride: usize,
    /// Mean cross-entropy per token, in nats.
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
    /// Loss in bits per byte of text. Comparable between tokenizers.
    #[serde(deserialize_with = "number")]
    pub bits_per_byte: f64,
    /// Difference to the loss at another window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// Loss by the number of preceding tokens in the window.
    pub by_position: Vec<PositionLoss>,
}

/// The difference in loss between two windows, computed token by token.
///
/// Its interval is much narrower than the intervals of the two losses suggest, because a token that
/// is hard at one window is also hard at the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The other window.
    pub against: usize,
    /// Mean loss minus the mean loss at the other window, in nats.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Its 95% interval (normal, over blocks of consecutive tokens).
    #[serde(deserialize_with = "numbers")]
    pub loss_interval: [f64; 2],
}

/// The loss of tokens at similar positions in their windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionLoss {
    /// Smallest number of preceding tokens in the window; at least 1.
    pub from: usize,
    /// Largest number of preceding tokens.
    pub to: usize,
    /// Number of tokens scored.
    pub tokens: u64,
    /// Their mean loss, in nats.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
