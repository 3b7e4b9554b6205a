//! Ablation of TRA: the threshold without any distance.

use burn::module::Module;
use burn::tensor::Tensor;

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads};
use crate::init::WeightInit;
use crate::ops::scores;
use crate::settings::settings;

settings! {
    /// Settings of [`TraThreshold`]: it has none.
    pub struct TraThresholdConfig {}
}

impl AttentionConfig for TraThresholdConfig {
    type Attention = TraThreshold;

    fn init(&self, _: HeadSizes, _: &WeightInit) -> TraThreshold {
        TraThreshold {}
    }

    fn qk_norm(&self) -> bool {
        true
    }
}

/// Keys with a non-positive score leave the softmax; position plays no part.
#[derive(Module, Debug)]
pub struct TraThreshold {}

impl Attention for TraThreshold {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let (k, v) = context.extend(heads.k, heads.v);
        let scores = scores(heads.q, k);
        let visible = context.visible(&scores);
        let keep = context.keep(&scores, &visible);
        context.attend(scores, keep, v)
    }
}
