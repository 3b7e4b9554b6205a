//! Tests of the `tra bench` command line. No test depends on measured times.

use std::process::{Command, Output};

use serde_json::Value;

fn tra(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tra")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const SMALL: [&str; 8] =
    ["bench", "--size", "tiny", "--batch", "1", "--repeat", "1", "--attention"];

#[test]
fn json_has_what_machines_ask_for() {
    let more = ["tra,rope", "--length", "96", "--json"];
    let output = tra(&[&SMALL[..], &more[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(all["peak_gflops"].as_f64().unwrap() > 0.0);
    let results = all["results"].as_array().unwrap();
    assert_eq!(results.len(), 8, "four measurements of two mechanisms");
    for result in results {
        for key in ["seconds", "tokens_per_second", "share_of_peak"] {
            assert!(result[key].as_f64().unwrap() > 0.0, "{key}: {result}");
        }
        assert!(result["peak_memory_bytes"].as_u64().unwrap() > 1 << 20, "{result}");
        assert_eq!((&result["size"], &result["length"]), (&"tiny".into(), &96.into()));
        assert_eq!(result["torch"], serde_json::json!({}), "no peer was asked for");
    }
    let share = |i: usize| results[i]["share_of_pairs_read"].as_f64();
    assert!(share(0).is_some_and(|share| share > 0.0 && share <= 1.0), "{:?}", share(0));
    assert_eq!(share(1), None, "dense attention reads everything");
}

#[test]
fn tables_fit_80_columns_and_kernels_can_be_chosen() {
    let more = ["tra,fox", "--only", "op,decode", "--length", "70", "--gate", "initial,open"];
    let output = Command::new(env!("CARGO_BIN_EXE_tra"))
        .args([&SMALL[..], &more[..]].concat())
        .env("TRA_ISA", "portable")
        .output()
        .unwrap();
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    for word in ["portable", "gates open", "decode", "of the pairs", "fox"] {
        assert!(table.contains(word), "{word}: {table}");
    }
}

#[test]
fn what_cannot_be_measured_is_one_line() {
    for (arguments, word) in [
        (vec!["--only", "speed"], "speed"),
        (vec!["--attention", "magic"], "magic"),
        (vec!["--attention", "cope", "--only", "op"], "cope"),
        (vec!["--size", "huge"], "huge"),
        (vec!["--length", "0"], "at least 1"),
        (vec!["--gate", "ajar"], "ajar"),
        (vec!["--torch", "/no/python"], "/no/python"),
        (vec!["--torch-mode", "lazy"], "lazy"),
        (vec!["--torch-attention", "fox"], "fox"),
    ] {
        let small = ["bench", "--repeat", "1", "--length", "8"];
        let given: Vec<&str> = match arguments.contains(&"--length") {
            true => vec!["bench"],
            false => small.to_vec(),
        };
        let output = tra(&[given, arguments.clone()].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.starts_with("error: ") && error.contains(word), "{error}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_tra"))
        .arg("bench")
        .env("TRA_ISA", "abacus")
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("abacus"), "{}", text(&output.stderr));
}
