//! Tests of the `tra reproduce` command line, including crashes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Three models, two tasks and two seeds. The whole experiment takes a second.
const TINY: &str = "
title = 'Tiny'
seeds = [1, 2]
[[model]]
name = 'tra'
[[model]]
name = 'rope-qk'
attention = { name = 'rope', qk_norm = true }
[[model]]
name = 'learned'
attention = { name = 'learned', count = 40 }
[[task]]
name = 'flip'
settings = { name = 'flipflop' }
[[task]]
name = 'string'
settings = { name = 'copy', alphabet = 4 }
models = ['tra']
quick = { steps = 8 }
[quick.run]
steps = 30
batch = 2
length = '4..12'
same_length = true
curriculum = { from = 4, until = 0.5 }
lr = 1e-2
save_every = 4
eval = { splits = ['iid'], sequences = 2 }
model = { layers = 1, width = 8, heads = 2 }
[[quick.test]]
split = 'iid'
lengths = [8]
sequences = 20
[[quick.test]]
split = 'dense'
lengths = [12, 64]
sequences = 20
tasks = ['flip']
[paper.run]
steps = 60
";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tra"));
    command.args(arguments).env("RAYON_NUM_THREADS", "1");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn ok(arguments: &[&str]) -> Output {
    let output = command(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output
}

fn refused(arguments: &[&str]) -> String {
    let output = command(arguments).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    let line = error.lines().last().unwrap_or_default().to_string();
    assert!(line.starts_with("error: ") && !line.contains("internal"), "{error}");
    line
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn it_ends_with_the_table_and_the_second_time_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("tiny.toml"), folder.path().join("out"));
    std::fs::write(&file, TINY).unwrap();
    let [file, out_name] = [&file, &out].map(|path| path.to_str().unwrap());
    let arguments = ["reproduce", file, "--out", out_name];

    let plan = ok(&["reproduce", file, "--out", out_name, "--dry-run"]);
    assert!(text(&plan.stderr).contains("8 to train, 18 tests: about"), "{}", text(&plan.stderr));
    assert!(!out.join("flip-tra-s1").exists(), "a dry run trains nothing");

    let first = ok(&arguments);
    let (printed, table) = (text(&first.stdout), read(&out, "table.txt"));
    assert!(printed.starts_with(&table), "{printed}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    for part in ["mean of 2 seeds", "flip tra", "flip rope-qk", "string tra: ", "in 2 runs"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    // The model has 40 positions, too few for 64 tokens.
    let learned = table.lines().find(|line| line.starts_with("flip learned")).unwrap();
    assert!(learned.trim_end().ends_with('-'), "{table}");
    let page = read(&out, "report.html");
    assert!(page.contains("rope-qk") && page.contains("string"));
    assert!(page.contains("tiny.toml --scale quick"), "how it was made");
    let results: serde_json::Value = serde_json::from_str(&read(&out, "results.json")).unwrap();
    assert_eq!(results["runs"].as_array().unwrap().len(), 8);
    assert_eq!(results["runs"][0]["settings"]["steps"], 30);

    let second = ok(&arguments);
    assert_eq!(text(&second.stdout), printed);
    assert_eq!(text(&second.stderr).matches("already finished").count(), 8);
    assert!(text(&second.stderr).contains("everything is trained and tested"));

    // With one more run, the table still has the others. In a separate folder the run is alone.
    let one = ["reproduce", file, "--models", "tra", "--tasks", "flip", "--seeds", "3", "--out"];
    let more = text(&ok(&[&one[..], &[out_name]].concat()).stdout);
    assert!(more.contains("flip rope-qk") && more.contains("in 3 runs"), "{more}");
    assert_eq!(text(&ok(&arguments).stdout), more, "a seed of another time stays in it");
    let alone = folder.path().join("alone");
    let alone = text(&ok(&[&one[..], &[alone.to_str().unwrap()]].concat()).stdout);
    assert!(alone.contains("seed 3") && !alone.contains("rope-qk"), "{alone}");
}

/// A run that ends early because everything was right is part of the table.
#[test]
fn early_ends_count() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("early.toml"), folder.path().join("out"));
    // Every answer is right by chance within a few evaluations.
    let early =
        "steps = 200\neval = { every = 1, until_perfect = 1, splits = ['iid'], sequences = 1 }";
    let text_of = TINY
        .replace("steps = 30", early)
        .replace("eval = { splits = ['iid'], sequences = 2 }\n", "")
        .replace("length = '4..12'", "length = 4")
        .replace("curriculum = { from = 4, until = 0.5 }\n", "");
    std::fs::write(&file, text_of).unwrap();
    let [file, out] = [&file, &out].map(|path| path.to_str().unwrap());
    let arguments = ["reproduce", file, "--out", out, "--models", "tra", "--tasks", "flip"];
    let printed = text(&ok(&arguments).stdout);
    assert!(printed.contains("in 2 runs"), "{printed}");
    let results: serde_json::Value =
        serde_json::from_str(&read(Path::new(out), "results.json")).unwrap();
    assert!(results["runs"][0]["step"].as_u64().unwrap() < 200);
    assert!(text(&ok(&arguments).stderr).contains("everything is trained and tested"));
}

