//! Run directories of earlier versions still open and resume to the same losses.
//!
//! `fixtures/run-0.1.0` was written by version 0.1.0 as of 2026-11-18. `run-0.1.0-resumed.jsonl`
//! contains what that version recorded when it resumed the run with `--steps 9`.

mod common;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use common::go;
use tra_lab::eval::{EvalSpec, evaluate};
use tra_lab::records::Metric;
use tra_lab::run_dir::RunDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn losses(metrics: &[Metric]) -> Vec<f64> {
    let loss = |metric: &Metric| match metric {
        Metric::Step(record) => Some(record.loss),
        Metric::Evaluation(_) => None,
    };
    metrics.iter().filter_map(loss).collect()
}

#[test]
fn a_run_of_0_1_0_evaluates_as_recorded() {
    let run = RunDir::open(&fixture("run-0.1.0")).unwrap();
    let config = run.config().unwrap();
    let task = config.task.open().unwrap();
    let (step, decoder) = run.newest_model(&Device::flex(), |text| panic!("{text}")).unwrap();
    assert_eq!(step, 6);
    let recorded = run.evaluations().unwrap().at(6);
    assert_eq!(recorded.results.len(), 2);
    for expected in recorded.results {
        let lengths = config.split_lengths(&expected.split).unwrap();
        let split = expected.split.clone();
        let spec = EvalSpec { split, lengths, sequences: 8, seed: config.seed };
        let result = evaluate(&decoder, &task, &spec, &AtomicBool::new(false), |_| {});
        let result = result.unwrap().unwrap();
        assert_eq!(result.exact_match, expected.exact_match);
        assert!((result.loss - expected.loss).abs() < 1e-5, "{result:?}");
    }
}

#[test]
fn a_run_of_0_1_0_resumes_to_the_recorded_losses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    copy(&fixture("run-0.1.0"), &path);
    let mut config = RunDir::open(&path).unwrap().config().unwrap();
    config.steps = 9;
    go(&path, &config).unwrap();
    let found = losses(&RunDir::open(&path).unwrap().metrics().unwrap());
    let recorded = std::fs::read_to_string(fixture("run-0.1.0-resumed.jsonl")).unwrap();
    let recorded: Vec<Metric> =
        recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let recorded = losses(&recorded);
    assert_eq!(found.len(), 9);
    for (found, recorded) in found.iter().zip(&recorded) {
        assert!((found - recorded).abs() < 1e-5, "{found} {recorded}");
    }
}
