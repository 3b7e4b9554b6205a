//! A tiny run for tests, and functions to train it.
#![allow(dead_code)] // Every test file uses a part of this module.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::Device;
use tra_lab::LabError;
use tra_lab::config::RunConfig;
use tra_lab::observer::{self, Event, Observer};
use tra_lab::run_dir::RunDir;
use tra_lab::session::Session;
use tra_lab::train::{Outcome, train};

const TINY: &str = "steps = 12\nbatch = 3\nlength = '4..20'\nlr = 1e-3\nsave_every = 4\n\
    [eval]\nevery = 6\nsequences = 4\n[model]\nlayers = 2\nwidth = 12\nheads = 2\ndropout = 0.2\n";

/// Returns the settings of the tiny run, changed by `extra`: one `--set` value per line.
pub fn config(extra: &str) -> RunConfig {
    let set: Vec<String> = extra.lines().map(String::from).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TINY).unwrap();
    RunConfig::read(Some(file.path()), Vec::new(), &set).unwrap()
}

/// When to interrupt a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stop {
    Never,
    /// The run stops at this step.
    At(u64),
    /// In the middle of the evaluation at this step.
    InEvaluation(u64),
}

/// An observer that prints nothing and may interrupt the run.
pub struct Silent<'a> {
    stop: Stop,
    step: u64,
    /// Steps between evaluations.
    every: u64,
    interrupted: &'a AtomicBool,
}

impl Silent<'_> {
    /// Does not interrupt if an evaluation comes first, because that would interrupt the
    /// evaluation.
    fn look_unless_evaluated(&mut self) {
        if self.step == 0 || self.every == 0 || !self.step.is_multiple_of(self.every) {
            self.look(self.step);
        }
    }

    fn look(&mut self, at: u64) {
        if self.stop == Stop::At(at + 1) {
            self.interrupted.store(true, Ordering::SeqCst);
        }
    }
}

impl Observer for Silent<'_> {
    fn event(&mut self, event: Event) {
        match event {
            Event::Step { record, .. } => {
                self.step = record.step;
                self.look_unless_evaluated();
            }
            Event::Evaluating { .. } if self.stop == Stop::InEvaluation(self.step) => {
                self.interrupted.store(true, Ordering::SeqCst);
            }
            Event::Evaluated(record) => self.look(record.step),
            _ => {}
        }
    }
}

/// Returns a session in the folder: resumed if there is a run, new otherwise.
pub fn session(path: &Path, config: &RunConfig) -> Result<Session, LabError> {
    let (lock, task) = (RunDir::lock(path)?, config.task.open()?);
    let config = config.clone();
    Session::start_locked(path, lock, config, task, &Device::flex(), &mut observer::Silent)
}

/// Trains from the current state of the folder until `stop`.
pub fn go_until(path: &Path, config: &RunConfig, stop: Stop) -> Result<Outcome, LabError> {
    let mut session = session(path, config)?;
    let interrupted = AtomicBool::new(false);
    let every = config.eval.every;
    let mut observer = Silent { stop, step: session.step(), every, interrupted: &interrupted };
    observer.look_unless_evaluated();
    train(&mut session, &interrupted, &mut observer)
}

/// Trains from the current state of the folder to the end.
pub fn go(path: &Path, config: &RunConfig) -> Result<Outcome, LabError> {
    go_until(path, config, Stop::Never)
}

pub fn read(path: &Path, name: &str) -> Vec<u8> {
    std::fs::read(path.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Files that must be the same however the run reached its end.
pub const FINAL: [&str; 4] = [
    "metrics.jsonl",
    "eval.json",
    "checkpoints/step-00000012/model.safetensors",
    "checkpoints/step-00000012/training.safetensors",
];

/// Checks that two finished tiny runs are the same.
pub fn check_same(found: &Path, expected: &Path, how: &str) {
    for name in FINAL {
        assert!(read(found, name) == read(expected, name), "{how}: {name} differs");
    }
    let steps = |path| RunDir::open(path).unwrap().steps().unwrap();
    assert_eq!(steps(found), steps(expected), "{how}: the checkpoints differ");
}
