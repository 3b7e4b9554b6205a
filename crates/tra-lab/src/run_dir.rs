//! Files of a run. This is the only module that knows their names.
//!
//! ```text
//! runs/ff/
//!   config.toml                     every setting, written once
//!   metrics.jsonl                   one line per step and per evaluation; no times
//!   timing.jsonl                    seconds and tokens per second, one line per report
//!   eval.json                       results of every evaluated step, by split and length
//!   perplexity.json                 results of `tra perplexity`, by step, protocol and window
//!   report.html                     the page of `tra report`
//!   failure.txt                     why training diverged, if it did
//!   checkpoints/step-00000100/      see `checkpoints.rs`
//!   run.lock                        held by the process that trains
//!   results.lock                    held while eval.json or perplexity.json is changed
//! ```
//!
//! Only the process that holds `run.lock` writes `config.toml`, `metrics.jsonl` and checkpoints.
//! Any process may add results. Everything is written through `tra-disk`, so that a crash leaves
//! either the old file or the new one.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tra_disk::Lock;

use crate::config::{Override, RunConfig};
use crate::error::LabError;
use crate::records::{Evaluation, Evaluations, Metric, Perplexities, Perplexity};

const CONFIG: &str = "config.toml";
const METRICS: &str = "metrics.jsonl";
const TIMING: &str = "timing.jsonl";
const EVAL: &str = "eval.json";
const REPORT: &str = "report.html";
const LOCK: &str = "run.lock";
const RESULTS_LOCK: &str = "results.lock";
const PERPLEXITY: &str = "perplexity.json";
const CHECKPOINTS: &str = "checkpoints";
const FAILURE: &str = "failure.txt";

/// Metadata key of a model file that holds its tokenizer.
pub const TOKENIZER: &str = "tokenizer";

