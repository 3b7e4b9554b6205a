//! The life cycle of a run: created or resumed under its lock, trained, evaluated, and left
//! resumable.
//!
//! A session checks before it writes. [`Session::create`] and [`Session::resume`] check everything
//! that can be wrong with a new or a resumed run. A resume that returns an error leaves every file
//! unchanged.
//!
//! The order of writing makes the result the same wherever a run is stopped: metrics, then the
//! checkpoint, then the evaluation. If an evaluation is due at the step of the checkpoint and is
//! missing in `metrics.jsonl`, a resumed run evaluates first.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use tra_disk::Lock;
use tra_tasks::{OpenTask, TaskSpec};

use crate::batch::Source;
use crate::checkpoints::{Checkpoint, Snapshot, TrainProgress};
use crate::config::RunConfig;
use crate::error::LabError;
use crate::eval::{EvalSpec, evaluate};
use crate::observer::{Event, Observer};
use crate::optimizer::Optimizer;
use crate::records::{Evaluation, EvaluationRecord, Metric, StepRecord};
use crate::run_dir::RunDir;
use crate::standing::Standing;
use crate::train::{End, Pace};
use crate::trainer::Trainer;

/// A run in progress. It holds the lock, so no other process trains in its directory.
pub struct Session {
    run: RunDir,
    config: RunConfig,
    task: OpenTask,
    start: Option<Checkpoint>,
    /// Everything needed to rebuild the tokenizer, for a run on text.
    tokenizer: Option<Arc<str>>,
    history: History,
    /// Evaluations that are in `metrics.jsonl` but not yet in `eval.json`.
    unkept: Vec<EvaluationRecord>,
    /// Whether the settings differ from those in `config.toml`.
    changed: bool,
    lock: Lock,
}

impl Session {
    /// Creates a run in `path`, or resumes the one there. Opens its task and takes its lock.
    pub fn start(
        path: &Path,
        config: RunConfig,
        device: &Device,
        observer: &mut dyn Observer,
    ) -> Result<Self, LabError> {
        let task = open_task(&config, observer)?;
        Self::start_locked(path, RunDir::lock(path)?, config, task, device, observer)
    }

    /// Like [`start`](Self::start), with a lock and a task that the caller already has.
    pub fn start_locked(
        path: &Path,
        lock: Lock,
        config: RunConfig,
        task: OpenTask,
        device: &Device,
        observer: &mut dyn Observer,
    ) -> Result<Self, LabError> {
        match RunDir::exists(path)? {
            true => Self::resume(RunDir::open(path)?, lock, config, task, device, observer),
            false => Self::create(path, lock, config, task, device),
        }
    }

    /// Creates a run in `path`. The caller has taken its lock.
    pub fn create(
        path: &Path,
        lock: Lock,
        config: RunConfig,
        task: OpenTask,
        device: &Device,
    ) -> Result<Self, LabError> {
        config.check_runnable(&task)?;
        let start = Checkpoint::fresh(&config, &task, &device.clone().autodiff())?;
        let run = RunDir::create(path, &config)?;
        Ok(Self {
            run,
            config,
            task,
            tokenizer: start.tokenizer.clone(),
            start: Some(start),
            history: History::default(),
            unkept: Vec::new(),
            changed: false,
            lock,
        })
    }

    /// Resumes a run. The caller has taken its lock.
    ///
    /// `config` replaces its settings, but task, model, seed and optimizer must stay the same.
    pub fn resume(
        run: RunDir,
        lock: Lock,
        config: RunConfig,
        task: OpenTask,
        device: &Device,
        observer: &mut dyn Observer,
    ) -> Result<Self, LabError> {
        let before = run.config()?;
        check_kept(&run, &before, &config, "the run was started with")?;
        config.check_runnable(&task)?;
        let device = device.clone().autodiff();
        let newest = run.newest(config.optimizer(), &device, |text| observer.warn(text))?;
        let metrics = run.metrics()?;
        let start = match newest {
            Some(start) => {
                if let Some(settings) = &start.settings {
                    check_kept(&run, settings, &config, "its checkpoint was made with")?;
                }
                run.check_model(start.decoder.config())?;
                let data = start.position.data.as_deref();
                run.check_data(&task, &start.decoder, data)?;
                start
            }
            None => {
                check_lost(&run, &before, &metrics)?;
                Checkpoint::fresh(&config, &task, &device)?
            }
        };
        let kept = run.evaluations()?;
        let unkept = metrics.iter().filter_map(|metric| match metric {
            Metric::Evaluation(record) => Some(record.clone()),
            Metric::Step(_) => None,
        });
        let is_unkept = |record: &EvaluationRecord| {
            let known = kept.at(record.step).results;
            record.step <= start.position.step && record.results.iter().any(|r| !known.contains(r))
        };
        let unkept = unkept.filter(is_unkept).collect();
        let history = History::until(start.position.step, metrics, &config);
        let changed = config != before;
        let tokenizer = start.tokenizer.clone();
        let start = Some(start);
        Ok(Self { run, config, task, start, tokenizer, history, unkept, changed, lock })
    }

