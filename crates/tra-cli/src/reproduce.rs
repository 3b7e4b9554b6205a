//! `tra reproduce`: repeats an experiment of the paper, from training to the table.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tra_lab::observer::{Event, Observer};
use tra_lab::reproduce::{
    Experiment, Options, Place, Scale, Selection, WorkerCommand, dry_run, run as reproduce,
    stop_with_parent, work,
};
use tra_lab::sweep::Failures;

use crate::crash;
use crate::interrupt::{STOPPED, on_interrupt};
use crate::terminal::{self, Terminal};

/// Default device.
const DEVICE: &str = "flex";

/// Repeat an experiment of the paper, from training to tables and plots
///
/// First prints how long it will take. An interrupted experiment continues where it stopped:
/// finished runs are not trained or evaluated again.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra reproduce flipflop
  tra reproduce copy --models tra,rope --seeds 1
  tra reproduce flipflop --scale paper --dry-run
  tra reproduce induct --jobs 1                    # one run at a time
  tra reproduce wikitext --text wikitext-2/

The settings are in crates/tra-lab/experiments, our results in docs/experiments.md.")]
pub struct Args {
    /// Experiment: flipflop, copy, repeats, rivals, induct, instruct, ablation, wikitext, timing,
    /// all, or a file like those in crates/tra-lab/experiments
    name: String,

    /// quick (about an hour on two cores) or paper (the paper's sizes and steps)
    #[arg(long, default_value = "quick")]
    scale: Scale,

    /// Comma-separated models [default: all of the experiment]
    #[arg(long, value_delimiter = ',')]
    models: Vec<String>,

    /// Comma-separated tasks [default: all of the experiment]
    #[arg(long, value_delimiter = ',')]
    tasks: Vec<String>,

    /// Comma-separated seeds [default: those of the experiment]
    #[arg(long, value_delimiter = ',')]
    seeds: Vec<u64>,

    /// wikitext: folder of the text, as `tra data get` writes it [default: data/wikitext-2, or
    /// data/wikitext-103 with --scale paper]
    #[arg(long, value_name = "DIR")]
    text: Option<PathBuf>,

    /// Output directory [default: runs/reproduce/NAME-SCALE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print what is left to do and how long it will take, then exit
    #[arg(long)]
    dry_run: bool,

    /// Number of parallel runs, which share the threads [default: one per thread, or one on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,

    /// Device: flex (the CPU), or a GPU backend of this build, for example cuda:0
    #[arg(long, default_value = DEVICE)]
    device: String,

    /// Train runs for the parent process
    #[arg(long, hide = true)]
    worker: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    if args.worker {
        return worker(&args);
    }
    let interrupted = on_interrupt(Some("the current steps and saving"))?;
    let device = tra_nn::device::by_name(&args.device)?;
    let names: Vec<&str> = match args.name.as_str() {
        "all" => Experiment::names().collect(),
        name => vec![name],
    };
    let mut experiments = Vec::new();
    for name in names {
        let experiment = Experiment::open(name)?;
        let timed = matches!(experiment, Experiment::Timing(_));
        if timed && args.name != "all" && (args.jobs.is_some() || args.device != DEVICE) {
            bail!("timing does not support --jobs or --device");
        }
        // Reports mistakes now, not after hours of training.
        let options = options(&args, name, &experiment);
        experiment.check(&options).with_context(|| name.to_string())?;
        experiments.push((name, experiment, options));
    }
    let (mut terminal, mut failures) = (Terminal::new(), Failures::default());
    for (name, experiment, options) in experiments {
        let mut words = typed(&args, name, options.text.is_some());
        words.extend(["--worker".into(), "--out".into(), options.out.clone().into()]);
        let place = Place {
            device: &device,
            jobs: args.jobs.map(usize::from).or((args.device != DEVICE).then_some(1)),
            worker: Some(WorkerCommand::this_program(words, STOPPED)?),
        };
        if args.dry_run {
            dry_run(experiment, &options, &place, &mut terminal).context(name.to_string())?;
            continue;
        }
        let found =
            reproduce(experiment, &options, &place, &interrupted, &mut failures, &mut terminal);
        terminal.clear();
        let Some(found) = found.with_context(|| name.to_string())? else {
            terminal::say("stopped; the same command continues from here");
            return Ok(ExitCode::from(STOPPED));
        };
        terminal::print(&format!("{}\n", found.table))?;
        for file in &found.files {
            terminal::print(&format!("{}\n", file.display()))?;
        }
    }
    Ok(terminal::list_failures(&failures))
}

/// Trains runs for the parent process, and reports events to it as lines of JSON.
fn worker(args: &Args) -> Result<ExitCode> {
    crash::answer_to_asker();
    let interrupted = on_interrupt(None)?;
    stop_with_parent(&interrupted);
    // Even if the parent has ended, the current step is still saved.
    let mut tell = |event: Event| {
        if let Ok(line) = serde_json::to_string(&event) {
            let _ = terminal::write_out(&format!("{line}\n"));
        }
    };
    let mut make = || -> Result<bool> {
        let device = tra_nn::device::by_name(&args.device)?;
        let experiment = Experiment::open(&args.name)?;
        let options = options(args, &args.name, &experiment);
        Ok(work(experiment, &options, &device, &interrupted, &mut tell)?)
    };
    match make() {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::from(STOPPED)),
        Err(error) => {
            tell.event(Event::Error(format!("{error:#}")));
            Ok(ExitCode::from(2))
        }
    }
}

fn options(args: &Args, name: &str, experiment: &Experiment) -> Options {
    let Args { models, tasks, seeds, .. } = args;
    let selection =
        Selection { models: models.clone(), tasks: tasks.clone(), seeds: seeds.clone() };
    // With `all`, each experiment receives only the options that it supports.
    let all = args.name == "all";
    let is_text = matches!(experiment, Experiment::Text(_));
    let is_timing = matches!(experiment, Experiment::Timing(_));
    let text = args.text.clone().filter(|_| !all || is_text);
    let words = typed(args, name, text.is_some());
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    Options {
        scale: args.scale,
        selection: if all && is_timing { Selection::default() } else { selection },
        text,
        out: folder(args, name),
        command: format!("tra {}", words.join(" ")),
    }
}

/// Returns the output directory of an experiment.
fn folder(args: &Args, name: &str) -> PathBuf {
    match &args.out {
        Some(out) if args.name == "all" => out.join(name),
        Some(out) => out.clone(),
        None => {
            let name = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
            PathBuf::from(format!("runs/reproduce/{name}-{}", args.scale.name()))
        }
    }
}

/// Returns the command line with every option that affects the results, without the output
/// directory.
fn typed(args: &Args, name: &str, text: bool) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        vec!["reproduce".into(), name.into(), "--scale".into(), args.scale.name().into()];
    let seeds: Vec<String> = args.seeds.iter().map(u64::to_string).collect();
    for (flag, list) in [("--models", &args.models), ("--tasks", &args.tasks), ("--seeds", &seeds)]
    {
        if !list.is_empty() {
            words.extend([flag.into(), list.join(",").into()]);
        }
    }
    if let (Some(folder), true) = (&args.text, text) {
        words.extend(["--text".into(), folder.into()]);
    }
    if args.device != DEVICE {
        words.extend(["--device".into(), args.device.clone().into()]);
    }
    words
}
