//! What a run leaves on disk: the only place that knows file names.
//!
//! ```text
//! runs/ff/
//!   config.toml                     every setting, written once
//!   metrics.jsonl                   one line a step, and one an evaluation; nothing of the clock
//!   timing.jsonl                    seconds and tokens per second, one line a report
//!   eval.json                       the newest results for every split and length
//!   perplexity.json                 what `tra perplexity` found, for every protocol and window
//!   report.html                     the page `tra report` makes
//!   checkpoints/step-00000100/
//!     model.safetensors             the model alone; PyTorch and `Decoder::load` read it
//!     training.safetensors          the optimizer's memory; position of the run in the metadata
//! ```
//!
//! Whatever is replaced is written beside, synced and renamed, so that a crash at any moment leaves
//! the old or the new, never half of either.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use tra_nn::Decoder;
use tra_nn::checkpoint::TensorFile;
use tra_tasks::Task;

use crate::config::{Override, RunConfig};
use crate::error::LabError;
use crate::optimizer::{Optimizer, Settings};
use crate::records::{Evaluation, Metric, Perplexity, PerplexityResult};

const CONFIG: &str = "config.toml";
const METRICS: &str = "metrics.jsonl";
const TIMING: &str = "timing.jsonl";
const EVAL: &str = "eval.json";
const REPORT: &str = "report.html";
const CHECKPOINTS: &str = "checkpoints";
const MODEL: &str = "model.safetensors";
const TRAINING: &str = "training.safetensors";
const LOCK: &str = "run.lock";
const POSITION: &str = "position";
const PERPLEXITY: &str = "perplexity.json";

/// The key of a model file's metadata under which its tokenizer stands.
pub const TOKENIZER: &str = "tokenizer";

/// A run directory.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
}

/// Where a run stands: everything that is not a tensor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Steps taken.
    pub step: u64,
    /// Tokens read, padding excluded.
    pub tokens: u64,
    /// Evaluations in a row in which everything was right.
    pub perfect: u64,
    /// The best evaluation so far: its step and mean exact match.
    pub best: Option<(u64, f64)>,
    /// The mean loss of the best evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_loss: Option<f64>,
    /// Fingerprint of the files the run learns from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

/// A model in the middle of its training.
pub struct Checkpoint {
    /// The model.
    pub decoder: Decoder,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Where it stands.
    pub position: Position,
    /// All it takes to make the tokenizer again, where it learns from text.
    pub tokenizer: Option<Arc<str>>,
}

