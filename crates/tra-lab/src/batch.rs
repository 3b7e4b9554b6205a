//! Batches from samples, prepared ahead of time on another thread. The only place where tokens
//! become tensors.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

use burn::tensor::{Int, Tensor, TensorData};
use tra_nn::Decoder;
use tra_random::Stream;
use tra_tasks::{OpenTask, PAD, Sample, TaskError};

use crate::config::RunConfig;
use crate::error::LabError;

/// Sequences of one forward pass, padded at the end to the same length.
///
/// Attention is causal and padding is never scored, so padding cannot change a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Tokens; all rows have the same length.
    pub tokens: Vec<Vec<u32>>,
    /// Which tokens are scored.
    pub scored: Vec<Vec<bool>>,
    /// Length of each sequence without padding.
    pub lengths: Vec<usize>,
}

impl Batch {
    /// Pads samples to the length of the longest.
    pub fn new(samples: Vec<Sample>) -> Self {
        let longest = samples.iter().map(|s| s.tokens.len()).max().unwrap_or(0);
        let lengths = samples.iter().map(|s| s.tokens.len()).collect();
        let (mut tokens, mut scored) = (Vec::new(), Vec::new());
        for mut sample in samples {
            sample.tokens.resize(longest, PAD);
            sample.scored.resize(longest, false);
            tokens.push(sample.tokens);
            scored.push(sample.scored);
        }
        Self { tokens, scored, lengths }
    }

    /// Splits the batch into at most `parts` batches of nearly equal size.
    ///
    /// Each part is padded only to its own longest sequence. Sequences are sorted by length, and
    /// otherwise stay in order, so that little is padded.
    pub fn cut(&self, parts: usize) -> Vec<Self> {
        let size = self.tokens.len().div_ceil(parts.max(1)).max(1);
        let sequences = self.tokens.iter().zip(&self.scored).zip(&self.lengths);
        let samples = sequences.map(|((tokens, scored), length)| Sample {
            tokens: tokens[..*length].to_vec(),
            scored: scored[..*length].to_vec(),
        });
        let mut samples: Vec<Sample> = samples.collect();
        samples.sort_by_key(|sample| sample.tokens.len());
        samples.chunks(size).map(|part| Self::new(part.to_vec())).collect()
    }

    /// Returns the number of tokens without padding.
    pub fn token_count(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Returns the number of scored tokens.
    pub fn answers(&self) -> usize {
        self.scored.iter().flatten().filter(|scored| **scored).count()
    }

    /// Returns the padded length of the sequences.
    pub fn length(&self) -> usize {
        self.tokens.first().map_or(0, Vec::len)
    }

    /// Returns positions `from..to` of every sequence as a tensor.
    ///
    /// Tasks only use tokens of their vocabulary, so tokens are not checked here.
    pub fn tensor(&self, from: usize, to: usize, decoder: &Decoder) -> Tensor<2, Int> {
        let values: Vec<i64> =
            self.tokens.iter().flat_map(|t| t[from..to].iter().map(|x| i64::from(*x))).collect();
        let data = TensorData::new(values, [self.tokens.len(), to - from]);
        Tensor::from_data(data, &decoder.device())
    }
}

/// Source of the training data, as a function of the step.
#[derive(Clone)]
pub struct Source {
    /// The task.
    pub task: OpenTask,
    /// Settings: seed, lengths and batch sizes.
    pub config: RunConfig,
}

impl Source {
    /// Returns the batches of a step, counted from 0.
    pub fn step(&self, step: u64) -> Result<Vec<Batch>, TaskError> {
        let RunConfig { seed, accumulate, same_length, curriculum, .. } = self.config;
        let (task, lengths) = (&self.task, self.config.lengths_at(step));
        let batch = self.config.batch_at(step);
        // Every step reserves the indices of the widest batch, so that no sequence is drawn twice.
        let widest = self.config.batch * curriculum.map_or(1, |curriculum| curriculum.widen);
        let first = step * (accumulate * widest) as u64;
        let part = |part: usize| {
            let first = first + (part * batch) as u64;
            let mut lengths = (lengths.from, lengths.to);
            if same_length {
                let stream = Stream::new(seed).fork_name(task.name()).fork_name("same_length");
                let length = task.draw_length(lengths, stream.fork(first))?;
                lengths = (length, length);
            }
            let samples = (0..batch as u64).map(|i| task.draw("train", lengths, seed, first + i));
            Ok(Batch::new(samples.collect::<Result<_, _>>()?))
        };
        (0..accumulate).map(part).collect()
    }

