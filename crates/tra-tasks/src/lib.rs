//! Length-generalisation tasks, and text, as sequences of integers.
//!
//! A [`TaskSpec`] is the settings of a task, as they stand in a config file. Opening it returns an
//! [`OpenTask`], from which [`Sample`]s are drawn: tokens, and which of them are answers to be
//! predicted from the tokens before. Nothing here knows of tensors.
//!
//! Every draw is a function of (seed, split, index) alone: see [`OpenTask::draw`]. Adding a task is
//! one new file beside [`flipflop`] and one line in `registry.rs`; see [`Task`].
//!
//! ```
//! use tra_tasks::TaskSpec;
//!
//! let task = "copy".parse::<TaskSpec>()?.open()?;
//! let sample = task.draw("train", (3, 3), 1, 0)?;
//! // <bos> x y z <sep> x y z <eos>
//! assert_eq!(sample.tokens[1..4], sample.tokens[5..8]);
//! assert_eq!(sample.scored.iter().filter(|scored| **scored).count(), 4);
//! # Ok::<(), tra_tasks::TaskError>(())
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod addition;
pub mod copy;
pub mod copy_unique;
mod error;
pub mod flipflop;
pub mod induct;
pub mod instruct;
pub mod needle;
mod open;
pub mod parity;
pub mod recall;
mod registry;
pub mod reverse;
pub mod sort;
mod symbols;
mod task;
#[cfg(test)]
mod tests;
#[cfg(feature = "text")]
pub mod text;

pub use error::TaskError;
pub use open::{LAST_INDEX, OpenTask};
pub use registry::TaskSpec;
pub use symbols::Symbols;
pub use task::{PAD, Sample, Split, Task, TaskInfo, TextInfo};
