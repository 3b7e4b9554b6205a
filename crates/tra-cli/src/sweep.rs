//! `tra sweep`: trains a grid of runs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use tra_lab::report::{self, Shown};
use tra_lab::sweep::{self, Cell, Failures, Shard, SweepConfig};
use tra_report::tables;

use crate::interrupt::{STOPPED, on_interrupt};
use crate::terminal::{self, Terminal};

/// Train a grid of mechanisms, tasks and seeds
///
/// Skips finished runs and continues interrupted ones. With --shard, several machines share the
/// work in a common folder; no two shards train the same run.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra sweep configs/sweep-quick.toml
  tra sweep configs/sweep-quick.toml --shard 0/4      # first of four machines
  tra sweep configs/sweep-quick.toml --list

`tra mechanisms` and `tra tasks` list the names a grid can contain.
docs/cluster.md has manifests for a Slurm array and a Kubernetes indexed Job.")]
pub struct Args {
    /// TOML file of the grid: out, attention, task, seeds, and a [run] table
    config: PathBuf,

    /// Train only part i of n, counted from 0
    #[arg(long, value_name = "i/n")]
    shard: Option<Shard>,

    /// List the runs of the grid or shard, then exit
    #[arg(long)]
    list: bool,

    /// Device: flex (the CPU), or a GPU backend of this build, for example cuda:0
    #[arg(long, default_value = "flex")]
    device: String,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let device = tra_nn::device::by_name(&args.device)?;
    let sweep = SweepConfig::read(&args.config)?;
    let all = sweep.cells()?;
    let shard = args.shard.unwrap_or(Shard { index: 0, of: 1 });
    let mine: Vec<&Cell> = all.iter().skip(shard.index).step_by(shard.of).collect();
    if args.list {
        let names = mine.iter().map(|cell| format!("{}\n", cell.path.display()));
        terminal::print(&names.collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let interrupted = on_interrupt(Some("the current step and saving"))?;
    let (mut terminal, mut failures) = (Terminal::new(), Failures::default());
    let whole = sweep::run(&mine, &device, &interrupted, &mut failures, &mut terminal)?;
    terminal.clear();
    if !whole {
        let shard = args.shard.map(|Shard { index, of }| format!(" --shard {index}/{of}"));
        let (config, shard) = (args.config.display(), shard.unwrap_or_default());
        terminal::say(&format!("stopped; continue with: tra sweep {config}{shard}"));
        return Ok(ExitCode::from(STOPPED));
    }
    // Empty until every run of the grid has finished or failed, in any shard.
    let rows = sweep::results(&all, &failures)?.unwrap_or_default();
    if !rows.is_empty() {
        terminal::print(&tables::grid(&rows))?;
        let paths: Vec<&PathBuf> = all.iter().map(|cell| &cell.path).collect();
        let out = sweep.out.join("report.html");
        report::write("Sweep", &paths, Some(&Shown::default()), &out, terminal::warn)?;
        terminal::print(&format!("{}\n", out.display()))?;
    }
    Ok(terminal::list_failures(&failures))
}
