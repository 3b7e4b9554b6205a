//! The pieces mechanisms are composed of, in plain tensor operations that run on every backend;
//! norm and linear use a [fused] operation where there is one.
//!
//! Shapes: `q` is `[batch, heads, queries, head_dim]`, `k` and `v` are `[batch, heads, keys,
//! head_dim]` with `keys >= queries`; the last query is at the last key.

use burn::nn::Linear;
use burn::tensor::{Bool, DType, Device, FloatDType, Int, Tensor};

use crate::fused;

/// Applies the RMS norm over the last dimension, without a learned scale.
pub fn rms_normalise<const D: usize>(x: Tensor<D>, eps: f64) -> Tensor<D> {
    if fused::usable(&x) {
        return fused::normalise(x, None, eps);
    }
    let mean_square = x.clone().square().mean_dim(D - 1);
    x / (mean_square + eps).sqrt()
}

/// Computes `x W + b` over the last dimension.
///
/// # Panics
/// If the last dimension of `x` is not the input of the projection.
pub fn linear<const D: usize>(projection: &Linear, x: Tensor<D>) -> Tensor<D> {
    product(x, projection.weight.val(), projection.bias.as_ref().map(|bias| bias.val()))
}

/// Computes `x weight + bias` over the last dimension; `weight` is `[input, output]`.
///
/// # Panics
/// If the last dimension of `x` is not `input`, or the bias does not have `output` numbers.
pub fn product<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let (of_x, of_weight) = (x.dims(), weight.dims());
    assert_eq!(of_x[D - 1], of_weight[0], "x of {of_x:?} does not fit a weight of {of_weight:?}");
    if let Some(of_bias) = bias.as_ref().map(Tensor::dims) {
        let fits = of_bias == [of_weight[1]];
        assert!(fits, "a bias of {of_bias:?} does not fit a weight of {of_weight:?}");
    }
    match fused::usable(&x) {
        true => fused::linear(x, weight, bias),
        false => burn::tensor::module::linear(x, weight, bias),
    }
}

/// Returns `q . k / sqrt(head_dim)`, shape `[batch, heads, queries, keys]`.
///
/// A query or key with a NaN or an infinity keeps its scores and has no gradient: in the gradient of
/// others it would be multiplied by the 0 of a masked pair, which is NaN.
pub fn scores(q: Tensor<4>, k: Tensor<4>) -> Tensor<4> {
    let scale = 1.0 / (q.dims()[3] as f64).sqrt();
    let product = |q: Tensor<4>, k: Tensor<4>| q.matmul(k.transpose()) * scale;
    let rows = |x: &Tensor<4>| not_finite(x).map(|broken| broken.any_dim(3));
    let (of_q, of_k) = (rows(&q), rows(&k));
    if of_q.is_none() && of_k.is_none() {
        return product(q, k);
    }
    let as_they_are = product(q.clone().detach(), k.clone().detach());
    let shape = as_they_are.dims();
    let without = |x: Tensor<4>, broken: &Option<Tensor<4, Bool>>| match broken {
        Some(broken) => x.clone().mask_fill(broken.clone().expand(x.dims()), 0.0),
        None => x,
    };
    let mut scores = product(without(q, &of_q), without(k, &of_k));
    for broken in [of_q, of_k.map(Tensor::transpose)].into_iter().flatten() {
        scores = scores.mask_where(broken.expand(shape), as_they_are.clone());
    }
    scores
}

/// Returns the sum of `v` with these weights, `[batch, heads, queries, head_dim]`. Values without
/// weight play no part, even a NaN or an infinity.
///
/// A sum that is not finite has no gradient: it would be NaN and, multiplied by a weight of 0, reach
/// values that the query does not see.
pub fn weighted_sum(weights: Tensor<4>, v: Tensor<4>) -> Tensor<4> {
    let out = match not_finite(&v) {
        None => weights.matmul(v),
        Some(broken) => {
            let weighs = weights.clone().detach().not_equal_elem(0.0);
            let reached = weighs.float().matmul(broken.clone().float()).greater_elem(0.0);
            weights.matmul(v.mask_fill(broken, 0.0)).mask_fill(reached, f64::NAN)
        }
    };
    match not_finite(&out) {
        None => out,
        Some(broken) => out.clone().mask_where(broken, out.detach()),
    }
}

/// Returns where there is a NaN or an infinity, if there is any.
fn not_finite(x: &Tensor<4>) -> Option<Tensor<4, Bool>> {
    let finite = x.clone().detach().is_finite();
    (!finite.clone().all().into_scalar::<bool>()).then(|| finite.bool_not())
}

/// Returns true where a query may see a key, shape `[1, 1, queries, keys]`.
pub fn causal(queries: usize, keys: usize, device: &Device) -> Tensor<4, Bool> {
    let past = (keys - queries) as i64;
    Tensor::<2, Bool>::tril_mask([queries, keys], past, device)
        .bool_not()
        .reshape([1, 1, queries, keys])
}

