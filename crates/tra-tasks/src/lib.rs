//! Length-generalisation tasks, and text, as sequences of integers.
//!
//! A [`Task`] turns a length and a stream of random numbers into a [`Sample`]: tokens, and which of
//! them are answers to be predicted from the tokens before. Nothing here knows of tensors.
//!
//! Every draw is a function of (seed, split, index) alone: see [`draw`]. Adding a task is one new
//! file beside [`flipflop`] and one line in `registry.rs`.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod addition;
pub mod copy;
pub mod copy_unique;
pub mod flipflop;
pub mod induct;
pub mod instruct;
pub mod needle;
pub mod parity;
pub mod recall;
mod registry;
pub mod reverse;
pub mod sort;
mod symbols;
pub mod text;
mod transcription;

use tra_kernels::random::Stream;

pub use registry::{NAMES, TaskConfig};

/// Token 0 of every task: padding, never part of a sample.
pub const PAD: u32 = 0;

/// One sequence of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// For every token whether it is an answer: predicted from the tokens before it, and scored.
    pub scored: Vec<bool>,
}

/// A named distribution of samples: where a model is trained or tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// What users type. The first split of every task is called `train`.
    pub name: &'static str,
    /// What is special about it, in a few words.
    pub about: &'static str,
    /// Shortest length it is drawn at unless told otherwise.
    pub from: usize,
    /// Longest length it is drawn at unless told otherwise.
    pub to: usize,
}

/// By what a model of a task is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The share of sequences in which every answer is right.
    ExactMatch,
    /// How surprised it is by the next token.
    Perplexity,
}

/// Something to learn.
pub trait Task: Send + Sync {
    /// What users type.
    fn name(&self) -> &'static str;

    /// What is asked of a model, in one line.
    fn about(&self) -> &'static str;

    /// What a length counts: `tokens`, or `symbols` of the input, or `digits`.
    fn unit(&self) -> &'static str;

    /// Number of tokens, padding included.
    fn vocab(&self) -> usize;

    /// The distributions it offers, `train` first.
    fn splits(&self) -> &'static [Split];

    /// Says why there is no sequence of that length, if there is none.
    fn check_length(&self, length: usize) -> Result<(), String>;

    /// Draws one sequence. It depends on the arguments alone; `split` is one of
    /// [`splits`](Self::splits) and `length` has passed [`check_length`](Self::check_length).
    fn sample(&self, split: &Split, length: usize, stream: Stream) -> Sample;

    /// How a token reads, as short as can be.
    fn token_name(&self, token: u32) -> String;

    /// By what a model of it is judged.
    fn measure(&self) -> Measure {
        Measure::ExactMatch
    }

    /// Where tokens come from text: all it takes to make the tokenizer again, for the checkpoint.
    fn tokenizer(&self) -> Option<&str> {
        None
    }

    /// Where samples come from files: another content has another fingerprint.
    fn fingerprint(&self) -> Option<String> {
        None
    }
}

/// What a task cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskError {
    /// No task of that name.
    UnknownTask(String),
    /// No split of that name.
    UnknownSplit {
        /// The task.
        task: &'static str,
        /// What was asked for.
        split: String,
        /// What could be asked for.
        known: Vec<&'static str>,
    },
    /// No sequence of that length.
    Length {
        /// The task.
        task: &'static str,
        /// What was asked for.
        length: usize,
        /// Why there is none.
        reason: String,
    },
    /// A setting that makes no sense.
    Setting {
        /// The task.
        task: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A text that cannot be used.
    Text(String),
}

impl std::fmt::Display for TaskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownTask(name) => {
                write!(f, "unknown task {name:?}; there are {}, text", NAMES.join(", "))
            }
            Self::UnknownSplit { task, split, known } => {
                write!(f, "{task} has no split {split:?}; it has {}", known.join(", "))
            }
            Self::Length { task, length, reason } => {
                write!(f, "{task} has no sequence of length {length}: {reason}")
            }
            Self::Setting { task, reason } => write!(f, "{task}: {reason}"),
            Self::Text(reason) => write!(f, "{reason}"),
        }
    }
}