    /// Returns the run.
    pub fn run(&self) -> &RunDir {
        &self.run
    }

    /// Returns its settings.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// Returns the number of steps taken so far.
    pub fn step(&self) -> u64 {
        self.start.as_ref().map_or(self.config.steps, |start| start.position.step)
    }

    /// Returns how the run ended, if nothing is left to do.
    pub fn ended(&self) -> Option<End> {
        self.history.ended(self.step(), &self.config)
    }

    /// Returns the lock, so that the caller can hold it after training.
    pub fn into_lock(self) -> Lock {
        self.lock
    }

    /// Returns whether every split was fully right often enough.
    pub fn is_perfect(&self) -> bool {
        self.history.is_perfect(&self.config)
    }

    /// Returns whether the model of this step still has to be evaluated.
    pub fn is_evaluation_due(&self, step: u64) -> bool {
        self.history.is_evaluation_due(step, &self.config)
    }

    /// Resets the files to the step from which the run continues, and returns the trainer. This is
    /// the first write of a resumed run.
    pub fn begin(&mut self, observer: &mut dyn Observer) -> Result<Trainer, LabError> {
        let Some(start) = self.start.take() else {
            unreachable!("a session is trained only once");
        };
        self.run.remove_unfinished()?;
        self.run.forget_failure()?;
        self.run.forget_after(start.position.step)?;
        self.prune(start.position.step, observer);
        if self.changed {
            self.run.write_config(&self.config)?;
        }
        let source = Source { task: self.task.clone(), config: self.config.clone() };
        Ok(Trainer::ahead(start, source))
    }

    /// Records a step. Writes a checkpoint if one is due or `now` is set.
    pub fn record(
        &self,
        trainer: &Trainer,
        step: &StepRecord,
        now: bool,
        observer: &mut dyn Observer,
    ) -> Result<(), LabError> {
        self.run.append_metrics(&[Metric::Step(step.clone())])?;
        let due = self.config.is_saved_at(step.step) || self.is_evaluation_due(step.step);
        if due || now {
            self.save(trainer, observer)?;
        }
        Ok(())
    }

    /// Writes a checkpoint and removes old ones.
    fn save(&self, trainer: &Trainer, observer: &mut dyn Observer) -> Result<(), LabError> {
        self.run.sync_metrics()?;
        self.run.save(&Snapshot {
            decoder: trainer.decoder(),
            optimizer: trainer.optimizer(),
            position: trainer.progress(),
            tokenizer: self.tokenizer.as_deref(),
            settings: &self.config,
        })?;
        self.prune(trainer.progress().step, observer);
        Ok(())
    }

    /// Records how long the training took, after `step` steps. A failure is only a warning.
    pub(crate) fn finish(&mut self, step: u64, pace: &Pace, observer: &mut dyn Observer) {
        self.keep_evaluations(observer);
        let timing = self.run.append_timing(&serde_json::json!({
            "step": step, "seconds": pace.seconds, "outside": pace.outside,
            "tokens_per_second": pace.tokens_per_second(),
        }));
        if let Err(error) = timing {
            observer.warn(error.to_string());
        }
    }

    fn prune(&self, step: u64, observer: &mut dyn Observer) {
        let best = self.history.standing.best.map(|best| best.step);
        if let Err(error) = self.run.prune(step, best, &self.config) {
            observer.warn(format!("an old checkpoint could not be removed: {error}"));
        }
    }

    /// Writes the evaluations to `eval.json`. A failure is only a warning: they are in
    /// `metrics.jsonl`, and writing is tried again after the next evaluation, at the end, and on
    /// resume.
    pub(crate) fn keep_evaluations(&mut self, observer: &mut dyn Observer) {
        while let Some(EvaluationRecord { step, results }) = self.unkept.first().cloned() {
            if let Err(error) = self.run.add_evaluation(&Evaluation { step, results }) {
                return observer.warn(format!(
                    "the results are not in eval.json yet and will be written later: {error}"
                ));
            }
            self.unkept.remove(0);
        }
    }

