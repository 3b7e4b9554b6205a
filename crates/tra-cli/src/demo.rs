//! `tra demo`: compares TRA and RoPE in a minute or two.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use tra_lab::config::Lengths;
use tra_lab::eval::{EvalSpec, evaluate};
use tra_lab::observer::{Event, Observer};
use tra_lab::records::{EvalResult, Evaluation};
use tra_lab::report::{self, Shown};
use tra_lab::run_dir::RunDir;
use tra_lab::sweep::{Cell, Done, SweepConfig, run_cell};
use tra_nn::device::Device;
use tra_report::tables;

use crate::interrupt::{STOPPED, on_interrupt};
use crate::terminal::{self, Terminal};

/// The grid of runs: the smallest setting in which TRA gets every sequence right, and in which RoPE
/// can learn the lengths it is trained on.
const GRID: &str = include_str!("../demo.toml");

/// Sequences per split at the training length.
const SEQUENCES: u64 = 128;
/// Longer lengths, as multiples of the training length, and sequences per length.
const FAR: [(usize, u64); 3] = [(4, 32), (16, 8), (32, 4)];

/// Train and compare TRA and RoPE in a minute or two
///
/// Trains both from scratch on short flip-flop sequences. Evaluates both on the training
/// distribution, on other distributions, and on much longer sequences. Prints a table and writes
/// an HTML page with plots.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra demo
  tra demo --seed 2 --out runs/demo-2
  tra eval runs/demo/flipflop-tra-s1 --lengths 8192 --sequences 4")]
pub struct Args {
    /// Output directory for the runs and the page
    #[arg(long, value_name = "DIR", default_value = "runs/demo")]
    out: PathBuf,

    /// Random seed of weights, data and dropout
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let device = tra_nn::device::by_name("flex")?;
    let mut grid: SweepConfig = toml::from_str(GRID)?;
    grid.out = args.out;
    grid.seeds = vec![args.seed];
    let cells = grid.cells()?;
    let interrupted = on_interrupt(Some("the current step and saving"))?;
    let (mut terminal, mut rows) = (Terminal::new(), Vec::new());
    for (number, cell) in cells.iter().enumerate() {
        let number = format!("{}/{}", number + 1, cells.len());
        let (done, _lock) = run_cell(cell, &number, &device, &interrupted, &mut terminal)?;
        let results = match done {
            Done::Interrupted => None,
            _ => test(cell, &device, &interrupted, &mut terminal)?,
        };
        let Some(results) = results else {
            terminal.clear();
            let out = grid.out.display();
            terminal::say(&format!("stopped; continue with: tra demo --out {out}"));
            return Ok(ExitCode::from(STOPPED));
        };
        rows.push(cell.row(results));
    }
    terminal.clear();
    let trained = cells[0].config.length.map_or(0, |length| length.to);
    terminal::print(&format!(
        "flip-flop, trained on {trained} tokens; share of sequences with every read correct:\n\n\
         {}\n",
        tables::grid(&rows)
    ))?;
    let out = grid.out.join("report.html");
    let paths: Vec<&PathBuf> = cells.iter().map(|cell| &cell.path).collect();
    let shown = Shown { split: "iid".into(), ..Shown::default() };
    report::write("Flip-flop: TRA and RoPE", &paths, Some(&shown), &out, terminal::warn)?;
    terminal::print(&format!("open {} to see the plots\n", out.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Tests a trained run at the training length and at longer lengths; `None` if interrupted.
fn test(
    cell: &Cell,
    device: &Device,
    interrupted: &AtomicBool,
    terminal: &mut Terminal,
) -> Result<Option<Vec<EvalResult>>> {
    let run = RunDir::open(&cell.path)?;
    let task = cell.config.task.open()?;
    let (step, decoder) = run.newest_model(device, terminal::warn)?;
    let trained = cell.config.train_lengths().to;
    let near = ["iid", "sparse", "dense"].map(|split| (split, trained, SEQUENCES));
    let far = FAR.map(|(times, sequences)| ("iid", times * trained, sequences));
    let mut results = Vec::new();
    for (split, length, sequences) in near.into_iter().chain(far) {
        let lengths = Lengths { from: length, to: length };
        let spec = EvalSpec { split: split.into(), lengths, sequences, seed: cell.config.seed };
        let what = format!("testing {split} at length {length}");
        let result = evaluate(&decoder, &task, &spec, interrupted, |done| {
            let what = what.clone();
            terminal.event(Event::Progress { what, done, of: sequences, bytes: false });
        })?;
        let Some(result) = result else { return Ok(None) };
        results.push(result);
    }
    run.add_evaluation(&Evaluation { step, results: results.clone() })?;
    Ok(Some(results))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the settings only, because the demo itself takes minutes.
    #[test]
    fn the_grid_is_sound() {
        let grid: SweepConfig = toml::from_str(GRID).unwrap();
        let cells = grid.cells().unwrap();
        let names: Vec<_> = cells.iter().map(|c| c.config.model.decoder.attention.name()).collect();
        assert_eq!(names, ["tra", "rope"]);
        let task = cells[0].config.task.open().unwrap();
        let trained = cells[0].config.train_lengths().to;
        assert!(FAR.iter().all(|(times, _)| task.check_length(times * trained).is_ok()));
    }
}
