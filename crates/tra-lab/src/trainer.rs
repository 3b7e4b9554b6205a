//! The training step: the only one in the workspace.

use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use rayon::prelude::*;
use tra_nn::{Decoder, Pass};
use tra_tasks::OpenTask;

use crate::batch::{Ahead, Batch, Source};
use crate::checkpoints::{Checkpoint, TrainProgress};
use crate::config::RunConfig;
use crate::error::LabError;
use crate::loss::cross_entropy;
use crate::optimizer::{FlatGradients, Optimizer};
use crate::records::StepRecord;
use crate::schedule::learning_rate;

/// Number of parts of a batch, computed in parallel. It is fixed, so that the result does not
/// depend on the number of cores.
const PARTS: usize = 4;

/// A model, its optimizer and its data. It does not access files.
///
/// ```
/// use tra_lab::config::RunConfig;
/// use tra_lab::trainer::Trainer;
/// use tra_nn::device::Device;
///
/// let set = ["steps=3", "batch=2", "length=8", "model.size=tiny"].map(String::from);
/// let config = RunConfig::read(None, Vec::new(), &set)?;
/// let task = config.task.open()?;
/// let mut trainer = Trainer::new(&config, task, &Device::flex())?;
/// while let Some(step) = trainer.step()? {
///     assert!(step.record.loss.is_finite());
/// }
/// assert_eq!(trainer.progress().step, 3);
/// # Ok::<(), tra_lab::LabError>(())
/// ```
pub struct Trainer {
    /// Taken out while the optimizer updates it.
    decoder: Option<Decoder>,
    optimizer: Optimizer,
    settings: StepSettings,
    data: Data,
    progress: TrainProgress,
}

/// Settings that a step needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepSettings {
    pub seed: u64,
    pub steps: u64,
    pub lr: f64,
    pub warmup: f64,
    /// Largest norm of the gradient; 0 disables clipping.
    pub clip: f64,
}

impl From<&RunConfig> for StepSettings {
    fn from(config: &RunConfig) -> Self {
        let RunConfig { seed, steps, lr, warmup, clip, .. } = *config;
        Self { seed, steps, lr, warmup, clip }
    }
}

/// Source of the batches of a step.
pub(crate) enum Data {
    /// Prepared on another thread, in order.
    Ahead(Ahead),
    /// Drawn on demand, in any order.
    Drawn(Box<Source>),
    /// The same batches at every step.
    Fixed(Vec<Batch>),
}

impl Data {
    fn of_step(&mut self, step: u64) -> Result<Vec<Batch>, LabError> {
        match self {
            Self::Ahead(ahead) => ahead.next(step),
            Self::Drawn(source) => Ok(source.step(step)?),
            Self::Fixed(batches) => Ok(batches.clone()),
        }
    }
}

/// Result of a training step.
#[derive(Clone, Debug)]
pub struct Step {
    /// The record of the step.
    pub record: StepRecord,
    /// Tokens read, without padding.
    pub tokens: u64,
    /// Time spent waiting for data.
    pub waited: Duration,
    /// Time spent computing.
    pub computed: Duration,
}

impl Trainer {
    /// Creates a new model and its optimizer. Batches are drawn on demand.
    pub fn new(config: &RunConfig, task: OpenTask, device: &Device) -> Result<Self, LabError> {
        config.check_runnable(&task)?;
        let start = Checkpoint::fresh(config, &task, &device.clone().autodiff())?;
        let source = Box::new(Source { task, config: config.clone() });
        Ok(Self::with_data(start, config.into(), Data::Drawn(source)))
    }

    /// Continues from a checkpoint. Batches are prepared on another thread.
    pub(crate) fn ahead(start: Checkpoint, source: Source) -> Self {
        let (settings, steps) = ((&source.config).into(), source.config.steps);
        let data = Data::Ahead(source.ahead(start.position.step..steps));
        Self::with_data(start, settings, data)
    }

    pub(crate) fn with_data(start: Checkpoint, settings: StepSettings, data: Data) -> Self {
        let Checkpoint { decoder, optimizer, position: progress, .. } = start;
        Self { decoder: Some(decoder), optimizer, settings, data, progress }
    }

    /// Returns the current model.
    pub fn decoder(&self) -> &Decoder {
        let Some(decoder) = &self.decoder else {
            unreachable!("the decoder is back after every step")
        };
        decoder
    }

    /// Returns the current optimizer.
    pub fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    /// Returns the progress of the training.
    pub fn progress(&self) -> &TrainProgress {
        &self.progress
    }

    /// Draws, computes, clips and updates. Returns the step, or `None` when all steps are taken.
    ///
    /// A loss or gradient that is not finite is an error and leaves the model unchanged.
    pub fn step(&mut self) -> Result<Option<Step>, LabError> {
        match self.progress.step < self.settings.steps {
            true => self.step_as(self.progress.step).map(Some),
            false => Ok(None),
        }
    }

    /// Takes a step with the data, learning rate and dropout of step number `step`, counted from 0,
    /// whatever steps were taken before.
    pub(crate) fn step_as(&mut self, step: u64) -> Result<Step, LabError> {
        let StepSettings { seed, steps, lr, warmup, clip } = self.settings;
        let begin = Instant::now();
        let batches = self.data.of_step(step)?;
        let waited = begin.elapsed();
        let lr = learning_rate(step, steps, lr, warmup);
        let (loss, gradients) = gradients(self.decoder(), &batches, seed, step);
        let norm = gradients.norm();
        if !(loss.is_finite() && norm.is_finite()) {
            return Err(LabError::NotFinite { step: step + 1, loss, norm, lr });
        }
        let scale = if clip > 0.0 && norm > clip { clip / norm } else { 1.0 };
        let before = self.decoder.take();
        self.decoder =
            before.map(|decoder| self.optimizer.step(decoder, gradients, scale, lr, step));
        let tokens: u64 = batches.iter().map(|batch| batch.token_count() as u64).sum();
        self.progress.step += 1;
        self.progress.tokens += tokens;
        let TrainProgress { step, tokens: read, .. } = self.progress;
        let record = StepRecord { step, loss, lr, grad_norm: norm, tokens: read };
        Ok(Step { record, tokens, waited, computed: begin.elapsed() - waited })
    }
}

/// Returns the loss and the gradient of one step: the mean over the scored tokens of all its
/// batches. So splitting a batch changes nothing but rounding.
fn gradients(decoder: &Decoder, batches: &[Batch], seed: u64, step: u64) -> (f64, FlatGradients) {
    let cut: Vec<Vec<Batch>> = batches.iter().map(|batch| batch.cut(PARTS)).collect();
    let answers = cut.iter().flatten().map(Batch::answers).sum::<usize>().max(1) as f64;
    let one = |(part, batch): (usize, &Batch)| {
        // Each part has its own leaves, so that the graphs of two parts share nothing.
        let decoder = decoder.clone().fork(&decoder.device());
        let tokens = batch.tensor(0, batch.length(), &decoder);
        let logits = decoder.forward(tokens, Pass::train_part(seed, step, part as u64));
        let (sum, _) = cross_entropy(logits, &batch.tokens, &batch.scored)?;
        let loss = sum / answers;
        let gradients = FlatGradients::take(&decoder, loss.backward());
        Some((f64::from(loss.into_scalar::<f32>()), gradients))
    };
    // Batch by batch, so that only the gradients of one batch's parts are held. They are added in
    // the order of the parts, whichever was ready first.
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
