//! Say whether a string of bits has an odd number of ones.
//!
//! `BOS b1..bn SEP p`: `<bos> 1 0 1 1 <sep> 1`, because three is odd. Only `p` is scored. Bits are
//! drawn evenly, so both answers are equally likely at every length, and every bit matters: a guess
//! that misses one is right half the time. Length counts bits.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols::{self, BOS, SEP};
use crate::{Sample, Split, Task, TaskInfo};

// Without 500 and 1000.
const SPLITS: &[Split] = ALL.split_at(5).0;
const ALL: &[Split] = &symbols::string_splits(1);

/// See the [module](self). The task has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parity {}

impl Task for Parity {
    const INFO: TaskInfo = TaskInfo {
        name: "parity",
        about: "say whether the number of ones is odd",
        unit: "bits",
        splits: SPLITS,
        extra_tokens: 3,
        ..TaskInfo::DEFAULT
    };

    fn symbol_count(&self) -> u32 {
        2
    }

    fn sample(&self, _: &Split, length: usize, stream: Stream) -> Sample {
        let zero = self.symbols().first;
        let bits = self.symbols().string(stream, length);
        let odd = bits.iter().fold(0, |odd, bit| odd ^ (bit - zero));
        symbols::given_then_scored(&[&[BOS], bits.as_slice(), &[SEP]].concat(), &[zero + odd])
    }

    fn symbol_name(&self, number: u32) -> String {
        number.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_answers, draw, samples};

    fn solve(prefix: &[u32]) -> Option<u32> {
        let [1, bits @ .., 2] = prefix else { return None };
        Some(if bits.iter().filter(|t| **t == 5).count() % 2 == 1 { 5 } else { 4 })
    }

    #[test]
    fn every_answer_follows_from_the_bits() {
        check_answers(&Parity {}, 50, solve);
    }

    #[test]
    fn bits_and_answers_are_drawn_evenly() {
        for length in [1, 2, 50] {
            let all = samples(&Parity {}, "train", length, 2000);
            assert!(all.iter().all(|s| s.tokens.len() == length + 3));
            for at in [1, length, length + 2] {
                let ones = all.iter().filter(|s| s.tokens[at] == 5).count();
                assert!((900..1100).contains(&ones), "{length} {at}: {ones}");
            }
        }
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
        let text = draw(&Parity {}, "train", (0, 0), 0, 0).unwrap_err().to_string();
        assert!(text.contains("at least 1"), "{text}");
        assert!(Parity {}.validate().is_ok());
    }
}
