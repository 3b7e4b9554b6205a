//! Settings of runs, sweeps and experiments.

use std::fs;
use std::path::Path;

use tra_fuzz::{Target, fuzz};
use tra_lab::config::RunConfig;
use tra_lab::reproduce::{Experiment, Scale, Selection};
use tra_lab::sweep::SweepConfig;

use super::{repository, text};

const WORDS: &[&str] = &[
    "steps",
    "batch",
    "accumulate",
    "length",
    "same_length",
    "curriculum",
    "lr",
    "warmup",
    "betas",
    "weight_decay",
    "clip",
    "save_every",
    "keep",
    "seed",
    "seeds",
    "eval",
    "sequences",
    "splits",
    "until_perfect",
    "[task]",
    "[model]",
    "[model.attention]",
    "name",
    "size",
    "layers",
    "width",
    "heads",
    "dropout",
    "sharpness",
    "tied",
    "alphabet",
    "copy",
    "copy-unique",
    "induct",
    "instruct",
    "addition",
    "flipflop",
    "text",
    "tra",
    "rope",
    "learned",
    "positions",
    "cope",
    "t5",
    "alibi",
    "asentmax",
    "differential",
    "sinusoidal",
    "tiny",
    "mini",
    "true",
    "false",
    "inf",
    "nan",
    "1..50",
    "'",
    "\"",
    "=",
    "[",
    "]",
    "{",
    "}",
    "{ from = 1, to = 2 }",
    "[[model]]",
    "[[task]]",
    "[quick.run]",
    "\u{e9}",
    "0x7fffffffffffffff",
];

const RUN: &str = "
steps = 5
batch = 2
accumulate = 2
length = '1..6'
same_length = true
lr = 1e-3
warmup = 0.1
optimizer = 'muon'
betas = [0.9, 0.98]
seed = 3
[curriculum]
from = 1
until = 0.5
shortest = 0.1
power = 1.0
widen = 2
[task]
name = 'copy-unique'
alphabet = 26
[eval]
every = 2
splits = ['iid']
sequences = 3
[model]
layers = 1
width = 8
heads = 2
dropout = 0.1
embedding_dropout = 0.1
sharpness = 0.5
[model.attention]
name = 'tra'
leak = 1.0
";

fn files(folder: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> =
        fs::read_dir(repository(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Returns runs that cover each task and each mechanism with all settings, so that all of them can
/// be mutated.
fn runs() -> Vec<Vec<u8>> {
    let tasks = [
        "flipflop",
        "copy",
        "copy-unique",
        "induct",
        "instruct",
        "reverse",
        "sort",
        "parity",
        "addition",
        "recall",
        "needle",
    ];
    let tasks = tasks.iter().map(|name| format!("task.name={name}"));
    let mechanisms = tra_nn::attention::mechanisms().map(|mechanism| mechanism.name);
    let mechanisms = mechanisms.map(|name| format!("model.attention.name={name}"));
    let written = tasks.chain(mechanisms).map(|set| {
        let config = RunConfig::read(None, Vec::new(), &[set]).unwrap();
        toml::to_string(&config).unwrap().into_bytes()
    });
    let text = b"[task]\nname = 'text'\ntext = '/no/such'\nholdout = 0.1\n".to_vec();
    let quick = fs::read(repository("configs/quick.toml")).unwrap();
    [RUN.as_bytes().to_vec(), quick, text].into_iter().chain(written).collect()
}

#[test]
fn run_config() {
    let target = Target { name: "run_config", file: "run.toml", corpus: runs(), words: WORDS };
    fuzz(&target, |path| {
        let config = text(RunConfig::read(Some(path), Vec::new(), &[]))?;
        for step in [0, 1, config.steps / 2, config.steps] {
            config.lengths_at(step);
            config.batch_at(step);
        }
        text(config.decoder(300)).map(drop)
    });
}

#[test]
fn sweep() {
    let corpus = vec![
        fs::read(repository("configs/sweep-quick.toml")).unwrap(),
        b"out = 'x'\nattention = ['tra', 'rope']\ntask = ['flipflop', 'copy']\nseeds = [1, 2, 3]\n[run]\nsteps = 5\n[run.model]\nsize = 'tiny'".to_vec(),
    ];
    let target = Target { name: "sweep", file: "sweep.toml", corpus, words: WORDS };
    fuzz(&target, |path| text(text(SweepConfig::read(path))?.cells()).map(drop));
}

#[test]
fn experiment() {
    let corpus = files("crates/tra-lab/experiments");
    let target = Target { name: "experiment", file: "experiment.toml", corpus, words: WORDS };
    fuzz(&target, |path| {
        let Ok(file) = fs::read_to_string(path) else { return Ok(()) };
        let grid = match text(Experiment::parse(&file, path))? {
            Experiment::Tasks(grid) | Experiment::Text(grid) => grid,
            Experiment::Timing(_) => return Ok(()),
        };
        for size in [Scale::Quick, Scale::Paper] {
            text(grid.trials(size, &Selection::default(), Path::new("out")))?;
        }
        Ok(())
    });
}
