//! The other operations of a layer.

use std::sync::Arc;

use burn::backend::flex::FlexTensor;
use burn::backend::{Dispatch, TensorMetadata};
use burn::tensor::Tensor;
use rayon::prelude::*;
use tra_kernels::dropout::Dropout;
use tra_kernels::simd::Isa;
use tra_kernels::{
    entmax as entmax_kernel, linear as linear_kernel, norm, rotate as rotate_kernel,
    swiglu as swiglu_kernel,
};

use super::flex::{numbers, tensor};
use super::graph::{FusedOps, Op, OpGrads, SavedForBackward};

fn last(tensor: &FlexTensor) -> usize {
    tensor.shape().last().copied().unwrap_or(1)
}

/// Applies the RMS norm over the last dimension.
pub(crate) fn normalise<const D: usize>(
    x: Tensor<D>,
    weight: Option<Tensor<1>>,
    eps: f64,
) -> Tensor<D> {
    let op = Arc::new(Norm { eps: eps as f32 });
    let x = x.into_dispatch();
    Tensor::from_dispatch(match weight {
        Some(weight) => Dispatch::fused_2(op, x, weight.into_dispatch()),
        None => Dispatch::fused_1(op, x),
    })
}

#[derive(Debug)]
struct Norm {
    eps: f32,
}

impl Op for Norm {
    fn forward(&self, inputs: Vec<FlexTensor>, _tracked: bool) -> (FlexTensor, SavedForBackward) {
        let x = inputs[0].to_contiguous();
        let width = last(&x);
        let weight = inputs.get(1).map(numbers);
        let (isa, weight) = (Isa::best(), weight.as_deref());
        let (out, inverse) = norm::forward(isa, &numbers(&x), weight, self.eps, width);
        let (out, rows) = (tensor(out, x.shape()), inverse.len());
        let mut kept = vec![tensor(inverse, [rows]), x];
        kept.extend(inputs.into_iter().skip(1));
        (out, SavedForBackward::tensors(kept))
    }

    fn backward(&self, kept: SavedForBackward, grad: FlexTensor, _: &[bool]) -> OpGrads {
        let (inverse, x, weight) = (&kept.tensors[0], &kept.tensors[1], kept.tensors.get(2));
        let width = last(x);
        let weights = weight.map(numbers);
        let (dx, dweight) = norm::backward(
            Isa::best(),
            &numbers(x),
            weights.as_deref(),
            &numbers(inverse),
            &numbers(&grad),
            width,
        );
        let mut gradients = vec![Some(tensor(dx, x.shape()))];
        gradients.extend(dweight.map(|dweight| Some(tensor(dweight, [width]))));
        gradients
    }
}

/// Computes `x W + b` over the last dimension; `weight` is `[input, output]`.
pub(crate) fn linear<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(match bias {
        Some(bias) => Dispatch::fused_3(Arc::new(Linear), x, weight, bias.into_dispatch()),
        None => Dispatch::fused_2(Arc::new(Linear), x, weight),
    })
}

#[derive(Debug)]
struct Linear;

impl Linear {
    fn sizes(x: &FlexTensor, weight: &FlexTensor) -> linear_kernel::Sizes {
        let input = last(x);
        let rows = x.shape().num_elements() / input;
        linear_kernel::Sizes { rows, input, output: last(weight) }
    }
}

impl Op for Linear {
    fn forward(&self, inputs: Vec<FlexTensor>, _tracked: bool) -> (FlexTensor, SavedForBackward) {
        let (x, weight) = (inputs[0].to_contiguous(), &inputs[1]);
        let sizes = Self::sizes(&x, weight);
        let bias = inputs.get(2).map(numbers);
        let (of_x, of_weight) = (numbers(&x), numbers(weight));
        let out = linear_kernel::forward(sizes, &of_x, &of_weight, bias.as_deref());
        let mut shape = x.shape();
        let rank = shape.num_dims();
        shape[rank - 1] = sizes.output;
        let kept = SavedForBackward::tensors(vec![x.clone(), weight.clone()]);
        (tensor(out, shape), kept)
    }

    fn backward(&self, kept: SavedForBackward, grad: FlexTensor, wanted: &[bool]) -> OpGrads {
        let (x, weight) = (&kept.tensors[0], &kept.tensors[1]);
        let sizes = Self::sizes(x, weight);
        let dy = numbers(&grad);
        let dx = wanted[0]
            .then(|| tensor(linear_kernel::backward_x(sizes, &numbers(weight), &dy), x.shape()));
        let dw = wanted[1]
            .then(|| tensor(linear_kernel::backward_w(sizes, &numbers(x), &dy), weight.shape()));
        let mut gradients = vec![dx, dw];
        if let Some(wanted) = wanted.get(2) {
            let db = || tensor(linear_kernel::backward_b(sizes, &dy), [sizes.output]);
            gradients.push(wanted.then(db));
        }
        gradients
    }
}

/// Computes `a * silu(g)`, where the last dimension holds `a` and then `g`, with dropout.
pub(crate) fn swiglu<const D: usize>(both: Tensor<D>, dropout: Option<Dropout>) -> Tensor<D> {
    let op = Arc::new(Swiglu { dropout });
    Tensor::from_dispatch(Dispatch::fused_1(op, both.into_dispatch()))
}

