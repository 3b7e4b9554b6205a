//! What can go wrong in an experiment, each in one line with the way out.

use std::path::{Path, PathBuf};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A setting that makes no sense.
    #[error("{0}")]
    Setting(String),
    /// A config file that cannot be understood.
    #[error("{path}: {reason}", path = path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        reason: String,
    },
    /// A flag or `--set` that makes the settings wrong.
    #[error("{setting}: {cause}")]
    Given {
        /// As it was typed.
        setting: String,
        /// What is wrong. Not called `source`: it is in the message already.
        cause: Box<LabError>,
    },
    /// A split that a run cannot be tested on.
    #[error("split {split} cannot be tested: {cause}; or {way_out}")]
    Split {
        /// Its name.
        split: String,
        /// Why not.
        cause: Box<LabError>,
        /// What can be done about it.
        way_out: String,
    },
    /// More memory than there is.
    #[error(
        "{what} needs at least {need} of memory ({part} of it for {of}), and this machine has {total}; try {advice}",
        need = crate::budget::bytes(*need), part = crate::budget::bytes(*part), total = crate::budget::bytes(*total)
    )]
    Memory {
        /// Which work.
        what: &'static str,
        /// Bytes it takes at the least.
        need: u64,
        /// Bytes of the largest part.
        part: u64,
        /// What that part is.
        of: String,
        /// Bytes there are.
        total: u64,
        /// What would need less.
        advice: &'static str,
    },
    /// The file system said no.
    #[error("{action} {path}: {cause}{hint}", path = path.display(), hint = hint(cause))]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// The file system's answer. Not called `source`: it is in the message already.
        cause: std::io::Error,
    },
    /// The model or its file.
    #[error(transparent)]
    Model(#[from] tra_nn::Error),
    /// The task.
    #[error(transparent)]
    Task(#[from] tra_tasks::TaskError),
    /// The text or its tokenizer.
    #[error(transparent)]
    Text(#[from] tra_text::TextError),
    /// A folder that is no run, or cannot be used as one.
    #[error("{path}: {reason}", path = path.display())]
    RunDir {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A mechanism whose bare operation cannot be measured.
    #[error("{0} has no kernel to measure alone; those with one: tra, nope, rope, alibi, fox")]
    NoKernel(String),
    /// The thread that prepares batches has died.
    #[error("internal, please report it: the data thread ended at step {step}: {message}")]
    DataThread {
        /// The step whose batches were missing.
        step: u64,
        /// What it said.
        message: String,
    },
    /// A training step whose loss or gradient is not finite.
    #[error(
        "step {step}: the loss is {loss} and the gradient norm {norm}; try a lower --lr than {lr:.1e}"
    )]
    NotFinite {
        /// The step, counted from 1.
        step: u64,
        /// Its loss.
        loss: f64,
        /// Norm of its gradient.
        norm: f64,
        /// Its learning rate.
        lr: f64,
    },
    /// A run that cannot go on: its loss, gradient or weights are not finite any more.
    #[error("{0}")]
    Diverged(String),
    /// Anything else that stopped a piece of work, in one line.
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

    /// Whether the operating system refused to let a file be read.
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

    /// Whether a model was not written because its weights are not finite.
    pub(crate) fn is_not_finite(&self) -> bool {
        use tra_nn::{CheckpointError, Error};
        match self {
            Self::Model(Error::Checkpoint {
                reason: CheckpointError::DoesNotFit(wrong), ..
            }) => !wrong.not_finite.is_empty(),
            _ => false,
        }
    }

    /// `text` is what the file says, where the error is of reading it.
    pub(crate) fn config(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        Self::Config { path: path.into(), reason: toml_reason(text, error) }
    }
}

/// What is wrong with a TOML text, in one line: the number of its line, or else the setting, and the cause.
pub(crate) fn toml_reason(text: &str, error: &toml::de::Error) -> String {
    let reason = match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => {
            format!("line {}: {}", before.matches('\n').count() + 1, error.message())
        }
        // Its second line says where: in `curriculum.widen`.
        None => error.to_string(),
    };
    reason.trim_end().replace('\n', " ")
}

fn hint(cause: &std::io::Error) -> &'static str {
    match cause.kind() {
        std::io::ErrorKind::StorageFull => " (free some space and resume; nothing written is lost)",
        std::io::ErrorKind::PermissionDenied => " (choose a folder you may write to)",
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
