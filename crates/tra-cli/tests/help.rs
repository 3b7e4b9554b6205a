//! Tests of help, the list of mechanisms, and shell completions.

mod common;

use common::*;
use serde_json::Value;

const COMMANDS: [&[&str]; 18] = [
    &[],
    &["demo"],
    &["train"],
    &["eval"],
    &["perplexity"],
    &["generate"],
    &["report"],
    &["reproduce"],
    &["sweep"],
    &["mechanisms"],
    &["tasks"],
    &["sample"],
    &["data"],
    &["data", "get"],
    &["data", "tokens"],
    &["data", "tokenizer"],
    &["verify"],
    &["bench"],
];

fn help(of: &[&str]) -> String {
    ok(&[of, &["--help"]].concat())
}

#[test]
fn every_command_has_help_with_examples_that_fits_80_columns() {
    for of in COMMANDS.iter().chain(&[&["completions"][..]]) {
        let text = help(of);
        assert!(text.contains("\nExamples:\n  "), "{of:?}: {text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{of:?}: {line}");
        }
        // clap wraps an example line that is too long without indenting the rest.
        let (_, examples) = text.split_once("\nExamples:\n").unwrap();
        let examples = examples.split("\n\n").next().unwrap();
        assert!(examples.lines().all(|line| line.starts_with("  ")), "{of:?}: {examples}");
    }
    // `COMMANDS` has every command.
    let all = help(&[]);
    let (_, list) = all.split_once("Commands:\n").unwrap();
    let list = list.split("\n\n").next().unwrap().lines();
    let names = list.filter(|line| line.as_bytes()[2] != b' ');
    let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    for name in names.iter().filter(|name| !["help", "completions"].contains(name)) {
        assert!(COMMANDS.iter().any(|of| of.first() == Some(name)), "{name}");
    }
}

#[test]
fn the_flag_attention_points_to_the_list() {
    for of in COMMANDS {
        let text = help(of);
        if text.contains("--attention <") {
            let (_, about) = text.split_once("--attention <").unwrap();
            let about = about.split("\n      --").next().unwrap();
            assert!(about.contains("`tra mechanisms`"), "{of:?}: {about}");
        }
    }
}

#[test]
fn mechanisms_are_listed_with_their_settings() {
    let list = ok(&["mechanisms"]);
    for part in
        ["tra-threshold", "horizon=rounding, research.leak=0", "theta=500000", "stickbreaking"]
    {
        assert!(list.contains(part), "{part}: {list}");
    }
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");

    let all: Value = serde_json::from_str(&ok(&["mechanisms", "--json"])).unwrap();
    let all = all["mechanisms"].as_array().unwrap();
    assert_eq!(all.len(), 17);
    for mechanism in all {
        assert!(mechanism["name"].is_string() && mechanism["about"].is_string(), "{mechanism}");
        for setting in mechanism["settings"].as_array().unwrap() {
            assert!(setting["about"].as_str().is_some_and(|about| !about.is_empty()), "{setting}");
        }
    }

    let one = ok(&["mechanisms", "t5"]);
    for part in ["t5: ", "buckets [default: 32]", "max_distance [default: 128]", "--attention t5"] {
        assert!(one.contains(part), "{part}: {one}");
    }
    assert!(ok(&["mechanisms", "tra-threshold"]).contains("No settings."));
    let one: Value = serde_json::from_str(&ok(&["mechanisms", "rope", "--json"])).unwrap();
    let settings = one["mechanisms"][0]["settings"].as_array().unwrap();
    assert!(settings.iter().any(|s| s["name"] == "theta" && s["default"] == 500_000.0), "{one}");
}

/// Every listed default can be passed to `tra train`, and changes nothing.
#[test]
fn listed_settings_are_accepted_by_train() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, set) = (folder.path().join("plain"), folder.path().join("set"));
    run(&new_run(&plain, &["--steps", "1", "--attention", "tra"]));
    let settings =
        ["--set", "model.attention.horizon=rounding", "--set", "model.attention.research.leak=0"];
    run(&new_run(&set, &[&["--steps", "1", "--attention", "tra"][..], &settings].concat()));
    let read = |run: &std::path::Path| std::fs::read_to_string(run.join("config.toml")).unwrap();
    assert_eq!(read(&plain), read(&set));
}

#[test]
fn an_unknown_mechanism_suggests_the_nearest() {
    for (arguments, part) in [
        (vec!["mechanisms", "RoPE"], "unknown mechanism \"RoPE\"; did you mean \"rope\"?"),
        (
            vec!["train", "--out", "x", "--attention", "rop"],
            "error: --attention rop: unknown mechanism",
        ),
        (vec!["train", "--out", "x", "--attention", "rop"], "did you mean \"rope\"?"),
        (vec!["mechanisms", "xyzzy"], "\"xyzzy\"; `tra mechanisms` lists all of them"),
        (vec!["mechanisms", ""], "unknown mechanism \"\""),
    ] {
        let error = refused(&arguments);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = ok(&["completions", shell]);
        assert!(script.contains("mechanisms"), "{shell}");
        assert!(!script.contains("bench-worker"), "{shell}: an internal command");
    }
    for wrong in [&["completions", "tcsh"][..], &["completions"]] {
        let output = tra(wrong);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with("error: ") && output.stdout.is_empty(), "{error}");
    }
    assert!(text(&tra(&["completions", "tcsh"]).stderr).contains("fish"));
}

/// Runs bash with a script on its standard input.
#[cfg(unix)]
fn bash(arguments: &[&str], script: &str) -> std::process::Output {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut bash = Command::new("bash");
    bash.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut bash = bash.spawn().unwrap();
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    bash.wait_with_output().unwrap()
}

#[cfg(unix)]
#[test]
fn bash_completes_mechanisms() {
    let script = ok(&["completions", "bash"]);
    assert!(bash(&["-n"], &script).status.success());
    // As the shell calls it after `tra train --attention st<TAB>`.
    let ask = "source /dev/stdin; COMP_WORDS=(tra train --attention st); COMP_CWORD=3; \
               _tra tra st --attention; echo \"${COMPREPLY[*]}\"";
    let output = bash(&["-c", ask], &script);
    assert_eq!(text(&output.stdout).trim(), "stickbreaking");
}
