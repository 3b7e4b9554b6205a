//! What a run is: task, model, optimisation, evaluation. One TOML file, and flags that win over it.

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use tra_nn::{DecoderConfig, Size};
use tra_tasks::TaskConfig;

use crate::curriculum::Curriculum;
use crate::error::{LabError, toml_reason};
pub use crate::lengths::Lengths;
use crate::optimizer::{OptimizerConfig, OptimizerKind};
pub use crate::overrides::Override;
use crate::overrides::{Given, blame, regroup};

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
    pub optimizer: OptimizerKind,
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
            optimizer: OptimizerKind::AdamW,
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

/// The model: a named size, and the settings of the decoder. In a file they stand side by side; layers,
/// width and heads that are given win over the size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Table", into = "Table")]
pub struct ModelConfig {
    /// The named size; missing: `mini`.
    pub size: Option<Size>,
    /// The decoder. Its vocabulary and padding are the task's, and those here mean nothing.
    pub decoder: DecoderConfig,
}

/// Settings of a decoder that no file of a run has: two are the task's, and one is as published.
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
    /// Returns the decoder for a vocabulary.
    pub fn decoder(&self, vocab: usize) -> Result<DecoderConfig, LabError> {
        let mut config = self.decoder.clone();
        config.vocab = vocab;
        config.validate().map_err(tra_nn::Error::from)?;
        Ok(config)
    }
}

/// What stands in the `config.toml` of every run there ever was. What came later may be missing.
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

/// Larger than any file of settings; whatever goes on beyond it is a device, or a mistake.
const LARGEST_FILE: u64 = 16 << 20;

/// Returns the text of a file of settings: of a run, a sweep or an experiment.
pub fn read_text(path: &Path) -> Result<String, LabError> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map(|file| file.take(LARGEST_FILE + 1));
    file.and_then(|mut file| file.read_to_string(&mut text))
        .map_err(|e| LabError::io("cannot read", path, e))?;
    if text.len() as u64 > LARGEST_FILE {
        let reason = "larger than 16 MiB: not a file of settings".into();
        return Err(LabError::Config { path: path.into(), reason });
    }
    Ok(text)
}

impl RunConfig {
    /// Reads a config file, if any, and lets flags win over it. `set` holds further settings as
    /// `path=value`, such as `task.alphabet=26`. A run that this machine has no memory for is refused, a run of text
    /// when the text is opened.
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

    /// A task by its name, with further settings as `path=value`, to draw from it and not to train on it. Lengths, if
    /// any are given, take the place of those of training.
    pub fn of_task(name: &str, lengths: Option<Lengths>, set: &[String]) -> Result<Self, LabError> {
        let mut flags = vec![("task.name", Value::from(name))];
        flags.extend(lengths.map(|lengths| ("length", Value::from(lengths.to_string()))));
        Self::from_table(Table::new(), flags, set, None)
    }

    /// The settings of a table with others over them. Whatever is wrong is laid at the door of `file` or of the flag or
    /// `--set` that made it wrong.
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

