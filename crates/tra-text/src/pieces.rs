//! A text that arrives in bits, cut into pieces that are tokenised apart.

use crate::tokenizer::Tokenizer;

/// A piece is at least this long, but for the last.
const PIECE: usize = 1 << 20;

/// A piece never grows longer: text without a place to cut, such as a word of millions of letters, is
/// cut here nevertheless.
const LONGEST: usize = 8 << 20;

/// Text waiting to become a piece.
#[derive(Default)]
pub(crate) struct Pieces {
    waiting: String,
    /// Up to here there is no place to cut, so that a long word is not searched over and over.
    searched: usize,
}

impl Pieces {
    /// Takes up more text; gives a piece if there is one.
    pub fn push(&mut self, text: &str, tokenizer: &Tokenizer) -> Option<String> {
        self.waiting += text;
        if self.waiting.len() < PIECE + self.searched {
            return None;
        }
        let place = tokenizer.cut(&self.waiting).filter(|place| *place > 0);
        let place = match place {
            None if self.waiting.len() < LONGEST => {
                self.searched = self.waiting.len();
                return None;
            }
            None => self.waiting.floor_char_boundary(LONGEST),
            Some(place) => place,
        };
        self.searched = 0;
        let rest = self.waiting.split_off(place);
        Some(std::mem::replace(&mut self.waiting, rest))
    }

    /// What is left at the end.
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
        assert!(pieces.iter().all(|piece| piece.len() <= LONGEST) && pieces.len() == 3);
    }
}
