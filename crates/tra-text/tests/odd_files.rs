//! Pipes, sockets and devices: not read, and not waited for.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use tra_text::{Corpus, Part, Tokenizer, source};

/// Returns a result, or fails if it takes too long.
fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(20)).expect("it hangs")
}

fn pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[test]
fn a_folder_is_its_regular_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("b.txt"), "The history of the world").unwrap();
    pipe(&at("a.txt"));
    let _socket = std::os::unix::net::UnixListener::bind(at("c.txt")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", at("d.txt")).unwrap();
    std::os::unix::fs::symlink(at("b.txt"), at("e.txt")).unwrap();
    let (texts, cache) = (folder.path().to_path_buf(), at("cache"));
    let (files, tokens) = within(move || {
        let corpus = Corpus::find(&texts, Part::Train).unwrap();
        let tokenizer = Tokenizer::open("gpt2").unwrap();
        let tokens = corpus.tokens(&tokenizer, &cache, &mut |_| {}).unwrap();
        (corpus.files().to_vec(), tokens.len())
    });
    assert_eq!(files, [at("b.txt"), at("e.txt")]);
    assert_eq!(tokens, 11, "five, an end of text, five");
}

#[test]
fn what_is_named_and_no_regular_file_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe.txt");
    pipe(&path);
    let json = folder.path().join("tokenizer.json");
    pipe(&json);
    let errors = within(move || {
        let read = source::read(&path, &mut |_| {}, &mut |_| Ok(())).unwrap_err();
        let found = Corpus::find(&path, Part::Train).unwrap_err();
        let tokenizer = Tokenizer::open(json.to_str().unwrap()).unwrap_err();
        [read, found, tokenizer].map(|error| error.to_string())
    });
    for error in errors {
        assert!(error.contains("not a regular file"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
