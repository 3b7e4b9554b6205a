//! Repeat a string in which no symbol occurs twice.
//!
//! `BOS x1..xn SEP x1..xn EOS`: with three symbols, `<bos> c a b <sep> c a b <eos>`. The answer and
//! the EOS behind it are scored. Strings are drawn evenly among those without repeats, so every
//! place can be found by content alone; no string is longer than the alphabet, whose default covers
//! the longest split. Length counts symbols of the input.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols;
use crate::{Sample, Split, Task, TaskInfo};

// Without 500 and 1000, which need a larger alphabet.
const SPLITS: &[Split] = ALL.split_at(5).0;
const ALL: &[Split] = &symbols::string_splits(1);

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CopyUnique {
    /// Number of different symbols, which is also the length of the longest string.
    pub alphabet: u32,
}

impl Default for CopyUnique {
    fn default() -> Self {
        Self { alphabet: 320 }
    }
}

impl Task for CopyUnique {
    const INFO: TaskInfo = TaskInfo {
        name: "copy-unique",
        about: "repeat a string in which no symbol occurs twice",
        splits: SPLITS,
        tokens_per_unit: 2,
        extra_tokens: 3,
        ..TaskInfo::DEFAULT
    };

    fn symbol_count(&self) -> u32 {
        self.alphabet
    }

    fn check_length(&self, length: usize) -> Result<(), String> {
        symbols::check_distinct("alphabet", length, self.alphabet)
    }

    fn sample(&self, _: &Split, length: usize, stream: Stream) -> Sample {
        let input = self.symbols().distinct(stream, length);
        symbols::transcription(&input, &input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_answers, draw, samples};

    /// Finds the place by content: the symbol after the one answered last.
    fn solve(prefix: &[u32]) -> Option<u32> {
        let sep = prefix.iter().position(|t| *t == 2)?;
        let last = prefix[prefix.len() - 1];
        let place = if last == 2 { 0 } else { prefix.iter().position(|t| *t == last)? };
        Some(if place + 1 == sep { 3 } else { prefix[place + 1] })
    }

    #[test]
    fn every_answer_follows_from_the_string() {
        check_answers(&CopyUnique::default(), 20, solve);
        check_answers(&CopyUnique { alphabet: 1000 }, 20, solve);
    }

    #[test]
    fn no_symbol_repeats_and_all_are_as_likely() {
        for alphabet in [20, 40] {
            let mut seen = vec![0; alphabet as usize];
            for sample in samples(&CopyUnique { alphabet }, "train", 20, 1000) {
                assert_eq!(sample.tokens.len(), 43);
                let input = sample.tokens[1..21].iter();
                assert_eq!(input.clone().collect::<std::collections::HashSet<_>>().len(), 20);
                input.for_each(|t| seen[*t as usize - 4] += 1);
            }
            let share = 20_000 / alphabet as i32;
            assert!(seen.iter().all(|n| (n - share).abs() < share / 5), "{seen:?}");
        }
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
        let error = |length| draw(&CopyUnique::default(), "train", (length, length), 0, 0);
        assert!(error(320).is_ok());
        let text = error(321).unwrap_err().to_string();
        assert!(text.contains("set alphabet to 321"), "{text}");
        assert!(error(0).unwrap_err().to_string().contains("at least 1"));
        assert!(CopyUnique { alphabet: 1 }.validate().unwrap_err().contains("alphabet"));
    }
}
