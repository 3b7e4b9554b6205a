//! Tests of runs under bad conditions: signals, concurrent commands, damaged files, full disks.
#![cfg(unix)]

mod common;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::*;
use serde_json::Value;

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns the results of a step in `eval.json`.
fn results(run: &Path, step: u64) -> Vec<Value> {
    let file = json(&run.join("eval.json"));
    let all = file["evaluations"].as_array().unwrap();
    let of_step = all.iter().filter(|evaluation| evaluation["step"] == step);
    of_step.flat_map(|evaluation| evaluation["results"].as_array().unwrap().clone()).collect()
}

fn start(path: &Path, more: &[&str]) -> Child {
    let arguments = new_run(path, more);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn send(signal: &str, child: &Child) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

/// Runs a command line in a shell.
fn shell(line: &str) -> Output {
    let line = line.replace("TRA", env!("CARGO_BIN_EXE_tra"));
    Command::new("bash").args(["-c", &line]).output().unwrap()
}

/// Slurm and Kubernetes end a job with SIGTERM, a closed terminal with SIGHUP.
#[test]
fn signals_that_end_a_job_save_what_was_learned() {
    for signal in ["-TERM", "-HUP", "-INT"] {
        if signal == "-INT" && !ctrl_c_is_heard() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        // Fewer steps than between two checkpoints by default. A large evaluation keeps the run
        // from ending.
        let mut child = start(&path, &["--steps", "90", "--eval-sequences", "10000000"]);
        wait_for(&path.join("metrics.jsonl"), &mut child);
        send(signal, &child);
        let output = child.wait_with_output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{signal}: {error}");
        assert!(error.contains("finishing") && error.contains("--resume"), "{error}");
        assert!(std::fs::read_dir(path.join("checkpoints")).unwrap().count() > 0, "{signal}");
    }
}

#[test]
fn a_signal_that_nohup_ignores_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let arguments = new_run(&path, &["--steps", "100000"]);
    let mut child = Command::new("nohup")
        .arg(env!("CARGO_BIN_EXE_tra"))
        .args(&arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&path.join("metrics.jsonl"), &mut child);
    send("-HUP", &child);
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it goes on");
    send("-TERM", &child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn evaluating_a_run_that_trains_disturbs_nothing_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let more = ["--steps", "400", "--save-every", "10", "--eval-every", "1", "--keep", "40"];
    let mut child = start(&path, &more);
    wait_for(&path.join("checkpoints/step-00000010"), &mut child);
    let run = path.to_str().unwrap().to_string();
    let asked: Vec<_> = (0..6)
        .map(|n| {
            let sequences = (3 + n).to_string();
            let arguments =
                ["eval", &run, "--checkpoint", "10", "--sequences", &sequences, "--split", "iid"];
            command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in asked {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let kept = results(&path, 10);
    let sequences = |n: u64| kept.iter().any(|r| r["sequences"] == n && r["split"] == "iid");
    assert!((3..9).all(sequences), "{kept:?}");
    assert!((1..=400).all(|step| !results(&path, step).is_empty()));
}

#[test]
fn results_of_an_older_checkpoint_leave_the_newer_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run(&new_run(&path, &["--steps", "4", "--save-every", "2"]));
    let newest = results(&path, 4);
    let place = path.to_str().unwrap();
    ok(&["eval", place, "--checkpoint", "2", "--sequences", "3"]);
    assert_eq!(results(&path, 4), newest);
    assert_eq!(results(&path, 2).len(), 3);
    assert!(refused(&["eval", place, "--checkpoint", "3"]).contains("it has 2, 4"));
}

#[test]
fn results_are_printed_even_if_they_cannot_be_kept_or_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run(&new_run(&path, &["--steps", "2"]));
    let place = path.to_str().unwrap();
    let kept = || results(&path, 2).len();
    assert_eq!(kept(), 3);
    let output = shell(&format!("TRA eval {place} --split iid --sequences 5 2>&-"));
    assert!(output.status.success() && text(&output.stdout).contains("iid"));
    assert_eq!(kept(), 4);
    // Results are kept even if nobody reads the output.
    shell(&format!("TRA eval {place} --split iid --sequences 6 2>/dev/null | true"));
    assert_eq!(kept(), 5);
    let output = shell(&format!("TRA eval {place} --split iid --sequences 7 >/dev/full"));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(kept(), 6);
    // From here on, no file can be written.
    let line =
        format!("trap '' XFSZ; ulimit -f 0; TRA eval {place} --split iid --sequences 8 2>&1");
    let output = shell(&format!("({line}) | cat; exit ${{PIPESTATUS[0]}}"));
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("token err") && said.contains("cannot save the results in the run"),
        "{said}"
    );
    assert_eq!(kept(), 6);
}

#[test]
fn a_resume_that_changes_nothing_leaves_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run(&new_run(&path, &["--steps", "3"]));
    let before = std::fs::read(path.join("config.toml")).unwrap();
    let said = ok(&["train", "--resume", path.to_str().unwrap(), "--lr", "0.5"]);
    assert!(said.contains("nothing left to do"), "{said}");
    assert!(std::fs::read(path.join("config.toml")).unwrap() == before);
}

#[test]
fn of_two_that_begin_in_one_folder_one_is_refused() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let both = ["1", "2"].map(|seed| start(&path, &["--steps", "30", "--seed", seed]));
        let outputs = both.map(|child| child.wait_with_output().unwrap());
        let won: Vec<bool> = outputs.iter().map(|output| output.status.success()).collect();
        assert_ne!(won[0], won[1], "{}{}", text(&outputs[0].stderr), text(&outputs[1].stderr));
        let config = std::fs::read_to_string(path.join("config.toml")).unwrap();
        let seed = if won[0] { "seed = 1" } else { "seed = 2" };
        assert!(config.contains(seed), "the settings are the winner's: {config}");
        ok(&["eval", path.to_str().unwrap(), "--sequences", "2"]);
    }
}

