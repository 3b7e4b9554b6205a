//! `tra report`: one page about one or more runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use tra_lab::config::RunConfig;
use tra_lab::gather::{Shown, gather};
use tra_lab::report::html;
use tra_lab::run_dir::RunDir;

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
    write(&args.title, &args.runs, shown.as_ref(), &out)?;
    terminal::print(&format!("{}\n", out.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Gathers runs and writes their page.
pub fn write(
    title: &str,
    runs: &[impl AsRef<Path>],
    shown: Option<&Shown>,
    out: &Path,
) -> Result<()> {
    let names: Vec<String> = runs.iter().map(|run| run.as_ref().display().to_string()).collect();
    let commands =
        names.iter().map(|run| format!("tra train --config {run}/config.toml --out NEW"));
    let commands =
        commands.chain([format!("tra report {} --out {}", names.join(" "), out.display())]);
    let device = tra_nn::device::by_name("flex")?;
    let report = gather(title, runs, shown, commands.collect(), &device, terminal::warn)?;
    save(out, &html(&report))
}

/// Draws the page of a run into its folder. That it cannot be drawn is no reason to fail: the run is whole.
pub fn write_for(run: &RunDir) {
    let title = |config: RunConfig| {
        format!("{} with {}", run.name(), config.model.decoder.attention.name())
    };
    let written = run.config().map_err(Into::into).and_then(|config| {
        write(&title(config), &[run.path()], Some(&Shown::default()), &run.report_path())
    });
    if let Err(error) = written {
        terminal::warn(format!("no page for {}: {error:#}", run.name()));
    }
}

/// Writes a file for people to read, whole or not at all; its folder is made.
pub fn save(path: &Path, text: &str) -> Result<()> {
    let write = || {
        path.parent().map_or(Ok(()), tra_disk::create_dir_all)?;
        tra_disk::write_atomically(path, text.as_bytes())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
