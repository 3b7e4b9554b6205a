//! Tests of impossible sizes, lengths and settings. Each is refused before any file is written, in
//! one line that names it.

#![cfg(target_os = "linux")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::text;

/// A size that exceeds any machine.
const HUGE: &str = "1000000000000";

/// Runs the program with at most 8 GB of address space and a time limit. If a check is missing, the
/// test fails instead of exhausting the machine.
fn tra(folder: &Path, arguments: &[&str]) -> Output {
    let line = "ulimit -v 8000000; exec timeout 120 \"$0\" \"$@\"";
    Command::new("bash")
        .args(["-c", line, env!("CARGO_BIN_EXE_tra")])
        .args(arguments)
        .current_dir(folder)
        .env("RAYON_NUM_THREADS", "2")
        .output()
        .unwrap()
}

/// Runs a command that must fail, and returns its one-line error.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = tra(folder, arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    assert!(error.starts_with("error: ") && !error.contains("internal"), "{error}");
    error
}

fn check(folder: &Path, cases: &[(&[&str], &[&str])]) {
    for (arguments, parts) in cases {
        let error = refused(folder, arguments);
        for part in *parts {
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
    }
}

fn train<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["train", "--out", "run"], more].concat()
}

#[test]
fn a_run_that_no_machine_has_memory_for_is_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let far = format!("4..{HUGE}");
    for (more, parts) in [
        (vec!["--batch", "999999999999"], ["activations of batch 999999999999", "--batch"]),
        (vec!["--batch", HUGE, "--dry-run"], ["activations", "--batch"]),
        (vec!["--width", "100000000"], ["parameters", "--width"]),
        (vec!["--width", "9223372036854775804"], ["parameters", "--width"]),
        (vec!["--length", HUGE], ["length 1000000000000", "--length"]),
        (vec!["--length", &far], ["length 4..1000000000000", "--length"]),
        (vec!["--length", "9223372036854775806"], ["16.0 EiB", "--length"]),
        (vec!["--layers", "1000000000"], ["activations", "--layers"]),
        (vec!["--layers", HUGE, "--width", "1", "--heads", "1"], ["PiB", "--layers"]),
        (vec!["--accumulate", HUGE], ["the tokens of accumulate", "--accumulate"]),
        (vec!["--attention", "cope", "--length", "1000000"], ["attention weights", "--length"]),
        (
            vec!["--attention", "learned", "--set", "model.attention.count=1000000000000"],
            ["parameters", "model.attention.count"],
        ),
        (
            vec!["--task", "copy", "--set", "task.alphabet=1000000", "--width", "256000"],
            ["parameters", "vocabulary"],
        ),
    ] {
        let arguments = match more.contains(&"--dry-run") {
            true => [&["train"], &more[..]].concat(),
            false => train(&more),
        };
        let error = refused(folder.path(), &arguments);
        assert!(error.contains("needs at least") && error.contains("this machine has"), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{arguments:?}: {error}");
    }
    assert!(!folder.path().join("run").exists(), "nothing is left of a run that never began");
}

#[test]
fn numbers_that_overflow_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let most = "9223372036854775807";
    check(
        folder.path(),
        &[
            (&train(&["--steps", most]), &["steps x batch x accumulate"]),
            (&train(&["--batch", most, "--accumulate", most]), &["steps x batch x accumulate"]),
            (&train(&["--eval-sequences", most]), &["eval.sequences"]),
            (&train(&["--task", "copy", "--set", "task.alphabet=4000000000"]), &["2 to 1000000"]),
            (&train(&["--task", "copy", "--set", "task.alphabet=5000000000"]), &["5000000000"]),
            (&train(&["--set", "batch=-1"]), &["--set batch=-1"]),
            (&train(&["--set", "lr=nan"]), &["--set lr=nan"]),
        ],
    );
}

#[test]
fn a_sequence_that_no_machine_has_memory_for_is_not_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let range = format!("1..{HUGE}");
    check(
        folder.path(),
        &[
            (&["sample", "flipflop", "--length", HUGE], &["this sequence", "--length"]),
            (&["sample", "copy", "--length", &range], &["this sequence", "--length"]),
            (&["sample", "copy", "--length", "18446744073709551615"], &["this sequence"]),
        ],
    );
    // Many small sequences are drawn one by one, until the reader closes the pipe.
    for json in ["", "--json"] {
        let program = env!("CARGO_BIN_EXE_tra");
        let line = format!(
            "ulimit -v 2000000; timeout 120 {program} sample parity --length 3 --count {HUGE} {json} | head -c 60"
        );
        let output = Command::new("bash").args(["-c", &line]).output().unwrap();
        assert_eq!(output.stdout.len(), 60);
        assert_eq!(text(&output.stderr), "");
    }
    let few = tra(folder.path(), &["sample", "parity", "--length", "3", "--count", "3", "--json"]);
    let few: serde_json::Value = serde_json::from_slice(&few.stdout).unwrap();
    assert_eq!(few["samples"].as_array().unwrap().len(), 3);
    assert_eq!(few["samples"][2]["tokens"].as_array().unwrap().len(), 6);
}

