//! Forgetting attention (Lin et al. 2025), "FoT" in the TRA paper.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::log_sigmoid;
use serde::{Deserialize, Serialize};

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads, Horizon, gate};
use crate::fused::{self, DenseBias};
use crate::init::WeightInit;
use crate::ops::scores;

/// Settings of [`Fox`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FoxConfig {
    /// Normalise queries and keys as TRA does.
    pub qk_norm: bool,
    /// Whether to stop reading where nothing can change any more.
    pub horizon: Horizon,
}

impl AttentionConfig for FoxConfig {
    type Attention = Fox;

    fn init(&self, sizes: HeadSizes, init: &WeightInit) -> Fox {
        let mut fgate_proj = init.linear("fgate_proj", sizes.width, sizes.heads, true);
        fgate_proj.bias = Some(init.constant([sizes.heads], 0.0));
        Fox { fgate_proj, horizon: self.horizon }
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }

    fn has_kernel(&self) -> bool {
        true
    }
}

/// Every position forgets all before it by a factor `f = sigmoid(w . x + b)` of its own:
/// `softmax(q . k / sqrt(e) + sum of log f after the key)`.
#[derive(Module, Debug)]
pub struct Fox {
    /// The forget gate, `[width, heads]`; its bias begins at 0.
    pub fgate_proj: Linear,
    #[module(skip)]
    horizon: Horizon,
}

impl Attention for Fox {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let new = heads.hidden.dims()[1];
        let log_f = context.extend_state(log_sigmoid(gate(&self.fgate_proj, heads.hidden)));
        let (k, v) = context.extend(heads.k, heads.v);
        let keys = k.dims()[2];
        // Summed from the newest position back, so that the sums are small, and exact to rounding,
        // where the weights are large. From the oldest on, an f32 would be off by 0.004 at 64k.
        let after = log_f.clone().flip([2]).cumsum(2).flip([2]) - log_f;
        if let Some(kernel) = context.kernel(&heads.q, self.horizon) {
            return fused::dense([heads.q, k, v], DenseBias::Steps(Box::new(after)), kernel);
        }
        let scores = scores(heads.q, k);
        let after_query = after.clone().narrow(2, keys - new, new).unsqueeze_dim::<4>(3);
        let forgotten = after.unsqueeze_dim::<4>(2) - after_query;
        let visible = context.visible(&scores);
        context.attend(scores + forgotten, visible, v)
    }
}
