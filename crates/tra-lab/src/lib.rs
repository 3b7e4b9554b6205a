//! Experiments with Threshold Relative Attention.
//!
//! Data flows one way: `Task::sample -> Batch -> Decoder -> loss -> records -> table or page`.
//!
//! - [`config`]: the settings of a run, including its [`curriculum`]; [`budget`]: the memory it
//!   needs; [`session`]: its life cycle; [`mod@train`]: the training loop; [`run_dir`] and
//!   [`checkpoints`]: the files it writes;
//! - [`eval`]: accuracy and loss at any length; [`language`] and [`perplexity`]: the same for text,
//!   at any window;
//! - [`sweep`]: a grid of runs; [`reproduce`]: the paper's experiments; [`report`]: a page with
//!   plots;
//! - [`mod@bench`]: the measurements of `tra bench`;
//! - [`verify`]: compares this implementation with recordings of another one.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod batch;
pub mod bench;
pub mod budget;
pub mod checkpoints;
mod checks;
pub mod config;
pub mod curriculum;
mod error;
pub mod eval;
pub mod language;
mod lengths;
pub mod loss;
pub mod observer;
pub mod optimizer;
mod overrides;
pub mod perplexity;
pub mod report;
pub mod reproduce;
pub mod run_dir;
pub mod schedule;
pub mod session;
pub mod standing;
pub mod sweep;
pub mod train;
pub mod trainer;
pub mod verify;

pub use error::LabError;
pub use tra_report::{records, stats};
