//! GPT-2's byte pairs, from the vocabulary that comes with `tiktoken-rs`.

use tiktoken_rs::{CoreBPE, r50k_base_singleton};

pub(super) const VOCAB: usize = 50_257;
pub(super) const END_OF_TEXT: u32 = 50_256;

/// Longer runs of white space are cut apart here: the regular expression behind `tiktoken-rs` walks
/// back through a run and runs out of stack in one of millions.
const LONG_RUN: usize = 4096;

fn table() -> &'static CoreBPE {
    r50k_base_singleton()
}

pub(super) fn encode(text: &str) -> Vec<u32> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some((start, last)) = long_run(rest) {
        // GPT-2 splits a run of white space before its last character, which may belong to the
        // word behind it. Cut there, every part is split as it was in the whole.
        tokens.extend(table().encode_ordinary(&rest[..start]));
        tokens.extend(table().encode_ordinary(&rest[start..last]));
        rest = &rest[last..];
    }
    tokens.extend(table().encode_ordinary(rest));
    tokens
}

/// Where the first long run of white space in front of a word begins, and its last character.
fn long_run(text: &str) -> Option<(usize, usize)> {
    if text.len() < LONG_RUN {
        return None;
    }
    let (mut start, mut last) = (0, 0);
    let mut inside = false;
    for (at, c) in text.char_indices() {
        if c.is_whitespace() {
            if !inside {
                (start, inside) = (at, true);
            }
            last = at;
        } else {
            if inside && last - start >= LONG_RUN {
                return Some((start, last));
            }
            inside = false;
        }
    }
    None
}

/// Before white space that follows something else: no word of GPT-2's reaches across, and none
/// looks further.
pub(super) fn cut(text: &str) -> Option<usize> {
    let mut after: Option<(usize, char)> = None;
    for (at, c) in text.char_indices().rev() {
        if let Some((place, next)) = after
            && next.is_whitespace()
            && !c.is_whitespace()
        {
            return Some(place);
        }
        after = Some((at, c));
    }
    None
}

pub(super) fn decode(tokens: &[u32]) -> Vec<u8> {
    let known: Vec<u32> = tokens.iter().copied().filter(|t| *t < END_OF_TEXT).collect();
    table().decode_bytes(&known).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_changes_no_token() {
        let text = "It's  12 o'clock\n\n = Title = \n \t x\r\n\r\nend 'll  ";
        let whole = encode(text);
        let mut place = Some(text.len());
        let mut cuts = 0;
        while let Some(at) = place.and_then(|place| cut(&text[..place])) {
            assert_eq!([encode(&text[..at]), encode(&text[at..])].concat(), whole, "{at}");
            cuts += 1;
            place = Some(at);
        }
        assert!(cuts > 5, "{cuts}");
        assert_eq!(cut("word"), None);
        assert_eq!(cut("  word"), None);
    }

    /// What the regular expression gives where it can be asked, and past that by its rule.
    #[test]
    fn long_runs_of_white_space_are_split_as_short_ones() {
        for (run, word) in [(" ", "word"), ("\n", "x"), ("\u{2003}", "é"), (" ", "")] {
            for times in [5000, 6000] {
                let text = format!("a{}{word}", run.repeat(times));
                assert_eq!(encode(&text), table().encode_ordinary(&text), "{run:?}");
            }
        }
        let text = format!("{}x", " ".repeat(3_000_000));
        let tokens = encode(&text);
        assert_eq!(tokens[tokens.len() - 1], 2124);
        assert_eq!(decode(&tokens), text.as_bytes());
    }
}