/// After repeated kills, the table and the raw results equal those of an experiment that was never
/// interrupted.
#[test]
fn killing_it_at_any_moment_changes_nothing() {
    for jobs in ["1", "3"] {
        killing_changes_nothing(jobs);
    }
}

fn killing_changes_nothing(jobs: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiny.toml");
    std::fs::write(&file, TINY).unwrap();
    let (whole, cut) = (folder.path().join("whole"), folder.path().join("cut"));
    let [file, cut_name] = [&file, &cut].map(|path| path.to_str().unwrap());
    ok(&["reproduce", file, "--out", whole.to_str().unwrap()]);
    let arguments = ["reproduce", file, "--out", cut_name, "--jobs", jobs];
    let (mut wait, mut killed) = (20, 0);
    for _ in 0..30 {
        let mut child =
            command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // Waits for the first step or test.
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let at_work = |line: &str| line.contains(" loss ") || line.contains(": testing ");
        let begun = lines.any(|line| at_work(&line.unwrap_or_default()));
        wait = (wait * 7 + 13) % 97;
        std::thread::sleep(Duration::from_millis(wait));
        killed += u64::from(begun && child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(killed > 3, "it was at its end {} times of 30", 30 - killed);
    ok(&arguments);
    for name in ["table.txt", "results.json"] {
        assert_eq!(read(&cut, name), read(&whole, name), "{name}");
    }
}

#[test]
fn runs_side_by_side_make_each_run_once() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("tiny.toml"), folder.path().join("out"));
    std::fs::write(&file, TINY).unwrap();
    let [file, out_name] = [&file, &out].map(|path| path.to_str().unwrap());
    let arguments = ["reproduce", file, "--out", out_name, "--jobs", "3"];
    let said = text(&ok(&arguments).stderr);
    assert!(said.contains("3 runs at a time, each with 1 thread"), "{said}");
    // The first step of a run and every test are always printed.
    for part in ["flip-tra-s1 1/30 ", "string-tra-s2 1/8 ", "flip-rope-qk-s1: testing dense at 64"]
    {
        assert_eq!(said.matches(part).count(), 1, "{part}: {said}");
    }
    assert!(!said.contains("already finished"), "{said}");
    let words = read(&out, "report.html");
    assert!(!words.contains("--worker") && !words.contains("--jobs"), "how it was made");

    // Workers receive --text only if the experiment has a text.
    let error = refused(&[&arguments[..], &["--text", "."]].concat());
    assert!(error.contains("--text is for wikitext"), "{error}");
    let none = command(&[&arguments[..5], &["0"]].concat()).output().unwrap();
    assert!(text(&none.stderr).contains("0 is not in 1..="), "{}", text(&none.stderr));
}

/// Two processes work at the same time, and both encounter the failing run.
#[test]
fn one_that_fails_is_named_and_the_others_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("tiny.toml"), folder.path().join("out"));
    std::fs::write(&file, TINY).unwrap();
    let other = out.join("flip-rope-qk-s1");
    let [file, out_name, other] = [&file, &out, &other].map(|path| path.to_str().unwrap());
    ok(&["train", "--steps", "1", "--length", "8", "--size", "tiny", "--out", other]);
    let output = command(&["reproduce", file, "--out", out_name, "--jobs", "2"]).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    let last = error.lines().last().unwrap();
    assert!(last.contains("flip-rope-qk-s1") && last.contains("other settings"), "{error}");
    let results: serde_json::Value = serde_json::from_str(&read(&out, "results.json")).unwrap();
    assert_eq!(results["runs"].as_array().unwrap().len(), 7);
}

/// If another process is training a run, the command waits for it and then finishes the run.
#[test]
fn what_another_process_is_at_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiny.toml");
    std::fs::write(&file, TINY).unwrap();
    for jobs in ["1", "2"] {
        let out = folder.path().join(jobs);
        let held = out.join("flip-tra-s1");
        std::fs::create_dir_all(&held).unwrap();
        let lock = std::fs::File::create(held.join("run.lock")).unwrap();
        lock.try_lock().unwrap();
        let [file, out_name] = [&file, &out].map(|path| path.to_str().unwrap());
        let mut child = command(&["reproduce", file, "--out", out_name, "--jobs", jobs])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let waits = lines.any(|line| line.contains("waiting for another process"));
        assert!(waits && child.try_wait().unwrap().is_none());
        assert!(!out.join("table.txt").exists());
        drop(lock);
        assert!(child.wait().unwrap().success());
        assert!(read(&out, "table.txt").contains("in 2 runs"), "it goes on by itself");
    }
}

