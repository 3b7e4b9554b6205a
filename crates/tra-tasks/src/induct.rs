//! Find the one earlier place of a cue and say what followed it there.
//!
//! `BOS x1..xn SEP cue answer`: with three symbols, `<bos> c a b c <sep> a b`, because `a` occurs
//! once and `b` follows it. Only the answer is scored. The cue is drawn evenly from the alphabet,
//! its place evenly from all but the last. The other symbols are drawn evenly from the rest of the
//! alphabet and may repeat. Length counts symbols of the string.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols::{self, BOS, SEP};
use crate::{Sample, Split, Task, TaskInfo};

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Induct {
    /// Number of different symbols.
    pub alphabet: u32,
}

impl Default for Induct {
    fn default() -> Self {
        Self { alphabet: 256 }
    }
}

impl Task for Induct {
    const INFO: TaskInfo = TaskInfo {
        name: "induct",
        about: "say what followed the cue where it occurred before",
        splits: &symbols::string_splits(2),
        min_length: 2,
        extra_tokens: 4,
        ..TaskInfo::DEFAULT
    };

    fn symbol_count(&self) -> u32 {
        self.alphabet
    }

    fn sample(&self, _: &Split, length: usize, stream: Stream) -> Sample {
        let (string, place) = self.symbols().string_with_cue(stream, length);
        let given = [&[BOS], string.as_slice(), &[SEP, string[place]]].concat();
        symbols::given_then_scored(&given, &[string[place + 1]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_answers, draw, samples};

    fn solve(prefix: &[u32]) -> Option<u32> {
        let [1, string @ .., 2, cue] = prefix else { return None };
        let places: Vec<_> = (0..string.len()).filter(|at| string[*at] == *cue).collect();
        assert_eq!(places.len(), 1, "the cue is ambiguous");
        Some(string[places[0] + 1])
    }

    #[test]
    fn every_answer_follows_from_the_string() {
        for alphabet in [256, 3, 2] {
            check_answers(&Induct { alphabet }, 20, solve);
        }
    }

    #[test]
    fn symbols_cues_and_answers_are_drawn_evenly() {
        for alphabet in [4, 8] {
            let mut seen = vec![[0; 3]; alphabet as usize];
            for Sample { tokens, .. } in samples(&Induct { alphabet }, "train", 10, 4000) {
                assert_eq!(tokens.len(), 14);
                for (kind, at) in [5, 12, 13].into_iter().enumerate() {
                    seen[tokens[at] as usize - 4][kind] += 1;
                }
            }
            let share = 4000 / alphabet as i32;
            let even = |n: &i32| (n - share).abs() < share / 5;
            assert!(seen.iter().flatten().all(even), "{seen:?}");
        }
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
        let text = draw(&Induct::default(), "train", (1, 1), 0, 0).unwrap_err().to_string();
        assert!(text.contains("at least 2"), "{text}");
        assert!(Induct { alphabet: 1 }.validate().unwrap_err().contains("alphabet"));
    }
}
