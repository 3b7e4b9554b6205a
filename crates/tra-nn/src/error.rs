//! Errors of this crate, each with its cause and the way out in one line.

use std::path::PathBuf;

use crate::attention::mechanisms;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A model description that cannot be built.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file that cannot be read, understood, fitted or written.
    #[error("{path}: {reason}", path = path.display())]
    Checkpoint {
        /// The file at fault.
        path: PathBuf,
        /// What is wrong with it.
        reason: CheckpointError,
    },
    /// Tokens a model cannot take.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// A device that this build or machine does not have.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Tensors that do not fit together.
    #[error(transparent)]
    Shape(Box<ShapeError>),
}

impl From<ShapeError> for Error {
    fn from(error: ShapeError) -> Self {
        Self::Shape(Box::new(error))
    }
}

/// Tensors of attention whose shapes do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "queries {queries:?}, keys {keys:?}, values {values:?} and gate {gate:?} do not fit together: they are \
     [batch, heads, length, head_dim], keys and values alike and no fewer than queries, and the gate is \
     [batch, heads, length] of the queries"
)]
pub struct ShapeError {
    /// Shape of the queries.
    pub queries: [usize; 4],
    /// Shape of the keys.
    pub keys: [usize; 4],
    /// Shape of the values.
    pub values: [usize; 4],
    /// Shape of the gate.
    pub gate: [usize; 3],
}

/// A model description that cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The head dimension would not be a whole number.
    #[error("heads ({heads}) must divide the width ({width})")]
    HeadsDoNotDivideWidth {
        /// Number of heads.
        heads: usize,
        /// Model width.
        width: usize,
    },
    /// A size of zero.
    #[error("{field} must be at least 1")]
    Zero {
        /// The field at fault.
        field: &'static str,
    },
    /// A rate outside `0..1`.
    #[error("dropout must lie in 0..1, not {0}")]
    Dropout(f64),
    /// A rate for the embedding outside `0..1`.
    #[error("embedding_dropout must lie in 0..1, not {0}")]
    EmbeddingDropout(f64),
    /// A lowest factor on the logits that is not in `0..=1`, or 0.
    #[error("sharpness must be above 0 and at most 1, not {0}")]
    Sharpness(f64),
    /// An epsilon that is not positive and finite.
    #[error("norm_eps must be positive, not {0}")]
    NormEps(f64),
    /// A range for embeddings that is not positive, or that an f32 cannot hold.
    #[error("embedding_bound must be positive and fit an f32, not {0}")]
    EmbeddingBound(f64),
    /// A padding index outside the vocabulary.
    #[error("pad_index {pad_index} is outside the vocabulary of {vocab}")]
    PadOutsideVocab {
        /// The padding index.
        pad_index: usize,
        /// The vocabulary size.
        vocab: usize,
    },
    /// A setting of a mechanism that makes no sense.
    #[error("{mechanism}: {reason}")]
    Mechanism {
        /// Its name.
        mechanism: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// An unknown mechanism.
    #[error("unknown attention {0:?}; there are {names}", names = names())]
    UnknownAttention(String),
    /// An unknown size.
    #[error("unknown size {0:?}; there are tiny, mini, small, medium")]
    UnknownSize(String),
}

impl ConfigError {
    pub(crate) fn check_not_zero(field: &'static str, value: usize) -> Result<(), Self> {
        if value == 0 { Err(Self::Zero { field }) } else { Ok(()) }
    }
}

fn names() -> String {
    mechanisms().map(|mechanism| mechanism.name).collect::<Vec<_>>().join(", ")
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// An error of the file system.
    #[error("{action}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// The error.
        source: std::io::Error,
    },
    /// Not a safetensors file, or one cut short.
    #[error("not a readable safetensors file: {0}")]
    Safetensors(String),
    /// The checksum does not match.
    #[error(
        "the checksum is wrong: the file is damaged (if another program changed it, remove \
         \"checksum\" from its metadata)"
    )]
    Damaged,
    /// A PyTorch file, in a build without the feature `pytorch`.
    #[error(
        "this build cannot read PyTorch files; build with --features pytorch, or save it as safetensors"
    )]
    NotBuilt,
    /// Not a PyTorch state dict.
    #[error("not a readable PyTorch state dict: {0}")]
    Pytorch(String),
    /// A tensor of an unsupported type.
    #[error("tensor {name:?} has the unsupported type {dtype}")]
    Dtype {
        /// The tensor's name.
        name: String,
        /// Its type.
        dtype: String,
    },
    /// Nothing in the file names its model.
    #[error("the file does not name its model; give its config")]
    NoConfig,
    /// The config in the metadata cannot be understood.
    #[error("bad model config in the metadata: {0}")]
    BadConfig(String),
    /// The tensors are not those of the model.
    #[error("{0}")]
    DoesNotFit(Box<Mismatch>),
}