    /// The settings that a run wrote down. What every run writes must be there: a file without it is no
    /// run's. Whether they could be trained with here and now is not asked: the run may be from a larger
    /// machine, or from before a rule.
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
            "not written by a run: it lacks {first}{more}, which every run writes down; to begin a run with these settings, \
             tra train --config FILE --out DIR"
        )))
    }

    fn of_table(mut table: Table) -> Result<Self, LabError> {
        // Settings without a name are those of the default: --set model.attention.horizon=exact.
        for (path, name) in [("task", "flipflop"), ("model.attention", "tra")] {
            let part =
                path.split('.').try_fold(&mut table, |t, key| t.get_mut(key)?.as_table_mut());
            if let Some(part) = part {
                part.entry("name").or_insert_with(|| Value::from(name));
            }
        }
        table.try_into().map_err(|e| LabError::Setting(toml_reason("", &e)))
    }

    /// Settings of the optimizer.
    pub fn optimizer(&self) -> OptimizerConfig {
        OptimizerConfig { kind: self.optimizer, betas: self.betas, weight_decay: self.weight_decay }
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
        let [batch, end, now] =
            [self.batch, self.train_lengths().to, self.lengths_at(step).to.max(1)]
                .map(|n| n as u128);
        // At most the second, which fits: validation has seen to it.
        let as_many = (batch * end / now).min(batch * curriculum.widen as u128);
        usize::try_from(as_many).unwrap_or(usize::MAX)
    }

    /// Whether a checkpoint is due after so many steps.
    pub fn is_saved_at(&self, step: u64) -> bool {
        step == self.steps || (self.save_every > 0 && step.is_multiple_of(self.save_every))
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

    /// What older files have beside `research` is the same as in it, in a file and in `--set`; the last
    /// one given wins, and what is written is in today's form.
    #[test]
    fn settings_of_research_may_stand_where_they_stood() {
        let new = "[model.research]\nsharpness = 0.3\nembedding_dropout = 0.1\nembedding_bound = 1.0\n\
                   [model.attention]\nname = 'tra'\n[model.attention.research]\nleak = 1.0";
        let old = "[model]\nsharpness = 0.3\nembedding_dropout = 0.1\nembedding_bound = 1.0\n\
                   [model.attention]\nname = 'tra'\nleak = 1.0";
        let config = parse(old).unwrap();
        assert_eq!(config, parse(new).unwrap());
        assert_ne!(config, RunConfig::default());
        let text = toml::to_string(&config).unwrap();
        assert!(text.contains("[model.research]") && text.contains("[model.attention.research]"));
        assert_eq!(parse(&text).unwrap(), config);
        let set = |file: &str, set: &str| {
            RunConfig::from_table(file.parse().unwrap(), vec![], &[set.into()], None).unwrap()
        };
        for file in [old, new] {
            for (old, new, at) in [
                ("model.sharpness=0.5", "model.research.sharpness=0.5", 0.5),
                ("model.attention.leak=0.5", "model.attention.research.leak=0.5", 0.3),
            ] {
                assert_eq!(set(file, old), set(file, new));
                assert_ne!(set(file, old), config);
                assert_eq!(set(file, old).model.decoder.research.sharpness, at);
            }
        }
        let twice = parse("[model]\nsharpness = 0.3\n[model.research]\nsharpness = 0.3");
        assert!(twice.unwrap_err().contains("unknown field `sharpness`"));
        let of_rope = parse("[model.attention]\nname = 'rope'\nleak = 1.0").unwrap_err();
        assert!(of_rope.contains("unknown field `leak`"), "{of_rope}");
    }

    #[test]
    fn sizes_that_are_given_win_over_the_named_one() {
        let config = parse("[model]\nsize = 'tiny'\nlayers = 3\nheads = 2").unwrap();
        let DecoderConfig { layers, width, heads, .. } = config.model.decoder;
        assert_eq!((layers, width, heads), (3, 128, 2));
        let text = toml::to_string(&config).unwrap();
        assert!(text.contains("size = \"tiny\"") && text.contains("layers = 3"), "{text}");
        assert!(!text.contains("width") && !text.contains("vocab"), "{text}");
        assert_eq!(parse(&text).unwrap(), config);
        for key in NOT_IN_FILES {
            let error = parse(&format!("[model]\n{key} = 1")).unwrap_err();
            assert!(error.contains(&format!("unknown field `{key}`")), "{error}");
        }
        let error = parse("[model.attention]\nname = 'rope'\ntheta = 'far'").unwrap_err();
        assert!(error.contains("in `attention` in `model`"), "{error}");
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
        assert_eq!(
            config.model.decoder.attention.name(),
            "alibi",
            "rope's theta does not get in the way"
        );
        let error =
            RunConfig::from_table(Table::new(), Vec::new(), &["lr".into()], None).unwrap_err();
        assert!(error.to_string().contains("path=value"));
        let error = RunConfig::from_table(Table::new(), Vec::new(), &["steps=many".into()], None);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("steps") && error.lines().count() == 1, "{error}");
    }
    fn blamed(file: &str, flags: Vec<Override>, set: &[&str]) -> String {
        let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
        let path = Some(Path::new("run.toml"));
        let error = RunConfig::from_table(file.parse().unwrap(), flags, &set, path);
        error.unwrap_err().to_string()
    }

    #[test]
    fn what_makes_settings_wrong_is_named() {
        let lr = || vec![("lr", Value::from(-1.0))];
        let splits = vec![("eval.splits", Value::from(vec!["iid", "far"]))];
        let perfect = vec![("eval.until_perfect", Value::from(3))];
        let attention = vec![("model.attention.name", Value::from("rop"))];
        let curriculum = ["curriculum.from=9999", "curriculum.until=0.5", "lr=0.1"];
        for (error, start) in [
            (blamed("steps = 3", vec![], &["lr=0.1", "steps=many"]), "--set steps=many: invalid"),
            (blamed("steps = 3", vec![], &["steps"]), "--set steps: give it as path=value"),
            (blamed("steps = 3", vec![], &["steps.x=1"]), "--set steps.x=1: steps.x: steps is"),
            (blamed("steps = 3", lr(), &["batch=2"]), "--lr -1.0: lr must be positive"),
            (blamed("steps = 3", splits, &[]), "--eval-splits iid,far: flipflop has no split"),
            (blamed("steps = 3", perfect, &[]), "--until-perfect 3: until_perfect needs"),
            (blamed("steps = 3", attention, &[]), "--attention rop: unknown variant"),
            (blamed("length = 7", vec![], &["lr=0.1"]), "run.toml: flipflop has no sequence"),
            (blamed("lr = -1.0", vec![], &["batch=2"]), "run.toml: lr must be"),
            (blamed("stepz = 3", lr(), &[]), "run.toml: unknown field `stepz`"),
            (blamed("steps = 3", vec![], &curriculum), "--set curriculum.from=9999: curriculum"),
        ] {
            assert!(error.starts_with(start) && error.lines().count() == 1, "{start}: {error}");
        }
        // What a later setting mends is not wrong.
        let mended = ["length=8".to_string()];
        let file = Some(Path::new("run.toml"));
        let table = "length = 7".parse().unwrap();
        assert!(RunConfig::from_table(table, Vec::new(), &mended, file).is_ok());
    }

    #[test]
    fn only_what_a_run_wrote_is_a_run() {
        let recorded = |text: &str| RunConfig::recorded(text.parse().unwrap(), Path::new("c.toml"));
        let ours = toml::to_string(&RunConfig::default()).unwrap();
        assert_eq!(recorded(&ours).unwrap(), RunConfig::default());
        let error = recorded("version = 1").unwrap_err().to_string();
        assert!(error.starts_with("c.toml: not written by a run: it lacks seed and"), "{error}");
        let error = recorded(&ours.replace("steps = ", "stepz = ")).unwrap_err().to_string();
        assert!(error.contains("stepz"), "{error}");
        let error = recorded(&ours.replace("steps = 100\n", "")).unwrap_err().to_string();
        assert!(error.contains("lacks steps, which"), "{error}");
        // As the first version wrote it, and with lengths as they were allowed then.
        let old: String = ours
            .lines()
            .filter(|line| {
                !["betas", "same_length", "tied", "embedding_bound", "horizon", "leak"]
                    .iter()
                    .any(|key| line.starts_with(key))
            })
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(recorded(&old).unwrap(), RunConfig::default());
        let short = recorded(&format!("length = '0..5'\n{ours}")).unwrap();
        assert!(short.validate().unwrap_err().to_string().contains("at least 4"));
    }

    #[test]
    fn every_run_in_the_results_is_one() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let mut folders = vec![results];
        let mut found = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if entry.file_name() == "config.toml" {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let error = RunConfig::recorded(text.parse().unwrap(), &path).err();
                    // Some were tried with settings that did not stay.
                    let error = error.map(|e| e.to_string()).unwrap_or_default();
                    assert!(!error.contains("not written by a run"), "{error}");
                    found += usize::from(error.is_empty());
                }
            }
        }
        assert!(found > 50, "{found}");
    }
}
