//! Threshold Relative Attention on plain slices.
//!
//! This crate knows nothing of tensors, models or files. It holds
//!
//! - [`attention`]: fused kernels for TRA and dense attention, forward, backward and decoding;
//! - [`norm`], [`swiglu`], [`linear`], [`rotate`], [`loss`], [`adamw`], [`muon`]: the rest of a training step;
//! - [`simd`]: the instruction sets they are compiled for, chosen at run time;
//! - [`tra::naive`]: the definition of the mechanism, forward and backward, in plain `f64` loops.
//!   It is the reference for every faster implementation and is never optimised;
//! - [`memory`]: keeping freed memory for the next training step;
//! - [`dropout`]: which elements a dropout site drops, rebuilt anywhere from (seed, step, site).

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod adamw;
pub mod attention;
pub mod dropout;
pub mod entmax;
pub mod linear;
pub mod loss;
pub mod memory;
pub mod muon;
pub mod norm;
mod parallel;
pub mod rotate;
mod scratch;
pub mod simd;
pub mod swiglu;
pub mod tra;
