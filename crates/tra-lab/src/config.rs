//! What a run is: task, model, optimisation, evaluation. One TOML file, and flags that win over it.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};
use tra_nn::attention::AnyAttentionConfig;
use tra_nn::{DecoderConfig, DropoutPlacement, EMBEDDING_BOUND, Size};
use tra_tasks::{Measure, Task, TaskConfig, TaskError};

use crate::curriculum::Curriculum;
use crate::error::{LabError, toml_reason};
use crate::optimizer::{Method, Settings};

/// The layout of run directories this program reads and writes.
pub const VERSION: u32 = 1;

/// Everything that decides the outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Layout of the run directory.
    pub version: u32,
    /// Weights, data and dropout are functions of it.
    pub seed: u64,
    /// Training steps.
    pub steps: u64,
    /// Sequences in one forward pass.
    pub batch: usize,
    /// Forward passes whose gradients are added up for one step.
    pub accumulate: usize,
    /// Lengths of training sequences; missing: the task's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<Lengths>,
    /// Whether all sequences of a batch have one length, drawn for the batch: nothing is padded.
    pub same_length: bool,
    /// Shorter sequences first; missing: all lengths from the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curriculum: Option<Curriculum>,
    /// Highest learning rate.
    pub lr: f64,
    /// Share of the steps over which the learning rate rises; then it falls as a cosine to 0.
    pub warmup: f64,
    /// How parameters follow their gradients.
    #[serde(skip_serializing_if = "is_default")]
    pub optimizer: Method,
    /// How slowly AdamW's first and second moment follow the gradient.
    pub betas: [f64; 2],
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// The gradient is scaled down to this norm; 0 leaves it as it is.
    pub clip: f64,
    /// Steps between checkpoints; 0 writes one at the end only.
    pub save_every: u64,
    /// How many of the newest checkpoints are kept, beside the best.
    pub keep: usize,
    /// What is tested, and when.
    pub eval: EvalConfig,
    /// The task and its settings.
    pub task: TaskConfig,
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
            optimizer: Method::AdamW,
            betas: [0.9, 0.98],
            weight_decay: 0.01,
            clip: 1.0,
            save_every: 100,
            keep: 2,
            eval: EvalConfig::default(),
            task: TaskConfig::FlipFlop(Default::default()),
            model: ModelConfig::default(),
        }
    }
}

/// Left out of files: those from before the setting say the same.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_one(sharpness: &f64) -> bool {
    *sharpness == 1.0
}

/// What is tested during training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalConfig {
    /// Steps between evaluations; 0 evaluates at the end only.
    pub every: u64,
    /// Splits; none means every split of the task but `train`.
    pub splits: Vec<String>,
    /// Sequences drawn from each split.
    pub sequences: u64,
    /// Stop when every split was fully right so many evaluations in a row; 0 never stops early.
    pub until_perfect: u64,
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self { every: 0, splits: Vec::new(), sequences: 64, until_perfect: 0 }
    }
}

/// The model: a named size or free sizes, and the mechanism.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// `tiny`, `mini`, `small` or `medium`; free sizes win over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Number of blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<usize>,
    /// Width of the residual stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// Number of heads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<usize>,
    /// Rate of dropout.
    pub dropout: f64,
    /// Rate of dropout on the embedding, where it is not `dropout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_dropout: Option<f64>,
    /// Where attention drops.
    pub dropout_placement: DropoutPlacement,
    /// The least that attention's logits are multiplied by in training.
    #[serde(skip_serializing_if = "is_one")]
    pub sharpness: f64,
    /// Whether the output takes the embedding's table in place of one of its own.
    pub tied: bool,
    /// Embeddings begin evenly in this range around 0.
    pub embedding_bound: f64,
    /// The mechanism and its settings.
    pub attention: AnyAttentionConfig,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            size: None,
            layers: None,
            width: None,
            heads: None,
            dropout: 0.01,
            embedding_dropout: None,
            dropout_placement: DropoutPlacement::Logits,
            sharpness: 1.0,
            tied: false,
            embedding_bound: EMBEDDING_BOUND,
            attention: AnyAttentionConfig::Tra(Default::default()),
        }
    }
}