#[derive(Debug)]
struct Swiglu {
    dropout: Option<Dropout>,
}

impl Op for Swiglu {
    fn forward(&self, inputs: Vec<FlexTensor>, _tracked: bool) -> (FlexTensor, SavedForBackward) {
        let both = inputs[0].to_contiguous();
        assert!(last(&both).is_multiple_of(2), "no two halves in {:?}", both.shape());
        let half = last(&both) / 2;
        let out = swiglu_kernel::forward(Isa::best(), &numbers(&both), half, self.dropout);
        let mut shape = both.shape();
        let rank = shape.num_dims();
        shape[rank - 1] = half;
        (tensor(out, shape), SavedForBackward::tensors(vec![both]))
    }

    fn backward(&self, kept: SavedForBackward, grad: FlexTensor, _: &[bool]) -> OpGrads {
        let both = &kept.tensors[0];
        let (isa, half, dy) = (Isa::best(), last(both) / 2, numbers(&grad));
        let dboth = swiglu_kernel::backward(isa, &numbers(both), half, self.dropout, &dy);
        vec![Some(tensor(dboth, both.shape()))]
    }
}

/// Drops elements of `x`, by their row (all dimensions but the last) and column.
pub(crate) fn drop<const D: usize>(x: Tensor<D>, dropout: Dropout) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::fused_1(Arc::new(Drop { dropout }), x.into_dispatch()))
}

#[derive(Debug)]
struct Drop {
    dropout: Dropout,
}

impl Drop {
    fn apply(&self, x: FlexTensor) -> FlexTensor {
        let columns = last(&x);
        in_place(x, |x| {
            let rows = 64;
            x.par_chunks_mut(rows * columns).enumerate().for_each(|(piece, x)| {
                self.dropout.apply(Isa::best(), x, (rows * piece) as u64, columns);
            });
        })
    }
}

/// Returns a tensor that alone uses its memory, which holds its numbers in order and nothing else:
/// `x` itself, if it is like that, otherwise a copy.
pub(super) fn owned(x: FlexTensor) -> FlexTensor {
    let whole = Some((0, x.bytes().len() / std::mem::size_of::<f32>()));
    if x.layout().contiguous_offsets() == whole && x.is_unique() {
        return x;
    }
    tensor(numbers(&x).into_owned(), x.shape())
}

/// Changes the numbers of a tensor, in place if nobody else uses its memory.
pub(super) fn in_place(x: FlexTensor, change: impl FnOnce(&mut [f32])) -> FlexTensor {
    let mut x = owned(x);
    change(x.storage_mut::<f32>());
    x
}

impl Op for Drop {
    fn forward(&self, mut inputs: Vec<FlexTensor>, _: bool) -> (FlexTensor, SavedForBackward) {
        (self.apply(inputs.remove(0)), SavedForBackward::default())
    }

    fn backward(&self, _: SavedForBackward, grad: FlexTensor, _: &[bool]) -> OpGrads {
        vec![Some(self.apply(grad))]
    }
}

/// Turns `x`, `[batch, length, heads, head_dim]`, by the angles of its positions, given as
/// `[length, head_dim / 2]` cosines and sines.
pub(crate) fn rotate(x: Tensor<4>, angles: Arc<[Vec<f32>; 2]>) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::fused_1(Arc::new(Rotate { angles }), x.into_dispatch()))
}

#[derive(Debug)]
struct Rotate {
    angles: Arc<[Vec<f32>; 2]>,
}

impl Rotate {
    fn apply(&self, x: FlexTensor, back: bool) -> FlexTensor {
        let [_, length, heads, dim] = super::flex::dims(&x);
        let [cos, sin] = &*self.angles;
        in_place(x, |x| rotate_kernel::rotate(x, [length, heads, dim], cos, sin, back))
    }
}

impl Op for Rotate {
    fn forward(&self, mut inputs: Vec<FlexTensor>, _: bool) -> (FlexTensor, SavedForBackward) {
        (self.apply(inputs.remove(0), false), SavedForBackward::default())
    }

    fn backward(&self, _: SavedForBackward, grad: FlexTensor, _: &[bool]) -> OpGrads {
        vec![Some(self.apply(grad, true))]
    }
}

/// Applies entmax with alpha 1.5 over the last dimension; see [`entmax_kernel`] for masked logits.
pub(crate) fn entmax<const D: usize>(logits: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::fused_1(Arc::new(Entmax), logits.into_dispatch()))
}

#[derive(Debug)]
struct Entmax;

impl Op for Entmax {
    fn forward(&self, mut inputs: Vec<FlexTensor>, _: bool) -> (FlexTensor, SavedForBackward) {
        let logits = inputs.remove(0);
        let width = last(&logits);
        let weights = in_place(logits, |z| entmax_kernel::forward(z, width));
        (weights.clone(), SavedForBackward::tensors(vec![weights]))
    }

    fn backward(&self, kept: SavedForBackward, grad: FlexTensor, _: &[bool]) -> OpGrads {
        let weights = &kept.tensors[0];
        let width = last(weights);
        let p = numbers(weights);
        vec![Some(in_place(grad, |dp| entmax_kernel::backward(&p, dp, width)))]
    }
}
