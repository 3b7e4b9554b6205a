//! Evaluation of a model on a split at any length, in bounded memory.

use std::sync::atomic::{AtomicBool, Ordering};

use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};
use rayon::prelude::*;
use tra_kernels::simd::Isa;
use tra_nn::{Decoder, Pass};
use tra_report::Measure;
use tra_tasks::{OpenTask, TaskSpec};

use crate::batch::Batch;
use crate::budget;
use crate::config::{Lengths, RunConfig};
use crate::error::LabError;
use crate::records::EvalResult;
use crate::stats::{clustered, reach_of_mean, wilson};

/// Tokens per forward pass, over all its sequences.
const TOKENS: usize = 4096;

/// Logits held at once; 16M are 64 MB.
const LOGITS: usize = 1 << 24;

/// What to evaluate.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalSpec {
    /// The split.
    pub split: String,
    /// Lengths of the sequences.
    pub lengths: Lengths,
    /// Number of sequences.
    pub sequences: u64,
    /// Seed of the draws. It must be the run's seed, so that no training sequence is drawn.
    pub seed: u64,
}

impl RunConfig {
    /// Returns the measure by which a model of the run is judged.
    pub fn measure(&self) -> Measure {
        match self.task {
            TaskSpec::Text(_) => Measure::Perplexity,
            _ => Measure::ExactMatch,
        }
    }

    /// Returns one evaluation per split and length.
    ///
    /// Without `splits`, returns every split except `train`. Without `lengths`, each split has its
    /// own.
    pub fn eval_specs(
        &self,
        splits: &[String],
        lengths: &[Lengths],
        sequences: u64,
    ) -> Result<Vec<EvalSpec>, LabError> {
        let splits = if splits.is_empty() { self.eval_splits() } else { splits.to_vec() };
        let mut specs = Vec::new();
        for split in splits {
            let own = [self.split_lengths(&split)?];
            let lengths = if lengths.is_empty() { &own[..] } else { lengths };
            specs.extend(lengths.iter().map(|lengths| EvalSpec {
                split: split.clone(),
                lengths: *lengths,
                sequences,
                seed: self.seed,
            }));
        }
        Ok(specs)
    }
}

/// Checks whether an evaluation is possible. Nothing is drawn or computed.
pub fn check(decoder: &Decoder, task: &OpenTask, spec: &EvalSpec) -> Result<(), LabError> {
    let EvalSpec { split, lengths, sequences, .. } = spec;
    task.split(split)?;
    task.check_lengths((lengths.from, lengths.to))?;
    budget::test(decoder.config(), task, *lengths, *sequences).check()
}

/// Evaluates a model. Returns `None` if `interrupted` is set meanwhile.
///
/// `progress` receives the number of sequences done after every round of batches.
pub fn evaluate(
    decoder: &Decoder,
    task: &OpenTask,
    spec: &EvalSpec,
    interrupted: &AtomicBool,
    mut progress: impl FnMut(u64),
) -> Result<Option<EvalResult>, LabError> {
    let EvalSpec { split, lengths, sequences, seed } = spec;
    check(decoder, task, spec)?;
    let decoder = decoder.valid();
    let mut tally = Tally::default();
    let mut next = 0;
    while next < *sequences {
        if interrupted.load(Ordering::SeqCst) {
            return Ok(None);
        }
        // One batch per thread, computed in parallel and counted in order.
        let mut batches = Vec::new();
        while next < *sequences && batches.len() < rayon::current_num_threads() {
            let mut samples = Vec::new();
            let mut longest = 0;
            while next < *sequences && longest * (samples.len() + 1) <= TOKENS {
                let sample = task.draw(split, (lengths.from, lengths.to), *seed, next)?;
                longest = longest.max(sample.tokens.len());
                samples.push(sample);
                next += 1;
            }
            decoder.config().check_length(longest).map_err(tra_nn::Error::from)?;
            batches.push(Batch::new(samples));
        }
        let answered: Vec<_> = batches.par_iter().map(|batch| answers(&decoder, batch)).collect();
        answered.iter().for_each(|answers| tally.add(answers));
        progress(next);
    }
    Ok(Some(tally.result(spec)))
}

#[derive(Default)]
struct Tally {
    sequences: u64,
    right: u64,
    /// Number of wrong answers and of all answers, per sequence.
    wrong: Vec<(u64, u64)>,
    /// Mean loss per sequence.
    losses: Vec<f64>,
    loss: f64,
}

