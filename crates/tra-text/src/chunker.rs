//! Cuts a text that arrives in parts into pieces that are tokenised separately.

use crate::tokenizer::Tokenizer;

/// Least length of a piece in bytes; the last may be shorter.
const PIECE: usize = 1 << 20;

/// Text that is not yet part of a piece.
#[derive(Default)]
pub(crate) struct Pieces {
    waiting: String,
    /// Bytes known to have no place to cut, so that a long word is not searched again and again.
    searched: usize,
}

impl Pieces {
    /// Adds text and returns the pieces that are complete.
    pub fn push(&mut self, text: &str, tokenizer: &Tokenizer) -> Vec<String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        // A row of parquet may have any length.
        while !rest.is_empty() {
            let (bit, behind) = rest.split_at(rest.floor_char_boundary(PIECE));
            self.take(bit, tokenizer, &mut pieces);
            rest = behind;
        }
        pieces
    }

    fn take(&mut self, text: &str, tokenizer: &Tokenizer, pieces: &mut Vec<String>) {
        self.waiting += text;
        if self.waiting.len() < PIECE + self.searched {
            return;
        }
        let longest = tokenizer.longest_word();
        if let Some(place) = tokenizer.cut(&self.waiting).filter(|place| *place > 0) {
            pieces.push(self.cut(place));
        } else if self.waiting.len() < longest {
            self.searched = self.waiting.len();
        } else {
            // A word of millions of letters has no place to cut, so it is cut by length.
            while self.waiting.len() >= longest {
                pieces.push(self.cut(self.waiting.floor_char_boundary(longest)));
            }
        }
    }

    /// Removes and returns the text before `place`.
    fn cut(&mut self, place: usize) -> String {
        self.searched = 0;
        let rest = self.waiting.split_off(place);
        std::mem::replace(&mut self.waiting, rest)
    }

    /// Returns what is left at the end.
    pub fn rest(self) -> Option<String> {
        (!self.waiting.is_empty()).then_some(self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, bit: usize, tokenizer: &Tokenizer) -> Vec<String> {
        let mut pieces = Pieces::default();
        let mut all = Vec::new();
        for bit in text.as_bytes().chunks(bit) {
            all.extend(pieces.push(std::str::from_utf8(bit).unwrap(), tokenizer));
        }
        all.extend(pieces.rest());
        all
    }

    #[test]
    fn pieces_are_the_text_and_stay_small() {
        let tokenizer = Tokenizer::open("gpt2").unwrap();
        let text = "some words to cut between\n".repeat(200_000);
        let pieces = cut(&text, 1 << 16, &tokenizer);
        assert!(pieces.len() >= 4 && pieces.concat() == text);
        let word = "a".repeat(20 << 20);
        let pieces = cut(&word, 1 << 20, &tokenizer);
        assert!(pieces.concat() == word);
        let longest = tokenizer.longest_word();
        assert!(pieces.iter().all(|piece| piece.len() <= longest) && pieces.len() == 3);
    }

    #[cfg(feature = "hf-tokenizers")]
    #[test]
    fn pieces_do_not_grow_with_what_is_pushed_at_once() {
        let json = Tokenizer::learn(["some words".to_string()].into_iter(), 257).unwrap();
        let learned = Tokenizer::from_record(&json).unwrap();
        let lines = "some words to cut between\n".repeat(400_000);
        let line = "some words to cut between ".repeat(400_000);
        let word = "é".repeat(5 << 20);
        for tokenizer in [learned, Tokenizer::open("bytes").unwrap()] {
            for (text, most) in [(&lines, 2 * PIECE), (&line, 2 * PIECE), (&word, 2 * PIECE)] {
                let pieces = cut(text, text.len(), &tokenizer);
                assert!(pieces.concat() == *text);
                let longest = pieces.iter().map(String::len).max().unwrap();
                assert!(longest <= most, "{longest}");
            }
        }
    }

    /// Cutting a long line changes no token, because it is cut at a blank.
    #[cfg(feature = "hf-tokenizers")]
    #[test]
    fn a_long_line_has_the_tokens_of_the_whole() {
        let line = "all of this is on one line, 12345 words and  more of it ".repeat(60_000);
        let json = Tokenizer::learn([line[..5000].to_string()].into_iter(), 300).unwrap();
        let tokenizer = Tokenizer::from_record(&json).unwrap();
        let pieces = cut(&line, 1 << 20, &tokenizer);
        assert!(pieces.len() > 2);
        let parts: Vec<u32> = pieces.iter().flat_map(|p| tokenizer.encode(p).unwrap()).collect();
        assert!(parts == tokenizer.encode(&line).unwrap());
    }
}
