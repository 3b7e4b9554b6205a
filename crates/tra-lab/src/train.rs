//! The training loop.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use rayon::prelude::*;
use tra_nn::{Decoder, Pass};
use tra_tasks::{Measure, Task, draw};

use crate::batch::{Batch, Source};
use crate::config::{Lengths, RunConfig};
use crate::error::LabError;
use crate::eval::{Question, evaluate};
use crate::loss::cross_entropy;
use crate::optimizer::{Optimizer, Summed};
use crate::records::{Evaluation, EvaluationRecord, Metric, StepRecord};
use crate::run_dir::{Checkpoint, Position, RunDir};
use crate::schedule::learning_rate;

/// Who is told how a run is going.
pub trait Observer {
    /// A step was taken.
    fn step(&mut self, record: &StepRecord, pace: &Pace);
    /// Part of an evaluation is done.
    fn evaluating(&mut self, split: &str, done: u64, of: u64);
    /// An evaluation is done.
    fn evaluated(&mut self, record: &EvaluationRecord);
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
    pub position: Position,
    /// The last checkpoint.
    pub checkpoint: PathBuf,
    /// The last evaluation, if the run did not end before it.
    pub evaluation: Option<EvaluationRecord>,
    /// How fast it went.
    pub pace: Pace,
}

