//! The cache: made once, noticed when stale, never half there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tra_text::{Corpus, Part, Tokenizer, Tokens};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn text(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// The tokens of a path, and whether they were made now.
    fn tokens(&self, path: &Path, tokenizer: &str) -> Result<(Tokens, bool), String> {
        let tokenizer = Tokenizer::open(tokenizer).unwrap();
        let corpus = Corpus::find(path, Part::Train).map_err(|e| e.to_string())?;
        let mut made = false;
        let tokens = corpus.tokens(&tokenizer, &self.cache(), &mut |_| made = true);
        Ok((tokens.map_err(|e| e.to_string())?, made))
    }

    fn left_over(&self) -> Vec<String> {
        let entries = fs::read_dir(self.cache()).into_iter().flatten();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.ends_with(".stamp")).collect()
    }
}

#[test]
fn a_text_is_tokenised_once_for_each_content_and_tokenizer() {
    let place = Place::new();
    let path = place.text("a.txt", "The history of the world");
    let (tokens, made) = place.tokens(&path, "gpt2").unwrap();
    assert!(made);
    assert_eq!(tokens.range(0..tokens.len()), [464, 2106, 286, 262, 995]);
    assert_eq!(tokens.text_bytes(), 24);
    assert!(!place.tokens(&path, "gpt2").unwrap().1, "made twice");
    let (bytes, made) = place.tokens(&path, "bytes").unwrap();
    assert!(made && bytes.len() == 24);
    // The same text under another name is the same cache; another text under this name is not.
    let copy = place.text("b.txt", "The history of the world");
    assert!(!place.tokens(&copy, "gpt2").unwrap().1);
    place.text("a.txt", "The history of the moon!");
    let (tokens, made) = place.tokens(&path, "gpt2").unwrap();
    assert!(made && tokens.range(4..5) == [8824]);
}

#[test]
fn documents_of_a_folder_are_told_apart() {
    let place = Place::new();
    let folder = place.folder.path().join("texts");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.txt"), "one").unwrap();
    fs::write(folder.join("b.txt"), "two").unwrap();
    let (tokens, _) = place.tokens(&folder, "gpt2").unwrap();
    assert_eq!(tokens.range(0..tokens.len()), [505, 50256, 11545]);
    fs::write(folder.join("c.txt"), "one").unwrap();
    assert_eq!(place.tokens(&folder, "gpt2").unwrap().0.len(), 5);
}

#[test]
fn a_large_text_in_pieces_has_the_tokens_of_the_whole() {
    let place = Place::new();
    let text = "It's  the 42nd\n\n = Title = \n \t indented, 戦場 — end.\r\n".repeat(80_000);
    let path = place.text("large.txt", &text);
    let (tokens, _) = place.tokens(&path, "gpt2").unwrap();
    let whole = Tokenizer::open("gpt2").unwrap().encode(&text).unwrap();
    assert!(tokens.range(0..tokens.len()) == whole);
    assert_eq!(tokens.text_bytes(), text.len() as u64);
}

#[cfg(feature = "hf-tokenizers")]
#[test]
fn a_vocabulary_past_u16_is_kept_whole() {
    let place = Place::new();
    let words: Vec<String> = (0..70_000).map(|i| format!("\"w{i}\":{i}")).collect();
    let json = format!(
        "{{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],\
         \"normalizer\":null,\"pre_tokenizer\":{{\"type\":\"Whitespace\"}},\"post_processor\":null,\
         \"decoder\":null,\"model\":{{\"type\":\"WordLevel\",\"vocab\":{{{}}},\"unk_token\":\"w0\"}}}}",
        words.join(",")
    );
    let tokenizer = place.text("tokenizer.json", &json);
    let path = place.text("a.txt", "w1 w69999 w65536 what");
    let (tokens, _) = place.tokens(&path, tokenizer.to_str().unwrap()).unwrap();
    assert_eq!(tokens.range(0..4), [1, 69_999, 65_536, 0]);
}

#[test]
fn a_damaged_or_cut_cache_is_made_anew() {
    let place = Place::new();
    let path = place.text("a.txt", "The history of the world");
    let (tokens, _) = place.tokens(&path, "gpt2").unwrap();
    drop(tokens);
    let file = place.cache().join(&place.left_over()[0]);
    let whole = fs::read(&file).unwrap();
    for bad in [&whole[..whole.len() - 1], &whole[..30], b"", &[0; 80]] {
        fs::write(&file, bad).unwrap();
        let (tokens, made) = place.tokens(&path, "gpt2").unwrap();
        assert!(made && tokens.len() == 5);
    }
    // What a killed process left half-written is overwritten and used by nobody.
    fs::remove_file(&file).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    fs::write(file.with_file_name(format!(".{name}.12.partial")), &whole[..50]).unwrap();
    assert_eq!(place.tokens(&path, "gpt2").unwrap().0.len(), 5);
    assert_eq!(place.left_over().len(), 1, "{:?}", place.left_over());
}