impl Tally {
    fn add(&mut self, answers: &[Vec<Answer>]) {
        for of_sequence in answers {
            let wrong = of_sequence.iter().filter(|answer| !answer.right).count() as u64;
            let loss: f64 = of_sequence.iter().map(|answer| answer.loss).sum();
            self.sequences += 1;
            self.right += u64::from(wrong == 0);
            self.wrong.push((wrong, of_sequence.len() as u64));
            self.loss += loss;
            if !of_sequence.is_empty() {
                self.losses.push(loss / of_sequence.len() as f64);
            }
        }
    }

    fn result(&self, spec: &EvalSpec) -> EvalResult {
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let reach = reach_of_mean(&self.losses);
        let scored: u64 = self.wrong.iter().map(|(_, scored)| scored).sum();
        let wrong: u64 = self.wrong.iter().map(|(wrong, _)| wrong).sum();
        let loss = self.loss / scored.max(1) as f64;
        EvalResult {
            split: spec.split.clone(),
            length: spec.lengths.to,
            shortest: spec.lengths.from,
            sequences: self.sequences,
            exact_match: share(self.right, self.sequences),
            exact_match_interval: wilson(self.right, self.sequences),
            scored,
            token_error: share(wrong, scored),
            token_error_interval: clustered(&self.wrong),
            loss,
            loss_interval: [loss - reach, loss + reach],
        }
    }
}

/// Prediction of one scored token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Whether the true token was the most likely one.
    pub right: bool,
    /// Cross-entropy of the true token.
    pub loss: f64,
}