/// Trains in `run` from `start`, or from scratch, until the steps of `config` are taken, everything
/// is right, or `interrupted` is set.
pub fn train(
    run: &RunDir,
    config: &RunConfig,
    device: &Device,
    start: Option<Checkpoint>,
    interrupted: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Outcome, LabError> {
    let task: Arc<dyn Task> = config.task.build()?.into();
    let device = device.clone().autodiff();
    let Checkpoint { mut decoder, mut optimizer, mut position, tokenizer } = match start {
        Some(checkpoint) => checkpoint,
        None => fresh(config, task.as_ref(), &device)?,
    };
    run.check_data(task.as_ref(), &decoder, &position)?;
    check_positions(config, task.as_ref(), &decoder)?;
    let source = source(config, &task);
    let mut data = source.ahead(position.step..config.steps).into_iter();
    let mut pace = Pace::default();
    let mut saved = None;
    let mut evaluation = None;
    let mut end = End::Finished;

    while position.step < config.steps {
        let begin = Instant::now();
        let Some(batches) = data.next() else { break };
        let batches = batches?;
        let waited = begin.elapsed();

        let step = position.step;
        let lr = learning_rate(step, config.steps, config.lr, config.warmup);
        let (loss, gradients) = gradients(&decoder, &batches, config.seed, step);
        let norm = gradients.norm();
        if !(loss.is_finite() && norm.is_finite()) {
            return Err(diverged(run, &decoder, step, loss, norm, lr));
        }
        let scale = if config.clip > 0.0 && norm > config.clip { config.clip / norm } else { 1.0 };
        decoder = optimizer.step(decoder, gradients, scale, lr, step);
        let computed = begin.elapsed();

        let tokens: u64 = batches.iter().map(|batch| batch.real() as u64).sum();
        position.step += 1;
        position.tokens += tokens;
        let record =
            StepRecord { step: position.step, loss, lr, grad_norm: norm, tokens: position.tokens };
        run.append_metrics(&[Metric::Step(record.clone())])?;

        let every = |n: u64| n > 0 && position.step.is_multiple_of(n);
        let stop = interrupted.load(Ordering::SeqCst);
        let last = position.step == config.steps;
        let mut due = every(config.save_every) || last || stop;
        let mut testing = Duration::ZERO;
        if (every(config.eval.every) || last) && !stop {
            let begin = Instant::now();
            let record = test(&decoder, task.as_ref(), config, position.step, observer)?;
            run.append_metrics(&[Metric::Evaluation(record.clone())])?;
            run.merge_evaluation(&Evaluation {
                step: record.step,
                results: record.results.clone(),
            })?;
            due |= note(&record, &mut position, task.measure());
            observer.evaluated(&record);
            evaluation = Some(record);
            if config.eval.until_perfect > 0 && position.perfect >= config.eval.until_perfect {
                end = End::Perfect;
                due = true;
            }
            testing = begin.elapsed();
        }
        if due {
            let (tokenizer, position) = (tokenizer.clone(), position.clone());
            let checkpoint = Checkpoint { decoder, optimizer, position, tokenizer };
            saved = Some(run.save(&checkpoint, config.keep)?);
            Checkpoint { decoder, optimizer, .. } = checkpoint;
        }

        let all = begin.elapsed() - testing;
        pace.seconds += all.as_secs_f64();
        pace.outside += (waited + (all - computed)).as_secs_f64();
        pace.tokens += tokens;
        observer.step(&record, &pace);
        if stop {
            end = End::Interrupted;
        }
        if end != End::Finished {
            break;
        }
    }
    let rate = pace.tokens_per_second();
    run.append_timing(&serde_json::json!({
        "step": position.step, "seconds": pace.seconds, "outside": pace.outside, "tokens_per_second": rate,
    }))?;
    let checkpoint = match saved {
        Some(path) => path,
        // Nothing was left to do.
        None => {
            let position = position.clone();
            run.save(&Checkpoint { decoder, optimizer, position, tokenizer }, config.keep)?
        }
    };
    Ok(Outcome { end, position, checkpoint, evaluation, pace })
}

fn source(config: &RunConfig, task: &Arc<dyn Task>) -> Source {
    Source { task: task.clone(), config: config.clone() }
}

/// Says so before the first step if the model has no position for the longest sequences ahead.
fn check_positions(config: &RunConfig, task: &dyn Task, decoder: &Decoder) -> Result<(), LabError> {
    if decoder.config().limit().is_none() {
        return Ok(());
    }
    let mut read = vec![("train".to_string(), config.train_lengths())];
    for split in config.eval_splits() {
        let lengths = config.split_lengths(&split)?;
        read.push((split, lengths));
    }
    for (split, Lengths { to, .. }) in read {
        let sample = draw(task, &split, (to, to), config.seed, 0)?;
        let enough = decoder.config().check_length(sample.tokens.len());
        enough.map_err(|e| LabError::Setting(format!("{split} at length {to}: {e}")))?;
    }
    Ok(())
}

fn fresh(config: &RunConfig, task: &dyn Task, device: &Device) -> Result<Checkpoint, LabError> {
    let decoder = config.decoder(task.vocab())?.init_seeded(config.seed, device)?;
    let optimizer = Optimizer::new(&decoder, config.optimizer());
    let position = Position { data: task.fingerprint(), ..Position::default() };
    Ok(Checkpoint { decoder, optimizer, position, tokenizer: task.tokenizer().map(Into::into) })
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
    device: &Device,
    count: u64,
    mut taken: impl FnMut(u64),
) -> Result<Forecast, LabError> {
    let task: Arc<dyn Task> = config.task.build()?.into();
    let device = device.clone().autodiff();
    let Checkpoint { mut decoder, mut optimizer, .. } = fresh(config, task.as_ref(), &device)?;
    check_positions(config, task.as_ref(), &decoder)?;
    let source = source(config, &task);
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
            tokens += batches.iter().map(|batch| batch.real() as u64).sum::<u64>();
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
) -> (f64, Summed) {
    let cut: Vec<Vec<Batch>> = batches.iter().map(|batch| batch.cut(PARTS)).collect();
    let answers = cut.iter().flatten().map(Batch::answers).sum::<usize>().max(1) as f64;
    let one = |(part, batch): (usize, &Batch)| {
        // Leaves of its own, so that the graphs of two parts have nothing in common.
        let decoder = decoder.clone().fork(&decoder.device());
        let tokens = batch.tensor(0, batch.length(), &decoder);
        let logits = decoder.forward(tokens, Pass::train_part(seed, step, part as u64));
        let (sum, _) = cross_entropy(logits, &batch.tokens, &batch.scored)?;
        let loss = sum / answers;
        let gradients = Summed::take(&decoder, loss.backward());
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
                Some((a, x)) => (a + b, Summed::plus(x, y)),
            });
        }
        first += parts.len();
    }
    summed.unwrap_or_else(|| (0.0, Summed::zeros(decoder)))
}

