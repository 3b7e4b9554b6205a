//! The training loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use tra_nn::Decoder;
use tra_tasks::OpenTask;

use crate::checkpoints::TrainProgress;
use crate::config::RunConfig;
use crate::error::LabError;
use crate::observer::{Event, Observer};
use crate::records::{EvaluationRecord, Metric};
use crate::run_dir::RunDir;
use crate::session::Session;
use crate::trainer::Trainer;

/// Speed of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Seconds of training in this process, without evaluations.
    pub seconds: f64,
    /// Part of `seconds` in which the model was not computing: waiting for data or writing files.
    pub outside: f64,
    /// Tokens read in this process.
    pub tokens: u64,
    /// Estimated seconds of training left.
    pub left: f64,
}

impl Pace {
    /// Returns tokens per second.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds.max(1e-9)
    }

    /// Returns the fraction of the time in which the model was not computing.
    pub fn share_outside(&self) -> f64 {
        self.outside / self.seconds.max(1e-9)
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// All steps were taken.
    Finished,
    /// Every split was fully right often enough.
    Perfect,
    /// It was interrupted and can be resumed.
    Interrupted,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Its progress.
    pub position: TrainProgress,
    /// The last evaluation, if the run reached it.
    pub evaluation: Option<EvaluationRecord>,
    /// Its speed.
    pub pace: Pace,
}

/// Trains until all steps are taken, every split is fully right, or `interrupted` is set.
///
/// A run that was interrupted or killed resumes to the same bytes.
///
/// ```
/// use std::sync::atomic::AtomicBool;
/// use tra_lab::config::RunConfig;
/// use tra_lab::observer::Silent;
/// use tra_lab::session::Session;
/// use tra_lab::train::{End, train};
/// use tra_nn::device::Device;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("run");
/// let set = ["steps=2", "length=8", "model.size=tiny", "eval.sequences=2"].map(String::from);
/// let config = RunConfig::read(None, Vec::new(), &set)?;
/// let mut session = Session::start(&path, config, &Device::flex(), &mut Silent)?;
/// let outcome = train(&mut session, &AtomicBool::new(false), &mut Silent)?;
/// assert_eq!(outcome.end, End::Finished);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn train(
    session: &mut Session,
    interrupted: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Outcome, LabError> {
    let outcome = run(session, interrupted, observer);
    if let Err(LabError::Diverged(why)) = &outcome
        && let Err(error) = session.run().note_failure(why)
    {
        observer.warn(error.to_string());
    }
    outcome
}

fn run(
    session: &mut Session,
    interrupted: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Outcome, LabError> {
    let mut trainer = session.begin(observer)?;
    let work = Work::of(session.config(), trainer.progress().step);
    let (mut pace, mut evaluation, mut stop) = (Pace::default(), None, false);
    let end = loop {
        // Evaluated first, because a run may have stopped just before the evaluation of its current
        // step.
        if session.is_evaluation_due(trainer.progress().step) {
            evaluation = session.evaluate(&trainer, interrupted, observer)?;
            if evaluation.is_none() {
                break End::Interrupted;
            }
        }
        if session.is_perfect() {
            break End::Perfect;
        }
        if stop && trainer.progress().step < session.config().steps {
            break End::Interrupted;
        }
        let begin = Instant::now();
        let step = trainer.step().map_err(|error| diverged(session.run(), &trainer, error))?;
        let Some(step) = step else { break End::Finished };
        // Read before the evaluation, which may take long and may fail.
        stop = interrupted.load(Ordering::SeqCst);
        session
            .record(&trainer, &step.record, stop, observer)
            .map_err(|error| diverged(session.run(), &trainer, error))?;
        let all = begin.elapsed();
        pace.seconds += all.as_secs_f64();
        pace.outside += (all - step.computed).as_secs_f64();
        pace.tokens += step.tokens;
        pace.left = work.left(step.record.step, pace.seconds);
        observer.event(Event::Step { record: step.record, pace });
    };
    session.finish(trainer.progress().step, &pace, observer);
    Ok(Outcome { end, position: trainer.progress().clone(), evaluation, pace })
}

/// Distribution of a run's work over its steps. The time of a step is taken to be proportional to
/// its number of tokens.
struct Work {
    /// Cumulative work after each of [`Work::PARTS`] equal parts of the steps.
    done: Vec<f64>,
    steps: u64,
    /// The step from which this process continues.
    first: u64,
}

impl Work {
    /// Enough to follow growing lengths.
    const PARTS: usize = 256;

    fn of(config: &RunConfig, first: u64) -> Self {
        let middle = |part: usize| (part as f64 + 0.5) / Self::PARTS as f64 * config.steps as f64;
        let mut sum = 0.0;
        let after = (0..Self::PARTS).map(|part| {
            let step = middle(part) as u64;
            let lengths = config.lengths_at(step);
            sum += (lengths.from + lengths.to).max(1) as f64 * config.batch_at(step) as f64;
            sum
        });
        let done = std::iter::once(0.0).chain(after).collect();
        Self { done, steps: config.steps, first }
    }

    /// Returns the estimated seconds left after a step. `seconds` is the time since the first step.
    fn left(&self, step: u64, seconds: f64) -> f64 {
        let done = |step: u64| {
            let place = step as f64 / self.steps.max(1) as f64 * Self::PARTS as f64;
            let part = (place as usize).min(Self::PARTS - 1);
            self.done[part] + (place - part as f64) * (self.done[part + 1] - self.done[part])
        };
        let behind = (done(step) - done(self.first)).max(f64::MIN_POSITIVE);
        seconds * (done(self.steps) - done(step)) / behind
    }
}

/// Estimated cost of a run, from a few of its steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Number of parameters.
    pub parameters: usize,
    /// Bytes of the weights, their gradients and the optimizer's state.
    pub state_bytes: u64,
    /// Tokens per step.
    pub tokens_a_step: u64,
    /// Seconds per step.
    pub seconds_a_step: f64,
}

