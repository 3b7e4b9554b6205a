//! Threshold Relative Attention and its rivals as Burn modules.
//!
//! Transformers break on inputs longer than those they were trained on. Threshold Relative
//! Attention (arXiv 2503.23174) removes keys with a non-positive score from the softmax and counts
//! distance over the remaining keys, scaled by a learned forget gate. This crate has
//!
//! - [`ThresholdRelativeAttention`]: the layer alone, for a model of your own;
//! - [`Decoder`]: the published decoder, with TRA or any rival in [`attention`];
//! - a [cache](Cache) for every mechanism, and [generation](Decoder::generate) on top of it;
//! - checkpoints that PyTorch reads and writes: [`Decoder::save`], [`Decoder::load`].
//!
//! As in Burn, a config has `with_…` methods and an `init`. Settings for experiments are apart, in
//! [`Research`]. The directory `examples` has a model of one's own, training and generation.
//!
//! ```
//! use burn::tensor::Device;
//! use tra_nn::{DecoderConfig, Pass, Size};
//!
//! let decoder = DecoderConfig::sized(Size::Tiny, 6).init(&Device::flex())?;
//! let tokens = decoder.tokens(&[[1, 4, 3, 5, 2, 4]])?;
//! let logits = decoder.forward(tokens, Pass::eval());
//! assert_eq!(logits.dims(), [1, 6, 6]);
//! # Ok::<(), tra_nn::Error>(())
//! ```
//!
//! To train, make the model on a device [with autodiff](burn::tensor::Device::autodiff), run it with
//! [`Pass::train`], and call `backward` on your loss as on any Burn tensor.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod attention;
mod block;
mod cache;
pub mod checkpoint;
mod config;
mod decoder;
pub mod device;
mod dropout;
mod error;
pub mod fused;
mod generate;
mod init;
mod norm;
pub mod ops;
mod pass;
mod positions;
mod research;
mod sampler;
mod settings;

pub use attention::{ThresholdRelativeAttention, ThresholdRelativeAttentionConfig};
pub use block::{Block, Mlp};
pub use cache::{Cache, LayerCache};
pub use config::{DecoderConfig, Size};
pub use decoder::Decoder;
pub use dropout::DropoutPlacement;
pub use error::{
    CheckpointError, ConfigError, DeviceError, Error, Mismatch, ShapeError, TokenError,
};
pub use generate::{Continuation, Generate};
pub use init::WeightInit;
pub use norm::RmsNorm;
pub use pass::{LayerPass, LayerProbe, Pair, Pass, Probe};
pub use positions::{PositionEmbedding, PositionEncoding};
pub use research::Research;
pub use sampler::Sampling;
