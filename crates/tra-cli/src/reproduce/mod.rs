//! `tra reproduce`: an experiment of the paper, from training to the table.

mod scheduler;
mod timing;
mod wikitext;
mod worker_pool;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tra_lab::config::read_text;
use tra_lab::gather::gather;
use tra_lab::report::{html, plural};
use tra_lab::reproduce::{
    Experiment, Results, Scale, Selection, Trial, estimate, found, in_folder, summary, table,
    unfinished,
};
use tra_nn::device::Device;

use self::scheduler::make;
use self::worker_pool::Jobs;
use crate::interrupt::{STOPPED, on_interrupt};
use crate::sweep::Failures;
use crate::terminal;

/// The experiments that are runs, in the order in which `all` makes them.
const FILES: [(&str, &str); 8] = [
    ("flipflop", include_str!("../../../../configs/reproduce/flipflop.toml")),
    ("copy", include_str!("../../../../configs/reproduce/copy.toml")),
    ("repeats", include_str!("../../../../configs/reproduce/repeats.toml")),
    ("rivals", include_str!("../../../../configs/reproduce/rivals.toml")),
    ("induct", include_str!("../../../../configs/reproduce/induct.toml")),
    ("instruct", include_str!("../../../../configs/reproduce/instruct.toml")),
    ("ablation", include_str!("../../../../configs/reproduce/ablation.toml")),
    ("wikitext", include_str!("../../../../configs/reproduce/wikitext.toml")),
];
/// Where runs are made unless told otherwise.
const DEVICE: &str = "flex";
const TIMING: &str = include_str!("../../../../configs/reproduce/timing.toml");

/// Repeat an experiment of the paper, from training to tables and plots
///
/// Prints first how long it will take. An interrupted experiment continues where it stopped:
/// finished runs are neither trained nor evaluated again.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra reproduce flipflop
  tra reproduce copy --models tra,rope --seeds 1
  tra reproduce flipflop --scale paper --dry-run
  tra reproduce induct --jobs 1                    # one run at a time
  tra reproduce wikitext --text wikitext-2/

The settings are in configs/reproduce, our results in docs/reproduce.md.")]
pub struct Args {
    /// Experiment: flipflop, copy, repeats, rivals, induct, instruct, ablation, wikitext, timing, all,
    /// or a file like those in configs/reproduce
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

    /// Print what is left to do and how long it will take, and stop
    #[arg(long)]
    dry_run: bool,

    /// Number of runs at a time, which share the threads [default: one per thread, or one on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,

    /// Device: flex (the CPU), or a GPU backend of this build, for example cuda:0
    #[arg(long, default_value = DEVICE)]
    device: String,

