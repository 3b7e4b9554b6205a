//! Ablation of TRA: contextual distance, but no key leaves the softmax.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::log_sigmoid;

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads, gate};
use crate::init::WeightInit;
use crate::ops::{count_kept, scores};
use crate::settings::settings;

settings! {
    /// Settings of [`TraDistance`]: it has none.
    pub struct TraDistanceConfig {}
}

impl AttentionConfig for TraDistanceConfig {
    type Attention = TraDistance;

    fn init(&self, sizes: HeadSizes, init: &WeightInit) -> TraDistance {
        TraDistance { delta_proj: init.linear("delta_proj", sizes.width, sizes.heads, true) }
    }

    fn qk_norm(&self) -> bool {
        true
    }
}

/// Distance counts the keys with a positive score, scaled by the forget gate of the query; every
/// visible key takes part in the softmax with its score as it is.
#[derive(Module, Debug)]
pub struct TraDistance {
    /// The forget gate, `[width, heads]`.
    pub delta_proj: Linear,
}

impl Attention for TraDistance {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let (k, v) = context.extend(heads.k, heads.v);
        let scores = scores(heads.q, k);
        let visible = context.visible(&scores);
        let positive = context.keep(&scores, &visible);
        let count = count_kept(positive.clone(), scores.dtype());
        context.observe_count(&count, &positive);
        let gate = log_sigmoid(gate(&self.delta_proj, heads.hidden));
        context.attend(scores + gate.unsqueeze_dim::<4>(3) * count, visible, v)
    }
}
