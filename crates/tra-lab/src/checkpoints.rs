//! Checkpoints of a run: how they are written, selected, read and removed.
//!
//! ```text
//! checkpoints/step-00000100/
//!   model.safetensors       the model alone; PyTorch and `Decoder::load` read it
//!   training.safetensors    the optimizer's state; metadata: progress and settings of the run
//! ```
//!
//! A folder with its final name is complete, because it is written under another name and then
//! renamed. Both files have a checksum. The folder of a diverged model is renamed to `diverged-…`.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use tra_nn::checkpoint::TensorFile;
use tra_nn::{Decoder, DecoderConfig};
use tra_tasks::OpenTask;

use crate::config::RunConfig;
use crate::error::LabError;
use crate::optimizer::{Optimizer, OptimizerConfig};
use crate::run_dir::{RunDir, TOKENIZER};
use crate::standing::Standing;

const MODEL: &str = "model.safetensors";
const TRAINING: &str = "training.safetensors";
const POSITION: &str = "position";
const SETTINGS: &str = "settings";

/// Progress of a run: everything that is neither a tensor nor in `metrics.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainProgress {
    /// Steps taken.
    pub step: u64,
    /// Tokens read, without padding.
    pub tokens: u64,
    /// Fingerprint of the training text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

/// A checkpoint that was read.
pub struct Checkpoint {
    /// The model.
    pub decoder: Decoder,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Progress of the run.
    pub position: TrainProgress,
    /// Everything needed to rebuild the tokenizer, for a run on text.
    pub tokenizer: Option<Arc<str>>,
    /// Settings of the run. Older checkpoints do not contain them.
    pub settings: Option<RunConfig>,
}

/// A checkpoint to be written.
pub(crate) struct Snapshot<'a> {
    pub decoder: &'a Decoder,
    pub optimizer: &'a Optimizer,
    pub position: &'a TrainProgress,
    pub tokenizer: Option<&'a str>,
    pub settings: &'a RunConfig,
}

impl RunDir {
    /// Writes a checkpoint.
    pub(crate) fn save(&self, snapshot: &Snapshot<'_>) -> Result<PathBuf, LabError> {
        let parent = self.checkpoints();
        let name = folder(snapshot.position.step);
        let place = parent.join(&name);
        // The run is locked, so no other process writes here.
        let (beside, old) =
            (parent.join(format!(".{name}.partial")), parent.join(format!(".{name}.old")));
        let write = || -> Result<(), LabError> {
            remove(&beside)?;
            tra_disk::create_dir_all(&beside)
                .map_err(|e| LabError::io("cannot create", &beside, e))?;
            snapshot.write(&beside)?;
            sync(&beside)?;
            // A damaged checkpoint of this step is replaced, but only when the new one is complete.
            if place.exists() {
                remove(&old)?;
                rename(&place, &old)?;
            }
            rename(&beside, &place)?;
            sync(&parent)?;
            remove(&old)
        };
        write().inspect_err(|_| {
            let _ = remove(&beside);
        })?;
        Ok(place)
    }

    /// Removes old checkpoints after the one of `step` was written.
    ///
    /// These stay: that one, the best one, the newest `keep` that are due by `save_every` or at the
    /// end, and those newer than `step`, which the run will reach again. A checkpoint written
    /// because of an interrupt is not due. So a run leaves the same checkpoints however often it
    /// was interrupted.
    pub(crate) fn prune(
        &self,
        step: u64,
        best: Option<u64>,
        config: &RunConfig,
    ) -> Result<(), LabError> {
        let steps = self.steps()?;
        let due = steps.iter().rev().filter(|s| **s <= step && config.is_saved_at(**s));
        let newest: Vec<u64> = due.take(config.keep).copied().collect();
        for old in steps {
            if old < step && Some(old) != best && !newest.contains(&old) {
                let parent = self.checkpoints();
                // Renamed first, so that a concurrent reader finds all of it or nothing.
                let hidden = parent.join(format!(".{}.removed", folder(old)));
                rename(&parent.join(folder(old)), &hidden)?;
                remove(&hidden)?;
            }
        }
        Ok(())
    }

