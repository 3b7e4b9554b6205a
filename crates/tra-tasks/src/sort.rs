//! Put the symbols of a string in order.
//!
//! `BOS x1..xn SEP y1..yn EOS` where `y` is `x` in ascending order of tokens: with three symbols,
//! `<bos> c a b a <sep> a a b c <eos>`. The answer and the EOS behind it are scored. Every symbol
//! is drawn evenly from the alphabet and may repeat. The answer repeats it as often as the input
//! does, so at lengths beyond the alphabet the task is to count. Length counts symbols of the input.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols::{self, string_splits};
use crate::{Sample, Split, Task, TaskInfo};

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sort {
    /// Number of different symbols.
    pub alphabet: u32,
}

impl Default for Sort {
    fn default() -> Self {
        Self { alphabet: 256 }
    }
}

impl Task for Sort {
    const INFO: TaskInfo = TaskInfo {
        name: "sort",
        about: "put the symbols of a string in order",
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
        let mut answer = input.clone();
        answer.sort_unstable();
        symbols::transcription(&input, &answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_answers, check_even, draw, samples};

    /// Selects: the least symbol that was given more often than it was answered.
    fn solve(prefix: &[u32]) -> Option<u32> {
        let sep = prefix.iter().position(|t| *t == 2)?;
        let mut left = [0; 300];
        prefix[1..sep].iter().for_each(|t| left[*t as usize] += 1);
        prefix[sep + 1..].iter().for_each(|t| left[*t as usize] -= 1);
        Some(left.iter().position(|n| *n > 0).map_or(3, |t| t as u32))
    }

    #[test]
    fn every_answer_follows_from_the_string() {
        check_answers(&Sort::default(), 4, solve);
        check_answers(&Sort { alphabet: 2 }, 4, solve);
    }

    #[test]
    fn symbols_are_drawn_evenly_and_the_input_is_in_no_order() {
        check_even(|alphabet| Sort { alphabet }, 1..21);
        let samples = samples(&Sort { alphabet: 10 }, "train", 20, 1000);
        let firsts = samples.iter().filter(|sample| sample.tokens[1] == 4).count();
        assert!((40..160).contains(&firsts), "{firsts}");
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
        let text = draw(&Sort::default(), "train", (0, 0), 0, 0).unwrap_err().to_string();
        assert!(text.contains("at least 1"), "{text}");
        assert!(Sort { alphabet: 1 }.validate().unwrap_err().contains("alphabet"));
    }
}
