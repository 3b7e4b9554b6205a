//! Dropout that depends on a seed and a step number alone.

use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tra_kernels::dropout::Dropout;
use tra_random::Stream;

use crate::fused;

/// Where attention drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DropoutPlacement {
    /// On the logits, before the mask: a dropped logit becomes 0. This is what the published code
    /// does.
    #[default]
    Logits,
    /// On the weights, after the softmax. This is what the paper's text says.
    Weights,
}

/// Dropout of one attention layer at one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionDropout {
    pub(crate) rate: f64,
    pub(crate) placement: DropoutPlacement,
    pub(crate) stream: Stream,
    /// The lowest factor on the logits.
    pub(crate) sharpness: f64,
}

impl AttentionDropout {
    pub(crate) fn apply(&self, x: Tensor<4>, at: DropoutPlacement) -> Tensor<4> {
        let x = if self.placement == at { drop(x, self.rate, Some(self.stream)) } else { x };
        match self.factor() {
            factor if at == DropoutPlacement::Logits && factor != 1.0 => x * factor,
            _ => x,
        }
    }

    /// Returns the factor on the logits in this layer at this step, uniform in `sharpness..1`.
    fn factor(&self) -> f64 {
        let drawn = self.stream.fork_name("sharpness").uniform(0);
        self.sharpness + (1.0 - self.sharpness) * drawn
    }

    /// Returns the dropout of logits for a kernel, if there is any; or `None` if weights are dropped,
    /// which no kernel does.
    pub(crate) fn on_logits(&self) -> Option<Option<Dropout>> {
        let factor = self.factor();
        match self.placement {
            _ if self.rate == 0.0 && factor == 1.0 => Some(None),
            DropoutPlacement::Weights if self.rate > 0.0 => None,
            _ => Some(Some(Dropout::new(self.stream, self.rate).times(factor))),
        }
    }
}

/// Drops elements of `x` with probability `rate`; without a stream (outside training) `x` stays.
pub(crate) fn drop<const D: usize>(x: Tensor<D>, rate: f64, stream: Option<Stream>) -> Tensor<D> {
    let Some(stream) = stream.filter(|_| rate > 0.0) else { return x };
    let shape = x.dims();
    let columns = shape[D - 1].max(1);
    let dropout = Dropout::new(stream, rate);
    if fused::usable(&x) {
        return fused::drop(x, dropout);
    }
    let mut factors = vec![0.0; shape.iter().product()];
    // 64 rows per piece: enough to pay for handing it to another thread.
    factors.par_chunks_mut(64 * columns).enumerate().for_each(|(piece, factors)| {
        dropout.fill(factors, 64 * piece as u64, columns);
    });
    let options = (&x.device(), x.dtype());
    x * Tensor::from_data(TensorData::new(factors, shape), options)
}
