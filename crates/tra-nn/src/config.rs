//! What a decoder is: sizes, mechanism, dropout.

use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use crate::attention::{AnyAttentionConfig, AttentionConfig, AttentionLayerConfig};
use crate::decoder::Decoder;
use crate::dropout::DropoutPlacement;
use crate::error::{ConfigError, Error, TokenError};
use crate::init::WeightInit;
use crate::positions::PositionEncoding;
use crate::research::{Research, regroup};
use crate::settings::{builders, is_default};

/// A named size (after Turc et al. 2019), with heads of 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// 2 layers, width 128, 2 heads.
    Tiny,
    /// 4 layers, width 256, 4 heads.
    #[default]
    Mini,
    /// 4 layers, width 512, 8 heads.
    Small,
    /// 8 layers, width 512, 8 heads.
    Medium,
}

impl Size {
    /// Lists all sizes, the smallest first.
    pub fn all() -> impl ExactSizeIterator<Item = Size> {
        [Size::Tiny, Size::Mini, Size::Small, Size::Medium].into_iter()
    }

    /// Returns the name that users type.
    pub fn name(self) -> &'static str {
        match self {
            Size::Tiny => "tiny",
            Size::Mini => "mini",
            Size::Small => "small",
            Size::Medium => "medium",
        }
    }

    /// Returns layers, width and heads.
    pub fn dimensions(self) -> (usize, usize, usize) {
        match self {
            Size::Tiny => (2, 128, 2),
            Size::Mini => (4, 256, 4),
            Size::Small => (4, 512, 8),
            Size::Medium => (8, 512, 8),
        }
    }
}

impl std::str::FromStr for Size {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let size = Self::all().find(|size| size.name() == name);
        size.ok_or_else(|| ConfigError::UnknownSize(name.into()))
    }
}

/// Settings of a [`Decoder`].
///
/// ```
/// use burn::tensor::Device;
/// use tra_nn::{DecoderConfig, Size, attention::RopeConfig};
///
/// let tra = DecoderConfig::sized(Size::Mini, 6);
/// let rope = DecoderConfig::sized(Size::Mini, 6).with_attention(RopeConfig::default());
/// let free = DecoderConfig::new(257, 3, 72, 3).with_dropout(0.1);
/// assert_eq!(free.init(&Device::flex())?.config().head_dim(), 24);
///
/// let wrong = DecoderConfig::new(257, 3, 72, 5).init(&Device::flex()).unwrap_err();
/// assert_eq!(wrong.to_string(), "heads (5) must divide the width (72)");
/// # Ok::<(), tra_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DecoderConfig {
    /// Number of tokens.
    pub vocab: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Number of heads; they share the width evenly.
    pub heads: usize,
    /// The mechanism and its settings.
    pub attention: AnyAttentionConfig,
    /// Rate of dropout in training: on the embedding, in attention, in the feed-forward part.
    pub dropout: f64,
    /// Where attention drops.
    pub dropout_placement: DropoutPlacement,
    /// Epsilon of the norms on the residual stream.
    pub norm_eps: f64,
    /// A token whose embedding is never trained, used for padding.
    pub pad_index: Option<usize>,
    /// Whether the output uses the embedding's table instead of one of its own, as many language
    /// models do. The published decoder does not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tied: bool,
    /// Settings for experiments, all off by default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub research: Research,
}

builders! {
    DecoderConfig {
        with_dropout(dropout: f64);
        with_dropout_placement(dropout_placement: DropoutPlacement);
        with_norm_eps(norm_eps: f64);
        with_pad_index(pad_index: Option<usize>);
        with_tied(tied: bool);
        with_research(research: Research);
    }
}

impl DecoderConfig {
    /// TRA with free sizes and the published settings for the rest.
    pub fn new(vocab: usize, layers: usize, width: usize, heads: usize) -> Self {
        Self {
            vocab,
            layers,
            width,
            heads,
            attention: AnyAttentionConfig::default(),
            dropout: 0.01,
            dropout_placement: DropoutPlacement::Logits,
            norm_eps: 1e-6,
            pad_index: Some(0),
            tied: false,
            research: Research::default(),
        }
    }

    /// TRA with a named size.
    pub fn sized(size: Size, vocab: usize) -> Self {
        let (layers, width, heads) = size.dimensions();
        Self::new(vocab, layers, width, heads)
    }

    /// Sets the mechanism.
    #[must_use]
    pub fn with_attention(self, attention: impl Into<AnyAttentionConfig>) -> Self {
        Self { attention: attention.into(), ..self }
    }

    /// Sets [`pad_index`](Self::pad_index) to none, as for text, in which every token is trained.
    #[must_use]
    pub fn without_padding(self) -> Self {
        self.with_pad_index(None)
    }

    /// Reads the settings from JSON, as this or any earlier version of this crate wrote them.
    pub fn from_json(json: &str) -> Result<Self, serde_json::Error> {
        let mut config = serde_json::from_str(json)?;
        regroup(&mut config);
        serde_json::from_value(config.into())
    }

    /// Width of one head.
    pub fn head_dim(&self) -> usize {
        self.width / self.heads.max(1)
    }

    /// Returns the number of positions, where there is an end to them: only `learned` has one.
    pub fn limit(&self) -> Option<usize> {
        match self.attention.positions()? {
            PositionEncoding::Learned { count } => Some(count),
            PositionEncoding::Sinusoidal { .. } => None,
        }
    }

    /// Refuses a sequence of `length` tokens if the model has fewer positions.
    pub fn check_length(&self, length: usize) -> Result<(), TokenError> {
        match self.limit() {
            Some(limit) if length > limit => Err(TokenError::TooLong { length, limit }),
            _ => Ok(()),
        }
    }

    /// Refuses settings that no decoder can have, and names the one at fault.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { vocab, layers, norm_eps, .. } = *self;
        for (field, value) in [("vocab", vocab), ("layers", layers)] {
            ConfigError::check_not_zero(field, value)?;
        }
        self.attention_layer(0).validate()?;
        self.research.validate()?;
        if !(norm_eps > 0.0 && norm_eps.is_finite()) {
            return Err(ConfigError::NormEps(norm_eps));
        }
        match self.pad_index.filter(|pad| *pad >= vocab) {
            Some(pad_index) => Err(ConfigError::PadOutsideVocab { pad_index, vocab }),
            None => Ok(()),
        }
    }

    /// Settings of the attention of one layer.
    pub(crate) fn attention_layer(&self, layer: usize) -> AttentionLayerConfig<AnyAttentionConfig> {
        AttentionLayerConfig {
            width: self.width,
            heads: self.heads,
            mechanism: self.attention.clone(),
            dropout: self.dropout,
            dropout_placement: self.dropout_placement,
            layer,
            sharpness: self.research.sharpness,
        }
    }

    /// Makes the decoder with weights drawn from the generator of the device.
    pub fn init(&self, device: &Device) -> Result<Decoder, Error> {
        self.init_with(&WeightInit::random(device))
    }

    /// Makes the decoder with weights that depend on `seed` alone.
    pub fn init_seeded(&self, seed: u64, device: &Device) -> Result<Decoder, Error> {
        self.init_with(&WeightInit::seeded(seed, device))
    }

    /// Makes the decoder with weights from `init`.
    pub fn init_with(&self, init: &WeightInit) -> Result<Decoder, Error> {
        self.validate()?;
        Decoder::new(self.clone(), init)
    }
}