fn test(
    decoder: &Decoder,
    task: &dyn Task,
    config: &RunConfig,
    step: u64,
    observer: &mut dyn Observer,
) -> Result<EvaluationRecord, LabError> {
    let mut results = Vec::new();
    for name in config.eval_splits() {
        let lengths = config.split_lengths(&name)?;
        let sequences = config.eval.sequences;
        let question = Question { split: name.clone(), lengths, sequences, seed: config.seed };
        let progress = |done| observer.evaluating(&name, done, sequences);
        results.push(evaluate(decoder, task, &question, progress)?);
    }
    Ok(EvaluationRecord { step, results })
}

/// Notes an evaluation in the position; whether it is the best so far.
fn note(record: &EvaluationRecord, position: &mut Position, measure: Measure) -> bool {
    let exact = record.results.iter().map(|r| r.exact_match);
    let perfect = !record.results.is_empty() && exact.clone().all(|e| e == 1.0);
    position.perfect = if perfect { position.perfect + 1 } else { 0 };
    let count = record.results.len().max(1) as f64;
    let mean = match measure {
        Measure::ExactMatch => exact.sum::<f64>() / count,
        // Short windows may be fully right by chance: text is judged by its loss alone.
        Measure::Perplexity => 0.0,
    };
    let loss = record.results.iter().map(|r| r.loss).sum::<f64>() / count;
    // Of equal shares the lower loss is better.
    let best = position.best.is_none_or(|(_, before)| {
        mean > before || (mean == before && position.best_loss.is_none_or(|least| loss <= least))
    });
    if best {
        position.best = Some((record.step, mean));
        position.best_loss = Some(loss);
    }
    best
}

fn diverged(run: &RunDir, decoder: &Decoder, step: u64, loss: f64, norm: f64, lr: f64) -> LabError {
    let step = step + 1;
    let what = if loss.is_finite() {
        format!("gradient norm is {norm}")
    } else {
        format!("loss is {loss}")
    };
    let last = run.steps().ok().and_then(|steps| steps.last().copied());
    let last = match last {
        Some(last) => format!("last good checkpoint: step {last}"),
        None => "there is no checkpoint yet".into(),
    };
    let parameters = decoder.parameters();
    let bad = parameters.iter().find(|(_, tensor)| tensor.not_finite() > 0);
    let cause = match bad {
        Some((name, _)) => format!("{name} is no longer finite: the step before was too large"),
        None => "the activations overflow".into(),
    };
    LabError::Diverged(format!(
        "training diverged: the {what} at step {step} ({last}); likely cause: {cause}; try a lower --lr than {lr:.1e}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::EvalResult;

    fn result(exact_match: f64) -> EvalResult {
        EvalResult { split: "iid".into(), sequences: 1, exact_match, ..Default::default() }
    }

    #[test]
    fn the_newest_of_equally_good_evaluations_is_the_best() {
        let mut position = Position::default();
        let record =
            |step, exact_match| EvaluationRecord { step, results: vec![result(exact_match)] };
        let exact = Measure::ExactMatch;
        assert!(note(&record(1, 0.5), &mut position, exact));
        assert!(!note(&record(2, 0.4), &mut position, exact));
        assert!(note(&record(3, 1.0), &mut position, exact));
        assert!(note(&record(4, 1.0), &mut position, exact));
        assert_eq!((position.best, position.perfect), (Some((4, 1.0)), 2));
        note(&record(5, 0.9), &mut position, exact);
        assert_eq!(position.perfect, 0);
    }

    #[test]
    fn of_text_the_lower_loss_is_the_best() {
        let mut position = Position::default();
        let record = |step, loss, exact| EvaluationRecord {
            step,
            results: vec![EvalResult { loss, ..result(exact) }],
        };
        let mut note = |record| note(&record, &mut position, Measure::Perplexity);
        assert!(note(record(1, 5.0, 0.0)) && note(record(2, 4.0, 0.0)));
        assert!(!note(record(3, 4.5, 0.9)), "right by chance");
        assert!(!note(record(4, f64::NAN, 0.0)));
        assert_eq!(position.best, Some((2, 0.0)));
    }
}