    /// Moves the checkpoint of a step out of the run, if it exists, and keeps it for inspection.
    pub(crate) fn set_aside(&self, step: u64) -> Result<(), LabError> {
        let name = folder(step);
        let place = self.checkpoints().join(&name);
        if !place.exists() {
            return Ok(());
        }
        let aside = self.checkpoints().join(name.replace("step", "diverged"));
        remove(&aside)?;
        rename(&place, &aside)
    }

    /// Removes unfinished checkpoints of a killed process. The caller holds the run's lock.
    pub(crate) fn remove_unfinished(&self) -> Result<(), LabError> {
        let parent = self.checkpoints();
        for name in names(&parent)? {
            let Some(of) = name.strip_prefix(".step-") else { continue };
            // Killed between two renames: the old folder is the only one of this step.
            if let Some(step) = of.strip_suffix(".old") {
                let place = parent.join(format!("step-{step}"));
                if !place.exists() {
                    rename(&parent.join(&name), &place)?;
                    continue;
                }
            }
            remove(&parent.join(&name))?;
        }
        Ok(())
    }

    /// Returns the steps that have a checkpoint, in ascending order.
    pub fn steps(&self) -> Result<Vec<u64>, LabError> {
        let names = names(&self.checkpoints())?;
        let step = |name: &String| name.strip_prefix("step-")?.parse().ok();
        let mut steps: Vec<u64> = names.iter().filter_map(step).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// Returns the model file of a checkpoint.
    pub fn model_file(&self, step: u64) -> PathBuf {
        self.checkpoints().join(folder(step)).join(MODEL)
    }

    fn training_file(&self, step: u64) -> PathBuf {
        self.checkpoints().join(folder(step)).join(TRAINING)
    }

    /// Checks that `step` has a checkpoint. Otherwise the error lists the existing ones.
    pub(crate) fn check_step(&self, step: u64) -> Result<(), LabError> {
        let steps = self.steps()?;
        if steps.contains(&step) {
            return Ok(());
        }
        let there: Vec<String> = steps.iter().map(u64::to_string).collect();
        let reason = match there.is_empty() {
            true => "has no checkpoint yet; train it first".into(),
            false => format!("has no checkpoint of step {step}; it has {}", there.join(", ")),
        };
        Err(LabError::run_dir(self.path(), reason))
    }

    /// Returns the model of a checkpoint.
    pub fn model(&self, step: u64, device: &Device) -> Result<Decoder, LabError> {
        self.check_step(step)?;
        let decoder = Decoder::load(self.model_file(step), device)?;
        self.check_model(decoder.config())?;
        Ok(decoder)
    }

    /// Returns the newest step whose model can be read, and that model. Damaged ones are skipped,
    /// each with a call of `warn`.
    pub fn newest_model(
        &self,
        device: &Device,
        warn: impl FnMut(String),
    ) -> Result<(u64, Decoder), LabError> {
        let load = |step| Ok((step, Decoder::load(self.model_file(step), device)?));
        let (step, decoder) = self.newest_readable(warn, load)?.ok_or_else(|| {
            LabError::run_dir(self.path(), "has no checkpoint yet; train it first")
        })?;
        self.check_model(decoder.config())?;
        Ok((step, decoder))
    }

    /// Returns the newest checkpoint from which training can continue, if any.
    pub fn newest(
        &self,
        settings: OptimizerConfig,
        device: &Device,
        warn: impl FnMut(String),
    ) -> Result<Option<Checkpoint>, LabError> {
        self.newest_readable(warn, |step| self.load(step, settings, device))
    }

    /// Returns the progress of the newest checkpoint, if any. It is read from the metadata only;
    /// [`is_whole`](Self::is_whole) checks for damage.
    pub fn position(&self) -> Result<Option<TrainProgress>, LabError> {
        let read = |step| {
            TensorFile::read_metadata(self.model_file(step))?;
            let path = self.training_file(step);
            position(&TensorFile::read_metadata(&path)?, &path)
        };
        self.newest_readable(|_| {}, read)
    }

    /// Returns whether both files of a checkpoint exist and are undamaged.
    pub fn is_whole(&self, step: u64) -> bool {
        let files = [self.model_file(step), self.training_file(step)];
        files.iter().all(|file| TensorFile::read(file).is_ok())
    }

    /// Returns the result of `read` for the newest checkpoint it can read. If checkpoints exist and
    /// none can be read, the error lists the fault of each.
    pub(crate) fn newest_readable<T>(
        &self,
        mut warn: impl FnMut(String),
        read: impl Fn(u64) -> Result<T, LabError>,
    ) -> Result<Option<T>, LabError> {
        'listed: loop {
            let steps = self.steps()?;
            let (mut faults, mut denied) = (Vec::new(), false);
            for step in steps.iter().rev() {
                match read(*step) {
                    // A checkpoint without read permission is not damaged. Whether to use an older
                    // one is for the user to decide.
                    Ok(found) if !denied => {
                        for fault in faults {
                            warn(format!("checkpoint {fault}; using an older one"));
                        }
                        return Ok(Some(found));
                    }
                    Ok(_) => break,
                    // A training process removed it after the listing, and wrote a newer one.
                    Err(_) if !self.checkpoints().join(folder(*step)).exists() => continue 'listed,
                    Err(error) => {
                        denied |= error.is_denied();
                        let what = if error.is_denied() { "cannot be read" } else { "is damaged" };
                        faults.push(format!("{step} {what}: {error}"));
                    }
                }
            }
            if faults.is_empty() {
                return Ok(None);
            }
            let reason = format!("no checkpoint can be used: {}", faults.join("; "));
            return Err(LabError::run_dir(self.path(), reason));
        }
    }

