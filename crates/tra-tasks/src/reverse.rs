//! Repeat a string backwards.
//!
//! `BOS x1..xn SEP xn..x1 EOS`: with three symbols, `<bos> c a b <sep> b a c <eos>`. The answer and
//! the EOS behind it are scored. Every symbol is drawn evenly from the alphabet and may repeat.
//! Length counts symbols of the input.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols::{self, string_splits};
use crate::{Sample, Split, Task, TaskInfo};

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reverse {
    /// Number of different symbols.
    pub alphabet: u32,
}

impl Default for Reverse {
    fn default() -> Self {
        Self { alphabet: 256 }
    }
}

impl Task for Reverse {
    const INFO: TaskInfo = TaskInfo {
        name: "reverse",
        about: "repeat a string backwards",
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
        let answer: Vec<u32> = input.iter().rev().copied().collect();
        symbols::transcription(&input, &answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_answers, check_even, draw};

    fn solve(prefix: &[u32]) -> Option<u32> {
        let sep = prefix.iter().position(|t| *t == 2)?;
        let place = sep - (prefix.len() - sep);
        Some(if place == 0 { 3 } else { prefix[place] })
    }

    #[test]
    fn every_answer_follows_from_the_string() {
        check_answers(&Reverse::default(), 20, solve);
        check_answers(&Reverse { alphabet: 2 }, 20, solve);
    }

    #[test]
    fn symbols_are_drawn_evenly_and_as_many_as_asked_for() {
        check_even(|alphabet| Reverse { alphabet }, 22..42);
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
        let text = draw(&Reverse::default(), "train", (0, 0), 0, 0).unwrap_err().to_string();
        assert!(text.contains("at least 1"), "{text}");
        assert!(Reverse { alphabet: 1 }.validate().unwrap_err().contains("alphabet"));
    }
}
