//! Dense softmax attention without any position.

use burn::module::Module;
use burn::tensor::Tensor;

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads};
use crate::init::WeightInit;
use crate::settings::settings;

settings! {
    /// Settings of [`Nope`].
    pub struct NopeConfig {
        /// Whether to normalise queries and keys as TRA does.
        qk_norm: bool = false, with_qk_norm;
    }
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
