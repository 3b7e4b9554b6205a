//! Runs that were damaged, edited or stopped at a bad moment. Each is either refused with a clear
//! error before anything is written, or resumes to the same bytes.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use common::{Stop, check_same, config, go, go_until, session};
use tra_lab::config::RunConfig;
use tra_lab::records::{EvalResult, EvaluationRecord, Metric};
use tra_lab::run_dir::RunDir;
use tra_lab::train::End;

/// Returns every file of a folder with its bytes.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(contents(&path)),
            false => drop(all.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    all
}

/// Returns the error of a resume that must fail without changing any file.
fn refused(path: &Path, config: &RunConfig) -> String {
    let before = contents(path);
    let error = go(path, config).map(|outcome| outcome.position.step).unwrap_err().to_string();
    assert!(contents(path) == before, "{error}: files were changed");
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(path, text.replacen(from, to, 1)).unwrap();
}

fn checkpoint_files(path: &Path, name: &str) -> Vec<PathBuf> {
    let steps = RunDir::open(path).unwrap().steps().unwrap();
    let file = |step| path.join(format!("checkpoints/step-{step:08}")).join(name);
    steps.into_iter().map(file).collect()
}

#[test]
fn what_must_stay_may_not_change() {
    let folder = tempfile::tempdir().unwrap();
    let settings = config("steps=8");
    go(folder.path(), &settings).unwrap();
    for (change, part) in [
        ("optimizer=muon", "another optimizer"),
        ("seed=2", "another seed"),
        ("model.layers=1", "another model"),
        ("task.name=copy", "another task"),
    ] {
        let changed = config(&format!("steps=12\n{change}"));
        let error = refused(folder.path(), &changed);
        assert!(error.contains(part) && error.contains("--out"), "{error}");
    }
    // Other settings may change.
    let outcome = go(folder.path(), &config("steps=12\nlr=5e-4")).unwrap();
    assert_eq!(outcome.position.step, 12);
}

/// The checkpoint is compared too, so editing `config.toml` by hand does not help.
#[test]
fn settings_are_compared_with_the_checkpoint() {
    for (from, to, part) in [
        ("horizon = \"rounding\"\nname = \"tra\"", "name = \"rope\"", "another model"),
        ("seed = 1", "seed = 2", "another seed"),
        ("lr = 0.001", "lr = 0.001\noptimizer = \"muon\"", "damaged"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        go(folder.path(), &config("steps=8")).unwrap();
        let file = folder.path().join("config.toml");
        edit(&file, from, to);
        edit(&file, "steps = 8", "steps = 12");
        let run = RunDir::open(folder.path()).unwrap();
        let error = refused(folder.path(), &run.config().unwrap());
        assert!(error.contains(part), "{error}");
        if to.contains("rope") {
            let error = run.newest_model(&Device::flex(), |_| {}).unwrap_err().to_string();
            assert!(
                error.contains("\"rope\" in config.toml and \"tra\" in the checkpoint"),
                "{error}"
            );
        }
    }
}

#[test]
fn checkpoints_that_cannot_be_read_are_named_and_nothing_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    go(folder.path(), &config("steps=8")).unwrap();
    for file in checkpoint_files(folder.path(), "training.safetensors") {
        std::fs::write(file, "").unwrap();
    }
    let error = refused(folder.path(), &config("steps=12"));
    assert!(error.contains("8 is damaged") && error.contains("4 is damaged"), "{error}");
    let run = RunDir::open(folder.path()).unwrap();
    assert!(run.newest_model(&Device::flex(), |_| {}).is_ok(), "the models are undamaged");
    for file in checkpoint_files(folder.path(), "model.safetensors") {
        std::fs::write(file, "{}").unwrap();
    }
    let error = run.newest_model(&Device::flex(), |_| {}).unwrap_err().to_string();
    assert!(error.contains("8 is damaged") && !error.contains("train it first"), "{error}");
    std::fs::remove_dir_all(folder.path().join("checkpoints")).unwrap();
    let error = refused(folder.path(), &config("steps=12"));
    assert!(error.contains("its checkpoints are gone, although it has taken 8 steps"), "{error}");
}

