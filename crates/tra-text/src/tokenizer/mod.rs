//! Tokenizers turn text into tokens and back.

mod bytes;
#[cfg(feature = "hf-tokenizers")]
mod file;
#[cfg(not(feature = "hf-tokenizers"))]
#[path = "without_file.rs"]
mod file;
mod gpt2;

use std::io::ErrorKind;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::TextError;
use crate::source;

/// Turns text into tokens and back.
#[derive(Debug)]
pub struct Tokenizer(Kind);

#[derive(Debug)]
enum Kind {
    Gpt2,
    Bytes,
    File(Box<file::FileTokenizer>),
}

const GPT2: &str = "gpt2";
const BYTES: &str = "bytes";

impl Tokenizer {
    /// Opens a tokenizer: `gpt2`, `bytes`, or the path of a `tokenizer.json`.
    pub fn open(name: &str) -> Result<Self, TextError> {
        let path = Path::new(name);
        match Self::built_in(name) {
            Some(tokenizer) => Ok(tokenizer),
            None if is_missing(path) => Err(missing(name)),
            None => {
                let json = std::io::read_to_string(source::open(path)?)
                    .map_err(TextError::io("cannot read the tokenizer", path))?;
                Self::parse(name, json)
            }
        }
    }

    /// Makes the tokenizer that a [`record`](Self::record) describes.
    pub fn from_record(record: &str) -> Result<Self, TextError> {
        match Self::built_in(record) {
            Some(tokenizer) => Ok(tokenizer),
            None => Self::parse("the tokenizer kept with the model", record.into()),
        }
    }

    fn built_in(name: &str) -> Option<Self> {
        match name {
            GPT2 => Some(Self(Kind::Gpt2)),
            BYTES => Some(Self(Kind::Bytes)),
            _ => None,
        }
    }

    fn parse(name: &str, json: String) -> Result<Self, TextError> {
        Ok(Self(Kind::File(Box::new(file::FileTokenizer::parse(name, json)?))))
    }

    /// Learns a byte-pair tokenizer from texts and returns its `tokenizer.json`. It splits text into
    /// words as GPT-2 does, and its first token is `<|endoftext|>`.
    pub fn learn(
        texts: impl Iterator<Item = String> + Send,
        vocab: usize,
    ) -> Result<String, TextError> {
        file::learn(texts, vocab)
    }

    /// Returns everything it takes to make the tokenizer again on another machine, for checkpoints:
    /// the name if it is built in, otherwise the whole `tokenizer.json`.
    pub fn record(&self) -> &str {
        match &self.0 {
            Kind::Gpt2 => GPT2,
            Kind::Bytes => BYTES,
            Kind::File(file) => file.json(),
        }
    }

    /// Returns a name for messages.
    pub fn name(&self) -> String {
        match &self.0 {
            Kind::Gpt2 | Kind::Bytes => self.record().into(),
            Kind::File(_) => format!("tokenizer.json ({} tokens)", self.vocab()),
        }
    }

    /// Returns a hash that identifies the tokenizer.
    pub fn fingerprint(&self) -> [u8; 32] {
        Sha256::digest(self.record()).into()
    }

    /// Returns the number of tokens.
    pub fn vocab(&self) -> usize {
        match &self.0 {
            Kind::Gpt2 => gpt2::VOCAB,
            Kind::Bytes => bytes::VOCAB,
            Kind::File(file) => file.vocab(),
        }
    }

    /// Returns the token between two documents, if there is one.
    pub fn end_of_text(&self) -> Option<u32> {
        match &self.0 {
            Kind::Gpt2 => Some(gpt2::END_OF_TEXT),
            Kind::Bytes => Some(bytes::END_OF_TEXT),
            Kind::File(file) => file.end_of_text(),
        }
    }

