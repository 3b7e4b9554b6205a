//! `tra demo`: the point of it all, in a minute or two.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use tra_lab::config::Lengths;
use tra_lab::eval::{EvalSpec, evaluate};
use tra_lab::gather::Shown;
use tra_lab::records::Evaluation;
use tra_lab::run_dir::RunDir;
use tra_lab::sweep::{Done, SweepConfig};

use crate::interrupt::{STOPPED, on_interrupt};
use crate::{sweep, terminal};

/// What is trained: the smallest setting in which TRA is always fully right and RoPE has every
/// chance on the lengths it was trained on.
const GRID: &str = include_str!("../demo.toml");

/// Sequences of each split, and of each far length.
const SEQUENCES: u64 = 128;
/// Far lengths, as multiples of the training length, and sequences of each.
const FAR: [(usize, u64); 3] = [(4, 32), (16, 8), (32, 4)];

/// See it work: TRA and RoPE on flip-flop, from scratch, in a minute or two
///
/// Trains both on short sequences, tests both on what they know, on what they do not, and on
/// sequences far longer, prints the table and writes a page to look at.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra demo
  tra demo --seed 2 --out runs/demo-2")]
pub struct Args {
    /// Where the runs and the page go
    #[arg(long, default_value = "runs/demo")]
    out: PathBuf,

    /// Weights, data and dropout are functions of it
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let device = tra_nn::device::by_name("flex")?;
    let mut grid: SweepConfig = toml::from_str(GRID)?;
    grid.out = args.out;
    grid.seeds = vec![args.seed];
    let cells = grid.cells()?;
    let interrupted = on_interrupt(Some("the step at hand and saving"))?;
    let mut rows = Vec::new();
    for (number, cell) in cells.iter().enumerate() {
        let number = format!("{}/{}", number + 1, cells.len());
        let (done, _lock) = sweep::one(cell, &number, &device, &interrupted)?;
        sweep::say(cell, &number, done);
        let stopped = || {
            terminal::say(&format!("stopped; go on with: tra demo --out {}", grid.out.display()));
            Ok(ExitCode::from(STOPPED))
        };
        if done == Done::Interrupted {
            return stopped();
        }
        let run = RunDir::open(&cell.path)?;
        let task = cell.config.task.build()?;
        let (step, decoder) = run.newest_model(&device, terminal::warn)?;
        let trained = cell.config.train_lengths().to;
        let near = ["iid", "sparse", "dense"].map(|split| (split, trained, SEQUENCES));
        let far = FAR.map(|(times, sequences)| ("iid", times * trained, sequences));
        let mut results = Vec::new();
        for (split, length, sequences) in near.into_iter().chain(far) {
            let spinner = terminal::spinner(format!("{number} testing {split} at length {length}"));
            let lengths = Lengths { from: length, to: length };
            let seed = cell.config.seed;
            let spec = EvalSpec { split: split.into(), lengths, sequences, seed };
            let result = evaluate(&decoder, task.as_ref(), &spec, &interrupted, |_| {});
            spinner.finish_and_clear();
            let Some(result) = result? else { return stopped() };
            results.push(result);
        }
        run.add_evaluation(&Evaluation { step, results: results.clone() })?;
        rows.push((cell, results));
    }
    let trained = cells[0].config.length.map_or(0, |length| length.to);
    terminal::print(&format!(
        "flip-flop, trained on {trained} tokens; share of sequences with every read right:\n\n{}\n",
        sweep::grid_table(&rows)
    ))?;
    let out = grid.out.join("report.html");
    let paths: Vec<&PathBuf> = cells.iter().map(|cell| &cell.path).collect();
    let shown = Shown { split: "iid".into(), ..Shown::default() };
    crate::report::write("Flip-flop: TRA and RoPE", &paths, Some(&shown), &out)?;
    terminal::print(&format!("open {} to look at it\n", out.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The demo itself takes minutes; that its settings are sound takes none.
    #[test]
    fn the_grid_is_sound() {
        let grid: SweepConfig = toml::from_str(GRID).unwrap();
        let cells = grid.cells().unwrap();
        let names: Vec<_> = cells.iter().map(|c| c.config.model.decoder.attention.name()).collect();
        assert_eq!(names, ["tra", "rope"]);
        let task = cells[0].config.task.build().unwrap();
        let trained = cells[0].config.train_lengths().to;
        assert!(FAR.iter().all(|(times, _)| task.check_length(times * trained).is_ok()));
    }
}
