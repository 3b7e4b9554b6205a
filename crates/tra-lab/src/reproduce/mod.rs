//! The experiments of the paper: training, tests, a table and a page.
//!
//! Every run of an experiment is an ordinary run directory that also contains its results. Runs and
//! tests that are already finished are not repeated. So an interrupted experiment continues where
//! it stopped and ends with the same table.

mod estimate;
mod grid;
mod scheduler;
mod text;
mod timing;
mod trial;
mod workers;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use tra_report::page::html;
use tra_report::records::ExperimentResults;
use tra_report::tables;
use tra_report::text::{duration, plural};

use crate::config::read_text;
use crate::error::LabError;
use crate::observer::Observer;
use crate::sweep::Failures;

pub use estimate::{Estimate, estimate};
pub use grid::{
    Grid, Model, Scale, ScaleSettings, Selection, TaskEntry, Test, TextSettings, Trial,
};
pub use timing::Timing;
pub use workers::{Jobs, WorkerCommand, stop_with_parent};

/// An experiment.
#[derive(Clone, Debug)]
pub enum Experiment {
    /// Trains models on tasks and tests them at longer lengths.
    Tasks(Grid),
    /// Trains models on a text and measures its perplexity at longer windows.
    Text(Grid),
    /// Times training steps.
    Timing(Timing),
}

/// The built-in experiments, in the order in which `all` runs them.
const BUILT_IN: [(&str, &str); 9] = [
    ("flipflop", include_str!("../../experiments/flipflop.toml")),
    ("copy", include_str!("../../experiments/copy.toml")),
    ("repeats", include_str!("../../experiments/repeats.toml")),
    ("rivals", include_str!("../../experiments/rivals.toml")),
    ("induct", include_str!("../../experiments/induct.toml")),
    ("instruct", include_str!("../../experiments/instruct.toml")),
    ("ablation", include_str!("../../experiments/ablation.toml")),
    ("wikitext", include_str!("../../experiments/wikitext.toml")),
    ("timing", include_str!("../../experiments/timing.toml")),
];

impl Experiment {
    /// Returns the names of the built-in experiments.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Opens a built-in experiment by name, or reads a TOML file.
    pub fn open(name: &str) -> Result<Self, LabError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(text, Path::new(&format!("{name}.toml")));
        }
        let path = Path::new(name);
        if path.extension().is_some_and(|extension| extension == "toml") {
            return Self::parse(&read_text(path)?, path);
        }
        let known: Vec<&str> = Self::names().collect();
        Err(LabError::Setting(format!(
            "no experiment {name:?}; there are {}, or name a TOML file",
            known.join(", ")
        )))
    }

    /// Parses the text of an experiment's file.
    pub fn parse(text: &str, path: &Path) -> Result<Self, LabError> {
        let wrong = |error| LabError::config(path, text, &error);
        let table: toml::Table = toml::from_str(text).map_err(wrong)?;
        if !table.contains_key("model") && table.contains_key("sizes") {
            return toml::from_str(text).map(Self::Timing).map_err(wrong);
        }
        let grid = Grid::parse(text, path)?;
        Ok(match grid.quick.text.is_some() || grid.paper.text.is_some() {
            true => Self::Text(grid),
            false => Self::Tasks(grid),
        })
    }

    /// Checks whether `options` fit the experiment, before anything runs.
    pub fn check(&self, options: &Options) -> Result<(), LabError> {
        match self {
            Self::Tasks(grid) => {
                grid.check_names(options.scale, &options.selection)?;
                match options.text {
                    Some(_) => {
                        Err(LabError::Setting("--text is for wikitext only; leave it out".into()))
                    }
                    None => Ok(()),
                }
            }
            Self::Text(grid) => {
                grid.check_names(options.scale, &options.selection)?;
                text::folder(text::settings(grid, options.scale)?, options.text.as_deref())?;
                Ok(())
            }
            Self::Timing(_) if options.text.is_some() || options.selection.is_some() => {
                Err(LabError::Setting(
                    "timing has no models, tasks, seeds or text to choose; omit those flags".into(),
                ))
            }
            Self::Timing(_) => Ok(()),
        }
    }
}

