//! File format of an experiment that trains models: models x tasks x seeds, at one of two scales.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};
use tra_random::Stream;

use crate::config::{Lengths, RunConfig};
use crate::error::LabError;
use crate::eval::EvalSpec;
use crate::sweep::Cell;

/// An experiment that trains models, as read from its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Title of the table.
    pub title: String,
    /// Seeds; every run is trained with each of them.
    pub seeds: Vec<u64>,
    /// Rows of the table.
    #[serde(rename = "model")]
    pub models: Vec<Model>,
    /// Tasks the models are trained on.
    #[serde(rename = "task")]
    pub tasks: Vec<TaskEntry>,
    /// Settings that take two cores about an hour.
    pub quick: ScaleSettings,
    /// The paper's own sizes, steps and batch.
    pub paper: ScaleSettings,
}

/// A model: one row of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Name of the model.
    pub name: String,
    /// The mechanism and its settings. Default: the mechanism with the model's name.
    pub attention: Option<Table>,
    /// Seeds at quick scale. Empty: all of them.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Settings of its runs that differ from those of the quick scale.
    #[serde(default)]
    pub quick: Table,
    /// Settings of its runs that differ from those of the paper scale.
    #[serde(default)]
    pub paper: Table,
}

/// A task of an experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskEntry {
    /// Name of the task.
    pub name: String,
    /// The task and its settings.
    pub settings: Table,
    /// Models trained on it. Empty: all of them.
    #[serde(default)]
    pub models: Vec<String>,
    /// Seeds at quick scale. Empty: all of them.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Settings of its runs that differ from those of the quick scale.
    #[serde(default)]
    pub quick: Table,
    /// Settings of its runs that differ from those of the paper scale.
    #[serde(default)]
    pub paper: Table,
}

/// Settings of one scale.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleSettings {
    /// Seeds that replace those of the experiment. Empty: those of the experiment.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Settings of every run, as in the config of a single run.
    pub run: Table,
    /// Tests of the trained models.
    #[serde(rename = "test", default)]
    pub tests: Vec<Test>,
    /// For text tasks: the text and the windows at which it is read.
    pub text: Option<TextSettings>,
}

/// The text of an experiment. The user chooses where it is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextSettings {
    /// Name of the data set for `tra data get`.
    pub set: String,
    /// Vocabulary size of a tokenizer to learn. Default: GPT-2's tokenizer.
    pub vocab: Option<usize>,
    /// Windows at which perplexity is measured.
    pub windows: Vec<usize>,
    /// Number of tokens of the test text. Default: all.
    pub limit: Option<usize>,
}

/// One or more columns of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// The split.
    pub split: String,
    /// The lengths, in ascending order.
    pub lengths: Vec<Lengths>,
    /// Sequences per length.
    pub sequences: u64,
    /// Models with this test. Empty: all of them.
    #[serde(default)]
    pub models: Vec<String>,
    /// Models without this test.
    #[serde(default)]
    pub except: Vec<String>,
    /// Tasks with this test. Empty: all of them.
    #[serde(default)]
    pub tasks: Vec<String>,
}

/// Scale of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// About an hour on two cores.
    #[default]
    Quick,
    /// The paper's own scale.
    Paper,
}

impl Scale {
    /// Returns the name that users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Paper => "paper",
        }
    }
}

impl std::str::FromStr for Scale {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = [Self::Quick, Self::Paper].into_iter().find(|scale| scale.name() == name);
        found.ok_or_else(|| format!("{name:?} is not a scale; use quick or paper"))
    }
}

/// One run of an experiment and its tests.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Name of the task.
    pub task: String,
    /// Name of the model.
    pub model: String,
    /// Folder and settings of the run.
    pub cell: Cell,
    /// Its tests, in this order.
    pub tests: Vec<EvalSpec>,
}

/// Selected runs of an experiment. An empty list selects all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Names of models.
    pub models: Vec<String>,
    /// Names of tasks.
    pub tasks: Vec<String>,
    /// Seeds that replace those of the experiment.
    pub seeds: Vec<u64>,
}

impl Selection {
    /// Returns whether anything was selected.
    pub(crate) fn is_some(&self) -> bool {
        !(self.models.is_empty() && self.tasks.is_empty() && self.seeds.is_empty())
    }
}

impl Grid {
    /// Parses the text of an experiment's file.
    pub fn parse(text: &str, path: &Path) -> Result<Self, LabError> {
        toml::from_str(text).map_err(|e| LabError::config(path, text, &e))
    }

    /// Returns the settings of a scale.
    pub fn scale(&self, scale: Scale) -> &ScaleSettings {
        match scale {
            Scale::Quick => &self.quick,
            Scale::Paper => &self.paper,
        }
    }

