//! `tra reproduce`: an experiment of the paper, from training to the table.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tra_lab::gather::{Shown, gather};
use tra_lab::report::html;
use tra_lab::reproduce::{
    Estimate, Experiment, Results, Selection, Size, Trial, estimate, found, summary, table, test,
};
use tra_lab::sweep::Done;
use tra_nn::device::Device;

use crate::{show, sweep};

/// The experiments, in the order in which `all` makes them.
const FILES: [(&str, &str); 4] = [
    ("flipflop", include_str!("../../../configs/reproduce/flipflop.toml")),
    ("copy", include_str!("../../../configs/reproduce/copy.toml")),
    ("induct", include_str!("../../../configs/reproduce/induct.toml")),
    ("instruct", include_str!("../../../configs/reproduce/instruct.toml")),
];

/// Repeat an experiment of the paper: train, test, table and plot
///
/// flipflop, copy, induct, instruct, wikitext, timing, or all. Says how long it will take, and goes on
/// where it was cut: what is trained and tested is not done again.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra reproduce flipflop
  tra reproduce copy --models tra,rope --seeds 1
  tra reproduce flipflop --scale paper --dry-run
  tra reproduce wikitext --text wikitext-2/

The settings are in configs/reproduce; docs/reproduce.md has what came out here.")]
pub struct Args {
    /// flipflop, copy, induct, instruct, wikitext, timing or all
    name: String,

    /// quick: about an hour on two cores; paper: the paper's own sizes and steps
    #[arg(long, default_value = "quick")]
    scale: Size,

    /// Only these models, separated by commas
    #[arg(long, value_delimiter = ',')]
    models: Vec<String>,

    /// Only these tasks of the experiment, separated by commas
    #[arg(long, value_delimiter = ',')]
    tasks: Vec<String>,

    /// These seeds in place of the experiment's, separated by commas
    #[arg(long, value_delimiter = ',')]
    seeds: Vec<u64>,

    /// Where the runs and the table go [default: runs/reproduce/NAME-SCALE]
    #[arg(long)]
    out: Option<PathBuf>,

    /// Say what there is to do and how long it will take, and stop
    #[arg(long)]
    dry_run: bool,

    /// Where to compute: flex (the CPU), or a GPU backend this build has, as in cuda:0
    #[arg(long, default_value = "flex")]
    device: String,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let device = tra_nn::device::by_name(&args.device)?;
    let interrupted = crate::train::on_interrupt()?;
    let names: Vec<&str> = match args.name.as_str() {
        "all" => FILES.iter().map(|(name, _)| *name).collect(),
        name => vec![name],
    };
    for name in &names {
        let Some((_, file)) = FILES.iter().find(|(known, _)| known == name) else {
            let known: Vec<&str> = FILES.iter().map(|(known, _)| *known).collect();
            bail!("no experiment {name:?}; there are {}, all", known.join(", "));
        };
        let path = format!("configs/reproduce/{name}.toml");
        let experiment = Experiment::parse(file, Path::new(&path))?;
        let out = match &args.out {
            Some(out) if names.len() > 1 => out.join(name),
            Some(out) => out.clone(),
            None => PathBuf::from(format!("runs/reproduce/{name}-{}", args.scale.name())),
        };
        if !one(&experiment, &args, &out, &device, &interrupted)? {
            eprintln!("stopped; the same command goes on from here");
            return Ok(ExitCode::from(130));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes one experiment; whether it came to the end.
fn one(
    experiment: &Experiment,
    args: &Args,
    out: &Path,
    device: &Device,
    interrupted: &AtomicBool,
) -> Result<bool> {
    let selection = Selection {
        models: args.models.clone(),
        tasks: args.tasks.clone(),
        seeds: args.seeds.clone(),
    };
    let trials = experiment.trials(args.scale, &selection, out)?;
    eprintln!("{}, {} scale, {} runs", experiment.title, args.scale.name(), trials.len());
    forecast(&trials, device)?;
    if args.dry_run {
        return Ok(true);
    }
    let begin = Instant::now();
    for (number, trial) in trials.iter().enumerate() {
        let number = format!("{}/{}", number + 1, trials.len());
        if sweep::one(&trial.cell, &number, device, interrupted)? == Done::Interrupted {
            return Ok(false);
        }
        let spinner = show::spinner(format!("{number} testing"));
        let whole = test(
            trial,
            device,
            interrupted,
            |question, done| {
                let (split, lengths) = (&question.split, question.lengths);
                spinner.set_message(format!(
                    "{number} testing {} on {split} at {lengths}: {done}/{}",
                    trial.model, question.sequences
                ));
            },
            show::warn,
        );
        spinner.finish_and_clear();
        if !whole? {
            return Ok(false);
        }
    }
    finish(experiment, args, &trials, out)?;
    eprintln!("took {}", show::duration(begin.elapsed().as_secs_f64()));
    Ok(true)
}

fn forecast(trials: &[Trial], device: &Device) -> Result<()> {
    let spinner = show::spinner("estimating".into());
    let told = |name: &str| spinner.set_message(format!("estimating: {name}"));
    let estimate = estimate(trials, device, told);
    spinner.finish_and_clear();
    let Estimate { runs, training, testing } = estimate?;
    match runs {
        0 => eprintln!("everything is trained; tests may be left"),
        _ => eprintln!(
            "{runs} to train: about {}, then tests: at most about {}",
            show::duration(training),
            show::duration(testing)
        ),
    }
    Ok(())
}

/// Prints the table, and writes it with the raw results and the page.
fn finish(experiment: &Experiment, args: &Args, trials: &[Trial], out: &Path) -> Result<()> {
    let runs = found(trials)?;
    let scale = args.scale.name();
    let text = format!("{}, {scale} scale\n\n{}{}", experiment.title, table(&runs), summary(&runs));
    let title = experiment.title.clone();
    let results = Results { title: title.clone(), scale: scale.into(), runs };
    let write = |name: &str, text: &str| {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("table.txt", &text)?;
    write("results.json", &format!("{}\n", serde_json::to_string_pretty(&results)?))?;
    let spinner = show::spinner("drawing the page".into());
    let paths: Vec<&PathBuf> = trials.iter().map(|trial| &trial.cell.path).collect();
    let commands = vec![format!("tra reproduce {} --scale {scale}", args.name)];
    let device = tra_nn::device::by_name("flex")?;
    let page = gather(&title, &paths, None::<&Shown>, commands, &device, show::warn);
    let mut page = page?;
    for (run, trial) in page.runs.iter_mut().zip(trials) {
        run.attention = trial.model.clone();
    }
    write("report.html", &html(&page))?;
    spinner.finish_and_clear();
    show::print(&format!("{text}\n"))?;
    for name in ["table.txt", "results.json", "report.html"] {
        show::print(&format!("{}\n", out.join(name).display()))?;
    }
    Ok(())
}
