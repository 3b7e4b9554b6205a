//! Tests of an experiment's runs, and the results found so far.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use tra_tasks::OpenTask;

use super::{Grid, Scale, Selection, Trial};
use crate::error::LabError;
use crate::eval::{EvalSpec, evaluate};
use crate::observer::{Observer, counting};
use crate::records::{EvalResult, Evaluation, TrialResult, is_lost};
use crate::run_dir::RunDir;
use crate::session::ended_at;

impl Trial {
    /// Returns the tests that are left, given the results `known` after the run's last step.
    ///
    /// Lengths of a split beyond one at which no sequence was right are skipped. So are lengths for
    /// which the model has no positions.
    pub(super) fn left(
        &self,
        task: &OpenTask,
        known: &Evaluation,
    ) -> Result<Vec<&EvalSpec>, LabError> {
        let decoder = self.cell.config.decoder(task.vocab())?;
        let is_ours = |r: &&EvalResult| self.tests.iter().any(|spec| answers(r, spec));
        let known: Vec<EvalResult> = known.results.iter().filter(is_ours).cloned().collect();
        let mut left = Vec::new();
        for spec in &self.tests {
            let EvalSpec { split, lengths, seed, .. } = spec;
            let is_known = known.iter().any(|result| answers(result, spec));
            if is_known || is_lost(&known, split, lengths.from) {
                continue;
            }
            let longest = task.draw(split, (lengths.to, lengths.to), *seed, 0)?;
            if decoder.check_length(longest.tokens.len()).is_ok() {
                left.push(spec);
            }
        }
        Ok(left)
    }
}

/// Runs the missing tests of a trained run. Returns `false` if it was interrupted.
pub(super) fn test(
    trial: &Trial,
    device: &Device,
    interrupted: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<bool, LabError> {
    let run = RunDir::open(&trial.cell.path)?;
    let task = trial.cell.config.task.open()?;
    // Checked without loading the weights, because every process visits every run.
    if let Some(step) = run.steps()?.last()
        && trial.left(&task, &run.evaluations()?.at(*step))?.is_empty()
    {
        return Ok(true);
    }
    let (step, decoder) = run.newest_model(device, |text| observer.warn(text))?;
    loop {
        let known = run.evaluations()?.at(step);
        let Some(spec) = trial.left(&task, &known)?.first().copied() else { return Ok(true) };
        let what = format!("testing {} at {}", spec.split, spec.lengths);
        let progress = counting(what, spec.sequences, observer);
        let result = evaluate(&decoder, &task, spec, interrupted, progress)?;
        let Some(result) = result else { return Ok(false) };
        run.add_evaluation(&Evaluation { step, results: vec![result] })?;
    }
}

/// Returns whether a result belongs to a test.
fn answers(result: &EvalResult, spec: &EvalSpec) -> bool {
    result.split == spec.split
        && result.shortest == spec.lengths.from
        && result.length == spec.lengths.to
        && result.sequences == spec.sequences
}

/// Returns the runs of an experiment in a folder: those just `asked` for, and the others trained
/// there with the same settings and any seed.
///
/// So a table of some runs does not replace a table of all of them.
pub(super) fn in_folder(
    grid: &Grid,
    scale: Scale,
    asked: Vec<Trial>,
    out: &Path,
) -> Result<Vec<Trial>, LabError> {
    let is_asked = |trial: &Trial| asked.iter().any(|other| other.cell.path == trial.cell.path);
    let is_there = |trial: &Trial| {
        let there = RunDir::open(&trial.cell.path).and_then(|run| {
            Ok(run.config()? == trial.cell.config && ended_at(&run, &trial.cell.config)?.is_some())
        });
        there.unwrap_or(false)
    };
    // The experiment's own seeds come first, in their order.
    let mut seeds = grid.seeds.clone();
    let names =
        std::fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let seed = |name: OsString| name.to_str()?.rsplit_once("-s")?.1.parse().ok();
    let others: BTreeSet<u64> = names.filter_map(seed).collect();
    seeds.extend(others.into_iter().filter(|seed| !grid.seeds.contains(seed)));
    let mut all = grid.trials(scale, &Selection { seeds, ..Selection::default() }, out)?;
    all.retain(|trial| is_asked(trial) || is_there(trial));
    Ok(all)
}

/// Returns the results of all trained runs.
pub(super) fn found(trials: &[Trial]) -> Result<Vec<TrialResult>, LabError> {
    let mut all = Vec::new();
    for trial in trials {
        if !RunDir::exists(&trial.cell.path)? {
            continue;
        }
        let run = RunDir::open(&trial.cell.path)?;
        let config = &trial.cell.config;
        // A run may have stopped early because every split was right. A run that cannot be read is
        // already listed as failed.
        let Ok(Some(step)) = ended_at(&run, config) else { continue };
        let Evaluation { results, .. } = run.evaluations()?.at(step);
        let wanted = trial.tests.iter();
        let results: Vec<EvalResult> =
            wanted.filter_map(|spec| results.iter().find(|r| answers(r, spec)).cloned()).collect();
        if !results.is_empty() {
            let (task, model) = (trial.task.clone(), trial.model.clone());
            let settings = serde_json::to_value(config);
            let settings = settings.map_err(|error| LabError::Other(error.to_string()))?;
            let seed = config.seed;
            all.push(TrialResult { task, model, seed, settings, step, results });
        }
    }
    Ok(all)
}
