//! The experiments of Threshold Relative Attention.
//!
//! So far: [`verify`], which proves that a model recorded elsewhere is the same model here.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod batch;
pub mod config;
mod error;
pub mod loss;
pub mod optimizer;
pub mod records;
pub mod schedule;
pub mod verify;

pub use error::LabError;
