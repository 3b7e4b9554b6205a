//! Progress and tables, the same for every command.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use tra_lab::LabError;
use tra_lab::config::RunConfig;
use tra_lab::records::{EvalResult, EvaluationRecord, StepRecord};
pub use tra_lab::report::{percent, whole as thousands};
use tra_lab::train::{Observer, Pace};
use tra_tasks::text::OpenText;
use tra_tasks::{Measure, Task, TaskConfig};

/// Prints at once, and ends the program when nobody reads on (`tra … | head`).
pub fn print(text: &str) -> Result<()> {
    match write_out(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.context("cannot print"),
    }
}

/// Prints results, then keeps them in the run. Neither is lost because the other fails.
pub fn print_and_keep(text: &str, keep: impl FnOnce() -> Result<(), LabError>) -> Result<ExitCode> {
    let printed = write_out(text);
    let kept = match keep() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            warn(format!("the results are not kept in the run: {error}"));
            ExitCode::FAILURE
        }
    };
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(anyhow::Error::from(error).context("cannot print the results"))
        }
        _ => Ok(kept),
    }
}

fn write_out(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// A line on standard error. That nobody reads it is no reason to stop: a worker may outlive the process that
/// listens, and has steps to save.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// A word on standard error that stops nothing.
pub fn warn(text: String) {
    say(&format!("warning: {text}"));
}

/// A spinner while something without steps goes on; nothing where there is no terminal.
pub fn spinner(message: String) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner().with_message(message);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// Opens the text of a run that learns from one, with a bar where it has to be tokenised first.
pub fn open_text(config: &RunConfig) -> Result<Option<OpenText>> {
    let TaskConfig::Text(text) = &config.task else { return Ok(None) };
    let mut bar = Bytes::new("tokenising");
    let opened = text.open(&mut |path, done| bar.show(&file_name(path), done.read, done.of));
    bar.finish();
    let opened = opened?;
    config.check_lengths(&opened)?;
    Ok(Some(opened))
}

/// Opens what a run learns, with a bar where a text has to be tokenised first.
pub fn open_task(config: &RunConfig) -> Result<Arc<dyn Task>> {
    Ok(match open_text(config)? {
        Some(text) => Arc::new(text),
        None => config.task.build()?.into(),
    })
}

/// The last part of a path.
pub fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into())
}

/// A bar over bytes: on a terminal; elsewhere a line now and then for what takes long.
pub struct Bytes {
    verb: &'static str,
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl Bytes {
    pub fn new(verb: &'static str) -> Self {
        Self { verb, bar: None, last_line: Instant::now() }
    }

    pub fn show(&mut self, name: &str, done: u64, of: u64) {
        if !std::io::stderr().is_terminal() {
            if self.last_line.elapsed() > Duration::from_secs(5) {
                say(&format!("{} {name}: {} of {}", self.verb, bytes(done), bytes(of)));
                self.last_line = Instant::now();
            }
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let template = "{prefix} {bar:24} {bytes}/{total_bytes} {bytes_per_sec} {eta} left";
            let style = ProgressStyle::with_template(template);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(of).with_style(style)
        });
        bar.set_prefix(format!("{} {name}", self.verb));
        bar.set_length(of);
        bar.set_position(done);
    }

    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// How far something countable has come; like [`Bytes`].
pub struct Counting {
    label: String,
    of: u64,
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl Counting {
    pub fn new(label: String, of: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{prefix} {bar:24} {pos}/{len} {eta} left");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(of).with_prefix(label.clone()).with_style(style)
        });
        Self { label, of, bar, last_line: Instant::now() }
    }

