//! Turns the records of training runs into tables, plots and an HTML page.
//!
//! This crate knows records, not models or tasks:
//!
//! - [`records`]: the data of a run: steps, evaluations, perplexities, experiment results
//! - [`stats`]: means, deviations, medians, intervals
//! - [`tables`]: text tables for a terminal, built on [`TextTable`]
//! - [`page`]: a self-contained HTML page, built from [`page::Report`]
//!
//! ```
//! use tra_report::records::EvalResult;
//! use tra_report::{Measure, tables};
//!
//! let result = EvalResult {
//!     split: "iid".into(),
//!     length: 4096,
//!     shortest: 4096,
//!     sequences: 8,
//!     exact_match: 1.0,
//!     ..EvalResult::default()
//! };
//! let table = tables::evaluation(&[result], Measure::ExactMatch);
//! assert!(table.contains("100.0%"));
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod page;
pub mod records;
pub mod stats;
pub mod tables;
pub mod text;
mod text_table;

use serde::{Deserialize, Serialize};

pub use text_table::TextTable;

/// How the models of a task are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The share of sequences with every answer right.
    ExactMatch,
    /// The perplexity of held-out text.
    Perplexity,
}