/// Held while a process trains in a directory; the operating system lets go of it when the process
/// ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl RunDir {
    /// Makes a new run directory. One that holds a run already is refused.
    pub fn create(path: &Path, config: &RunConfig) -> Result<Self, LabError> {
        let run = Self { path: path.into() };
        if run.path.join(CONFIG).exists() {
            let path = path.display();
            let reason =
                format!("holds a run already; go on with --resume {path}, or choose another --out");
            return Err(LabError::run_dir(&run.path, reason));
        }
        let checkpoints = run.path.join(CHECKPOINTS);
        fs::create_dir_all(&checkpoints)
            .map_err(|e| LabError::io("cannot make", &checkpoints, e))?;
        run.write_config(config)?;
        Ok(run)
    }

    /// Opens a run directory.
    pub fn open(path: &Path) -> Result<Self, LabError> {
        if !path.join(CONFIG).is_file() {
            return Err(LabError::run_dir(
                path,
                format!("is no run directory: it has no {CONFIG}"),
            ));
        }
        Ok(Self { path: path.into() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its last name.
    pub fn name(&self) -> String {
        let full = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        full.file_name().map_or_else(|| full.display().to_string(), |n| n.to_string_lossy().into())
    }

    /// Where its report belongs.
    pub fn report_path(&self) -> PathBuf {
        self.path.join(REPORT)
    }

    /// Makes sure that no other process trains here.
    pub fn lock(&self) -> Result<Lock, LabError> {
        let lock = Self::claim(&self.path)?;
        lock.ok_or_else(|| LabError::run_dir(&self.path, "another process is training here"))
    }

    /// The lock of a run that may not be made yet; nothing if another process holds it.
    pub fn claim(path: &Path) -> Result<Option<Lock>, LabError> {
        fs::create_dir_all(path).map_err(|e| LabError::io("cannot make", path, e))?;
        let path = path.join(LOCK);
        let file = File::create(&path).map_err(|e| LabError::io("cannot write", &path, e))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(LabError::io("cannot lock", &path, e)),
        }
    }

    /// Its settings, as a table that flags may still change.
    pub fn config_table(&self) -> Result<toml::Table, LabError> {
        let path = self.path.join(CONFIG);
        let text = fs::read_to_string(&path).map_err(|e| LabError::io("cannot read", &path, e))?;
        let table: toml::Table = text.parse().map_err(|e| LabError::config(&path, &text, &e))?;
        let version = table.get("version").and_then(toml::Value::as_integer);
        if version != Some(crate::config::VERSION.into()) {
            let found = version.map_or("no version".into(), |v| format!("version {v}"));
            let ours = crate::config::VERSION;
            let reason = format!("is a run of {found}, and this program reads version {ours}");
            return Err(LabError::run_dir(&self.path, reason));
        }
        Ok(table)
    }

    /// Its settings.
    pub fn config(&self) -> Result<RunConfig, LabError> {
        let path = self.path.join(CONFIG);
        RunConfig::from_table(self.config_table()?, Vec::new(), &[], Some(&path))
    }

    /// Its settings with some of them changed.
    pub fn changed_config(
        &self,
        flags: Vec<Override>,
        set: &[String],
    ) -> Result<RunConfig, LabError> {
        let path = self.path.join(CONFIG);
        RunConfig::from_table(self.config_table()?, flags, set, Some(&path))
    }

    /// Replaces its settings.
    pub fn write_config(&self, config: &RunConfig) -> Result<(), LabError> {
        let path = self.path.join(CONFIG);
        let text = toml::to_string(config).map_err(|e| LabError::Setting(e.to_string()))?;
        replace(&path, text.as_bytes())
    }

    /// Appends lines of metrics and hands them to the disk.
    pub fn append_metrics(&self, metrics: &[Metric]) -> Result<(), LabError> {
        append(&self.path.join(METRICS), metrics)
    }

    /// Appends a line of timing.
    pub fn append_timing(&self, timing: &serde_json::Value) -> Result<(), LabError> {
        append(&self.path.join(TIMING), std::slice::from_ref(timing))
    }

    /// All metrics; a last line cut short by a crash is left out.
    pub fn metrics(&self) -> Result<Vec<Metric>, LabError> {
        let path = self.path.join(METRICS);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(LabError::io("cannot read", &path, e)),
        };
        let lines = BufReader::new(file).lines();
        let lines: Vec<String> =
            lines.collect::<Result<_, _>>().map_err(|e| LabError::io("cannot read", &path, e))?;
        Ok(lines.iter().map_while(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Forgets the metrics after `step`, which a resumed run is about to write again.
    pub fn truncate_metrics(&self, step: u64) -> Result<(), LabError> {
        let of = |metric: &Metric| match metric {
            Metric::Step(record) => record.step,
            Metric::Evaluation(record) => record.step,
        };
        let kept: Vec<Metric> = self.metrics()?.into_iter().filter(|m| of(m) <= step).collect();
        replace(&self.path.join(METRICS), lines(&kept)?.as_bytes())
    }

    /// The newest results for every split and length.
    pub fn evaluation(&self) -> Result<Evaluation, LabError> {
        let path = self.path.join(EVAL);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|e| LabError::run_dir(&path, format!("cannot be understood: {e}"))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Evaluation::default()),
            Err(e) => Err(LabError::io("cannot read", &path, e)),
        }
    }

    /// Adds results; those of an older step, or of the same split and length, make way.
    pub fn merge_evaluation(&self, new: &Evaluation) -> Result<(), LabError> {
        let mut all = self.evaluation().unwrap_or_default();
        if all.step != new.step {
            all = Evaluation { step: new.step, results: Vec::new() };
        }
        for result in &new.results {
            let same = |r: &&mut _| key(r) == key(result);
            match all.results.iter_mut().find(same) {
                Some(old) => *old = result.clone(),
                None => all.results.push(result.clone()),
            }
        }
        let text =
            serde_json::to_string_pretty(&all).map_err(|e| LabError::Setting(e.to_string()))?;
        replace(&self.path.join(EVAL), text.as_bytes())
    }

    /// What `tra perplexity` found, if it was run.
    pub fn perplexity(&self) -> Result<Option<Perplexity>, LabError> {
        let path = self.path.join(PERPLEXITY);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .map_err(|e| LabError::run_dir(&path, format!("cannot be understood: {e}"))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(LabError::io("cannot read", &path, e)),
        }
    }

    /// Adds results. Those of another step or text, or of more or less of it, make way, and so do those
    /// of the same protocol and window.
    pub fn merge_perplexity(&self, new: &Perplexity) -> Result<(), LabError> {
        let same = |old: &Perplexity| {
            (old.step, &old.content, old.tokens) == (new.step, &new.content, new.tokens)
        };
        let mut all = new.clone();
        if let Some(old) = self.perplexity()?.filter(same) {
            let key = |r: &PerplexityResult| (r.protocol.name(), r.window, r.stride);
            let kept = old.results.into_iter();
            let kept = kept.filter(|r| new.results.iter().all(|other| key(other) != key(r)));
            all.results.extend(kept);
            all.results.sort_by_key(key);
        }
        let text =
            serde_json::to_string_pretty(&all).map_err(|e| LabError::Setting(e.to_string()))?;
        replace(&self.path.join(PERPLEXITY), text.as_bytes())
    }

    /// Writes the report.
    pub fn write_report(&self, html: &str) -> Result<(), LabError> {
        replace(&self.report_path(), html.as_bytes())
    }

    /// Saves a checkpoint, then removes those no longer wanted: all but the newest `keep` and the
    /// best.
    pub fn save(&self, checkpoint: &Checkpoint, keep: usize) -> Result<PathBuf, LabError> {
        let step = checkpoint.position.step;
        let parent = self.path.join(CHECKPOINTS);
        let (place, beside) =
            (parent.join(folder(step)), parent.join(format!(".{}", folder(step))));
        remove(&beside)?;
        let write = || -> Result<(), LabError> {
            fs::create_dir_all(&beside).map_err(|e| LabError::io("cannot make", &beside, e))?;
            let tokenizer = checkpoint.tokenizer.as_ref();
            let about = tokenizer.map(|record| (TOKENIZER.to_string(), record.to_string()));
            checkpoint.decoder.save_with(beside.join(MODEL), about.into_iter().collect())?;
            let position = serde_json::to_string(&checkpoint.position)
                .map_err(|e| LabError::Setting(e.to_string()))?;
            let training = TensorFile {
                path: beside.join(TRAINING),
                metadata: BTreeMap::from([(POSITION.into(), position)]),
                tensors: checkpoint.optimizer.tensors(),
            };
            training.write()?;
            sync(&beside)?;
            remove(&place)?;
            fs::rename(&beside, &place)
                .map_err(|e| LabError::io("cannot put in place", &place, e))?;
            sync(&parent)
        };
        write().inspect_err(|_| {
            let _ = remove(&beside);
        })?;
        let best = checkpoint.position.best.map(|(step, _)| step);
        let steps = self.steps()?;
        for old in steps.iter().rev().skip(keep).filter(|step| Some(**step) != best) {
            remove(&parent.join(folder(*old)))?;
        }
        Ok(place)
    }

    /// Steps of which there is a checkpoint, ascending.
    pub fn steps(&self) -> Result<Vec<u64>, LabError> {
        let parent = self.path.join(CHECKPOINTS);
        let entries = fs::read_dir(&parent).map_err(|e| LabError::io("cannot read", &parent, e))?;
        let mut steps: Vec<u64> = entries
            .filter_map(|entry| {
                entry.ok()?.file_name().to_str()?.strip_prefix("step-")?.parse().ok()
            })
            .collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The file with the model of a checkpoint.
    pub fn model_file(&self, step: u64) -> PathBuf {
        self.path.join(CHECKPOINTS).join(folder(step)).join(MODEL)
    }

    /// The model of a checkpoint.
    pub fn model(&self, step: u64, device: &Device) -> Result<Decoder, LabError> {
        Ok(Decoder::load(self.model_file(step), device)?)
    }

    /// The newest step whose model can be read, and that model. Damaged ones are passed over, each
    /// with a word to `warn`.
    pub fn newest_model(
        &self,
        device: &Device,
        mut warn: impl FnMut(String),
    ) -> Result<(u64, Decoder), LabError> {
        for step in self.steps()?.into_iter().rev() {
            match self.model(step, device) {
                Ok(decoder) => return Ok((step, decoder)),
                Err(error) => {
                    warn(format!("checkpoint {step} is damaged and passed over: {error}"))
                }
            }
        }
        Err(LabError::run_dir(&self.path, "has no checkpoint yet; train it first"))
    }

    /// The newest checkpoint that can be gone on from, if there is any.
    pub fn newest(
        &self,
        settings: Settings,
        device: &Device,
        mut warn: impl FnMut(String),
    ) -> Result<Option<Checkpoint>, LabError> {
        for step in self.steps()?.into_iter().rev() {
            match self.load(step, settings, device) {
                Ok(checkpoint) => return Ok(Some(checkpoint)),
                Err(error) => {
                    warn(format!("checkpoint {step} is damaged and passed over: {error}"))
                }
            }
        }
        Ok(None)
    }

    /// Where the newest checkpoint stands, if there is one that says so.
    pub fn position(&self) -> Result<Option<Position>, LabError> {
        for step in self.steps()?.into_iter().rev() {
            let training = self.path.join(CHECKPOINTS).join(folder(step)).join(TRAINING);
            let Ok(says) = TensorFile::read_metadata(training) else { continue };
            if let Some(Ok(position)) = says.get(POSITION).map(|text| serde_json::from_str(text)) {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    /// Makes sure that a task is still what the run began with: the same tokens, and the same text.
    pub fn check_data(
        &self,
        task: &dyn Task,
        decoder: &Decoder,
        position: &Position,
    ) -> Result<(), LabError> {
        let (ours, theirs) = (decoder.config().vocab, task.vocab());
        if ours != theirs {
            let reason =
                format!("its model has {ours} tokens, and the {} has {theirs} now", task.name());
            return Err(LabError::run_dir(&self.path, reason));
        }
        if position.data.is_some() && position.data != task.fingerprint() {
            let reason = "the text or its tokenizer has changed since this run began; put it \
                          back, or start another run with --out";
            return Err(LabError::run_dir(&self.path, reason));
        }
        Ok(())
    }

    /// The step of the best evaluation during training.
    pub fn best_step(&self) -> Result<u64, LabError> {
        let best = self.position()?.and_then(|position| position.best);
        let reason = "has no evaluation during training, and so no best checkpoint";
        best.map(|(step, _)| step).ok_or_else(|| LabError::run_dir(&self.path, reason))
    }

    fn load(&self, step: u64, settings: Settings, device: &Device) -> Result<Checkpoint, LabError> {
        let folder = self.path.join(CHECKPOINTS).join(folder(step));
        let mut file = TensorFile::read(folder.join(MODEL))?;
        let tokenizer = file.metadata.remove(TOKENIZER).map(Into::into);
        let decoder = Decoder::from_tensors(file.config()?, file, device)?;
        let training = TensorFile::read(folder.join(TRAINING))?;
        let damaged = |reason: String| LabError::run_dir(&training.path, reason);
        let position = training.metadata.get(POSITION).map(|text| serde_json::from_str(text));
        let Some(Ok(position)) = position else {
            return Err(damaged("does not say where the run stands".into()));
        };
        let optimizer =
            Optimizer::from_tensors(&decoder, settings, &training.tensors).map_err(damaged)?;
        Ok(Checkpoint { decoder, optimizer, position, tokenizer })
    }
}

fn key(result: &crate::records::EvalResult) -> (&str, usize, usize) {
    (&result.split, result.shortest, result.length)
}

fn folder(step: u64) -> String {
    format!("step-{step:08}")
}

fn lines<T: Serialize>(items: &[T]) -> Result<String, LabError> {
    let mut text = String::new();
    for item in items {
        text += &serde_json::to_string(item).map_err(|e| LabError::Setting(e.to_string()))?;
        text.push('\n');
    }
    Ok(text)
}

fn append<T: Serialize>(path: &Path, items: &[T]) -> Result<(), LabError> {
    let text = lines(items)?;
    let write =
        || OpenOptions::new().append(true).create(true).open(path)?.write_all(text.as_bytes());
    write().map_err(|e| LabError::io("cannot write", path, e))
}

/// Writes beside, syncs, renames.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".partial");
    let beside = PathBuf::from(beside);
    let write = || {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&beside);
        LabError::io("cannot write", path, e)
    })
}

fn remove(folder: &Path) -> Result<(), LabError> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::io("cannot remove", folder, e))
        }
        _ => Ok(()),
    }
}

/// Hands the names in a folder to the disk; a rename is not safe before that.
fn sync(folder: &Path) -> Result<(), LabError> {
    // Opening a folder as a file is not possible everywhere; where it is not, there is no need.
    if cfg!(unix) {
        File::open(folder)
            .and_then(|f| f.sync_all())
            .map_err(|e| LabError::io("cannot sync", folder, e))?;
    }
    Ok(())
}
