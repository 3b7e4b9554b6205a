//! GPT-2's byte-pair encoding, with the vocabulary that comes with `tiktoken-rs`.

use tiktoken_rs::{CoreBPE, r50k_base_singleton};

pub(super) const VOCAB: usize = 50_257;
pub(super) const END_OF_TEXT: u32 = 50_256;

/// Length from which a run of white space is split here: the regular expression of `tiktoken-rs`
/// backtracks through a run and overflows the stack in one of millions.
const LONG_RUN: usize = 4096;

fn table() -> &'static CoreBPE {
    r50k_base_singleton()
}

pub(super) fn encode(text: &str) -> Vec<u32> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some((start, last)) = long_run(rest) {
        // GPT-2 splits a run of white space before its last character, which may belong to the
        // next word. With a cut there, every part has the tokens it has in the whole.
        tokens.extend(table().encode_ordinary(&rest[..start]));
        tokens.extend(table().encode_ordinary(&rest[start..last]));
        rest = &rest[last..];
    }
    tokens.extend(table().encode_ordinary(rest));
    tokens
}

/// Returns where the first long run of white space before a word begins, and where its last
/// character is.
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

/// Returns the last place before white space that follows something else. No token of GPT-2 spans
/// such a place, and none depends on what is behind it.
pub(super) fn cut(text: &str) -> Option<usize> {
    super::last_between(text, |c, next| next.is_whitespace() && !c.is_whitespace())
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

    /// Short runs are compared with the regular expression, long ones with its rule.
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
