//! Testing the runs of an experiment, and reading what was found.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::Device;
use serde::Serialize;
use tra_tasks::draw;

use super::Trial;
use crate::error::LabError;
use crate::eval::{Question, evaluate};
use crate::records::{EvalResult, Evaluation};
use crate::run_dir::RunDir;

/// Everything an experiment found; nothing in it depends on the clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// What stands above the table.
    pub title: String,
    /// `quick` or `paper`.
    pub scale: String,
    /// One for every run.
    pub runs: Vec<Found>,
}

/// What was found of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The name of the task.
    pub task: String,
    /// The name of the model.
    pub model: String,
    /// The seed.
    pub seed: u64,
    /// Every setting of the run.
    pub settings: crate::config::RunConfig,
    /// Steps it was trained for.
    pub step: u64,
    /// What was tested, in the order of the tests.
    pub results: Vec<EvalResult>,
}

/// Tests a trained run on what it was not tested on yet; whether it came to the end.
///
/// Of a split, lengths after one at which no sequence was right are left out, and so are those for which a
/// model has no positions.
pub fn test(
    trial: &Trial,
    device: &Device,
    interrupted: &AtomicBool,
    mut progress: impl FnMut(&Question, u64),
    warn: impl FnMut(String),
) -> Result<bool, LabError> {
    let run = RunDir::open(&trial.cell.path)?;
    let (step, decoder) = run.newest_model(device, warn)?;
    let task = trial.cell.config.task.build()?;
    // Of each split, a length at which no sequence was right.
    let mut lost: BTreeMap<&str, usize> = BTreeMap::new();
    for question in &trial.tests {
        let Question { split, lengths, seed, .. } = question;
        if lost.get(split.as_str()).is_some_and(|length| lengths.from > *length) {
            continue;
        }
        let known = run.evaluation()?;
        let before = known.results.iter().find(|r| known.step == step && answers(r, question));
        let result = match before {
            Some(result) => result.clone(),
            None => {
                if interrupted.load(Ordering::SeqCst) {
                    return Ok(false);
                }
                let longest = draw(task.as_ref(), split, (lengths.to, lengths.to), *seed, 0)?;
                if decoder.config().check_length(longest.tokens.len()).is_err() {
                    continue;
                }
                let done = |done| progress(question, done);
                let result = evaluate(&decoder, task.as_ref(), question, done)?;
                run.merge_evaluation(&Evaluation { step, results: vec![result.clone()] })?;
                result
            }
        };
        if result.exact_match == 0.0 {
            lost.insert(split, lengths.to);
        }
    }
    Ok(true)
}

/// Whether a result is the answer to a question.
fn answers(result: &EvalResult, question: &Question) -> bool {
    result.split == question.split
        && result.shortest == question.lengths.from
        && result.length == question.lengths.to
        && result.sequences == question.sequences
}

/// What was found so far of runs that are trained; the others are left out.
pub fn found(trials: &[Trial]) -> Result<Vec<Found>, LabError> {
    let mut all = Vec::new();
    for trial in trials {
        let Ok(run) = RunDir::open(&trial.cell.path) else { continue };
        let config = &trial.cell.config;
        let Evaluation { step, results } = run.evaluation()?;
        if step != config.steps {
            continue;
        }
        let wanted = trial.tests.iter();
        let results: Vec<EvalResult> = wanted
            .filter_map(|question| results.iter().find(|r| answers(r, question)).cloned())
            .collect();
        if !results.is_empty() {
            let (task, model) = (trial.task.clone(), trial.model.clone());
            let (seed, settings) = (config.seed, config.clone());
            all.push(Found { task, model, seed, settings, step, results });
        }
    }
    Ok(all)
}
