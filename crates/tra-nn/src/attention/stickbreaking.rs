//! Stick-breaking attention (Tan et al. 2024).

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::log_sigmoid;

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads};
use crate::dropout::DropoutPlacement;
use crate::init::WeightInit;
use crate::ops::{distance, scores};
use crate::settings::settings;

settings! {
    /// Settings of [`StickBreaking`].
    pub struct StickBreakingConfig {
        /// Whether to normalise queries and keys as TRA does.
        qk_norm: bool = false, with_qk_norm;
    }
}

impl AttentionConfig for StickBreakingConfig {
    type Attention = StickBreaking;

    fn init(&self, _: HeadSizes, _: &WeightInit) -> StickBreaking {
        StickBreaking {}
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }
}

/// From the newest key before the query to the oldest, each takes the share `sigmoid(q . k / sqrt(e))`
/// of the rest of a stick. What is left at the end goes to the query's own value. There is no other
/// position.
#[derive(Module, Debug)]
pub struct StickBreaking {}

impl Attention for StickBreaking {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let (k, v) = context.extend(heads.k, heads.v);
        let scores = context.drop(scores(heads.q, k), DropoutPlacement::Logits);
        let [batch, count, queries, keys] = scores.dims();
        let visible = context.visible(&scores);
        let distance = distance(queries, keys, &scores.device(), scores.dtype());
        let shape = [batch, count, queries, keys];
        let (own, not_before) = (
            distance.clone().equal_elem(0.0).expand(shape),
            distance.lower_equal_elem(0.0).expand(shape),
        );
        // In logarithms: what a key leaves, and what all keys between it and the query leave.
        let left = log_sigmoid(scores.clone().neg()).mask_fill(not_before.clone(), 0.0);
        let from_here = left.clone().flip([3]).cumsum(3).flip([3]);
        let nobody = from_here.clone().narrow(3, 0, 1);
        let between = from_here - left;
        let taken = (log_sigmoid(scores) + between).exp().mask_fill(not_before, 0.0);
        let weights = taken.mask_where(own, nobody.exp().expand(shape));
        context.weigh(weights, visible, v)
    }
}