/// A flipped bit in either file is noticed, or changes nothing that is read.
#[test]
fn a_flipped_bit_in_a_checkpoint_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let config = config("steps=1\nmodel.layers=1\nmodel.width=4\nmodel.heads=1\neval.every=0");
    go(folder.path(), &config).unwrap();
    let run = RunDir::open(folder.path()).unwrap();
    let device = Device::flex().autodiff();
    let load = || {
        let loaded = run.newest(config.optimizer(), &device, |_| {}).ok()??;
        let (model, memory) = (loaded.decoder.parameters(), loaded.optimizer.tensors());
        Some((model, memory, loaded.position, loaded.settings))
    };
    let whole = load().unwrap();
    let mut unnoticed = 0;
    for name in ["model.safetensors", "training.safetensors"] {
        let file = &checkpoint_files(folder.path(), name)[0];
        let bytes = std::fs::read(file).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(file, &damaged).unwrap();
            if let Some(found) = load() {
                assert!(found == whole, "byte {at} of {name}");
                unnoticed += 1;
            }
        }
        std::fs::write(file, bytes).unwrap();
    }
    assert!(unnoticed < 40, "{unnoticed}: only blanks and the name of the checksum");
}

#[test]
fn a_checkpoint_without_checksum_or_settings_still_opens() {
    use tra_nn::checkpoint::TensorFile;
    let folder = tempfile::tempdir().unwrap();
    let whole = tempfile::tempdir().unwrap();
    go(whole.path(), &config("")).unwrap();
    go_until(folder.path(), &config(""), Stop::At(8)).unwrap();
    for name in ["model.safetensors", "training.safetensors"] {
        for path in checkpoint_files(folder.path(), name) {
            let mut file = TensorFile::read(&path).unwrap();
            file.metadata.remove("settings");
            let views = file.tensors.iter();
            let plain =
                safetensors::serialize(views, Some(file.metadata.into_iter().collect())).unwrap();
            std::fs::write(path, plain).unwrap();
        }
    }
    // An `eval.json` of an older version.
    let run = RunDir::open(folder.path()).unwrap();
    let old = run.evaluations().unwrap().at(6);
    std::fs::write(folder.path().join("eval.json"), serde_json::to_string(&old).unwrap()).unwrap();
    assert_eq!(go(folder.path(), &config("")).unwrap().end, End::Finished);
    let run = |path: &Path| RunDir::open(path).unwrap();
    let model = |path: &Path| run(path).model(12, &Device::flex()).unwrap().parameters();
    assert!(model(folder.path()) == model(whole.path()));
    assert_eq!(run(folder.path()).evaluations().unwrap().at(6), old);
}

#[test]
fn only_a_torn_last_line_of_metrics_is_dropped() {
    let (folder, whole) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    go(whole.path(), &config("")).unwrap();
    go_until(folder.path(), &config(""), Stop::At(7)).unwrap();
    let metrics = folder.path().join("metrics.jsonl");
    let lines = std::fs::read_to_string(&metrics).unwrap();
    std::fs::write(&metrics, lines.replacen("\"step\":3", "\"step\":x", 1)).unwrap();
    let error = refused(folder.path(), &config(""));
    assert!(error.contains("metrics.jsonl") && error.contains("line 3"), "{error}");
    std::fs::write(&metrics, format!("{lines}{{\"step\":8,\"lo")).unwrap();
    go(folder.path(), &config("")).unwrap();
    check_same(folder.path(), whole.path(), "an incomplete last line");
}

#[test]
fn a_folder_with_parts_of_a_run_is_no_place_for_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    go(folder.path(), &config("steps=4")).unwrap();
    std::fs::remove_file(folder.path().join("config.toml")).unwrap();
    let error = refused(folder.path(), &config(""));
    assert!(error.contains("metrics.jsonl") && error.contains("checkpoints"), "{error}");
}

