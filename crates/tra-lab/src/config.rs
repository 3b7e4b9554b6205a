//! Settings of a run: task, model, optimizer and evaluation. They come from one TOML file; flags
//! override it.

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use tra_nn::{DecoderConfig, Size};
use tra_tasks::TaskSpec;

use crate::curriculum::Curriculum;
use crate::error::{LabError, toml_reason};
pub use crate::lengths::Lengths;
use crate::optimizer::{OptimizerConfig, OptimizerKind};
pub use crate::overrides::Override;
use crate::overrides::{Given, blame, regroup};

/// Version of the run directory layout that this program reads and writes.
pub const VERSION: u32 = 1;

/// All settings that decide the result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Version of the run directory layout.
    pub version: u32,
    /// Seed of the weights, the data and dropout.
    pub seed: u64,
    /// Number of training steps.
    pub steps: u64,
    /// Sequences per forward pass.
    pub batch: usize,
    /// Forward passes per step. Their gradients are added up.
    pub accumulate: usize,
    /// Lengths of the training sequences. Default: those of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<Lengths>,
    /// Whether all sequences of a batch have the same length, so that nothing is padded. The length
    /// is drawn once per batch.
    pub same_length: bool,
    /// Schedule that starts with shorter sequences. Default: all lengths from the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curriculum: Option<Curriculum>,
    /// Highest learning rate.
    pub lr: f64,
    /// Fraction of the steps over which the learning rate rises. Afterwards it follows a cosine
    /// down to 0.
    pub warmup: f64,
    /// The optimizer.
    #[serde(skip_serializing_if = "is_default")]
    pub optimizer: OptimizerKind,
    /// Decay rates of AdamW's first and second moment.
    pub betas: [f64; 2],
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Largest norm of the gradient; larger gradients are scaled down to it. 0 disables clipping.
    pub clip: f64,
    /// Steps between checkpoints; 0 writes one at the end only.
    pub save_every: u64,
    /// Number of newest checkpoints to keep, in addition to the best one.
    pub keep: usize,
    /// Evaluation during training.
    pub eval: EvalConfig,
    /// The task and its settings.
    pub task: TaskSpec,
    /// The model.
    pub model: ModelConfig,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            version: VERSION,
            seed: 1,
            steps: 100,
            batch: 16,
            accumulate: 1,
            length: None,
            same_length: false,
            curriculum: None,
            lr: 3e-4,
            warmup: 0.05,
            optimizer: OptimizerKind::AdamW,
            betas: [0.9, 0.98],
            weight_decay: 0.01,
            clip: 1.0,
            save_every: 100,
            keep: 2,
            eval: EvalConfig::default(),
            task: TaskSpec::FlipFlop(Default::default()),
            model: ModelConfig::default(),
        }
    }
}

/// Returns whether a setting has its default. Such settings are left out of files, because files
/// from before the setting existed mean the default too.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Settings of the evaluation during training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalConfig {
    /// Steps between evaluations; 0 evaluates at the end only.
    pub every: u64,
    /// Splits to evaluate. Empty: every split of the task except `train`.
    pub splits: Vec<String>,
    /// Sequences per split.
    pub sequences: u64,
    /// Stops training after this many evaluations in a row with every sequence right. 0 never stops
    /// early.
    pub until_perfect: u64,
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self { every: 0, splits: Vec::new(), sequences: 64, until_perfect: 0 }
    }
}

/// Settings of the model: a named size and the decoder's settings.
///
/// In a file both are in one table. Explicit `layers`, `width` and `heads` override the size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Table", into = "Table")]
pub struct ModelConfig {
    /// Named size. Default: `mini`.
    pub size: Option<Size>,
    /// The decoder. Its vocabulary and padding are ignored: both come from the task.
    pub decoder: DecoderConfig,
}

/// Decoder settings that are never in a run's file. Two come from the task, and `norm_eps` is fixed
/// to the published value.
const NOT_IN_FILES: [&str; 3] = ["vocab", "pad_index", "norm_eps"];

impl Default for ModelConfig {
    fn default() -> Self {
        Self { size: None, decoder: DecoderConfig::sized(Size::default(), 1) }
    }
}

impl TryFrom<Table> for ModelConfig {
    type Error = String;