    /// Evaluates a model on every split and records the results. Returns `None` if it was
    /// interrupted.
    pub fn evaluate(
        &mut self,
        trainer: &Trainer,
        interrupted: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Option<EvaluationRecord>, LabError> {
        let (step, mut results) = (trainer.progress().step, Vec::new());
        for split in self.config.eval_splits() {
            let lengths = self.config.split_lengths(&split)?;
            let sequences = self.config.eval.sequences;
            let seed = self.config.seed;
            let spec = EvalSpec { split: split.clone(), lengths, sequences, seed };
            let progress = |done| {
                observer.event(Event::Evaluating { split: split.clone(), done, of: sequences });
            };
            let (decoder, task) = (trainer.decoder(), &self.task);
            let Some(result) = evaluate(decoder, task, &spec, interrupted, progress)? else {
                return Ok(None);
            };
            results.push(result);
        }
        let record = EvaluationRecord { step, results };
        // This line completes the evaluation, so a resumed run does not repeat it.
        self.run.append_metrics(&[Metric::Evaluation(record.clone())])?;
        self.unkept.push(record.clone());
        self.keep_evaluations(observer);
        self.history.note(&record, &self.config);
        self.prune(step, observer);
        observer.event(Event::Evaluated(record.clone()));
        Ok(Some(record))
    }
}

/// Opens the task of a run. Tokenises its text first if necessary.
pub fn open_task(config: &RunConfig, observer: &mut dyn Observer) -> Result<OpenTask, LabError> {
    let opened =
        config.task.open_with(&mut |path, read, of| tokenising(path, read, of, observer))?;
    config.check_lengths(&opened)?;
    Ok(opened)
}

/// Reports the progress of tokenising a file.
pub fn tokenising(path: &Path, read: u64, of: u64, observer: &mut dyn Observer) {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let what = format!("tokenising {name}");
    observer.event(Event::Progress { what, done: read, of, bytes: true });
}

/// Decisions based on the evaluations of a run so far.
#[derive(Default)]
struct History {
    standing: Standing,
    /// The newest evaluated step.
    evaluated: Option<u64>,
}

impl History {
    /// Summarises the metrics up to a step.
    fn until(step: u64, metrics: Vec<Metric>, config: &RunConfig) -> Self {
        let mut history = Self::default();
        for metric in metrics.into_iter().filter(|metric| metric.step() <= step) {
            if let Metric::Evaluation(record) = metric {
                history.note(&record, config);
            }
        }
        history
    }

    fn note(&mut self, record: &EvaluationRecord, config: &RunConfig) {
        self.standing.note(record, config.measure());
        self.evaluated = Some(record.step);
    }

    fn is_perfect(&self, config: &RunConfig) -> bool {
        let wanted = config.eval.until_perfect;
        wanted > 0 && self.standing.perfect >= wanted
    }

    fn is_evaluation_due(&self, step: u64, config: &RunConfig) -> bool {
        let every = config.eval.every;
        let due = step == config.steps || (every > 0 && step.is_multiple_of(every));
        due && step > 0 && self.evaluated != Some(step)
    }

    fn ended(&self, step: u64, config: &RunConfig) -> Option<End> {
        if self.is_evaluation_due(step, config) {
            return None;
        }
        if self.is_perfect(config) {
            return Some(End::Perfect);
        }
        (step >= config.steps).then_some(End::Finished)
    }
}

/// Returns the step at which a run ended, if nothing is left to do.
pub fn ended_at(run: &RunDir, config: &RunConfig) -> Result<Option<u64>, LabError> {
    let Some(position) = run.position()? else { return Ok(None) };
    let history = History::until(position.step, run.metrics()?, config);
    Ok(history.ended(position.step, config).map(|_| position.step))
}

impl Checkpoint {
    /// Creates an untrained model and its optimizer.
    pub(crate) fn fresh(
        config: &RunConfig,
        task: &OpenTask,
        device: &Device,
    ) -> Result<Self, LabError> {
        let decoder = config.decoder(task.vocab())?.init_seeded(config.seed, device)?;
        let optimizer = Optimizer::new(&decoder, config.optimizer());
        let (tokenizer, data) =
            task.text().map(|text| (text.tokenizer.into(), text.fingerprint)).unzip();
        let position = TrainProgress { data, ..TrainProgress::default() };
        Ok(Self { decoder, optimizer, position, tokenizer, settings: None })
    }
}

/// Checks that task, model, seed and optimizer are unchanged.
fn check_kept(
    run: &RunDir,
    before: &RunConfig,
    now: &RunConfig,
    whose: &str,
) -> Result<(), LabError> {
    let parts = [
        ("task", same_task(&before.task, &now.task)),
        ("model", before.model == now.model),
        ("seed", before.seed == now.seed),
        ("optimizer", before.optimizer == now.optimizer),
    ];
    let Some((part, _)) = parts.iter().find(|(_, same)| !same) else { return Ok(()) };
    let reason = format!(
        "a resumed run keeps its task, model, seed and optimizer, but {whose} another {part}; \
         start a new run with --out"
    );
    Err(LabError::run_dir(run.path(), reason))
}

/// Returns whether two tasks are the same. Text may have moved, so `check_data` compares its
/// content instead.
fn same_task(before: &TaskSpec, now: &TaskSpec) -> bool {
    match (before, now) {
        (TaskSpec::Text(before), TaskSpec::Text(now)) => before.holdout == now.holdout,
        _ => before == now,
    }
}

/// Checks that a run without checkpoints has not yet reached the step of its first one.
fn check_lost(run: &RunDir, config: &RunConfig, metrics: &[Metric]) -> Result<(), LabError> {
    let first = (1..=config.steps).find(|step| config.is_saved_at(*step)).unwrap_or(config.steps);
    // The run may have been killed just before that checkpoint was written.
    match metrics.iter().map(Metric::step).max() {
        Some(last) if last > first => {
            let reason = format!(
                "its checkpoints are gone, although it has taken {last} steps; restore them, or \
                 start a new run with --out"
            );
            Err(LabError::run_dir(run.path(), reason))
        }
        _ => Ok(()),
    }
}