    /// Returns all runs in a fixed order, and checks each of them.
    ///
    /// The first seed of every model comes first, then the second, so that a table with fewer seeds
    /// is available early.
    pub fn trials(
        &self,
        scale: Scale,
        selection: &Selection,
        out: &Path,
    ) -> Result<Vec<Trial>, LabError> {
        self.check_names(scale, selection)?;
        let given = !selection.seeds.is_empty();
        let own = &self.scale(scale).seeds;
        let seeds = [&selection.seeds, own, &self.seeds].into_iter().find(|list| !list.is_empty());
        let (mut trials, mut seen) = (Vec::new(), BTreeSet::new());
        for seed in seeds.into_iter().flatten() {
            // A duplicate seed is one run, so that a mean does not count it twice.
            if !seen.insert(*seed) {
                continue;
            }
            // Requested seeds replace every list of seeds in the file.
            let all = given || scale == Scale::Paper;
            let with = |own: &[u64]| all || own.is_empty() || own.contains(seed);
            for task in &self.tasks {
                for model in &self.models {
                    if with(&task.seeds)
                        && with(&model.seeds)
                        && listed(&selection.tasks, &task.name)
                        && listed(&selection.models, &model.name)
                        && listed(&task.models, &model.name)
                    {
                        trials.push(self.trial(scale, task, model, *seed, out)?);
                    }
                }
            }
        }
        match trials.is_empty() {
            true => Err(LabError::Setting(
                "no run has all of the requested models, tasks and seeds; request others, or add \
                 seeds to the experiment"
                    .into(),
            )),
            false => Ok(trials),
        }
    }

    fn trial(
        &self,
        scale: Scale,
        task: &TaskEntry,
        model: &Model,
        seed: u64,
        out: &Path,
    ) -> Result<Trial, LabError> {
        let settings = self.scale(scale);
        let mut run = settings.run.clone();
        for (quick, paper) in [(&task.quick, &task.paper), (&model.quick, &model.paper)] {
            merge(&mut run, if scale == Scale::Quick { quick } else { paper });
        }
        let mut attention = model.attention.clone().unwrap_or_default();
        attention.entry("name").or_insert_with(|| Value::from(model.name.as_str()));
        let mut parts = Table::new();
        parts.insert("task".into(), Value::Table(task.settings.clone()));
        parts.insert("seed".into(), Value::from(i64::try_from(seed).unwrap_or(i64::MAX)));
        let attention = Table::from_iter([("attention".to_string(), Value::Table(attention))]);
        parts.insert("model".into(), Value::Table(attention));
        merge(&mut run, &parts);
        let config = RunConfig::from_table(run, Vec::new(), &[], None)?;
        let tests = settings.tests.iter().filter(|test| {
            listed(&test.models, &model.name)
                && !test.except.contains(&model.name)
                && listed(&test.tasks, &task.name)
        });
        let spec = |test: &Test, lengths: &Lengths| EvalSpec {
            split: test.split.clone(),
            lengths: *lengths,
            sequences: test.sequences,
            seed,
        };
        let tests: Vec<EvalSpec> = tests
            .flat_map(|test| test.lengths.iter().map(move |lengths| spec(test, lengths)))
            .collect();
        check(&config, &tests)?;
        let path = out.join(format!("{}-{}-s{seed}", task.name, model.name));
        let (task, model) = (task.name.clone(), model.name.clone());
        Ok(Trial { task, model, cell: Cell { path, config }, tests })
    }

    /// Checks that every name in use exists and that no name is used twice.
    pub fn check_names(&self, scale: Scale, selection: &Selection) -> Result<(), LabError> {
        let models: Vec<&String> = self.models.iter().map(|model| &model.name).collect();
        let tasks: Vec<&String> = self.tasks.iter().map(|task| &task.name).collect();
        for (kind, names) in [("model", &models), ("task", &tasks)] {
            if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
                return Err(LabError::Setting(format!(
                    "two {kind}s have the same name; rename one of them"
                )));
            }
        }
        let tests = &self.scale(scale).tests;
        let used_models = self.tasks.iter().flat_map(|task| &task.models);
        let used_models =
            used_models.chain(tests.iter().flat_map(|test| test.models.iter().chain(&test.except)));
        let used_tasks = tests.iter().flat_map(|test| &test.tasks);
        known("model", &models, used_models.chain(&selection.models))?;
        known("task", &tasks, used_tasks.chain(&selection.tasks))
    }
}

/// Checks whether every test is possible before training starts.
fn check(config: &RunConfig, tests: &[EvalSpec]) -> Result<(), LabError> {
    if tests.is_empty() {
        return Ok(());
    }
    let task = config.task.open()?;
    for EvalSpec { split, lengths, sequences, seed } in tests {
        task.split(split)?;
        if *sequences == 0 {
            return Err(LabError::Setting(format!(
                "a test of {split} has no sequences; set sequences to at least 1"
            )));
        }
        task.draw_length((lengths.from, lengths.to), Stream::new(*seed))?;
        task.draw_length((lengths.to, lengths.to), Stream::new(*seed))?;
    }
    Ok(())
}

/// Checks that all used names are known.
fn known<'a>(
    kind: &str,
    names: &[&String],
    mut used: impl Iterator<Item = &'a String>,
) -> Result<(), LabError> {
    let Some(name) = used.find(|name| !names.contains(name)) else { return Ok(()) };
    let all: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    Err(LabError::Setting(format!("no {kind} {name:?}; there are {}", all.join(", "))))
}