    fn try_from(mut given: Table) -> Result<Self, String> {
        let reason = |e: toml::de::Error| toml_reason("", &e);
        if let Some(key) = NOT_IN_FILES.into_iter().find(|key| given.contains_key(*key)) {
            return Err(format!("unknown field `{key}`"));
        }
        let size = given.remove("size").map(Value::try_into).transpose().map_err(reason)?;
        let decoder = DecoderConfig::sized(size.unwrap_or_default(), 1);
        let mut settings = Table::try_from(decoder).map_err(|e| e.to_string())?;
        settings.extend(given);
        Ok(Self { size, decoder: settings.try_into().map_err(reason)? })
    }
}

impl From<ModelConfig> for Table {
    fn from(ModelConfig { size, decoder }: ModelConfig) -> Self {
        let (layers, width, heads) = size.unwrap_or_default().dimensions();
        let mut table = Table::try_from(decoder).unwrap_or_default();
        for key in NOT_IN_FILES {
            table.remove(key);
        }
        for (key, by_size) in [("layers", layers), ("width", width), ("heads", heads)] {
            if table.get(key) == Some(&Value::from(by_size as i64)) {
                table.remove(key);
            }
        }
        table.extend(size.map(|size| ("size".to_string(), Value::from(size.name()))));
        table
    }
}

impl ModelConfig {
    /// Returns the decoder settings for a vocabulary size.
    pub fn decoder(&self, vocab: usize) -> Result<DecoderConfig, LabError> {
        let mut config = self.decoder.clone();
        config.vocab = vocab;
        config.validate().map_err(tra_nn::Error::from)?;
        Ok(config)
    }
}

/// Settings that the `config.toml` of every run contains, whatever version wrote it. Newer settings
/// may be missing.
const RECORDED: [&str; 21] = [
    "seed",
    "steps",
    "batch",
    "accumulate",
    "lr",
    "warmup",
    "weight_decay",
    "clip",
    "save_every",
    "keep",
    "eval",
    "eval.every",
    "eval.splits",
    "eval.sequences",
    "eval.until_perfect",
    "task",
    "task.name",
    "model",
    "model.dropout",
    "model.dropout_placement",
    "model.attention",
];

/// Larger than any settings file. A file beyond this size is a device or a mistake.
const LARGEST_FILE: u64 = 16 << 20;

/// Reads the text of a settings file: of a run, a sweep or an experiment.
pub fn read_text(path: &Path) -> Result<String, LabError> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map(|file| file.take(LARGEST_FILE + 1));
    file.and_then(|mut file| file.read_to_string(&mut text))
        .map_err(|e| LabError::io("cannot read", path, e))?;
    if text.len() as u64 > LARGEST_FILE {
        let reason = "larger than 16 MiB, so it is not a settings file; choose another file".into();
        return Err(LabError::Config { path: path.into(), reason });
    }
    Ok(text)
}

impl RunConfig {
    /// Reads a config file, if any, and overrides it with flags and with `set`.
    ///
    /// Each item of `set` is `path=value`, such as `task.alphabet=26`. Returns an error if this
    /// machine has too little memory for the run; for text, that check happens when the text is
    /// opened.
    pub fn read(
        file: Option<&Path>,
        flags: Vec<Override>,
        set: &[String],
    ) -> Result<Self, LabError> {
        let table = match file {
            None => Table::new(),
            Some(path) => {
                let text = read_text(path)?;
                text.parse::<Table>().map_err(|e| LabError::config(path, &text, &e))?
            }
        };
        let config = Self::from_table(table, flags, set, file)?;
        config.check_own_memory()?;
        Ok(config)
    }

    /// Returns the settings to draw samples of a task without training on it.
    ///
    /// `set` holds further settings as `path=value`. `lengths` replaces the training lengths.
    pub fn of_task(name: &str, lengths: Option<Lengths>, set: &[String]) -> Result<Self, LabError> {
        let mut flags = vec![("task.name", Value::from(name))];
        flags.extend(lengths.map(|lengths| ("length", Value::from(lengths.to_string()))));
        Self::from_table(Table::new(), flags, set, None)
    }

    /// Builds the settings from a table and its overrides. An error names the `file`, the flag or
    /// the `--set` that caused it.
    pub(crate) fn from_table(
        mut table: Table,
        flags: Vec<Override>,
        set: &[String],
        file: Option<&Path>,
    ) -> Result<Self, LabError> {
        regroup(&mut table);
        let flags = flags.into_iter().map(Given::Flag);
        let given: Vec<Given<'_>> =
            flags.chain(set.iter().map(|setting| Given::Set(setting))).collect();
        let made = |count: usize| -> Result<Self, LabError> {
            let mut table = table.clone();
            given[..count].iter().try_for_each(|given| given.apply(&mut table))?;
            let config = Self::of_table(table)?;
            config.check_settings()?;
            Ok(config)
        };
        made(given.len()).map_err(|error| blame(error, file, &given, made))
    }

