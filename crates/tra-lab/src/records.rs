//! What a run writes down about itself: plain data, the same on every machine and thread count.

use serde::{Deserialize, Deserializer, Serialize};
use tra_tasks::Measure;

/// One line of `metrics.jsonl`.
///
/// It holds nothing that depends on the clock, so that two runs of one command can be compared
/// byte by byte. Timings stand in `timing.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Metric {
    /// A training step.
    Step(StepRecord),
    /// An evaluation in between.
    Evaluation(EvaluationRecord),
}

impl Metric {
    /// Steps taken when it was written.
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
    /// Steps taken, this one included.
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
    /// Steps taken before it.
    pub step: u64,
    /// One for every split and length.
    pub results: Vec<EvalResult>,
}

impl EvaluationRecord {
    /// Whether every loss is a number. Where one is not, the model has diverged.
    pub fn is_finite(&self) -> bool {
        self.results.iter().all(|result| result.loss.is_finite())
    }
}

/// How well a model does on one split at one length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvalResult {
    /// The split.
    pub split: String,
    /// The length, or the longest of a range.
    pub length: usize,
    /// The shortest length of the range; the same as `length` where there is one length.
    pub shortest: usize,
    /// How many sequences were drawn.
    pub sequences: u64,
    /// Share of sequences with every answer right.
    pub exact_match: f64,
    /// Its 95% interval (Wilson).
    pub exact_match_interval: [f64; 2],
    /// How many answer tokens were scored.
    pub scored: u64,
    /// Share of answer tokens that are wrong. For flip-flop this is the error per read.
    pub token_error: f64,
    /// Its 95% interval, in which the tokens of one sequence are not taken for independent: see
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
    /// What was asked: two results with the same key answer the same question.
    fn key(&self) -> (&str, usize, usize, u64) {
        (&self.split, self.shortest, self.length, self.sequences)
    }
}

/// Results of one checkpoint; what `tra eval --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Steps the model was trained for.
    pub step: u64,
    /// One for every split, length and number of sequences.
    pub results: Vec<EvalResult>,
}

impl Evaluation {
    /// Returns one result for every split and length: the one with the most sequences.
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

/// `eval.json`: results of every checkpoint that was tested, by ascending step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "EvaluationsFile")]
pub struct Evaluations {
    evaluations: Vec<Evaluation>,
}

/// The file as it is, or as it was when it held one step only.
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
    /// Returns the results of a step; none if it was not tested.
    pub fn at(&self, step: u64) -> Evaluation {
        let found = self.evaluations.iter().find(|evaluation| evaluation.step == step);
        found.cloned().unwrap_or(Evaluation { step, results: Vec::new() })
    }

    /// Returns the results of the newest step that was tested.
    pub fn newest(&self) -> Option<&Evaluation> {
        self.evaluations.last()
    }

    /// Adds results. One that answers the same question of the same step is replaced.
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

    /// Forgets what was found after `step`; whether there was anything.
    pub fn forget_after(&mut self, step: u64) -> bool {
        let before = self.evaluations.len();
        self.evaluations.retain(|evaluation| evaluation.step <= step);
        self.evaluations.len() < before
    }
}

/// How the evaluations during training went: all that a run decides by them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Evaluations in a row, up to the last, in which everything was right.
    pub perfect: u64,
    /// The best evaluation.
    pub best: Option<Best>,
}

/// The best evaluation of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// Its step.
    pub step: u64,
    /// Mean share of sequences with every answer right; 0 where the measure is the loss.
    pub exact_match: f64,
    /// Mean loss.
    pub loss: f64,
}

impl Standing {
    /// Where a run stands after the evaluations among `metrics`.
    pub fn of(metrics: &[Metric], measure: Measure) -> Self {
        let mut standing = Self::default();
        for metric in metrics {
            if let Metric::Evaluation(record) = metric {
                standing.note(record, measure);
            }
        }
        standing
    }

    /// Takes one more evaluation into account. One whose loss is not finite is never the best.
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
            // Short windows may be fully right by chance: text is judged by its loss alone.
            Measure::Perplexity => 0.0,
        };
        let loss = record.results.iter().map(|r| r.loss).sum::<f64>() / count;
        // Of equal shares the lower loss is better, and of equal losses the newer model.
        let better = self.best.is_none_or(|best| {
            exact_match > best.exact_match || (exact_match == best.exact_match && loss <= best.loss)
        });
        if better {
            self.best = Some(Best { step: record.step, exact_match, loss });
        }
    }
}

/// How a text is cut into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Windows that do not overlap; every token of a window is scored, the first ones with little
    /// before them.
    Chunk,
    /// Windows that move on by a stride; only what is new in a window is scored, so that every token
    /// has at least `window - stride` tokens before it, but for those of the first window.
    Sliding,
}

impl Protocol {
    /// What users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chunk => "chunk",
            Self::Sliding => "sliding",
        }
    }
}

impl std::str::FromStr for Protocol {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Chunk, Self::Sliding];
        let found = all.into_iter().find(|protocol| protocol.name() == name);
        found.ok_or_else(|| format!("{name:?} is no protocol; there are chunk and sliding"))
    }
}

/// `perplexity.json`: what was measured, by ascending step; one for every step, text and amount of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "PerplexitiesFile")]
pub struct Perplexities {
    measured: Vec<Perplexity>,
}