#[test]
fn what_cannot_be_done_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    assert!(refused(&["reproduce", "flipflap"]).contains("there are flipflop, copy"));
    assert!(refused(&["reproduce", "none.toml"]).contains("cannot read none.toml"));
    let error = refused(&["reproduce", "flipflop", "--models", "trra", "--out", &at("a")]);
    assert!(error.contains("no model \"trra\"") && error.contains("stickbreaking"), "{error}");
    let error = refused(&["reproduce", "flipflop", "--text", ".", "--out", &at("a")]);
    assert!(error.contains("--text is for wikitext"), "{error}");
    let error = refused(&["reproduce", "wikitext", "--text", &at("none"), "--out", &at("a")]);
    assert!(error.contains("tra data get wikitext-2"), "{error}");
    let error = refused(&["reproduce", "all", "--text", &at("none"), "--out", &at("a")]);
    assert!(error.contains("tra data get wikitext-2"), "{error}");
    // A folder without text is refused before anything is trained.
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path().to_str().unwrap();
    let error = refused(&["reproduce", "all", "--text", empty, "--out", &at("a")]);
    assert!(error.contains("tra data get wikitext-2"), "{error}");
    let error = refused(&["reproduce", "all", "--models", "tra,cope", "--out", &at("a")]);
    assert!(error.contains("copy: no model \"cope\""), "{error}");
    assert!(refused(&["reproduce", "timing", "--seeds", "1"]).contains("timing has no"));
    let (tiny, out) = (at("tiny.toml"), at("a"));
    std::fs::write(&tiny, TINY).unwrap();
    let nobody = ["--tasks", "string", "--models", "learned", "--out", &out];
    let error = refused(&[&["reproduce", &tiny], &nobody[..]].concat());
    assert!(error.contains("no run has all"), "{error}");
    std::fs::write(at("bad.toml"), TINY.replace("steps = 30", "stepz = 30")).unwrap();
    let error = refused(&["reproduce", &at("bad.toml"), "--out", &at("a")]);
    assert!(error.contains("bad.toml: ") && error.contains("stepz"), "{error}");
    assert!(!folder.path().join("a").exists());
}

/// An experiment on text measures perplexity, and learns a tokenizer first.
#[test]
fn text_is_read_at_every_window() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("text.toml"), folder.path().join("out"));
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    for part in ["train", "valid", "test"] {
        let words = (0..4000).map(|i| format!("word{} ", i * i % 17)).collect::<String>();
        std::fs::write(data.join(format!("wiki.{part}.tokens")), words).unwrap();
    }
    let text_part = "
title = 'Text'
seeds = [1]
[[model]]
name = 'tra'
[[model]]
name = 'alibi'
[[task]]
name = 'text'
settings = { name = 'text' }
[quick.run]
steps = 3
batch = 2
length = 16
eval = { sequences = 2 }
model = { layers = 1, width = 8, heads = 2 }
[quick.text]
set = 'wikitext-2'
vocab = 280
windows = [16, 64]
limit = 300
[paper.run]
";
    std::fs::write(&file, text_part).unwrap();
    let [file, out_name, data] = [&file, &out, &data].map(|path| path.to_str().unwrap());
    let arguments = ["reproduce", file, "--out", out_name, "--text", data];
    let printed = text(&ok(&arguments).stdout);
    for part in ["perplexity, chunk", "perplexity, sliding", "alibi", "64"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(out.join("tokenizer.json").exists());
    assert_eq!(text(&ok(&arguments).stdout), printed);
}

/// A diverged run and a damaged run are both listed. The table has the others.
#[test]
fn runs_that_fail_are_listed_and_the_others_are_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("tiny.toml"), folder.path().join("out"));
    std::fs::write(&file, TINY).unwrap();
    let [file, out_name] = [&file, &out].map(|path| path.to_str().unwrap());
    let arguments = ["reproduce", file, "--out", out_name, "--seeds", "1", "--tasks", "flip"];
    ok(&arguments);
    let diverged = out.join("flip-rope-qk-s1");
    std::fs::write(diverged.join("failure.txt"), "training diverged: for a test\n").unwrap();
    std::fs::remove_dir_all(diverged.join("checkpoints/step-00000030")).unwrap();
    for step in ["28", "30"] {
        let file = format!("flip-learned-s1/checkpoints/step-000000{step}/training.safetensors");
        std::fs::write(out.join(file), "").unwrap();
    }
    for _ in 0..2 {
        let output = command(&arguments).output().unwrap();
        let (table, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("2 runs failed:"), "{error}");
        let failed = |name: &str, why: &str| {
            error.lines().rev().take(2).any(|line| line.contains(name) && line.contains(why))
        };
        assert!(
            failed("flip-rope-qk-s1", "diverged") && failed("flip-learned-s1", "damaged"),
            "{error}"
        );
        assert!(table.contains("tra") && !table.contains("rope-qk"), "{table}");
    }
}
