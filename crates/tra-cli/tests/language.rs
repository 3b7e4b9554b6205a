//! Language modelling as a user types it: text in, perplexity at any window, text out.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const TINY: [&str; 12] = [
    "--layers", "1", "--width", "16", "--heads", "2", "--length", "16", "--batch", "4", "--steps",
    "4",
];

/// A folder of its own, with the cache of tokens in it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        let line = |i: usize| format!("Line {i} says that {} follows {i} .\n", i + 1);
        place.write("train.txt", (0..300).map(line).collect::<String>());
        place.write("test.txt", (500..540).map(line).collect::<String>());
        place
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), text).unwrap();
        self.at(name)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().into()
    }

    fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tra"))
            .args(arguments)
            .current_dir(self.folder.path())
            .env("TRA_CACHE", self.path("cache"))
            .env("RAYON_NUM_THREADS", "2")
            .env_remove("HF_ENDPOINT")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_string();
        // On another thread: a program that does not read must not keep us waiting.
        let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    }

    fn ok(&self, arguments: &[&str]) -> String {
        self.fed(arguments, "")
    }

    fn fed(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The one line with which something is refused.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments, "");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.starts_with("error: ") && !error.contains("internal"), "{error}");
        error
    }

    fn train<'a>(&self, out: &'a str, more: &[&'a str]) -> String {
        let mut all = vec!["train", "--text", "train.txt", "--tokenizer", "bytes", "--out", out];
        let given = |pair: &&[&str]| !more.contains(&pair[0]);
        all.extend(TINY.chunks(2).filter(given).flatten());
        all.extend(more);
        self.ok(&all)
    }

    /// A model file alone, elsewhere, with neither run nor text beside it.
    fn lone_model(&self) -> (Place, String) {
        self.train("run", &[]);
        let elsewhere = Place { folder: tempfile::tempdir().unwrap() };
        let model = self.path("run/checkpoints/step-00000004/model.safetensors");
        fs::copy(model, elsewhere.path("model.safetensors")).unwrap();
        let model = elsewhere.at("model.safetensors");
        (elsewhere, model)
    }
}

