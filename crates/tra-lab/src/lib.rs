//! The experiments of Threshold Relative Attention.
//!
//! So far: [`verify`], which proves that a model recorded elsewhere is the same model here.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod loss;
pub mod verify;