impl ModelConfig {
    /// The decoder for a vocabulary. Without any size it is `mini`.
    pub fn decoder(&self, vocab: usize) -> Result<DecoderConfig, LabError> {
        let size: Size =
            self.size.as_deref().unwrap_or("mini").parse().map_err(tra_nn::Error::from)?;
        let (layers, width, heads) = size.dimensions();
        let config = DecoderConfig::new(
            vocab,
            self.layers.unwrap_or(layers),
            self.width.unwrap_or(width),
            self.heads.unwrap_or(heads),
        )
        .with_attention(self.attention.clone())
        .with_dropout(self.dropout)
        .with_embedding_dropout(self.embedding_dropout)
        .with_dropout_placement(self.dropout_placement)
        .with_sharpness(self.sharpness)
        .with_tied(self.tied)
        .with_embedding_bound(self.embedding_bound);
        config.validate().map_err(tra_nn::Error::from)?;
        Ok(config)
    }
}

/// A length or a range of lengths, both ends included: `512` or `1..50`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// The shortest.
    pub from: usize,
    /// The longest.
    pub to: usize,
}

/// The widest range of lengths; a single length may be any.
const MOST_LENGTHS: usize = 1 << 22;

impl std::str::FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            part.trim().replace('_', "").parse::<usize>().map_err(|_| {
                format!("{text:?} is no length; give a number, as 512, or a range, as 1..50")
            })
        };
        let (from, to) = match text.split_once("..") {
            Some((from, to)) => (number(from)?, number(to.trim_start_matches('='))?),
            None => (number(text)?, number(text)?),
        };
        if from > to {
            return Err(format!("{text:?} is an empty range of lengths"));
        }
        // Tasks are asked about every length of a range.
        if to - from >= MOST_LENGTHS {
            return Err(format!("{text:?} is a range of more than {MOST_LENGTHS} lengths"));
        }
        Ok(Self { from, to })
    }
}

impl std::fmt::Display for Lengths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.from == self.to {
            true => write!(f, "{}", self.from),
            false => write!(f, "{}..{}", self.from, self.to),
        }
    }
}

impl Serialize for Lengths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lengths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(usize),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(n) => Ok(Self { from: n, to: n }),
            Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// A setting given on the command line: where it stands in the file, and its value.
