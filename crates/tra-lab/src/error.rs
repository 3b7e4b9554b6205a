//! Errors of experiments. Each one prints as a single line that says what to do.

use std::path::{Path, PathBuf};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// An invalid setting.
    #[error("{0}")]
    Setting(String),
    /// A config file that cannot be parsed.
    #[error("{path}: {reason}", path = path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The cause, with its line number.
        reason: String,
    },
    /// A flag or `--set` that makes the settings invalid.
    #[error("{setting}: {cause}")]
    Given {
        /// The setting as it was typed.
        setting: String,
        /// The cause. Not called `source`, because the message already contains it.
        cause: Box<LabError>,
    },
    /// A split on which the run cannot be evaluated.
    #[error("cannot test split {split}: {cause}; or {way_out}")]
    Split {
        /// Name of the split.
        split: String,
        /// The cause.
        cause: Box<LabError>,
        /// What to change.
        way_out: String,
    },
    /// Work that needs more memory than the machine has.
    #[error(
        "{what} needs at least {need} of memory ({part} of it for {of}), but this machine has \
         {total}; try {advice}",
        need = crate::budget::bytes(*need),
        part = crate::budget::bytes(*part),
        total = crate::budget::bytes(*total)
    )]
    Memory {
        /// The work.
        what: &'static str,
        /// Lower bound of the memory it needs, in bytes.
        need: u64,
        /// Size of its largest part, in bytes.
        part: u64,
        /// Description of the largest part.
        of: String,
        /// Memory of the machine, in bytes.
        total: u64,
        /// Settings that would need less.
        advice: &'static str,
    },
    /// A failed file operation.
    #[error("{action} {path}: {cause}{hint}", path = path.display(), hint = hint(cause))]
    Io {
        /// The failed action, such as `cannot read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error. Not called `source`, because the message already contains
        /// it.
        cause: std::io::Error,
    },
    /// An error of the model or its file.
    #[error(transparent)]
    Model(#[from] tra_nn::Error),
    /// An error of the task.
    #[error(transparent)]
    Task(#[from] tra_tasks::TaskError),
    /// An error of the text or its tokenizer.
    #[error(transparent)]
    Text(#[from] tra_text::TextError),
    /// A folder that is not a usable run.
    #[error("{path}: {reason}", path = path.display())]
    RunDir {
        /// The folder.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A mechanism that has no kernel to benchmark on its own.
    #[error("{0} has no kernel to benchmark on its own; use one of tra, nope, rope, alibi, fox")]
    NoKernel(String),
    /// A data thread that stopped early.
    #[error("internal, please report it: the data thread stopped at step {step}: {message}")]
    DataThread {
        /// The step whose batches were missing.
        step: u64,
        /// Message of its panic.
        message: String,
    },
    /// A training step whose loss or gradient is not finite.
    #[error(
        "step {step}: the loss is {loss} and the gradient norm is {norm}; \
         try an --lr below {lr:.1e}"
    )]
    NotFinite {
        /// The step, counted from 1.
        step: u64,
        /// The loss.
        loss: f64,
        /// Norm of the gradient.
        norm: f64,
        /// The learning rate.
        lr: f64,
    },
    /// A run that cannot continue, because its loss, gradient or weights are no longer finite.
    #[error("{0}")]
    Diverged(String),
    /// Any other error, as one line.
    #[error("{0}")]
    Other(String),
}

impl LabError {
    pub(crate) fn io(action: &'static str, path: &Path, cause: std::io::Error) -> Self {
        Self::Io { action, path: path.into(), cause }
    }

    pub(crate) fn run_dir(path: &Path, reason: impl Into<String>) -> Self {
        Self::RunDir { path: path.into(), reason: reason.into() }
    }

    /// Returns whether the operating system denied access to a file.
    pub(crate) fn is_denied(&self) -> bool {
        use tra_nn::{CheckpointError, Error};
        let cause = match self {
            Self::Io { cause, .. } => cause,
            Self::Model(Error::Checkpoint {
                reason: CheckpointError::Io { source, .. }, ..
            }) => source,
            _ => return false,
        };
        cause.kind() == std::io::ErrorKind::PermissionDenied
    }

    /// Returns whether a model was not saved because its weights are not finite.
    pub(crate) fn is_not_finite(&self) -> bool {
        use tra_nn::{CheckpointError, Error};
        match self {
            Self::Model(Error::Checkpoint {
                reason: CheckpointError::DoesNotFit(wrong), ..
            }) => !wrong.not_finite.is_empty(),
            _ => false,
        }
    }

    /// Converts a TOML error. `text` is the content of the file.
    pub(crate) fn config(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        Self::Config { path: path.into(), reason: toml_reason(text, error) }
    }
}

/// Describes a TOML error in one line: the line number, or else the setting, and the cause.
pub(crate) fn toml_reason(text: &str, error: &toml::de::Error) -> String {
    let reason = match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => {
            format!("line {}: {}", before.matches('\n').count() + 1, error.message())
        }
        // The second line of the message names the setting: in `curriculum.widen`.
        None => error.to_string(),
    };
    reason.trim_end().replace('\n', " ")
}

fn hint(cause: &std::io::Error) -> &'static str {
    match cause.kind() {
        std::io::ErrorKind::StorageFull => {
            " (free some space, then resume; nothing already written is lost)"
        }
        std::io::ErrorKind::PermissionDenied => {
            " (check its permissions, or choose another folder)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use crate::config::RunConfig;

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.toml");
        for (text, place) in [
            ("steps = 9\n\nlr = ", "run.toml: line 3: "),
            ("steps = 9\nsteps = 9", "line 2: duplicate key"),
            (
                "steps = 9\n[curriculum]\nfrom = 4\nuntil = 0.5\nwiden = 'x'",
                "in `curriculum.widen`",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = RunConfig::read(Some(&path), Vec::new(), &[]).unwrap_err().to_string();
            assert!(error.contains(place), "{text:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
