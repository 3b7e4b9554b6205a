//! RMS norm with a learned scale, in the precision of its input.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::fused;
use crate::init::WeightInit;
use crate::ops::rms_normalise;

/// RMS norm: `x / sqrt(mean(x^2) + eps) * weight` over the last dimension.
///
/// Burn's own norm always computes in f32. This one follows its input, so that gradients can be
/// checked in f64.
#[derive(Module, Debug)]
pub struct RmsNorm {
    /// Shape `[width]`.
    pub weight: Param<Tensor<1>>,
    eps: f64,
}

impl RmsNorm {
    pub(crate) fn new(width: usize, eps: f64, init: &WeightInit) -> Self {
        Self { weight: init.constant([width], 1.0), eps }
    }

    /// Normalises `x`. Shape `[…, width]` in and out.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        if fused::usable(&x) {
            return fused::normalise(x, Some(self.weight.val()), self.eps);
        }
        rms_normalise(x, self.eps) * self.weight.val().unsqueeze()
    }
}
