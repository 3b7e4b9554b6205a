//! A grid of runs from one file: mechanisms x tasks x seeds.
//!
//! Run number `k` of the grid belongs to shard `k mod n`, so shards on different machines share a
//! folder without talking to each other and never do the same run.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use tra_disk::Lock;
use tra_report::tables::GridRow;

use crate::config::{RunConfig, read_text};
use crate::error::LabError;
use crate::observer::{Event, Observer};
use crate::run_dir::RunDir;
use crate::session::{Session, ended_at, open_task};
use crate::train::{End, train};

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

impl Cell {
    /// The name of its folder.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }
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
        let text = read_text(path)?;
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
        // What is listed twice is still one run, and one row of a mean.
        for task in once(&self.task) {
            for attention in once(&self.attention) {
                for seed in once(&self.seeds) {
                    let flags = vec![
                        ("task.name", Value::from(task.as_str())),
                        ("model.attention.name", Value::from(attention.as_str())),
                        ("seed", Value::from(i64::try_from(*seed).unwrap_or(i64::MAX))),
                    ];
                    let config = RunConfig::from_table(self.run.clone(), flags, &[], None)?;
                    config.validate()?;
                    let path = self.out.join(format!("{task}-{attention}-s{seed}"));
                    cells.push(Cell { path, config });
                }
            }
        }
        Ok(cells)
    }
}

/// The items of a list in their order, each once.
fn once<T: PartialEq>(list: &[T]) -> impl Iterator<Item = &T> {
    list.iter().enumerate().filter(|(at, item)| !list[..*at].contains(item)).map(|(_, item)| item)
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

/// Runs that failed while others went on.
#[derive(Debug, Default)]
pub struct Failures(Vec<String>);

impl Failures {
    /// Returns what came of a run, unless it failed: that is told now, and listed at the end.
    pub fn note<T>(
        &mut self,
        cell: &Cell,
        result: Result<T, LabError>,
        observer: &mut dyn Observer,
    ) -> Option<T> {
        let tell = |error: LabError| {
            let (run, reason) = (cell.name(), error.to_string());
            self.0.push(format!("{run} failed: {reason}"));
            observer.event(Event::Failed { run, reason });
        };
        result.map_err(tell).ok()
    }

    /// One line per failed run.
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

/// Makes every run of a grid, or of a part of it, one after the other; whether it came to the end.
///
/// What is done is skipped, and what was cut goes on. A run that fails is noted, and the others go on.
pub fn run(
    cells: &[&Cell],
    device: &Device,
    interrupted: &AtomicBool,
    failures: &mut Failures,
    observer: &mut dyn Observer,
) -> Result<bool, LabError> {
    for (number, cell) in cells.iter().enumerate() {
        let number = format!("{}/{}", number + 1, cells.len());
        let one = run_cell(cell, &number, device, interrupted, observer);
        let Some((done, _lock)) = failures.note(cell, one, observer) else { continue };
        done.note(cell, &number, observer);
        if done == Done::Interrupted {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the results of every run that has ended; `None` while one has neither ended nor failed.
pub fn results(cells: &[Cell], failures: &Failures) -> Result<Option<Vec<GridRow>>, LabError> {
    let mut rows = Vec::new();
    for cell in cells {
        if !RunDir::exists(&cell.path)? {
            return Ok(None);
        }
        let run = RunDir::open(&cell.path)?;
        match ended_at(&run, &cell.config) {
            Ok(Some(step)) => rows.push(cell.row(run.evaluations()?.at(step).most_sequences())),
            Ok(None) if run.failure()?.is_none() && failures.0.is_empty() => return Ok(None),
            // It failed, here or elsewhere.
            Ok(None) | Err(_) => {}
        }
    }
    Ok(Some(rows))
}

impl Cell {
    /// Its row in a table.
    pub fn row(&self, results: Vec<tra_report::records::EvalResult>) -> GridRow {
        GridRow {
            task: self.config.task.name().into(),
            measure: self.config.measure(),
            attention: self.config.model.decoder.attention.name().into(),
            results,
        }
    }
}

impl Done {
    /// Tells why nothing was done about a run.
    pub(crate) fn note(self, cell: &Cell, number: &str, observer: &mut dyn Observer) {
        let name = cell.name();
        match self {
            Self::Before => observer.note(format!("{number} {name}: already finished")),
            Self::Elsewhere => {
                observer.note(format!("{number} {name}: another process is training it"));
            }
            Self::Now | Self::Interrupted => {}
        }
    }
}

/// Makes one run: not at all if it is finished, from its last checkpoint if it was cut. Returns the lock of
/// the run too, unless another process holds it. `number` stands before its name.
pub fn run_cell(
    cell: &Cell,
    number: &str,
    device: &Device,
    interrupted: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<(Done, Option<Lock>), LabError> {
    // Before anything else: several processes may come to a run that is not begun at the same time.
    let Some(lock) = RunDir::claim(&cell.path)? else { return Ok((Done::Elsewhere, None)) };
    let (name, steps) = (format!("{number} {}", cell.name()), cell.config.steps);
    observer.event(Event::Run { name, steps, measure: cell.config.measure() });
    if RunDir::exists(&cell.path)? {
        let run = RunDir::open(&cell.path)?;
        if run.config()? != cell.config {
            let reason = "contains a run with other settings; choose another out, or remove it";
            return Err(LabError::run_dir(&cell.path, reason));
        }
        if ended_at(&run, &cell.config)?.is_some_and(|step| run.is_whole(step)) {
            return Ok((Done::Before, Some(lock)));
        }
        if let Some(why) = run.failure()? {
            let path = cell.path.display();
            let again = format!("{why}; to try again: tra train --resume {path}");
            return Err(LabError::Diverged(again));
        }
    }
    let (config, task) = (cell.config.clone(), open_task(&cell.config, observer)?);
    let mut session = Session::start_locked(&cell.path, lock, config, task, device, observer)?;
    let outcome = train(&mut session, interrupted, observer)?;
    let done = if outcome.end == End::Interrupted { Done::Interrupted } else { Done::Now };
    Ok((done, Some(session.into_lock())))
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
