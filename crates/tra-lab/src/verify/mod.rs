//! Is a recorded model the same model here?
//!
//! A recording is a safetensors file of what another implementation was given and what it
//! computed. There are three kinds: one operation of TRA (`q`, `k`, `v`, `gate`, …), one of any other
//! mechanism (`q`, `k`, `v`, its parameters, and its name in the metadata), and a whole decoder
//! (`tokens`, its parameters, `logits`, `loss`, `grad.…`). [`verify`] computes everything anew and
//! compares.
//!
//! A score within rounding of 0 may be kept by one implementation and dropped by another. Such
//! near-threshold pairs are counted apart and made to fall as they fell in the recording, so that
//! everything else can be held to the full tolerance.

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

/// A pair is near the threshold when its score is at most this far from 0. Scores are at most
/// `sqrt(head_dim)`, and in f32 two implementations differ in them by up to about 1e-6 in one
/// operation, ten times that after some layers.
const NEAR: f32 = 1e-5;

/// What came of one file.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The file.
    pub path: PathBuf,
    /// What it holds, in words.
    pub contents: String,
    /// Near-threshold pairs, and how many of them fell the other way here.
    pub near_threshold: NearThreshold,
    /// One for every tensor compared.
    pub tensors: Vec<Check>,
}

/// Pairs of query and key whose score is within rounding of 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NearThreshold {
    /// How many there are. A score of exactly 0, as of a zero vector, is no matter of rounding: it
    /// must be dropped, and does not count.
    pub pairs: usize,
    /// How many of them fell the other way here, and were made to follow the recording.
    pub followed: usize,
}

impl Verdict {
    /// Whether every tensor agrees.
    pub fn agrees(&self) -> bool {
        self.tensors.iter().all(|tensor| tensor.agrees)
    }
}

/// Why a file could not be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The file or the model in it.
    #[error("{0}")]
    Model(#[from] NnError),
    /// No kind of recording.
    #[error(
        "{path}: not a recording: it has neither \"tokens\" (a decoder) nor \"q\" (one attention)",
        path = .0.display()
    )]
    NotARecording(PathBuf),
    /// A loss this program does not know.
    #[error(
        "{path}: unknown loss {loss:?}; known are {known}",
        path = path.display(),
        known = model::LOSSES.map(|(name, _)| format!("{name:?}")).join(" and ")
    )]
    UnknownLoss {
        /// The file.
        path: PathBuf,
        /// What its metadata say.
        loss: String,
    },
    /// A number in the metadata that is none.
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

/// Whether attention on this device has a kernel, beside its composition of plain operations.
fn has_kernel(device: &Device) -> bool {
    tra_nn::fused::usable(&Tensor::<1>::zeros([1], device))
}

fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data_as::<f32>().iter::<f32>().collect()
}

/// Recomputes what is recorded in a file, on `device`, and compares.
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
