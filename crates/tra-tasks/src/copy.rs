//! Repeat a string whose symbols may repeat.
//!
//! `BOS x1..xn SEP x1..xn EOS`: with three symbols, `<bos> c a a <sep> c a a <eos>`. The answer and
//! the EOS behind it are scored: where to stop is part of the answer. Every symbol is drawn evenly
//! from the alphabet. Where a symbol repeats, its place cannot be found by content alone, so the
//! size of the alphabet matters; `copy-unique` has no repeats. Length counts symbols of the input.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols::{self, string_splits};
use crate::{Sample, Split, Task, TaskInfo};

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Copy {
    /// Number of different symbols.
    pub alphabet: u32,
}

impl Default for Copy {
    fn default() -> Self {
        Self { alphabet: 256 }
    }
}

impl Task for Copy {
    const INFO: TaskInfo = TaskInfo {
        name: "copy",
        about: "repeat a string",
        splits: &string_splits(1),
        tokens_per_unit: 2,
        extra_tokens: 3,
        ..TaskInfo::DEFAULT
    };

    fn symbol_count(&self) -> u32 {
        self.alphabet
    }

    fn sample(&self, _: &Split, length: usize, stream: Stream) -> Sample {
        let input = self.symbols().string(stream, length);
        symbols::transcription(&input, &input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_answers, check_even, draw};

    fn solve(prefix: &[u32]) -> Option<u32> {
        let sep = prefix.iter().position(|t| *t == 2)?;
        let given = prefix.len() - sep;
        Some(if given == sep { 3 } else { prefix[given] })
    }

    #[test]
    fn every_answer_follows_from_the_string() {
        check_answers(&Copy::default(), 20, solve);
        check_answers(&Copy { alphabet: 2 }, 20, solve);
    }

    #[test]
    fn symbols_are_drawn_evenly_and_as_many_as_asked_for() {
        check_even(|alphabet| Copy { alphabet }, 1..21);
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
        let text = draw(&Copy::default(), "train", (0, 0), 0, 0).unwrap_err().to_string();
        assert!(text.contains("at least 1"), "{text}");
        assert!(Copy { alphabet: 1 }.validate().unwrap_err().contains("alphabet"));
        assert!(Copy { alphabet: u32::MAX }.validate().is_err());
        assert!(Copy { alphabet: 2 }.validate().is_ok());
    }
}
