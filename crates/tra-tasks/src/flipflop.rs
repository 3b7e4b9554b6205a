//! Flip-flop language modelling (Liu et al. 2023): remember one bit through distractions.
//!
//! A sequence is pairs of an instruction and a bit. `w` writes the bit, `i` says to ignore it, and
//! the bit after `r` repeats the one written last: `w1 i0 i1 r1 w0 r0`. Only the bits after `r`
//! are scored. The first instruction is `w`, the last is `r`; in between, `i` has probability `p`
//! and `w` and `r` share the rest. Length counts tokens: 512 is 256 pairs, as in the paper.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols;
use crate::{Sample, Split, Task, TaskInfo};

/// Instruction: write the bit that follows.
pub const WRITE: u32 = 1;
/// Instruction: repeat the bit written last.
pub const READ: u32 = 2;
/// Instruction: ignore the bit that follows.
pub const IGNORE: u32 = 3;
/// The bit 0. The other values are the tokens after it.
pub const ZERO: u32 = 4;

const SPLITS: &[Split] = &[
    Split { name: "train", about: "FFL(0.8)", from: 512, to: 512 },
    Split { name: "iid", about: "FFL(0.8), as in training", from: 512, to: 512 },
    Split {
        name: "sparse",
        about: "FFL(0.98): a bit must be kept much longer",
        from: 512,
        to: 512,
    },
    Split { name: "dense", about: "FFL(0.1): written and read all the time", from: 512, to: 512 },
];

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlipFlop {
    /// Number of values that a "bit" has: 2 in the paper.
    pub values: u32,
}

impl Default for FlipFlop {
    fn default() -> Self {
        Self { values: 2 }
    }
}

impl Task for FlipFlop {
    const INFO: TaskInfo = TaskInfo {
        name: "flipflop",
        about: "repeat the bit written last, whatever came in between",
        unit: "tokens",
        splits: SPLITS,
        special: &["<pad>", "w", "r", "i"],
        min_length: 4,
        length_step: 2,
        extra_tokens: 0,
        ..TaskInfo::DEFAULT
    };

    fn symbol_count(&self) -> u32 {
        self.values
    }

    fn validate(&self) -> Result<(), String> {
        symbols::check_range("values", self.values, 2)
    }

    fn sample(&self, split: &Split, length: usize, stream: Stream) -> Sample {
        let ignored = match split.name {
            "sparse" => 0.98,
            "dense" => 0.1,
            _ => 0.8,
        };
        let pairs = length / 2;
        let mut tokens = Vec::with_capacity(length);
        let mut written = ZERO;
        for pair in 0..pairs {
            let kind = stream.uniform(2 * pair as u64);
            let bit = ZERO + stream.below(2 * pair as u64 + 1, self.values.into()) as u32;
            let instruction = match kind {
                _ if pair == 0 => WRITE,
                _ if pair == pairs - 1 => READ,
                _ if kind < ignored => IGNORE,
                _ if kind < (1.0 + ignored) / 2.0 => WRITE,
                _ => READ,
            };
            let bit = if instruction == READ { written } else { bit };
            if instruction == WRITE {
                written = bit;
            }
            tokens.extend([instruction, bit]);
        }
        let scored = after_reads(&tokens);
        Sample { tokens, scored }
    }

    fn symbol_name(&self, number: u32) -> String {
        number.to_string()
    }
}

/// Returns which tokens stand behind a read.
pub fn after_reads(tokens: &[u32]) -> Vec<bool> {
    (0..tokens.len()).map(|at| at > 0 && tokens[at - 1] == READ).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskError;
    use crate::tests::draw;

    fn samples(task: &FlipFlop, split: &str, length: usize, count: u64) -> Vec<Sample> {
        (0..count).map(|i| draw(task, split, (length, length), 1, i).unwrap()).collect()
    }

    #[test]
    fn instructions_have_the_right_frequencies() {
        for (split, p) in [("train", 0.8), ("iid", 0.8), ("sparse", 0.98), ("dense", 0.1)] {
            let all = samples(&FlipFlop::default(), split, 512, 200);
            let middle = all.iter().flat_map(|s| s.tokens[2..510].iter().step_by(2));
            let count = |t| middle.clone().filter(|x| **x == t).count() as f64 / (200.0 * 254.0);
            for (token, share) in [(IGNORE, p), (WRITE, (1.0 - p) / 2.0), (READ, (1.0 - p) / 2.0)] {
                assert!((count(token) - share).abs() < 0.01, "{split} {token}: {}", count(token));
            }
            let ones = all.iter().flat_map(|s| &s.tokens).filter(|t| **t == 5).count();
            assert!((ones as f64 / (200.0 * 256.0) - 0.5).abs() < 0.05);
        }
    }

    /// A solver that shares nothing with the sampler: scan back from each answer.
    #[test]
    fn every_read_repeats_the_last_write() {
        for task in [FlipFlop::default(), FlipFlop { values: 10 }] {
            for split in ["train", "iid", "sparse", "dense"] {
                for Sample { tokens, scored } in samples(&task, split, 64, 100) {
                    assert_eq!((tokens[0], tokens[62]), (WRITE, READ));
                    assert!(scored[63]);
                    assert!(tokens.iter().all(|t| *t < task.symbols().end()));
                    for at in (0..64).filter(|at| scored[*at]) {
                        assert_eq!(tokens[at - 1], READ);
                        let mut writes = (0..at).rev().filter(|t| t % 2 == 0);
                        let write = writes.find(|t| tokens[*t] == WRITE).unwrap();
                        assert_eq!(tokens[at], tokens[write + 1]);
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
        let task = FlipFlop::default();
        let text = draw(&task, "iid", (7, 7), 0, 0).unwrap_err().to_string();
        assert!(text.contains("even"), "{text}");
        let error = draw(&task, "far", (8, 8), 0, 0).unwrap_err();
        assert!(matches!(error, TaskError::UnknownSplit { .. }));
        assert!(error.to_string().contains("train, iid, sparse, dense"), "{error}");
        assert!(FlipFlop { values: 1 }.validate().is_err());
    }
}
