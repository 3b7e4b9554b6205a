//! The files of a run directory.

use std::fs;
use std::path::Path;

use tra_fuzz::{Target, fuzz, put};
use tra_lab::config::RunConfig;
use tra_lab::run_dir::RunDir;

use super::text;

const STEP: &str = r#"{"step":1,"loss":0.5,"lr":0.001,"grad_norm":1.5,"tokens":128}"#;
const RESULTS: &str = r#"{"step":2,"results":[{"split":"iid","length":128,"shortest":128,"sequences":4,"exact_match":0.75,"exact_match_interval":[0.3,0.95],"scored":12,"token_error":0.1,"token_error_interval":[0.0,0.2],"loss":0.25,"loss_interval":[0.2,0.3]}]}"#;

/// Replaces one file of a run with each input, and opens the run.
fn fuzz_file(name: &str, file: &str, seeds: &[&str], read: impl Fn(&RunDir) -> Result<(), String>) {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    RunDir::create(&run, &RunConfig::default()).unwrap();
    let words = ["step", "loss", "results", "null", "NaN", "\"", "{", "}", "[", "]", "\n", ","];
    let target = Target {
        name,
        file,
        corpus: seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect(),
        words: &words,
    };
    fuzz(&target, |path: &Path| {
        put(&run.join(file), &fs::read(path).unwrap());
        read(&text(RunDir::open(&run))?)
    });
}

#[test]
fn metrics() {
    let seed = format!("{STEP}\n{RESULTS}\n{STEP}\n");
    fuzz_file("metrics", "metrics.jsonl", &[&seed], |run| text(run.metrics()).map(drop));
}

#[test]
fn evaluation() {
    // The current format, and the old one with a single step.
    let seed = format!("{{\"evaluations\":[{RESULTS}]}}");
    let seeds = [seed.as_str(), RESULTS];
    fuzz_file("evaluation", "eval.json", &seeds, |run| text(run.evaluations()).map(drop));
}

#[test]
fn perplexity() {
    let seed = r#"{"step":2,"text":"a.txt","content":"ab","tokens":5,"bytes":20,"results":[{"protocol":"chunk","window":128,"stride":128,"loss":3.5,"loss_interval":[3.4,3.6],"perplexity":33.1,"perplexity_interval":[30.0,36.6],"bits_per_byte":1.2,"change":{"against":128,"loss":0.1,"loss_interval":[0.0,0.2]},"by_position":[{"from":1,"to":1,"tokens":2,"loss":4.0}]}]}"#;
    let all = format!("{{\"measured\":[{seed}]}}");
    let seeds = [all.as_str(), seed];
    fuzz_file("perplexity", "perplexity.json", &seeds, |run| text(run.perplexities()).map(drop));
}
