//! Tests of output that nobody reads: closed pipes and closed streams.
#![cfg(unix)]

mod common;

use std::fs::File;
use std::process::{Output, Stdio};

use common::*;

/// Returns a pipe whose reader is closed.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn into_closed_pipe(arguments: &[&str]) -> Output {
    command(arguments).stdout(closed_pipe()).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_reader_that_stops_ends_the_program_quietly() {
    let many = ["sample", "flipflop", "--count", "1000000"];
    for arguments in [
        &["tasks"][..],
        &["tasks", "--json"],
        &["mechanisms"],
        &["mechanisms", "tra"],
        &["mechanisms", "--json"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["--help"],
        &["train", "--help"],
        &["--version"],
        &many,
        &[&many[..], &["--json"]].concat(),
    ] {
        let output = into_closed_pipe(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn a_reader_that_stops_midway_ends_the_program_quietly() {
    let mut child = command(&["sample", "flipflop", "--count", "100000000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert!(line.starts_with("w "), "{line}");
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn results_that_nobody_reads_are_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run(&new_run(&path, &["--steps", "2"]));
    let place = path.to_str().unwrap();
    let before = std::fs::read(path.join("eval.json")).unwrap();
    for arguments in [
        &["eval", place, "--json", "--sequences", "3"][..],
        &["report", place, "--no-pictures"],
        &["train", "--resume", place],
        &["train", "--resume", place, "--steps", "4"],
    ] {
        let output = into_closed_pipe(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
        assert!(!error.contains("error") && !error.contains("warning"), "{arguments:?}: {error}");
    }
    assert!(std::fs::read(path.join("eval.json")).unwrap() != before);
    assert!(model(&path, 4).exists());
}

/// Progress goes to standard error. A run saves its steps even if nobody reads it.
#[test]
fn training_survives_a_standard_error_that_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let read_only = File::open("/dev/null").unwrap();
    let streams = [("pipe", closed_pipe()), ("full", full.into()), ("read-only", read_only.into())];
    for (name, stderr) in streams {
        let path = folder.path().join(name);
        let arguments = new_run(&path, &["--steps", "4", "--eval-every", "1"]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = command(&arguments).stdout(Stdio::piped()).stderr(stderr).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}");
        assert!(model(&path, 4).exists(), "{name}");
        assert!(text(&output.stdout).contains("4 steps"), "{name}");
    }
    // Both streams may be closed. An error that nobody reads still sets the exit code.
    let path = folder.path().join("both");
    let arguments = new_run(&path, &["--steps", "2"]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let status = command(&arguments).stdout(closed_pipe()).stderr(closed_pipe()).status().unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(model(&path, 2).exists());
    let status = command(&["eval", "/no/such/run"]).stderr(closed_pipe()).status().unwrap();
    assert_eq!(status.code(), Some(2));
    let status = command(&["eval", "--no-such-flag"]).stderr(closed_pipe()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
