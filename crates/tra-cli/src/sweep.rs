//! `tra sweep`: a grid of runs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use tra_disk::Lock;
use tra_lab::gather::Shown;
use tra_lab::records::EvalResult;
use tra_lab::report::plural;
use tra_lab::run_dir::RunDir;
use tra_lab::session::ended_at;
use tra_lab::stats::Spread;
use tra_lab::sweep::{Cell, Done, Shard, SweepConfig, run_cell};
use tra_tasks::Measure;

use crate::interrupt::{STOPPED, on_interrupt};
use crate::terminal::{self, Progress};

/// Mechanisms side by side in a table that fits 80 columns.
const MECHANISMS: usize = 3;

/// Train a grid of mechanisms x tasks x seeds
///
/// Skips what is done and goes on with what was cut. With --shard, several machines share the work
/// over a common folder; two shards never do the same run.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra sweep configs/sweep-quick.toml
  tra sweep configs/sweep-quick.toml --shard 0/4      # and 1/4, 2/4, 3/4 elsewhere
  tra sweep configs/sweep-quick.toml --list

docs/sweeps.md has manifests for a Slurm array and a Kubernetes indexed Job.")]
pub struct Args {
    /// The grid: out, attention, task, seeds, and a [run] table of settings
    config: PathBuf,

    /// Only part i of n, counted from 0
    #[arg(long, value_name = "i/n")]
    shard: Option<Shard>,

    /// List the runs of the grid, or of the shard, and do nothing
    #[arg(long)]
    list: bool,

    /// Where to compute: flex (the CPU), or a GPU backend this build has, as in cuda:0
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
    let interrupted = on_interrupt(Some("the step at hand and saving"))?;
    let mut failures = Failures::default();
    for (number, cell) in mine.iter().enumerate() {
        let number = format!("{}/{}", number + 1, mine.len());
        // One that fails does not keep the others from their turn.
        let Some((done, _lock)) = failures.note(cell, one(cell, &number, &device, &interrupted))
        else {
            continue;
        };
        say(cell, &number, done);
        if done == Done::Interrupted {
            terminal::say(&format!("stopped; go on with: tra sweep {}", args.config.display()));
            return Ok(ExitCode::from(STOPPED));
        }
    }
    finish(&sweep, &all, failures)
}

/// Runs that failed while others went on.
#[derive(Default)]
pub struct Failures(Vec<String>);

