//! Say the largest symbol of a string.
//!
//! `BOS x1..xn SEP y`: with three symbols, `<bos> b a b <sep> b`. Only `y` is scored. Every symbol is
//! drawn evenly from the alphabet and may repeat. Length counts symbols of the string.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols::{self, BOS, SEP};
use crate::{Sample, Split, Task, TaskInfo};

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Largest {
    /// Number of different symbols.
    pub alphabet: u32,
}

impl Default for Largest {
    fn default() -> Self {
        Self { alphabet: 256 }
    }
}

impl Task for Largest {
    const INFO: TaskInfo = TaskInfo {
        name: "largest",
        about: "say the largest symbol of a string",
        splits: &symbols::string_splits(1),
        extra_tokens: 3,
        ..TaskInfo::DEFAULT
    };

    fn symbol_count(&self) -> u32 {
        self.alphabet
    }

    fn sample(&self, _: &Split, length: usize, stream: Stream) -> Sample {
        let string = self.symbols().string(stream, length);
        let largest = string.iter().copied().max().unwrap_or(BOS);
        symbols::given_then_scored(&[&[BOS], string.as_slice(), &[SEP]].concat(), &[largest])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::check_answers;

    /// Shares no code with the sampler: it sees the tokens so far, and says which answer follows.
    fn solve(prefix: &[u32]) -> Option<u32> {
        let [1, string @ .., 2] = prefix else { return None };
        (4..260).rev().find(|symbol| string.contains(symbol))
    }

    #[test]
    fn every_answer_follows_from_the_string() {
        check_answers(&Largest::default(), 20, solve);
        check_answers(&Largest { alphabet: 2 }, 20, solve);
    }
}
