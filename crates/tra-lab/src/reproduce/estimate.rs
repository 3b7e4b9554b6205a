//! Time estimate of an experiment, from a few steps and passes of every model.

use std::collections::BTreeMap;
use std::time::Instant;

use burn::tensor::Device;
use tra_nn::Pass;
use tra_tasks::OpenTask;

use super::Trial;
use crate::batch::Batch;
use crate::error::LabError;
use crate::eval::EvalSpec;
use crate::observer::Silent;
use crate::records::Evaluation;
use crate::run_dir::RunDir;
use crate::session::ended_at;
use crate::train::forecast;

/// The work that is left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Number of runs that are not fully trained.
    pub runs: usize,
    /// Number of tests that are left.
    pub tests: usize,
    /// Seconds per unfinished run: for training, and for testing at every length.
    pub seconds: Vec<[f64; 2]>,
}

impl Estimate {
    /// Returns the seconds until everything is done with `jobs` runs at a time, and the fraction of
    /// that time for tests.
    ///
    /// Each run starts when another one has finished.
    pub fn side_by_side(&self, jobs: usize) -> (f64, f64) {
        let mut ends = vec![0.0; jobs.max(1)];
        for [training, testing] in &self.seconds {
            ends.sort_by(f64::total_cmp);
            ends[0] += training + testing;
        }
        let testing: f64 = self.seconds.iter().map(|[_, testing]| testing).sum();
        let all: f64 = self.seconds.iter().flatten().sum();
        (ends.into_iter().fold(0.0, f64::max), if all > 0.0 { testing / all } else { 0.0 })
    }
}

/// Lengths in tokens at which a pass is measured. The time has a linear and a quadratic part.
const TRIED: [usize; 2] = [512, 2048];

/// Seconds per training step, per token of a pass, and per pair of tokens of a pass.
#[derive(Clone, Copy)]
struct Speed {
    step: f64,
    token: f64,
    pair: f64,
}

/// Returns the steps and the tests of a run that are left.
fn left<'a>(trial: &'a Trial, task: &OpenTask) -> Result<(u64, Vec<&'a EvalSpec>), LabError> {
    let config = &trial.cell.config;
    let (mut steps, mut known) = (config.steps, Evaluation::default());
    let state = |run: &RunDir| -> Result<_, LabError> {
        let ended = match ended_at(run, config)? {
            Some(step) => Some(run.evaluations()?.at(step)),
            None => None,
        };
        Ok((run.position()?.map_or(0, |position| position.step), ended))
    };
    // A run that cannot be read counts as not started. Training it will report the error.
    if let Ok((taken, ended)) = RunDir::open(&trial.cell.path).and_then(|run| state(&run)) {
        steps -= taken.min(steps);
        if let Some(evaluation) = ended {
            (steps, known) = (0, evaluation);
        }
    }
    Ok((steps, trial.left(task, &known)?))
}

/// Returns how many runs have something left to do.
pub(super) fn unfinished(trials: &[Trial]) -> Result<usize, LabError> {
    let mut count = 0;
    for trial in trials {
        let (steps, tests) = left(trial, &trial.cell.config.task.open()?)?;
        count += usize::from(steps > 0 || !tests.is_empty());
    }
    Ok(count)
}

/// Measures every model that has something left to do.
pub fn estimate(trials: &[Trial], device: &Device) -> Result<Estimate, LabError> {
    let mut speeds: BTreeMap<(&str, &str), Speed> = BTreeMap::new();
    let mut estimate = Estimate::default();
    for trial in trials {
        let config = &trial.cell.config;
        let task = config.task.open()?;
        let (steps, tests) = left(trial, &task)?;
        if steps == 0 && tests.is_empty() {
            continue;
        }
        let key = (trial.task.as_str(), trial.model.as_str());
        let speed = match speeds.get(&key) {
            Some(speed) => *speed,
            None => *speeds.entry(key).or_insert(measure(trial, &task, device)?),
        };
        estimate.runs += usize::from(steps > 0);
        estimate.tests += tests.len();
        let mut testing = 0.0;
        for spec in tests {
            let middle = (spec.lengths.from + spec.lengths.to) / 2;
            let middle = if task.check_length(middle).is_ok() { middle } else { spec.lengths.to };
            let sample = task.draw(&spec.split, (middle, middle), spec.seed, 0)?;
            let tokens = sample.tokens.len() as f64;
            let pass = tokens * speed.token + tokens * tokens * speed.pair;
            testing += spec.sequences as f64 * pass;
        }
        estimate.seconds.push([speed.step * steps as f64, testing]);
    }
    Ok(estimate)
}

fn measure(trial: &Trial, task: &OpenTask, device: &Device) -> Result<Speed, LabError> {
    let config = &trial.cell.config;
    let step = forecast(config, task, device, 3, &mut Silent)?.seconds_a_step;
    let decoder = config.decoder(task.vocab())?.init_seeded(config.seed, device)?;
    let mut seconds = [0.0; 2];
    for (seconds, length) in seconds.iter_mut().zip(TRIED) {
        let length = length.min(decoder.config().limit().unwrap_or(length));
        let tokens = vec![vec![1; length]];
        let batch = Batch { scored: vec![vec![false; length]], lengths: vec![length], tokens };
        let pass = || {
            let begin = Instant::now();
            let tokens = batch.tensor(0, length, &decoder);
            decoder.hidden(tokens, Pass::eval()).into_data();
            begin.elapsed().as_secs_f64()
        };
        pass();
        *seconds = pass() / length as f64;
    }
    let [short, long] = TRIED.map(|length| length as f64);
    let pair = ((seconds[1] - seconds[0]) / (long - short)).max(0.0);
    Ok(Speed { step, token: (seconds[0] - pair * short).max(0.0), pair })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_side_by_side_end_with_the_longest() {
        let seconds = vec![[3.0, 1.0], [2.0, 0.0], [2.0, 0.0], [6.0, 2.0]];
        let estimate = Estimate { runs: 4, tests: 2, seconds };
        let (all, share) = estimate.side_by_side(1);
        assert_eq!((all, share), (16.0, 3.0 / 16.0));
        // 4, then 8; 2, then 2.
        assert_eq!(estimate.side_by_side(2).0, 12.0);
        assert_eq!(estimate.side_by_side(9).0, 8.0);
        assert_eq!(Estimate::default().side_by_side(2), (0.0, 0.0));
    }
}