impl Failures {
    /// Returns what came of a run, unless it failed: that is said now, and once more at the end.
    pub fn note<T>(&mut self, cell: &Cell, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(cell, &format!("{error:#}"))).ok()
    }

    fn add(&mut self, cell: &Cell, cause: &str) {
        let text = format!("{} failed: {cause}", terminal::file_name(&cell.path));
        terminal::warn(text.clone());
        self.0.push(text);
    }

    /// Lists them; how the program ends.
    pub fn tell(&self) -> ExitCode {
        if self.0.is_empty() {
            return ExitCode::SUCCESS;
        }
        terminal::say(&format!("{} failed:", plural(self.0.len(), "run")));
        self.0.iter().for_each(|text| terminal::say(&format!("  {text}")));
        ExitCode::FAILURE
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Does one run under a progress bar; the lock is held unless another process has it.
pub fn one(
    cell: &Cell,
    number: &str,
    device: &tra_nn::device::Device,
    interrupted: &AtomicBool,
) -> Result<(Done, Option<Lock>)> {
    let name = terminal::file_name(&cell.path);
    let mut progress = Progress::labelled(format!("{number} {name}"), &cell.config);
    let done = run_cell(cell, device, interrupted, &mut progress);
    progress.finish();
    Ok(done?)
}

/// Says why nothing was done about a run.
pub fn say(cell: &Cell, number: &str, done: Done) {
    let name = terminal::file_name(&cell.path);
    match done {
        Done::Before => terminal::say(&format!("{number} {name}: done before")),
        Done::Elsewhere => terminal::say(&format!("{number} {name}: another process is at it")),
        Done::Now | Done::Interrupted => {}
    }
}

/// Once every run of the grid is done or has failed, by whichever shard: the table and the page.
fn finish(sweep: &SweepConfig, all: &[Cell], failures: Failures) -> Result<ExitCode> {
    let mut rows = Vec::new();
    for cell in all {
        if !RunDir::exists(&cell.path)? {
            return Ok(failures.tell());
        }
        let run = RunDir::open(&cell.path)?;
        // One that failed here or elsewhere is listed; of one that is not done there is no table yet.
        match ended_at(&run, &cell.config) {
            Ok(Some(step)) => rows.push((cell, run.evaluations()?.at(step).most_sequences())),
            Ok(None) if run.failure()?.is_none() && failures.is_empty() => {
                return Ok(ExitCode::SUCCESS);
            }
            Ok(None) | Err(_) => {}
        }
    }
    if !rows.is_empty() {
        terminal::print(&grid_table(&rows))?;
        let paths: Vec<&PathBuf> = all.iter().map(|cell| &cell.path).collect();
        let out = sweep.out.join("report.html");
        crate::report::write("Sweep", &paths, Some(&Shown::default()), &out)?;
        terminal::print(&format!("{}\n", out.display()))?;
    }
    Ok(failures.tell())
}

/// Exact match, or perplexity for text, mean and deviation over seeds: one line a task, split and
/// length, and one column a mechanism, a few of them at a time.
pub fn grid_table(rows: &[(&Cell, Vec<EvalResult>)]) -> String {
    let mut mechanisms: Vec<&str> = Vec::new();
    let mut lines: Vec<(&str, Measure, String, usize)> = Vec::new();
    let task = |cell: &Cell| cell.config.task.name();
    for (cell, results) in rows {
        let mechanism = cell.config.model.decoder.attention.name();
        if !mechanisms.contains(&mechanism) {
            mechanisms.push(mechanism);
        }
        for r in results {
            let line = (task(cell), cell.config.task.measure(), r.split.clone(), r.length);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let value = |name: &str, measure: Measure, split: &str, length: usize, mechanism: &str| {
        let of = |cell: &Cell| {
            task(cell) == name && cell.config.model.decoder.attention.name() == mechanism
        };
        let results = rows.iter().filter(|(cell, _)| of(cell)).flat_map(|(_, results)| results);
        let results = results.filter(|r| r.split == split && r.length == length);
        let values = results.map(|r| match measure {
            Measure::ExactMatch => r.exact_match,
            Measure::Perplexity => r.loss.exp(),
        });
        mean_and_deviation(&values.collect::<Vec<f64>>(), measure)
    };
    let mut text = String::new();
    for (block, mechanisms) in mechanisms.chunks(MECHANISMS).enumerate() {
        if block > 0 {
            text.push('\n');
        }
        text += &format!("{:<12} {:<9} {:>7}", "task", "split", "length");
        mechanisms.iter().for_each(|mechanism| text += &format!(" {mechanism:>15}"));
        text.push('\n');
        for (name, measure, split, length) in &lines {
            text += &format!("{name:<12} {split:<9} {length:>7}");
            for mechanism in mechanisms {
                text += &format!(" {:>15}", value(name, *measure, split, *length, mechanism));
            }
            text.push('\n');
        }
    }
    text
}

fn mean_and_deviation(values: &[f64], measure: Measure) -> String {
    // A mean of the others would hide a seed that diverged.
    if values.iter().any(|value| !value.is_finite()) {
        return "not finite".into();
    }
    let Some(Spread { mean, deviation, .. }) = Spread::of(values.iter().copied()) else {
        return "-".into();
    };
    let (scale, shown) = match measure {
        Measure::ExactMatch => (100.0, terminal::percent(mean)),
        Measure::Perplexity => (1.0, format!("{mean:.2}")),
    };
    match deviation {
        None => shown,
        Some(deviation) => format!("{shown} ± {:.1}", scale * deviation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_mechanisms_stand_below_each_other() {
        let names = ["tra", "rope", "stickbreaking", "tra-threshold", "fox"];
        let list = names.map(|name| format!("'{name}'")).join(", ");
        let grid: SweepConfig = toml::from_str(&format!(
            "out = 'x'\nattention = [{list}]\ntask = ['copy-unique']\nseeds = [1]"
        ))
        .unwrap();
        let cells = grid.cells().unwrap();
        let result = EvalResult {
            split: "201-300".into(),
            length: 65_536,
            exact_match: 0.9999,
            ..Default::default()
        };
        let other = EvalResult { exact_match: 0.1, ..result.clone() };
        let rows: Vec<_> = cells
            .iter()
            .flat_map(|cell| [(cell, vec![result.clone()]), (cell, vec![other.clone()])])
            .collect();
        let text = grid_table(&rows);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.matches("201-300").count(), 2);
        assert!(names.iter().all(|name| text.contains(name)), "{text}");
    }
}