/// Which part of an experiment to run, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The scale.
    pub scale: Scale,
    /// The selected runs.
    pub selection: Selection,
    /// Location of the text, for an experiment that reads one.
    pub text: Option<PathBuf>,
    /// Folder of the runs and the results.
    pub out: PathBuf,
    /// The command shown in the page.
    pub command: String,
}

impl Options {
    /// Returns options for the whole experiment at quick scale.
    pub fn quick(out: impl Into<PathBuf>) -> Self {
        Self {
            scale: Scale::Quick,
            selection: Selection::default(),
            text: None,
            out: out.into(),
            command: String::new(),
        }
    }
}

/// Where and how an experiment is computed.
pub struct Place<'a> {
    /// The device.
    pub device: &'a Device,
    /// Number of parallel runs. `None`: one per thread.
    pub jobs: Option<usize>,
    /// How to start a worker process. Without one, runs are trained one after the other in this
    /// process.
    pub worker: Option<WorkerCommand>,
}

/// Result of an experiment.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The table as text.
    pub table: String,
    /// The files that were written.
    pub files: Vec<PathBuf>,
}

/// Runs an experiment: trains and tests what is missing, and writes the table, the raw results and
/// the page.
///
/// Returns `None` if `interrupted` was set; the same call then continues the experiment. A run that
/// fails is noted in `failures`, and the others continue.
///
/// ```no_run
/// use std::sync::atomic::AtomicBool;
/// use tra_lab::observer::{Event, Observer};
/// use tra_lab::reproduce::{Experiment, Options, Place, run};
/// use tra_lab::sweep::Failures;
///
/// let experiment = Experiment::open("flipflop")?;
/// let device = tra_nn::device::Device::flex();
/// let place = Place { device: &device, jobs: Some(1), worker: None };
/// let mut observer = |event: Event| eprintln!("{event:?}");
/// let (stop, mut failures) = (AtomicBool::new(false), Failures::default());
/// let options = Options::quick("runs/flipflop");
/// if let Some(found) = run(experiment, &options, &place, &stop, &mut failures, &mut observer)? {
///     println!("{}", found.table);
/// }
/// # Ok::<(), tra_lab::LabError>(())
/// ```
pub fn run(
    experiment: Experiment,
    options: &Options,
    place: &Place<'_>,
    interrupted: &AtomicBool,
    failures: &mut Failures,
    observer: &mut dyn Observer,
) -> Result<Option<Finished>, LabError> {
    experiment.check(options)?;
    if let Experiment::Timing(timing) = experiment {
        return timing.run(options, place.worker.as_ref(), observer).map(Some);
    }
    let plan = Plan::new(experiment, options, observer)?;
    let begin = std::time::Instant::now();
    let jobs = plan.forecast(place, observer)?;
    if interrupted.load(std::sync::atomic::Ordering::SeqCst) {
        return Ok(None);
    }
    let worker = place.worker.as_ref().filter(|_| jobs.count > 1);
    if let Some(worker) = worker
        && !jobs.run(worker, interrupted, observer)?
    {
        return Ok(None);
    }
    // Runs that the workers have finished are skipped here.
    if !plan.make(worker.is_some(), place.device, interrupted, failures, observer)? {
        return Ok(None);
    }
    let finished = plan.finish(options, observer)?;
    observer.note(format!("took {}", duration(begin.elapsed().as_secs_f64())));
    Ok(Some(finished))
}