    /// Prepares steps in order on another thread, a few ahead of the reader.
    pub fn ahead(self, steps: std::ops::Range<u64>) -> Ahead {
        let (sender, receiver) = sync_channel(4);
        let thread = thread::spawn(move || {
            for step in steps {
                // The reader is gone: training ended early.
                if sender.send(self.step(step)).is_err() {
                    return;
                }
            }
        });
        Ahead { receiver, thread: Some(thread) }
    }
}

/// Batches prepared on another thread.
pub struct Ahead {
    receiver: Receiver<Result<Vec<Batch>, TaskError>>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Returns the batches of the next step, whose number is `step`.
    ///
    /// A thread that stopped before its last step is an error, never the end of the data.
    pub fn next(&mut self, step: u64) -> Result<Vec<Batch>, LabError> {
        if let Ok(batches) = self.receiver.recv() {
            return Ok(batches?);
        }
        let panic = self.thread.take().and_then(|thread| thread.join().err());
        let message = panic.as_ref().and_then(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            text.or_else(|| panic.downcast_ref::<&str>().copied())
        });
        let message = message.unwrap_or("unknown panic").replace('\n', " ");
        Err(LabError::DataThread { step, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use tra_nn::attention::mechanisms;
    use tra_nn::{DecoderConfig, Pass};
    use tra_tasks::flipflop::FlipFlop;
    use tra_tasks::{Task, TaskInfo};

    use crate::config::Lengths;
    use crate::curriculum::Curriculum;

    fn source(accumulate: usize, batch: usize) -> Source {
        let task = "flipflop".parse().unwrap();
        let length = Some(Lengths { from: 4, to: 30 });
        let config = RunConfig { task, length, seed: 3, batch, accumulate, ..RunConfig::default() };
        Source { task: config.task.open().unwrap(), config }
    }

    #[test]
    fn same_length_pads_nothing_and_every_batch_has_a_length_of_its_own() {
        let mut source = source(2, 3);
        source.config.same_length = true;
        let batches: Vec<Batch> = (0..40).flat_map(|step| source.step(step).unwrap()).collect();
        assert!(batches.iter().all(|batch| batch.token_count() == batch.length() * 3));
        let lengths: std::collections::BTreeSet<_> = batches.iter().map(Batch::length).collect();
        assert_eq!(lengths.len(), 14, "every even length of 4..30");
    }

    #[test]
    fn a_curriculum_is_followed() {
        let mut source = source(1, 8);
        source.config.curriculum =
            Some(Curriculum { from: 6, until: 0.5, shortest: 0.0, power: 1.0, widen: 1 });
        let longest = |step| source.step(step).unwrap()[0].length();
        assert!((0..4).all(|step| longest(step) <= 6));
        assert!((50..54).any(|step| longest(step) > 20));

        let mut source = source.clone();
        source.config.curriculum =
            Some(Curriculum { from: 6, until: 0.5, shortest: 0.9, power: 1.0, widen: 1 });
        let shortest = |step| *source.step(step).unwrap()[0].lengths.iter().min().unwrap();
        assert!((0..100).all(|step| shortest(step) >= 6), "6 is the least from the start");
        assert!((50..100).all(|step| shortest(step) >= 28));

        source.config.curriculum =
            Some(Curriculum { from: 6, until: 0.5, shortest: 0.0, power: 1.0, widen: 3 });
        let steps: Vec<Batch> = (0..60).map(|step| source.step(step).unwrap().remove(0)).collect();
        assert_eq!([0, 10, 59].map(|step: usize| steps[step].tokens.len()), [24, 24, 8]);
        let all = steps.iter().flat_map(|batch| batch.tokens.iter().zip(&batch.lengths));
        let drawn: Vec<_> = all.filter(|(_, n)| **n > 16).map(|(tokens, _)| tokens).collect();
        let different: std::collections::BTreeSet<_> = drawn.iter().collect();
        assert_eq!(different.len(), drawn.len(), "no sequence is drawn twice");
    }

    #[test]
    fn steps_are_the_same_ahead_or_asked_for_and_never_repeat() {
        let source = source(2, 3);
        let mut thread = source.clone().ahead(5..9);
        let ahead: Vec<_> = (5..9).map(|step| thread.next(step).unwrap()).collect();
        assert!(thread.next(9).is_err(), "no batch after the last step");
        let asked: Vec<_> = (5..9).map(|step| source.step(step).unwrap()).collect();
        assert_eq!(ahead, asked);
        assert_ne!(asked[0], asked[1]);
        assert_ne!(asked[0][0], asked[0][1]);
    }

    /// A panicking task must not look like the end of the data.
    #[test]
    fn a_panic_on_the_data_thread_is_an_error() {
        #[derive(Clone)]
        struct Broken;
        impl Task for Broken {
            const INFO: TaskInfo = FlipFlop::INFO;
            fn symbol_count(&self) -> u32 {
                2
            }
            fn sample(&self, _: &tra_tasks::Split, _: usize, _: Stream) -> Sample {
                panic!("no sample today")
            }
        }
        let source = Source { task: OpenTask::new(Broken), ..source(1, 1) };
        let error = source.ahead(3..9).next(3).unwrap_err().to_string();
        assert!(error.contains("step 3") && error.contains("no sample today"), "{error}");
    }

    #[test]
    fn accumulated_batches_are_one_batch_cut_up() {
        let parts = source(3, 2).step(4).unwrap();
        let whole = source(1, 6).step(4).unwrap();
        let lengths = |b: &[Batch]| b.iter().map(|b| b.token_count()).sum::<usize>();
        assert_eq!(lengths(&parts), lengths(&whole));
        assert_eq!(parts.iter().map(Batch::answers).sum::<usize>(), whole[0].answers());
    }

    #[test]
    fn cutting_keeps_every_sequence_and_pads_little() {
        let whole = &source(1, 7).step(0).unwrap()[0];
        for parts in [1, 2, 4, 7, 9] {
            let cut = whole.cut(parts);
            assert!(cut.len() <= parts);
            assert_eq!(cut.iter().map(|b| b.token_count()).sum::<usize>(), whole.token_count());
            assert_eq!(cut.iter().map(Batch::answers).sum::<usize>(), whole.answers());
            let rows = |batches: &[Batch]| {
                let of = |b: &Batch| {
                    let each = b.tokens.iter().zip(&b.scored).zip(&b.lengths);
                    let real = each.map(|((t, s), n)| (*n, t[..*n].to_vec(), s[..*n].to_vec()));
                    real.collect::<Vec<_>>()
                };
                batches.iter().flat_map(of).collect::<Vec<_>>()
            };
            let mut expected = rows(std::slice::from_ref(whole));
            expected.sort_by_key(|(length, ..)| *length);
            assert_eq!(rows(&cut), expected);
            let tokens = cut.iter().map(|b| b.length() * b.tokens.len()).sum::<usize>();
            assert!(parts == 1 || tokens < whole.length() * whole.tokens.len());
        }
    }

    /// A sequence has the same logits alone and in a padded batch.
    #[test]
    fn padding_changes_nothing() {
        let device = Device::flex();
        let batch = &source(1, 4).step(0).unwrap()[0];
        let length = batch.length();
        for mechanism in mechanisms() {
            let (name, attention) = (mechanism.name, mechanism.config());
            let config = DecoderConfig::new(6, 2, 16, 2).with_attention(attention);
            let decoder = config.init_seeded(1, &device).unwrap();
            let together = decoder.forward(batch.tensor(0, length, &decoder), Pass::eval());
            for (row, tokens) in batch.tokens.iter().enumerate() {
                let own = batch.lengths[row];
                let alone = decoder.tokens(&[&tokens[..own]]).unwrap();
                let alone = decoder.forward(alone, Pass::eval());
                let there = together.clone().narrow(0, row, 1).narrow(1, 0, own);
                let largest = (alone - there).abs().max().into_scalar::<f32>();
                assert!(largest < 1e-5, "{name}: {largest}");
            }
        }
    }
}