    /// Checks that `config.toml` describes the trained model.
    pub fn check_model(&self, trained: &DecoderConfig) -> Result<(), LabError> {
        let described = self.config()?.decoder(trained.vocab)?;
        if described == *trained {
            return Ok(());
        }
        let difference = difference(&described, trained);
        let reason = format!(
            "config.toml does not describe the trained model: {difference}; restore config.toml"
        );
        Err(LabError::run_dir(self.path(), reason))
    }

    /// Checks that a task is still the one that the model of a step was trained on.
    pub fn check_data_at(
        &self,
        step: u64,
        task: &OpenTask,
        decoder: &Decoder,
    ) -> Result<(), LabError> {
        let training = self.training_file(step);
        // Only text can change, and a model without its training file has no fingerprint.
        let data = match task.text().is_some() && training.exists() {
            true => position(&TensorFile::read_metadata(&training)?, &training)?.data,
            false => None,
        };
        self.check_data(task, decoder, data.as_deref())
    }

    /// Checks that a task is still the one the run started with. It must have the same vocabulary
    /// size and, for text, the fingerprint `data`.
    pub(crate) fn check_data(
        &self,
        task: &OpenTask,
        decoder: &Decoder,
        data: Option<&str>,
    ) -> Result<(), LabError> {
        let (ours, theirs) = (decoder.config().vocab, task.vocab());
        if ours != theirs {
            let reason = format!(
                "its model has {ours} tokens, but {} now has {theirs}; restore its settings",
                task.name()
            );
            return Err(LabError::run_dir(self.path(), reason));
        }
        if data.is_some() && data != task.text().map(|text| text.fingerprint).as_deref() {
            let reason = "the text or its tokenizer has changed since this run started; restore \
                          it, or start a new run with --out";
            return Err(LabError::run_dir(self.path(), reason));
        }
        Ok(())
    }

    /// Returns the step of the best evaluation during training.
    pub fn best_step(&self) -> Result<u64, LabError> {
        let standing = Standing::of(&self.metrics()?, self.config()?.measure());
        let reason = "has no evaluation during training, so no best checkpoint; use the newest";
        let best = standing.best.ok_or_else(|| LabError::run_dir(self.path(), reason))?;
        Ok(best.step)
    }