/// Reports what is left to do and how long it will take. Trains nothing.
pub fn dry_run(
    experiment: Experiment,
    options: &Options,
    place: &Place<'_>,
    observer: &mut dyn Observer,
) -> Result<(), LabError> {
    experiment.check(options)?;
    match experiment {
        Experiment::Timing(timing) => timing.forecast(options.scale, observer),
        experiment => {
            let plan = Plan::new(experiment, options, observer)?;
            plan.forecast(place, observer).map(drop)
        }
    }
}

/// Trains runs in a worker process until none is left. Returns `false` if it was interrupted.
pub fn work(
    experiment: Experiment,
    options: &Options,
    device: &Device,
    interrupted: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<bool, LabError> {
    let plan = Plan::new(experiment, options, observer)?;
    // The parent process visits every failed run too, and lists all failures.
    plan.make(true, device, interrupted, &mut Failures::default(), observer)
}

/// The runs of an experiment, all checked.
struct Plan {
    grid: Grid,
    scale: Scale,
    trials: Vec<Trial>,
    /// The text settings and the folder of the text.
    text: Option<(TextSettings, PathBuf)>,
}

impl Plan {
    fn new(
        experiment: Experiment,
        options: &Options,
        observer: &mut dyn Observer,
    ) -> Result<Self, LabError> {
        let scale = options.scale;
        let (grid, text) = match experiment {
            Experiment::Tasks(grid) => (grid, None),
            Experiment::Text(mut grid) => {
                let settings = text::settings(&grid, scale)?.clone();
                let folder = text::prepare(&mut grid, &settings, options, observer)?;
                (grid, Some((settings, folder)))
            }
            Experiment::Timing(_) => unreachable!("timing has no runs"),
        };
        let trials = grid.trials(scale, &options.selection, &options.out)?;
        if let (Some(_), Some(trial)) = (&text, trials.first()) {
            // Tokenised once, before the runs share it.
            crate::session::open_task(&trial.cell.config, observer)?;
        }
        Ok(Self { grid, scale, trials, text })
    }

    /// Returns how many runs have something left to do.
    fn unfinished(&self) -> Result<usize, LabError> {
        match &self.text {
            Some((settings, _)) => text::unfinished(&self.trials, settings),
            None => estimate::unfinished(&self.trials),
        }
    }

    /// Reports what is left and how long it will take. Measures one run at a time, with as many
    /// threads as it will have. Returns how the runs share the threads.
    fn forecast(&self, place: &Place<'_>, observer: &mut dyn Observer) -> Result<Jobs, LabError> {
        let (title, runs) = (&self.grid.title, plural(self.trials.len(), "run"));
        observer.note(format!("{title}, {} scale, {runs}", self.scale.name()));
        let asked = if place.worker.is_none() { Some(1) } else { place.jobs };
        let work = self.unfinished()?;
        let jobs = Jobs::new(asked, rayon::current_num_threads(), work);
        observer.status("estimating how long it will take");
        let estimate = jobs.with_threads(|| estimate(&self.trials, place.device));
        observer.status("");
        let estimate = estimate?;
        let (seconds, testing) = estimate.side_by_side(jobs.count);
        // More threads than the machine has take turns.
        let crowded = (jobs.count * jobs.threads) as f64 / rayon::current_num_threads() as f64;
        let time = duration(seconds * crowded.max(1.0));
        if jobs.count > 1 {
            let threads = plural(jobs.threads, "thread");
            observer.note(format!("{} runs at a time, each with {threads}", jobs.count));
        }
        observer.note(match (estimate.runs, estimate.tests) {
            (0, 0) if work > 0 => format!("everything is trained; {work} to be measured"),
            (0, 0) => "everything is trained and tested".into(),
            (0, tests) => format!("everything is trained; {tests} tests: at most about {time}"),
            (runs, 0) => format!("{runs} to train: about {time}"),
            (runs, tests) => {
                let share = 100.0 * testing;
                format!(
                    "{runs} to train, {tests} tests: about {time}, at most {share:.0}% of it \
                     for the tests"
                )
            }
        });
        Ok(jobs)
    }

    /// Writes the table, the raw results and the page.
    fn finish(self, options: &Options, observer: &mut dyn Observer) -> Result<Finished, LabError> {
        let Options { scale, out, command, .. } = options;
        let (title, scale) = (self.grid.title.clone(), scale.name());
        let trials = trial::in_folder(&self.grid, self.scale, self.trials, out)?;
        let (body, raw) = match &self.text {
            Some(_) => {
                let runs = text::found(&trials)?;
                let raw = serde_json::json!({ "title": title, "scale": scale, "runs": runs });
                (tables::windows(&runs), serde_json::to_string_pretty(&raw))
            }
            None => {
                let runs = trial::found(&trials)?;
                let body = format!("{}{}", tables::experiment(&runs), tables::summary(&runs));
                let results = ExperimentResults { title: title.clone(), scale: scale.into(), runs };
                (body, serde_json::to_string_pretty(&results))
            }
        };
        let raw = raw.map_err(|error| LabError::Other(error.to_string()))?;
        let table = format!("{title}, {scale} scale\n\n{body}");
        observer.status("drawing the page");
        let paths: Vec<&PathBuf> = trials.iter().map(|trial| &trial.cell.path).collect();
        let (commands, device) = (vec![command.clone()], Device::flex());
        let warn = |text| observer.warn(text);
        let mut page = crate::report::load(&title, &paths, None, commands, &device, warn)?;
        for run in &mut page.runs {
            // Found by name, because a run that cannot be read is not on the page.
            let Some(trial) = trials.iter().find(|trial| trial.cell.name() == run.name) else {
                continue;
            };
            run.attention = trial.model.clone();
            if self.grid.tasks.len() > 1 {
                run.task = trial.task.clone();
            }
        }
        let page = html(&page);
        observer.status("");
        let mut files = Vec::new();
        let written =
            [("table.txt", &table), ("results.json", &format!("{raw}\n")), ("report.html", &page)];
        for (name, text) in written {
            files.push(out.join(name));
            crate::report::save(&out.join(name), text)?;
        }
        Ok(Finished { table, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The built-in settings are valid at both scales.
    #[test]
    fn every_experiment_can_be_planned() {
        for name in Experiment::names() {
            let (mut grid, text) = match Experiment::open(name).unwrap() {
                Experiment::Tasks(grid) => (grid, false),
                Experiment::Text(grid) => (grid, true),
                Experiment::Timing(_) => continue,
            };
            assert_eq!(text, name == "wikitext", "{name}");
            for task in grid.tasks.iter_mut().filter(|_| text) {
                task.settings.insert("text".into(), "wiki.tokens".into());
            }
            for scale in [Scale::Quick, Scale::Paper] {
                let trials = grid.trials(scale, &Selection::default(), Path::new("out")).unwrap();
                assert!(trials.iter().all(|trial| text || !trial.tests.is_empty()), "{name}");
                let names: std::collections::BTreeSet<_> =
                    trials.iter().map(|trial| &trial.cell.path).collect();
                assert_eq!(names.len(), trials.len(), "{name}");
            }
        }
    }

    #[test]
    fn what_cannot_be_chosen_is_said_before_anything_is_made() {
        let mut options = Options::quick("out");
        options.text = Some("data".into());
        let error = |name: &str, options: &Options| {
            Experiment::open(name).unwrap().check(options).unwrap_err().to_string()
        };
        assert!(error("copy", &options).contains("--text is for wikitext"));
        assert!(error("timing", &options).contains("timing has no models"));
        options.text = None;
        options.selection.models = vec!["ropee".into()];
        assert!(error("copy", &options).contains("ropee"));
        let unknown = Experiment::open("copyy").unwrap_err().to_string();
        assert!(unknown.contains("flipflop, copy,") && unknown.contains("TOML"), "{unknown}");
    }
}
