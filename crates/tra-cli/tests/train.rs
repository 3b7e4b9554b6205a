//! Tests of `tra train` and the commands that follow it, including crashes.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;

/// A run that is killed 50 times always resumes, and in the end every file equals that of a run
/// that was never interrupted.
#[test]
fn kill_nine_fifty_times_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (folder.path().join("whole"), folder.path().join("cut"));
    let more = ["--steps", "1500", "--save-every", "3", "--eval-every", "100"];
    run(&new_run(&whole, &more));

    let check = || {
        for name in ["metrics.jsonl", "eval.json", "config.toml"] {
            let read = |run: &Path| std::fs::read(run.join(name)).unwrap();
            assert!(read(&cut) == read(&whole), "{name} differs");
        }
        let read = |run: &Path| std::fs::read(model(run, 1500)).unwrap();
        assert!(read(&cut) == read(&whole), "the weights differ");
    };
    let start = new_run(&cut, &more);
    let mut kills = 0;
    let mut wait = 20;
    while kills < 50 {
        let arguments: Vec<&str> = match cut.join("config.toml").exists() {
            true => vec!["train", "--resume", cut.to_str().unwrap()],
            false => start.iter().map(String::as_str).collect(),
        };
        let mut child =
            command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // A different delay each time, without depending on the clock.
        wait = (wait * 7 + 13) % 71;
        std::thread::sleep(Duration::from_millis(10 + wait));
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        match ended {
            None => kills += 1,
            // A fast machine finished before the fiftieth kill, so the run starts again.
            Some(status) => {
                assert!(status.success(), "it stopped by itself: {status}");
                check();
                std::fs::remove_dir_all(&cut).unwrap();
            }
        }
    }
    let arguments: Vec<&str> = start.iter().map(String::as_str).collect();
    match cut.join("config.toml").exists() {
        true => ok(&["train", "--resume", cut.to_str().unwrap()]),
        false => ok(&arguments),
    };
    check();
}

#[cfg(unix)]
#[test]
fn ctrl_c_saves_and_says_how_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let arguments = new_run(&path, &["--steps", "100000", "--save-every", "0"]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut child = command(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&path.join("metrics.jsonl"), &mut child);
    let pid = child.id().to_string();
    // SIGTERM saves in the same way.
    let signal = if ctrl_c_is_heard() { "-INT" } else { "-TERM" };
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(error.contains("continue with: tra train --resume"), "{error}");
    let steps = std::fs::read_dir(path.join("checkpoints")).unwrap().count();
    assert_eq!(steps, 1, "saved once, at the step it stopped at");
}

#[test]
fn the_commands_of_the_issue_work_as_typed() {
    let folder = tempfile::tempdir().unwrap();
    let (tra_run, rope_run) = (folder.path().join("ff"), folder.path().join("ff-rope"));
    let page = folder.path().join("report.html");
    let (a, b, page) =
        (tra_run.to_str().unwrap(), rope_run.to_str().unwrap(), page.to_str().unwrap());
    run(&new_run(
        &tra_run,
        &["--task", "flipflop", "--attention", "tra", "--steps", "6", "--seed", "1"],
    ));
    run(&new_run(&rope_run, &["--attention", "rope", "--steps", "6"]));
    ok(&["train", "--resume", a, "--steps", "9"]);
    assert!(model(&tra_run, 9).exists());
    assert!(ok(&["train", "--resume", a]).contains("nothing left to do"));
    let out = ok(&["eval", a, "--split", "iid,sparse,dense", "--sequences", "5", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["results"].as_array().unwrap().len(), 3);
    for key in ["split", "length", "sequences", "exact_match", "token_error", "loss"] {
        assert!(value["results"][0].get(key).is_some(), "{key}");
    }
    assert_eq!(value["results"][1]["split"], "sparse");
    assert_eq!(value["results"][1]["sequences"], 5);
    let table = ok(&["eval", a, "--split", "iid", "--lengths", "64,3000", "--sequences", "2"]);
    assert!(table.contains("3000") && table.lines().all(|line| line.len() <= 80), "{table}");
    ok(&["eval", a, "--best", "--sequences", "2"]);
    ok(&["report", a, b, "--out", page]);
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("rope") && html.contains("3000") && html.contains("<svg"));
    assert!(tra_run.join("report.html").exists(), "training leaves a page of its own");
}