    /// Make runs for the process that started this one
    #[arg(long, hide = true)]
    worker: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let doing = (!args.worker).then_some("the steps at hand and saving");
    let interrupted = on_interrupt(doing)?;
    let device = tra_nn::device::by_name(&args.device)?;
    let names: Vec<String> = match args.name.as_str() {
        "all" => FILES.iter().map(|(name, _)| name.to_string()).chain(["timing".into()]).collect(),
        name => vec![name.to_string()],
    };
    let of_runs = [args.models.is_empty(), args.tasks.is_empty(), args.seeds.is_empty()];
    let chosen = of_runs.contains(&false) || args.text.is_some() || args.jobs.is_some();
    if names == ["timing"] {
        if chosen || args.device != DEVICE {
            bail!("timing has no models, tasks, seeds, text, jobs or device to choose from");
        }
        timing::run(TIMING, args.scale, &folder(&args, "timing"), args.dry_run)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.worker {
        worker_pool::stop_with_parent(&interrupted);
    }
    if names.len() > 1 {
        // Now, and not hours from now.
        for name in names.iter().filter(|name| *name != "timing") {
            read(name)?.check_names(args.scale, &selection(&args)).with_context(|| name.clone())?;
        }
        let part = read("wikitext")?.scale(args.scale).text.clone();
        part.map(|part| wikitext::folder(&part, args.text.as_deref())).transpose()?;
    }
    let mut failures = Failures::default();
    for name in &names {
        let out = folder(&args, name);
        if name == "timing" {
            if args.device != DEVICE {
                terminal::say(&format!("timing is measured on {DEVICE}, whatever --device says"));
            }
            timing::run(TIMING, args.scale, &out, args.dry_run)?;
            continue;
        }
        if !one(name, &args, &out, &device, &interrupted, &mut failures)? {
            if !args.worker {
                terminal::say("stopped; the same command goes on from here");
            }
            return Ok(ExitCode::from(STOPPED));
        }
    }
    // The process that started this one comes by every run that failed here, and lists them all.
    Ok(if args.worker { ExitCode::SUCCESS } else { failures.tell() })
}

/// Where an experiment goes.
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

fn selection(args: &Args) -> Selection {
    let Args { models, tasks, seeds, .. } = args;
    Selection { models: models.clone(), tasks: tasks.clone(), seeds: seeds.clone() }
}

/// What was typed that bears on the results, but for where they go.
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

/// An experiment of ours, or of a file.
fn read(name: &str) -> Result<Experiment> {
    if let Some((_, text)) = FILES.iter().find(|(known, _)| *known == name) {
        let path = format!("configs/reproduce/{name}.toml");
        return Ok(Experiment::parse(text, Path::new(&path))?);
    }
    let path = Path::new(name);
    if path.extension().is_some_and(|extension| extension == "toml") {
        let text = read_text(path)?;
        return Ok(Experiment::parse(&text, path)?);
    }
    let known: Vec<&str> = FILES.iter().map(|(known, _)| *known).collect();
    bail!("no experiment {name:?}; there are {}, timing, all, and TOML files", known.join(", "));
}

/// Makes one experiment; whether it came to the end.
fn one(
    name: &str,
    args: &Args,
    out: &Path,
    device: &Device,
    interrupted: &AtomicBool,
    failures: &mut Failures,
) -> Result<bool> {
    let mut experiment = read(name)?;
    let text = match experiment.scale(args.scale).text.clone() {
        Some(part) => {
            let folder = wikitext::prepare(&mut experiment, &part, args.text.as_deref(), out)?;
            Some((part, folder))
        }
        None if args.text.is_some() && args.name != "all" => {
            bail!("--text is for wikitext: this experiment reads none")
        }
        None => None,
    };
    let trials = experiment.trials(args.scale, &selection(args), out);
    let trials = trials.with_context(|| name.to_string())?;
    if let (Some(_), Some(trial)) = (&text, trials.first()) {
        terminal::open_text(&trial.cell.config)?;
    }
    let mut make =
        |among_others| make(&trials, text.as_ref(), among_others, device, interrupted, failures);
    if args.worker {
        return make(true);
    }
    let runs = plural(trials.len(), "run");
    terminal::say(&format!("{}, {} scale, {runs}", experiment.title, args.scale.name()));
    let asked = args.jobs.map(usize::from);
    let asked = asked.or((args.device != DEVICE).then_some(1));
    let work = match &text {
        Some((part, _)) => wikitext::unfinished(&trials, part)?,
        None => unfinished(&trials)?,
    };
    let jobs = Jobs::new(asked, rayon::current_num_threads(), work);
    forecast(&trials, work, device, jobs)?;
    if args.dry_run || interrupted.load(Ordering::SeqCst) {
        return Ok(args.dry_run);
    }
    let begin = Instant::now();
    if jobs.count > 1 {
        let mut words = typed(args, name, text.is_some());
        words.extend(["--worker".into(), "--out".into(), out.into()]);
        if !jobs.run(&words, interrupted)? {
            return Ok(false);
        }
    }
    if !make(jobs.count > 1)? {
        return Ok(false);
    }
    let trials = in_folder(&experiment, args.scale, trials, out)?;
    finish(&experiment, args, &trials, out)?;
    terminal::say(&format!("took {}", terminal::duration(begin.elapsed().as_secs_f64())));
    Ok(true)
}

/// Says what is left, and how long that takes; one run at a time is tried, with the threads that it will have.
fn forecast(trials: &[Trial], work: usize, device: &Device, jobs: Jobs) -> Result<()> {
    let spinner = terminal::spinner("estimating".into());
    let told = |name: &str| spinner.set_message(format!("estimating: {name}"));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.threads).build()?;
    let estimate = pool.install(|| estimate(trials, device, told));
    spinner.finish_and_clear();
    let estimate = estimate?;
    let (seconds, testing) = estimate.side_by_side(jobs.count);
    // More of them than there are threads take turns.
    let crowded = (jobs.count * jobs.threads) as f64 / rayon::current_num_threads() as f64;
    let time = terminal::duration(seconds * crowded.max(1.0));
    if jobs.count > 1 {
        let threads = plural(jobs.threads, "thread");
        terminal::say(&format!("{} runs at a time, each with {threads}", jobs.count));
    }
    match (estimate.runs, estimate.tests) {
        (0, 0) if work > 0 => {
            terminal::say(&format!("everything is trained; {work} to be measured"))
        }
        (0, 0) => terminal::say("everything is trained and tested"),
        (0, tests) => {
            terminal::say(&format!("everything is trained; {tests} tests: at most about {time}"))
        }
        (runs, 0) => terminal::say(&format!("{runs} to train: about {time}")),
        (runs, tests) => terminal::say(&format!(
            "{runs} to train, {tests} tests: about {time}, at most {:.0}% of it for the tests",
            100.0 * testing
        )),
    }
    Ok(())
}

