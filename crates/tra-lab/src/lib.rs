//! Experiments with Threshold Relative Attention.
//!
//! Data flows one way: `Task::sample -> Batch -> Decoder -> loss -> records -> table or page`.
//!
//! Everything the `tra` program does can be called from here. Whoever calls passes an
//! [`Observer`](observer::Observer), which is told of steps, evaluations and warnings.
//!
//! - [`config`] has the settings of a run, [`session`] its life, [`trainer`] its step and
//!   [`mod@train`] the loop. [`run_dir`] and [`checkpoints`] are what it leaves on disk.
//! - [`eval`] tests a model at any length. [`perplexity`] measures one on text, at any window, and
//!   [`generate`] continues a text.
//! - [`sweep`] makes a grid of runs, [`reproduce`] the experiments of the paper, and [`demo`] the
//!   smallest of them. [`report`] writes the page of any runs.
//! - [`mod@bench`] measures speed and memory. [`verify`] proves that a model recorded elsewhere is
//!   the same model here. [`budget`] tells the memory that something needs.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod batch;
pub mod bench;
pub mod budget;
pub mod checkpoints;
mod checks;
pub mod config;
pub mod curriculum;
pub mod demo;
mod error;
pub mod eval;
pub mod generate;
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
