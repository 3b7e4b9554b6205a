//! Progress and output of all commands.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tra_lab::LabError;
use tra_lab::observer::{Event, Observer};
use tra_lab::records::{EvalResult, StepRecord};
use tra_lab::sweep::Failures;
use tra_lab::train::Pace;
use tra_report::Measure;
use tra_report::text::percent;
pub use tra_report::text::{bytes, duration, plural, whole as thousands};

/// Prints and flushes. If the reader has closed the pipe (`tra … | head`), ends the program
/// silently.
pub fn print(text: &str) -> Result<()> {
    match write_out(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.context("cannot print"),
    }
}

/// Prints results, then saves them in the run. If one fails, the other is still done.
pub fn print_and_keep(text: &str, keep: impl FnOnce() -> Result<(), LabError>) -> Result<ExitCode> {
    let printed = write_out(text);
    let kept = match keep() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            warn(format!("cannot save the results in the run: {error}"));
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

/// Writes to standard output.
pub fn write_out(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Prints a line on standard error. A closed pipe is ignored, because a training run still has
/// steps to save.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Prints a warning on standard error.
pub fn warn(text: String) {
    say(&format!("warning: {text}"));
}

/// Lists the runs that failed. Returns the exit code.
pub fn list_failures(failures: &Failures) -> ExitCode {
    let lines = failures.lines();
    if lines.is_empty() {
        return ExitCode::SUCCESS;
    }
    say(&format!("{} failed:", plural(lines.len(), "run")));
    lines.iter().for_each(|text| say(&format!("  {text}")));
    ExitCode::FAILURE
}

/// Returns the last part of a path.
pub fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into())
}

/// Shows events: as progress bars on a terminal, otherwise as occasional lines. Dropping it removes
/// the bars.
pub struct Terminal {
    bars: Option<MultiProgress>,
    /// One line for this process, or one per worker.
    lines: Vec<Line>,
}

/// Time between progress lines if there is no terminal.
const PAUSE: Duration = Duration::from_secs(10);

impl Terminal {
    pub fn new() -> Self {
        let bars = std::io::stderr().is_terminal().then(MultiProgress::new);
        Self { bars, lines: Vec::new() }
    }

    /// Removes the bars.
    pub fn clear(&mut self) {
        self.lines.iter_mut().for_each(Line::clear);
    }

    /// Prints a permanent line, above the bars if there are any.
    fn say(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| say(text)),
            None => say(text),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Observer for Terminal {
    fn event(&mut self, event: Event) {
        self.worker_event(0, event);
    }

    fn worker_event(&mut self, worker: usize, event: Event) {
        while self.lines.len() <= worker {
            self.lines.push(Line::new());
        }
        match event {
            Event::Note(text) => self.say(&text),
            Event::Warning(text) => self.say(&format!("warning: {text}")),
            Event::Error(text) => self.say(&format!("error: {text}")),
            Event::Failed { run, reason } => self.say(&format!("warning: {run} failed: {reason}")),
            Event::Evaluated(record) => {
                let Line { label, measure, .. } = &self.lines[worker];
                let (name, of): (_, fn(&EvalResult) -> String) = match measure {
                    Measure::ExactMatch => ("exact match", |r| percent(r.exact_match)),
                    Measure::Perplexity => ("perplexity", |r| format!("{:.2}", r.loss.exp())),
                };
                let all = record.results.iter().map(|r| format!("{} {}", r.split, of(r)));
                let all = all.collect::<Vec<_>>().join(", ");
                self.say(&format!("{label} step {}: {name} {all}", record.step));
            }
            other => {
                let told = self.lines[worker].show(other, self.bars.as_ref());
                if let Some(text) = told {
                    self.say(&text);
                }
            }
        }
    }
}

/// Progress of one process.
struct Line {
    bar: Option<(Look, ProgressBar)>,
    /// Name of the run.
    label: String,
    measure: Measure,
    steps: u64,
    /// Whether a step of the run has been printed.
    begun: bool,
    told: Instant,
    /// What is being counted.
    what: String,
}

/// Layout of a progress bar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Steps,
    Count,
    Bytes,
    Spinner,
}