/// Prints the table, and writes it with the raw results and the page.
fn finish(experiment: &Experiment, args: &Args, trials: &[Trial], out: &Path) -> Result<()> {
    let (scale, title) = (args.scale.name(), experiment.title.clone());
    let (body, raw) = match experiment.scale(args.scale).text {
        Some(_) => {
            let runs = wikitext::found(trials)?;
            let raw = runs.iter().map(|(model, seed, found)| {
                serde_json::json!({ "model": model, "seed": seed, "perplexity": found })
            });
            let raw: Vec<_> = raw.collect();
            let raw = serde_json::json!({ "title": title, "scale": scale, "runs": raw });
            (wikitext::table(&runs), serde_json::to_string_pretty(&raw)?)
        }
        None => {
            let runs = found(trials)?;
            let body = format!("{}{}", table(&runs), summary(&runs));
            let results = Results { title: title.clone(), scale: scale.into(), runs };
            (body, serde_json::to_string_pretty(&results)?)
        }
    };
    let text = format!("{title}, {scale} scale\n\n{body}");
    write(out, "table.txt", &text)?;
    write(out, "results.json", &format!("{raw}\n"))?;
    let spinner = terminal::spinner("drawing the page".into());
    let paths: Vec<&PathBuf> = trials.iter().map(|trial| &trial.cell.path).collect();
    let device = tra_nn::device::by_name(DEVICE)?;
    let words = typed(args, &args.name, true);
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let command = format!("tra {}", words.join(" "));
    let mut page = gather(&title, &paths, None, vec![command], &device, terminal::warn)?;
    for run in &mut page.runs {
        // Not by their order: one that cannot be read is not on the page.
        let is_its = |trial: &&Trial| terminal::file_name(&trial.cell.path) == run.name;
        let Some(trial) = trials.iter().find(is_its) else { continue };
        run.attention = trial.model.clone();
        if experiment.tasks.len() > 1 {
            run.task = trial.task.clone();
        }
    }
    write(out, "report.html", &html(&page))?;
    spinner.finish_and_clear();
    terminal::print(&format!("{text}\n"))?;
    for name in ["table.txt", "results.json", "report.html"] {
        terminal::print(&format!("{}\n", out.join(name).display()))?;
    }
    Ok(())
}

fn write(out: &Path, name: &str, text: &str) -> Result<()> {
    crate::report::save(&out.join(name), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings that travel in the program are sound at both scales.
    #[test]
    fn every_experiment_can_be_planned() {
        for (name, _) in FILES {
            for scale in [Scale::Quick, Scale::Paper] {
                let mut experiment = read(name).unwrap();
                let text = experiment.scale(scale).text.is_some();
                assert_eq!(text, name == "wikitext", "{name}");
                for task in experiment.tasks.iter_mut().filter(|_| text) {
                    task.settings.insert("text".into(), "wiki.tokens".into());
                }
                let trials =
                    experiment.trials(scale, &Selection::default(), Path::new("out")).unwrap();
                assert!(trials.iter().all(|trial| text || !trial.tests.is_empty()), "{name}");
                let names: std::collections::BTreeSet<_> =
                    trials.iter().map(|trial| &trial.cell.path).collect();
                assert_eq!(names.len(), trials.len(), "{name}");
            }
        }
    }
}
