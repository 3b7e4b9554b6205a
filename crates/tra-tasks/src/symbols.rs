//! What tasks over strings of symbols share: special tokens, drawing, names and splits.

use tra_random::Stream;

use crate::{Sample, Split};

/// The token that begins every sequence.
pub(crate) const BOS: u32 = 1;
/// The token behind what is given. Tokens 1 to 3 mean the same in every task here, used or not.
pub(crate) const SEP: u32 = 2;
/// The token behind an answer whose length has to be found.
pub(crate) const EOS: u32 = 3;
/// The first token that a task is free to use.
pub(crate) const FREE: u32 = 4;

/// How the tokens before [`FREE`] read.
pub(crate) const SPECIAL: &[&str] = &["<pad>", "<bos>", "<sep>", "<eos>"];

/// Largest value of a setting: more than any model here embeds, and safe for 32-bit arithmetic.
const MOST: u32 = 1_000_000;

/// Returns why a setting is out of range, if it is.
pub(crate) fn check_range(setting: &str, value: u32, least: u32) -> Result<(), String> {
    match (least..=MOST).contains(&value) {
        true => Ok(()),
        false => Err(format!("{setting} must be {least} to {MOST}, not {value}")),
    }
}

/// Returns why there are no `length` different symbols, if a setting has fewer.
pub(crate) fn check_distinct(setting: &str, length: usize, count: u32) -> Result<(), String> {
    match length <= count as usize {
        true => Ok(()),
        false => Err(format!(
            "there are only {count} different symbols; set {setting} to {length} or more"
        )),
    }
}

/// An alphabet: `count` consecutive tokens from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbols {
    /// The first token.
    pub first: u32,
    /// The number of tokens.
    pub count: u32,
}

impl Symbols {
    /// Returns the token after the last symbol.
    pub fn end(self) -> u32 {
        self.first + self.count
    }

    /// Draws any symbol evenly: draw number `index` of a stream.
    pub(crate) fn any(self, stream: Stream, index: u64) -> u32 {
        self.first + stream.below(index, self.count.into()) as u32
    }

    /// Draws a string of `n` symbols, each evenly.
    pub(crate) fn string(self, stream: Stream, n: usize) -> Vec<u32> {
        (0..n as u64).map(|at| self.any(stream, at)).collect()
    }

    /// Draws a string of `n <= count` symbols without repeats.
    pub(crate) fn distinct(self, stream: Stream, n: usize) -> Vec<u32> {
        let numbers = distinct(stream, n, self.count);
        numbers.into_iter().map(|number| self.first + number).collect()
    }

    /// Draws a string of `n >= 2` symbols with a cue, and returns the place of the cue: a symbol
    /// that occurs once and has a follower. Cue and place are drawn first and the rest among the
    /// other symbols, so two symbols are enough and nothing is drawn again.
    pub(crate) fn string_with_cue(self, stream: Stream, n: usize) -> (Vec<u32>, usize) {
        let place = stream.fork(0).below(0, n as u64 - 1) as usize;
        let cue = self.any(stream.fork(0), 1);
        let others = Self { first: self.first, count: self.count - 1 };
        let mut string = others.string(stream.fork(1), n);
        for symbol in &mut string {
            *symbol += u32::from(*symbol >= cue);
        }
        string[place] = cue;
        (string, place)
    }

    /// Returns how symbol number `number` reads: a letter if they are enough, else `s0`, `s1`, …
    pub(crate) fn name(self, number: u32) -> String {
        match u8::try_from(number) {
            Ok(letter) if number < self.count && self.count <= 26 => {
                char::from(b'a' + letter).into()
            }
            _ => format!("s{number}"),
        }
    }
}

/// Draws `n` of the numbers below `count`, without repeats and in random order: the first `n` steps
/// of a Fisher-Yates shuffle.
pub(crate) fn distinct(stream: Stream, n: usize, count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    for at in 0..n {
        let left = (numbers.len() - at) as u64;
        numbers.swap(at, at + stream.below(at as u64, left) as usize);
    }
    numbers.truncate(n);
    numbers
}

/// Makes a sample of a given part and a scored part.
pub(crate) fn given_then_scored(given: &[u32], answer: &[u32]) -> Sample {
    let scored = [vec![false; given.len()], vec![true; answer.len()]].concat();
    Sample { tokens: [given, answer].concat(), scored }
}

/// Makes the sample `BOS input SEP answer EOS`: the frame of `copy`, `copy-unique`, `reverse` and `sort`.
pub(crate) fn transcription(input: &[u32], answer: &[u32]) -> Sample {
    given_then_scored(&[&[BOS], input, &[SEP]].concat(), &[answer, &[EOS]].concat())
}

/// Returns the splits that every task has: one to train on, and the same again to test on.
pub(crate) const fn train_and_iid(from: usize, to: usize) -> [Split; 2] {
    [
        Split { name: "train", about: "short", from, to },
        Split { name: "iid", about: "short, as in training", from, to },
    ]
}

/// Returns a split that differs from training in length alone.
pub(crate) const fn longer(name: &'static str, from: usize, to: usize) -> Split {
    Split { name, about: "longer than in training", from, to }
}

/// Returns the splits of tasks on strings.
pub(crate) const fn string_splits(shortest: usize) -> [Split; 7] {
    let [train, iid] = train_and_iid(shortest, 50);
    [
        train,
        iid,
        longer("51-100", 51, 100),
        longer("101-200", 101, 200),
        longer("201-300", 201, 300),
        longer("500", 500, 500),
        longer("1000", 1000, 1000),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_numbers_are_distinct_and_every_order_is_as_likely() {
        let mut seen = std::collections::BTreeMap::new();
        for seed in 0..12_000 {
            *seen.entry(distinct(Stream::new(seed), 2, 4)).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 12);
        assert!(seen.iter().all(|(pair, n)| pair[0] != pair[1] && (850..1150).contains(n)));
        let mut all = distinct(Stream::new(1), 50, 50);
        all.sort();
        assert!(all.into_iter().eq(0..50));
    }

    #[test]
    fn a_cue_occurs_once_with_a_follower_anywhere() {
        for count in [2, 3, 256] {
            let mut places = [0; 5];
            let mut cues = [0; 3];
            for seed in 0..3000 {
                let symbols = Symbols { first: 4, count };
                let (string, place) = symbols.string_with_cue(Stream::new(seed), 6);
                assert_eq!(string.iter().filter(|s| **s == string[place]).count(), 1);
                assert!(string.iter().all(|s| (4..4 + count).contains(s)));
                places[place] += 1;
                cues[string[place] as usize % 3] += 1;
            }
            assert!(places.iter().all(|n| (520..680).contains(n)), "{places:?}");
            assert!(count != 3 || cues.iter().all(|n| (900..1100).contains(n)), "{cues:?}");
        }
    }

    #[test]
    fn names_are_letters_where_they_are_enough() {
        let (few, many) = (Symbols { first: 4, count: 26 }, Symbols { first: 4, count: 27 });
        assert_eq!([0, 25, 26].map(|number| few.name(number)), ["a", "z", "s26"]);
        assert_eq!(many.name(17), "s17");
    }
}