#[test]
fn the_commands_of_the_issue_work_as_typed() {
    let place = Place::new();
    place.write("wiki.train.tokens", fs::read(place.path("train.txt")).unwrap());
    place.write("wiki.valid.tokens", fs::read(place.path("test.txt")).unwrap());
    let mut train = vec![
        "train",
        "--task",
        "text",
        "--text",
        "wiki.train.tokens",
        "--valid",
        "wiki.valid.tokens",
        "--tokenizer",
        "gpt2",
        "--attention",
        "tra",
        "--out",
        "runs/wiki",
    ];
    train.extend(TINY);
    let said = place.ok(&train);
    assert!(said.contains("perplexity") && said.contains("valid"), "{said}");
    let table = place.ok(&[
        "perplexity",
        "runs/wiki",
        "--text",
        "test.txt",
        "--windows",
        "8,16,32",
        "--protocol",
        "chunk,sliding",
        "--limit",
        "200",
    ]);
    assert_eq!(table.lines().count(), 8, "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.contains("199 tokens scored"), "{table}");
    let text = place.ok(&[
        "generate",
        "runs/wiki",
        "--prompt",
        "Line 7",
        "--tokens",
        "20",
        "--temperature",
        "0.8",
        "--top-p",
        "0.95",
        "--seed",
        "1",
    ]);
    assert!(text.starts_with("Line 7"), "{text}");
    let page = fs::read_to_string(place.path("runs/wiki/report.html")).unwrap();
    assert!(page.contains("Perplexity against window"));
}

#[test]
fn perplexity_is_kept_merged_and_the_same_from_the_file_alone() {
    let place = Place::new();
    let (elsewhere, model) = place.lone_model();
    let ask = |place: &Place, model: &str, text: &str, more: &[&str]| -> Value {
        let mut all = vec!["perplexity", model, "--text", text, "--json"];
        all.extend(more);
        serde_json::from_str(&place.ok(&all)).unwrap()
    };
    let text = place.at("test.txt");
    let of_run = ask(&place, "run", &text, &["--windows", "16,64"]);
    let of_file = ask(&elsewhere, &model, &text, &["--windows", "16,64"]);
    assert_eq!(of_run["results"], of_file["results"]);
    assert_eq!((&of_run["step"], &of_file["step"]), (&4.into(), &0.into()));
    let first = &of_run["results"][0];
    let number = |v: &Value| v.as_f64().unwrap();
    let (loss, bytes) = (number(&first["loss"]), number(&of_run["bytes"]));
    assert!((number(&first["perplexity"]) - loss.exp()).abs() < 1e-9);
    let bits = loss * number(&of_run["tokens"]) / 2f64.ln() / bytes;
    assert!((number(&first["bits_per_byte"]) - bits).abs() < 1e-9);
    assert_eq!(bytes, fs::metadata(&text).unwrap().len() as f64 - 1.0);
    let scored: u64 = first["by_position"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["tokens"].as_u64().unwrap())
        .sum();
    assert_eq!(scored as f64, number(&of_run["tokens"]));

    ask(&place, "run", &text, &["--windows", "64", "--protocol", "sliding", "--stride", "8"]);
    let kept: Value =
        serde_json::from_slice(&fs::read(place.path("run/perplexity.json")).unwrap()).unwrap();
    assert_eq!(kept["measured"][0]["results"].as_array().unwrap().len(), 3);
    // Another text stands beside it.
    ask(&place, "run", "train.txt", &["--windows", "16", "--limit", "100"]);
    let kept: Value =
        serde_json::from_slice(&fs::read(place.path("run/perplexity.json")).unwrap()).unwrap();
    let counts = [0, 1].map(|at| kept["measured"][at]["results"].as_array().unwrap().len());
    assert_eq!(counts, [3, 1]);
}

#[test]
fn a_model_file_alone_generates() {
    let place = Place::new();
    let (place, model) = place.lone_model();
    let base = ["generate", &model, "--tokens", "30", "--no-echo"];
    let with = |more: &[&str]| place.ok(&[&base[..], more].concat());
    let plain = with(&["--prompt", "Line"]);
    assert_eq!(with(&["--prompt", "Line"]), plain, "the same seed, the same text");
    assert_ne!(with(&["--prompt", "Line", "--seed", "2"]), plain);
    assert_ne!(with(&["--prompt", "Line", "--temperature", "0.3"]), plain);
    let greedy = with(&["--prompt", "Line", "--temperature", "0"]);
    assert_eq!(with(&["--prompt", "Line", "--top-k", "1", "--seed", "9"]), greedy);
    assert_eq!(with(&["--prompt", "Line", "--top-p", "0.000001"]), greedy);
    // From standard input, as itself or by name.
    assert_eq!(place.fed(&base, "Line"), plain);
    assert_eq!(place.fed(&[&base[..], &["--prompt", "-"]].concat(), "Line"), plain);
    let file = place.write("prompt.txt", "Line");
    assert_eq!(with(&["--prompt-file", &file]), plain);
    // Nothing at all begins a text.
    assert!(!with(&["--prompt", ""]).trim_end_matches('\n').is_empty());
}

#[test]
fn several_prompts_of_different_lengths_give_what_each_gives_alone() {
    let place = Place::new();
    let (place, model) = place.lone_model();
    let base = ["generate", &model, "--tokens", "12", "--json"];
    let prompts = ["Line 1", "x", "Line 30 says that 31 follows 30 .\nLine 31 says"];
    let with: Vec<&str> = prompts.iter().flat_map(|prompt| ["--prompt", *prompt]).collect();
    let all: Value = serde_json::from_str(&place.ok(&[&base[..], &with].concat())).unwrap();
    for (number, prompt) in prompts.iter().enumerate() {
        let seed = (number + 1).to_string();
        let alone = place.ok(&[&base[..], &["--prompt", prompt, "--seed", &seed]].concat());
        let alone: Value = serde_json::from_str(&alone).unwrap();
        let (one, other) = (&all["continuations"][number], &alone["continuations"][0]);
        assert_eq!((&one["prompt"], &one["text"]), (&(*prompt).into(), &other["text"]));
        assert_eq!(one["prompt_tokens"], prompt.len());
    }
    let shown = place.ok(&[&["generate", &model, "--tokens", "5"], &with[..]].concat());
    assert_eq!(shown.matches("---\n").count(), 2, "{shown}");
}

#[test]
fn generation_stops_before_a_stop_text() {
    let place = Place::new();
    let (place, model) = place.lone_model();
    let base = ["generate", &model, "--tokens", "60", "--prompt", "Line 3", "--no-echo"];
    let whole = place.ok(&base);
    let stop: String = whole.chars().skip(10).take(3).collect();
    let cut = place.ok(&[&base[..], &["--stop", &stop]].concat());
    let place_of_stop = whole.find(&stop).unwrap();
    assert_eq!(cut, format!("{}\n", &whole[..place_of_stop]));
}

#[test]
fn a_prompt_of_a_hundred_thousand_tokens_works() {
    let place = Place::new();
    let (place, model) = place.lone_model();
    let prompt = "Line 12 says that ".repeat(5600);
    let said = place.fed(&["generate", &model, "--tokens", "3", "--json"], &prompt);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["continuations"][0]["prompt_tokens"], 100_800);
    assert_eq!(said["continuations"][0]["tokens"], 3);
}

