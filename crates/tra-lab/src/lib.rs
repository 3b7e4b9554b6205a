//! The experiments of Threshold Relative Attention.
//!
//! Data flows one way: `Task::sample -> Batch -> Decoder -> loss -> records -> table or page`.
//!
//! - [`config`]: the settings of a run, [`curriculum`] among them; [`budget`]: the memory it takes; [`session`]:
//!   its life; [`mod@train`]: the loop, readable top to bottom; [`run_dir`] and [`checkpoints`]: what it
//!   leaves on disk;
//! - [`eval`]: how well a model does at any length; [`language`] and [`perplexity`]: on text, at any
//!   window;
//! - [`sweep`]: a grid of runs; [`gather`] and [`report`]: a page to look at;
//! - [`mod@bench`]: what `tra bench` measures;
//! - [`verify`]: proves that a model recorded elsewhere is the same model here.

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
