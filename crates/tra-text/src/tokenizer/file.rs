//! A Hugging Face `tokenizer.json`.

use serde::Deserialize;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, DecoderWrapper, Tokenizer, TokenizerBuilder};

use crate::error::{TextError, first_line};
use crate::guard::guarded;

/// Names that published tokenizers use for the end of a document.
const ENDS: [&str; 7] =
    ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]", "<|im_end|>", "<s>"];

/// Bytes above which a word is cut: the library takes over 100 bytes of memory per byte of a word.
pub(super) const LONGEST_WORD: usize = 256 << 10;

pub(super) struct FileTokenizer {
    inner: Tokenizer,
    json: String,
    vocab: usize,
    end_of_text: Option<u32>,
}

impl std::fmt::Debug for FileTokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileTokenizer({} tokens)", self.vocab)
    }
}

impl FileTokenizer {
    pub(super) fn parse(name: &str, json: String) -> Result<Self, TextError> {
        let wrong = |reason: String| TextError::Tokenizer { name: name.into(), reason };
        check_sizes(&json).map_err(wrong)?;
        let parsed = guarded(|| json.parse::<Tokenizer>()).map_err(wrong)?;
        let mut inner = parsed.map_err(|e| wrong(first_line(&e)))?;
        // Texts are always encoded whole and without padding.
        inner.with_truncation(None).map_err(|e| wrong(first_line(&e)))?;
        inner.with_padding(None);
        // One more than the largest token, because some tokenizers leave gaps.
        let largest = inner.get_vocab(true).values().copied().max();
        let vocab = largest.ok_or_else(|| wrong("it has no tokens".into()))? as usize + 1;
        let end_of_text = ENDS.iter().find_map(|name| inner.token_to_id(name));
        Ok(Self { inner, json, vocab, end_of_text })
    }

    pub(super) fn json(&self) -> &str {
        &self.json
    }

    pub(super) fn vocab(&self) -> usize {
        self.vocab
    }

    /// Returns whether every text can be restored from its tokens: nothing is normalised or unknown.
    pub(super) fn is_lossless(&self) -> bool {
        let bytes = matches!(self.inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_)));
        bytes && self.inner.get_normalizer().is_none()
    }

    pub(super) fn end_of_text(&self) -> Option<u32> {
        self.end_of_text
    }

    /// Returns the tokens of a text. Fails for an unknown word if there is no token for those.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut tokens = Vec::new();
        let (mut first, mut word) = (0, 0);
        for (at, c) in text.char_indices() {
            if c.is_whitespace() {
                word = at + c.len_utf8();
            } else if at + c.len_utf8() - word > LONGEST_WORD {
                tokens.extend(self.encode_part(&text[first..at])?);
                (first, word) = (at, at);
            }
        }
        tokens.extend(self.encode_part(&text[first..])?);
        Ok(tokens)
    }

    fn encode_part(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let wrong = |reason: String| TextError::Tokenizer {
            name: "tokenizer.json".into(),
            reason: format!("it cannot encode the text: {reason}"),
        };
        let encoded = guarded(|| self.inner.encode_fast(text, false)).map_err(wrong)?;
        Ok(encoded.map_err(|e| wrong(first_line(&e)))?.get_ids().to_vec())
    }

    pub(super) fn decode(&self, tokens: &[u32]) -> String {
        let text = guarded(|| self.inner.decode(tokens, true).unwrap_or_default());
        text.unwrap_or_default()
    }
}

/// The parts of a `tokenizer.json` that state a size.
#[derive(Deserialize)]
struct Sizes {
    #[serde(default)]
    normalizer: Option<Normalizer>,
}

#[derive(Deserialize)]
struct Normalizer {
    #[serde(default)]
    precompiled_charsmap: Option<String>,
    #[serde(default)]
    normalizers: Vec<Normalizer>,
}

/// Refuses a table that states a larger size than it has: the library would allocate that much.
fn check_sizes(json: &str) -> Result<(), String> {
    let sizes: Sizes = serde_json::from_str(json).map_err(|e| first_line(&e))?;
    let mut waiting: Vec<Normalizer> = sizes.normalizer.into_iter().collect();
    while let Some(normalizer) = waiting.pop() {
        if let Some(table) = normalizer.precompiled_charsmap
            && stated_size(&table).is_some_and(|bytes| bytes > table.len())
        {
            return Err("its precompiled_charsmap is cut short".into());
        }
        waiting.extend(normalizer.normalizers);
    }
    Ok(())
}

