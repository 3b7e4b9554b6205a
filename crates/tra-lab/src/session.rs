//! The life of a run: created or resumed under its lock, trained, evaluated, and left resumable.
//!
//! A session refuses before it writes. Everything that can be wrong with a new or a resumed run is
//! checked in [`Session::create`] and [`Session::resume`], and a refused resume leaves every file as
//! it was.
//!
//! The order of writing makes a run the same wherever it is stopped: metrics, then the checkpoint,
//! then the evaluation. A checkpoint at whose step an evaluation is due and not yet in
//! `metrics.jsonl` is evaluated first when the run is resumed.

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

/// A run at work. Nobody else trains in its directory while it lives.
pub struct Session {
    run: RunDir,
    config: RunConfig,
    task: OpenTask,
    start: Option<Checkpoint>,
    /// All it takes to make the tokenizer again, where the run learns from text.
    tokenizer: Option<Arc<str>>,
    history: History,
    /// Evaluations that are in `metrics.jsonl` and not yet in `eval.json`.
    unkept: Vec<EvaluationRecord>,
    /// Whether the settings are other than those of `config.toml`.
    changed: bool,
    lock: Lock,
}

impl Session {
    /// Begins a run in `path`, or goes on with the one there. Opens its task and takes its lock.
    pub fn start(
        path: &Path,
        config: RunConfig,
        device: &Device,
        observer: &mut dyn Observer,
    ) -> Result<Self, LabError> {
        let task = open_task(&config, observer)?;
        Self::start_locked(path, RunDir::lock(path)?, config, task, device, observer)
    }

    /// Like [`start`](Self::start), with a lock that the caller has taken and a task it has opened.
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

    /// Begins a new run in `path`, whose lock the caller has taken.
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

    /// Goes on with a run, whose lock the caller has taken. `config` is what its settings are from now
    /// on; task, model, seed and optimizer must be those it was begun with.
    pub fn resume(
        run: RunDir,
        lock: Lock,
        config: RunConfig,
        task: OpenTask,
        device: &Device,
        observer: &mut dyn Observer,
    ) -> Result<Self, LabError> {
        let before = run.config()?;
        check_kept(&run, &before, &config, "the run was begun with")?;
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

    /// The run.
    pub fn run(&self) -> &RunDir {
        &self.run
    }

    /// Its settings.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// Steps taken so far.
    pub fn step(&self) -> u64 {
        self.start.as_ref().map_or(self.config.steps, |start| start.position.step)
    }

    /// How the run has ended, if nothing is left to do.
    pub fn ended(&self) -> Option<End> {
        self.history.ended(self.step(), &self.config)
    }

    /// Gives the lock back, to be held for what comes after training.
    pub fn into_lock(self) -> Lock {
        self.lock
    }

    /// Whether every split was fully right often enough.
    pub fn is_perfect(&self) -> bool {
        self.history.is_perfect(&self.config)
    }

    /// Whether a model of this step is to be evaluated and has not been.
    pub fn is_evaluation_due(&self, step: u64) -> bool {
        self.history.is_evaluation_due(step, &self.config)
    }

    /// Makes the files what they were at the step the run goes on from, which is the first thing that is
    /// written, and returns what trains the model from there.
    pub fn begin(&mut self, observer: &mut dyn Observer) -> Result<Trainer, LabError> {
        let Some(start) = self.start.take() else {
            unreachable!("a session is trained once");
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

    /// Records a step, and writes a checkpoint if one is due or `now` says so.
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

    /// Writes a checkpoint and removes those that are no longer wanted.
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

    /// Notes how long the training took, after `step` steps. A failure is no reason to stop.
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
            observer.warn(format!("an old checkpoint is still there: {error}"));
        }
    }

    /// Puts the evaluations into `eval.json`. A failure ends nothing: they are in `metrics.jsonl`, and they
    /// are tried again after the next one, at the end, and when the run is resumed.
    pub(crate) fn keep_evaluations(&mut self, observer: &mut dyn Observer) {
        while let Some(EvaluationRecord { step, results }) = self.unkept.first().cloned() {
            if let Err(error) = self.run.add_evaluation(&Evaluation { step, results }) {
                return observer.warn(format!("the results are not in eval.json yet: {error}"));
            }
            self.unkept.remove(0);
        }
    }

    /// Tests a model on every split and records the results; `None` if it was interrupted.
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
        // With this line the evaluation has happened, and a resumed run does not repeat it.
        self.run.append_metrics(&[Metric::Evaluation(record.clone())])?;
        self.unkept.push(record.clone());
        self.keep_evaluations(observer);
        self.history.note(&record, &self.config);
        self.prune(step, observer);
        observer.event(Event::Evaluated(record.clone()));
        Ok(Some(record))
    }
}

/// Opens what a run learns. A text that is not tokenised yet is tokenised first.
pub fn open_task(config: &RunConfig, observer: &mut dyn Observer) -> Result<OpenTask, LabError> {
    let opened =
        config.task.open_with(&mut |path, read, of| tokenising(path, read, of, observer))?;
    config.check_lengths(&opened)?;
    Ok(opened)
}

/// Tells how far the tokenising of a file has come.
pub fn tokenising(path: &Path, read: u64, of: u64, observer: &mut dyn Observer) {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let what = format!("tokenising {name}");
    observer.event(Event::Progress { what, done: read, of, bytes: true });
}

/// What the evaluations of a run so far decide.
#[derive(Default)]
struct History {
    standing: Standing,
    /// The newest step that was evaluated.
    evaluated: Option<u64>,
}

impl History {
    /// What the metrics up to a step tell.
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

/// Returns the step at which a run has ended, if nothing is left to do.
pub fn ended_at(run: &RunDir, config: &RunConfig) -> Result<Option<u64>, LabError> {
    let Some(position) = run.position()? else { return Ok(None) };
    let history = History::until(position.step, run.metrics()?, config);
    Ok(history.ended(position.step, config).map(|_| position.step))
}

impl Checkpoint {
    /// A model that has learned nothing yet.
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

/// Refuses to go on with another task, model, seed or optimizer than before.
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
        "a resumed run keeps its task, model, seed and optimizer, and {whose} another {part}; start \
         another run with --out"
    );
    Err(LabError::run_dir(run.path(), reason))
}

/// Text may have moved: whether it is the same is told by its content.
fn same_task(before: &TaskSpec, now: &TaskSpec) -> bool {
    match (before, now) {
        (TaskSpec::Text(before), TaskSpec::Text(now)) => before.holdout == now.holdout,
        _ => before == now,
    }
}

/// Refuses to begin anew where there must have been a checkpoint.
fn check_lost(run: &RunDir, config: &RunConfig, metrics: &[Metric]) -> Result<(), LabError> {
    let first = (1..=config.steps).find(|step| config.is_saved_at(*step)).unwrap_or(config.steps);
    // At that step itself the run may have been killed before its checkpoint was written.
    match metrics.iter().map(Metric::step).max() {
        Some(last) if last > first => {
            let reason = format!(
                "its checkpoints are gone, though it has taken {last} steps; restore them, or start \
                 another run with --out"
            );
            Err(LabError::run_dir(run.path(), reason))
        }
        _ => Ok(()),
    }
}
