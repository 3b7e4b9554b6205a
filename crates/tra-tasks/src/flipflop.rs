//! Flip-flop language modelling (Liu et al. 2023): remember one bit through distractions.
//!
//! A sequence is pairs of an instruction and a bit. `w` writes the bit, `i` says to ignore it, and
//! the bit after `r` repeats the one written last: `w1 i0 i1 r1 w0 r0`. Only the bits after `r`
//! are scored. The first instruction is `w`, the last is `r`; in between, `i` has probability `p`
//! and `w` and `r` share the rest.

use tra_kernels::random::Stream;

use crate::{Sample, Split, Task, TaskError};

/// Write the bit that follows.
pub const WRITE: u32 = 1;
/// Repeat the bit written last.
pub const READ: u32 = 2;
/// Ignore the bit that follows.
pub const IGNORE: u32 = 3;
/// The bit 0; the bit 1 is the token after it.
pub const ZERO: u32 = 4;

const SPLITS: &[Split] = &[
    Split { name: "iid", about: "FFL(0.8): four in five instructions are ignored, as in training" },
    Split { name: "sparse", about: "FFL(0.98): the bit must be kept much longer" },
    Split { name: "dense", about: "FFL(0.1): the bit changes and is read all the time" },
];

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub struct FlipFlop;

impl Task for FlipFlop {
    fn name(&self) -> &'static str {
        "flipflop"
    }

    fn about(&self) -> &'static str {
        "repeat the bit written last, whatever came in between"
    }

    fn vocab(&self) -> usize {
        6
    }

    fn splits(&self) -> &'static [Split] {
        SPLITS
    }

    fn sample(&self, split: &str, length: usize, stream: Stream) -> Result<Sample, TaskError> {
        let ignored = match split {
            "iid" => 0.8,
            "sparse" => 0.98,
            "dense" => 0.1,
            _ => {
                let known = SPLITS.iter().map(|split| split.name).collect();
                return Err(TaskError::UnknownSplit {
                    task: "flipflop",
                    split: split.into(),
                    known,
                });
            }
        };
        if length < 4 || length % 2 == 1 {
            let rule = "lengths are even and at least 4";
            return Err(TaskError::Length { task: "flipflop", length, rule });
        }
        let pairs = length / 2;
        let mut tokens = Vec::with_capacity(length);
        let mut written = ZERO;
        for pair in 0..pairs {
            let (kind, bit) =
                (stream.uniform(2 * pair as u64), stream.bits(2 * pair as u64 + 1) >> 63);
            let instruction = match kind {
                _ if pair == 0 => WRITE,
                _ if pair == pairs - 1 => READ,
                _ if kind < ignored => IGNORE,
                _ if kind < (1.0 + ignored) / 2.0 => WRITE,
                _ => READ,
            };
            let bit = if instruction == READ { written } else { ZERO + bit as u32 };
            if instruction == WRITE {
                written = bit;
            }
            tokens.extend([instruction, bit]);
        }
        let scored = after_reads(&tokens);
        Ok(Sample { tokens, scored })
    }

    fn token_name(&self, token: u32) -> String {
        match token {
            WRITE => "w".into(),
            READ => "r".into(),
            IGNORE => "i".into(),
            ZERO => "0".into(),
            5 => "1".into(),
            other => format!("<{other}>"),
        }
    }
}

/// True for the token after each read.
pub fn after_reads(tokens: &[u32]) -> Vec<bool> {
    (0..tokens.len()).map(|at| at > 0 && tokens[at - 1] == READ).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(split: &str, length: usize, count: u64) -> Vec<Sample> {
        (0..count)
            .map(|i| FlipFlop.sample(split, length, Stream::new(1).fork(i)).unwrap())
            .collect()
    }

    #[test]
    fn instructions_have_the_right_frequencies() {
        for (split, p) in [("iid", 0.8), ("sparse", 0.98), ("dense", 0.1)] {
            let all = samples(split, 512, 200);
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
        for split in ["iid", "sparse", "dense"] {
            for Sample { tokens, scored } in samples(split, 64, 100) {
                assert_eq!((tokens[0], tokens[62]), (WRITE, READ));
                assert!(scored[63]);
                for at in (0..64).filter(|at| scored[*at]) {
                    assert_eq!(tokens[at - 1], READ);
                    let write = (0..at).rev().find(|t| t % 2 == 0 && tokens[*t] == WRITE).unwrap();
                    assert_eq!(tokens[at], tokens[write + 1]);
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
        let s = Stream::new(0);
        let text = FlipFlop.sample("iid", 7, s).unwrap_err().to_string();
        assert!(text.contains("even"), "{text}");
        let text = FlipFlop.sample("far", 8, s).unwrap_err().to_string();
        assert!(text.contains("iid, sparse, dense"), "{text}");
    }
}
