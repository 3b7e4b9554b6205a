//! Do with a string what the instruction before it says.
//!
//! `BOS instruction x1..xn SEP answer EOS`: `<bos> reverse a b c <sep> c b a <eos>`. The paper does
//! not publish its instructions. Ours are:
//!
//! - `copy` and `reverse`: the whole string;
//! - `first` and `last`: one symbol;
//! - `induct`: behind SEP stands a cue that occurs once in the string, and the answer is the symbol
//!   that follows it there: `<bos> induct c a b c <sep> a b <eos>`.
//!
//! The answer and the EOS behind it are scored; the cue is not. Instructions are drawn evenly among
//! those the length allows: `first` and `last` need one symbol, `induct` needs two. The answer to an
//! empty string is EOS alone. Symbols are drawn evenly and may repeat, for `induct` as in
//! [`induct`](crate::induct). With `unique` none repeats, and no string is longer than the alphabet.
//! Length counts symbols of the string.
//!
//! A split named after an instruction has that instruction alone, which shows where a model fails.
//! There, a string too short for the instruction has EOS as its only answer.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols::{self, BOS, EOS, FREE, SEP};
use crate::{Sample, Split, Task, TaskInfo};

/// Instruction: repeat the string.
pub const COPY: u32 = FREE;
/// Instruction: repeat the string backwards.
pub const REVERSE: u32 = FREE + 1;
/// Instruction: say the first symbol.
pub const FIRST: u32 = FREE + 2;
/// Instruction: say the last symbol.
pub const LAST: u32 = FREE + 3;
/// Instruction: say the symbol that follows the cue.
pub const INDUCT: u32 = FREE + 4;

const SPLITS: &[Split] = &{
    let [train, iid] = symbols::train_and_iid(0, 50);
    [
        train,
        iid,
        symbols::longer("51-100", 51, 100),
        symbols::longer("101-200", 101, 200),
        symbols::longer("201-500", 201, 500),
        alone(COPY),
        alone(REVERSE),
        alone(FIRST),
        alone(LAST),
        alone(INDUCT),
    ]
};

/// The tokens before the symbols; from [`COPY`] on they are the instructions.
const SPECIAL: &[&str] =
    &["<pad>", "<bos>", "<sep>", "<eos>", "copy", "reverse", "first", "last", "induct"];

const fn alone(instruction: u32) -> Split {
    let name = SPECIAL[instruction as usize];
    Split { name, about: "this instruction alone, longer than in training", from: 201, to: 500 }
}

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Instruct {
    /// Number of different symbols, instructions not counted.
    pub alphabet: u32,
    /// Whether no symbol occurs twice in a string, so that every place can be found by content alone.
    pub unique: bool,
}

impl Default for Instruct {
    fn default() -> Self {
        Self { alphabet: 256, unique: false }
    }
}

impl Task for Instruct {
    const INFO: TaskInfo = TaskInfo {
        name: "instruct",
        about: "do with a string what the instruction before it says",
        splits: SPLITS,
        special: SPECIAL,
        min_length: 0,
        ..TaskInfo::DEFAULT
    };

    fn symbol_count(&self) -> u32 {
        self.alphabet
    }

    fn check_length(&self, length: usize) -> Result<(), String> {
        if self.unique {
            symbols::check_distinct("alphabet", length, self.alphabet)
        } else {
            Ok(())
        }
    }

    fn token_bounds(&self, length: usize) -> [u64; 2] {
        // At least EOS; at most the string again or, if it is short, a cue and an answer.
        let length = length as u64;
        let fewest = length.saturating_add(4);
        [fewest, fewest.saturating_add(length.max(2))]
    }

