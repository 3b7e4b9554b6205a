//! A build without a feature says in one line which it needs. `.ci/run` tests this crate alone for this:
//! with the workspace, every feature is on.
#![cfg(not(any(feature = "hf-tokenizers", feature = "parquet", feature = "zstd")))]

use tra_text::{Tokenizer, source};

fn refusal(name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, "some text\n").unwrap();
    let error = source::read(&path, &mut |_| {}, &mut |_| Ok(())).unwrap_err().to_string();
    // Without the folder, whose name differs from run to run.
    error.replace(&format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR), "")
}

#[test]
fn parquet_is_named() {
    let expected = "this build cannot read parquet; build with --features parquet";
    assert_eq!(refusal("data.parquet"), format!("data.parquet: {expected}"));
    assert_eq!(refusal("data.parquet.gz"), format!("data.parquet.gz: {expected}"));
}

#[test]
fn zstd_is_named() {
    let expected = "data.txt.zst: this build cannot read .zst; build with --features zstd";
    assert_eq!(refusal("data.txt.zst"), expected);
}

#[test]
fn tokenizers_are_named() {
    let features = "build with --features hf-tokenizers";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, "{}").unwrap();
    let path = path.to_str().unwrap();
    let error = Tokenizer::open(path).unwrap_err().to_string();
    assert_eq!(error, format!("{path}: this build cannot read a tokenizer.json; {features}"));
    let error = Tokenizer::from_record("{}").unwrap_err().to_string();
    let name = "the tokenizer kept with the model";
    assert_eq!(error, format!("{name}: this build cannot read a tokenizer.json; {features}"));
    let error = Tokenizer::learn(["a".to_string()].into_iter(), 300).unwrap_err().to_string();
    assert_eq!(error, format!("tokenizer.json: this build cannot learn a tokenizer; {features}"));
    assert!(Tokenizer::open("gpt2").is_ok());
}
