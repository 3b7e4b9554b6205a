//! Every file operation of a small run fails once, in every way. There is no panic and the error is
//! one line. The run then resumes to the same bytes as an undisturbed run.

mod common;

use std::path::Path;

use common::{Stop, config, go, go_until, read};
use tra_disk::fault::{Fault, inject};
use tra_lab::config::RunConfig;
use tra_lab::records::{EvalResult, Evaluation};
use tra_lab::run_dir::RunDir;

const FINAL: [&str; 5] = [
    "config.toml",
    "metrics.jsonl",
    "eval.json",
    "checkpoints/step-00000006/model.safetensors",
    "checkpoints/step-00000006/training.safetensors",
];

fn small() -> RunConfig {
    config(
        "steps=6\nsave_every=2\neval.every=3\neval.sequences=2\nkeep=1\nbatch=1\nmodel.layers=1\n\
         model.width=4\nmodel.heads=1\nlength=4",
    )
}

fn check(found: &Path, expected: &Path, how: &str) {
    for name in FINAL {
        assert!(read(found, name) == read(expected, name), "{how}: {name} differs");
    }
    let steps = |path| RunDir::open(path).unwrap().steps().unwrap();
    assert_eq!(steps(found), steps(expected), "{how}: the checkpoints differ");
    let folders = [found.to_path_buf(), found.join("checkpoints")];
    for entry in folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert!(!name.starts_with('.'), "{how}: {name} is left over");
    }
}

/// Trains with a fault at operation `at`. Returns the number of operations.
fn go_with(path: &Path, config: &RunConfig, at: u64, fault: Fault, how: &str) -> u64 {
    let injected = inject(path, at, fault);
    if let Err(error) = go(path, config) {
        let text = error.to_string();
        assert!(text.lines().count() == 1 && !text.contains("internal"), "{how}: {text}");
        assert!(at < u64::MAX, "{text}");
    }
    injected.operations()
}

/// Tries every fault at every operation of a run that starts from the state left by `prepare`.
fn every_fault(prepare: impl Fn(&Path)) -> u64 {
    let config = small();
    let whole = tempfile::tempdir().unwrap();
    go(whole.path(), &config).unwrap();
    let counted = tempfile::tempdir().unwrap();
    prepare(&counted.path().join("run"));
    let count = go_with(&counted.path().join("run"), &config, u64::MAX, Fault::NoSpace, "");
    for fault in Fault::ALL {
        for at in 0..count {
            let how = format!("{fault:?} at operation {at} of {count}");
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("run");
            prepare(&path);
            go_with(&path, &config, at, fault, &how);
            let outcome = go(&path, &config);
            outcome.unwrap_or_else(|error| panic!("{how}: it does not resume: {error}"));
            check(&path, whole.path(), &how);
        }
    }
    count * Fault::ALL.len() as u64
}

#[test]
fn a_new_run_survives_any_fault() {
    let faults = every_fault(|_| ());
    println!("{faults} faults");
    assert!(faults > 200, "{faults}: a run has more file operations");
}

#[test]
fn a_resumed_run_survives_any_fault() {
    let faults = every_fault(|path| {
        go_until(path, &small(), Stop::At(4)).unwrap();
        // A killed process also leaves lines after the checkpoint, the last of them incomplete.
        let metrics = path.join("metrics.jsonl");
        let text = std::fs::read_to_string(&metrics).unwrap();
        let line = text.lines().next().unwrap().replace("\"step\":1", "\"step\":5");
        std::fs::write(&metrics, format!("{text}{line}\n{{\"st")).unwrap();
    });
    println!("{faults} faults");
    assert!(faults > 100, "{faults}");
}

/// Existing results stay, even if adding new ones fails.
#[test]
fn adding_results_survives_any_fault() {
    let folder = tempfile::tempdir().unwrap();
    go(folder.path(), &small()).unwrap();
    let run = RunDir::open(folder.path()).unwrap();
    let before = run.evaluations().unwrap();
    let new = |n| Evaluation {
        step: 6,
        results: vec![EvalResult { split: "iid".into(), sequences: n, ..EvalResult::default() }],
    };
    let counted = inject(folder.path(), u64::MAX, Fault::NoSpace);
    run.add_evaluation(&new(100)).unwrap();
    let count = counted.operations();
    drop(counted);
    for fault in Fault::ALL {
        for at in 0..count {
            let injected = inject(folder.path(), at, fault);
            let added = run.add_evaluation(&new(200 + at));
            drop(injected);
            let all = run.evaluations().unwrap().at(6).results;
            assert!(before.at(6).results.iter().all(|result| all.contains(result)));
            // A result is either stored or reported as not stored.
            let kept = all.iter().any(|result| result.sequences == 200 + at);
            assert!(kept || added.is_err(), "{fault:?} at {at}");
            std::fs::write(
                folder.path().join("eval.json"),
                serde_json::to_string_pretty(&before).unwrap(),
            )
            .unwrap();
        }
    }
}
