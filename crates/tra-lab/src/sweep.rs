//! A grid of runs from one file: mechanisms x tasks x seeds.
//!
//! Run number `k` of the grid belongs to shard `k mod n`, so shards on different machines share a
//! folder without talking to each other and never do the same run.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::config::RunConfig;
use crate::error::LabError;
use crate::run_dir::{Lock, RunDir};
use crate::train::{End, Observer, train};

/// The grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepConfig {
    /// Where the runs go, one folder each.
    pub out: PathBuf,
    /// The mechanisms.
    pub attention: Vec<String>,
    /// The tasks.
    pub task: Vec<String>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Settings of every run, as in the config of a single one.
    #[serde(default)]
    pub run: Table,
}

/// One run of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Its folder.
    pub path: PathBuf,
    /// Its settings.
    pub config: RunConfig,
}

/// A part of a grid: number `index` of `of`, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which part.
    pub index: usize,
    /// Of how many.
    pub of: usize,
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no shard; give it as 0/4 … 3/4");
        let (index, of) = text.split_once('/').ok_or_else(wrong)?;
        let (index, of) = (index.parse().map_err(|_| wrong())?, of.parse().map_err(|_| wrong())?);
        if index < of { Ok(Self { index, of }) } else { Err(wrong()) }
    }
}

impl SweepConfig {
    /// Reads a grid; a relative `out` is relative to where the program runs.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let text =
            std::fs::read_to_string(path).map_err(|e| LabError::io("cannot read", path, e))?;
        toml::from_str(&text).map_err(|e| LabError::config(path, &text, &e))
    }

    /// All runs, in a fixed order. Every one of them is checked before the first begins.
    pub fn cells(&self) -> Result<Vec<Cell>, LabError> {
        for (name, empty) in [
            ("attention", self.attention.is_empty()),
            ("task", self.task.is_empty()),
            ("seeds", self.seeds.is_empty()),
        ] {
            if empty {
                return Err(LabError::Setting(format!(
                    "the sweep has no {name}; list at least one"
                )));
            }
        }
        let mut cells = Vec::new();
        for task in &self.task {
            for attention in &self.attention {
                for seed in &self.seeds {
                    let flags = vec![
                        ("task.name", Value::from(task.as_str())),
                        ("model.attention.name", Value::from(attention.as_str())),
                        ("seed", Value::from(i64::try_from(*seed).unwrap_or(i64::MAX))),
                    ];
                    let config = RunConfig::from_table(self.run.clone(), flags, &[], None)?;
                    let path = self.out.join(format!("{task}-{attention}-s{seed}"));
                    cells.push(Cell { path, config });
                }
            }
        }
        Ok(cells)
    }
}

/// What was found or done about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was finished already.
    Before,
    /// It is finished now.
    Now,
    /// It was interrupted, and so is the sweep.
    Interrupted,
    /// Another process is at it.
    Elsewhere,
}

/// Does one run: not at all if it is finished, from its last checkpoint if it was cut. Nobody else is at it while the
/// lock is held; there is none if somebody is.
pub fn run_cell(
    cell: &Cell,
    device: &Device,
    interrupted: &AtomicBool,
    observer: &mut dyn Observer,
    warn: impl FnMut(String),
) -> Result<(Done, Option<Lock>), LabError> {
    // Before anything else: several processes may come to a run that is not begun at the same time.
    let Some(lock) = RunDir::claim(&cell.path)? else { return Ok((Done::Elsewhere, None)) };
    let run = match RunDir::open(&cell.path) {
        Ok(run) => run,
        Err(_) => RunDir::create(&cell.path, &cell.config)?,
    };
    if run.config()? != cell.config {
        let reason = "holds a run with other settings; choose another out, or remove it";
        return Err(LabError::run_dir(&cell.path, reason));
    }
    if finished(&run, &cell.config)? {
        return Ok((Done::Before, Some(lock)));
    }
    let training = device.clone().autodiff();
    let start = run.newest(cell.config.optimizer(), &training, warn)?;
    run.truncate_metrics(start.as_ref().map_or(0, |c| c.position.step))?;
    let outcome = train(&run, &cell.config, device, start, interrupted, observer)?;
    let done = if outcome.end == End::Interrupted { Done::Interrupted } else { Done::Now };
    Ok((done, Some(lock)))
}

/// Whether nothing is left to do: the last step taken, or everything right often enough.
pub(crate) fn finished(run: &RunDir, config: &RunConfig) -> Result<bool, LabError> {
    let Some(position) = run.position()? else { return Ok(false) };
    let perfect = config.eval.until_perfect;
    Ok(position.step >= config.steps || (perfect > 0 && position.perfect >= perfect))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> SweepConfig {
        toml::from_str(
            "out = 'x'\nattention = ['tra', 'rope']\ntask = ['flipflop', 'copy']\nseeds = [1, 2, 3]\n\
             [run]\nsteps = 5\n[run.model]\nsize = 'tiny'",
        )
        .unwrap()
    }

    #[test]
    fn every_run_has_a_folder_of_its_own_and_shards_are_checked() {
        let cells = grid().cells().unwrap();
        assert_eq!(cells.len(), 12);
        let mut names: Vec<_> = cells.iter().map(|cell| cell.path.clone()).collect();
        names.dedup();
        assert_eq!(names.len(), 12);
        assert_eq!(cells[0].config.steps, 5);
        assert_eq!("1/4".parse(), Ok(Shard { index: 1, of: 4 }));
        for bad in ["4/4", "x/4", "1", "1/0", "-1/4"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_typo_anywhere_is_found_before_anything_runs() {
        let mut wrong = grid();
        wrong.attention.push("ropee".into());
        assert!(wrong.cells().unwrap_err().to_string().contains("ropee"));
        let mut wrong = grid();
        wrong.run.insert("stepz".into(), Value::from(1));
        assert!(wrong.cells().unwrap_err().to_string().contains("stepz"));
        let mut wrong = grid();
        wrong.seeds.clear();
        assert!(wrong.cells().unwrap_err().to_string().contains("no seeds"));
    }
}
