//! Tests of the `tra verify` command line.

use std::path::PathBuf;
use std::process::{Command, Output};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

fn tra(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tra"))
        .args(arguments)
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command that must fail: one line on standard error, no panic, no backtrace, exit code 2.
fn refused(arguments: &[&str]) -> String {
    let output = tra(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("error: "), "{error}");
    for word in ["panicked", "backtrace", "internal"] {
        assert!(!error.contains(word), "{error}");
    }
    error
}

#[test]
fn golden_files_agree_in_tables_of_80_columns() {
    let files = ["attention_t7.safetensors", "model_flipflop.safetensors", "model_lm.safetensors"];
    let files: Vec<PathBuf> = files.iter().map(|name| golden(name)).collect();
    let mut arguments = vec!["verify"];
    arguments.extend(files.iter().map(|path| path.to_str().unwrap()));
    let output = tra(&arguments);
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}{}", text(&output.stderr));
    assert!(out.contains("grad.layers.2.attn.delta_proj.weight"));
    assert!(out.ends_with("files: 3 agree (163 tensors compared)\n"), "{out}");
    let wide = out.lines().find(|line| line.len() > 80 && !line.starts_with('/'));
    assert_eq!(wide, None);
}

#[test]
fn a_difference_exits_with_1_and_names_the_tensor() {
    let path = golden("model_flipflop.safetensors");
    let output = tra(&["verify", path.to_str().unwrap(), "--atol", "1e-12"]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    let differs: Vec<&str> = out.lines().filter(|line| line.ends_with("DIFFERS")).collect();
    assert!(
        (1..=2).contains(&differs.len()) && differs.iter().all(|l| l.contains("logits")),
        "{out}"
    );
    assert!(out.contains("files: 1 differ"), "{out}");
}

#[test]
fn json_is_for_machines() {
    let path = golden("attention_t64.safetensors");
    let output = tra(&["verify", path.to_str().unwrap(), "missing.safetensors", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["files"][0]["agrees"], true);
    assert_eq!(value["files"][0]["near_threshold"]["followed"], 0);
    assert_eq!(value["files"][0]["tensors"][3]["name"], "out");
    assert!(value["files"][0]["tensors"][3]["absolute"].as_f64().unwrap() < 1e-5);
    assert_eq!(value["files"][1]["agrees"], false);
    assert!(value["files"][1]["error"].as_str().unwrap().contains("missing.safetensors"));
}

#[test]
fn bad_input_gets_one_clear_line() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_string()
    };
    let whole = std::fs::read(golden("model_lm.safetensors")).unwrap();
    let verify = |path: &str| refused(&["verify", path]);
    assert!(
        verify("no-such-file.safetensors").contains("no-such-file.safetensors: cannot read it")
    );
    assert!(verify(directory.path().to_str().unwrap()).contains("cannot read it"));
    assert!(verify(&write("empty", b"")).contains("not a readable safetensors file"));
    assert!(verify(&write("text", b"hello, this is text")).contains("not a readable safetensors"));
    assert!(verify(&write("cut", &whole[..whole.len() - 1])).contains("cut short"));
    assert!(verify(&write("cut", &whole[..3000])).contains("cut short"));
    let other = write("other", b"\x02\0\0\0\0\0\0\0{}");
    assert!(verify(&other).contains("not a recording"));

    let good = golden("attention_t1.safetensors");
    let good = good.to_str().unwrap();
    let error = refused(&["verify", good, "--device", "cuda:0"]);
    assert!(error.contains("it has flex") || cfg!(feature = "cuda"), "{error}");
    assert_eq!(tra(&["verify", good, "--atol", "-1"]).status.code(), Some(2));
    assert_eq!(tra(&["verify", good, "--rtol", "much"]).status.code(), Some(2));
    assert_eq!(tra(&["verify"]).status.code(), Some(2));
}

/// A file that cannot be checked does not prevent the others from being checked.
#[test]
fn the_other_files_are_still_judged() {
    let good = golden("attention_t1.safetensors");
    let output = tra(&["verify", "none.safetensors", good.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let out = text(&output.stdout);
    assert!(out.contains("files: 1 agree, 1 not checked"), "{out}");
}

#[test]
fn help_shows_how() {
    for arguments in [&["--help"][..], &["verify", "--help"]] {
        let output = tra(arguments);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("verify"));
    }
    assert!(text(&tra(&["verify", "--help"]).stdout).contains("Examples:"));
}
