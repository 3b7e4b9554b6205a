//! Text without a place to cut: memory stays bounded. Alone in its file, for it measures the process.
#![cfg(all(target_os = "linux", feature = "hf-tokenizers"))]

use std::fs;

use tra_text::{Corpus, Part, Tokenizer};

fn mebibytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn twenty_mebibytes_without_a_blank_take_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let learned = "the cat sat on the mat and the cat sat on the hat ".repeat(20);
    let json = Tokenizer::learn([learned].into_iter(), 300).unwrap();
    let path = folder.path().join("tokenizer.json");
    fs::write(&path, json).unwrap();
    let tokenizer = Tokenizer::open(path.to_str().unwrap()).unwrap();
    let word: String = (0..20u32 << 20).map(|i| char::from(b'a' + (i * i % 23) as u8)).collect();
    let text = folder.path().join("a.txt");
    fs::write(&text, &word).unwrap();
    let before = mebibytes("VmRSS");
    let corpus = Corpus::find(&text, Part::Train).unwrap();
    let tokens = corpus.tokens(&tokenizer, &folder.path().join("cache"), &mut |_| {}).unwrap();
    let peak = mebibytes("VmHWM").saturating_sub(before);
    println!("peak: {peak} MiB above {before}");
    assert!(tokenizer.decode(&tokens.range(0..tokens.len())) == word.as_bytes());
    assert!(peak < 250, "{peak} MiB");
}
