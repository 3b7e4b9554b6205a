//! Length-generalisation tasks as sequences of integers.
//!
//! A [`Task`] turns a length and a stream of random numbers into a [`Sample`]: tokens, and which of
//! them are answers to be predicted from the tokens before. Nothing here knows of tensors.
//!
//! Adding a task is one new file beside [`flipflop`] and one line in [`all`].

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod flipflop;

use tra_kernels::random::Stream;

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
    /// What users type.
    pub name: &'static str,
    /// What is special about it.
    pub about: &'static str,
}

/// Something to learn.
pub trait Task: Send + Sync {
    /// What users type.
    fn name(&self) -> &'static str;

    /// What is asked of a model, in one line.
    fn about(&self) -> &'static str;

    /// Number of tokens; token 0 is padding.
    fn vocab(&self) -> usize;

    /// The distributions it offers, the one for training first.
    fn splits(&self) -> &'static [Split];

    /// Draws one sequence of a split. The draw depends on `stream` alone.
    ///
    /// # Errors
    /// If there is no such split, or no sequence of that length.
    fn sample(&self, split: &str, length: usize, stream: Stream) -> Result<Sample, TaskError>;

    /// How a token reads.
    fn token_name(&self, token: u32) -> String;
}

/// What a task cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskError {
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
        /// What lengths there are.
        rule: &'static str,
    },
}

impl std::fmt::Display for TaskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownSplit { task, split, known } => {
                write!(f, "{task} has no split {split:?}; it has {}", known.join(", "))
            }
            Self::Length { task, length, rule } => {
                write!(f, "{task} has no sequence of length {length}; {rule}")
            }
        }
    }
}

impl std::error::Error for TaskError {}

/// Every task there is.
pub fn all() -> Vec<Box<dyn Task>> {
    vec![Box::new(flipflop::FlipFlop)]
}
