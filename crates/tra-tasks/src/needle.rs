//! Find the one marked value in noise.
//!
//! `BOS noise… MARK value noise… SEP MARK answer`: with three symbols,
//! `<bos> c a <mark> b c <sep> <mark> b`. Only the answer is scored. The place of the mark is drawn
//! evenly; the value and the noise are drawn evenly from the alphabet. Noise may contain the value,
//! but never the mark. Length counts tokens between BOS and SEP.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols::{self, BOS, FREE, SEP};
use crate::{Sample, Split, Task, TaskInfo};

/// The token before the value to be found.
pub const MARK: u32 = FREE;

const SPLITS: &[Split] = &{
    let [train, iid] = symbols::train_and_iid(2, 256);
    [train, iid, symbols::longer("257-1024", 257, 1024), symbols::longer("1025-4096", 1025, 4096)]
};

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Needle {
    /// Number of different symbols, for the noise and for the value.
    pub alphabet: u32,
}

impl Default for Needle {
    fn default() -> Self {
        Self { alphabet: 256 }
    }
}

impl Task for Needle {
    const INFO: TaskInfo = TaskInfo {
        name: "needle",
        about: "find the one marked value in noise",
        unit: "tokens",
        splits: SPLITS,
        special: &["<pad>", "<bos>", "<sep>", "<eos>", "<mark>"],
        min_length: 2,
        extra_tokens: 4,
        ..TaskInfo::DEFAULT
    };

    fn symbol_count(&self) -> u32 {
        self.alphabet
    }

    fn sample(&self, _: &Split, length: usize, stream: Stream) -> Sample {
        // The value is whatever symbol stands behind the mark.
        let mut hay = self.symbols().string(stream.fork(0), length);
        let place = stream.fork(1).below(0, length as u64 - 1) as usize;
        hay[place] = MARK;
        let given = [&[BOS], hay.as_slice(), &[SEP, MARK]].concat();
        symbols::given_then_scored(&given, &[hay[place + 1]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_answers, draw, samples};

    fn solve(prefix: &[u32]) -> Option<u32> {
        let [1, hay @ .., 2, 4] = prefix else { return None };
        let marks: Vec<_> = hay.windows(2).filter(|pair| pair[0] == 4).collect();
        assert_eq!(marks.len(), 1, "one needle");
        Some(marks[0][1])
    }

    #[test]
    fn every_answer_follows_from_the_mark() {
        check_answers(&Needle::default(), 20, solve);
        check_answers(&Needle { alphabet: 2 }, 20, solve);
    }

    #[test]
    fn places_values_and_noise_are_drawn_evenly() {
        for alphabet in [2, 8] {
            let mut places = [0; 9];
            let mut seen = vec![[0; 2]; alphabet as usize];
            for Sample { tokens, .. } in samples(&Needle { alphabet }, "train", 10, 4500) {
                assert_eq!(tokens.len(), 14);
                assert_eq!(tokens.iter().filter(|t| **t == 4).count(), 2);
                let place = tokens.iter().position(|t| *t == 4).unwrap() - 1;
                places[place] += 1;
                seen[tokens[13] as usize - 5][0] += 1;
                seen[tokens[if place == 0 { 10 } else { 1 }] as usize - 5][1] += 1;
            }
            assert!(places.iter().all(|n| (400..600).contains(n)), "{places:?}");
            let share = 4500 / alphabet as i32;
            assert!(seen.iter().flatten().all(|n| (n - share).abs() < share / 5), "{seen:?}");
        }
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
        let text = draw(&Needle::default(), "train", (1, 1), 0, 0).unwrap_err().to_string();
        assert!(text.contains("at least 2"), "{text}");
        assert!(Needle { alphabet: 1 }.validate().unwrap_err().contains("alphabet"));
    }
}