/// A run directory.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Creates a run directory. The caller holds its lock.
    pub fn create(path: &Path, config: &RunConfig) -> Result<Self, LabError> {
        Self::check_unused(path)?;
        let run = Self { path: path.into() };
        let checkpoints = run.checkpoints();
        tra_disk::create_dir_all(&checkpoints)
            .map_err(|e| LabError::io("cannot create", &checkpoints, e))?;
        // Written last: a folder with this file is a run.
        run.write_config(config)?;
        Ok(run)
    }

    /// Checks that a folder contains no run and no parts of one.
    pub fn check_unused(path: &Path) -> Result<(), LabError> {
        let there = |name: &str| {
            let path = path.join(name);
            path.try_exists().map_err(|e| LabError::io("cannot read", &path, e))
        };
        if there(CONFIG)? {
            let reason = format!(
                "already contains a run; continue it with --resume {}, or choose another --out",
                path.display()
            );
            return Err(LabError::run_dir(path, reason));
        }
        let mut leftovers = Vec::new();
        for name in [METRICS, EVAL, PERPLEXITY] {
            if there(name)? {
                leftovers.push(name);
            }
        }
        if !(Self { path: path.into() }).steps()?.is_empty() {
            leftovers.push(CHECKPOINTS);
        }
        match leftovers.is_empty() {
            true => Ok(()),
            false => {
                let reason = format!(
                    "contains {} of another run; choose another --out, or remove these files",
                    leftovers.join(", ")
                );
                Err(LabError::run_dir(path, reason))
            }
        }
    }

    /// Returns whether a folder contains a run.
    pub fn exists(path: &Path) -> Result<bool, LabError> {
        let path = path.join(CONFIG);
        path.try_exists().map_err(|e| LabError::io("cannot read", &path, e))
    }

    /// Opens a run directory.
    pub fn open(path: &Path) -> Result<Self, LabError> {
        match Self::exists(path)? {
            true => Ok(Self { path: path.into() }),
            false => {
                let reason = format!("not a run directory: {CONFIG} is missing");
                Err(LabError::run_dir(path, reason))
            }
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the last part of its path.
    pub fn name(&self) -> String {
        let full = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        full.file_name().map_or_else(|| full.display().to_string(), |n| n.to_string_lossy().into())
    }

    /// Returns the path of its report.
    pub fn report_path(&self) -> PathBuf {
        self.path.join(REPORT)
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// Locks a run, which may not exist yet. Returns an error if another process holds the lock.
    pub fn lock(path: &Path) -> Result<Lock, LabError> {
        let lock = Self::claim(path)?;
        lock.ok_or_else(|| {
            LabError::run_dir(
                path,
                "another process is training this run; wait for it, or choose another folder",
            )
        })
    }

    /// Locks a run, which may not exist yet. Returns `None` if another process holds the lock.
    pub fn claim(path: &Path) -> Result<Option<Lock>, LabError> {
        tra_disk::create_dir_all(path).map_err(|e| LabError::io("cannot create", path, e))?;
        let path = path.join(LOCK);
        Lock::try_acquire(&path).map_err(|e| LabError::io("cannot lock", &path, e))
    }

    /// Returns its settings as a table that flags can override.
    pub fn config_table(&self) -> Result<toml::Table, LabError> {
        let path = self.path.join(CONFIG);
        let text = fs::read_to_string(&path).map_err(|e| LabError::io("cannot read", &path, e))?;
        let table: toml::Table = text.parse().map_err(|e| LabError::config(&path, &text, &e))?;
        let version = table.get("version").and_then(toml::Value::as_integer);
        if version != Some(crate::config::VERSION.into()) {
            let found = version.map_or("no version".into(), |v| format!("version {v}"));
            let ours = crate::config::VERSION;
            let reason = format!(
                "is a run with {found}, but this program reads version {ours}; use the version of \
                 tra that wrote it"
            );
            return Err(LabError::run_dir(&self.path, reason));
        }
        Ok(table)
    }

    /// Returns its settings.
    pub fn config(&self) -> Result<RunConfig, LabError> {
        let path = self.path.join(CONFIG);
        RunConfig::recorded(self.config_table()?, &path)
    }

    /// Returns its settings with some of them overridden.
    pub fn changed_config(
        &self,
        flags: Vec<Override>,
        set: &[String],
    ) -> Result<RunConfig, LabError> {
        let path = self.path.join(CONFIG);
        RunConfig::from_table(self.config_table()?, flags, set, Some(&path))
    }

    /// Replaces its settings.
    pub(crate) fn write_config(&self, config: &RunConfig) -> Result<(), LabError> {
        let path = self.path.join(CONFIG);
        let text = toml::to_string(config).map_err(|e| LabError::Setting(e.to_string()))?;
        replace(&path, text.as_bytes())
    }

    /// Appends lines of metrics. They are durable after [`sync_metrics`](Self::sync_metrics).
    pub(crate) fn append_metrics(&self, metrics: &[Metric]) -> Result<(), LabError> {
        append(&self.path.join(METRICS), metrics)
    }

    /// Syncs the metrics to disk. Called before a checkpoint is written, which must never be ahead
    /// of them.
    pub(crate) fn sync_metrics(&self) -> Result<(), LabError> {
        let path = self.path.join(METRICS);
        tra_disk::sync_file(&path).map_err(|e| LabError::io("cannot sync", &path, e))
    }

    /// Appends a line of timing.
    pub(crate) fn append_timing(&self, timing: &serde_json::Value) -> Result<(), LabError> {
        append(&self.path.join(TIMING), std::slice::from_ref(timing))
    }

    /// Returns all metrics. A last line that a crash cut short is skipped; any other damaged line
    /// is an error.
    pub fn metrics(&self) -> Result<Vec<Metric>, LabError> {
        Ok(self.metric_lines()?.into_iter().map(|(_, metric)| metric).collect())
    }

    /// Returns the metrics, each with its line in the file.
    fn metric_lines(&self) -> Result<Vec<(String, Metric)>, LabError> {
        let path = self.path.join(METRICS);
        let Some(text) = read(&path)? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for (index, line) in text.split_inclusive('\n').enumerate() {
            match serde_json::from_str(line) {
                Ok(metric) => all.push((line.trim_end().to_string(), metric)),
                // Only the last line can lack its newline.
                Err(_) if !line.ends_with('\n') => break,
                Err(error) => {
                    let reason = format!(
                        "line {} is damaged ({error}); restore the file, or remove that line",
                        index + 1
                    );
                    return Err(LabError::run_dir(&path, reason));
                }
            }
        }
        Ok(all)
    }

    /// Removes metrics and results after `step`, because a resumed run writes them again.
    pub(crate) fn forget_after(&self, step: u64) -> Result<(), LabError> {
        let path = self.path.join(METRICS);
        tra_disk::remove_partial(&path);
        tra_disk::remove_partial(&self.path.join(CONFIG));
        let lines = self.metric_lines()?;
        let kept = lines.iter().filter(|(_, metric)| metric.step() <= step);
        let text: String = kept.map(|(line, _)| format!("{line}\n")).collect();
        if read(&path)?.is_some_and(|before| before != text) {
            replace(&path, text.as_bytes())?;
        }
        self.change(EVAL, |all: &mut Evaluations| all.forget_after(step))?;
        self.change(PERPLEXITY, |all: &mut Perplexities| all.forget_after(step))
    }

    /// Returns the results of every evaluated step.
    pub fn evaluations(&self) -> Result<Evaluations, LabError> {
        read_json(&self.path.join(EVAL))
    }

    /// Adds results of a step.
    pub fn add_evaluation(&self, new: &Evaluation) -> Result<(), LabError> {
        self.change(EVAL, |all: &mut Evaluations| {
            all.add(new);
            true
        })
    }

    /// Returns the results of `tra perplexity`.
    pub fn perplexities(&self) -> Result<Perplexities, LabError> {
        read_json(&self.path.join(PERPLEXITY))
    }

    /// Adds perplexities of a step.
    pub fn add_perplexity(&self, new: &Perplexity) -> Result<(), LabError> {
        self.change(PERPLEXITY, |all: &mut Perplexities| {
            all.add(new);
            true
        })
    }

    /// Returns why training diverged, if it did. The same settings would diverge again.
    pub fn failure(&self) -> Result<Option<String>, LabError> {
        Ok(read(&self.path.join(FAILURE))?.map(|text| text.trim_end().to_string()))
    }

    /// Records that training diverged.
    pub(crate) fn note_failure(&self, why: &str) -> Result<(), LabError> {
        replace(&self.path.join(FAILURE), format!("{why}\n").as_bytes())
    }

    /// Removes the record of a failure, because the run is tried again.
    pub(crate) fn forget_failure(&self) -> Result<(), LabError> {
        let path = self.path.join(FAILURE);
        match tra_disk::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(LabError::io("cannot remove", &path, e))
            }
            _ => Ok(()),
        }
    }

    /// Reads a file of results, lets `change` modify it, and writes it if `change` returns `true`.
    ///
    /// Other processes wait for the lock meanwhile, so that no result is lost.
    fn change<T: Default + Serialize + DeserializeOwned>(
        &self,
        name: &str,
        change: impl FnOnce(&mut T) -> bool,
    ) -> Result<(), LabError> {
        let lock = self.path.join(RESULTS_LOCK);
        let _lock = Lock::acquire(&lock).map_err(|e| LabError::io("cannot lock", &lock, e))?;
        let path = self.path.join(name);
        tra_disk::remove_partial(&path);
        let mut all: T = read_json(&path)?;
        if !change(&mut all) {
            return Ok(());
        }
        let text =
            serde_json::to_string_pretty(&all).map_err(|e| LabError::Setting(e.to_string()))?;
        replace(&path, text.as_bytes())
    }
}

/// Reads a file, or returns `None` if it is missing. Bytes that are not UTF-8 are replaced; the
/// parser then reports what is wrong.
fn read(path: &Path) -> Result<Option<String>, LabError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(LabError::io("cannot read", path, e)),
    }
}

fn read_json<T: Default + DeserializeOwned>(path: &Path) -> Result<T, LabError> {
    let Some(text) = read(path)? else { return Ok(T::default()) };
    serde_json::from_str(&text).map_err(|error| {
        let reason = format!("cannot be parsed ({error}); restore the file, or move it away");
        LabError::run_dir(path, reason)
    })
}

fn append<T: Serialize>(path: &Path, items: &[T]) -> Result<(), LabError> {
    let mut text = String::new();
    for item in items {
        text += &serde_json::to_string(item).map_err(|e| LabError::Setting(e.to_string()))?;
        text.push('\n');
    }
    tra_disk::append(path, text.as_bytes()).map_err(|e| LabError::io("cannot write", path, e))
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    tra_disk::write_atomically(path, bytes).map_err(|e| LabError::io("cannot write", path, e))
}