const GRID: &str = "attention = ['tra', 'tra', 'rope']\ntask = ['flipflop']\nseeds = [1, 2, 1]\n\
    [run]\nsteps = 4\nbatch = 2\nlength = 8\nsave_every = 1\n[run.eval]\nsequences = 2\n\
    [run.model]\nlayers = 1\nwidth = 8\nheads = 2\n";

/// A run that has diverged is listed, and the other runs continue.
#[test]
fn one_run_that_fails_does_not_stop_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("sweep.toml"), folder.path().join("out"));
    std::fs::write(&file, format!("out = {out:?}\n{GRID}")).unwrap();
    let file = file.to_str().unwrap();
    let list = ok(&["sweep", file, "--list"]);
    assert_eq!(list.lines().count(), 4, "what is listed twice is one run: {list}");
    ok(&["sweep", file]);
    let failing = out.join("flipflop-tra-s2");
    std::fs::write(failing.join("failure.txt"), "training diverged: for a test\n").unwrap();
    std::fs::remove_dir_all(failing.join("checkpoints/step-00000004")).unwrap();
    std::fs::remove_dir_all(out.join("flipflop-rope-s2")).unwrap();
    for _ in 0..2 {
        let output = tra(&["sweep", file]);
        let (table, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("1 run failed:") && error.contains("diverged"), "{error}");
        assert!(error.lines().last().unwrap().contains("flipflop-tra-s2"), "{error}");
        assert!(table.contains("rope") && table.contains("±"), "{table}");
    }
    assert!(out.join("flipflop-rope-s2/eval.json").exists(), "the runs after it were made");
}

/// A damaged run that looks finished by its file names and headers is trained again from the
/// previous checkpoint.
#[test]
fn a_damaged_run_does_not_count_as_done() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("sweep.toml"), folder.path().join("out"));
    std::fs::write(&file, format!("out = {out:?}\n{GRID}")).unwrap();
    let file = file.to_str().unwrap();
    ok(&["sweep", file]);
    let damaged = model(&out.join("flipflop-tra-s1"), 4);
    let whole = std::fs::read(&damaged).unwrap();
    let mut bytes = whole.clone();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let output = tra(&["sweep", file]);
    let error = text(&output.stderr);
    assert!(output.status.success() && error.contains("checkpoint 4 is damaged"), "{error}");
    assert!(std::fs::read(&damaged).unwrap() == whole, "made again to the bit");
}

#[test]
fn a_diverging_run_is_noted_and_tried_again_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let place = path.to_str().unwrap();
    let more =
        ["--steps", "50", "--save-every", "1", "--clip", "0", "--warmup", "0", "--lr", "1e30"];
    let arguments = new_run(&path, &more);
    let error = refused(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(error.contains("diverged") && error.contains("no good checkpoint"), "{error}");
    assert!(path.join("failure.txt").exists());
    ok(&["train", "--resume", place, "--lr", "1e-4", "--clip", "1", "--steps", "3"]);
    assert!(!path.join("failure.txt").exists());
}

/// A device such as `/dev/zero` never ends.
#[test]
fn settings_are_read_from_files_that_end() {
    for arguments in [["sweep", "/dev/zero"], ["train", "--config=/dev/zero"]] {
        let more: &[&str] = if arguments[0] == "train" { &["--out", "never"] } else { &[] };
        let error = refused(&[&arguments[..], more].concat());
        assert!(error.contains("larger than 16 MiB"), "{error}");
    }
}

#[test]
fn an_instruction_set_that_is_not_there_is_named() {
    let output = command(&["tasks"]).env("TRA_ISA", "foo").output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("TRA_ISA=\"foo\": no instruction set \"foo\"; this machine has"),
        "{error}"
    );
    assert!(error.contains("portable") && error.lines().count() == 1, "{error}");
}

#[test]
fn a_page_is_made_without_what_cannot_be_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (learned, other) = (folder.path().join("learned"), folder.path().join("other"));
    // The model has fewer positions than the picture has tokens.
    let count = "model.attention.count=12";
    let more = ["--attention", "learned", "--set", count, "--steps", "2", "--eval-splits", "iid"];
    run(&new_run(&learned, &more));
    let page = std::fs::read_to_string(learned.join("report.html")).unwrap();
    assert!(page.contains("Missing from this page") && page.contains("12 positions"));
    run(&new_run(&other, &["--steps", "2"]));
    std::fs::write(other.join("metrics.jsonl"), "{\n{}\n").unwrap();
    let out = folder.path().join("page.html");
    let arguments = [
        "report",
        learned.to_str().unwrap(),
        other.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ];
    ok(&arguments);
    let page = std::fs::read_to_string(&out).unwrap();
    assert!(page.contains("line 1 is damaged") && page.contains("learned"));
    assert!(refused(&["report", other.to_str().unwrap()]).contains("line 1 is damaged"));
}

#[test]
fn what_cannot_be_tested_is_said_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let task = ["--task", "copy-unique", "--set", "task.alphabet=26", "--length", "1..20"];
    let mut arguments = vec!["train", "--out", path.to_str().unwrap()];
    arguments.extend(task);
    assert!(refused(&arguments).contains("--eval-splits"));
    assert!(!path.exists(), "nothing is left of it");
    let mut arguments = vec!["train", "--dry-run"];
    arguments.extend(task);
    assert!(refused(&arguments).contains("--eval-splits"));
}