/// The file as it is, or as it was when it held one measurement only.
#[derive(Deserialize)]
#[serde(untagged)]
enum PerplexitiesFile {
    All { measured: Vec<Perplexity> },
    One(Perplexity),
}

impl From<PerplexitiesFile> for Perplexities {
    fn from(file: PerplexitiesFile) -> Self {
        match file {
            PerplexitiesFile::All { measured } => Self { measured },
            PerplexitiesFile::One(one) => Self { measured: vec![one] },
        }
    }
}

impl Perplexities {
    /// Returns what was measured last of the newest step.
    pub fn newest(&self) -> Option<&Perplexity> {
        self.measured.last()
    }

    /// Returns what was measured of a step, the last first.
    pub fn at(&self, step: u64) -> impl Iterator<Item = &Perplexity> {
        self.measured.iter().rev().filter(move |found| found.step == step)
    }

    /// Adds results. Those of the same step, text, protocol and window are replaced.
    pub fn add(&mut self, new: &Perplexity) {
        let key = |found: &Perplexity| (found.step, found.content.clone(), found.tokens);
        let mut all = new.clone();
        if let Some(place) = self.measured.iter().position(|old| key(old) == key(new)) {
            let old = self.measured.remove(place);
            let spec = |r: &PerplexityResult| (r.protocol.name(), r.window, r.stride);
            let kept = old.results.into_iter();
            let kept = kept.filter(|r| new.results.iter().all(|other| spec(other) != spec(r)));
            all.results.extend(kept);
            all.results.sort_by_key(spec);
        }
        let place = self.measured.partition_point(|found| found.step <= new.step);
        self.measured.insert(place, all);
    }

    /// Forgets what was found after `step`; whether there was anything.
    pub fn forget_after(&mut self, step: u64) -> bool {
        let before = self.measured.len();
        self.measured.retain(|found| found.step <= step);
        self.measured.len() < before
    }
}

/// Perplexity of one text; what `tra perplexity --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Perplexity {
    /// Steps the model was trained for; 0 where that is not known.
    pub step: u64,
    /// The text, as it was given.
    pub text: String,
    /// Another text or tokenizer has another.
    #[serde(default)]
    pub content: String,
    /// Tokens scored: all of the text, or of its beginning, but the first.
    pub tokens: u64,
    /// Bytes of their text.
    pub bytes: u64,
    /// One for every protocol and window.
    pub results: Vec<PerplexityResult>,
}

/// How surprised a model is by a text, read in windows of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerplexityResult {
    /// How the text was cut.
    pub protocol: Protocol,
    /// Tokens read at once.
    pub window: usize,
    /// By how many tokens the window moves on.
    pub stride: usize,
    /// Mean cross-entropy of a token, in nats.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Its 95% interval (normal, over blocks of consecutive tokens).
    #[serde(deserialize_with = "numbers")]
    pub loss_interval: [f64; 2],
    /// The exponential of the loss.
    #[serde(deserialize_with = "number")]
    pub perplexity: f64,
    /// Its 95% interval.
    #[serde(deserialize_with = "numbers")]
    pub perplexity_interval: [f64; 2],
    /// The loss in bits for each byte of the text, which does not depend on the tokenizer.
    #[serde(deserialize_with = "number")]
    pub bits_per_byte: f64,
    /// How the loss differs from that at another window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// The loss by how much of the window stood before a token.
    pub by_position: Vec<PositionLoss>,
}

/// The difference between two windows, token by token: much surer than the difference of their
/// intervals, for a token that is hard at one window is hard at the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The window compared with.
    pub against: usize,
    /// Mean loss less that at the other window, in nats.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Its 95% interval (normal, over blocks of consecutive tokens).
    #[serde(deserialize_with = "numbers")]
    pub loss_interval: [f64; 2],
}

/// The loss of tokens that stand alike in their windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionLoss {
    /// The fewest tokens of the window before the one predicted; at least 1.
    pub from: usize,
    /// The most.
    pub to: usize,
    /// How many tokens were scored there.
    pub tokens: u64,
    /// Their mean loss, in nats.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
}

/// JSON has no infinity and no NaN: they are written as null.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<[f64; 2], D::Error> {
    Ok(<[Option<f64>; 2]>::deserialize(from)?.map(|x| x.unwrap_or(f64::NAN)))
}

/// Whether no sequence of `split` was right at a length below `shortest`, so that none can be expected there.
pub(crate) fn is_lost(results: &[EvalResult], split: &str, shortest: usize) -> bool {
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

    #[test]
    fn what_is_no_number_is_read_back_as_none() {
        let result = PerplexityResult {
            protocol: Protocol::Sliding,
            window: 2,
            stride: 1,
            loss: 800.0,
            loss_interval: [f64::NAN, 900.0],
            perplexity: f64::INFINITY,
            perplexity_interval: [f64::NAN, f64::INFINITY],
            bits_per_byte: f64::NAN,
            change: None,
            by_position: vec![PositionLoss { from: 1, to: 1, tokens: 3, loss: f64::NAN }],
        };
        let text = serde_json::to_string(&result).unwrap();
        let back: PerplexityResult = serde_json::from_str(&text).unwrap();
        assert!(back.loss == 800.0 && back.perplexity.is_nan() && back.bits_per_byte.is_nan());
        assert!(back.loss_interval[0].is_nan() && back.loss_interval[1] == 900.0);
        assert!(text.contains("\"sliding\""));
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
