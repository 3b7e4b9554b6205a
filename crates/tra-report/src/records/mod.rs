//! The records of a run: plain data, identical on every machine and for every thread count.

mod perplexity;

use serde::{Deserialize, Deserializer, Serialize};

pub use perplexity::*;

/// One line of `metrics.jsonl`.
///
/// It contains nothing that depends on the clock, so that two runs of the same command can be
/// compared byte by byte. Timings are in `timing.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Metric {
    /// A training step.
    Step(StepRecord),
    /// An evaluation between training steps.
    Evaluation(EvaluationRecord),
}

impl Metric {
    /// Returns the number of steps taken when the record was written.
    pub fn step(&self) -> u64 {
        match self {
            Self::Step(record) => record.step,
            Self::Evaluation(record) => record.step,
        }
    }
}

/// One training step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Steps taken, including this one.
    pub step: u64,
    /// Mean loss over the scored tokens of the step.
    pub loss: f64,
    /// Learning rate of the step.
    pub lr: f64,
    /// Norm of the gradient over all parameters, before clipping.
    pub grad_norm: f64,
    /// Tokens read so far, padding excluded.
    pub tokens: u64,
}

/// An evaluation after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRecord {
    /// Steps taken before the evaluation.
    pub step: u64,
    /// One result per split and length.
    pub results: Vec<EvalResult>,
}

impl EvaluationRecord {
    /// Returns whether every loss is finite. If one is not, the model has diverged.
    pub fn is_finite(&self) -> bool {
        self.results.iter().all(|result| result.loss.is_finite())
    }
}

/// The result of a model on one split at one length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvalResult {
    /// The split.
    pub split: String,
    /// The length, or the longest of a range.
    pub length: usize,
    /// The shortest length of the range; equal to `length` if there is one length.
    pub shortest: usize,
    /// Number of sequences drawn.
    pub sequences: u64,
    /// Share of sequences with every answer right.
    pub exact_match: f64,
    /// Its 95% interval (Wilson).
    pub exact_match_interval: [f64; 2],
    /// Number of answer tokens scored.
    pub scored: u64,
    /// Share of answer tokens that are wrong. For flip-flop this is the error per read.
    pub token_error: f64,
    /// Its 95% interval. The tokens of one sequence are not treated as independent; see
    /// [`clustered`](crate::stats::clustered).
    pub token_error_interval: [f64; 2],
    /// Mean cross-entropy of the answer tokens; NaN if the model's logits are not finite.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Its 95% interval (normal, over sequences).
    #[serde(deserialize_with = "numbers")]
    pub loss_interval: [f64; 2],
}

impl EvalResult {
    /// Identifies the test. Two results with the same key belong to the same test.
    fn key(&self) -> (&str, usize, usize, u64) {
        (&self.split, self.shortest, self.length, self.sequences)
    }
}

/// Results of one checkpoint, as `tra eval --json` prints them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Steps the model was trained for.
    pub step: u64,
    /// One result per split, length and number of sequences.
    pub results: Vec<EvalResult>,
}

impl Evaluation {
    /// Returns one result per split and length: the one with the most sequences.
    pub fn most_sequences(&self) -> Vec<EvalResult> {
        let mut kept: Vec<EvalResult> = Vec::new();
        for result in &self.results {
            let same = |r: &&mut EvalResult| {
                (&r.split, r.shortest, r.length) == (&result.split, result.shortest, result.length)
            };
            match kept.iter_mut().find(same) {
                Some(other) if other.sequences >= result.sequences => {}
                Some(other) => *other = result.clone(),
                None => kept.push(result.clone()),
            }
        }
        kept
    }
}

/// `eval.json`: the results of every tested checkpoint, by ascending step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "EvaluationsFile")]
pub struct Evaluations {
    evaluations: Vec<Evaluation>,
}

/// The current file format, or the old one with a single step.
#[derive(Deserialize)]
#[serde(untagged)]
enum EvaluationsFile {
    Steps { evaluations: Vec<Evaluation> },
    One(Evaluation),
}

impl From<EvaluationsFile> for Evaluations {
    fn from(file: EvaluationsFile) -> Self {
        let found = match file {
            EvaluationsFile::Steps { evaluations } => evaluations,
            EvaluationsFile::One(evaluation) => vec![evaluation],
        };
        let mut all = Self::default();
        found.iter().for_each(|evaluation| all.add(evaluation));
        all
    }
}

impl Evaluations {
    /// Returns the results of a step; empty if it was not tested.
    pub fn at(&self, step: u64) -> Evaluation {
        let found = self.evaluations.iter().find(|evaluation| evaluation.step == step);
        found.cloned().unwrap_or(Evaluation { step, results: Vec::new() })
    }

