//! Say whether a string of bits has an odd number of ones.
//!
//! `BOS b1..bn SEP p`: `<bos> 1 0 1 1 <sep> 1`, because three is odd. Only `p` is scored. Bits are
//! drawn evenly, so both answers are equally likely at every length, and every bit matters: a guess
//! that misses one is right half the time. Length counts bits.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols::{self, BOS, FREE, SEP, Symbols};
use crate::{Sample, Split, Task};

const BITS: Symbols = Symbols { first: FREE, count: 2 };

// Up to 300.
const SPLITS: &[Split] = ALL.split_at(5).0;
const ALL: &[Split] = &symbols::string_splits(1);

/// See the [module](self). It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parity {}

impl Parity {
    pub(crate) fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Task for Parity {
    fn name(&self) -> &'static str {
        "parity"
    }

    fn about(&self) -> &'static str {
        "say whether the number of ones is odd"
    }

    fn unit(&self) -> &'static str {
        "bits"
    }

    fn vocab(&self) -> usize {
        BITS.end() as usize
    }

    fn splits(&self) -> &'static [Split] {
        SPLITS
    }

    fn check_length(&self, length: usize) -> Result<(), String> {
        symbols::check_least(length, 1)
    }

    fn token_bounds(&self, length: usize) -> [u64; 2] {
        symbols::as_long(length, 1, 3)
    }

    fn sample(&self, _: &Split, length: usize, stream: Stream) -> Sample {
        let bits = BITS.string(stream, length);
        let odd = bits.iter().fold(0, |odd, bit| odd ^ (bit - BITS.first));
        symbols::given_then_scored(&[&[BOS], bits.as_slice(), &[SEP]].concat(), &[BITS.first + odd])
    }

    fn token_name(&self, token: u32) -> String {
        match token.checked_sub(BITS.first) {
            Some(bit) => format!("{bit}"),
            None => BITS.name(token),
        }
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
