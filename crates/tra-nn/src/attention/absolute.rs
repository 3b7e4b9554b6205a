//! Absolute positions: dense attention, with positions only in the embedding.

use burn::module::Module;
use burn::tensor::Tensor;

use super::nope::Nope;
use super::rope::check_theta;
use super::{Attention, AttentionConfig, Context, HeadSizes, Heads};
use crate::error::ConfigError;
use crate::init::WeightInit;
use crate::positions::PositionEncoding;
use crate::settings::settings;

settings! {
    /// Settings of [`Sinusoidal`].
    pub struct SinusoidalConfig {
        /// Base of the wavelengths.
        theta: f64 = 10_000.0, with_theta;
        /// Whether to normalise queries and keys as TRA does.
        qk_norm: bool = false, with_qk_norm;
    }
}

settings! {
    /// Settings of [`Learned`].
    pub struct LearnedConfig {
        /// Number of positions; no sequence can have more tokens.
        count: usize = 512, with_count;
        /// Whether to normalise queries and keys as TRA does.
        qk_norm: bool = false, with_qk_norm;
    }
}

impl AttentionConfig for SinusoidalConfig {
    type Attention = Sinusoidal;

    fn init(&self, _: HeadSizes, _: &WeightInit) -> Sinusoidal {
        Sinusoidal {}
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }

    fn has_kernel(&self) -> bool {
        true
    }

    fn positions(&self) -> Option<PositionEncoding> {
        Some(PositionEncoding::Sinusoidal { theta: self.theta })
    }

    fn validate(&self, _: HeadSizes) -> Result<(), ConfigError> {
        check_theta("sinusoidal", self.theta)
    }
}

impl AttentionConfig for LearnedConfig {
    type Attention = Learned;

    fn init(&self, _: HeadSizes, _: &WeightInit) -> Learned {
        Learned {}
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }

    fn has_kernel(&self) -> bool {
        true
    }

    fn positions(&self) -> Option<PositionEncoding> {
        Some(PositionEncoding::Learned { count: self.count })
    }

    fn validate(&self, _: HeadSizes) -> Result<(), ConfigError> {
        match self.count {
            0 => Err(ConfigError::Mechanism {
                mechanism: "learned",
                reason: "count must be at least 1".into(),
            }),
            _ => Ok(()),
        }
    }
}

/// `softmax(q . k / sqrt(e))`; the decoder adds waves of the position to the embedding (Vaswani et
/// al. 2017).
#[derive(Module, Debug)]
pub struct Sinusoidal {}

/// `softmax(q . k / sqrt(e))`; the decoder adds a learned vector of the position to the embedding.
#[derive(Module, Debug)]
pub struct Learned {}

impl Attention for Sinusoidal {
    fn forward(&self, heads: Heads, context: Context<'_>) -> Tensor<4> {
        Nope {}.forward(heads, context)
    }
}

impl Attention for Learned {
    fn forward(&self, heads: Heads, context: Context<'_>) -> Tensor<4> {
        Nope {}.forward(heads, context)
    }
}
