//! Errors about texts. Each message is one line and says what to do.

use std::path::{Path, PathBuf};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file cannot be used as text.
    #[error("{path}: {reason}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An operation on a file failed.
    #[error("{path}: {action}: {cause}", path = path.display())]
    Io {
        /// What failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system. Not called `source`, as the message has it already.
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
    /// There is no tokenizer of that name.
    #[error("unknown tokenizer {0:?}: use gpt2, bytes, or the path of a tokenizer.json")]
    UnknownTokenizer(String),
    /// There is no file at the path of a tokenizer.
    #[error(
        "the tokenizer file {name} is missing (looked for {full}): put it back, or name another \
         tokenizer",
        full = full.display()
    )]
    MissingTokenizer {
        /// The path as it was given.
        name: String,
        /// The absolute path.
        full: PathBuf,
    },
    /// There is no folder to keep tokens in.
    #[error("no folder to keep tokens in: HOME is not set; set TRA_CACHE to a folder")]
    NoCacheFolder,
    /// A `tokenizer.json` cannot be used.
    #[error("{name}: not a usable tokenizer: {reason}")]
    Tokenizer {
        /// The file, or where else the tokenizer came from.
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

/// Returns the first line of another library's error.
#[cfg(any(feature = "hf-tokenizers", feature = "parquet"))]
pub(crate) fn first_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().into()
}