pub type Override = (&'static str, Value);

impl RunConfig {
    /// Reads a config file, if any, and lets flags win over it. `set` holds further settings as
    /// `path=value`, such as `task.alphabet=26`.
    pub fn read(
        file: Option<&Path>,
        flags: Vec<Override>,
        set: &[String],
    ) -> Result<Self, LabError> {
        let table = match file {
            None => Table::new(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| LabError::io("cannot read", path, source))?;
                text.parse::<Table>().map_err(|e| LabError::config(path, &text, &e))?
            }
        };
        Self::from_table(table, flags, set, file)
    }

    pub(crate) fn from_table(
        mut table: Table,
        flags: Vec<Override>,
        set: &[String],
        file: Option<&Path>,
    ) -> Result<Self, LabError> {
        for (path, value) in flags {
            insert(&mut table, path, value)?;
        }
        for setting in set {
            let (path, text) = setting.split_once('=').ok_or_else(|| {
                LabError::Setting(format!(
                    "--set {setting}: give it as path=value, as task.alphabet=26"
                ))
            })?;
            // A bare word is a string: --set model.attention.name=rope.
            let line = format!("value = {}", text.trim());
            let value = line.parse::<Table>().ok().and_then(|mut t| t.remove("value"));
            insert(&mut table, path.trim(), value.unwrap_or_else(|| Value::from(text.trim())))?;
        }
        // Settings without a name are those of the default: --set model.attention.horizon=exact.
        for (path, name) in [("task", "flipflop"), ("model.attention", "tra")] {
            let part =
                path.split('.').try_fold(&mut table, |t, key| t.get_mut(key)?.as_table_mut());
            if let Some(part) = part {
                part.entry("name").or_insert_with(|| Value::from(name));
            }
        }
        let config: Self = table.try_into().map_err(|e| match file {
            Some(path) => LabError::config(path, "", &e),
            None => LabError::Setting(toml_reason("", &e)),
        })?;
        config.validate()?;
        Ok(config)
    }

    /// Settings of the optimizer.
    pub fn optimizer(&self) -> Settings {
        Settings { method: self.optimizer, betas: self.betas, weight_decay: self.weight_decay }
    }

    /// The decoder for a vocabulary.
    pub fn decoder(&self, vocab: usize) -> Result<DecoderConfig, LabError> {
        let config = self.model.decoder(vocab)?;
        Ok(match self.task {
            // Token 0 of a text is a token like any other.
            TaskConfig::Text(_) => config.without_padding(),
            _ => config,
        })
    }

    /// Lengths of training sequences.
    pub fn train_lengths(&self) -> Lengths {
        let split = self.task.splits()[0];
        self.length.unwrap_or(Lengths { from: split.from, to: split.to })
    }

    /// Lengths of the training sequences of a step, from 0.
    pub fn lengths_at(&self, step: u64) -> Lengths {
        match self.curriculum {
            Some(curriculum) => curriculum.lengths_at(step, self.steps, self.train_lengths()),
            None => self.train_lengths(),
        }
    }

    /// Sequences in one forward pass of step number `step` from 0.
    pub fn batch_at(&self, step: u64) -> usize {
        let Some(curriculum) = self.curriculum else { return self.batch };
        let as_many = self.batch * self.train_lengths().to / self.lengths_at(step).to.max(1);
        as_many.min(self.batch * curriculum.widen)
    }

    /// Lengths a split is tested at: its own, or, where they are the same as in training, those of
    /// the training at hand.
    pub fn split_lengths(&self, name: &str) -> Result<Lengths, LabError> {
        let (split, train) = (self.task.split(name)?, self.task.splits()[0]);
        Ok(match (split.from, split.to) == (train.from, train.to) {
            true => self.train_lengths(),
            false => Lengths { from: split.from, to: split.to },
        })
    }

    /// The splits that are tested.
    pub fn eval_splits(&self) -> Vec<String> {
        match self.eval.splits.is_empty() {
            true => self.task.splits()[1..].iter().map(|split| split.name.to_string()).collect(),
            false => self.eval.splits.clone(),
        }
    }

    /// Says what is wrong with the settings, if anything is.
    pub fn validate(&self) -> Result<(), LabError> {
        let wrong = |text: String| Err(LabError::Setting(text));
        if self.version != VERSION {
            return wrong(format!(
                "this run is of version {}, and this program reads version {VERSION}",
                self.version
            ));
        }
        for (name, value) in
            [("batch", self.batch), ("accumulate", self.accumulate), ("keep", self.keep)]
        {
            if value == 0 {
                return wrong(format!("{name} must be at least 1"));
            }
        }
        if !(self.lr > 0.0 && self.lr.is_finite()) {
            return wrong(format!("lr must be positive, not {}", self.lr));
        }
        if !(0.0..=1.0).contains(&self.warmup) {
            return wrong(format!("warmup is a share of the steps, in 0..1, not {}", self.warmup));
        }
        for (name, value) in [("weight_decay", self.weight_decay), ("clip", self.clip)] {
            if !(value >= 0.0 && value.is_finite()) {
                return wrong(format!("{name} must be 0 or more, not {value}"));
            }
        }
        if self.betas.iter().any(|beta| !(0.0..1.0).contains(beta)) {
            return wrong(format!("betas lie in 0..1, not {:?}", self.betas));
        }
        if let Some(curriculum) = self.curriculum {
            curriculum.validate(self.train_lengths()).map_err(LabError::Setting)?;
        }
        if self.eval.until_perfect > 0 && self.eval.every == 0 {
            return wrong("until_perfect needs evaluations in between: give eval.every".into());
        }
        if self.eval.sequences == 0 {
            return wrong("eval.sequences must be at least 1".into());
        }
        self.task.validate()?;
        for name in self.eval_splits() {
            self.task.split(&name)?;
        }
        if let TaskConfig::Text(_) = self.task {
            // What depends on the files is looked at when they are opened.
            if self.eval.until_perfect > 0 {
                return wrong(
                    "no text is ever fully right: until_perfect is for other tasks".into(),
                );
            }
            self.decoder(usize::MAX)?;
            return Ok(());
        }
        let task = self.task.build()?;
        self.decoder(task.vocab())?;
        self.check_lengths(task.as_ref())
    }

    /// Says why the task has no sequence of the training lengths, if it has none.
    pub fn check_lengths(&self, task: &dyn Task) -> Result<(), LabError> {
        let Lengths { from, to } = self.train_lengths();
        // Some tasks have no sequence of every length; a text has, unless it is too short.
        let from = if task.measure() == Measure::Perplexity { to } else { from };
        if !(from..=to).any(|length| task.check_length(length).is_ok()) {
            let reason = task.check_length(to).err().unwrap_or_default();
            return Err(TaskError::Length { task: task.name(), length: to, reason }.into());
        }
        Ok(())
    }
}

