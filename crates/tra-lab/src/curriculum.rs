//! A curriculum: training that starts with short sequences.

use serde::{Deserialize, Serialize};

use crate::config::Lengths;

/// A curriculum: the longest training length rises over the first steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curriculum {
    /// Longest length at the first step.
    pub from: usize,
    /// Fraction of the steps after which the longest length is that of `length`.
    pub until: f64,
    /// Shortest length, as a fraction of the longest length at the same step. It applies until the
    /// end. 0 always draws from the shortest of `length`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shortest: f64,
    /// Exponent of the rise. 1 rises evenly; larger values spend more steps on short sequences,
    /// which take less time each.
    #[serde(default = "evenly", skip_serializing_if = "is_evenly")]
    pub power: f64,
    /// Largest factor by which a batch grows while its sequences are shorter. The batch grows as
    /// the longest length shrinks. 1 keeps the batch as it is.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub widen: usize,
}

// Defaults are left out of files, because files from before these settings existed mean the same.

fn is_zero(shortest: &f64) -> bool {
    *shortest == 0.0
}

fn evenly() -> f64 {
    1.0
}

fn is_evenly(power: &f64) -> bool {
    *power == evenly()
}

fn once() -> usize {
    1
}

fn is_once(widen: &usize) -> bool {
    *widen == once()
}

impl Curriculum {
    /// Returns the lengths of step `step` of `steps`, counted from 0. `all` are the lengths at the
    /// end.
    pub fn lengths_at(&self, step: u64, steps: u64, all: Lengths) -> Lengths {
        let share = step as f64 / (self.until * steps as f64).max(1.0);
        let more = (all.to - self.from) as f64 * share.min(1.0).powf(self.power);
        let to = self.from + more as usize;
        Lengths { from: all.from.max((self.shortest * to as f64) as usize), to }
    }

    /// Checks the settings. `all` are the lengths at the end.
    pub fn validate(&self, all: Lengths) -> Result<(), String> {
        let Self { from, until, shortest, power, widen } = *self;
        if !(all.from..=all.to).contains(&from) {
            return Err(format!("curriculum.from must be one of the lengths {all}, not {from}"));
        }
        if !(0.0..=1.0).contains(&until) {
            return Err(format!(
                "curriculum.until must be a fraction of the steps from 0 to 1, not {until}"
            ));
        }
        // A value below 1 leaves at least two lengths: some tasks have even lengths only.
        if !(0.0..1.0).contains(&shortest) {
            return Err(format!(
                "curriculum.shortest must be at least 0 and below 1, not {shortest}"
            ));
        }
        if !(power > 0.0 && power.is_finite()) {
            return Err(format!("curriculum.power must be positive and finite, not {power}"));
        }
        if !(1..=1000).contains(&widen) {
            return Err(format!("curriculum.widen must be from 1 to 1000, not {widen}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;

    fn parse(text: &str) -> RunConfig {
        RunConfig::from_table(text.parse().unwrap(), Vec::new(), &[], None).unwrap()
    }

    #[test]
    fn a_curriculum_begins_short_and_ends_at_all_lengths() {
        let config = parse(
            "steps = 100\nlength = '2..50'\n[curriculum]\nfrom = 10\nuntil = 0.5\n\
             [task]\nname = 'copy'",
        );
        let to = |step| config.lengths_at(step).to;
        assert_eq!([to(0), to(25), to(49), to(50), to(99)], [10, 30, 49, 50, 50]);
        assert!((0..100).all(|step| config.lengths_at(step).from == 2 && to(step) <= to(step + 1)));
        let slowly = RunConfig {
            curriculum: config.curriculum.map(|c| Curriculum { power: 2.0, ..c }),
            ..config.clone()
        };
        let to = |step| slowly.lengths_at(step).to;
        assert_eq!([to(0), to(25), to(49), to(50), to(99)], [10, 20, 48, 50, 50]);
        assert_eq!(parse("length = 512").lengths_at(0).to, 512);
        let wider = RunConfig {
            curriculum: config.curriculum.map(|c| Curriculum { widen: 4, ..c }),
            ..config.clone()
        };
        let batch = |step| wider.batch_at(step);
        assert_eq!([batch(0), batch(25), batch(49), batch(50)], [64, 16 * 50 / 30, 16, 16]);
        assert!((0..100).all(|step| config.batch_at(step) == 16));
        let at_once = parse("length = '4..64'\n[curriculum]\nfrom = 8\nuntil = 0.0");
        assert_eq!([at_once.lengths_at(0).to, at_once.lengths_at(1).to], [8, 64]);
    }
}
