//! A stress test of concurrent commands.
//!
//! For a minute, random train, sweep, eval and report commands work on one run directory, and are
//! killed at random. In the end, the run has the same bytes as an undisturbed one, and contains
//! every result that a successful command printed.
#![cfg(unix)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use serde_json::Value;

const STEPS: u64 = 4000;
/// Default duration. `TRA_CHAOS_SECONDS` overrides it.
const SECONDS: u64 = 60;
/// Fixed, so that failures can be investigated. Only the timing of the machine varies.
const SEED: u64 = 23;
/// Number of concurrent commands.
const AT_ONCE: usize = 3;

/// Errors that concurrent commands may print. Any other error is a defect.
const EXPECTED: [&str; 2] = ["another process is training this run", "has no checkpoint yet"];

fn grid(out: &Path) -> String {
    format!(
        "out = {out:?}\nattention = ['tra']\ntask = ['flipflop']\nseeds = [1]\n\
         [run]\nsteps = {STEPS}\nbatch = 2\nlength = '4..12'\nsave_every = 25\nkeep = 3\n\
         [run.eval]\nevery = 200\nsequences = 8\n[run.model]\nlayers = 1\nwidth = 8\nheads = 2\n"
    )
}

/// Writes the file of a grid with one run. Returns the file and the run directory.
fn prepare(folder: &Path, name: &str) -> (String, PathBuf) {
    let (file, out) = (folder.join(format!("{name}.toml")), folder.join(name));
    std::fs::write(&file, grid(&out)).unwrap();
    (file.to_str().unwrap().into(), out.join("flipflop-tra-s1"))
}

/// A small random number generator. The test must not depend on that of another crate.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

struct Running {
    child: Child,
    arguments: Vec<String>,
    /// Which signal it is sent, and when.
    end: Option<(Instant, &'static str)>,
    signalled: bool,
}

impl Running {
    fn start(random: &mut Random, file: &str, run: &str) -> Self {
        let sequences = (1 + random.below(40)).to_string();
        let arguments: Vec<&str> = match random.below(8) {
            0 | 1 => vec!["train", "--resume", run],
            2 | 3 => vec!["sweep", file],
            4 => vec!["report", run, "--no-pictures"],
            5 => vec!["eval", run, "--split", "dense", "--lengths", "20", "--json"],
            _ => vec!["eval", run, "--split", "iid", "--sequences", &sequences, "--json"],
        };
        let trains = ["train", "sweep"].contains(&arguments[0]);
        let signals = ["-KILL", "-KILL", "-TERM", "-INT", "-HUP"];
        let signal = signals[random.below(signals.len() as u64) as usize];
        // Training is always killed, other commands one time in four.
        let wait = Duration::from_millis(random.below(if trains { 900 } else { 120 }));
        let end = (trains || random.below(4) == 0).then(|| (Instant::now() + wait, signal));
        let child =
            command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let arguments = arguments.into_iter().map(String::from).collect();
        Self { child, arguments, end, signalled: false }
    }

    fn is_over(&mut self) -> bool {
        if let Some((when, signal)) = self.end
            && !self.signalled
            && Instant::now() >= when
        {
            let _ = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
            self.signalled = true;
        }
        self.child.try_wait().unwrap().is_some()
    }

    /// Returns the output of a successful evaluation.
    fn finish(self) -> Option<Value> {
        let output = self.child.wait_with_output().unwrap();
        let (said, error) = (text(&output.stdout), text(&output.stderr));
        assert!(!error.contains("internal") && !error.contains("panicked"), "{error}");
        for line in error.lines().filter_map(|line| line.strip_prefix("error: ")) {
            let expected = EXPECTED.iter().any(|part| line.contains(part));
            assert!(expected, "{:?}: {line}", self.arguments);
        }
        let warned = error.lines().any(|line| line.starts_with("warning: "));
        assert!(!warned, "{:?}: {error}", self.arguments);
        let result = self.arguments[0] == "eval" && output.status.success();
        result.then(|| serde_json::from_str(&said).unwrap())
    }
}

#[test]
fn commands_at_random_end_in_the_undisturbed_run() {
    let folder = tempfile::tempdir().unwrap();
    let (file, run) = prepare(folder.path(), "disturbed");
    let place = run.to_str().unwrap();
    let seconds = std::env::var("TRA_CHAOS_SECONDS").ok().and_then(|s| s.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS));
    let mut random = Random(SEED);
    // The first command must create the run, so that the others have something to work on.
    let mut first = command(&["sweep", &file]).stderr(Stdio::null()).spawn().unwrap();
    wait_for(&run.join("checkpoints/step-00000025"), &mut first);
    let _ = first.kill();
    first.wait().unwrap();

    let (mut running, mut printed, mut commands, mut signals): (Vec<Running>, Vec<Value>, _, _) =
        (Vec::new(), Vec::new(), 0, 0);
    while Instant::now() < end || !running.is_empty() {
        if Instant::now() < end && running.len() < AT_ONCE {
            running.push(Running::start(&mut random, &file, place));
            commands += 1;
        }
        for at in (0..running.len()).rev() {
            if running[at].is_over() {
                let over = running.remove(at);
                signals += usize::from(over.signalled);
                printed.extend(over.finish());
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    ok(&["sweep", &file]);
    println!("{commands} commands, {signals} signals, {} evaluations printed", printed.len());
    assert!(printed.len() > 5 && signals > 5, "there was something to lose");

    let (file, whole) = prepare(folder.path(), "whole");
    ok(&["sweep", &file]);
    check_same(&run, &whole);
    check_printed(&run, &printed);
}

fn check_same(run: &Path, whole: &Path) {
    let last = format!("checkpoints/step-{STEPS:08}");
    let names = ["metrics.jsonl".into(), "config.toml".into(), format!("{last}/model.safetensors")];
    for name in names.into_iter().chain([format!("{last}/training.safetensors")]) {
        let read = |run: &Path| std::fs::read(run.join(&name)).unwrap();
        assert!(read(run) == read(whole), "{name} differs");
    }
    let checkpoints = |run: &Path| {
        let entries = std::fs::read_dir(run.join("checkpoints")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(checkpoints(run), checkpoints(whole));
    let left = std::fs::read_dir(run).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with(".eval")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Checks that every printed result is in `eval.json`, under its step.
fn check_printed(run: &Path, printed: &[Value]) {
    let file: Value =
        serde_json::from_slice(&std::fs::read(run.join("eval.json")).unwrap()).unwrap();
    let kept = file["evaluations"].as_array().unwrap();
    for evaluation in printed {
        let of_step = kept.iter().find(|other| other["step"] == evaluation["step"]);
        let of_step = of_step.unwrap_or_else(|| panic!("step {} is lost", evaluation["step"]));
        let all = of_step["results"].as_array().unwrap();
        let is_kept = |result: &Value| all.contains(result);
        assert!(evaluation["results"].as_array().unwrap().iter().all(is_kept), "{evaluation}");
    }
}