    /// Reads the settings that a run wrote.
    ///
    /// Settings that every run writes must be present; otherwise the file is not a run's. Memory
    /// and lengths are not checked, because the run may come from a larger machine or an older
    /// version.
    pub fn recorded(mut table: Table, file: &Path) -> Result<Self, LabError> {
        regroup(&mut table);
        let has = |path: &str| {
            let mut keys = path.split('.');
            let first = keys.next().and_then(|key| table.get(key));
            keys.fold(first, |value, key| value?.get(key)).is_some()
        };
        let missing: Vec<&str> = RECORDED.into_iter().filter(|path| !has(path)).collect();
        let wrong = |reason: String| LabError::Config { path: file.into(), reason };
        let config = Self::of_table(table).map_err(|e| wrong(e.to_string()))?;
        config.check_values().map_err(|e| wrong(e.to_string()))?;
        let Some(first) = missing.first() else { return Ok(config) };
        let more = match missing.len() {
            1 => String::new(),
            n => format!(" and {} more settings", n - 1),
        };
        Err(wrong(format!(
            "not written by a run: it lacks {first}{more}, which every run writes; \
             to start a run with these settings: tra train --config FILE --out DIR"
        )))
    }

    fn of_table(mut table: Table) -> Result<Self, LabError> {
        // Settings without a name belong to the default: --set model.attention.horizon=exact.
        for (path, name) in [("task", "flipflop"), ("model.attention", "tra")] {
            let part =
                path.split('.').try_fold(&mut table, |t, key| t.get_mut(key)?.as_table_mut());
            if let Some(part) = part {
                part.entry("name").or_insert_with(|| Value::from(name));
            }
        }
        table.try_into().map_err(|e| LabError::Setting(toml_reason("", &e)))
    }

    /// Returns the settings of the optimizer.
    pub fn optimizer(&self) -> OptimizerConfig {
        OptimizerConfig { kind: self.optimizer, betas: self.betas, weight_decay: self.weight_decay }
    }

    /// Returns the decoder settings for a vocabulary size.
    pub fn decoder(&self, vocab: usize) -> Result<DecoderConfig, LabError> {
        let config = self.model.decoder(vocab)?;
        Ok(match self.task {
            // Token 0 of a text is not padding.
            TaskSpec::Text(_) => config.without_padding(),
            _ => config,
        })
    }

    /// Returns the lengths of the training sequences.
    pub fn train_lengths(&self) -> Lengths {
        let split = self.task.splits()[0];
        self.length.unwrap_or(Lengths { from: split.from, to: split.to })
    }

    /// Returns the lengths of the training sequences at a step, counted from 0.
    pub fn lengths_at(&self, step: u64) -> Lengths {
        match self.curriculum {
            Some(curriculum) => curriculum.lengths_at(step, self.steps, self.train_lengths()),
            None => self.train_lengths(),
        }
    }

    /// Returns the number of sequences per forward pass at a step, counted from 0.
    pub fn batch_at(&self, step: u64) -> usize {
        let Some(curriculum) = self.curriculum else { return self.batch };
        let [batch, end, now] =
            [self.batch, self.train_lengths().to, self.lengths_at(step).to.max(1)]
                .map(|n| n as u128);
        // The upper limit fits in usize: `check_numbers` makes sure of it.
        let as_many = (batch * end / now).min(batch * curriculum.widen as u128);
        usize::try_from(as_many).unwrap_or(usize::MAX)
    }

    /// Returns whether a checkpoint is due after `step` steps.
    pub fn is_saved_at(&self, step: u64) -> bool {
        step == self.steps || (self.save_every > 0 && step.is_multiple_of(self.save_every))
    }

    /// Returns the lengths at which a split is evaluated. A split with the task's training lengths
    /// uses this run's training lengths instead.
    pub fn split_lengths(&self, name: &str) -> Result<Lengths, LabError> {
        let (split, train) = (self.task.split(name)?, self.task.splits()[0]);
        Ok(match (split.from, split.to) == (train.from, train.to) {
            true => self.train_lengths(),
            false => Lengths { from: split.from, to: split.to },
        })
    }

    /// Returns the splits that are evaluated.
    pub fn eval_splits(&self) -> Vec<String> {
        match self.eval.splits.is_empty() {
            true => self.task.splits()[1..].iter().map(|split| split.name.to_string()).collect(),
            false => self.eval.splits.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