#[test]
fn a_dry_run_tells_the_cost_and_leaves_nothing() {
    let place = Place::new();
    let told = place.train("never", &["--dry-run"]);
    place.ok(&["train", "--text", "train.txt", "--length", "16", "--size", "tiny", "--dry-run"]);
    for part in ["parameters", "memory", "tokens/s", "held out", "passes over it", "about"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!place.path("never").exists());
    // The same sizes as the run itself.
    place.train("run", &["--tied"]);
    let tied = place.train("never", &["--dry-run", "--tied"]);
    let count = |text: &str| -> u64 {
        let line = text.lines().next().unwrap();
        line.split_whitespace().last().unwrap().replace(',', "").parse().unwrap()
    };
    assert_eq!(count(&told) - count(&tied), 257 * 16, "one table less");
    let generated = place.ok(&["generate", "run", "--prompt", "Line", "--tokens", "4"]);
    assert!(generated.starts_with("Line"));
}

#[test]
fn what_cannot_be_read_is_said_in_one_line_and_leaves_nothing() {
    let place = Place::new();
    place.write("empty.txt", "");
    place.write("binary.txt", b"\x7fELF\x02\x01\x01\0\0\0\xff\xfe");
    place.write("short.txt", "abc");
    let train = |more: &[&str]| {
        let mut all = vec!["train", "--out", "never"];
        all.extend(TINY);
        all.extend(more);
        let error = place.refused(&all);
        assert!(!place.path("never").exists(), "{error}");
        error
    };
    assert!(train(&["--text", "empty.txt"]).contains("empty.txt: is empty"));
    assert!(train(&["--text", "binary.txt"]).contains("binary file"));
    assert!(train(&["--text", "gone.txt"]).contains("gone.txt"));
    assert!(train(&["--text", "train.txt", "--tokenizer", "gpt7"]).contains("gpt7"));
    assert!(
        train(&["--text", "train.txt", "--tokenizer", "train.txt"])
            .contains("not a usable tokenizer")
    );
    assert!(train(&["--task", "text"]).contains("--text"));
    assert!(train(&["--text", "short.txt"]).contains("text has only"));
    assert!(train(&["--task", "copy", "--text", "train.txt"]).contains("--task text"));
    assert!(train(&["--valid", "train.txt"]).contains("with --text"));
    let error = train(&["--text", "gone.txt"]);
    assert_eq!(error.matches("No such file").count(), 1, "{error}");
    let left = fs::read_dir(place.path("cache")).into_iter().flatten();
    let left: Vec<_> = left.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| !name.contains("partial")), "{left:?}");
}

