//! Say which value came with each key.
//!
//! `BOS k v k v … SEP k v k v …`: pairs in any order, then some of their keys again, each answered
//! by its value: `<bos> k7 v1 k2 v0 k5 v1 <sep> k5 v1 k7 v1`. Only values behind SEP are scored.
//! Keys are drawn without repeats, values evenly and with repeats. `queries` keys are asked for, or
//! all if there are fewer, none twice and in random order. Length counts pairs.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols::{self, BOS, FREE, SEP, Symbols};
use crate::{Sample, Split, Task, TaskInfo};

const SPLITS: &[Split] = &{
    let [train, iid] = symbols::train_and_iid(1, 32);
    [train, iid, symbols::longer("33-64", 33, 64), symbols::longer("65-128", 65, 128)]
};

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recall {
    /// Number of different keys, which is also the largest number of pairs.
    pub keys: u32,
    /// Number of different values.
    pub values: u32,
    /// Number of keys that are asked for; with fewer pairs, all of them.
    pub queries: u32,
}

impl Default for Recall {
    fn default() -> Self {
        Self { keys: 128, values: 128, queries: 4 }
    }
}

impl Recall {
    fn keys(&self) -> Symbols {
        Symbols { first: FREE, count: self.keys }
    }

    fn values(&self) -> Symbols {
        Symbols { first: self.keys().end(), count: self.values }
    }
}

impl Task for Recall {
    const INFO: TaskInfo = TaskInfo {
        name: "recall",
        about: "say which value came with each key",
        unit: "pairs",
        splits: SPLITS,
        ..TaskInfo::DEFAULT
    };

    fn symbol_count(&self) -> u32 {
        self.keys + self.values
    }

    fn validate(&self) -> Result<(), String> {
        symbols::check_range("keys", self.keys, 1)?;
        symbols::check_range("values", self.values, 2)?;
        symbols::check_range("queries", self.queries, 1)
    }

    fn check_length(&self, length: usize) -> Result<(), String> {
        symbols::check_distinct("keys", length, self.keys)
    }

    fn token_bounds(&self, length: usize) -> [u64; 2] {
        let length = length as u64;
        let pairs = length.saturating_add(length.min(self.queries.into()));
        [pairs.saturating_mul(2).saturating_add(2); 2]
    }

    fn sample(&self, _: &Split, length: usize, stream: Stream) -> Sample {
        let keys = self.keys().distinct(stream.fork(0), length);
        let values = self.values().string(stream.fork(1), length);
        let queries = length.min(self.queries as usize);
        // There are no more pairs than keys, so the length fits 32 bits.
        let asked = symbols::distinct(stream.fork(2), queries, length as u32);

        let pairs = keys.iter().zip(&values).flat_map(|(key, value)| [*key, *value]);
        let mut tokens: Vec<u32> = [BOS].into_iter().chain(pairs).chain([SEP]).collect();
        let mut scored = vec![false; tokens.len()];
        for pair in asked {
            tokens.extend([keys[pair as usize], values[pair as usize]]);
            scored.extend([false, true]);
        }
        Sample { tokens, scored }
    }

    fn symbol_name(&self, number: u32) -> String {
        match number.checked_sub(self.keys) {
            Some(value) => format!("v{value}"),
            None => format!("k{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_answers, draw, samples};

    fn solve(prefix: &[u32]) -> Option<u32> {
        let sep = prefix.iter().position(|t| *t == 2)?;
        if (prefix.len() - sep) % 2 == 1 {
            return None;
        }
        let key = prefix.last()?;
        let pairs = prefix[1..sep].chunks(2);
        let values: Vec<_> = pairs.filter(|pair| pair[0] == *key).map(|pair| pair[1]).collect();
        assert_eq!(values.len(), 1, "a key occurs twice or not at all");
        Some(values[0])
    }

    #[test]
    fn every_answer_follows_from_the_pairs() {
        check_answers(&Recall::default(), 30, solve);
        check_answers(&Recall { keys: 300, values: 2, queries: 1000 }, 30, solve);
    }

    fn count(task: &Recall, length: usize, at: usize, symbols: Symbols) -> Vec<i32> {
        let mut seen = vec![0; symbols.count as usize];
        for sample in samples(task, "train", length, 2000) {
            seen[(sample.tokens[at] - symbols.first) as usize] += 1;
        }
        seen
    }

    #[test]
    fn keys_values_and_queries_are_drawn_evenly() {
        for (keys, values) in [(8, 4), (4, 8)] {
            let task = Recall { keys, values, queries: 2 };
            assert_eq!(task.symbols().end(), 16);
            let places = [(1, keys, 4), (10, keys, 4), (12, keys, 4)];
            let answers = [(2, values, 4 + keys), (11, values, 4 + keys), (13, values, 4 + keys)];
            for (at, count_of, first) in places.into_iter().chain(answers) {
                let seen = count(&task, 4, at, Symbols { first, count: count_of });
                let share = 2000 / count_of as i32;
                assert!(seen.iter().all(|n| (n - share).abs() < share / 4), "{at}: {seen:?}");
            }
        }
        // The place asked for first, in each of 4 pairs.
        let mut places = [0; 4];
        for Sample { tokens, .. } in samples(&Recall::default(), "train", 4, 2000) {
            let at = tokens[1..9].iter().position(|t| *t == tokens[10]).unwrap();
            places[at / 2] += 1;
        }
        assert!(places.iter().all(|n| (400..600).contains(n)), "{places:?}");
    }

    #[test]
    fn as_many_keys_are_asked_for_as_told_and_none_twice() {
        for (queries, length, asked) in [(1, 9, 1), (4, 9, 4), (4, 3, 3), (20, 9, 9)] {
            let task = Recall { queries, ..Recall::default() };
            for Sample { tokens, scored } in samples(&task, "train", length, 50) {
                assert_eq!(scored.iter().filter(|s| **s).count(), asked);
                let keys = tokens[2 * length + 2..].iter().step_by(2);
                assert_eq!(keys.collect::<std::collections::HashSet<_>>().len(), asked);
            }
        }
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
        let task = Recall::default();
        let text = |length| draw(&task, "train", (length, length), 0, 0).unwrap_err().to_string();
        assert!(text(0).contains("at least 1"), "{}", text(0));
        assert!(text(129).contains("set keys to 129"), "{}", text(129));
        let bad = [
            (Recall { keys: 0, ..task.clone() }, "keys"),
            (Recall { values: 1, ..task.clone() }, "values"),
            (Recall { queries: 0, ..task.clone() }, "queries"),
        ];
        for (bad, setting) in bad {
            assert!(bad.validate().unwrap_err().starts_with(setting));
        }
    }
}
