//! What can go wrong with a text, each in one line with the way out.

use std::path::{Path, PathBuf};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file that cannot be used as text.
    #[error("{path}: {reason}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file system said no.
    #[error("{path}: {action}: {cause}", path = path.display())]
    Io {
        /// What could not be done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// The file system's answer. Not called `source`: it is in the message already.
        cause: std::io::Error,
    },
    /// A file that needs a feature this build was made without.
    #[error("{name}: this build cannot {action}; build with --features {feature}")]
    NotBuilt {
        /// The file, or where else it came from.
        name: String,
        /// What it cannot do.
        action: &'static str,
        /// The Cargo feature that can.
        feature: &'static str,
    },
    /// A name that is no tokenizer.
    #[error(
        "unknown tokenizer {0:?}: there are gpt2 and bytes, or give the path of a tokenizer.json"
    )]
    UnknownTokenizer(String),
    /// A path at which there is no tokenizer any more.
    #[error(
        "the tokenizer file {name} is missing (looked for {full}): put it back, or name another \
         tokenizer",
        full = full.display()
    )]
    MissingTokenizer {
        /// As it was named.
        name: String,
        /// Where that is.
        full: PathBuf,
    },
    /// Nowhere to keep tokens.
    #[error("there is no folder to keep tokens in: set TRA_CACHE to one (HOME is not set)")]
    NoCacheFolder,
    /// A `tokenizer.json` that cannot be used.
    #[error("{name}: no tokenizer: {reason}")]
    Tokenizer {
        /// The file, or where else it came from.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl TextError {
    pub(crate) fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.into(), reason: reason.into() }
    }

    pub(crate) fn io(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |cause| Self::Io { action, path, cause }
    }
}

/// The first line of another library's error.
#[cfg(any(feature = "hf-tokenizers", feature = "parquet"))]
pub(crate) fn first_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().into()
}