/// Returns whether a name is in a list. An empty list contains every name.
fn listed(list: &[String], name: &String) -> bool {
    list.is_empty() || list.contains(name)
}

/// Merges `over` into `table`, recursively.
fn merge(table: &mut Table, over: &Table) {
    for (key, value) in over {
        match (table.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(value)) => merge(below, value),
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
title = 'Two tasks'
seeds = [1, 2]
[[model]]
name = 'tra'
[[model]]
name = 'rope-qk'
attention = { name = 'rope', qk_norm = true }
seeds = [1]
quick = { model = { heads = 1 } }
[[task]]
name = 'unique'
settings = { name = 'copy-unique', alphabet = 40 }
[[task]]
name = 'letters'
settings = { name = 'copy', alphabet = 26 }
models = ['tra']
seeds = [2]
quick = { steps = 9, model = { dropout = 0.5 } }
[quick.run]
steps = 5
length = '1..6'
model = { size = 'tiny' }
[[quick.test]]
split = 'iid'
lengths = ['1..6', 8]
sequences = 3
[[quick.test]]
split = '51-100'
lengths = [20]
sequences = 2
models = ['tra']
tasks = ['letters']
[paper.run]
steps = 50
length = '1..40'
";

    fn experiment(text: &str) -> Grid {
        Grid::parse(text, Path::new("x.toml")).unwrap()
    }

    #[test]
    fn trials_are_those_of_the_file() {
        let file = experiment(FILE);
        let all = |selection: &Selection| file.trials(Scale::Quick, selection, Path::new("o"));
        let trials = all(&Selection::default()).unwrap();
        let names: Vec<_> = trials.iter().map(|t| t.cell.path.display().to_string()).collect();
        assert_eq!(names[..2], ["o/unique-tra-s1", "o/unique-rope-qk-s1"]);
        assert_eq!(names[2..], ["o/unique-tra-s2", "o/letters-tra-s2"]);
        let (first, rope, letters) = (&trials[0], &trials[1], &trials[3]);
        assert_eq!((first.cell.config.steps, letters.cell.config.steps), (5, 9));
        assert_eq!(letters.cell.config.model.decoder.dropout, 0.5);
        assert_eq!(letters.cell.config.model.size, Some(tra_nn::Size::Tiny));
        let heads = |trial: &Trial| trial.cell.config.model.decoder.heads;
        assert_eq!((heads(rope), heads(first)), (1, 2));
        assert!(
            format!("{:?}", rope.cell.config.model.decoder.attention).contains("qk_norm: true")
        );
        assert_eq!((first.tests.len(), letters.tests.len()), (2, 3));
        assert_eq!(first.tests[1].lengths, Lengths { from: 8, to: 8 });
        assert_eq!((first.tests[0].seed, trials[2].tests[0].seed), (1, 2));
        let some = Selection { models: vec!["tra".into()], seeds: vec![7], ..Default::default() };
        assert_eq!(
            all(&some).unwrap().len(),
            2,
            "including letters, whose own list has another seed"
        );
        let twice = Selection { seeds: vec![7, 7], ..some.clone() };
        assert_eq!(all(&twice).unwrap().len(), 2, "a seed listed twice is one run");
        let paper = file.trials(Scale::Paper, &some, Path::new("o")).unwrap();
        assert_eq!(paper[0].cell.config.steps, 50);
        let paper = file.trials(Scale::Paper, &Selection::default(), Path::new("o")).unwrap();
        assert_eq!(paper.len(), 6, "the lists of seeds are for the quick scale");
        let of_scale =
            experiment(&FILE.replace("[quick.run]", "[quick]\nseeds = [2]\n[quick.run]"));
        let trials = of_scale.trials(Scale::Quick, &Selection::default(), Path::new("o")).unwrap();
        assert_eq!(trials.len(), 2);
    }

    #[test]
    fn what_is_wrong_is_said_before_anything_runs() {
        for (from, to, part) in [
            ("models = ['tra']\ntasks", "models = ['trra']\ntasks", "trra"),
            ("tasks = ['letters']", "tasks = ['letter']", "letter"),
            ("split = 'iid'", "split = 'idd'", "idd"),
            ("steps = 5", "stepz = 5", "stepz"),
            ("name = 'rope-qk'", "name = 'tra'", "the same name"),
            ("lengths = ['1..6', 8]", "lengths = [41]", "41"),
            ("sequences = 3", "sequences = 0", "no sequences"),
            ("seeds = [1, 2]", "seeds = []", "no run"),
        ] {
            assert!(FILE.contains(from));
            let file = experiment(&FILE.replacen(from, to, 1));
            let error = file.trials(Scale::Quick, &Selection::default(), Path::new("o"));
            let error = error.unwrap_err().to_string();
            assert!(error.contains(part) && error.lines().count() == 1, "{error}");
        }
        let nobody = Selection { models: vec!["fox".into()], ..Default::default() };
        let error = experiment(FILE).trials(Scale::Quick, &nobody, Path::new("o")).unwrap_err();
        assert!(error.to_string().contains("there are tra, rope-qk"), "{error}");
        assert!(Grid::parse("title = 'x'\nseedz = []", Path::new("x")).is_err());
    }
}