/// Returns the distance `i - j` of key `j` from query `i`, shape `[1, 1, queries, keys]`.
pub fn distance(queries: usize, keys: usize, device: &Device, dtype: DType) -> Tensor<4> {
    let i = Tensor::<1, Int>::arange((keys - queries) as i64..keys as i64, device);
    let j = Tensor::<1, Int>::arange(0..keys as i64, device);
    let i_minus_j = i.reshape([1, 1, queries, 1]) - j.reshape([1, 1, 1, keys]);
    i_minus_j.cast(float(dtype))
}

/// Returns, for every key, the number of true keys from it to the newest, itself included, in the
/// shape of `keep`.
///
/// The sum is taken in integers: an f32 stops counting at 2^24.
pub fn count_kept(keep: Tensor<4, Bool>, dtype: DType) -> Tensor<4> {
    let keep = keep.int();
    let before = keep.clone().cumsum(3);
    let total = keep.clone().sum_dim(3);
    (total - before + keep).cast(float(dtype))
}

/// Takes the softmax over the keys where `takes_part`; a row without such keys is exactly zero.
pub fn masked_softmax(logits: Tensor<4>, takes_part: Tensor<4, Bool>) -> Tensor<4> {
    let out = takes_part.bool_not();
    // Finite, so that a row without any key has no infinity minus infinity in it, in the forward
    // or in the gradient.
    let logits = logits.mask_fill(out.clone(), -1e30);
    let max = logits.clone().detach().max_dim(3);
    let exp = (logits - max).exp().mask_fill(out, 0.0);
    let sum = exp.clone().sum_dim(3);
    // Where nothing takes part. Or where something that does is NaN: 0 / NaN must not reach the keys
    // that do not.
    let no_sum = sum.clone().greater_elem(0.0).bool_not();
    exp / sum.mask_fill(no_sum, 1.0)
}

/// Takes entmax with alpha 1.5 over the keys where `takes_part`, of which every row must have one. It
/// is like a softmax, but small weights are exactly zero.
pub fn masked_entmax(logits: Tensor<4>, takes_part: Tensor<4, Bool>) -> Tensor<4> {
    let logits = logits.mask_fill(takes_part.bool_not(), -1e30);
    if fused::usable(&logits) {
        return fused::entmax(logits);
    }
    let halves = logits * 0.5;
    let halves = halves.clone() - halves.detach().max_dim(3);
    let fixed = halves.clone().detach();
    // Newton's method from below, as in the kernel: see there.
    let mut tau = fixed.clone().max_dim(3) - 1.0;
    loop {
        let roots = (fixed.clone() - tau.clone()).clamp_min(0.0);
        let more = roots.clone().square().sum_dim(3) - 1.0;
        let next = tau.clone() + more / (roots.sum_dim(3) * 2.0);
        let risen = next.clone().greater(tau.clone());
        if !risen.clone().any().into_scalar::<bool>() {
            break;
        }
        tau = tau.mask_where(risen, next);
    }
    // Makes `tau` depend on the logits: its derivative times their change, which is 0.
    let shares = (fixed.clone() - tau.clone()).clamp_min(0.0);
    let shares = shares.clone() / shares.sum_dim(3);
    let tau = tau + (shares * (halves.clone() - fixed)).sum_dim(3);
    (halves - tau).clamp_min(0.0).square()
}

/// Returns the float type of a tensor's `dtype()`, for operations that take only float types.
pub fn float(dtype: DType) -> FloatDType {
    dtype.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_keys_is_zero_and_passes_no_nan_back() {
        let device = Device::flex().autodiff();
        let logits = Tensor::<4>::from_floats([[[[5.0, 1e4], [-1e4, f32::MAX]]]], &device);
        let logits = logits.require_grad();
        let mask = Tensor::<4, Bool>::from_bool(
            burn::tensor::TensorData::from([[[[true, true], [false, false]]]]),
            &device,
        );
        let p = masked_softmax(logits.clone(), mask);
        p.clone()
            .inner()
            .into_data()
            .assert_eq(&burn::tensor::TensorData::from([[[[0.0f32, 1.0], [0.0, 0.0]]]]), true);
        let grad = logits.grad(&p.powf_scalar(2.0).sum().backward()).unwrap();
        assert!(grad.into_data().iter::<f32>().all(f32::is_finite));
    }

    #[test]
    fn causal_and_distance_stand_at_the_end_of_the_keys() {
        let device = Device::flex();
        let visible = causal(2, 4, &device).int().into_data_as::<i64>();
        assert_eq!(visible.iter::<i64>().collect::<Vec<_>>(), [1, 1, 1, 0, 1, 1, 1, 1]);
        let far = distance(2, 4, &device, DType::F32).into_data_as::<f32>();
        assert_eq!(
            far.iter::<f32>().collect::<Vec<_>>(),
            [2.0, 1.0, 0.0, -1.0, 3.0, 2.0, 1.0, 0.0]
        );
    }

    #[test]
    fn counts_run_from_the_newest_key() {
        let device = Device::flex();
        let keep = Tensor::<4, Bool>::from_bool(
            burn::tensor::TensorData::from([[[[true, false, true, true, false]]]]),
            &device,
        );
        let count = count_kept(keep, DType::F32).into_data_as::<f32>();
        assert_eq!(count.iter::<f32>().collect::<Vec<_>>(), [3.0, 2.0, 2.0, 1.0, 0.0]);
    }
}