/// Puts a value at a dotted path, making the tables on the way.
fn insert(table: &mut Table, path: &str, value: Value) -> Result<(), LabError> {
    let (mut table, mut rest) = (table, path);
    while let Some((head, tail)) = rest.split_once('.') {
        let next = table.entry(head).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(next) = next else {
            return Err(LabError::Setting(format!("{path}: {head} is a value, not a table")));
        };
        (table, rest) = (next, tail);
    }
    // Another mechanism or task: the settings of the one before do not carry over.
    if rest == "name" && table.get("name") != Some(&value) {
        table.clear();
    }
    table.insert(rest.into(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RunConfig, String> {
        let table = text.parse().unwrap();
        RunConfig::from_table(table, Vec::new(), &[], None).map_err(|e| e.to_string())
    }

    #[test]
    fn settings_without_a_name_are_those_of_the_default() {
        let set: [String; 2] = ["model.attention.horizon=exact".into(), "task.reads=0.2".into()];
        let named = ["model.attention.name=tra".into(), set[0].clone()];
        let config = |set: &[String]| RunConfig::from_table(Table::new(), Vec::new(), set, None);
        assert_eq!(config(&set[..1]).unwrap(), config(&named).unwrap());
        assert_ne!(config(&set[..1]).unwrap(), config(&[]).unwrap());
        assert!(!config(&set[1..]).is_err_and(|e| e.to_string().contains("name")));
        let wrong = config(&["model.attention.horizon=far".into()]).unwrap_err().to_string();
        assert!(wrong.contains("far") && wrong.contains("exact"), "{wrong}");
    }

    #[test]
    fn a_config_comes_back_from_its_own_text() {
        let config = parse(
            "steps = 7\nlength = '1..50'\n[task]\nname = 'copy'\nalphabet = 26\n\
             [model]\nlayers = 1\n[model.attention]\nname = 'rope'\ntheta = 10.0",
        )
        .unwrap();
        let text = toml::to_string(&config).unwrap();
        assert_eq!(parse(&text).unwrap(), config);
        assert_eq!(config.length, Some(Lengths { from: 1, to: 50 }));
        assert_eq!(parse("length = 512").unwrap().length, Some(Lengths { from: 512, to: 512 }));
    }

    #[test]
    fn typos_are_errors_that_name_the_key() {
        for (text, part) in [
            ("stepz = 7", "stepz"),
            ("[task]\nname = 'flipflop'\nalphabt = 3", "alphabt"),
            ("[task]\nname = 'flipflip'", "flipflip"),
            ("[model]\nsize = 'huge'", "huge"),
            ("[model.attention]\nname = 'rope'\ntheta = 1.0\nbeta = 2", "beta"),
            ("steps = 'many'", "many"),
            ("length = '5..x'", "5..x"),
            ("length = '9..5'", "empty range"),
            ("length = '1..1_000_000_000_000'", "more than 4194304 lengths"),
            ("length = 7", "even"),
            ("lr = -1.0", "lr"),
            ("batch = 0", "batch"),
            ("betas = [0.9, 1.5]", "betas"),
            ("version = 9", "version 9"),
            ("[curriculum]\nfrom = 600\nuntil = 0.5", "curriculum.from"),
            ("[curriculum]\nfrom = 512\nuntil = 1.5", "curriculum.until"),
            ("[curriculum]\nfrom = 512\nuntil = 0.5\nshortest = 1", "curriculum.shortest"),
            ("[curriculum]\nfrom = 512\nuntil = 0.5\npower = 0", "curriculum.power"),
            ("[curriculum]\nfrom = 512\nuntil = 0.5\nwiden = 0", "curriculum.widen"),
            ("[curriculum]\nfrom = 512", "until"),
            ("optimizer = 'sgd'", "sgd"),
            ("[model]\nembedding_bound = 0", "embedding_bound must be positive"),
            ("[model]\nembedding_bound = 1e39", "fit an f32, not 1000"),
            ("[eval]\nuntil_perfect = 2", "eval.every"),
            ("[eval]\nsplits = ['far']", "far"),
            ("[model]\nwidth = 10\nheads = 3", "must divide"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn flags_and_settings_win_over_the_file() {
        let table: Table =
            "steps = 7\nlr = 1.0\n[model.attention]\nname = 'rope'\ntheta = 3.0".parse().unwrap();
        let flags = vec![("steps", Value::from(9)), ("model.attention.name", Value::from("alibi"))];
        let set = ["lr=0.5".to_string(), "task.name=copy".into(), "task.alphabet=26".into()];
        let config = RunConfig::from_table(table, flags, &set, None).unwrap();
        assert_eq!((config.steps, config.lr), (9, 0.5));
        assert_eq!(config.model.attention.name(), "alibi", "rope's theta does not get in the way");
        let error =
            RunConfig::from_table(Table::new(), Vec::new(), &["lr".into()], None).unwrap_err();
        assert!(error.to_string().contains("path=value"));
        let error = RunConfig::from_table(Table::new(), Vec::new(), &["steps=many".into()], None);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("steps") && error.lines().count() == 1, "{error}");
    }
}