impl std::error::Error for TaskError {}

/// The split of that name.
pub fn split(task: &dyn Task, name: &str) -> Result<&'static Split, TaskError> {
    find_split(task.name(), task.splits(), name)
}

pub(crate) fn find_split(
    task: &'static str,
    splits: &'static [Split],
    name: &str,
) -> Result<&'static Split, TaskError> {
    splits.iter().find(|split| split.name == name).ok_or_else(|| TaskError::UnknownSplit {
        task,
        split: name.into(),
        known: splits.iter().map(|split| split.name).collect(),
    })
}

/// Sample number `index` of a split, of a length in `lengths` (both ends included; drawn evenly).
///
/// The stream of a sample is keyed by `index * 64 + number of the split`, and forking is one-to-one
/// in that key: under one seed no two samples share a stream, so a test sample is never a training
/// draw.
pub fn draw(
    task: &dyn Task,
    split_name: &str,
    (from, to): (usize, usize),
    seed: u64,
    index: u64,
) -> Result<Sample, TaskError> {
    let split = split(task, split_name)?;
    let number = task.splits().iter().position(|s| s == split).unwrap_or(0) as u64;
    let stream = Stream::new(seed).fork_name(task.name()).fork(index * 64 + number);
    let length = draw_length(task, (from, to), stream.fork(0))?;
    let sample = task.sample(split, length, stream.fork(1));
    debug_assert_eq!(sample.tokens.len(), sample.scored.len());
    Ok(sample)
}