    pub fn show(&mut self, done: u64) {
        match &self.bar {
            Some(bar) => bar.set_position(done),
            None if self.last_line.elapsed() > Duration::from_secs(10) => {
                say(&format!("{} {}/{}", self.label, thousands(done), thousands(self.of)));
                self.last_line = Instant::now();
            }
            None => {}
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Bytes in the unit that suits them.
pub fn bytes(number: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = units.into_iter().find(|(_, size)| number >= *size);
    unit.map_or(format!("{number} B"), |(unit, size)| {
        format!("{:.1} {unit}", number as f64 / size as f64)
    })
}

/// Seconds, minutes or hours, whichever suits.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// A bar on a terminal, plain lines elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
    label: String,
    measure: Measure,
    steps: u64,
    /// What is done after each of [`PARTS`] equal parts of the steps: a step takes as long as its sequences are on
    /// average.
    work: Vec<f64>,
    /// The step before the first one seen: a run that goes on does not begin at 0.
    first: Option<u64>,
    last_line: Instant,
}

/// Enough to follow lengths that grow.
const PARTS: usize = 256;

fn work(config: &RunConfig) -> Vec<f64> {
    let mut sum = 0.0;
    let middle = |part: usize| (part as f64 + 0.5) / PARTS as f64 * config.steps as f64;
    let after = (0..PARTS).map(|part| {
        let step = middle(part) as u64;
        let lengths = config.lengths_at(step);
        sum += (lengths.from + lengths.to).max(1) as f64 * config.batch_at(step) as f64;
        sum
    });
    std::iter::once(0.0).chain(after).collect()
}

impl Progress {
    pub fn new(config: &RunConfig) -> Self {
        let attention = config.model.decoder.attention.name();
        Self::labelled(attention.into(), config)
    }

    pub fn labelled(label: String, config: &RunConfig) -> Self {
        let (steps, measure) = (config.steps, config.task.measure());
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{prefix} {bar:16} {pos}/{len} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(steps).with_prefix(label.clone()).with_style(style);
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        let work = work(config);
        Self { bar, label, measure, steps, work, first: None, last_line: Instant::now() }
    }

    /// Seconds left after a step, given those since the first one seen.
    fn left(&self, step: u64, first: u64, seconds: f64) -> f64 {
        let work = |step: u64| {
            let place = step as f64 / self.steps.max(1) as f64 * PARTS as f64;
            let part = (place as usize).min(PARTS - 1);
            self.work[part] + (place - part as f64) * (self.work[part + 1] - self.work[part])
        };
        let done = (work(step) - work(first)).max(f64::MIN_POSITIVE);
        seconds * (work(self.steps) - work(step)) / done
    }

    /// A line that stays, above the bar if there is one.
    fn say(&self, text: String) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => say(&text),
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Progress {
    fn step(&mut self, record: &StepRecord, pace: &Pace) {
        let StepRecord { step, loss, lr, .. } = *record;
        let rate = pace.tokens_per_second();
        let outside = 100.0 * pace.share_outside();
        let begins = self.first.is_none();
        let first = *self.first.get_or_insert(step - 1);
        let left = duration(self.left(step, first, pace.seconds));
        // What matters most first: a narrow terminal cuts the rest off.
        let text =
            format!("{left} left loss {loss:.4} lr {lr:.1e} {rate:.0} tok/s {outside:.0}% outside");
        match &self.bar {
            Some(bar) => {
                bar.set_position(step);
                bar.set_message(text);
            }
            None => {
                if begins
                    || step == self.steps
                    || self.last_line.elapsed() > Duration::from_secs(10)
                {
                    say(&format!("{} {step}/{} {text}", self.label, self.steps));
                    self.last_line = Instant::now();
                }
            }
        }
    }

    fn evaluating(&mut self, split: &str, done: u64, of: u64) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("evaluating {split} {done}/{of}"));
        }
    }

    fn evaluated(&mut self, record: &EvaluationRecord) {
        let (name, of): (_, fn(&EvalResult) -> String) = match self.measure {
            Measure::ExactMatch => ("exact match", |r| percent(r.exact_match)),
            Measure::Perplexity => ("perplexity", |r| format!("{:.2}", r.loss.exp())),
        };
        let all = record.results.iter().map(|r| format!("{} {}", r.split, of(r)));
        let all = all.collect::<Vec<_>>().join(", ");
        let text = format!("{} step {}: {name} {all}", self.label, record.step);
        self.say(text);
    }

    fn warn(&mut self, text: String) {
        self.say(format!("warning: {text}"));
    }
}

/// One line a split and length.
pub fn results_table(results: &[EvalResult], measure: Measure) -> String {
    let text = measure == Measure::Perplexity;
    let mut table = match text {
        true => format!(
            "{:<10} {:>11} {:>9} {:>10} {:>18} {:>9}\n",
            "split", "window", "windows", "perplexity", "95% interval", "loss"
        ),
        false => format!(
            "{:<10} {:>11} {:>9} {:>9} {:>16} {:>9} {:>9}\n",
            "split", "length", "sequences", "exact", "95% interval", "token err", "loss"
        ),
    };
    for r in results {
        let length = match r.shortest == r.length {
            true => r.length.to_string(),
            false => format!("{}..{}", r.shortest, r.length),
        };
        table += &format!("{:<10} {length:>11} {:>9} ", r.split, r.sequences);
        if text {
            let [low, high] = r.loss_interval.map(f64::exp);
            let interval = format!("{low:.2}..{high:.2}");
            table += &format!("{:>10.2} {interval:>18} {:>9.4}\n", r.loss.exp(), r.loss);
        } else {
            let [low, high] = r.exact_match_interval.map(|x| 100.0 * x);
            let interval = format!("{low:.1}..{high:.1}%");
            let (exact, error) = (percent(r.exact_match), percent(r.token_error));
            table += &format!("{exact:>9} {interval:>16} {error:>9} {:>9.4}\n", r.loss);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use tra_lab::config::Lengths;
    use tra_lab::curriculum::Curriculum;

    #[test]
    fn time_left_knows_that_sequences_grow() {
        let mut config = RunConfig { steps: 100, ..RunConfig::default() };
        config.length = Some(Lengths { from: 10, to: 90 });
        let even = Progress::labelled(String::new(), &config);
        assert!((even.left(25, 0, 5.0) - 15.0).abs() < 1e-9);
        assert!((even.left(75, 50, 5.0) - 5.0).abs() < 1e-9, "of a run that went on at 50");
        assert_eq!(even.left(100, 0, 5.0), 0.0);
        // From 10 tokens on, to 50 on average: the last half has 50 a step, the first about 30.
        config.curriculum =
            Some(Curriculum { from: 10, until: 0.5, shortest: 0.0, power: 1.0, widen: 1 });
        let left = Progress::labelled(String::new(), &config).left(50, 0, 30.0);
        assert!((48.0..52.0).contains(&left), "{left}");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([7, 999, 1000, 1_234_567].map(thousands), ["7", "999", "1,000", "1,234,567"]);
        assert_eq!([12, 2048, 3 << 30].map(bytes), ["12 B", "2.0 KiB", "3.0 GiB"]);
        assert_eq!([5.0, 600.0, 36_000.0].map(duration), ["5 s", "10 min", "10.0 h"]);
    }
}
