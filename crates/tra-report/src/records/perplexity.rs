//! Perplexity of a text at one or more windows.

use serde::{Deserialize, Serialize};

use super::{number, numbers};

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

/// `perplexity.json`: what was measured, by ascending step; one for every step, text and amount of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "PerplexitiesFile")]
pub struct Perplexities {
    measured: Vec<Perplexity>,
}

/// The file as it is, or as it was when it held one measurement only.
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
    /// Returns what was measured last of the newest step.
    pub fn newest(&self) -> Option<&Perplexity> {
        self.measured.last()
    }

    /// Returns what was measured of a step, the last first.
    pub fn at(&self, step: u64) -> impl Iterator<Item = &Perplexity> {
        self.measured.iter().rev().filter(move |found| found.step == step)
    }

    /// Adds results. Those of the same step, text, protocol and window are replaced.
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

    /// Forgets what was found after `step`; whether there was anything.
    pub fn forget_after(&mut self, step: u64) -> bool {
        let before = self.measured.len();
        self.measured.retain(|found| found.step <= step);
        self.measured.len() < before
    }
}

/// Perplexity of one text; what `tra perplexity --json` prints.
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
