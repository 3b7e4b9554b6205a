//! What a decoder is: sizes, mechanism, dropout.

use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use crate::attention::{AnyAttentionConfig, AttentionConfig, HeadSizes, TraConfig};
use crate::decoder::Decoder;
use crate::dropout::DropoutPlacement;
use crate::error::{ConfigError, Error, TokenError};
use crate::init::WeightInit;
use crate::positions::PositionEncoding;

/// A named size (after Turc et al. 2019): heads of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 2 layers, width 128, 2 heads.
    Tiny,
    /// 4 layers, width 256, 4 heads.
    Mini,
    /// 4 layers, width 512, 8 heads.
    Small,
    /// 8 layers, width 512, 8 heads.
    Medium,
}

impl Size {
    /// Layers, width and heads.
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
        match name {
            "tiny" => Ok(Size::Tiny),
            "mini" => Ok(Size::Mini),
            "small" => Ok(Size::Small),
            "medium" => Ok(Size::Medium),
            _ => Err(ConfigError::UnknownSize(name.into())),
        }
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
/// let free = DecoderConfig::new(257, 3, 72, 3);
/// assert_eq!(free.init(&Device::flex())?.config().head_dim(), 24);
///
/// let wrong = DecoderConfig::new(257, 3, 72, 5).init(&Device::flex()).unwrap_err();
/// assert_eq!(wrong.to_string(), "heads (5) must divide the width (72)");
/// # Ok::<(), tra_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// Rate of dropout on the embedding, where it is not to be `dropout` as published. More of
    /// it, 0.1, carries copies to longer strings (docs/tried.md).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding_dropout: Option<f64>,
    /// Where attention drops.
    pub dropout_placement: DropoutPlacement,
    /// In training every layer multiplies its logits, at every step, by a number drawn evenly from this to 1. A flatter softmax
    /// is what a longer sequence makes: the right key must stand out further, or the others leave. 1 is as published.
    #[serde(default = "as_sharp", skip_serializing_if = "is_as_sharp")]
    pub sharpness: f64,
    /// Epsilon of the norms on the residual stream.
    pub norm_eps: f64,
    /// A token whose embedding is never trained, used for padding.
    pub pad_index: Option<usize>,
    /// Whether the output takes the embedding's table in place of one of its own, as many language
    /// models do. The published decoder does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tied: bool,
    /// Embeddings begin evenly in this range around 0; the published decoder has 0.01. An AdamW step
    /// moves them by up to the learning rate, whatever their size, so a high one wants more.
    #[serde(default = "embedding_bound", skip_serializing_if = "is_embedding_bound")]
    pub embedding_bound: f64,
}

/// As published.
pub const EMBEDDING_BOUND: f64 = 0.01;

fn as_sharp() -> f64 {
    1.0
}

fn is_as_sharp(sharpness: &f64) -> bool {
    *sharpness == 1.0
}

fn embedding_bound() -> f64 {
    EMBEDDING_BOUND
}

fn is_embedding_bound(bound: &f64) -> bool {
    *bound == EMBEDDING_BOUND
}

impl DecoderConfig {
    /// TRA with free sizes and the published settings for the rest.
    pub fn new(vocab: usize, layers: usize, width: usize, heads: usize) -> Self {
        Self {
            vocab,
            layers,
            width,
            heads,
            attention: TraConfig::default().into(),
            dropout: 0.01,
            embedding_dropout: None,
            dropout_placement: DropoutPlacement::Logits,
            sharpness: 1.0,
            norm_eps: 1e-6,
            pad_index: Some(0),
            tied: false,
            embedding_bound: EMBEDDING_BOUND,
        }
    }

    /// TRA with a named size.
    pub fn sized(size: Size, vocab: usize) -> Self {
        let (layers, width, heads) = size.dimensions();
        Self::new(vocab, layers, width, heads)
    }

    /// The same with another mechanism.
    pub fn with_attention(self, attention: impl Into<AnyAttentionConfig>) -> Self {
        Self { attention: attention.into(), ..self }
    }

    /// The same with another rate of dropout.
    pub fn with_dropout(self, dropout: f64) -> Self {
        Self { dropout, ..self }
    }

    /// The same with a rate of dropout for the embedding alone; none is that of the rest.
    pub fn with_embedding_dropout(self, embedding_dropout: Option<f64>) -> Self {
        Self { embedding_dropout, ..self }
    }

    /// The same with attention dropping elsewhere.
    pub fn with_dropout_placement(self, dropout_placement: DropoutPlacement) -> Self {
        Self { dropout_placement, ..self }
    }

    /// The same with logits that training multiplies by a number from `sharpness` to 1.
    pub fn with_sharpness(self, sharpness: f64) -> Self {
        Self { sharpness, ..self }
    }

    /// The same for text: every token is trained, as none is padding.
    pub fn without_padding(self) -> Self {
        Self { pad_index: None, ..self }
    }

    /// The same with one table for embedding and output, or with two.
    pub fn with_tied(self, tied: bool) -> Self {
        Self { tied, ..self }
    }

    /// The same with embeddings, and what positions add to them, that begin in another range.
    pub fn with_embedding_bound(self, embedding_bound: f64) -> Self {
        Self { embedding_bound, ..self }
    }

    /// Width of one head.
    pub fn head_dim(&self) -> usize {
        self.width / self.heads.max(1)
    }

    /// How many positions it has, where there is an end to them: only `learned` has one.
    pub fn limit(&self) -> Option<usize> {
        match self.attention.positions()? {
            PositionEncoding::Learned { count } => Some(count),
            PositionEncoding::Sinusoidal { .. } => None,
        }
    }

    /// Says so if a sequence of `length` tokens is longer than the model has positions.
    pub fn check_length(&self, length: usize) -> Result<(), TokenError> {
        match self.limit() {
            Some(limit) if length > limit => Err(TokenError::TooLong { length, limit }),
            _ => Ok(()),
        }
    }

    /// Says what is wrong with the settings, if anything is.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self {
            vocab, layers, width, heads, dropout, sharpness, norm_eps, embedding_bound, ..
        } = *self;
        let sizes = [("vocab", vocab), ("layers", layers), ("width", width), ("heads", heads)];
        if let Some((field, _)) = sizes.into_iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError::Zero { field });
        }
        if width % heads != 0 {
            return Err(ConfigError::HeadsDoNotDivideWidth { heads, width });
        }
        if !(0.0..1.0).contains(&dropout) {
            return Err(ConfigError::Dropout(dropout));
        }
        if let Some(rate) = self.embedding_dropout.filter(|rate| !(0.0..1.0).contains(rate)) {
            return Err(ConfigError::EmbeddingDropout(rate));
        }
        if !(sharpness > 0.0 && sharpness <= 1.0) {
            return Err(ConfigError::Sharpness(sharpness));
        }
        if !(norm_eps > 0.0 && norm_eps.is_finite()) {
            return Err(ConfigError::NormEps(norm_eps));
        }
        if !(embedding_bound > 0.0 && (embedding_bound as f32).is_finite()) {
            return Err(ConfigError::EmbeddingBound(embedding_bound));
        }
        if let Some(pad_index) = self.pad_index.filter(|pad| *pad >= vocab) {
            return Err(ConfigError::PadOutsideVocab { pad_index, vocab });
        }
        let sizes = HeadSizes { width, heads, head_dim: self.head_dim(), layer: 0 };
        self.attention.validate(sizes)
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