#[test]
fn a_range_begins_and_ends_at_lengths_of_its_task() {
    let folder = tempfile::tempdir().unwrap();
    check(
        folder.path(),
        &[
            (&train(&["--length", "0..5"]), &["0..5 begins", "even and at least 4"]),
            (&train(&["--length", "2..64"]), &["2..64 begins", "at least 4"]),
            (&train(&["--task", "copy", "--length", "0..50"]), &["at least 1"]),
            (&train(&["--task", "induct", "--length", "1..50"]), &["at least 2"]),
            (&train(&["--task", "recall", "--length", "1..999"]), &["1..999 ends", "keys to 999"]),
            (&["sample", "flipflop", "--length", "0..5"], &["at least 4"]),
            (&["sample", "needle", "--length", "0..5"], &["at least 2"]),
            (
                &train(&["--task", "copy-unique", "--set", "task.alphabet=26"]),
                &["--set task.alphabet=26: ", "1..50 ends", "set alphabet to 50"],
            ),
        ],
    );
}

#[test]
fn the_setting_that_is_wrong_is_named_and_not_the_file_that_is_right() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("good.toml"), "steps = 3\nlength = 8\n").unwrap();
    std::fs::write(folder.path().join("bad.toml"), "steps = 3\nlength = 7\n").unwrap();
    let with = |file: &'static str, more: &[&'static str]| {
        [&["train", "--out", "run", "--config", file], more].concat()
    };
    for (more, start) in [
        (vec!["--set", "lr=0.1", "--set", "steps=many"], "error: --set steps=many: "),
        (vec!["--lr", "0"], "error: --lr 0.0: "),
        (vec!["--length", "9"], "error: --length 9: "),
        (vec!["--eval-splits", "iid,far"], "error: --eval-splits iid,far: "),
        (vec!["--attention", "rop"], "error: --attention rop: "),
    ] {
        let error = refused(folder.path(), &with("good.toml", &more));
        assert!(error.starts_with(start) && !error.contains("good.toml"), "{error}");
    }
    let error = refused(folder.path(), &with("bad.toml", &["--set", "lr=0.1"]));
    assert!(error.starts_with("error: bad.toml: "), "{error}");
}

#[test]
fn measurements_have_sizes_too() {
    let folder = tempfile::tempdir().unwrap();
    let most = "18446744073709551615";
    let bench = |more: &[&'static str]| [&["bench", "--only"], more].concat();
    for only in ["op", "op_forward", "train_step", "prefill", "decode"] {
        for sizes in [["--length", HUGE], ["--batch", most]] {
            let error = refused(folder.path(), &[&bench(&[only])[..], &sizes].concat());
            assert!(error.contains("this measurement needs at least"), "{only}: {error}");
        }
    }
    check(
        folder.path(),
        &[
            (&bench(&["prefill", "--vocab", HUGE]), &["--vocab"]),
            (&bench(&["decode", "--attention", "learned", "--length", most]), &["16.0 EiB"]),
            (&["bench", "--threads", "100000"], &["--threads 100000", "threads"]),
        ],
    );
}

/// The run fits the machine, but not the limit set by the user.
#[test]
fn memory_that_runs_out_on_the_way_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!(
        "ulimit -v 800000; RAYON_NUM_THREADS=2 exec timeout 300 {} train --out {}/run --steps 2 \
         --size small --length 8192 --batch 64",
        env!("CARGO_BIN_EXE_tra"),
        folder.path().display()
    );
    let output = Command::new("bash").args(["-c", &line]).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    let start = "error: out of memory: ";
    assert!(error.starts_with(start) && error.lines().count() == 1, "{error}");
}

#[test]
fn threads_that_cannot_be_started_are_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_tra"))
        .arg("tasks")
        .env("RAYON_NUM_THREADS", "100000")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("RAYON_NUM_THREADS 100000"));
}

/// Commands on an existing model can also ask for more than the machine has.
#[test]
fn tests_and_pictures_have_sizes_too() {
    let folder = tempfile::tempdir().unwrap();
    let made = tra(folder.path(), &train(&[&common::TINY[..], &["--steps", "2"]].concat()));
    assert!(made.status.success(), "{}", text(&made.stderr));
    let huge = "999999999998";
    check(
        folder.path(),
        &[
            (&["eval", "run", "--split", "iid", "--lengths", huge], &["this test", "length"]),
            (&["eval", "run", "--split", "iid", "--lengths", "0..5"], &["0..5 begins"]),
            (&["eval", "run", "--sequences", "9999999999999"], &["this test", "fewer sequences"]),
            (&["train", "--resume", "run", "--steps", "4", "--batch", HUGE], &["this run"]),
            (&["train", "--resume", "run", "--set", "steps=many"], &["error: --set steps=many: "]),
        ],
    );
    let page = tra(folder.path(), &["report", "run", "--length", huge]);
    let said = text(&page.stderr);
    assert!(page.status.success() && said.contains("this picture needs"), "{said}");
    let others = ["train", "--out", "other", "--task", "copy-unique", "--length", "1..26"];
    let others = [&others[..], &["--set", "task.alphabet=26"]].concat();
    let error = refused(folder.path(), &others);
    assert!(error.contains("split 201-300") && error.contains("--eval-splits iid"), "{error}");
    assert!(!folder.path().join("other").exists(), "{error}");
    std::fs::create_dir(folder.path().join("none")).unwrap();
    std::fs::write(folder.path().join("none/config.toml"), "version = 1\n").unwrap();
    check(folder.path(), &[(&["report", "none"], &["config.toml", "not written by a run"])]);
}
