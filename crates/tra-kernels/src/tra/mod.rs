//! Threshold Relative Attention (arXiv 2503.23174).

pub mod naive;
