//! Ablation of TRA: the threshold with plain distance instead of the count.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::log_sigmoid;

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads, gate};
use crate::init::WeightInit;
use crate::ops::{distance, scores};
use crate::settings::settings;

settings! {
    /// Settings of [`TraAbsolute`]: it has none.
    pub struct TraAbsoluteConfig {}
}

impl AttentionConfig for TraAbsoluteConfig {
    type Attention = TraAbsolute;

    fn init(&self, sizes: HeadSizes, init: &WeightInit) -> TraAbsolute {
        TraAbsolute { delta_proj: init.linear("delta_proj", sizes.width, sizes.heads, true) }
    }

    fn qk_norm(&self) -> bool {
        true
    }
}

/// Keys with a non-positive score leave the softmax; distance is `i - j + 1`, whatever lies
/// between, scaled by the forget gate of the query.
#[derive(Module, Debug)]
pub struct TraAbsolute {
    /// The forget gate, `[width, heads]`.
    pub delta_proj: Linear,
}

impl Attention for TraAbsolute {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let (k, v) = context.extend(heads.k, heads.v);
        let scores = scores(heads.q, k);
        let [_, _, queries, keys] = scores.dims();
        let visible = context.visible(&scores);
        let keep = context.keep(&scores, &visible);
        let distance = distance(queries, keys, &scores.device(), scores.dtype()) + 1.0;
        let gate = log_sigmoid(gate(&self.delta_proj, heads.hidden));
        context.attend(scores + gate.unsqueeze_dim::<4>(3) * distance, keep, v)
    }
}
