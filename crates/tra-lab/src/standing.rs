//! Decisions based on a run's evaluations: which checkpoint is best, and when to stop early.

use tra_report::Measure;
use tra_report::records::{EvaluationRecord, Metric};

/// Summary of the evaluations during training: everything that a run's decisions depend on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Number of latest evaluations in a row with every sequence right.
    pub perfect: u64,
    /// The best evaluation.
    pub best: Option<Best>,
}

/// The best evaluation of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// The evaluated step.
    pub step: u64,
    /// Mean fraction of sequences with every answer right; 0 where the measure is the loss.
    pub exact_match: f64,
    /// Mean loss.
    pub loss: f64,
}

impl Standing {
    /// Summarises the evaluations among `metrics`.
    pub fn of(metrics: &[Metric], measure: Measure) -> Self {
        let mut standing = Self::default();
        for metric in metrics {
            if let Metric::Evaluation(record) = metric {
                standing.note(record, measure);
            }
        }
        standing
    }

    /// Adds an evaluation. One whose loss is not finite is never the best.
    pub fn note(&mut self, record: &EvaluationRecord, measure: Measure) {
        let finite = record.is_finite();
        let exact = record.results.iter().map(|r| r.exact_match);
        let perfect = finite && !record.results.is_empty() && exact.clone().all(|e| e == 1.0);
        self.perfect = if perfect { self.perfect + 1 } else { 0 };
        if !finite {
            return;
        }
        let count = record.results.len().max(1) as f64;
        let exact_match = match measure {
            Measure::ExactMatch => exact.sum::<f64>() / count,
            // Short windows may be fully right by chance, so text is judged by its loss alone.
            Measure::Perplexity => 0.0,
        };
        let loss = record.results.iter().map(|r| r.loss).sum::<f64>() / count;
        // Ties go to the lower loss, and then to the newer model.
        let better = self.best.is_none_or(|best| {
            exact_match > best.exact_match || (exact_match == best.exact_match && loss <= best.loss)
        });
        if better {
            self.best = Some(Best { step: record.step, exact_match, loss });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tra_report::records::EvalResult;

    fn result(split: &str, length: usize, sequences: u64, exact_match: f64) -> EvalResult {
        let split = split.into();
        EvalResult { split, length, sequences, exact_match, ..EvalResult::default() }
    }

    #[test]
    fn a_loss_that_is_no_number_is_read_back_and_never_the_best() {
        let record = |step, loss, exact_match| EvaluationRecord {
            step,
            results: vec![EvalResult {
                loss,
                loss_interval: [loss; 2],
                ..result("iid", 8, 64, exact_match)
            }],
        };
        let line = serde_json::to_string(&Metric::Evaluation(record(1, f64::NAN, 1.0))).unwrap();
        let Metric::Evaluation(back) = serde_json::from_str(&line).unwrap() else {
            panic!("it is an evaluation")
        };
        assert!(back.results[0].loss.is_nan() && !back.is_finite());
        let mut standing = Standing::default();
        standing.note(&back, Measure::ExactMatch);
        assert_eq!(standing, Standing::default());
        standing.note(&record(2, 1.0, 0.1), Measure::ExactMatch);
        standing.note(&record(3, f64::INFINITY, 1.0), Measure::ExactMatch);
        assert_eq!(standing.best.unwrap().step, 2);
    }

    #[test]
    fn the_newest_of_equally_good_evaluations_is_the_best() {
        let record =
            |step, exact| EvaluationRecord { step, results: vec![result("iid", 8, 1, exact)] };
        let mut standing = Standing::default();
        let mut best = |step, exact| {
            standing.note(&record(step, exact), Measure::ExactMatch);
            (standing.best.unwrap().step, standing.perfect)
        };
        assert_eq!(best(1, 0.5), (1, 0));
        assert_eq!(best(2, 0.4), (1, 0));
        assert_eq!(best(3, 1.0), (3, 1));
        assert_eq!(best(4, 1.0), (4, 2));
        assert_eq!(best(5, 0.9), (4, 0));
    }

    #[test]
    fn of_text_the_lower_loss_is_the_best() {
        let mut standing = Standing::default();
        let mut best = |step, loss, exact| {
            let results = vec![EvalResult { loss, ..result("valid", 8, 1, exact) }];
            standing.note(&EvaluationRecord { step, results }, Measure::Perplexity);
            standing.best.unwrap().step
        };
        assert_eq!((best(1, 5.0, 0.0), best(2, 4.0, 0.0)), (1, 2));
        assert_eq!(best(3, 4.5, 0.9), 2, "right by chance");
    }
}
