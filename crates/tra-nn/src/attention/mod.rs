//! The attention mechanisms, one per file, behind one trait.
//!
//! | file | what it is |
//! | --- | --- |
//! | `tra.rs` | Threshold Relative Attention |
//! | `tra_threshold.rs`, `tra_distance.rs`, `tra_absolute.rs` | its ablations |
//! | `nope.rs`, `rope.rs`, `alibi.rs`, `cope.rs`, `fox.rs`, `selective.rs`, `differential.rs`, `stickbreaking.rs`, `ssmax.rs`, `asentmax.rs`, `t5.rs`, `absolute.rs` | its rivals |
//! | `layer.rs` | projections around any mechanism: the layer a model uses |
//! | `registry.rs` | the list of mechanisms, and the only `match` over them |

mod absolute;
mod alibi;
mod asentmax;
mod context;
mod cope;
mod differential;
mod fox;
mod horizon;
#[cfg(test)]
mod inverse;
mod layer;
mod nope;
mod registry;
mod rope;
mod selective;
mod ssmax;
mod stickbreaking;
mod t5;
mod tra;
mod tra_absolute;
mod tra_distance;
mod tra_threshold;

use burn::module::Module;
use burn::tensor::Tensor;

pub use absolute::{Learned, LearnedConfig, Sinusoidal, SinusoidalConfig};
pub use alibi::{Alibi, AlibiConfig};
pub use asentmax::{Asentmax, AsentmaxConfig};
pub use context::Context;
pub use cope::{Cope, CopeConfig};
pub use differential::{Differential, DifferentialConfig};
pub use fox::{Fox, FoxConfig};
pub use horizon::Horizon;
pub use layer::{AttentionLayer, AttentionLayerConfig};
pub use nope::{Nope, NopeConfig};
pub use registry::{AnyAttention, AnyAttentionConfig, MechanismInfo, mechanisms};
pub(crate) use rope::RotationTables;
pub use rope::{Rope, RopeConfig};
pub use selective::{Selective, SelectiveConfig};
pub use ssmax::{Ssmax, SsmaxConfig};
pub use stickbreaking::{StickBreaking, StickBreakingConfig};
pub use t5::{T5, T5Config};
pub use tra::{Tra, TraConfig, TraResearch, threshold_relative_attention};
pub use tra_absolute::{TraAbsolute, TraAbsoluteConfig};
pub use tra_distance::{TraDistance, TraDistanceConfig};
pub use tra_threshold::{TraThreshold, TraThresholdConfig};

use crate::error::ConfigError;
use crate::init::WeightInit;
use crate::ops::linear;
use crate::positions::PositionEncoding;

/// Threshold Relative Attention as a layer, to be used alone in any Burn model.
///
/// ```
/// use burn::{module::Module, nn, tensor::{Device, Tensor}};
/// use tra_nn::{LayerPass, ThresholdRelativeAttention, ThresholdRelativeAttentionConfig};
///
/// /// A block of your own: norm, attention, residual.
/// #[derive(Module, Debug)]
/// struct MyBlock {
///     norm: nn::LayerNorm,
///     attention: ThresholdRelativeAttention,
/// }
///
/// impl MyBlock {
///     fn forward(&self, x: Tensor<3>) -> Tensor<3> {
///         x.clone() + self.attention.forward(self.norm.forward(x), LayerPass::eval())
///     }
/// }
///
/// let device = Device::flex().autodiff();
/// let block = MyBlock {
///     norm: nn::LayerNormConfig::new(48).init(&device),
///     attention: ThresholdRelativeAttentionConfig::new(48, 3).init(&device)?,
/// };
/// let x = Tensor::<3>::random([2, 10, 48], burn::tensor::Distribution::Default, &device);
/// let y = block.forward(x);
/// assert_eq!(y.dims(), [2, 10, 48]);
/// let gradients = y.sum().backward();
/// let gate = &block.attention.mechanism.delta_proj.weight;
/// assert!(gate.val().grad(&gradients).is_some());
/// # Ok::<(), tra_nn::Error>(())
/// ```
pub type ThresholdRelativeAttention = AttentionLayer<Tra>;

/// Config of [`ThresholdRelativeAttention`].
pub type ThresholdRelativeAttentionConfig = AttentionLayerConfig<TraConfig>;

/// A mechanism: which keys each query attends to, and how much.
pub trait Attention: Module {
    /// Attends from every query to the keys up to its own position.
    ///
    /// Returns `[batch, heads, length, head_dim]`. With a cache in `context`, `heads` holds only the
    /// new positions, and the mechanism must [extend](Context::extend) the cache by them.
    fn forward(&self, heads: Heads, context: Context<'_>) -> Tensor<4>;
}

/// Settings of a mechanism.
pub trait AttentionConfig {
    /// The mechanism.
    type Attention: Attention;

    /// Makes the mechanism for heads of the given sizes.
    fn init(&self, sizes: HeadSizes, init: &WeightInit) -> Self::Attention;

    /// Returns whether the layer normalises queries and keys (RMS over the head dimension).
    fn qk_norm(&self) -> bool;

    /// Returns whether there is a fused kernel for it: the memory of a pass then grows with the length,
    /// not with its square.
    fn has_kernel(&self) -> bool {
        false
    }

    /// Returns which positions the decoder adds to the embedding, if any.
    fn positions(&self) -> Option<PositionEncoding> {
        None
    }

    /// Refuses settings that make no sense, or heads that the mechanism cannot have.
    fn validate(&self, _sizes: HeadSizes) -> Result<(), ConfigError> {
        Ok(())
    }
}

/// Sizes that a mechanism's own parameters depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSizes {
    /// Model width.
    pub width: usize,
    /// Number of heads.
    pub heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Index of the layer in the model.
    pub layer: usize,
}

/// Inputs of a mechanism.
#[derive(Clone, Debug)]
pub struct Heads {
    /// Queries, `[batch, heads, length, head_dim]`.
    pub q: Tensor<4>,
    /// Keys, `[batch, heads, length, head_dim]`.
    pub k: Tensor<4>,
    /// Values, `[batch, heads, length, head_dim]`.
    pub v: Tensor<4>,
    /// Input of the projections, `[batch, length, width]`; it feeds gates.
    pub hidden: Tensor<3>,
}

/// Projects `hidden` to one number per head and position, `[batch, heads, length]`.
fn gate(projection: &burn::nn::Linear, hidden: Tensor<3>) -> Tensor<3> {
    linear(projection, hidden).swap_dims(1, 2)
}
