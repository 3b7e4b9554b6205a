//! `tra report`: one page about one or more runs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use tra_lab::report::{Shown, write};

use crate::{run_folder, terminal};

/// Write an HTML page about one or more runs
///
/// The page is one self-contained HTML file. It shows accuracy against length with one line per
/// mechanism, a table of splits with mean and deviation over seeds, training curves, the keys that
/// each head attends to, and the settings.
///
/// DIR is a run, or a folder that contains runs, as `tra demo` and `tra sweep` make: the page then
/// covers every run directly inside the folder.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra report runs/ff runs/ff-rope --out report.html
  tra report runs/ff                      # writes runs/ff/report.html
  tra report runs/demo                    # every run in runs/demo
  tra report runs/ff --split sparse --index 3 --length 64")]
pub struct Args {
    /// Run directories, or folders of runs
    #[arg(required = true, value_name = "DIR")]
    runs: Vec<PathBuf>,

    /// Output file [default: report.html in the first DIR]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Title of the page
    #[arg(long, default_value = "Length generalisation")]
    title: String,

    /// Attention pictures: split of the sequence
    #[arg(long, default_value = "train")]
    split: String,

    /// Attention pictures: index of the sequence in its split
    #[arg(long, default_value_t = 0)]
    index: u64,

    /// Attention pictures: length of the sequence
    #[arg(long, default_value_t = 48)]
    length: usize,

    /// Leave out the attention pictures
    #[arg(long)]
    no_pictures: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let Args { split, index, length, .. } = args;
    let shown = (!args.no_pictures).then_some(Shown { split, index, length });
    let out = args.out.unwrap_or_else(|| args.runs[0].join("report.html"));
    write(&args.title, &run_folder::expand(&args.runs)?, shown.as_ref(), &out, terminal::warn)?;
    terminal::print(&format!("{}\n", out.display()))?;
    Ok(ExitCode::SUCCESS)
}
