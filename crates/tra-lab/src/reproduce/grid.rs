//! The file of an experiment that trains models: models x tasks x seeds, at one of two scales.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};
use tra_random::Stream;

use crate::config::{Lengths, RunConfig};
use crate::error::LabError;
use crate::eval::EvalSpec;
use crate::sweep::Cell;

/// An experiment that trains models, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// What stands above the table.
    pub title: String,
    /// Every run is made with each of them.
    pub seeds: Vec<u64>,
    /// The rows of the table.
    #[serde(rename = "model")]
    pub models: Vec<Model>,
    /// What they learn.
    #[serde(rename = "task")]
    pub tasks: Vec<TaskEntry>,
    /// What two cores do in an hour or so.
    pub quick: ScaleSettings,
    /// The paper's own sizes, steps and batch.
    pub paper: ScaleSettings,
}

/// A row of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// What it is called.
    pub name: String,
    /// The mechanism and its settings; missing: the mechanism of that name.
    pub attention: Option<Table>,
    /// With which seeds at quick scale; none means every one.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Settings of its runs that are not those of the scale.
    #[serde(default)]
    pub quick: Table,
    /// See `quick`.
    #[serde(default)]
    pub paper: Table,
}

/// Something to learn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskEntry {
    /// What it is called.
    pub name: String,
    /// The task and its settings.
    pub settings: Table,
    /// Who learns it; none means every model.
    #[serde(default)]
    pub models: Vec<String>,
    /// With which seeds at quick scale; none means every one.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Settings of its runs that are not those of the scale.
    #[serde(default)]
    pub quick: Table,
    /// See `quick`.
    #[serde(default)]
    pub paper: Table,
}

/// How large an experiment is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleSettings {
    /// In place of the experiment's, unless there are none.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Settings of every run, as in the config of a single one.
    pub run: Table,
    /// What trained models are tested on.
    #[serde(rename = "test", default)]
    pub tests: Vec<Test>,
    /// For tasks of text: which, and at which windows it is read.
    pub text: Option<TextSettings>,
}

/// The text of an experiment; where it is, the user says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextSettings {
    /// What `tra data get` calls it.
    pub set: String,
    /// Tokens of a tokenizer to be learned; missing: GPT-2's.
    pub vocab: Option<usize>,
    /// Windows at which perplexity is measured.
    pub windows: Vec<usize>,
    /// How many tokens of the test text; missing: all.
    pub limit: Option<usize>,
}

/// A column of the table, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// The split.
    pub split: String,
    /// The lengths, ascending.
    pub lengths: Vec<Lengths>,
    /// Sequences at each length.
    pub sequences: u64,
    /// Who is tested so; none means every model.
    #[serde(default)]
    pub models: Vec<String>,
    /// Who is not.
    #[serde(default)]
    pub except: Vec<String>,
    /// On which tasks; none means every task.
    #[serde(default)]
    pub tasks: Vec<String>,
}

/// Which of the two scales.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// An hour or so on two cores.
    #[default]
    Quick,
    /// The paper's own.
    Paper,
}

impl Scale {
    /// What users type.
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
        found.ok_or_else(|| format!("{name:?} is no scale; there are quick and paper"))
    }
}

/// One run of an experiment, and what it is tested on.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The name of the task.
    pub task: String,
    /// The name of the model.
    pub model: String,
    /// How to train it.
    pub cell: Cell,
    /// How to test it, in this order.
    pub tests: Vec<EvalSpec>,
}

/// What of an experiment is wanted; empty lists mean all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Names of models.
    pub models: Vec<String>,
    /// Names of tasks.
    pub tasks: Vec<String>,
    /// Seeds, in place of the experiment's.
    pub seeds: Vec<u64>,
}

impl Selection {
    /// Whether anything was chosen.
    pub(crate) fn is_some(&self) -> bool {
        !(self.models.is_empty() && self.tasks.is_empty() && self.seeds.is_empty())
    }
}

impl Grid {
    /// Understands a file.
    pub fn parse(text: &str, path: &Path) -> Result<Self, LabError> {
        toml::from_str(text).map_err(|e| LabError::config(path, text, &e))
    }

    /// The settings of a scale.
    pub fn scale(&self, scale: Scale) -> &ScaleSettings {
        match scale {
            Scale::Quick => &self.quick,
            Scale::Paper => &self.paper,
        }
    }

    /// All runs in a fixed order, every one of them checked: the first seed of every model, then the
    /// second, so that a table with fewer seeds is there early.
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
            // One that is listed twice is still one run, and one row of a mean.
            if !seen.insert(*seed) {
                continue;
            }
            // Seeds that were asked for take the place of every list of the file.
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
                "no run has all of the models, tasks and seeds asked for, or there are no seeds"
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

    /// Every name that is used must be there, and none twice.
    pub fn check_names(&self, scale: Scale, selection: &Selection) -> Result<(), LabError> {
        let models: Vec<&String> = self.models.iter().map(|model| &model.name).collect();
        let tasks: Vec<&String> = self.tasks.iter().map(|task| &task.name).collect();
        for (kind, names) in [("model", &models), ("task", &tasks)] {
            if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
                return Err(LabError::Setting(format!("two {kind}s have one name")));
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

/// Says which test cannot be made, if there is one: now, and not after the training.
fn check(config: &RunConfig, tests: &[EvalSpec]) -> Result<(), LabError> {
    if tests.is_empty() {
        return Ok(());
    }
    let task = config.task.open()?;
    for EvalSpec { split, lengths, sequences, seed } in tests {
        task.split(split)?;
        if *sequences == 0 {
            return Err(LabError::Setting(format!("a test of {split} has no sequences")));
        }
        task.draw_length((lengths.from, lengths.to), Stream::new(*seed))?;
        task.draw_length((lengths.to, lengths.to), Stream::new(*seed))?;
    }
    Ok(())
}

/// Says so if a name is used that is not among the known ones.
fn known<'a>(
    kind: &str,
    names: &[&String],
    mut used: impl Iterator<Item = &'a String>,
) -> Result<(), LabError> {
    let Some(name) = used.find(|name| !names.contains(name)) else { return Ok(()) };
    let all: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    Err(LabError::Setting(format!("no {kind} {name:?}; there are {}", all.join(", "))))
}

/// Whether a name is in a list, of which an empty one means all.
fn listed(list: &[String], name: &String) -> bool {
    list.is_empty() || list.contains(name)
}

/// Puts what is in `over` into `table`, table by table.
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
        assert_eq!(all(&some).unwrap().len(), 2, "with the letters, whose own seed is another");
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
            ("name = 'rope-qk'", "name = 'tra'", "one name"),
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