    /// Returns the tokens of a text. Nothing is added at its ends.
    ///
    /// Only a `tokenizer.json` can fail: for an unknown word, if it has no token for those.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        match &self.0 {
            Kind::Gpt2 => Ok(gpt2::encode(text)),
            Kind::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Kind::File(file) => file.encode(text),
        }
    }

    /// Returns the text of tokens, as bytes: a token may end in the middle of a character. Tokens
    /// outside the vocabulary and [`end_of_text`](Self::end_of_text) have no text.
    pub fn decode(&self, tokens: &[u32]) -> Vec<u8> {
        match &self.0 {
            Kind::Gpt2 => gpt2::decode(tokens),
            Kind::Bytes => tokens.iter().filter_map(|t| u8::try_from(*t).ok()).collect(),
            Kind::File(file) => file.decode(tokens).into_bytes(),
        }
    }

    /// Returns whether decoding restores every byte that was encoded.
    pub fn is_lossless(&self) -> bool {
        match &self.0 {
            Kind::Gpt2 | Kind::Bytes => true,
            Kind::File(file) => file.is_lossless(),
        }
    }

    /// Returns the last place in `text` where a cut changes no token.
    pub(crate) fn cut(&self, text: &str) -> Option<usize> {
        match &self.0 {
            Kind::Gpt2 => gpt2::cut(text),
            Kind::Bytes => (!text.is_empty()).then_some(text.len()),
            Kind::File(_) => file::cut(text).or_else(|| gpt2::cut(text)),
        }
    }

    /// Returns the number of bytes above which text without such a place is cut anyway, to bound
    /// memory.
    pub(crate) fn longest_word(&self) -> usize {
        match &self.0 {
            Kind::Gpt2 | Kind::Bytes => 8 << 20,
            Kind::File(_) => file::LONGEST_WORD,
        }
    }
}

/// Returns the last place between a character and the next that `fits` accepts.
fn last_between(text: &str, fits: impl Fn(char, char) -> bool) -> Option<usize> {
    let mut after: Option<(usize, char)> = None;
    for (at, c) in text.char_indices().rev() {
        if let Some((place, next)) = after
            && fits(c, next)
        {
            return Some(place);
        }
        after = Some((at, c));
    }
    None
}

fn is_missing(path: &Path) -> bool {
    let about = std::fs::metadata(path);
    about.is_err_and(|e| matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
}

/// Returns the error for a name that is neither a tokenizer nor a file.
fn missing(name: &str) -> TextError {
    let path = Path::new(name);
    let is_path = path.components().count() > 1 || path.extension().is_some();
    match std::path::absolute(path) {
        Ok(full) if is_path => TextError::MissingTokenizer { name: name.into(), full },
        _ => TextError::UnknownTokenizer(name.into()),
    }
}

#[cfg(all(test, feature = "hf-tokenizers"))]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_enough_to_make_it_again() {
        let json = Tokenizer::learn(["hello hello world".to_string()].into_iter(), 280).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, json).unwrap();
        for name in ["gpt2", "bytes", path.to_str().unwrap()] {
            let tokenizer = Tokenizer::open(name).unwrap();
            let again = Tokenizer::from_record(tokenizer.record()).unwrap();
            let tokens = tokenizer.encode("hello, wörld").unwrap();
            assert_eq!(again.encode("hello, wörld").unwrap(), tokens, "{name}");
            assert_eq!(again.vocab(), tokenizer.vocab());
            assert_eq!(again.fingerprint(), tokenizer.fingerprint());
            assert_eq!(tokenizer.decode(&tokens), "hello, wörld".as_bytes());
            assert!(tokenizer.end_of_text().is_some());
        }
    }

    #[test]
    fn strangers_are_named_in_one_line() {
        let error = Tokenizer::open("gpt5").unwrap_err().to_string();
        assert!(error.contains("gpt5") && error.contains("bytes"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let gone = Tokenizer::open(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(gone.contains("missing") && gone.contains(path.to_str().unwrap()), "{gone}");
        let relative = Tokenizer::open("gone.json").unwrap_err().to_string();
        let full = std::env::current_dir().unwrap().join("gone.json");
        assert!(relative.contains(full.to_str().unwrap()), "{relative}");
        for error in [&gone, &relative] {
            assert!(!error.contains("unknown") && error.lines().count() == 1, "{error}");
        }
        for text in ["", "{}", "not json", "{\"model\": {\"type\": \"BPE\"}}"] {
            std::fs::write(&path, text).unwrap();
            let error = Tokenizer::open(path.to_str().unwrap()).unwrap_err().to_string();
            assert!(error.contains("tokenizer.json: not a usable tokenizer"), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
