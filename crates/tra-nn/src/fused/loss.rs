//! Cross-entropy as one operation.

use std::sync::Arc;

use burn::backend::flex::FlexTensor;
use burn::backend::{Dispatch, TensorMetadata};
use burn::tensor::Tensor;
use rayon::prelude::*;
use tra_kernels::loss::forward_in_place;
use tra_kernels::simd::Isa;

use super::flex::{numbers, tensor};
use super::graph::{FusedOps, Op, OpGrads, SavedForBackward};
use super::layers::in_place;

pub use tra_kernels::loss::NOT_SCORED;

/// Returns the sum of the cross-entropy of the scored rows of `logits`, `[rows, vocab]`, given a target or
/// [`NOT_SCORED`] for each.
///
/// The gradient reuses the memory of the logits, if nobody else holds them: over a large vocabulary
/// they are the largest tensor, and this way there is only one of them.
///
/// # Panics
/// Unless `logits` are [usable](super::usable), there is one target per row, and all are within the
/// vocabulary.
pub fn cross_entropy(logits: Tensor<2>, targets: Vec<u32>) -> Tensor<1> {
    let [rows, vocab] = logits.dims();
    let count = targets.len();
    assert_eq!(count, rows, "{count} targets for logits of [{rows}, {vocab}]");
    let op = Arc::new(CrossEntropy { targets });
    Tensor::from_dispatch(Dispatch::fused_1(op, logits.into_dispatch()))
}

#[derive(Debug)]
struct CrossEntropy {
    targets: Vec<u32>,
}

impl Op for CrossEntropy {
    fn forward(&self, mut inputs: Vec<FlexTensor>, _: bool) -> (FlexTensor, SavedForBackward) {
        let logits = inputs.remove(0);
        let vocab = logits.shape()[1];
        let mut loss = 0.0;
        let gradient = in_place(logits, |logits| {
            loss = forward_in_place(Isa::best(), logits, vocab, &self.targets);
        });
        (tensor(vec![loss as f32], [1]), SavedForBackward::tensors(vec![gradient]))
    }

    fn backward(&self, mut kept: SavedForBackward, grad: FlexTensor, _: &[bool]) -> OpGrads {
        let grad = numbers(&grad);
        assert_eq!(grad.len(), 1, "a loss is one number, and so is its gradient");
        let factor = grad[0];
        let gradient = in_place(kept.tensors.remove(0), |gradient| {
            gradient.par_chunks_mut(16_384).for_each(|x| x.iter_mut().for_each(|x| *x *= factor));
        });
        vec![Some(gradient)]
    }
}
