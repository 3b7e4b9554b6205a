//! A task ready to be drawn from.

use std::fmt;
use std::sync::Arc;

use tra_random::Stream;

use crate::{Sample, Split, Task, TaskError, TextInfo};

/// A task ready to be drawn from: its settings are checked, and the text it may read is open.
///
/// A run opens its task once, with [`TaskSpec::open`](crate::TaskSpec::open), and passes it down.
/// Clones share what was opened.
#[derive(Clone)]
pub struct OpenTask(pub(crate) Arc<dyn Task>);

/// More splits than any task has.
pub(crate) const SPLITS: u64 = 64;

/// The number of the last sequence of a split: beyond it two would share a stream.
pub const LAST_INDEX: u64 = u64::MAX / SPLITS - 1;

impl OpenTask {
    /// Wraps a task that needs no opening.
    pub fn new(task: impl Task + 'static) -> Self {
        Self(Arc::new(task))
    }

    /// Returns the name that users type.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Returns the number of tokens, padding included.
    pub fn vocab(&self) -> usize {
        self.0.vocab()
    }

    /// Returns the distributions that the task offers, `train` first.
    pub fn splits(&self) -> &'static [Split] {
        self.0.splits()
    }

    /// Returns the split of that name.
    pub fn split(&self, name: &str) -> Result<&'static Split, TaskError> {
        find_split(self.name(), self.splits(), name)
    }

    /// Returns how a token reads, as short as can be.
    pub fn token_name(&self, token: u32) -> String {
        self.0.token_name(token)
    }

    /// Returns bounds of how many tokens a sequence of that length has: `[fewest, most]`.
    pub fn token_bounds(&self, length: usize) -> [u64; 2] {
        self.0.token_bounds(length)
    }

    /// Describes the text that samples come from, where they come from one.
    pub fn text(&self) -> Option<TextInfo<'_>> {
        self.0.text()
    }

    /// Draws sample number `index` of a split, of a length in `from..=to` (drawn evenly).
    ///
    /// The stream of a sample is keyed by `index * 64 + number of the split`, and forking is
    /// one-to-one in that key: under one seed no two samples share a stream, so a test sample is
    /// never a training draw.
    pub fn draw(
        &self,
        split: &str,
        (from, to): (usize, usize),
        seed: u64,
        index: u64,
    ) -> Result<Sample, TaskError> {
        let split = self.split(split)?;
        if index > LAST_INDEX {
            return Err(TaskError::Index(index));
        }
        let number = self.splits().iter().position(|s| s == split).unwrap_or(0) as u64;
        let stream = Stream::new(seed).fork_name(self.name()).fork(index * SPLITS + number);
        let length = self.draw_length((from, to), stream.fork(0))?;
        let sample = self.0.sample(split, length, stream.fork(1));
        debug_assert_eq!(sample.tokens.len(), sample.scored.len());
        Ok(sample)
    }

    /// Draws a length in `from..=to`, evenly among those that the task has sequences of.
    pub fn draw_length(
        &self,
        (from, to): (usize, usize),
        stream: Stream,
    ) -> Result<usize, TaskError> {
        self.check_lengths((from, to))?;
        if from == to {
            return Ok(from);
        }
        let step = self.0.length_step().max(1);
        // Counted, not listed: a range may be long, and every draw comes by here.
        let first = from.div_ceil(step);
        let count = ((to / step - first) as u64).saturating_add(1);
        Ok((first + stream.below(0, count) as usize) * step)
    }

    /// Returns an error if the task has no sequence of that length.
    pub fn check_length(&self, length: usize) -> Result<(), TaskError> {
        let wrong = |reason| TaskError::Length { task: self.name(), length, reason };
        self.0.check_length(length).map_err(wrong)
    }

    /// Returns an error if sequences cannot be drawn from a range of lengths, both ends included.
    ///
    /// Both ends have to be lengths of the task, so that a range means what it says: `0..50` does
    /// not quietly begin at 1, nor does `1..500` end at the number of symbols. An end between two
    /// lengths is fine: flip-flop's are even, and `5..51` draws from 6 to 50.
    pub fn check_lengths(&self, (from, to): (usize, usize)) -> Result<(), TaskError> {
        if from == to {
            return self.check_length(from);
        }
        let (task, range) = (self.name(), (from, to));
        let wrong = |length, reason| TaskError::Range { task, range, length, reason };
        let step = self.0.length_step().max(1);
        let least = self.0.least_length();
        if from < least {
            let reason = self.0.check_length(from).err();
            return Err(wrong(from, reason.unwrap_or_else(|| format!("lengths start at {least}"))));
        }
        let last = to - to % step;
        if last < from {
            return Err(wrong(from, format!("lengths are multiples of {step}")));
        }
        self.0.check_length(last).map_err(|reason| wrong(to, reason))
    }

    /// Returns the longest length up to `length` that the task has sequences of, if there is any.
    pub fn longest_up_to(&self, length: usize) -> Option<usize> {
        let step = self.0.length_step().max(1);
        let has = |number: usize| self.0.check_length(number * step).is_ok();
        let (mut low, mut high) = (self.0.least_length().div_ceil(step), length / step);
        if low > high || !has(low) {
            return None;
        }
        // `low` has sequences, and nothing beyond `high` is asked for.
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if has(middle) { low = middle } else { high = middle - 1 }
        }
        Some(low * step)
    }
}

impl fmt::Debug for OpenTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenTask({})", self.name())
    }
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