#[test]
fn models_and_texts_that_do_not_belong_together_are_named() {
    let place = Place::new();
    place.train("run", &[]);
    let with = |more: &[&str]| place.refused(&[&["perplexity", "run", "--text"], more].concat());
    assert!(with(&["gone.txt"]).contains("gone.txt"));
    assert!(with(&["test.txt", "--tokenizer", "gpt2"]).contains("another tokenizer"));
    assert!(with(&["test.txt", "--stride", "4"]).contains("sliding"));
    let file = place.at("run/checkpoints/step-00000004/model.safetensors");
    let error = place.refused(&["generate", &file, "--best", "--prompt", "x"]);
    assert!(error.contains("run directory only"), "{error}");
    assert!(with(&["test.txt", "--protocol", "sliding", "--stride", "999"]).contains("999"));
    assert!(with(&["test.txt", "--windows", "0"]).contains("at least 1"));
    assert!(with(&["test.txt", "--limit", "1"]).contains("2 are needed"));
    assert!(with(&["test.txt", "--checkpoint", "77"]).contains("it has 4"));
    let generate = |more: &[&str]| place.refused(&[&["generate", "run"], more].concat());
    assert!(generate(&["--prompt", "x", "--top-p", "2"]).contains("top-p"));
    assert!(generate(&["--prompt", "x", "--stop", ""]).contains("--stop"));
    assert!(place.refused(&["generate", "nowhere", "--prompt", "x"]).contains("nowhere"));

    let mut flipflop = vec!["train", "--task", "flipflop", "--out", "ff"];
    flipflop.extend(TINY);
    place.ok(&flipflop);
    let error = place.refused(&["generate", "ff", "--prompt", "x"]);
    assert!(error.contains("keeps no tokenizer"), "{error}");
    let error = place.refused(&["generate", "ff", "--prompt", "x", "--tokenizer", "gpt2"]);
    assert!(error.contains("knows 6 tokens") && error.contains("50257"), "{error}");
}

#[test]
fn a_run_goes_on_only_with_the_text_it_began_with() {
    let place = Place::new();
    place.train("run", &["--save-every", "2", "--eval-every", "2", "--eval-sequences", "4"]);
    place.train("whole", &["--steps", "6", "--save-every", "2", "--eval-sequences", "4"]);
    let text = fs::read(place.path("train.txt")).unwrap();
    place.write("train.txt", [&text[..], b"more"].concat());
    let before = fs::read(place.path("run/config.toml")).unwrap();
    let error = place.refused(&["train", "--resume", "run", "--steps", "6"]);
    assert!(error.contains("has changed"), "{error}");
    assert_eq!(fs::read(place.path("run/config.toml")).unwrap(), before, "nothing is written");
    assert!(place.refused(&["eval", "run"]).contains("has changed"));
    // The same text elsewhere will do, and from anywhere.
    place.write("moved.txt", &text);
    let (run, moved) = (place.at("run"), place.at("moved.txt"));
    Place::new().ok(&["train", "--resume", &run, "--text", &moved, "--steps", "6"]);
    assert!(place.path("run/checkpoints/step-00000006").exists());
    // Without the text its page is still to be had, if not the picture of attention.
    fs::remove_file(place.path("moved.txt")).unwrap();
    let output = place.run(&["report", "run"], "");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("without the attention of run"));
}

