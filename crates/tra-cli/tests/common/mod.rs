//! Helpers that run the program, and arguments for a tiny run.
#![allow(dead_code)] // Each test file uses only some of the helpers.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

pub const TINY: [&str; 14] = [
    "--layers",
    "1",
    "--width",
    "8",
    "--heads",
    "2",
    "--length",
    "4..12",
    "--batch",
    "2",
    "--eval-sequences",
    "2",
    "--lr",
    "1e-3",
];

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tra"));
    command.args(arguments).env("RUST_BACKTRACE", "1").env("RAYON_NUM_THREADS", "1");
    command
}

/// Returns whether Ctrl-C reaches the program. A shell starts background jobs with SIGINT ignored, and
/// the program respects that.
pub fn ctrl_c_is_heard() -> bool {
    const SIGINT: u32 = 2;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.unwrap_or(0) & (1 << (SIGINT - 1)) == 0
}

pub fn tra(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn ok(arguments: &[&str]) -> String {
    let output = tra(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs a command that must fail, and returns the last line of its standard error.
pub fn refused(arguments: &[&str]) -> String {
    let output = tra(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    let line = error.lines().last().unwrap_or_default().to_string();
    assert!(line.starts_with("error: ") && !line.contains("internal"), "{error}");
    line
}

pub fn new_run(path: &Path, more: &[&str]) -> Vec<String> {
    let mut all = vec!["train", "--out", path.to_str().unwrap()];
    // Arguments in `more` replace those of the tiny run.
    all.extend(TINY.chunks(2).filter(|pair| !more.contains(&pair[0])).flatten());
    all.extend(more);
    all.into_iter().map(String::from).collect()
}

pub fn run(arguments: &[String]) -> String {
    ok(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

pub fn model(path: &Path, step: u64) -> PathBuf {
    path.join(format!("checkpoints/step-{step:08}/model.safetensors"))
}

pub fn wait_for(path: &Path, child: &mut Child) {
    for _ in 0..2000 {
        if path.exists() {
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended before {}", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{} never came", path.display());
}
