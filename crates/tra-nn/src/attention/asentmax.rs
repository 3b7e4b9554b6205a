//! Adaptive-scalable entmax (Vasylenko et al. 2025).

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::softplus;
use burn::tensor::{Tensor, TensorData};

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads, gate};
use crate::dropout::DropoutPlacement;
use crate::init::WeightInit;
use crate::ops::{distance, masked_entmax, scores};
use crate::settings::settings;

settings! {
    /// Settings of [`Asentmax`].
    pub struct AsentmaxConfig {
        /// Whether to normalise queries and keys as TRA does.
        qk_norm: bool = false, with_qk_norm;
    }
}

impl AttentionConfig for AsentmaxConfig {
    type Attention = Asentmax;

    fn init(&self, HeadSizes { width, heads, .. }: HeadSizes, init: &WeightInit) -> Asentmax {
        let scaled = heads - heads / 2;
        Asentmax {
            beta_proj: init.linear("beta_proj", width, scaled, false),
            gamma_proj: init.linear("gamma_proj", width, scaled, false),
        }
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }
}

/// Entmax with alpha 1.5 in place of the softmax: small weights are exactly zero.
///
/// The first half of the heads has a bias of `-(i - j) / h` with `h` from 1. The others have no
/// position, and their scores are multiplied by `1 + beta (ln n)^gamma`, where `n` is the number of keys that a
/// query sees, `beta = softplus(w_b . x)` and `gamma = 2 tanh(w_g . x)`.
#[derive(Module, Debug)]
pub struct Asentmax {
    /// `w_b`, `[width, scaled heads]`.
    pub beta_proj: Linear,
    /// `w_g`, `[width, scaled heads]`.
    pub gamma_proj: Linear,
}

impl Attention for Asentmax {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let past = context.past();
        let (k, v) = context.extend(heads.k, heads.v);
        let scores = scores(heads.q, k);
        let visible = context.visible(&scores);
        // Before the product with the scale: a masked score may be NaN, and the gradient of the scale
        // would be 0 times that.
        let scores = scores.mask_fill(visible.clone().bool_not(), 0.0);
        let [batch, count, queries, keys] = scores.dims();
        let (device, dtype) = (scores.device(), scores.dtype());
        let scaled = self.beta_proj.weight.dims()[1];
        let biased = count - scaled;

        // With one key its weight is 1 at every scale. Any n will do whose ln n is not 0.
        let ln: Vec<f64> =
            (past + 1..=past + queries).map(|n| (n.max(2) as f64).ln().ln()).collect();
        let ln_ln = Tensor::<3>::from_data(TensorData::new(ln, [1, 1, queries]), (&device, dtype));
        let beta = softplus(gate(&self.beta_proj, heads.hidden.clone()), 1.0);
        let gamma = gate(&self.gamma_proj, heads.hidden).tanh() * 2.0;
        let scale = beta * (gamma * ln_ln).exp() + 1.0;
        let scale = scale.reshape([batch, scaled, queries, 1]);
        let free = scores.clone().narrow(1, biased, scaled) * scale;
        let logits = if biased == 0 {
            free
        } else {
            let slopes: Vec<f64> = (1..=biased).map(|h| 1.0 / h as f64).collect();
            let slopes = TensorData::new(slopes, [1, biased, 1, 1]);
            let slopes = Tensor::<4>::from_data(slopes, (&device, dtype));
            let near =
                scores.narrow(1, 0, biased) - slopes * distance(queries, keys, &device, dtype);
            Tensor::cat(vec![near, free], 1)
        };
        let logits = context.drop(logits, DropoutPlacement::Logits);
        let weights = masked_entmax(logits, visible.clone());
        context.weigh(weights, visible, v)
    }
}
