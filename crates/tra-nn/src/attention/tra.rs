//! Threshold Relative Attention (arXiv 2503.23174).

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::log_sigmoid;
use serde::{Deserialize, Serialize};

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads, Horizon, gate};
use crate::fused;
use crate::init::WeightInit;
use crate::ops::{count_kept, scores};

/// Settings of [`Tra`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraConfig {
    /// Whether to stop reading where nothing can change any more.
    pub horizon: Horizon,
}

impl AttentionConfig for TraConfig {
    type Attention = Tra;

    fn init(&self, sizes: HeadSizes, init: &WeightInit) -> Tra {
        let delta_proj = init.linear("delta_proj", sizes.width, sizes.heads, true);
        Tra { delta_proj, horizon: self.horizon }
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
}

impl Attention for Tra {
    fn forward(&self, heads: Heads, context: Context<'_>) -> Tensor<4> {
        let gate = gate(&self.delta_proj, heads.hidden);
        attend([heads.q, heads.k, heads.v], gate, context, self.horizon)
    }
}

/// The mechanism as a function: `q`, `k`, `v` are `[batch, heads, length, head_dim]`, `q` and `k`
/// [normalised](crate::ops::rms_normalise) already; `gate` is `[batch, heads, length]`, before
/// log-sigmoid.
pub fn threshold_relative_attention(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    gate: Tensor<3>,
    context: Context<'_>,
) -> Tensor<4> {
    attend([q, k, v], gate, context, Horizon::default())
}

fn attend(
    [q, k, v]: [Tensor<4>; 3],
    gate: Tensor<3>,
    mut context: Context<'_>,
    horizon: Horizon,
) -> Tensor<4> {
    let (k, v) = context.extend(k, v);
    if let Some(kernel) = context.kernel(&q, horizon) {
        return fused::threshold_relative([q, k, v], gate, kernel);
    }
    let scores = scores(q, k);
    let visible = context.visible(&scores);
    let keep = context.keep(&scores, &visible);
    let count = count_kept(keep.clone(), scores.dtype());
    context.observe_count(&count, &keep);
    let logits = scores + log_sigmoid(gate).unsqueeze_dim::<4>(3) * count;
    context.attend(logits, keep, v)
}
