//! Checks that the results in `docs/results` match the current experiments.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tra_lab::config::RunConfig;
use tra_lab::reproduce::{Grid, Scale, Selection};

/// For each folder of results: the experiment file, the folder and its tasks.
const KEPT: [(&str, &str, &[&str]); 12] = [
    ("crates/tra-lab/experiments/flipflop.toml", "flipflop", &["flipflop"]),
    ("crates/tra-lab/experiments/flipflop.toml", "flipflop-second-machine", &["flipflop"]),
    ("docs/results/flipflop-800-steps/experiment.toml", "flipflop-800-steps", &["flipflop"]),
    ("docs/results/flipflop-muon/experiment.toml", "flipflop-muon", &["flipflop"]),
    ("crates/tra-lab/experiments/copy.toml", "copy", &["unique"]),
    ("crates/tra-lab/experiments/copy.toml", "copy-fresh", &["unique"]),
    ("crates/tra-lab/experiments/repeats.toml", "repeats", &["256", "64", "26"]),
    ("crates/tra-lab/experiments/rivals.toml", "rivals", &["unique"]),
    ("crates/tra-lab/experiments/induct.toml", "induct", &["induct"]),
    ("crates/tra-lab/experiments/instruct.toml", "instruct", &["unique"]),
    ("crates/tra-lab/experiments/instruct.toml", "instruct-fresh", &["unique"]),
    ("crates/tra-lab/experiments/ablation.toml", "ablation", &["induct"]),
];

/// The seeds on which settings were chosen, then fresh ones.
const SEEDS: [u64; 6] = [1, 2, 3, 4, 101, 102];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn runs(folder: &str) -> Vec<Value> {
    let path = root().join("docs/results").join(folder).join("results.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["scale"], "quick");
    all["runs"].as_array().unwrap().clone()
}

/// The command reproduces the reported runs, with the same settings and tests.
#[test]
fn every_kept_run_is_one_of_its_experiment() {
    let mut checked = BTreeSet::new();
    for (name, folder, tasks) in KEPT {
        let path = root().join(name);
        let experiment = Grid::parse(&std::fs::read_to_string(&path).unwrap(), &path).unwrap();
        let selection = Selection { seeds: SEEDS.to_vec(), ..Selection::default() };
        let trials = experiment.trials(Scale::Quick, &selection, Path::new("out")).unwrap();
        let here = |run: &Value| tasks.iter().any(|task| run["task"] == *task);
        let all = runs(folder).into_iter().enumerate();
        for (number, run) in all.filter(|(_, run)| here(run)) {
            checked.insert((folder, number));
            let (task, model) = (run["task"].as_str().unwrap(), run["model"].as_str().unwrap());
            let settings = toml::Table::try_from(&run["settings"]).unwrap();
            let settings = RunConfig::recorded(settings, &path).unwrap();
            let what = format!("{name}: {task} {model}, seed {}", settings.seed);
            let same = |t: &&tra_lab::reproduce::Trial| {
                t.task == task && t.model == model && t.cell.config.seed == settings.seed
            };
            let trial =
                trials.iter().find(same).unwrap_or_else(|| panic!("{what} is no run of it"));
            assert_eq!(trial.cell.config, settings, "{what}");
            assert_eq!(run["step"], settings.steps, "{what}");
            for result in run["results"].as_array().unwrap() {
                let asked = trial.tests.iter().any(|spec| {
                    result["split"] == spec.split.as_str()
                        && result["shortest"] == spec.lengths.from
                        && result["length"] == spec.lengths.to
                        && result["sequences"] == spec.sequences
                });
                assert!(asked, "{what}: {result}");
            }
        }
    }
    let all = KEPT.iter().flat_map(|(_, folder, _)| {
        runs(folder).into_iter().enumerate().map(|(number, _)| (*folder, number))
    });
    assert_eq!(checked, all.collect(), "every run of a folder is one of an experiment");
}

/// Every mechanism has four seeds. TRA gets every read right, more than four million in total.
#[test]
fn flip_flop_has_every_mechanism_and_every_read_of_tra_right() {
    let all = runs("flipflop");
    for name in tra_nn::attention::mechanisms().map(|mechanism| mechanism.name) {
        let seeds = all.iter().filter(|run| run["model"] == name).count();
        assert_eq!(seeds, 4, "{name}");
    }
    let mut reads = 0;
    for run in all.iter().filter(|run| run["model"] == "tra") {
        let results = run["results"].as_array().unwrap();
        let lengths: Vec<u64> = results.iter().map(|r| r["length"].as_u64().unwrap()).collect();
        assert_eq!(lengths, [512, 512, 512, 1024, 4096, 16_384, 65_536]);
        for result in results {
            assert_eq!(
                (&result["exact_match"], &result["token_error"]),
                (&1.0.into(), &0.0.into())
            );
            reads += result["scored"].as_u64().unwrap();
        }
    }
    assert_eq!(reads, 4_011_914);
}
