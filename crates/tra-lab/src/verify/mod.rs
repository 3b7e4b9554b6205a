//! Verification: compares this implementation with recordings of another one.
//!
//! A recording is a safetensors file with the inputs and results of another implementation. There
//! are three kinds: one TRA operation (`q`, `k`, `v`, `gate`, …), one operation of any other
//! mechanism (`q`, `k`, `v`, its parameters, and its name in the metadata), and a whole decoder
//! (`tokens`, its parameters, `logits`, `loss`, `grad.…`). [`verify`] computes everything again and
//! compares.
//!
//! A score within rounding of 0 may be kept by one implementation and dropped by another. Such
//! near-threshold pairs are counted separately and made to follow the recording, so that everything
//! else can be held to the full tolerance.

mod attention;
mod compare;
mod model;
mod rival;

use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor};
use serde::Serialize;
use tra_nn::checkpoint::TensorFile;
use tra_nn::{CheckpointError, Error as NnError, Mismatch, TokenError};

pub use compare::{Check, Tolerance};

/// Largest distance from 0 of a near-threshold score.
///
/// Scores are at most `sqrt(head_dim)`. In f32, two implementations differ by up to about 1e-6
/// after one operation, and by ten times that after some layers.
const NEAR: f32 = 1e-5;

/// Result of one file.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The file.
    pub path: PathBuf,
    /// Description of its content.
    pub contents: String,
    /// Near-threshold pairs, and how many of them differed here.
    pub near_threshold: NearThreshold,
    /// One comparison per tensor.
    pub tensors: Vec<Check>,
}

/// Pairs of query and key whose score is within rounding of 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NearThreshold {
    /// Number of pairs. A score of exactly 0, as of a zero vector, does not depend on rounding: it
    /// must be dropped and is not counted.
    pub pairs: usize,
    /// Number of pairs that differed here and were made to follow the recording.
    pub followed: usize,
}

impl Verdict {
    /// Returns whether every tensor agrees.
    pub fn agrees(&self) -> bool {
        self.tensors.iter().all(|tensor| tensor.agrees)
    }
}

/// Why a file could not be verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// An error of the file or the model in it.
    #[error("{0}")]
    Model(#[from] NnError),
    /// A file that is not a recording.
    #[error(
        "{path}: not a recording: it has neither \"tokens\" (a decoder) nor \"q\" (one attention)",
        path = .0.display()
    )]
    NotARecording(PathBuf),
    /// An unknown loss.
    #[error(
        "{path}: unknown loss {loss:?}; the known ones are {known}",
        path = path.display(),
        known = model::LOSSES.map(|(name, _)| format!("{name:?}")).join(" and ")
    )]
    UnknownLoss {
        /// The file.
        path: PathBuf,
        /// The loss named in its metadata.
        loss: String,
    },
    /// A value in the metadata that should be a number.
    #[error("{path}: {key} is {text:?} in the metadata, not a number", path = path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// Its value.
        text: String,
    },
}

impl VerifyError {
    fn does_not_fit(path: &Path, wrong: Mismatch) -> Self {
        let reason = CheckpointError::from(wrong);
        NnError::Checkpoint { path: path.into(), reason }.into()
    }

    fn bad_config(path: &Path, reason: String) -> Self {
        let reason = CheckpointError::BadConfig(reason);
        NnError::Checkpoint { path: path.into(), reason }.into()
    }
}

impl From<TokenError> for VerifyError {
    fn from(error: TokenError) -> Self {
        NnError::from(error).into()
    }
}

/// Returns whether this device has an attention kernel in addition to the plain operations.
fn has_kernel(device: &Device) -> bool {
    tra_nn::fused::usable(&Tensor::<1>::zeros([1], device))
}

fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data_as::<f32>().iter::<f32>().collect()
}

/// Computes the results of a recording again on `device` and compares them.
pub fn verify(path: &Path, tolerance: Tolerance, device: &Device) -> Result<Verdict, VerifyError> {
    let file = TensorFile::read(path)?;
    let device = device.clone().autodiff();
    let is_rival = file.metadata.get("attention").is_some_and(|name| name != "tra");
    if file.tensors.contains_key("tokens") {
        model::verify(file, tolerance, &device)
    } else if !file.tensors.contains_key("q") {
        Err(VerifyError::NotARecording(path.into()))
    } else if is_rival {
        rival::verify(&file, tolerance, &device)
    } else {
        attention::verify(&file, tolerance, &device)
    }
}
