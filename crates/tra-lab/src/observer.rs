//! Progress of long work, reported to a progress bar, a test or another process.

use serde::{Deserialize, Serialize};
use tra_report::Measure;

use crate::records::{EvaluationRecord, StepRecord};
use crate::train::Pace;

/// Something that happened during long work.
///
/// Events are plain data. A worker process writes them as JSON lines, and the process that started
/// it forwards them to its own observer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A run starts or resumes.
    Run {
        /// Display name.
        name: String,
        /// Number of steps of the whole run.
        steps: u64,
        /// The measure by which it is judged.
        measure: Measure,
    },
    /// The run took a training step.
    Step {
        /// The record of the step.
        record: StepRecord,
        /// Speed of the run.
        pace: Pace,
    },
    /// A part of an evaluation is done.
    Evaluating {
        /// The split.
        split: String,
        /// Sequences done.
        done: u64,
        /// Sequences in total.
        of: u64,
    },
    /// An evaluation of the run is done.
    Evaluated(EvaluationRecord),
    /// A part of countable work is done.
    Progress {
        /// The work, such as `tokenising wiki.train.tokens`.
        what: String,
        /// Amount done.
        done: u64,
        /// Amount in total.
        of: u64,
        /// Whether the unit is bytes.
        bytes: bool,
    },
    /// Uncountable work started. Replaces the previous status; an empty text clears it.
    Status(String),
    /// A line of information.
    Note(String),
    /// A problem that does not stop the work.
    Warning(String),
    /// A worker process cannot continue.
    Error(String),
    /// The run failed; others continue.
    Failed {
        /// Name of the run.
        run: String,
        /// The cause, in one line.
        reason: String,
    },
}

/// Receives events. Any `FnMut(Event)` is an observer.
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
    /// Handles an event.
    fn event(&mut self, event: Event);

    /// Handles an event of a worker process. Workers are counted from 0.
    fn worker_event(&mut self, _worker: usize, event: Event) {
        self.event(event);
    }

    /// Reports a problem that does not stop the work.
    fn warn(&mut self, text: String) {
        self.event(Event::Warning(text));
    }

    /// Reports a line of information.
    fn note(&mut self, text: String) {
        self.event(Event::Note(text));
    }

    /// Reports the current work. An empty text clears it.
    fn status(&mut self, text: &str) {
        self.event(Event::Status(text.into()));
    }
}

/// Returns a function that reports how many of `of` items of a piece of work are done.
pub fn counting(what: String, of: u64, observer: &mut dyn Observer) -> impl FnMut(u64) {
    move |done| {
        observer.event(Event::Progress { what: what.clone(), done, of, bytes: false });
    }
}

impl<F: FnMut(Event)> Observer for F {
    fn event(&mut self, event: Event) {
        self(event);
    }
}

/// An observer that ignores every event.
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