    fn sample(&self, split: &Split, length: usize, stream: Stream) -> Sample {
        let alone = (COPY..=INDUCT).find(|token| SPECIAL[*token as usize] == split.name);
        let possible = match length {
            0 => 2,
            1 => 4,
            _ => 5,
        };
        let instruction = alone.unwrap_or_else(|| COPY + stream.fork(0).below(0, possible) as u32);
        let (string, place) = match instruction {
            _ if self.unique => {
                let place = stream.fork(2).below(0, (length as u64).saturating_sub(1).max(1));
                (self.symbols().distinct(stream.fork(1), length), place as usize)
            }
            INDUCT if length > 1 => self.symbols().string_with_cue(stream.fork(1), length),
            _ => (self.symbols().string(stream.fork(1), length), 0),
        };
        let mut given = [&[BOS, instruction], string.as_slice(), &[SEP]].concat();
        if instruction == INDUCT {
            given.extend(string.get(place));
        }
        let mut answer: Vec<u32> = match instruction {
            FIRST => string.first().copied().into_iter().collect(),
            LAST => string.last().copied().into_iter().collect(),
            INDUCT => string.get(place + 1).copied().into_iter().collect(),
            REVERSE => string.into_iter().rev().collect(),
            _ => string,
        };
        answer.push(EOS);
        symbols::given_then_scored(&given, &answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_answers, draw, samples};

    fn solve(prefix: &[u32]) -> Option<u32> {
        let sep = prefix.iter().position(|t| *t == 2)?;
        let (string, after) = (&prefix[2..sep], &prefix[sep + 1..]);
        let (full, answered) = match (prefix[1], after) {
            (4, _) => (string.to_vec(), after.len()),
            (5, _) => (string.iter().rev().copied().collect(), after.len()),
            (6, _) => (vec![*string.first().unwrap()], after.len()),
            (7, _) => (vec![*string.last().unwrap()], after.len()),
            (8, []) => return None,
            (8, [cue, ..]) => {
                assert_eq!(string.iter().filter(|t| *t == cue).count(), 1);
                let pair = string.windows(2).find(|pair| pair[0] == *cue).unwrap();
                (vec![pair[1]], after.len() - 1)
            }
            (other, _) => panic!("no instruction: {other}"),
        };
        Some(full.get(answered).copied().unwrap_or(3))
    }

    #[test]
    fn every_answer_follows_from_the_instruction() {
        check_answers(&Instruct::default(), 60, solve);
        check_answers(&Instruct { alphabet: 500, unique: true }, 60, solve);
        check_answers(&Instruct { alphabet: 2, unique: false }, 60, solve);
    }

    #[test]
    fn instructions_and_symbols_are_drawn_evenly() {
        for (length, possible) in [(0, 2), (1, 4), (2, 5), (30, 5)] {
            for alphabet in [4, 8] {
                let mut instructions = [0; 5];
                let mut symbols = vec![0; alphabet as usize];
                for sample in samples(&Instruct { alphabet, unique: false }, "train", length, 2000)
                {
                    instructions[sample.tokens[1] as usize - 4] += 1;
                    let string = &sample.tokens[2..2 + length];
                    string.iter().for_each(|t| symbols[*t as usize - 9] += 1);
                }
                let near = |n: i32, share: i32| (n - share).abs() <= share / 5;
                let (some, none) = instructions.split_at(possible);
                assert!(some.iter().all(|n| near(*n, 2000 / possible as i32)), "{some:?}");
                assert!(none.iter().all(|n| *n == 0), "{length}: {none:?}");
                let share = 2000 * length as i32 / alphabet as i32;
                assert!(symbols.iter().all(|n| near(*n, share)), "{symbols:?}");
            }
        }
    }

    #[test]
    fn unique_strings_have_no_repeats_and_cues_at_every_place() {
        let task = Instruct { alphabet: 12, unique: true };
        let mut places = [0; 12];
        for sample in samples(&task, "train", 12, 2000) {
            let string = &sample.tokens[2..14];
            assert_eq!(string.iter().collect::<std::collections::BTreeSet<_>>().len(), 12);
            if sample.tokens[1] == INDUCT {
                places[string.iter().position(|t| *t == sample.tokens[15]).unwrap()] += 1;
            }
        }
        assert!(
            places[..11].iter().all(|n| (15..=60).contains(n)) && places[11] == 0,
            "{places:?}"
        );
        let error = draw(&task, "train", (13, 13), 0, 0).unwrap_err().to_string();
        assert!(error.contains("set alphabet to 13"), "{error}");
    }

    #[test]
    fn an_instruction_can_be_tested_alone() {
        for instruction in COPY..=INDUCT {
            let name = SPECIAL[instruction as usize];
            for unique in [false, true] {
                let task = Instruct { alphabet: 20, unique };
                for length in [0, 1, 2, 7] {
                    for sample in samples(&task, name, length, 20) {
                        assert_eq!(sample.tokens[1], instruction);
                        let answers = match instruction {
                            COPY | REVERSE => length,
                            INDUCT => usize::from(length > 1),
                            _ => length.min(1),
                        };
                        let scored = sample.scored.iter().filter(|scored| **scored).count();
                        assert_eq!(scored, answers + 1, "{name} at {length}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_empty_string_is_answered_by_eos() {
        let sample = draw(&Instruct::default(), "train", (0, 0), 0, 0).unwrap();
        assert_eq!(sample.scored, [false, false, false, true]);
        assert_eq!(sample.tokens[2..], [2, 3]);
    }

    #[test]
    fn bad_settings_say_why() {
        assert!(
            Instruct { alphabet: 1, unique: false }.validate().unwrap_err().contains("alphabet")
        );
        assert!(Instruct { alphabet: 2, unique: false }.validate().is_ok());
    }
}
