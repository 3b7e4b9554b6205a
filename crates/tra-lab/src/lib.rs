//! The experiments of Threshold Relative Attention.
//!
//! So far: [`verify`], which proves that a model recorded elsewhere is the same model here.

pub mod loss;
pub mod verify;
