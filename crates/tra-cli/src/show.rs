//! Progress and tables, the same for every command.

use std::io::{ErrorKind, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use tra_lab::config::RunConfig;
use tra_lab::records::{EvalResult, EvaluationRecord, StepRecord};
use tra_lab::train::{Observer, Pace};

/// Prints, and is content when nobody reads on (`tra … | head`).
pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}

/// A word on standard error that stops nothing.
pub fn warn(text: String) {
    eprintln!("warning: {text}");
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

/// A bar on a terminal, plain lines elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
    label: String,
    steps: u64,
    first: u64,
    last_line: Instant,
}

impl Progress {
    pub fn new(config: &RunConfig, first: u64) -> Self {
        let attention = config.model.attention.name();
        Self::labelled(attention.into(), config.steps, first)
    }

    pub fn labelled(label: String, steps: u64, first: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("{prefix} {bar:16} {pos}/{len} {msg} {eta} left")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(steps).with_prefix(label.clone()).with_style(style);
            bar.set_position(first);
            bar.reset_eta();
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { bar, label, steps, first, last_line: Instant::now() }
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
        let text = format!("loss {loss:.4} lr {lr:.1e} {rate:.0} tok/s {outside:.0}% outside");
        match &self.bar {
            Some(bar) => {
                bar.set_position(step);
                bar.set_message(text);
            }
            None => {
                let (first, last) = (step == self.first + 1, step == self.steps);
                if first || last || self.last_line.elapsed() > Duration::from_secs(10) {
                    let done = (step - self.first) as f64;
                    let left = pace.seconds / done * (self.steps - step) as f64;
                    eprintln!("{} {step}/{} {text} {left:.0}s left", self.label, self.steps);
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
        let exact = |r: &EvalResult| format!("{} {}", r.split, percent(r.exact_match));
        let all: Vec<String> = record.results.iter().map(exact).collect();
        let text = format!("{} step {}: exact match {}", self.label, record.step, all.join(", "));
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }
}

/// A share in percent that says 100 only when it is all, and 0 only when it is nothing.
pub fn percent(share: f64) -> String {
    let digits = [1, 2, 3, 4, 5].into_iter().find(|digits| {
        let shown = format!("{:.*}", digits, 100.0 * share);
        (shown.parse() != Ok(100.0) || share == 1.0) && (shown.parse() != Ok(0.0) || share == 0.0)
    });
    format!("{:.*}%", digits.unwrap_or(6), 100.0 * share)
}

/// One line a split and length.
pub fn results_table(results: &[EvalResult]) -> String {
    let mut text = format!(
        "{:<10} {:>11} {:>9} {:>9} {:>16} {:>9} {:>9}\n",
        "split", "length", "sequences", "exact", "95% interval", "token err", "loss"
    );
    for r in results {
        let length = match r.shortest == r.length {
            true => r.length.to_string(),
            false => format!("{}..{}", r.shortest, r.length),
        };
        let [low, high] = r.exact_match_interval.map(|x| 100.0 * x);
        text += &format!(
            "{:<10} {:>11} {:>9} {:>9} {:>16} {:>9} {:>9.4}\n",
            r.split,
            length,
            r.sequences,
            percent(r.exact_match),
            format!("{low:.1}..{high:.1}%"),
            percent(r.token_error),
            r.loss
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_never_rounds_up_to_all_or_down_to_nothing() {
        assert_eq!(percent(1.0), "100.0%");
        assert_eq!(percent(0.0), "0.0%");
        assert_eq!(percent(0.5), "50.0%");
        assert_eq!(percent(0.9997), "99.97%");
        assert_eq!(percent(1e-5), "0.001%");
    }
}
