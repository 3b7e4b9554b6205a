//! A task ready to be drawn from.

use std::fmt;
use std::sync::Arc;

use tra_random::Stream;

use crate::{Sample, Split, Task, TaskError, TaskInfo, TextInfo};

/// A task ready to be drawn from: its settings are checked, and the text it may read is open.
///
/// A run opens its task once, with [`TaskSpec::open`](crate::TaskSpec::open), and passes it down.
/// Clones share what was opened.
#[derive(Clone)]
pub struct OpenTask(Arc<dyn Drawn>);

/// More splits than any task has.
pub(crate) const SPLITS: u64 = 64;

/// The number of the last sequence of a split. Beyond it two sequences would share a stream.
pub const LAST_INDEX: u64 = u64::MAX / SPLITS - 1;

/// What can be done with any open task: [`Task`] without its constant, so that it can be boxed.
pub(crate) trait Drawn: Send + Sync {
    fn info(&self) -> &'static TaskInfo;
    fn vocab(&self) -> usize;
    fn token_name(&self, token: u32) -> String;
    fn check_length(&self, length: usize) -> Result<(), String>;
    fn token_bounds(&self, length: usize) -> [u64; 2];
    fn sample(&self, split: &Split, length: usize, stream: Stream) -> Sample;
    fn text(&self) -> Option<TextInfo<'_>>;
}

impl<T: Task> Drawn for T {
    fn info(&self) -> &'static TaskInfo {
        const { &T::INFO }
    }

    fn vocab(&self) -> usize {
        self.symbols().end() as usize
    }

    fn token_name(&self, token: u32) -> String {
        match T::INFO.special.get(token as usize) {
            Some(name) => (*name).into(),
            None => self.symbol_name(token - self.symbols().first),
        }
    }

    fn check_length(&self, length: usize) -> Result<(), String> {
        Task::check_length(self, length)
    }

    fn token_bounds(&self, length: usize) -> [u64; 2] {
        Task::token_bounds(self, length)
    }

    fn sample(&self, split: &Split, length: usize, stream: Stream) -> Sample {
        Task::sample(self, split, length, stream)
    }

    fn text(&self) -> Option<TextInfo<'_>> {
        None
    }
}

impl OpenTask {
    /// Wraps a task whose settings make sense.
    pub fn new(task: impl Task) -> Self {
        Self::from_drawn(task)
    }

    pub(crate) fn from_drawn(task: impl Drawn + 'static) -> Self {
        Self(Arc::new(task))
    }

    /// Returns what is the same for all settings of the task.
    pub fn info(&self) -> &'static TaskInfo {
        self.0.info()
    }

    /// Returns the name that users type.
    pub fn name(&self) -> &'static str {
        self.info().name
    }

    /// Returns the distributions that the task offers, `train` first.
    pub fn splits(&self) -> &'static [Split] {
        self.info().splits
    }

    /// Returns the split of that name.
    pub fn split(&self, name: &str) -> Result<&'static Split, TaskError> {
        self.info().split(name)
    }

    /// Returns the number of tokens, padding included.
    pub fn vocab(&self) -> usize {
        self.0.vocab()
    }

    /// Returns how a token reads, as short as can be.
    pub fn token_name(&self, token: u32) -> String {
        self.0.token_name(token)
    }

    /// Returns bounds of how many tokens a sequence of that length has: `[fewest, most]`.
    pub fn token_bounds(&self, length: usize) -> [u64; 2] {
        self.0.token_bounds(length)
    }

    /// Returns what there is to know of the text that samples come from, if they come from one.
    pub fn text(&self) -> Option<TextInfo<'_>> {
        self.0.text()
    }

    /// Draws sample number `index` of a split. Its length is drawn evenly from `from..=to`.
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
        let step = self.info().length_step;
        // Counted, not listed: a range may be long, and every draw comes by here.
        let first = from.div_ceil(step);
        let count = ((to / step - first) as u64).saturating_add(1);
        Ok((first + stream.below(0, count) as usize) * step)
    }

    /// Returns an error if the task has no sequence of that length.
    pub fn check_length(&self, length: usize) -> Result<(), TaskError> {
        let wrong = |reason| TaskError::Length { task: self.name(), length, reason };
        self.reason_against(length).map_err(wrong)
    }

    fn reason_against(&self, length: usize) -> Result<(), String> {
        self.info().check_length(length)?;
        self.0.check_length(length)
    }

    /// Returns an error if sequences cannot be drawn from the lengths `from..=to`.
    ///
    /// Both ends have to be lengths of the task, so that a range means what it says: `0..50` does
    /// not quietly begin at 1, nor does `1..500` end at the number of symbols. An end between two
    /// lengths is fine: flip-flop's are even, and `5..51` draws from 6 to 50.
    pub fn check_lengths(&self, (from, to): (usize, usize)) -> Result<(), TaskError> {
        if from == to {
            return self.check_length(from);
        }
        let TaskInfo { name: task, min_length, length_step: step, .. } = *self.info();
        let wrong = |length, reason| TaskError::Range { task, range: (from, to), length, reason };
        if from < min_length {
            self.info().check_length(from).map_err(|reason| wrong(from, reason))?;
        }
        let last = to - to % step;
        if last < from {
            return Err(wrong(from, format!("lengths are multiples of {step}")));
        }
        self.reason_against(last).map_err(|reason| wrong(to, reason))
    }

    /// Returns the longest length up to `length` that the task has sequences of, if there is one.
    pub fn longest_up_to(&self, length: usize) -> Option<usize> {
        let TaskInfo { min_length, length_step: step, .. } = *self.info();
        let has = |number: usize| self.reason_against(number * step).is_ok();
        let (mut low, mut high) = (min_length.div_ceil(step), length / step);
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

impl TaskInfo {
    pub(crate) fn split(&self, name: &str) -> Result<&'static Split, TaskError> {
        self.splits.iter().find(|split| split.name == name).ok_or_else(|| TaskError::UnknownSplit {
            task: self.name,
            split: name.into(),
            known: self.splits.iter().map(|split| split.name).collect(),
        })
    }
}