/// The same bytes are text under one name and packed under another.
#[test]
fn a_name_decides_how_bytes_are_read() {
    let place = Place::new();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, b"The history of the world").unwrap();
    let packed = gz.finish().unwrap();
    let path = place.folder.path().join("a.txt.gz");
    fs::write(&path, &packed).unwrap();
    assert_eq!(place.tokens(&path, "gpt2").unwrap().0.len(), 5);
    let plain = place.folder.path().join("a.txt");
    fs::write(&plain, &packed).unwrap();
    assert!(place.tokens(&plain, "gpt2").unwrap_err().contains("binary"));
}

/// What was left long ago by a process that is gone, of another text.
#[test]
fn abandoned_halves_are_cleared_away() {
    let place = Place::new();
    fs::create_dir(place.cache()).unwrap();
    let age = |name: &str, seconds: u64| {
        let path = place.cache().join(name);
        let file = fs::File::create(&path).unwrap();
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(seconds);
        file.set_modified(then).unwrap();
        path
    };
    let old = [".old.tokens.12.partial", "older.partial", ".note.stamp.34.partial", "old.lock"];
    let old = old.map(|name| age(name, 7200));
    let fresh = [".new.tokens.12.partial", "new.lock"].map(|name| age(name, 60));
    let held = [".held.tokens.12.partial", "held.lock"].map(|name| age(name, 7200));
    let holder = fs::File::open(&held[1]).unwrap();
    holder.lock().unwrap();
    place.tokens(&place.text("a.txt", "some words"), "gpt2").unwrap();
    assert!(old.iter().all(|path| !path.exists()));
    assert!(fresh.iter().chain(&held).all(|path| path.exists()));
}

#[test]
fn a_text_changed_while_it_is_read_is_noticed() {
    let place = Place::new();
    let path = place.text("a.txt", &"some words\n".repeat(300_000));
    let tokenizer = Tokenizer::open("gpt2").unwrap();
    let corpus = Corpus::find(&path, Part::Train).unwrap();
    let mut changed = false;
    let error = corpus.tokens(&tokenizer, &place.cache(), &mut |_| {
        if !std::mem::replace(&mut changed, true) {
            use std::io::Write;
            fs::File::options().append(true).open(&path).unwrap().write_all(b"more\n").unwrap();
        }
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("a.txt: was changed while it was read"), "{error}");
    assert_eq!(place.left_over(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_tokenised_leaves_nothing_behind() {
    let place = Place::new();
    for (name, text) in [("empty.txt", ""), ("binary.txt", "\u{0}\u{1}PK")] {
        let path = place.text(name, text);
        let error = place.tokens(&path, "gpt2").unwrap_err();
        assert!(error.contains(name) && error.lines().count() == 1, "{error}");
    }
    assert!(place.tokens(Path::new("/no/such.txt"), "gpt2").unwrap_err().contains("/no/such.txt"));
    assert_eq!(place.left_over(), Vec::<String>::new());
}

#[test]
fn two_at_once_make_one_cache() {
    let place = Arc::new(Place::new());
    let path = place.text("a.txt", &"some words\n".repeat(200_000));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (place, path) = (place.clone(), path.clone());
            std::thread::spawn(move || place.tokens(&path, "gpt2").unwrap().0.len())
        })
        .collect();
    let lengths: Vec<usize> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert!(lengths.iter().all(|n| *n == lengths[0] && *n > 0));
    assert_eq!(place.left_over().len(), 1);
}

#[test]
fn fifty_megabytes_on_one_line_are_no_trouble() {
    let place = Place::new();
    let words = "all of this is on one line, 12345 words and more of it ";
    let times = (50 << 20) / words.len();
    let path = place.text("line.txt", &words.repeat(times));
    let (tokens, _) = place.tokens(&path, "gpt2").unwrap();
    let one = Tokenizer::open("gpt2").unwrap().encode(&format!(" {}", words.trim_end())).unwrap();
    // The first has no space before it, and the last is followed by one.
    assert_eq!(tokens.len(), times * one.len() + 1);
}
