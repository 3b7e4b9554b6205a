//! Threshold Relative Attention (arXiv 2503.23174).

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::log_sigmoid;

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads, Horizon, gate};
use crate::dropout::DropoutPlacement;
use crate::error::{ConfigError, ShapeError};
use crate::fused::{self, Rule};
use crate::init::WeightInit;
use crate::ops::{count_kept, masked_softmax, scores, weighted_sum};
use crate::settings::{is_default, settings};

settings! {
    /// Settings of [`Tra`].
    pub struct TraConfig {
        /// Whether to stop reading keys where no older key can change the result.
        horizon: Horizon = Horizon::Rounding, with_horizon;
        /// Settings for experiments, all off by default.
        #[serde(skip_serializing_if = "is_default")]
        research: TraResearch = TraResearch::default(), with_research;
    }
}

settings! {
    /// Settings for experiments with [`Tra`].
    #[derive(Copy)]
    pub struct TraResearch {
        /// Gradient leak for queries that keep no key, `0..=1`. Such a query has zero output and
        /// zero gradient, so its head cannot recover. With `leak = 1` each of its scores receives,
        /// in training, the gradient it would have had as the only kept key. The forward result
        /// never changes. Default 0, as published.
        leak: f64 = 0.0, with_leak;
    }
}

impl AttentionConfig for TraConfig {
    type Attention = Tra;

    fn init(&self, sizes: HeadSizes, init: &WeightInit) -> Tra {
        let delta_proj = init.linear("delta_proj", sizes.width, sizes.heads, true);
        Tra { delta_proj, horizon: self.horizon, leak: self.research.leak }
    }

    fn validate(&self, _: HeadSizes) -> Result<(), ConfigError> {
        let leak = self.research.leak;
        if (0.0..=1.0).contains(&leak) {
            return Ok(());
        }
        let reason = format!("leak must be 0 to 1, not {leak}");
        Err(ConfigError::Mechanism { mechanism: "tra", reason })
    }

    fn qk_norm(&self) -> bool {
        true
    }

    fn has_kernel(&self) -> bool {
        true
    }
}

/// Keys with a non-positive score leave the softmax; distance counts only the keys that stay, and
/// is scaled by a forget gate of the query.
#[derive(Module, Debug)]
pub struct Tra {
    /// The forget gate, `[width, heads]`.
    pub delta_proj: Linear,
    #[module(skip)]
    horizon: Horizon,
    leak: f64,
}

impl Attention for Tra {
    fn forward(&self, heads: Heads, context: Context<'_>) -> Tensor<4> {
        let gate = gate(&self.delta_proj, heads.hidden);
        attend([heads.q, heads.k, heads.v], gate, context, self.horizon, self.leak)
    }
}

/// Computes the mechanism as a function: `q`, `k`, `v` are `[batch, heads, length, head_dim]`, `q` and `k`
/// [normalised](crate::ops::rms_normalise) already; `gate` is `[batch, heads, length]`, before
/// log-sigmoid.
///
/// With a cache in `context`, all of them hold the new positions only.
///
/// # Errors
/// When the shapes do not fit together. In a layer they always do.
pub fn threshold_relative_attention(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    gate: Tensor<3>,
    context: Context<'_>,
) -> Result<Tensor<4>, ShapeError> {
    let [queries, keys, values] = [&q, &k, &v].map(Tensor::dims);
    let gate_shape = gate.dims();
    let fits = fused::shapes_fit(queries, keys, values) && gate_shape == queries[..3];
    match fits {
        true => Ok(attend([q, k, v], gate, context, Horizon::default(), 0.0)),
        false => Err(ShapeError { queries, keys, values, gate: gate_shape }),
    }
}

fn attend(
    [q, k, v]: [Tensor<4>; 3],
    gate: Tensor<3>,
    mut context: Context<'_>,
    horizon: Horizon,
    leak: f64,
) -> Tensor<4> {
    let (k, v) = context.extend(k, v);
    fused::check_shapes(&q, &k, &v);
    let (of_gate, of_q) = (gate.dims(), q.dims());
    assert_eq!(of_gate, of_q[..3], "a gate of {of_gate:?} does not fit queries of {of_q:?}");
    // Outside training, gradients are those of the output.
    let leak = if context.training { leak } else { 0.0 };
    if let Some(kernel) = context.kernel(&q, horizon) {
        return fused::attend([q, k, v], Rule::Tra { gate, leak: leak as f32 }, kernel);
    }
    let scores = scores(q, k);
    let visible = context.visible(&scores);
    let keep = context.keep(&scores, &visible);
    let count = count_kept(keep.clone(), scores.dtype());
    context.observe_count(&count, &keep);
    let d = log_sigmoid(gate).unsqueeze_dim::<4>(3);
    if leak == 0.0 {
        return context.attend(scores + d * count, keep, v);
    }
    let drop = |x| context.drop(x, DropoutPlacement::Logits);
    let empty = keep.clone().int().sum_dim(3).equal_elem(0);
    let alone = visible.bool_and(empty.expand(keep.dims()));
    // As the only kept key it would count itself alone: the weight is that of this logit.
    let logits = drop(scores.clone() + d.clone() * count);
    let weight = drop(scores.clone().detach() + d.detach()).exp().clamp_max(1.0);
    // Zero, with the gradient of the scores. Masked last, as a score may be NaN.
    let zero = drop(scores.clone());
    let through = (zero.clone() - zero.detach()) * weight * leak;
    let through = through.mask_fill(alone.bool_not(), 0.0);
    let weights = masked_softmax(logits, keep.clone());
    let leaked = weighted_sum(through, v.clone().detach());
    context.weigh(weights, keep, v) + leaked
}
