//! What damage to a cache, and a disk that fails, can do: nothing that a user would notice.

use std::fs;
use std::path::{Path, PathBuf};

use tra_disk::fault::{self, Fault};
use tra_text::{Corpus, Part, Tokenizer, Tokens};

const TEXT: &str = "The history of the world";
const TOKENS: [u32; 5] = [464, 2106, 286, 262, 995];

/// A text that is old enough to be noted, and a folder for its cache.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(place.text(), TEXT).unwrap();
        age(&place.text());
        place
    }

    fn text(&self) -> PathBuf {
        self.folder.path().join("a.txt")
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn open(&self) -> Result<Tokens, String> {
        let corpus = Corpus::find(&self.text(), Part::Train).map_err(|e| e.to_string())?;
        let tokenizer = Tokenizer::open("gpt2").unwrap();
        corpus.tokens(&tokenizer, &self.cache(), &mut |_| {}).map_err(|e| e.to_string())
    }

    fn tokens(&self) -> Result<Vec<u32>, String> {
        let tokens = self.open()?;
        assert_eq!(tokens.text_bytes(), TEXT.len() as u64);
        Ok(tokens.range(0..tokens.len()))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.cache()).into_iter().flatten();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn file(&self, ending: &str) -> PathBuf {
        let name = self.names().into_iter().find(|name| name.ends_with(ending)).unwrap();
        self.cache().join(name)
    }
}

fn age(path: &Path) {
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

/// Every byte of a file changed, and every length shorter, one after the other.
fn damaged(whole: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let flipped = (0..whole.len()).flat_map(|at| {
        [0x01, 0x80, 0xFF].map(|bits| {
            let mut bytes = whole.to_vec();
            bytes[at] ^= bits;
            bytes
        })
    });
    let cut = (0..whole.len()).map(|length| whole[..length].to_vec());
    let longer = [&[0][..], &[0; 2], &[7; 64]].map(|more| [whole, more].concat());
    flipped.chain(cut).chain(longer)
}

#[test]
fn no_damage_to_a_cache_changes_a_token() {
    let place = Place::new();
    assert_eq!(place.tokens().unwrap(), TOKENS);
    let file = place.file(".tokens");
    let whole = fs::read(&file).unwrap();
    for (number, bytes) in damaged(&whole).enumerate() {
        fs::write(&file, bytes).unwrap();
        assert_eq!(place.tokens().unwrap(), TOKENS, "damage {number}");
        assert_eq!(fs::read(&file).unwrap(), whole, "damage {number} is not mended");
    }
}

#[test]
fn a_damaged_note_is_no_note() {
    let place = Place::new();
    place.tokens().unwrap();
    let (note, cache) = (place.file(".stamp"), place.file(".tokens"));
    let whole = fs::read(&note).unwrap();
    for (number, bytes) in damaged(&whole).enumerate() {
        fs::write(&note, bytes).unwrap();
        assert_eq!(place.tokens().unwrap(), TOKENS, "damage {number}");
        assert_eq!(place.file(".tokens"), cache, "damage {number}");
        assert_eq!(place.names().len(), 2, "damage {number}: {:?}", place.names());
        assert_eq!(fs::read(&note).unwrap(), whole, "damage {number} is not mended");
    }
}

/// Every operation on the disk fails once, in every way, while a cache is made.
#[test]
fn no_failing_disk_harms_a_cache() {
    let operations = {
        let place = Place::new();
        let counted = fault::inject(&place.cache(), u64::MAX, Fault::NoSpace);
        place.tokens().unwrap();
        counted.operations()
    };
    assert!(operations > 10, "{operations}");
    let mut failed = 0;
    for fault in Fault::ALL {
        for at in 0..operations {
            let place = Place::new();
            let injected = fault::inject(&place.cache(), at, fault);
            let result = place.tokens();
            drop(injected);
            match result {
                Ok(tokens) => assert_eq!(tokens, TOKENS, "{fault:?} at {at}"),
                Err(error) => {
                    failed += 1;
                    assert_eq!(error.lines().count(), 1, "{fault:?} at {at}: {error}");
                    let cache = place.cache().to_str().unwrap().to_string();
                    assert!(error.contains(&cache), "{fault:?} at {at}: {error}");
                }
            }
            // What a killed process leaves is cleared away, some at once and some when it is old.
            let left = place.names();
            left.iter().filter(|name| is_left_over(name)).for_each(|name| {
                assert!(fault == Fault::Crash || name.ends_with(".lock"), "{fault:?} {at} {name}");
                age(&place.cache().join(name));
            });
            assert_eq!(place.tokens().unwrap(), TOKENS, "{fault:?} at {at}");
            fs::write(place.text(), "another text").unwrap();
            place.open().unwrap();
            let left = place.names();
            assert!(!left.iter().any(|name| is_left_over(name)), "{fault:?} at {at}: {left:?}");
        }
    }
    assert!(failed > 10, "{failed}");
}

fn is_left_over(name: &str) -> bool {
    name.ends_with(".partial") || name.ends_with(".lock")
}