/// Takes `count` steps on a new model and measures them. Writes no files.
pub fn forecast(
    config: &RunConfig,
    task: &OpenTask,
    device: &Device,
    count: u64,
    observer: &mut dyn Observer,
) -> Result<Forecast, LabError> {
    let mut trainer = Trainer::new(config, task.clone(), device)?;
    let (mut seconds, mut tokens) = (0.0, 0);
    let count = count.max(1);
    // Steps are spread over the whole run, because sequences may grow. The first step is not timed,
    // because it is always slow.
    let steps = (0..count).map(|k| (2 * k + 1) * config.steps / (2 * count));
    for (number, step) in std::iter::once(0).chain(steps).enumerate() {
        observer.status(&format!("step {} of {count}", (number as u64).max(1)));
        let taken = trainer.step_as(step)?;
        if number > 0 {
            seconds += taken.computed.as_secs_f64();
            tokens += taken.tokens;
        }
    }
    observer.status("");
    let shapes = trainer.decoder().parameter_shapes();
    let parameters = shapes.values().map(|shape| shape.iter().product::<usize>()).sum();
    Ok(Forecast {
        parameters,
        state_bytes: 4 * (2 * parameters + trainer.optimizer().size()) as u64,
        tokens_a_step: tokens / count,
        seconds_a_step: seconds / count as f64,
    })
}

/// Explains an error that means that training diverged. Returns any other error unchanged.
fn diverged(run: &RunDir, trainer: &Trainer, error: LabError) -> LabError {
    let (what, step, advice) = match error {
        LabError::NotFinite { step, loss, norm, lr } => {
            let what = match loss.is_finite() {
                true => format!("gradient norm is {norm}"),
                false => format!("loss is {loss}"),
            };
            (what, step, format!("a lower --lr than {lr:.1e}"))
        }
        error if error.is_not_finite() => {
            ("weights overflow".into(), trainer.progress().step, "a lower --lr".into())
        }
        other => return other,
    };
    // The checkpoint before this step contains the weights that failed, so resuming from it would
    // fail again.
    let aside = run.set_aside(step - 1);
    let last = match last_good(run) {
        Some(last) => format!("last good checkpoint: step {last}"),
        None => "there is no good checkpoint".into(),
    };
    let cause = cause(trainer.decoder());
    let aside = aside.err().map_or(String::new(), |error| format!("; {error}"));
    LabError::Diverged(format!(
        "training diverged: the {what} at step {step} ({last}); likely cause: {cause}; \
         try {advice}{aside}"
    ))
}

fn cause(decoder: &Decoder) -> String {
    let parameters = decoder.parameters();
    match parameters.iter().find(|(_, tensor)| tensor.not_finite() > 0) {
        Some((name, _)) => {
            format!("{name} is no longer finite, so the previous step was too large")
        }
        None => "the activations overflow".into(),
    }
}

/// Returns the newest checkpoint whose evaluation, if any, is finite.
fn last_good(run: &RunDir) -> Option<u64> {
    let metrics = run.metrics().ok()?;
    let bad = |step: u64| {
        metrics.iter().any(|metric| match metric {
            Metric::Evaluation(record) => record.step == step && !record.is_finite(),
            Metric::Step(_) => false,
        })
    };
    run.steps().ok()?.into_iter().rev().find(|step| !bad(*step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Lengths;
    use crate::curriculum::Curriculum;

    #[test]
    fn time_left_knows_that_sequences_grow() {
        let mut config = RunConfig { steps: 100, ..RunConfig::default() };
        config.length = Some(Lengths { from: 10, to: 90 });
        assert!((Work::of(&config, 0).left(25, 5.0) - 15.0).abs() < 1e-9);
        assert!((Work::of(&config, 50).left(75, 5.0) - 5.0).abs() < 1e-9, "resumed at step 50");
        assert_eq!(Work::of(&config, 0).left(100, 5.0), 0.0);
        // Lengths start at 10 and reach a mean of 50. The second half has 50 per step, the first
        // about 30.
        config.curriculum =
            Some(Curriculum { from: 10, until: 0.5, shortest: 0.0, power: 1.0, widen: 1 });
        let left = Work::of(&config, 0).left(50, 30.0);
        assert!((48.0..52.0).contains(&left), "{left}");
    }
}