    fn load(
        &self,
        step: u64,
        settings: OptimizerConfig,
        device: &Device,
    ) -> Result<Checkpoint, LabError> {
        let mut file = TensorFile::read(self.model_file(step))?;
        let tokenizer = file.metadata.remove(TOKENIZER).map(Into::into);
        let decoder = Decoder::from_tensors(file.config()?, file, device)?;
        let training = TensorFile::read(self.training_file(step))?;
        let damaged = |reason: String| LabError::run_dir(&training.path, reason);
        let position = position(&training.metadata, &training.path)?;
        let trained_with = match training.metadata.get(SETTINGS) {
            Some(text) => {
                let table = text.parse::<toml::Table>();
                let table = table.map_err(|e| damaged(format!("settings: {}", e.message())))?;
                Some(RunConfig::recorded(table, &training.path)?)
            }
            None => None,
        };
        let optimizer =
            Optimizer::from_tensors(&decoder, settings, &training.tensors).map_err(damaged)?;
        Ok(Checkpoint { decoder, optimizer, position, tokenizer, settings: trained_with })
    }
}

impl Snapshot<'_> {
    fn write(&self, folder: &Path) -> Result<(), LabError> {
        let about = self.tokenizer.map(|record| (TOKENIZER.to_string(), record.to_string()));
        self.decoder.save_with(folder.join(MODEL), about.into_iter().collect())?;
        let unwritable = |e: &dyn std::fmt::Display| LabError::Setting(e.to_string());
        let position = serde_json::to_string(self.position).map_err(|e| unwritable(&e))?;
        let settings = toml::to_string(self.settings).map_err(|e| unwritable(&e))?;
        let training = TensorFile {
            path: folder.join(TRAINING),
            metadata: BTreeMap::from([(POSITION.into(), position), (SETTINGS.into(), settings)]),
            tensors: self.optimizer.tensors(),
        };
        training.check_finite()?;
        Ok(training.write()?)
    }
}

fn position(metadata: &BTreeMap<String, String>, path: &Path) -> Result<TrainProgress, LabError> {
    match metadata.get(POSITION).map(|text| serde_json::from_str(text)) {
        Some(Ok(position)) => Ok(position),
        _ => Err(LabError::run_dir(path, "the progress of the run is missing")),
    }
}

/// Describes the difference between two models, as in `width is 8 in config.toml and 16 in the
/// checkpoint`.
fn difference(described: &DecoderConfig, trained: &DecoderConfig) -> String {
    let value = |config| serde_json::to_value(config).unwrap_or_default();
    let (described, trained) = (value(described), value(trained));
    let keys = described.as_object().into_iter().flat_map(|table| table.keys());
    let differing = keys.filter(|key| described.get(key) != trained.get(key)).map(|key| {
        let name = |value: Option<&serde_json::Value>| match value {
            Some(serde_json::Value::Object(part)) if part.contains_key("name") => {
                part["name"].to_string()
            }
            Some(value) => value.to_string(),
            None => "missing".into(),
        };
        let [there, here] = [&described, &trained].map(|config| name(config.get(key)));
        match there == here {
            true => format!("the settings of {key} {here} differ"),
            false => format!("{key} is {there} in config.toml and {here} in the checkpoint"),
        }
    });
    differing.collect::<Vec<_>>().join(", ")
}

fn folder(step: u64) -> String {
    format!("step-{step:08}")
}

/// Returns the names in a folder. A missing folder has none.
fn names(folder: &Path) -> Result<Vec<String>, LabError> {
    let io = |e| LabError::io("cannot read", folder, e);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io(e)),
    };
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect::<std::io::Result<_>>().map_err(io)
}

fn remove(folder: &Path) -> Result<(), LabError> {
    tra_disk::remove_dir_all(folder).map_err(|e| LabError::io("cannot remove", folder, e))
}

fn rename(from: &Path, to: &Path) -> Result<(), LabError> {
    tra_disk::rename(from, to).map_err(|e| LabError::io("cannot rename to", to, e))
}

fn sync(folder: &Path) -> Result<(), LabError> {
    tra_disk::sync_folder(folder).map_err(|e| LabError::io("cannot sync", folder, e))
}
