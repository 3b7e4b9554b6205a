//! `tra demo`: TRA and RoPE beside each other, in a minute or two.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use tra_lab::demo::{self, Demo};

use crate::interrupt::{STOPPED, on_interrupt};
use crate::terminal::{self, Terminal};

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
    let interrupted = on_interrupt(Some("the current step and saving"))?;
    let mut terminal = Terminal::new();
    let found = demo::run(args.out.clone(), args.seed, &device, &interrupted, &mut terminal)?;
    terminal.clear();
    let Some(Demo { trained, table, page }) = found else {
        let (out, seed) = (args.out.display(), args.seed);
        terminal::say(&format!("stopped; continue with: tra demo --seed {seed} --out {out}"));
        return Ok(ExitCode::from(STOPPED));
    };
    terminal::print(&format!(
        "flip-flop, trained on {trained} tokens; share of sequences with every read correct:\n\n\
         {table}\nopen {} to see the plots\n",
        page.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}
