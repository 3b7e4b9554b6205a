//! Checkpoints: safetensors files with the parameter names of the published PyTorch code.
//!
//! A file written by [`Decoder::save`] carries the model's settings in its metadata, so that
//! [`Decoder::load`] needs nothing else. Files written by PyTorch load as well, as safetensors or
//! as a `.pt` state dict.

mod file;
pub mod names;

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, Gradients};

pub use file::{HostTensor, TensorFile, Values};

use crate::config::DecoderConfig;
use crate::decoder::Decoder;
use crate::error::{CheckpointError, ConfigError, Error, Mismatch};

/// The key of the metadata under which the settings stand, as JSON.
const CONFIG: &str = "config";

impl Decoder {
    /// Writes the weights and settings to a safetensors file, whole or not at all: an interrupted
    /// write leaves the old file. Weights that are not finite are refused.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.save_with(path, BTreeMap::new())
    }

    /// Saves the model with further metadata, such as the tokenizer it was trained with.
    /// [`TensorFile::read`] returns them.
    pub fn save_with(
        &self,
        path: impl AsRef<Path>,
        about: BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let config = serde_json::to_string(self.config())
            .map_err(|e| CheckpointError::BadConfig(e.to_string()).at(path.as_ref()))?;
        let mut metadata = about;
        metadata.insert(CONFIG.into(), config);
        let file = TensorFile { path: path.as_ref().into(), metadata, tensors: self.parameters() };
        file.check_finite()?;
        file.write()
    }

    /// Loads a model from a file alone: one of ours, or one whose settings follow from its metadata
    /// or, for TRA, from the shapes of its tensors.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use tra_nn::{Decoder, DecoderConfig, Size};
    ///
    /// let device = Device::flex();
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("model.safetensors");
    /// let saved = DecoderConfig::sized(Size::Tiny, 6).init(&device)?;
    /// saved.save(&path)?;
    ///
    /// let loaded = Decoder::load(&path, &device)?;
    /// assert_eq!(loaded.config(), saved.config());
    /// assert_eq!(loaded.parameters(), saved.parameters());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Self, Error> {
        let file = TensorFile::read(path)?;
        let config = file.config()?;
        Self::from_tensors(config, file, device)
    }

    /// Loads the weights of a model whose settings are known, such as a PyTorch state dict of a
    /// rival mechanism.
    pub fn load_with_config(
        path: impl AsRef<Path>,
        config: DecoderConfig,
        device: &Device,
    ) -> Result<Self, Error> {
        Self::from_tensors(config, TensorFile::read(path)?, device)
    }

    /// Makes a model with the weights of `file`, which must hold exactly its parameters.
    pub fn from_tensors(
        config: DecoderConfig,
        mut file: TensorFile,
        device: &Device,
    ) -> Result<Self, Error> {
        let decoder = config.init_seeded(0, device)?;
        let expected = decoder.parameter_shapes();
        let mut wrong = Mismatch::default();
        for (name, needed) in &expected {
            file.check(name, needed, &mut wrong);
        }
        wrong.unexpected =
            file.tensors.keys().filter(|name| !expected.contains_key(*name)).cloned().collect();
        if !wrong.is_empty() {
            return Err(CheckpointError::from(wrong).at(&file.path));
        }
        Ok(names::replace(decoder, &mut file.tensors))
    }

    /// Returns the shapes of all parameters under their reference names, in PyTorch's layout: a linear weight
    /// is `[out, in]`.
    pub fn parameter_shapes(&self) -> BTreeMap<String, Vec<usize>> {
        names::shapes(self)
    }

    /// Returns all parameters under their reference names, in PyTorch's layout.
    pub fn parameters(&self) -> BTreeMap<String, HostTensor> {
        names::values(self)
    }

    /// Returns the gradients of all parameters under their reference names, in PyTorch's layout. A
    /// parameter that the loss does not depend on has none.
    pub fn gradients(&self, gradients: &Gradients) -> BTreeMap<String, HostTensor> {
        names::gradients(self, gradients)
    }
}

impl TensorFile {
    /// Returns the settings of the model in this file: as we wrote them, as files of the published
    /// code have them, or, for TRA, as they follow from the shapes.
    pub fn config(&self) -> Result<DecoderConfig, Error> {
        let config = match self.metadata.get(CONFIG) {
            Some(json) => DecoderConfig::from_json(json).map_err(|e| e.to_string()),
            None => return self.reference_config().map_err(|reason| reason.at(&self.path)),
        };
        let config = config.and_then(|config| self.plausible(config));
        config.map_err(|reason| CheckpointError::BadConfig(reason).at(&self.path))
    }

    /// Refuses settings of a model that is far larger than the file.
    fn plausible(&self, config: DecoderConfig) -> Result<DecoderConfig, String> {
        config.validate().map_err(|e| e.to_string())?;
        let (layers, tensors) = (config.layers, self.tensors.len());
        if layers > tensors {
            return Err(format!("{layers} layers, but the file has only {tensors} tensors"));
        }
        Ok(config)
    }

    fn reference_config(&self) -> Result<DecoderConfig, CheckpointError> {
        let noted = |key: &str| -> Result<Option<usize>, CheckpointError> {
            let Some(text) = self.metadata.get(key) else { return Ok(None) };
            let bad = || CheckpointError::BadConfig(format!("{key} is {text:?}, not a number"));
            text.parse().map(Some).map_err(|_| bad())
        };
        let shape = |name: &str| match self.tensors.get(name).map(|t| t.shape.as_slice()) {
            Some(&[rows, columns]) => Some((rows, columns)),
            _ => None,
        };
        let embedding = shape("embedding.weight");
        let of_shape = |value: Option<usize>| value.ok_or(CheckpointError::NoConfig);
        let layer = |n: usize| format!("layers.{n}.");
        let counted =
            (0..).take_while(|n| self.tensors.keys().any(|k| k.starts_with(&layer(*n)))).count();
        // One row of the forget gate for every head.
        let gates = shape("layers.0.attn.delta_proj.weight").map(|(heads, _)| heads);
        let (vocab, width) = (embedding.map(|e| e.0), embedding.map(|e| e.1));
        let mut config = DecoderConfig::new(
            of_shape(noted("vocab")?.or(vocab))?,
            noted("layers")?.unwrap_or(counted),
            of_shape(noted("embed_dim")?.or(width))?,
            of_shape(noted("heads")?.or(gates))?,
        );
        match self.metadata.get("pad_index").map(String::as_str) {
            Some("none") => config.pad_index = None,
            _ => config.pad_index = noted("pad_index")?.or(config.pad_index),
        }
        if let Some(text) = self.metadata.get("norm_eps") {
            let bad = || CheckpointError::BadConfig(format!("norm_eps is {text:?}, not a number"));
            config.norm_eps = text.parse().map_err(|_| bad())?;
        }
        if let Some(name) = self.metadata.get("attention") {
            config.attention = (name.parse())
                .map_err(|e: ConfigError| CheckpointError::BadConfig(e.to_string()))?;
        }
        self.plausible(config).map_err(CheckpointError::BadConfig)
    }
}
