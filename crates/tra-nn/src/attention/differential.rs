//! Differential attention (Ye et al. 2024).

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::rope::{Rope, check_theta};
use super::{Attention, AttentionConfig, Context, HeadSizes, Heads};
use crate::error::ConfigError;
use crate::init::WeightInit;
use crate::norm::RmsNorm;
use crate::settings::settings;

/// Epsilon of the norm of each pair.
const NORM_EPS: f64 = 1e-5;

settings! {
    /// Settings of [`Differential`].
    pub struct DifferentialConfig {
        /// Base of the wavelengths of the rotation, as for `rope`.
        theta: f64 = 500_000.0, with_theta;
        /// Whether to normalise queries and keys as TRA does, before the rotation.
        qk_norm: bool = false, with_qk_norm;
    }
}

impl AttentionConfig for DifferentialConfig {
    type Attention = Differential;

    fn init(
        &self,
        HeadSizes { head_dim, layer, .. }: HeadSizes,
        init: &WeightInit,
    ) -> Differential {
        let vector = |name: &str| init.normal(name, [head_dim], 0.1);
        Differential {
            rope: Rope::new(self.theta, init),
            lambda_q1: vector("lambda_q1"),
            lambda_k1: vector("lambda_k1"),
            lambda_q2: vector("lambda_q2"),
            lambda_k2: vector("lambda_k2"),
            subln: RmsNorm::new(2 * head_dim, NORM_EPS, &init.scope("subln")),
            start: 0.8 - 0.6 * (-0.3 * layer as f64).exp(),
        }
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }

    fn has_kernel(&self) -> bool {
        true
    }

    fn validate(&self, sizes: HeadSizes) -> Result<(), ConfigError> {
        check_theta("differential", self.theta)?;
        if sizes.heads.is_multiple_of(2) {
            return Ok(());
        }
        let reason =
            format!("heads work in pairs, so their number must be even, not {}", sizes.heads);
        Err(ConfigError::Mechanism { mechanism: "differential", reason })
    }
}

/// Heads in pairs, whose values lie side by side: `(softmax(z1) - lambda softmax(z2)) V` with rotated
/// queries and keys, then a norm over the pair, times `1 - lambda_0`.
///
/// `lambda = exp(lq1 . lk1) - exp(lq2 . lk2) + lambda_0`, one for all pairs of a layer, where `lambda_0 =
/// 0.8 - 0.6 exp(-0.3 layer)`.
#[derive(Module, Debug)]
pub struct Differential {
    rope: Rope,
    /// `lq1`.
    pub lambda_q1: Param<Tensor<1>>,
    /// `lk1`.
    pub lambda_k1: Param<Tensor<1>>,
    /// `lq2`.
    pub lambda_q2: Param<Tensor<1>>,
    /// `lk2`.
    pub lambda_k2: Param<Tensor<1>>,
    /// The norm over a pair, with a scale that all pairs share.
    pub subln: RmsNorm,
    start: f64,
}

impl Differential {
    /// `lambda`, as one number.
    fn lambda(&self) -> Tensor<1> {
        let of = |q: &Param<Tensor<1>>, k: &Param<Tensor<1>>| (q.val() * k.val()).sum().exp();
        of(&self.lambda_q1, &self.lambda_k1) - of(&self.lambda_q2, &self.lambda_k2) + self.start
    }
}

impl Attention for Differential {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let [batch, count, length, dim] = heads.q.dims();
        let pairs = count / 2;
        let [q, k] = self.rope.turn([heads.q, heads.k], context.past());
        // A value is as wide as two heads. Attention goes to each half of it, so that every softmax
        // occurs twice, `[pair, softmax, half]`.
        let twice = |x: Tensor<4>| {
            x.reshape([batch, pairs, 2, 1, length, dim])
                .expand([batch, pairs, 2, 2, length, dim])
                .reshape([batch, 2 * count, length, dim])
        };
        let halves = heads.v.reshape([batch, pairs, 1, 2, length, dim]);
        let halves = halves.expand([batch, pairs, 2, 2, length, dim]);
        let halves = halves.reshape([batch, 2 * count, length, dim]);
        let (k, v) = context.extend(twice(k), halves);
        let out = context.dense([twice(q), k, v]).reshape([batch, pairs, 2, 2 * length * dim]);
        let lambda = self.lambda().reshape([1, 1, 1, 1]);
        let out = out.clone().narrow(2, 0, 1) - out.narrow(2, 1, 1) * lambda;
        let out = out.reshape([batch, pairs, 2, length, dim]);
        let wide = out.swap_dims(2, 3).reshape([batch, pairs, length, 2 * dim]);
        let out = self.subln.forward(wide) * (1.0 - self.start);
        let out = out.reshape([batch, pairs, length, 2, dim]).swap_dims(2, 3);
        out.reshape([batch, count, length, dim])
    }
}
