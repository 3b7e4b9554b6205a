//! Forgetting attention (Lin et al. 2025), "FoT" in the TRA paper.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::log_sigmoid;
use burn::tensor::{Bool, Tensor};

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads, Horizon, gate};
use crate::fused::{self, Rule};
use crate::init::WeightInit;
use crate::ops::scores;
use crate::settings::settings;

settings! {
    /// Settings of [`Fox`].
    pub struct FoxConfig {
        /// Whether to normalise queries and keys as TRA does.
        qk_norm: bool = false, with_qk_norm;
        /// Whether to stop reading keys where no older key can change the result.
        horizon: Horizon = Horizon::Rounding, with_horizon;
    }
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

/// Every position forgets all earlier ones by its own factor `f = sigmoid(w . x + b)`:
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
        let log_f = context.extend_state(log_sigmoid(gate(&self.fgate_proj, heads.hidden)));
        let (k, v) = context.extend(heads.k, heads.v);
        if let Some(kernel) = context.kernel(&heads.q, self.horizon) {
            return fused::attend([heads.q, k, v], Rule::Steps(log_f), kernel);
        }
        let scores = scores(heads.q, k);
        let visible = context.visible(&scores);
        let forgotten = forgotten(log_f, &visible);
        context.attend(scores + forgotten, visible, v)
    }
}

/// Returns the sum of `log f` over the positions after each key, up to the query.
///
/// Each query has its own sum, which begins at the query. It is small, and exact to rounding, where
/// weights are large. Differences of one running sum would grow with the length: in f32 they are off
/// by 0.004 at 64k. This also keeps a NaN in a later gate from an earlier query.
fn forgotten(log_f: Tensor<3>, visible: &Tensor<4, Bool>) -> Tensor<4> {
    let [batch, heads, queries, keys] = visible.dims();
    let steps = log_f.unsqueeze_dim::<4>(2).expand([batch, heads, queries, keys]);
    let steps = steps.mask_fill(visible.clone().bool_not(), 0.0);
    let from_here = steps.flip([3]).cumsum(3).flip([3]);
    let behind_all =
        Tensor::zeros([batch, heads, queries, 1], (&from_here.device(), from_here.dtype()));
    Tensor::cat(vec![from_here, behind_all], 3).narrow(3, 1, keys)
}