    /// Returns the results of the newest tested step.
    pub fn newest(&self) -> Option<&Evaluation> {
        self.evaluations.last()
    }

    /// Adds results. A result of the same test at the same step is replaced.
    pub fn add(&mut self, new: &Evaluation) {
        let place = self.evaluations.partition_point(|evaluation| evaluation.step < new.step);
        if self.evaluations.get(place).is_none_or(|evaluation| evaluation.step != new.step) {
            let empty = Evaluation { step: new.step, results: Vec::new() };
            self.evaluations.insert(place, empty);
        }
        let results = &mut self.evaluations[place].results;
        for result in &new.results {
            match results.iter_mut().find(|r| r.key() == result.key()) {
                Some(old) => *old = result.clone(),
                None => results.push(result.clone()),
            }
        }
    }

    /// Removes the results after `step`. Returns whether there were any.
    pub fn forget_after(&mut self, step: u64) -> bool {
        let before = self.evaluations.len();
        self.evaluations.retain(|evaluation| evaluation.step <= step);
        self.evaluations.len() < before
    }
}

/// All results of an experiment. Nothing in it depends on the clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentResults {
    /// Title above the table.
    pub title: String,
    /// `quick` or `paper`.
    pub scale: String,
    /// One result per run.
    pub runs: Vec<TrialResult>,
}

/// The results of one run of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// The name of the task.
    pub task: String,
    /// The name of the model.
    pub model: String,
    /// The seed.
    pub seed: u64,
    /// Every setting of the run.
    pub settings: serde_json::Value,
    /// Steps the model was trained for.
    pub step: u64,
    /// One result per test, in the order of the tests.
    pub results: Vec<EvalResult>,
}

/// Perplexities of one run of an experiment on text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextTrialResult {
    /// The name of the model.
    pub model: String,
    /// The seed.
    pub seed: u64,
    /// The measured perplexities.
    pub perplexity: Perplexity,
}

/// Reads a number, or null as NaN. JSON has no infinity and no NaN, so they are written as null.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<[f64; 2], D::Error> {
    Ok(<[Option<f64>; 2]>::deserialize(from)?.map(|x| x.unwrap_or(f64::NAN)))
}

/// Returns whether no sequence of `split` was right at some length below `shortest`, so that none
/// can be expected at `shortest`.
pub fn is_lost(results: &[EvalResult], split: &str, shortest: usize) -> bool {
    results.iter().any(|r| r.split == split && r.length < shortest && r.exact_match == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(split: &str, length: usize, sequences: u64, exact_match: f64) -> EvalResult {
        let split = split.into();
        EvalResult { split, length, sequences, exact_match, ..EvalResult::default() }
    }

    #[test]
    fn results_of_a_step_leave_those_of_others_alone() {
        let mut all = Evaluations::default();
        let one = |step, sequences, exact| Evaluation {
            step,
            results: vec![result("iid", 8, sequences, exact)],
        };
        all.add(&one(40, 64, 0.5));
        all.add(&one(20, 64, 0.1));
        all.add(&one(40, 2, 0.0));
        all.add(&one(40, 64, 0.6));
        assert_eq!(all.newest().unwrap().step, 40);
        assert_eq!(all.at(20).results[0].exact_match, 0.1);
        assert_eq!(all.at(30), Evaluation { step: 30, results: Vec::new() });
        assert_eq!(all.at(40).results.len(), 2, "another number of sequences is another spec");
        assert_eq!(all.at(40).most_sequences(), [result("iid", 8, 64, 0.6)]);
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Evaluations>(&text).unwrap(), all);
        assert!(all.forget_after(20) && !all.forget_after(20));
        assert_eq!(all.newest().unwrap().step, 20);
    }

    #[test]
    fn files_of_before_that_hold_one_step_are_read() {
        let old = Evaluation { step: 7, results: vec![result("iid", 8, 64, 1.0)] };
        let text = serde_json::to_string(&old).unwrap();
        let all: Evaluations = serde_json::from_str(&text).unwrap();
        assert_eq!(all.at(7), old);
    }

    #[test]
    fn lines_of_metrics_come_back_as_what_they_were() {
        let step = StepRecord { step: 3, loss: 0.1, lr: 1e-3, grad_norm: 2.0, tokens: 7 };
        for metric in [
            Metric::Step(step),
            Metric::Evaluation(EvaluationRecord { step: 3, results: Vec::new() }),
        ] {
            let line = serde_json::to_string(&metric).unwrap();
            assert_eq!(serde_json::from_str::<Metric>(&line).unwrap(), metric);
        }
    }
}