impl Look {
    fn style(self) -> ProgressStyle {
        let (template, otherwise) = match self {
            Self::Steps => ("{prefix} {bar:16} {pos}/{len} {msg}", ProgressStyle::default_bar()),
            Self::Count => {
                ("{prefix} {bar:24} {pos}/{len} {eta} left", ProgressStyle::default_bar())
            }
            Self::Bytes => (
                "{prefix} {bar:24} {bytes}/{total_bytes} {bytes_per_sec} {eta} left",
                ProgressStyle::default_bar(),
            ),
            Self::Spinner => ("{spinner} {wide_msg}", ProgressStyle::default_spinner()),
        };
        ProgressStyle::with_template(template).unwrap_or(otherwise)
    }
}

impl Line {
    fn new() -> Self {
        let (label, measure) = (String::new(), Measure::ExactMatch);
        Self {
            bar: None,
            label,
            measure,
            steps: 0,
            begun: false,
            told: Instant::now(),
            what: String::new(),
        }
    }

    fn clear(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Shows an event as a bar. If there is no terminal, returns the line to print instead.
    fn show(&mut self, event: Event, bars: Option<&MultiProgress>) -> Option<String> {
        match event {
            Event::Run { name, steps, measure } => {
                self.clear();
                (self.label, self.measure, self.steps) = (name, measure, steps);
                self.begun = false;
                None
            }
            Event::Step { record, pace } => self.step(&record, &pace, bars),
            Event::Evaluating { split, done, of } => {
                let text = format!("evaluating {split} {done}/{of}");
                self.bar(Look::Steps, self.steps, bars)?.set_message(text);
                None
            }
            Event::Progress { what, done, of, bytes } => self.progress(what, done, of, bytes, bars),
            Event::Status(text) if text.is_empty() => {
                self.clear();
                None
            }
            Event::Status(text) => {
                self.bar(Look::Spinner, 0, bars)?.set_message(text);
                None
            }
            _ => None,
        }
    }

    fn step(
        &mut self,
        record: &StepRecord,
        pace: &Pace,
        bars: Option<&MultiProgress>,
    ) -> Option<String> {
        let StepRecord { step, loss, lr, .. } = *record;
        let (rate, outside) = (pace.tokens_per_second(), 100.0 * pace.share_outside());
        let left = duration(pace.left);
        // The most important values come first, because a narrow terminal cuts off the rest.
        let text = format!(
            "{left} left loss {loss:.4} lr {lr:.1e} {rate:.0} tok/s {outside:.0}% outside compute"
        );
        if let Some(bar) = self.bar(Look::Steps, self.steps, bars) {
            bar.set_position(step);
            bar.set_message(text);
            return None;
        }
        let first = !std::mem::replace(&mut self.begun, true);
        (first || step == self.steps || self.told.elapsed() > PAUSE).then(|| {
            self.told = Instant::now();
            format!("{} {step}/{} {text}", self.label, self.steps)
        })
    }

    fn progress(
        &mut self,
        what: String,
        done: u64,
        of: u64,
        is_bytes: bool,
        bars: Option<&MultiProgress>,
    ) -> Option<String> {
        let what = match self.label.is_empty() {
            true => what,
            false => format!("{}: {what}", self.label),
        };
        let look = if is_bytes { Look::Bytes } else { Look::Count };
        if let Some(bar) = self.bar(look, of, bars) {
            bar.set_prefix(what);
            bar.set_position(done);
            if done >= of {
                self.clear();
            }
            return None;
        }
        // A new count is printed once at its start. A file is printed only if it takes long.
        if std::mem::replace(&mut self.what, what.clone()) != what && !is_bytes {
            return Some(what);
        }
        (self.told.elapsed() > PAUSE).then(|| {
            self.told = Instant::now();
            match is_bytes {
                true => format!("{what}: {} of {}", bytes(done), bytes(of)),
                false => format!("{what}: {} of {}", thousands(done), thousands(of)),
            }
        })
    }

    /// Returns the bar with this layout; `None` if there is no terminal.
    fn bar(&mut self, look: Look, of: u64, bars: Option<&MultiProgress>) -> Option<&ProgressBar> {
        let bars = bars?;
        if self.bar.as_ref().is_none_or(|(before, _)| *before != look) {
            self.clear();
            let bar = ProgressBar::new(of).with_style(look.style()).with_prefix(self.label.clone());
            let bar = bars.add(bar);
            bar.enable_steady_tick(Duration::from_millis(200));
            self.bar = Some((look, bar));
        }
        let (_, bar) = self.bar.as_ref()?;
        bar.set_length(of);
        Some(bar)
    }
}
