//! What a task cannot do.

use std::fmt;

use crate::{LAST_INDEX, TaskSpec};

/// What a task cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskError {
    /// There is no task of that name.
    UnknownTask(String),
    /// The task has no split of that name.
    UnknownSplit {
        /// The task.
        task: &'static str,
        /// The name that was given.
        split: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// The task has no sequence of that length.
    Length {
        /// The task.
        task: &'static str,
        /// The length that was given.
        length: usize,
        /// Why there is no such sequence.
        reason: String,
    },
    /// A range begins or ends at a length that has no sequence.
    Range {
        /// The task.
        task: &'static str,
        /// Where the range begins, and where it ends.
        range: (usize, usize),
        /// The end at fault.
        length: usize,
        /// Why there is no such sequence.
        reason: String,
    },
    /// The sequences of a split are numbered, and not as far as this.
    Index(u64),
    /// A setting makes no sense.
    Setting {
        /// The task.
        task: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A text cannot be used.
    Text(String),
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTask(name) => {
                let known: Vec<_> = TaskSpec::all().map(|spec| spec.name()).collect();
                write!(f, "unknown task {name:?}; there are {}", known.join(", "))
            }
            Self::UnknownSplit { task, split, known } => {
                write!(f, "{task} has no split {split:?}; it has {}", known.join(", "))
            }
            Self::Length { task, length, reason } => {
                write!(f, "{task} has no sequence of length {length}: {reason}")
            }
            Self::Range { task, range: (from, to), length, reason } => {
                let end = if length == from { "begins" } else { "ends" };
                write!(
                    f,
                    "{task} has no sequence of length {length}, where {from}..{to} {end}: {reason}"
                )
            }
            Self::Index(index) => {
                write!(f, "there is no sequence number {index}: the last is {LAST_INDEX}")
            }
            Self::Setting { task, reason } => write!(f, "{task}: {reason}"),
            Self::Text(reason) => write!(f, "{reason}"),
        }
    }
}

impl std::error::Error for TaskError {}
