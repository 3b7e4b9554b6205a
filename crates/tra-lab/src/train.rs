//! The training loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::module::Module;
use burn::tensor::Device;
use rayon::prelude::*;
use tra_nn::{Decoder, Pass};
use tra_tasks::OpenTask;

use crate::batch::{Batch, Source};
use crate::checkpoints::{Checkpoint, TrainProgress};
use crate::config::RunConfig;
use crate::error::LabError;
use crate::loss::cross_entropy;
use crate::optimizer::FlatGradients;
use crate::records::{EvaluationRecord, Metric, StepRecord};
use crate::run_dir::RunDir;
use crate::schedule::learning_rate;
use crate::session::Session;

/// Who is told how a run is going.
pub trait Observer {
    /// A step was taken.
    fn step(&mut self, record: &StepRecord, pace: &Pace);
    /// Part of an evaluation is done.
    fn evaluating(&mut self, split: &str, done: u64, of: u64);
    /// An evaluation is done.
    fn evaluated(&mut self, record: &EvaluationRecord);
    /// Something went wrong that is no reason to stop.
    fn warn(&mut self, text: String);
}

/// How fast a run goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Seconds of training so far in this process, evaluations excluded.
    pub seconds: f64,
    /// Of these, seconds in which the model was not computing: waiting for data, writing.
    pub outside: f64,
    /// Tokens read in this process.
    pub tokens: u64,
}

impl Pace {
    /// Tokens per second.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds.max(1e-9)
    }

    /// Share of the time in which the model was not computing.
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
    /// Someone asked it to stop; it can be resumed.
    Interrupted,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Where it stands.
    pub position: TrainProgress,
    /// The last evaluation, if the run did not end before it.
    pub evaluation: Option<EvaluationRecord>,
    /// How fast it went.
    pub pace: Pace,
}

/// Trains until the steps of the run are taken, everything is right, or `interrupted` is set.
///
/// Wherever it is interrupted, or killed, the run resumes to the same bytes.
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
    let config = session.config().clone();
    let Checkpoint { mut decoder, mut optimizer, mut position, tokenizer, .. } =
        session.begin(observer)?;
    let source = Source { task: session.task().clone(), config: config.clone() };
    let mut data = source.ahead(position.step..config.steps);
    let mut pace = Pace::default();
    let mut evaluation = None;
    let mut stop = false;

    let end = loop {
        // First, for a run that was stopped before the evaluation of the step it stands at.
        if session.is_evaluation_due(position.step) {
            evaluation = session.evaluate(&decoder, position.step, interrupted, observer)?;
            if evaluation.is_none() {
                break End::Interrupted;
            }
        }
        if session.is_perfect() {
            break End::Perfect;
        }
        if position.step >= config.steps {
            break End::Finished;
        }
        if stop {
            break End::Interrupted;
        }

        let begin = Instant::now();
        let batches = data.next(position.step)?;
        let waited = begin.elapsed();
        let step = position.step;
        let lr = learning_rate(step, config.steps, config.lr, config.warmup);
        let (loss, gradients) = gradients(&decoder, &batches, config.seed, step);
        let norm = gradients.norm();
        if !(loss.is_finite() && norm.is_finite()) {
            return Err(diverged(session.run(), &decoder, step + 1, &why(loss, norm), lr));
        }
        let scale = if config.clip > 0.0 && norm > config.clip { config.clip / norm } else { 1.0 };
        decoder = optimizer.step(decoder, gradients, scale, lr, step);
        let computed = begin.elapsed();

        let tokens: u64 = batches.iter().map(|batch| batch.token_count() as u64).sum();
        position.step += 1;
        position.tokens += tokens;
        let record =
            StepRecord { step: position.step, loss, lr, grad_norm: norm, tokens: position.tokens };
        session.run().append_metrics(&[Metric::Step(record.clone())])?;
        // Before the evaluation, which may take long and may fail.
        stop = interrupted.load(Ordering::SeqCst);
        let due = config.is_saved_at(position.step) || session.is_evaluation_due(position.step);
        if due || stop {
            let tokenizer = tokenizer.as_deref();
            let saved = session.save(&decoder, &optimizer, &position, tokenizer, observer);
            saved.map_err(|error| match error.is_not_finite() {
                true => diverged(session.run(), &decoder, position.step, "weights overflow", lr),
                false => error,
            })?;
        }
        let all = begin.elapsed();
        pace.seconds += all.as_secs_f64();
        pace.outside += (waited + (all - computed)).as_secs_f64();
        pace.tokens += tokens;
        observer.step(&record, &pace);
    };
    session.keep_evaluations(observer);
    let rate = pace.tokens_per_second();
    let timing = session.run().append_timing(&serde_json::json!({
        "step": position.step, "seconds": pace.seconds, "outside": pace.outside, "tokens_per_second": rate,
    }));
    if let Err(error) = timing {
        observer.warn(error.to_string());
    }
    Ok(Outcome { end, position, evaluation, pace })
}

