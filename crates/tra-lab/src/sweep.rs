//! A grid of runs from one file: mechanisms x tasks x seeds.
//!
//! Run number `k` of the grid belongs to shard `k mod n`. So shards on different machines can share
//! a folder: no two of them train the same run.

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

/// Settings of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepConfig {
    /// Folder of the runs; each run has its own subfolder.
    pub out: PathBuf,
    /// The mechanisms.
    pub attention: Vec<String>,
    /// The tasks.
    pub task: Vec<String>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Settings of every run, as in the config of a single run.
    #[serde(default)]
    pub run: Table,
}

/// One run of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Folder of the run.
    pub path: PathBuf,
    /// Settings of the run.
    pub config: RunConfig,
}

impl Cell {
    /// Returns the name of its folder.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }
}

/// A part of a grid: number `index` of `of`, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of this part.
    pub index: usize,
    /// Number of parts.
    pub of: usize,
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a shard; write it as 0/4 to 3/4");
        let (index, of) = text.split_once('/').ok_or_else(wrong)?;
        let (index, of) = (index.parse().map_err(|_| wrong())?, of.parse().map_err(|_| wrong())?);
        if index < of { Ok(Self { index, of }) } else { Err(wrong()) }
    }
}

impl SweepConfig {
    /// Reads a sweep file. A relative `out` is relative to the current directory.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let text = read_text(path)?;
        toml::from_str(&text).map_err(|e| LabError::config(path, &text, &e))
    }

    /// Returns all runs in a fixed order. Checks every run before the first one starts.
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
        // A duplicate entry is one run, so that a mean does not count it twice.
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

/// Returns the items of a list in order, without duplicates.
fn once<T: PartialEq>(list: &[T]) -> impl Iterator<Item = &T> {
    list.iter().enumerate().filter(|(at, item)| !list[..*at].contains(item)).map(|(_, item)| item)
}

/// What happened to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The run was already finished.
    Before,
    /// The run is finished now.
    Now,
    /// The run was interrupted, which also ends the sweep.
    Interrupted,
    /// Another process is training the run.
    Elsewhere,
}

/// Runs that failed, while the other runs continued.
#[derive(Debug, Default)]
pub struct Failures(Vec<String>);

impl Failures {
    /// Returns the value of a successful run. A failure is reported to the observer and listed at
    /// the end.
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

    /// Returns one line per failed run.
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

/// Trains every run of a grid or a part of it, one after the other. Returns `false` if it was
/// interrupted.
///
/// Finished runs are skipped, and interrupted runs resume. A run that fails is noted in `failures`,
/// and the others continue.
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

/// Returns the results of all finished runs, or `None` while a run has neither finished nor failed.
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
            // It failed in this process or in another one.
            Ok(None) | Err(_) => {}
        }
    }
    Ok(Some(rows))
}

impl Cell {
    /// Returns its row of a table.
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
    /// Reports why a run was skipped.
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

/// Trains one run. A finished run is skipped, and an interrupted one resumes from its last
/// checkpoint.
///
/// Also returns the lock of the run, unless another process holds it. `number` is shown before the
/// run's name.
pub fn run_cell(
    cell: &Cell,
    number: &str,
    device: &Device,
    interrupted: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<(Done, Option<Lock>), LabError> {
    // Locked first, because several processes may reach a new run at the same time.
    let Some(lock) = RunDir::claim(&cell.path)? else { return Ok((Done::Elsewhere, None)) };
    let (name, steps) = (format!("{number} {}", cell.name()), cell.config.steps);
    observer.event(Event::Run { name, steps, measure: cell.config.measure() });
    if RunDir::exists(&cell.path)? {
        let run = RunDir::open(&cell.path)?;
        if run.config()? != cell.config {
            let reason =
                "contains a run with other settings; choose another out, or remove that run";
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