/// Four batches of 2 are one of 8, but for rounding; and the best checkpoint by loss is kept.
#[test]
fn accumulation_and_the_best_checkpoint() {
    let place = Place::new();
    let losses = |out: &str, more: &[&str]| -> Vec<f64> {
        place.train(out, &[&["--dropout", "0"], more].concat());
        let metrics = fs::read_to_string(place.path(out).join("metrics.jsonl")).unwrap();
        let lines = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter_map(|line| line["loss"].as_f64()).collect()
    };
    let whole = losses("whole", &["--batch", "8"]);
    let parts = losses("parts", &["--batch", "2", "--accumulate", "4"]);
    assert_eq!((whole.len(), parts.len()), (4, 4));
    for (a, b) in whole.iter().zip(&parts) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    // A learning rate that ruins the model after a good start.
    let more = ["--lr", "3", "--clip", "0", "--eval-every", "1", "--keep", "1", "--warmup", "1"];
    losses("worse", &more);
    let metrics = fs::read_to_string(place.path("worse/metrics.jsonl")).unwrap();
    let evaluations = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let valid: Vec<f64> =
        evaluations.filter_map(|line| line["results"][0]["loss"].as_f64()).collect();
    let best = (0..4).min_by(|a, b| valid[*a].total_cmp(&valid[*b])).unwrap() + 1;
    let kept = fs::read_dir(place.path("worse/checkpoints")).unwrap();
    let mut kept: Vec<String> =
        kept.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    kept.sort();
    let mut expected = vec![format!("step-{best:08}"), "step-00000004".into()];
    expected.dedup();
    assert_eq!(kept, expected, "{valid:?}");
    assert!(best < 4, "{valid:?}");
    place.ok(&["generate", "worse", "--best", "--prompt", "L", "--tokens", "2"]);
}

#[test]
fn data_is_told_about_and_a_tokenizer_learned() {
    let place = Place::new();
    let said = place.ok(&["data", "tokens", "train.txt"]);
    assert!(said.contains("tokens of gpt2"), "{said}");
    let said =
        place.ok(&["data", "tokenizer", "train.txt", "--vocab", "300", "--out", "tokenizer.json"]);
    assert!(said.contains("300 tokens"), "{said}");
    let mut train = vec!["train", "--text", "train.txt", "--tokenizer", "tokenizer.json"];
    train.extend(TINY);
    train.extend(["--out", "run"]);
    place.ok(&train);
    fs::remove_file(place.path("tokenizer.json")).unwrap();
    let text = place.ok(&["generate", "run", "--prompt", "Line 5", "--tokens", "8"]);
    assert!(text.starts_with("Line 5"), "{text}");
    let error = place.refused(&["data", "get", "wikitext-9"]);
    assert!(error.contains("wikitext-103"), "{error}");
    assert!(
        place
            .refused(&["data", "tokenizer", "train.txt", "--vocab", "9", "--out", "t"])
            .contains("257 tokens at least")
    );
}

/// Nobody answers at this address, as where there is no internet.
#[test]
fn without_internet_the_way_out_is_told() {
    let place = Place::new();
    let output = Command::new(env!("CARGO_BIN_EXE_tra"))
        .args(["data", "get", "wikitext-2"])
        .current_dir(place.folder.path())
        .env("HF_ENDPOINT", "http://127.0.0.1:9")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("by hand") && error.contains("data/wikitext-2"), "{error}");
}

#[test]
fn samples_and_the_list_of_tasks_know_text() {
    let place = Place::new();
    assert!(place.ok(&["tasks"]).contains("text: say the next token"));
    let said = place.ok(&["sample", "text", "--length", "4", "--set", "task.text=train.txt"]);
    assert_eq!(said.lines().count(), 3);
    assert!(said.lines().all(|line| line.matches('[').count() == 4), "{said}");
    let missing = place.refused(&["sample", "text"]);
    assert!(missing.contains("--text") && !Path::new("never").exists());
}

/// Text appears as it comes, not when the program ends or a line does.
#[test]
fn generation_streams() {
    let place = Place::new();
    let (place, model) = place.lone_model();
    // So many tokens that it cannot be done before we have read the first.
    let mut child = Command::new(env!("CARGO_BIN_EXE_tra"))
        .args(["generate", &model, "--prompt", "Line", "--tokens", "1000000", "--temperature", "0"])
        .current_dir(place.folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = [0; 8];
    let read = std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first);
    let running = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    read.unwrap();
    assert!(first.starts_with(b"Line") && running, "{first:?}");
}