/// Regression test: with a damaged newest checkpoint and `keep = 1`, pruning removed the one just
/// written.
#[test]
fn the_checkpoint_just_written_is_never_removed() {
    let folder = tempfile::tempdir().unwrap();
    let settings = config("keep=1\nsave_every=2\neval.every=0\nsteps=8");
    go(folder.path(), &settings).unwrap();
    let run = RunDir::open(folder.path()).unwrap();
    assert_eq!(run.steps().unwrap(), [8]);
    // As if step 8 had been damaged while the checkpoint of step 4 still existed.
    let older = tempfile::tempdir().unwrap();
    go(older.path(), &config("keep=1\nsave_every=4\neval.every=0\nsteps=4")).unwrap();
    let place = |step| folder.path().join(format!("checkpoints/step-{step:08}"));
    std::fs::rename(older.path().join("checkpoints/step-00000004"), place(4)).unwrap();
    std::fs::write(place(8).join("model.safetensors"), "").unwrap();
    let outcome = go_until(folder.path(), &settings, Stop::At(5)).unwrap();
    assert_eq!(outcome.position.step, 5);
    assert_eq!(run.steps().unwrap(), [4, 5, 8], "the last due one and the one just written");
    assert_eq!(go(folder.path(), &settings).unwrap().end, End::Finished);
    assert_eq!(run.steps().unwrap(), [8]);
}

#[test]
fn nothing_is_left_of_a_run_that_was_perfect() {
    let folder = tempfile::tempdir().unwrap();
    let settings = config("eval.until_perfect=1\neval.every=2\nsteps=6");
    go_until(folder.path(), &settings, Stop::At(2)).unwrap();
    // Adds an evaluation in which everything was right.
    let result = EvalResult { split: "iid".into(), exact_match: 1.0, ..EvalResult::default() };
    let line = Metric::Evaluation(EvaluationRecord { step: 2, results: vec![result] });
    let line = serde_json::to_string(&line).unwrap() + "\n";
    let metrics = folder.path().join("metrics.jsonl");
    let before = std::fs::read_to_string(&metrics).unwrap();
    std::fs::write(&metrics, before + &line).unwrap();
    assert_eq!(session(folder.path(), &settings).unwrap().ended(), Some(End::Perfect));
    let more = config("eval.until_perfect=2\neval.every=2\nsteps=6");
    assert_eq!(session(folder.path(), &more).unwrap().ended(), None);
}

/// Sequences that cannot be drawn are reported before the first step.
#[test]
fn evaluations_that_cannot_be_made_are_refused_beforehand() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let settings = config("task.name=copy-unique\ntask.alphabet=26\nlength=4..20");
    let error = session(&path, &settings).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("201-300") && error.contains("--eval-splits iid"), "{error}");
    assert!(!path.join("config.toml").exists());
    let settings =
        config("task.name=copy-unique\ntask.alphabet=26\nlength=4..20\neval.splits=[\"iid\"]");
    assert!(session(&path, &settings).is_ok());
}

/// An evaluation with a NaN loss can be read, is never the best, and is not called good.
#[test]
fn a_diverged_evaluation_is_read_back_and_never_good() {
    let folder = tempfile::tempdir().unwrap();
    let settings = config("save_every=2\neval.every=2\nkeep=9\nsteps=12");
    go_until(folder.path(), &settings, Stop::At(7)).unwrap();
    let run = RunDir::open(folder.path()).unwrap();
    let metrics = folder.path().join("metrics.jsonl");
    let text = std::fs::read_to_string(&metrics).unwrap();
    let nan = |line: &str| match line.starts_with("{\"step\":6,\"results\"") {
        true => {
            let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
            value["results"][0]["loss"] = serde_json::Value::Null;
            format!("{value}\n")
        }
        false => format!("{line}\n"),
    };
    std::fs::write(&metrics, text.lines().map(nan).collect::<String>()).unwrap();
    assert_ne!(run.best_step().unwrap(), 6);
    assert_eq!(run.metrics().unwrap().len(), text.lines().count());
    let worse =
        config("save_every=2\neval.every=2\nkeep=9\nsteps=12\nlr=1e30\nclip=0.0\nwarmup=0.0");
    let error = go(folder.path(), &worse).unwrap_err().to_string();
    assert!(error.contains("diverged"), "{error}");
    assert_eq!(run.failure().unwrap(), Some(error));
}
