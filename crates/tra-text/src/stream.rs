//! Turns tokens into text as they arrive, without half characters.

use crate::source::complete;
use crate::tokenizer::Tokenizer;

/// Decodes tokens that arrive one by one.
///
/// ```
/// use tra_text::{TextStream, Tokenizer};
///
/// let tokenizer = Tokenizer::open("bytes")?;
/// let mut stream = TextStream::new(&tokenizer);
/// let parts: Vec<String> = "aé".bytes().map(|byte| stream.push(byte.into())).collect();
/// assert_eq!(parts, ["a", "", "é"]);
/// # Ok::<(), tra_text::TextError>(())
/// ```
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The latest tokens, and how many bytes of their text have been returned.
    tokens: Vec<u32>,
    given: usize,
}

/// Number of tokens that are kept once their text has been returned: a tokenizer that joins tokens
/// with spaces needs a few before the next.
const KEPT: usize = 64;

impl<'a> TextStream<'a> {
    /// Starts a stream without text.
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, tokens: Vec::new(), given: 0 }
    }

    /// Adds a token and returns the text that is now complete.
    pub fn push(&mut self, token: u32) -> String {
        self.tokens.push(token);
        let bytes = self.tokenizer.decode(&self.tokens);
        let given = self.given.min(bytes.len());
        let new = &bytes[given..];
        // An unfinished character waits, be it as bytes or as U+FFFD.
        let whole = if new.ends_with("\u{fffd}".as_bytes()) { 0 } else { complete(new) };
        let text = String::from_utf8_lossy(&new[..whole]).into_owned();
        self.given = given + whole;
        if self.given == bytes.len() && self.tokens.len() >= 2 * KEPT {
            self.tokens.drain(..self.tokens.len() - KEPT);
            self.given = self.tokenizer.decode(&self.tokens).len();
        }
        text
    }

    /// Returns the rest of the text. An unfinished character becomes U+FFFD.
    pub fn finish(self) -> String {
        let bytes = self.tokenizer.decode(&self.tokens);
        String::from_utf8_lossy(&bytes[self.given.min(bytes.len())..]).into_owned()
    }
}

#[cfg(all(test, feature = "hf-tokenizers"))]
mod tests {
    use super::*;

    #[test]
    fn a_stream_gives_the_whole_text() {
        let text = "A 👩‍👩‍👧 family — 戦場の, naïve\r\n\t code() {}\n".repeat(20);
        // Every byte is a token, so that characters outside ASCII arrive in parts.
        let json = Tokenizer::learn([text.clone()].into_iter(), 257).unwrap();
        let learned = Tokenizer::from_record(&json).unwrap();
        for tokenizer in
            [Tokenizer::open("gpt2").unwrap(), Tokenizer::open("bytes").unwrap(), learned]
        {
            let mut stream = TextStream::new(&tokenizer);
            let mut all = String::new();
            for token in tokenizer.encode(&text).unwrap() {
                let part = stream.push(token);
                assert!(!part.contains('\u{fffd}'), "{part:?}");
                all += &part;
            }
            all += &stream.finish();
            assert_eq!(all, text);
        }
        let bytes = Tokenizer::open("bytes").unwrap();
        let mut stream = TextStream::new(&bytes);
        assert_eq!([0xE6, 0x88].map(|b| stream.push(b)).concat() + &stream.finish(), "\u{fffd}");
        // A character that is never finished does not spoil the next.
        let mut stream = TextStream::new(&bytes);
        let all = [0xE6, 0xC3, 0xA9].map(|b| stream.push(b)).concat() + &stream.finish();
        assert_eq!(all, "\u{fffd}é");
    }
}
