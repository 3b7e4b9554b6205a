//! Stands in for `file.rs` in a build without the feature `hf-tokenizers`.

use crate::error::TextError;

pub(super) const LONGEST_WORD: usize = 0;

fn not_built(name: &str, action: &'static str) -> TextError {
    TextError::NotBuilt { name: name.into(), action, feature: "hf-tokenizers" }
}

/// A tokenizer there is none of: `parse` never returns one.
#[derive(Debug)]
pub(super) enum FileTokenizer {}

impl FileTokenizer {
    pub(super) fn parse(name: &str, _: String) -> Result<Self, TextError> {
        Err(not_built(name, "read a tokenizer.json"))
    }

    pub(super) fn json(&self) -> &str {
        match *self {}
    }

    pub(super) fn vocab(&self) -> usize {
        match *self {}
    }

    pub(super) fn is_lossless(&self) -> bool {
        match *self {}
    }

    pub(super) fn end_of_text(&self) -> Option<u32> {
        match *self {}
    }

    pub(super) fn encode(&self, _: &str) -> Result<Vec<u32>, TextError> {
        match *self {}
    }

    pub(super) fn decode(&self, _: &[u32]) -> String {
        match *self {}
    }
}

pub(super) fn cut(_: &str) -> Option<usize> {
    None
}

pub(super) fn learn(_: impl Iterator<Item = String> + Send, _: usize) -> Result<String, TextError> {
    Err(not_built("tokenizer.json", "learn a tokenizer"))
}
