//! Scalable softmax (Nakanishi 2025): logits grow with the logarithm of the number of keys.

use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorData};

use super::rope::{Rope, check_theta};
use super::{Attention, AttentionConfig, Context, HeadSizes, Heads};
use crate::error::ConfigError;
use crate::init::WeightInit;
use crate::settings::settings;

/// Initial scale of every head.
const START: f64 = 0.43;

settings! {
    /// Settings of [`Ssmax`].
    pub struct SsmaxConfig {
        /// Base of the wavelengths of the rotation, as for `rope`.
        theta: f64 = 500_000.0, with_theta;
        /// Whether to normalise queries and keys as TRA does, before the rotation.
        qk_norm: bool = false, with_qk_norm;
    }
}

impl AttentionConfig for SsmaxConfig {
    type Attention = Ssmax;

    fn init(&self, sizes: HeadSizes, init: &WeightInit) -> Ssmax {
        Ssmax { rope: Rope::new(self.theta, init), scale: init.constant([sizes.heads], START) }
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }

    fn has_kernel(&self) -> bool {
        true
    }

    fn validate(&self, _: HeadSizes) -> Result<(), ConfigError> {
        check_theta("ssmax", self.theta)
    }
}

/// `softmax(s ln(n) q . k / sqrt(e))` with rotated queries and keys, where `n` is the number of keys
/// that a query sees. So a softmax over more keys does not get flatter.
#[derive(Module, Debug)]
pub struct Ssmax {
    rope: Rope,
    /// `s`, one per head.
    pub scale: Param<Tensor<1>>,
}

impl Attention for Ssmax {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let past = context.past();
        let [q, k] = self.rope.turn([heads.q, heads.k], past);
        let [_, count, length, _] = q.dims();
        let ln: Vec<f64> = (past + 1..=past + length).map(|n| (n as f64).ln()).collect();
        let ln = TensorData::new(ln, [1, 1, length, 1]);
        let ln = Tensor::<4>::from_data(ln, (&q.device(), q.dtype()));
        // The scale of a logit is that of its query.
        let q = q * (self.scale.val().reshape([1, count, 1, 1]) * ln);
        let (k, v) = context.extend(k, heads.v);
        context.dense([q, k, v])
    }
}
