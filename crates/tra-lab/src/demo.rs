//! TRA and RoPE on flip-flop: trained on short sequences, tested on much longer ones.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use tra_report::tables;

use crate::config::Lengths;
use crate::error::LabError;
use crate::eval::{EvalSpec, evaluate};
use crate::observer::{Observer, counting};
use crate::records::{EvalResult, Evaluation};
use crate::report::{self, Shown};
use crate::run_dir::RunDir;
use crate::sweep::{Cell, Done, SweepConfig, run_cell};

/// The smallest setting in which TRA is always fully correct and RoPE learns the training lengths.
const GRID: &str = include_str!("../demo.toml");

/// Sequences per split at the training length.
const SEQUENCES: u64 = 128;

/// Longer lengths, as multiples of the training length, and sequences at each.
const FAR: [(usize, u64); 3] = [(4, 32), (16, 8), (32, 4)];

/// The results of the demo.
#[derive(Clone, Debug)]
pub struct Demo {
    /// Length of the training sequences.
    pub trained: usize,
    /// The share of sequences with every read correct, as a table.
    pub table: String,
    /// The page with plots.
    pub page: PathBuf,
}

/// Trains both mechanisms, tests them and writes the page to `out`.
///
/// Returns `None` if `interrupted` was set. The same call then continues where it stopped.
///
/// ```no_run
/// use std::sync::atomic::AtomicBool;
/// use tra_lab::demo;
/// use tra_lab::observer::Silent;
///
/// let device = tra_nn::device::Device::flex();
/// let stop = AtomicBool::new(false);
/// if let Some(found) = demo::run("runs/demo".into(), 1, &device, &stop, &mut Silent)? {
///     println!("{}", found.table);
/// }
/// # Ok::<(), tra_lab::LabError>(())
/// ```
pub fn run(
    out: PathBuf,
    seed: u64,
    device: &Device,
    interrupted: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Option<Demo>, LabError> {
    let mut grid = grid()?;
    grid.out = out;
    grid.seeds = vec![seed];
    let cells = grid.cells()?;
    let mut rows = Vec::new();
    for (number, cell) in cells.iter().enumerate() {
        let number = format!("{}/{}", number + 1, cells.len());
        let (done, _lock) = run_cell(cell, &number, device, interrupted, observer)?;
        if done == Done::Interrupted {
            return Ok(None);
        }
        let Some(results) = test(cell, device, interrupted, observer)? else { return Ok(None) };
        rows.push(cell.row(results));
    }
    let page = grid.out.join("report.html");
    let paths: Vec<&PathBuf> = cells.iter().map(|cell| &cell.path).collect();
    let shown = Shown { split: "iid".into(), ..Shown::default() };
    let warn = |text| observer.warn(text);
    report::write("Flip-flop: TRA and RoPE", &paths, Some(&shown), &page, warn)?;
    let trained = cells[0].config.train_lengths().to;
    Ok(Some(Demo { trained, table: tables::grid(&rows), page }))
}

fn grid() -> Result<SweepConfig, LabError> {
    toml::from_str(GRID).map_err(|error| LabError::config("demo.toml".as_ref(), GRID, &error))
}

/// Tests a trained run at its own length and at longer ones. Returns `None` if it was interrupted.
fn test(
    cell: &Cell,
    device: &Device,
    interrupted: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Option<Vec<EvalResult>>, LabError> {
    let run = RunDir::open(&cell.path)?;
    let task = cell.config.task.open()?;
    let (step, decoder) = run.newest_model(device, |text| observer.warn(text))?;
    let trained = cell.config.train_lengths().to;
    let near = ["iid", "sparse", "dense"].map(|split| (split, trained, SEQUENCES));
    let far = FAR.map(|(times, sequences)| ("iid", times * trained, sequences));
    let mut results = Vec::new();
    for (split, length, sequences) in near.into_iter().chain(far) {
        let lengths = Lengths { from: length, to: length };
        let spec = EvalSpec { split: split.into(), lengths, sequences, seed: cell.config.seed };
        let what = format!("testing {split} at length {length}");
        let progress = counting(what, sequences, observer);
        let result = evaluate(&decoder, &task, &spec, interrupted, progress)?;
        let Some(result) = result else { return Ok(None) };
        results.push(result);
    }
    run.add_evaluation(&Evaluation { step, results: results.clone() })?;
    Ok(Some(results))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The demo itself takes minutes. Its settings are checked here.
    #[test]
    fn the_grid_is_sound() {
        let cells = grid().unwrap().cells().unwrap();
        let names: Vec<_> = cells.iter().map(|c| c.config.model.decoder.attention.name()).collect();
        assert_eq!(names, ["tra", "rope"]);
        let task = cells[0].config.task.open().unwrap();
        let trained = cells[0].config.train_lengths().to;
        assert!(FAR.iter().all(|(times, _)| task.check_length(times * trained).is_ok()));
    }
}