/// Returns the size that a table states first: four bytes, little-endian, in base64.
fn stated_size(table: &str) -> Option<usize> {
    let mut bits = 0u64;
    for digit in table.bytes().take(6) {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u64::from(value);
    }
    // Six digits are 36 bits; the first 32 are the size.
    (table.len() >= 6).then(|| ((bits >> 4) as u32).swap_bytes() as usize)
}

/// Returns the last place behind line breaks: a piece is made of whole lines, if there are any. For
/// most tokenizers that changes no token. Where a token could span two lines, this defines the tokens.
pub(super) fn cut(text: &str) -> Option<usize> {
    super::last_between(text, |c, next| c == '\n' && !next.is_whitespace())
}

pub(super) fn learn(
    texts: impl Iterator<Item = String> + Send,
    vocab: usize,
) -> Result<String, TextError> {
    let wrong = |e: &dyn std::fmt::Display| TextError::Tokenizer {
        name: "learning".into(),
        reason: first_line(e),
    };
    let end = AddedToken::from(ENDS[0], true);
    let mut trainer = BpeTrainerBuilder::new()
        .vocab_size(vocab)
        .min_frequency(2)
        .show_progress(false)
        .special_tokens(vec![end])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let split = ByteLevel::new(false, true, true);
    let mut tokenizer = TokenizerBuilder::new()
        .with_model(BPE::default())
        .with_normalizer(None::<tokenizers::NormalizerWrapper>)
        .with_pre_tokenizer(Some(split))
        .with_post_processor(Some(split))
        .with_decoder(Some(split))
        .build()
        .map_err(|e| wrong(&e))?;
    tokenizer.train(&mut trainer, texts).map_err(|e| wrong(&e))?;
    tokenizer.to_string(false).map_err(|e| wrong(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learned_tokenizer_has_every_byte_and_the_size_asked_for() {
        let text = "the cat sat on the mat and the cat sat on the hat ".repeat(20);
        let json = learn([text.clone()].into_iter(), 270).unwrap();
        let tokenizer = FileTokenizer::parse("here", json.clone()).unwrap();
        assert_eq!(tokenizer.vocab(), 270);
        assert_eq!(tokenizer.end_of_text(), Some(0));
        assert!(tokenizer.is_lossless());
        assert!(tokenizer.encode(&text).unwrap().len() < text.len() * 3 / 4);
        for text in ["the cat", "\u{0}\u{1f600} 戦場\r\n\t  x"] {
            assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text);
        }
        assert_eq!(learn([text].into_iter(), 270).unwrap(), json, "the same every time");
    }

    /// A word is cut at the same places wherever it stands in a text.
    #[test]
    fn a_word_without_end_is_cut() {
        let json = learn(["aab ".repeat(50)].into_iter(), 260).unwrap();
        let tokenizer = FileTokenizer::parse("here", json).unwrap();
        let word = "ab".repeat(LONGEST_WORD);
        let whole = tokenizer.encode(&word).unwrap();
        let parts = [&word[..LONGEST_WORD], &word[LONGEST_WORD..]].map(|p| tokenizer.encode(p));
        assert!(parts.map(Result::unwrap).concat() == whole);
        assert_eq!(tokenizer.decode(&whole), word);
        let within = tokenizer.encode(&format!("a {word} b\n")).unwrap();
        assert_eq!(tokenizer.decode(&within), format!("a {word} b\n"));
    }

    #[test]
    fn a_table_that_states_a_wrong_size_is_refused() {
        assert_eq!(
            (stated_size("CAAACAAAAAAA"), stated_size("CAAAAAAA")),
            (Some(0x0800_0008), Some(8))
        );
        assert_eq!((stated_size("CAAA"), stated_size("no base64")), (None, None));
        let with = |table: &str| {
            let normalizer =
                format!(r#"{{"type":"Precompiled","precompiled_charsmap":"{table}"}}"#);
            let inner = format!(r#"{{"type":"Sequence","normalizers":[{normalizer}]}}"#);
            [normalizer, inner].map(|n| check_sizes(&format!(r#"{{"normalizer":{n}}}"#)))
        };
        assert_eq!(with("CAAAAAAAAAAAAAAAYQA="), [Ok(()), Ok(())]);
        assert!(
            with("CAAACAAAAAAAAAAAYQA=")
                .iter()
                .all(|r| r.as_ref().is_err_and(|e| e.contains("cut")))
        );
    }

    #[test]
    fn pieces_are_whole_lines() {
        assert_eq!(cut("one\ntwo\n\nthree"), Some(9));
        assert_eq!(cut("one\ntwo\n\n"), Some(4));
        assert_eq!(cut("one two"), None);
    }
}
