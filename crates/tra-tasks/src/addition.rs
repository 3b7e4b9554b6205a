//! Add two numbers, lowest digit first.
//!
//! `BOS a1..an + b1..bn = s1..s(n+1) EOS`: 57 + 68 = 125 reads `<bos> 7 5 + 8 6 = 5 2 1 <eos>`. The
//! sum and the EOS behind it are scored. The sum always has n + 1 digits; the last may be 0.
//!
//! Every digit is uniform, but the two digits of a place are not always independent. A carry travels
//! on where two digits add up to 9. Independent digits do so in a tenth of all places, and no model
//! would ever meet a long chain of carries. So each sample draws a probability evenly from 0 to 1,
//! and with it makes each `b` digit 9 minus its `a` digit. The lowest place, where a chain begins,
//! is left out. One carry then runs through all n digits in about 1 / (2 n) of the samples. Length
//! counts digits of each number.

use serde::{Deserialize, Serialize};
use tra_random::Stream;

use crate::symbols::{self, BOS, EOS, FREE, SEP};
use crate::{Sample, Split, Task, TaskInfo};

/// The token between the numbers.
pub const PLUS: u32 = FREE;
/// The token before the sum. Other tasks call it SEP.
pub const EQUALS: u32 = SEP;

const SPLITS: &[Split] = &{
    let [train, iid] = symbols::train_and_iid(1, 20);
    [train, iid, symbols::longer("21-40", 21, 40), symbols::longer("41-100", 41, 100)]
};

/// See the [module](self). The task has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Addition {}

impl Task for Addition {
    const INFO: TaskInfo = TaskInfo {
        name: "addition",
        about: "add two numbers, lowest digit first",
        unit: "digits",
        splits: SPLITS,
        special: &["<pad>", "<bos>", "=", "<eos>", "+"],
        tokens_per_unit: 3,
        extra_tokens: 5,
        ..TaskInfo::DEFAULT
    };

    fn symbol_count(&self) -> u32 {
        10
    }

    fn sample(&self, _: &Split, length: usize, stream: Stream) -> Sample {
        let digits = self.symbols();
        let zero = digits.first;
        let a = digits.string(stream.fork(0), length);
        let mut b = digits.string(stream.fork(1), length);
        let (share, chance) = (stream.fork(2).uniform(0), stream.fork(3));
        for at in 1..length {
            if chance.uniform(at as u64) < share {
                b[at] = 9 + 2 * zero - a[at];
            }
        }
        let mut sum = Vec::with_capacity(length + 2);
        let mut carry = 0;
        for (a, b) in a.iter().zip(&b) {
            let both = a + b - 2 * zero + carry;
            sum.push(zero + both % 10);
            carry = both / 10;
        }
        sum.extend([zero + carry, EOS]);
        let given = [&[BOS], a.as_slice(), &[PLUS], b.as_slice(), &[EQUALS]].concat();
        symbols::given_then_scored(&given, &sum)
    }

    fn symbol_name(&self, number: u32) -> String {
        number.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_answers, draw, samples};

    /// Decides each digit on its own: a carry comes in if the nearest lower pair that does not add
    /// up to 9 adds up to more.
    fn solve(prefix: &[u32]) -> Option<u32> {
        let plus = prefix.iter().position(|t| *t == 4)?;
        let equals = prefix.iter().position(|t| *t == 2)?;
        let pair = |i: usize| (prefix[1 + i] - 5) + (prefix[plus + 1 + i] - 5);
        let (n, at) = (plus - 1, prefix.len() - equals - 1);
        if at == n + 1 {
            return Some(3);
        }
        let carry = (0..at).rev().map(pair).find(|sum| *sum != 9).is_some_and(|sum| sum > 9);
        let own = if at < n { pair(at) } else { 0 };
        Some(5 + (own + u32::from(carry)) % 10)
    }

    #[test]
    fn every_answer_is_the_sum() {
        check_answers(&Addition {}, 100, solve);
    }

    #[test]
    fn short_sums_agree_with_integers() {
        for Sample { tokens, .. } in samples(&Addition {}, "train", 9, 500) {
            assert_eq!(tokens.len(), 32);
            let number = |from: usize, to: usize| {
                tokens[from..to].iter().rev().fold(0u64, |n, t| 10 * n + u64::from(t - 5))
            };
            assert_eq!(number(1, 10) + number(11, 20), number(21, 31));
        }
    }

    #[test]
    fn digits_are_even_and_long_carries_occur() {
        let n = 20;
        let all = samples(&Addition {}, "train", n, 5000);
        for at in [1, 7, n, n + 2, n + 9, 2 * n + 1] {
            let mut seen = [0; 10];
            all.iter().for_each(|s| seen[s.tokens[at] as usize - 5] += 1);
            assert!(seen.iter().all(|n| (400..600).contains(n)), "{at}: {seen:?}");
        }
        // Through all digits: the lowest pair exceeds 9 and every other adds up to it.
        let through = |tokens: &[u32]| {
            let pair = |i: usize| tokens[1 + i] + tokens[n + 2 + i] - 10;
            pair(0) > 9 && (1..n).all(|i| pair(i) == 9)
        };
        let chains = all.iter().filter(|s| through(&s.tokens)).count();
        assert!((90..160).contains(&chains), "{chains}, not about 5000 / 40");
        let carried = all.iter().filter(|s| s.tokens[3 * n + 3] == 6).count();
        assert!((1800..2700).contains(&carried), "{carried}");
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
        let text = draw(&Addition {}, "train", (0, 0), 0, 0).unwrap_err().to_string();
        assert!(text.contains("at least 1"), "{text}");
        assert!(Addition {}.validate().is_ok());
    }
}
