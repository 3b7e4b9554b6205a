//! `tra report`: one page about one or more runs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use tra_lab::report::{Shown, write};

use crate::terminal;

/// Make a page with plots, tables and attention pictures
///
/// One self-contained HTML file: accuracy against length with one line a mechanism, the table of
/// splits with mean and deviation over seeds, training curves, which keys each head keeps, and the
/// settings.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra report runs/ff runs/ff-rope --out report.html
  tra report runs/ff                      # writes runs/ff/report.html
  tra report runs/ff --split sparse --index 3 --length 64")]
pub struct Args {
    /// Run directories
    #[arg(required = true, value_name = "DIR")]
    runs: Vec<PathBuf>,

    /// Where the page goes [default: report.html in the first run]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Title of the page
    #[arg(long, default_value = "Length generalisation")]
    title: String,

    /// Attention pictures: the split their sequence is drawn from
    #[arg(long, default_value = "train")]
    split: String,

    /// Attention pictures: the number of the sequence in its split
    #[arg(long, default_value_t = 0)]
    index: u64,

    /// Attention pictures: the length of the sequence
    #[arg(long, default_value_t = 48)]
    length: usize,

    /// Leave the attention pictures out
    #[arg(long)]
    no_pictures: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let Args { split, index, length, .. } = args;
    let shown = (!args.no_pictures).then_some(Shown { split, index, length });
    let out = args.out.unwrap_or_else(|| args.runs[0].join("report.html"));
    write(&args.title, &args.runs, shown.as_ref(), &out, terminal::warn)?;
    terminal::print(&format!("{}\n", out.display()))?;
    Ok(ExitCode::SUCCESS)
}
