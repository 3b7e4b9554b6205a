//! Shorter sequences first.

use serde::{Deserialize, Serialize};

use crate::config::Lengths;

/// Shorter sequences first: the longest length drawn rises over the first steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curriculum {
    /// The longest length at the first step.
    pub from: usize,
    /// Share of the steps after which the longest length is that of `length`.
    pub until: f64,
    /// The shortest length drawn, as a share of the longest at that step, to the end; 0 draws the shortest of `length`
    /// all the time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shortest: f64,
    /// How it rises: with this power of the share of the steps. 1 is evenly; more stays longer with short sequences, which
    /// are many for the time they take.
    #[serde(default = "evenly", skip_serializing_if = "is_evenly")]
    pub power: f64,
    /// While sequences are shorter than at the end, a batch has more of them: as many times `batch` as the longest is shorter, at
    /// most so many times. 1 has `batch` of them all the time.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub widen: usize,
}

// Settings as they were before there were these: left out of files.

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
    /// The lengths of step `step`, from 0, of `steps`, where those of the end are `all`.
    pub fn lengths_at(&self, step: u64, steps: u64, all: Lengths) -> Lengths {
        let share = step as f64 / (self.until * steps as f64).max(1.0);
        let more = (all.to - self.from) as f64 * share.min(1.0).powf(self.power);
        let to = self.from + more as usize;
        Lengths { from: all.from.max((self.shortest * to as f64) as usize), to }
    }

    /// Says what is wrong with the settings, if anything is; `all` are the lengths of the end.
    pub fn validate(&self, all: Lengths) -> Result<(), String> {
        let Self { from, until, shortest, power, widen } = *self;
        if !(all.from..=all.to).contains(&from) {
            return Err(format!("curriculum.from must be one of the lengths {all}, not {from}"));
        }
        if !(0.0..=1.0).contains(&until) {
            return Err(format!("curriculum.until is a share of the steps, in 0..1, not {until}"));
        }
        // Below 1 there are two lengths at least: some tasks have even ones only.
        if !(0.0..1.0).contains(&shortest) {
            return Err(format!(
                "curriculum.shortest is a share of the longest length below 1, not {shortest}"
            ));
        }
        if !(power > 0.0 && power.is_finite()) {
            return Err(format!("curriculum.power must be positive and finite, not {power}"));
        }
        if !(1..=1000).contains(&widen) {
            return Err(format!("curriculum.widen must be 1 to 1000, not {widen}"));
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
