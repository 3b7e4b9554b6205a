//! Selective attention (Leviathan et al. 2024).

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads};
use crate::init::WeightInit;
use crate::ops::{distance, scores};
use crate::settings::settings;

settings! {
    /// Settings of [`Selective`].
    pub struct SelectiveConfig {
        /// Whether to normalise queries and keys as TRA does.
        qk_norm: bool = false, with_qk_norm;
    }
}

impl AttentionConfig for SelectiveConfig {
    type Attention = Selective;

    fn init(&self, _: HeadSizes, _: &WeightInit) -> Selective {
        Selective {}
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }
}

/// Tokens may mask keys for later queries: `softmax(z - F)` for every head, where `F` of a key is the
/// sum of `relu(z)` of head 0 over all earlier queries. No query masks the first key or itself. There
/// is no other position.
#[derive(Module, Debug)]
pub struct Selective {}

impl Attention for Selective {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let (k, v) = context.extend(heads.k, heads.v);
        let scores = scores(heads.q, k);
        let [batch, _, queries, keys] = scores.dims();
        let distance = distance(queries, keys, &scores.device(), scores.dtype());
        let shape = [batch, 1, queries, keys];
        // Its own key, and later keys.
        let spared = distance.lower_equal_elem(0.0).expand(shape);
        let said = relu(scores.clone().narrow(1, 0, 1)).mask_fill(spared, 0.0);
        let first = [0..batch, 0..1, 0..queries, 0..1];
        let said = said.slice_fill(first, 0.0);
        let total = said.clone().sum_dim(2).reshape([batch, 1, keys]);
        let before = context.add_totals(total).reshape([batch, 1, 1, keys]);
        let among_new = said.clone().cumsum(2) - said;
        let visible = context.visible(&scores);
        context.attend(scores - (among_new + before), visible, v)
    }
}
