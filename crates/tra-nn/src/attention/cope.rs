//! Contextual position encoding (Golovneva et al. 2024).

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads};
use crate::error::ConfigError;
use crate::init::WeightInit;
use crate::ops::scores;
use crate::settings::settings;

settings! {
    /// Settings of [`Cope`].
    pub struct CopeConfig {
        /// Number of positions in the table; keys further away have the last one.
        npos: usize = 64, with_npos;
        /// Whether to normalise queries and keys as TRA does.
        qk_norm: bool = false, with_qk_norm;
    }
}

impl AttentionConfig for CopeConfig {
    type Attention = Cope;

    fn init(&self, sizes: HeadSizes, init: &WeightInit) -> Cope {
        Cope { pos_emb: init.constant([self.npos, sizes.head_dim], 0.0) }
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }

    fn validate(&self, _: HeadSizes) -> Result<(), ConfigError> {
        if self.npos > 0 {
            return Ok(());
        }
        Err(ConfigError::Mechanism { mechanism: "cope", reason: "npos must be at least 1".into() })
    }
}

/// Position is the sum of the gates `sigmoid(score)` from a key to the query; between two whole
/// positions the bias `q . e[position]` is interpolated.
#[derive(Module, Debug)]
pub struct Cope {
    /// Position table `[npos, head_dim]`, shared by the heads.
    pub pos_emb: Param<Tensor<2>>,
}

impl Attention for Cope {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let (k, v) = context.extend(heads.k, heads.v);
        let scores = scores(heads.q.clone(), k);
        let visible = context.visible(&scores);

        let gates = sigmoid(scores.clone()).mask_fill(visible.clone().bool_not(), 0.0);
        let [npos, _] = self.pos_emb.dims();
        let position = gates.flip([3]).cumsum(3).flip([3]).clamp_max((npos - 1) as f64);
        let floor = position.clone().detach().floor();
        let above = position - floor.clone();
        let floor = floor.int();
        let ceil = floor.clone().add_scalar(1).clamp_max((npos - 1) as i64);

        let table = self.pos_emb.val().transpose().unsqueeze::<4>();
        let bias = heads.q.matmul(table);
        let low = bias.clone().gather(3, floor);
        let high = bias.gather(3, ceil);
        let bias = low.clone() + (high - low) * above;
        context.attend(scores + bias, visible, v)
    }
}