/// A length in `from..=to`, drawn evenly among those that the task has sequences of (flip-flop's are even).
pub fn draw_length(
    task: &dyn Task,
    (from, to): (usize, usize),
    stream: Stream,
) -> Result<usize, TaskError> {
    // Counted and then looked up, not listed: a range may be of millions.
    let possible = || (from..=to).filter(|length| task.check_length(*length).is_ok());
    let length = match if from == to { 0 } else { possible().count() } {
        0 => from,
        n => possible().nth(stream.below(0, n as u64) as usize).unwrap_or(from),
    };
    let no_sequence = |reason| TaskError::Length { task: task.name(), length, reason };
    task.check_length(length).map_err(no_sequence)?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The first samples of a split at one length.
    pub(crate) fn samples(task: &dyn Task, split: &str, length: usize, count: u64) -> Vec<Sample> {
        (0..count).map(|i| draw(task, split, (length, length), 1, i).unwrap()).collect()
    }

    /// Compares every token of `count` samples a split with a solver that sees the tokens before it
    /// and says what follows, or that nothing is asked there.
    pub(crate) fn check_answers(
        task: &dyn Task,
        count: u64,
        solve: impl Fn(&[u32]) -> Option<u32>,
    ) {
        for split in task.splits() {
            for index in 0..count {
                let Sample { tokens, scored } =
                    draw(task, split.name, (split.from, split.to), 3, index).unwrap();
                assert_eq!(scored.last(), Some(&true));
                for at in 0..tokens.len() {
                    let expected = scored[at].then_some(tokens[at]);
                    assert_eq!(solve(&tokens[..at]), expected, "{} {at}: {tokens:?}", split.name);
                }
            }
        }
    }

    fn all_tasks() -> impl Iterator<Item = Box<dyn Task>> {
        NAMES.iter().map(|name| TaskConfig::by_name(name).unwrap().build().unwrap())
    }

    #[test]
    fn every_sample_of_every_task_is_well_formed() {
        for (task, name) in all_tasks().zip(NAMES) {
            assert_eq!(task.name(), *name);
            assert_eq!(task.splits()[0].name, "train");
            assert!(task.splits().len() <= 64, "draw numbers splits below 64");
            let names: HashSet<_> = (1..task.vocab() as u32).map(|t| task.token_name(t)).collect();
            assert_eq!(names.len(), task.vocab() - 1, "{name}: two tokens read the same");
            for split in task.splits() {
                for index in [0, 1, 2, 77, 1_000_000] {
                    let one = || draw(&*task, split.name, (split.from, split.to), 5, index);
                    let sample = one().unwrap();
                    assert_eq!(Ok(&sample), one().as_ref());
                    assert_eq!(sample.tokens.len(), sample.scored.len());
                    assert!(
                        sample.tokens.iter().all(|t| *t != PAD && (*t as usize) < task.vocab())
                    );
                    assert!(sample.scored.contains(&true) && !sample.scored[0]);
                }
            }
        }
    }

    /// Short strings come up again by chance; at this length only a shared stream would do it.
    #[test]
    fn no_test_sample_is_a_training_sample() {
        for task in all_tasks() {
            let drawn = |split: &Split| {
                let samples = samples(&*task, split.name, 128, 500);
                samples.into_iter().map(|sample| sample.tokens).collect::<HashSet<_>>()
            };
            let train = drawn(&task.splits()[0]);
            assert_eq!(train.len(), 500);
            for split in &task.splits()[1..] {
                assert!(train.is_disjoint(&drawn(split)), "{} {}", task.name(), split.name);
            }
        }
    }

    #[test]
    fn seeds_give_different_samples() {
        for task in all_tasks() {
            let one = |seed| draw(&*task, "train", (64, 64), seed, 0).unwrap();
            assert_ne!(one(0), one(1), "{}", task.name());
        }
    }

    /// Every published result depends on these draws: they may never change.
    #[test]
    fn draws_are_pinned() {
        let tokens =
            |task: &dyn Task, (from, to)| draw(task, "train", (from, to), 1, 0).unwrap().tokens;
        let found: Vec<_> = all_tasks()
            .map(|task| {
                let train = task.splits()[0];
                let drawn = tokens(&*task, (train.from, train.to)).len();
                (task.name(), drawn, tokens(&*task, (6, 6)))
            })
            .collect();
        let pinned = PINNED.map(|(name, drawn, tokens)| (name, drawn, tokens.to_vec()));
        assert_eq!(found, pinned, "{found:?}");
    }

    /// Task, tokens of the first training sample, and the tokens of one of length 6.
    const PINNED: [(&str, usize, &[u32]); 11] = [
        ("flipflop", 512, &[1, 5, 3, 4, 2, 5]),
        ("copy", 51, &[1, 24, 187, 85, 78, 39, 24, 2, 24, 187, 85, 78, 39, 24, 3]),
        ("copy-unique", 15, &[1, 94, 308, 134, 39, 207, 224, 2, 94, 308, 134, 39, 207, 224, 3]),
        ("induct", 50, &[1, 83, 11, 245, 18, 64, 212, 2, 83, 11]),
        ("instruct", 90, &[1, 4, 206, 133, 169, 52, 85, 242, 2, 206, 133, 169, 52, 85, 242, 3]),
        ("reverse", 15, &[1, 130, 252, 110, 103, 42, 36, 2, 36, 42, 103, 110, 252, 130, 3]),
        ("sort", 51, &[1, 13, 69, 59, 93, 28, 141, 2, 13, 28, 59, 69, 93, 141, 3]),
        ("parity", 7, &[1, 5, 5, 5, 5, 4, 4, 2, 4]),
        (
            "addition",
            32,
            &[1, 7, 7, 14, 9, 11, 7, 4, 9, 10, 5, 10, 8, 12, 2, 11, 12, 14, 14, 14, 14, 5, 3],
        ),
        (
            "recall",
            44,
            &[
                1, 22, 221, 37, 202, 40, 196, 85, 169, 117, 244, 115, 237, 2, 115, 237, 117, 244,
                40, 196, 85, 169,
            ],
        ),
        ("needle", 182, &[1, 86, 119, 143, 4, 218, 259, 2, 4, 218]),
    ];
}