/// Returns the answers of every sequence of a batch.
///
/// Greedy decoding is right exactly if every token is the most likely one after the true tokens
/// before it. So one pass over the true sequence is enough.
pub fn answers(decoder: &Decoder, batch: &Batch) -> Vec<Vec<Answer>> {
    let mut all = vec![Vec::new(); batch.tokens.len()];
    read(decoder, batch, &mut |from, hidden| {
        let [sequences, count, _] = hidden.dims();
        let (mut rows, mut targets, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        for sequence in 0..sequences {
            for at in 0..count {
                let next = from + at + 1;
                if batch.scored[sequence].get(next) == Some(&true) {
                    rows.push(sequence * count + at);
                    targets.push(batch.tokens[sequence][next]);
                    owners.push(sequence);
                }
            }
        }
        let scored = score(decoder, hidden, &rows, &targets);
        owners.into_iter().zip(scored).for_each(|(sequence, answer)| all[sequence].push(answer));
    });
    all
}

/// Reads a batch and calls `each` with the start of every piece and its hidden states.
///
/// Long sequences pass through the cache in pieces, so that no length x length matrix is ever held.
pub(crate) fn read(decoder: &Decoder, batch: &Batch, each: &mut dyn FnMut(usize, Tensor<3>)) {
    let length = batch.length();
    let piece = decoder.chunk_len(batch.tokens.len(), length);
    let mut cache = decoder.new_cache();
    let mut from = 0;
    while from < length {
        let to = (from + piece).min(length);
        let whole = from == 0 && to == length;
        let pass = if whole { Pass::eval() } else { Pass::cached(&mut cache) };
        each(from, decoder.hidden(batch.tensor(from, to, decoder), pass));
        from = to;
    }
}

/// Scores the target token at each of some `rows` of the hidden states, counted over all sequences.
///
/// Logits are computed for a few rows at a time, because with a large vocabulary they would be by
/// far the largest tensor.
pub(crate) fn score(
    decoder: &Decoder,
    hidden: Tensor<3>,
    rows: &[usize],
    targets: &[u32],
) -> Vec<Answer> {
    let [sequences, count, width] = hidden.dims();
    let vocab = decoder.config().vocab;
    let hidden = hidden.reshape([sequences * count, width]);
    let at_once = (LOGITS / vocab).max(1);
    let mut all = Vec::with_capacity(rows.len());
    for (rows, targets) in rows.chunks(at_once).zip(targets.chunks(at_once)) {
        let indices: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
        let indices = TensorData::new(indices, [rows.len()]);
        let indices = Tensor::<1, Int>::from_data(indices, &hidden.device());
        let picked = hidden.clone().select(0, indices).reshape([1, rows.len(), width]);
        let logits = decoder.logits(picked).into_data_as::<f32>();
        let Ok(logits) = logits.as_slice::<f32>() else {
            unreachable!("the logits were converted to f32")
        };
        let scored = tra_kernels::loss::score(Isa::best(), logits, vocab, targets);
        all.extend(scored.into_iter().map(|(loss, right)| Answer { right, loss }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::cross_entropy;
    use burn::tensor::Device;
    use tra_nn::DecoderConfig;
    use tra_nn::attention::{AnyAttentionConfig, LearnedConfig, mechanisms};

    fn flipflop() -> OpenTask {
        "flipflop".parse::<TaskSpec>().unwrap().open().unwrap()
    }

    /// One pass and pieces through the cache return the same answers.
    #[test]
    fn long_sequences_in_pieces_give_the_same_answers() {
        let device = Device::flex();
        let task = flipflop();
        let samples = (0..2).map(|i| task.draw("iid", (1200, 1200), 1, i).unwrap());
        let batch = Batch::new(samples.collect());
        for mechanism in mechanisms() {
            let name = mechanism.name;
            let attention = match mechanism.config() {
                AnyAttentionConfig::Learned(c) => c.with_count(1200).into(),
                other => other,
            };
            let config = DecoderConfig::new(6, 1, 8, 2).with_attention(attention);
            let decoder = config.init_seeded(1, &device).unwrap();
            let pieces = answers(&decoder, &batch);
            let logits = decoder.forward(batch.tensor(0, 1200, &decoder), Pass::eval());
            let (sum, count) = cross_entropy(logits, &batch.tokens, &batch.scored).unwrap();
            assert_eq!(pieces.iter().map(Vec::len).sum::<usize>(), count);
            let mean = pieces.iter().flatten().map(|a| a.loss).sum::<f64>() / count as f64;
            let whole = f64::from(sum.into_scalar::<f32>()) / count as f64;
            assert!((mean - whole).abs() < 1e-4, "{name}: {mean} {whole}");
        }
    }

    #[test]
    fn more_tokens_than_learned_positions_are_an_error() {
        let learned = LearnedConfig::default().with_count(100);
        let config = DecoderConfig::new(6, 1, 8, 2).with_attention(learned);
        let decoder = config.init_seeded(1, &Device::flex()).unwrap();
        let ask = |length| {
            let lengths = Lengths { from: length, to: length };
            let spec = EvalSpec { split: "iid".into(), lengths, sequences: 2, seed: 1 };
            evaluate(&decoder, &flipflop(), &spec, &AtomicBool::new(false), |_| {})
        };
        assert!(ask(100).is_ok());
        let error = ask(102).unwrap_err().to_string();
        assert!(error.contains("102 tokens") && error.contains("100 positions"), "{error}");
    }

    #[test]
    fn an_interrupt_is_seen_between_batches() {
        let decoder = DecoderConfig::new(6, 1, 8, 2).init_seeded(1, &Device::flex()).unwrap();
        let lengths = Lengths { from: 64, to: 64 };
        let spec = EvalSpec { split: "iid".into(), lengths, sequences: 10_000, seed: 1 };
        let interrupted = AtomicBool::new(false);
        let mut batches = 0;
        let result = evaluate(&decoder, &flipflop(), &spec, &interrupted, |_| {
            batches += 1;
            interrupted.store(true, Ordering::SeqCst);
        });
        assert_eq!((result.unwrap(), batches), (None, 1));
    }

    /// An untrained model always predicts the same tokens.
    #[test]
    fn an_untrained_model_is_at_chance() {
        let device = Device::flex();
        let decoder = DecoderConfig::new(6, 1, 8, 2).init_seeded(1, &device).unwrap();
        let spec = EvalSpec {
            split: "dense".into(),
            lengths: Lengths { from: 64, to: 64 },
            sequences: 100,
            seed: 1,
        };
        let mut seen = 0;
        let interrupted = AtomicBool::new(false);
        let result = evaluate(&decoder, &flipflop(), &spec, &interrupted, |n| seen = n);
        let result = result.unwrap().unwrap();
        assert_eq!((result.sequences, seen), (100, 100));
        assert!(result.exact_match < 0.1);
        assert!(result.token_error > 0.3, "{result:?}");
        let [low, high] = result.token_error_interval;
        assert!(low < result.token_error && result.token_error < high);
        assert!(result.loss > 1.0 && result.loss_interval[0] < result.loss);
    }
}