impl From<Mismatch> for CheckpointError {
    fn from(wrong: Mismatch) -> Self {
        Self::DoesNotFit(Box::new(wrong))
    }
}

/// Every way in which the tensors of a file differ from those a model needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mismatch {
    /// Needed and not there.
    pub missing: Vec<String>,
    /// There and not needed.
    pub unexpected: Vec<String>,
    /// Of another shape: name, found, needed.
    pub misshaped: Vec<(String, Vec<usize>, Vec<usize>)>,
    /// Of another kind of number than needed: name, needed kind.
    pub mistyped: Vec<(String, &'static str)>,
    /// With a NaN or an infinity inside: name and how many.
    pub not_finite: Vec<(String, usize)>,
}

impl Mismatch {
    /// Returns whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl std::error::Error for Mismatch {}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        let mut part = |title: &str, items: Vec<String>| {
            if !items.is_empty() {
                parts.push(format!("{title} {}", items.join(", ")));
            }
        };
        part("missing tensors:", self.missing.clone());
        part("unexpected tensors:", self.unexpected.clone());
        let shape = |(name, found, needed): &(String, Vec<usize>, Vec<usize>)| {
            format!("{name} is {found:?} and should be {needed:?}")
        };
        part("wrong shapes:", self.misshaped.iter().map(shape).collect());
        let kind = |(name, kind): &(String, &str)| format!("{name} should hold {kind}");
        part("wrong types:", self.mistyped.iter().map(kind).collect());
        let count = |(name, n): &(String, usize)| format!("{name} ({n})");
        part("NaN or infinity in:", self.not_finite.iter().map(count).collect());
        f.write_str(&parts.join("; "))
    }
}

/// Tokens a model cannot take.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// A token the model has no embedding for.
    #[error(
        "token {token} at sequence {sequence}, position {position} is outside the vocabulary of {vocab}"
    )]
    OutsideVocab {
        /// The token.
        token: i64,
        /// Which sequence of the batch.
        sequence: usize,
        /// Where in the sequence.
        position: usize,
        /// The vocabulary size.
        vocab: usize,
    },
    /// Sequences of different lengths in one batch.
    #[error("sequence {sequence} has {found} tokens where the first has {expected}")]
    Ragged {
        /// Which sequence of the batch.
        sequence: usize,
        /// Its length.
        found: usize,
        /// The length of the first.
        expected: usize,
    },
    /// More tokens than the model has positions.
    #[error(
        "{length} tokens are more than the {limit} positions this model has learned; use fewer, or \
         train it with model.attention.count={length}"
    )]
    TooLong {
        /// How many tokens.
        length: usize,
        /// How many positions.
        limit: usize,
    },
    /// Nothing to continue from.
    #[error("the prompt is empty; give at least one token")]
    EmptyPrompt,
    /// A sampling setting outside its range.
    #[error("{0}")]
    Sampling(String),
}

/// A device that this build or machine does not have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The name is not among the backends compiled in.
    #[error("no device {name:?} in this build; it has {available} (others: build with --features)")]
    NotCompiledIn {
        /// The name that was given.
        name: String,
        /// The names there are.
        available: String,
    },
    /// The part after the colon is not an index.
    #[error("device {0:?}: the part after the colon must be a number, as in cuda:1")]
    BadIndex(String),
    /// The backend is compiled in and does not start on this machine.
    #[error("device {name:?} does not start on this machine: {reason}")]
    DoesNotStart {
        /// The name that was given.
        name: String,
        /// The message of the backend.
        reason: String,
    },
}
