//! Dense softmax attention without any position.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads};
use crate::init::WeightInit;

/// Settings of [`Nope`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NopeConfig {
    /// Normalise queries and keys as TRA does.
    pub qk_norm: bool,
}

impl AttentionConfig for NopeConfig {
    type Attention = Nope;

    fn init(&self, _: HeadSizes, _: &WeightInit) -> Nope {
        Nope {}
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }

    fn has_kernel(&self) -> bool {
        true
    }
}

/// `softmax(q . k / sqrt(e))` over the visible keys; order is known only through the causal mask.
#[derive(Module, Debug)]
pub struct Nope {}

impl Attention for Nope {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let (k, v) = context.extend(heads.k, heads.v);
        context.dense([heads.q, k, v])
    }
}