/// What a run will cost, from its first steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Numbers the model learns.
    pub parameters: usize,
    /// Bytes of the weights, their gradients and the optimizer's memory.
    pub state_bytes: u64,
    /// Tokens in a step.
    pub tokens_a_step: u64,
    /// Median seconds of a step, the first left out where there are several: it warms up.
    pub seconds_a_step: f64,
}

/// Takes `count` steps on a fresh model, and leaves nothing behind.
pub fn forecast(
    config: &RunConfig,
    task: &OpenTask,
    device: &Device,
    count: u64,
    mut taken: impl FnMut(u64),
) -> Result<Forecast, LabError> {
    let device = device.clone().autodiff();
    config.check_runnable(task)?;
    let Checkpoint { mut decoder, mut optimizer, .. } = Checkpoint::fresh(config, task, &device)?;
    let source = Source { task: task.clone(), config: config.clone() };
    let (mut seconds, mut tokens) = (0.0, 0);
    let count = count.max(1);
    // From all over the run, as sequences may grow on the way; before them one that is not timed,
    // as the first is always slow.
    let steps = (0..count).map(|k| (2 * k + 1) * config.steps / (2 * count));
    for (number, step) in std::iter::once(0).chain(steps).enumerate() {
        let batches = source.step(step)?;
        let begin = Instant::now();
        let (_, gradients) = gradients(&decoder, &batches, config.seed, step);
        gradients.norm();
        decoder = optimizer.step(decoder, gradients, 1.0, 0.0, step);
        if number > 0 {
            seconds += begin.elapsed().as_secs_f64();
            tokens += batches.iter().map(|batch| batch.token_count() as u64).sum::<u64>();
        }
        taken(number as u64);
    }
    let shapes = decoder.parameter_shapes();
    let parameters = shapes.values().map(|shape| shape.iter().product::<usize>()).sum();
    Ok(Forecast {
        parameters,
        state_bytes: 4 * (2 * parameters + optimizer.size()) as u64,
        tokens_a_step: tokens / count,
        seconds_a_step: seconds / count as f64,
    })
}

/// A batch is cut into so many parts, which are computed side by side. The number is fixed, and not
/// that of the cores, so that the result does not depend on the machine's.
const PARTS: usize = 4;

/// Loss and gradient of one step: the mean over the scored tokens of all its batches, so that
/// cutting a batch into several changes nothing but rounding.
pub(crate) fn gradients(
    decoder: &Decoder,
    batches: &[Batch],
    seed: u64,
    step: u64,
) -> (f64, FlatGradients) {
    let cut: Vec<Vec<Batch>> = batches.iter().map(|batch| batch.cut(PARTS)).collect();
    let answers = cut.iter().flatten().map(Batch::answers).sum::<usize>().max(1) as f64;
    let one = |(part, batch): (usize, &Batch)| {
        // Leaves of its own, so that the graphs of two parts have nothing in common.
        let decoder = decoder.clone().fork(&decoder.device());
        let tokens = batch.tensor(0, batch.length(), &decoder);
        let logits = decoder.forward(tokens, Pass::train_part(seed, step, part as u64));
        let (sum, _) = cross_entropy(logits, &batch.tokens, &batch.scored)?;
        let loss = sum / answers;
        let gradients = FlatGradients::take(&decoder, loss.backward());
        Some((f64::from(loss.into_scalar::<f32>()), gradients))
    };
    // Batch by batch, so that no more gradients are held than one batch has parts; added up in the
    // order of the parts, whichever was ready first.
    let (mut first, mut summed) = (0, None);
    for parts in &cut {
        let numbered = parts.par_iter().enumerate().map(|(part, batch)| (first + part, batch));
        let computed: Vec<_> = numbered.map(one).collect();
        for (b, y) in computed.into_iter().flatten() {
            summed = Some(match summed {
                None => (b, y),
                Some((a, x)) => (a + b, FlatGradients::plus(x, y)),
            });
        }
        first += parts.len();
    }
    summed.unwrap_or_else(|| (0.0, FlatGradients::zeros(decoder)))
}

fn why(loss: f64, norm: f64) -> String {
    match loss.is_finite() {
        true => format!("gradient norm is {norm}"),
        false => format!("loss is {loss}"),
    }
}

fn diverged(run: &RunDir, decoder: &Decoder, step: u64, what: &str, lr: f64) -> LabError {
    // Made of the weights that have just failed: going on from it would fail again.
    let aside = run.set_aside(step - 1);
    let last = match last_good(run) {
        Some(last) => format!("last good checkpoint: step {last}"),
        None => "there is no good checkpoint".into(),
    };
    let parameters = decoder.parameters();
    let bad = parameters.iter().find(|(_, tensor)| tensor.not_finite() > 0);
    let cause = match bad {
        Some((name, _)) => format!("{name} is no longer finite: the step before was too large"),
        None => "the activations overflow".into(),
    };
    let aside = aside.err().map_or(String::new(), |error| format!("; {error}"));
    LabError::Diverged(format!(
        "training diverged: the {what} at step {step} ({last}); likely cause: {cause}; try a lower --lr than {lr:.1e}{aside}"
    ))
}

/// The newest checkpoint of which no evaluation says that it has diverged.
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
