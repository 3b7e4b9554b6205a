//! Who is told how long work is going: a progress bar, a test, or another process.

use serde::{Deserialize, Serialize};
use tra_report::Measure;

use crate::records::{EvaluationRecord, StepRecord};
use crate::train::Pace;

/// Something that happened in a long piece of work.
///
/// Events are plain data. A worker process writes them as JSON lines, and whoever started it passes
/// them on to an observer of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A run begins, or goes on.
    Run {
        /// Name for people.
        name: String,
        /// Steps it will have when it is done.
        steps: u64,
        /// By what it is judged.
        measure: Measure,
    },
    /// The run took a training step.
    Step {
        /// What is recorded of it.
        record: StepRecord,
        /// How fast the run goes.
        pace: Pace,
    },
    /// Part of an evaluation of the run is done.
    Evaluating {
        /// The split.
        split: String,
        /// Sequences done.
        done: u64,
        /// Sequences in all.
        of: u64,
    },
    /// An evaluation of the run is done.
    Evaluated(EvaluationRecord),
    /// Part of something countable is done.
    Progress {
        /// What is done: `tokenising wiki.train.tokens`.
        what: String,
        /// How much of it.
        done: u64,
        /// How much there is.
        of: u64,
        /// Whether bytes are counted.
        bytes: bool,
    },
    /// Something began that cannot be counted; replaces the status before. Empty: it is over.
    Status(String),
    /// Something worth a line.
    Note(String),
    /// Something is wrong that does not stop the work.
    Warning(String),
    /// A worker process cannot go on.
    Error(String),
    /// The run failed; others go on.
    Failed {
        /// The run.
        run: String,
        /// Why, in one line.
        reason: String,
    },
}

/// Is told of events. Any `FnMut(Event)` is one.
///
/// ```
/// use tra_lab::observer::{Event, Observer};
///
/// let mut losses = Vec::new();
/// let mut observer = |event| {
///     if let Event::Step { record, .. } = event {
///         losses.push(record.loss);
///     }
/// };
/// observer.event(Event::Note("nothing yet".into()));
/// assert!(losses.is_empty());
/// ```
pub trait Observer {
    /// Takes note of an event.
    fn event(&mut self, event: Event);

    /// Takes note of an event of a worker process; workers are counted from 0.
    fn worker_event(&mut self, _worker: usize, event: Event) {
        self.event(event);
    }

    /// Takes note of something that is wrong and does not stop the work.
    fn warn(&mut self, text: String) {
        self.event(Event::Warning(text));
    }

    /// Takes note of something worth a line.
    fn note(&mut self, text: String) {
        self.event(Event::Note(text));
    }

    /// Takes note of what is being done; empty when it is over.
    fn status(&mut self, text: &str) {
        self.event(Event::Status(text.into()));
    }
}

impl<F: FnMut(Event)> Observer for F {
    fn event(&mut self, event: Event) {
        self(event);
    }
}

/// Takes no note of anything.
pub struct Silent;

impl Observer for Silent {
    fn event(&mut self, _: Event) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_travel_as_json_lines() {
        let record = StepRecord { step: 1, loss: 0.1, lr: 1e-3, grad_norm: 2.0, tokens: 7 };
        let events = [
            Event::Run { name: "a".into(), steps: 3, measure: Measure::ExactMatch },
            Event::Step { record, pace: Pace::default() },
            Event::Evaluated(EvaluationRecord { step: 1, results: Vec::new() }),
            Event::Failed { run: "a".into(), reason: "line\nbreak".into() },
            Event::Status(String::new()),
        ];
        for event in events {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        }
    }
}