#[test]
fn what_cannot_be_done_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run(&new_run(&path, &["--steps", "2"]));
    let run = path.to_str().unwrap();
    let config = folder.path().join("typo.toml");
    std::fs::write(&config, "steps = 3\nlearning_rate = 1.0\n").unwrap();
    let config = config.to_str().unwrap();
    for (arguments, part) in [
        (vec!["train", "--out", run], "--resume"),
        (vec!["train", "--resume", "/no/such/run"], "not a run directory"),
        (
            vec!["train", "--resume", run, "--size", "tiny"],
            "keeps its task, model, seed and optimizer",
        ),
        (vec!["train", "--out", "/proc/tra/run"], "cannot create"),
        (vec!["train", "--out", "x", "--config", config], "learning_rate"),
        (vec!["train", "--out", "x", "--config", "none.toml"], "none.toml"),
        (vec!["train", "--out", "x", "--task", "flop"], "flop"),
        (vec!["train", "--out", "x", "--attention", "rop"], "rop"),
        (vec!["train", "--out", "x", "--length", "7"], "even"),
        (vec!["train", "--out", "x", "--device", "tpu"], "it has flex"),
        (vec!["eval", run, "--split", "far"], "it has train, iid, sparse, dense"),
        (vec!["eval", run, "--lengths", "7"], "even"),
        (vec!["eval", run, "--checkpoint", "77"], "it has 2"),
        (vec!["report", "/no/such/run"], "not a run directory"),
        (vec!["sample", "flop"], "there are flipflop, copy"),
        (vec!["sample", "copy", "--length", "0"], "no sequence of length 0"),
        (vec!["sweep", config], "learning_rate"),
    ] {
        let error = refused(&arguments);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
    assert!(!Path::new("x").exists(), "nothing is left of a run that never began");
}

/// A failing write, as on a full disk, leaves existing files intact.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run(&new_run(&path, &["--steps", "4", "--save-every", "1"]));
    let before = std::fs::read(model(&path, 4)).unwrap();
    // No file may exceed 8 KiB, which is less than a checkpoint.
    let line = format!(
        "trap '' XFSZ; ulimit -f 8; exec {} train --resume {} --steps 8",
        env!("CARGO_BIN_EXE_tra"),
        path.display()
    );
    let output = Command::new("bash").args(["-c", &line]).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.lines().last().unwrap().contains("cannot write"), "{error}");
    assert!(std::fs::read(model(&path, 4)).unwrap() == before);
    let names = std::fs::read_dir(path.join("checkpoints")).unwrap();
    assert!(names.flatten().all(|e| !e.file_name().to_string_lossy().starts_with('.')));
    ok(&["train", "--resume", path.to_str().unwrap()]);
    assert!(model(&path, 8).exists());
}

#[test]
fn a_sweep_skips_what_is_done_and_shards_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sweep.toml");
    let out = folder.path().join("out");
    let grid = format!(
        "out = {out:?}\nattention = ['tra', 'rope']\ntask = ['flipflop']\nseeds = [1, 2]\n\
         [run]\nsteps = 3\nbatch = 2\nlength = 8\n[run.eval]\nsequences = 2\n\
         [run.model]\nlayers = 1\nwidth = 8\nheads = 2\n"
    );
    std::fs::write(&file, grid).unwrap();
    let file = file.to_str().unwrap();
    let list = |shard: &str| ok(&["sweep", file, "--list", "--shard", shard]);
    assert_eq!(list("0/2").lines().count() + list("1/2").lines().count(), 4);
    assert!(list("0/2").lines().all(|line| !list("1/2").contains(line)));
    ok(&["sweep", file, "--shard", "0/2"]);
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 2);
    let table = ok(&["sweep", file]);
    assert!(table.contains("rope") && table.contains("dense"), "{table}");
    assert!(out.join("report.html").exists());
    let again = tra(&["sweep", file]);
    assert_eq!(text(&again.stderr).matches("already finished").count(), 4);
}

#[test]
fn tasks_and_samples_are_readable() {
    let list = ok(&["tasks"]);
    for name in ["flipflop", "copy-unique", "instruct", "needle"] {
        assert!(list.contains(name), "{list}");
    }
    assert!(list.lines().all(|line| line.len() <= 80), "{list}");
    let samples = ok(&["sample", "flipflop", "--length", "8", "--count", "4"]);
    assert_eq!(samples.lines().count(), 4);
    assert!(samples.lines().all(|line| line.starts_with("w ") && line.ends_with(']')), "{samples}");
    let other = ok(&["sample", "flipflop", "--length", "8", "--count", "4", "--seed", "2"]);
    assert_ne!(samples, other);
    let letters = ok(&["sample", "copy", "--length", "3", "--set", "task.alphabet=26"]);
    assert!(letters.contains("<sep>"), "{letters}");
}
