//! A default build names each missing feature in one line.
//!
//! The tests of the workspace enable every feature, so this test is ignored there. `.ci/run` runs
//! it by name in a default build.

mod common;

use common::refused;

#[test]
#[ignore = "for a default build: cargo test --release -p tra-cli --test default_build -- --ignored"]
fn what_is_missing_is_named_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, "some text\n").unwrap();
        path.to_str().unwrap().to_string()
    };
    let [text, parquet, zst] = ["a.txt", "a.parquet", "a.txt.zst"].map(file);
    let [json, new, state] = ["tokenizer.json", "new.json", "model.pt"].map(file);
    for (arguments, action, feature) in [
        (&["data", "get", "wikitext-2"][..], "download", "hub"),
        (&["data", "tokens", &parquet], "read parquet", "parquet"),
        (&["data", "tokens", &zst], "read .zst", "zstd"),
        (
            &["data", "tokens", &text, "--tokenizer", &json],
            "read a tokenizer.json",
            "hf-tokenizers",
        ),
        (&["data", "tokenizer", &text, "--out", &new], "learn a tokenizer", "hf-tokenizers"),
        (
            &["generate", &state, "--tokenizer", "bytes", "--prompt", "a"],
            "read PyTorch files",
            "pytorch",
        ),
    ] {
        let expected = format!("this build cannot {action}; build with --features {feature}");
        let error = refused(arguments);
        assert!(error.contains(&expected), "{arguments:?}: {error}");
    }
}
