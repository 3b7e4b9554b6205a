//! Measurements of `tra bench`: work that is prepared once and run many times.
//!
//! Every case runs in its own process, ours and PyTorch's alike, so that peak memory is measured
//! per case. All processes of a group are started and warmed up. Then they take turns, so that a
//! machine that slows down slows all of them.

mod op;
mod participant;
mod worker;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Int, Tensor};
use serde::{Deserialize, Serialize};
use tra_kernels::attention::Rule;
use tra_nn::attention::AnyAttentionConfig;
use tra_nn::{Cache, Decoder, DecoderConfig, Pass, Size};
use tra_random::Stream;

use crate::batch::Batch;
use crate::budget;
use crate::checkpoints::{Checkpoint, TrainProgress};
use crate::error::LabError;
use crate::observer::Observer;
use crate::optimizer::{Optimizer, OptimizerConfig, OptimizerKind};
use crate::trainer::{Data, StepSettings, Trainer};
use op::Op;
use participant::Failed;

pub use op::Peak;
pub use participant::{By, Participant};
pub use worker::serve;

/// The work to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// The attention operation alone, forward and backward.
    Op,
    /// The attention operation alone, forward only.
    OpForward,
    /// A whole training step: forward, loss, backward, clipping, AdamW.
    TrainStep,
    /// A forward pass without gradients.
    Prefill,
    /// Decoding of one more token after a context of the given length.
    Decode,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 5] = [
        Workload::Op,
        Workload::OpForward,
        Workload::TrainStep,
        Workload::Prefill,
        Workload::Decode,
    ];

    /// Returns its name in tables and files.
    pub fn text(self) -> &'static str {
        match self {
            Workload::Op => "op",
            Workload::OpForward => "op_forward",
            Workload::TrainStep => "train_step",
            Workload::Prefill => "prefill",
            Workload::Decode => "decode",
        }
    }
}

/// Value of the forget gates when the attention operation is measured alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// 0, as at the start of training: every kept key halves the weight of the keys before it.
    #[default]
    Initial,
    /// 30: nothing is forgotten, and there is no horizon.
    Open,
}

/// More tokens than any measurement decodes.
const DECODED: usize = 1 << 16;

/// One case to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The work to measure.
    pub name: Workload,
    /// The mechanism.
    pub attention: String,
    /// Layers of the decoder.
    pub layers: usize,
    /// Width of the decoder and of the attention operation.
    pub width: usize,
    /// Heads of the decoder and of the attention operation.
    pub heads: usize,
    /// Vocabulary of the decoder.
    pub vocab: usize,
    /// Number of sequences.
    pub batch: usize,
    /// Length of each sequence. For decoding: the number of tokens already in the cache.
    pub length: usize,
    /// Dropout rate in training.
    pub dropout: f64,
    /// Forget gates of the attention operation, if it is measured alone.
    pub gate: Gate,
}

impl Case {
    /// Creates a case for a decoder of a named size.
    pub fn new(name: Workload, attention: &str, size: Size, batch: usize, length: usize) -> Self {
        let DecoderConfig { layers, width, heads, dropout, .. } = DecoderConfig::sized(size, 256);
        let (attention, gate) = (attention.into(), Gate::Initial);
        Self { name, attention, layers, width, heads, vocab: 256, batch, length, dropout, gate }
    }

    /// Returns the number of tokens that one run computes.
    pub fn tokens(&self) -> usize {
        if self.name == Workload::Decode { self.batch } else { self.batch * self.length }
    }

    /// Returns the floating-point operations of the dense algorithm's matrix products. A
    /// multiply-add counts as two.
    ///
    /// A mechanism that skips far keys does fewer, so its speed may exceed the peak of the machine.
    pub fn flops(&self) -> f64 {
        let [layers, width, length] = [self.layers, self.width, self.length].map(|n| n as f64);
        let (batch, vocab) = (self.batch as f64, self.vocab as f64);
        let weights = layers * 10.0 * width * width + width * vocab;
        // The widths of all heads add up to the width of the model.
        let pairs = batch * length * (length + 1.0) / 2.0 * width;
        let tokens = self.tokens() as f64;
        match self.name {
            Workload::Op => 14.0 * pairs,
            Workload::OpForward => 4.0 * pairs,
            Workload::TrainStep => 6.0 * weights * tokens + layers * 14.0 * pairs,
            Workload::Prefill => 2.0 * weights * tokens + layers * 4.0 * pairs,
            Workload::Decode => tokens * (2.0 * weights + layers * 4.0 * length * width),
        }
    }

    /// Returns the settings of the decoder.
    pub fn decoder_config(&self) -> Result<DecoderConfig, LabError> {
        let Self { layers, width, heads, vocab, dropout, .. } = *self;
        let mut attention: AnyAttentionConfig =
            self.attention.parse().map_err(tra_nn::Error::from)?;
        if let AnyAttentionConfig::Learned(learned) = &mut attention {
            // Enough positions for the context and for the decoded tokens.
            learned.count = self.length.saturating_add(DECODED);
        }
        let config = DecoderConfig::new(vocab, layers, width, heads);
        Ok(config.with_attention(attention).with_dropout(dropout))
    }

    fn decoder(&self, device: &Device) -> Result<Decoder, LabError> {
        Ok(self.decoder_config()?.init_seeded(1, device)?)
    }

    /// Returns a trainer that repeats the same batch without end.
    fn trainer(&self, device: &Device) -> Result<Trainer, LabError> {
        let decoder = self.decoder(device)?;
        let (kind, betas) = (OptimizerKind::AdamW, [0.9, 0.98]);
        let optimizer =
            Optimizer::new(&decoder, OptimizerConfig { kind, betas, weight_decay: 0.01 });
        let tokens = self.sequences();
        let scored = tokens.iter().map(|t| vec![true; t.len()]).collect();
        let lengths = tokens.iter().map(Vec::len).collect();
        let position = TrainProgress::default();
        let start = Checkpoint { decoder, optimizer, position, tokenizer: None, settings: None };
        let settings = StepSettings { seed: 1, steps: u64::MAX, lr: 3e-4, warmup: 0.0, clip: 1.0 };
        let data = Data::Fixed(vec![Batch { lengths, scored, tokens }]);
        Ok(Trainer::with_data(start, settings, data))
    }

    fn sequences(&self) -> Vec<Vec<u32>> {
        let token = |i: usize| 1 + Stream::new(7).below(i as u64, self.vocab as u64 - 1) as u32;
        let from = |b: usize| b * self.length;
        (0..self.batch).map(|b| (from(b)..from(b + 1)).map(token).collect()).collect()
    }
}

/// A case that is ready to run.
pub struct PreparedWorkload {
    work: Work,
    /// How often one run repeats the work. A single short piece cannot be timed.
    pub repeat: usize,
    /// Fraction of the visible pairs within the horizon, for mechanisms that have one.
    pub share_read: Option<f64>,
}

enum Work {
    Op(Box<Op>),
    TrainStep(Box<Trainer>),
    Prefill { decoder: Decoder, tokens: Vec<Vec<u32>> },
    Decode { decoder: Decoder, cache: Cache, batch: usize },
}

impl PreparedWorkload {
    /// Prepares a case. Returns an error if this machine has too little memory.
    pub fn new(case: &Case) -> Result<Self, LabError> {
        budget::bench(case)?.check()?;
        let device = Device::flex();
        let work = match case.name {
            Workload::Op | Workload::OpForward => Work::Op(Box::new(Op::new(case)?)),
            Workload::TrainStep => Work::TrainStep(Box::new(case.trainer(&device.autodiff())?)),
            Workload::Prefill => {
                Work::Prefill { decoder: case.decoder(&device)?, tokens: case.sequences() }
            }
            Workload::Decode => {
                let decoder = case.decoder(&device)?;
                let mut cache = decoder.new_cache();
                let tokens = case.sequences();
                for from in (0..case.length).step_by(1024) {
                    let to = (from + 1024).min(case.length);
                    let part: Vec<_> = tokens.iter().map(|t| t[from..to].to_vec()).collect();
                    decoder.forward(tokens_of(&decoder, &part)?, Pass::cached(&mut cache));
                }
                Work::Decode { decoder, cache, batch: case.batch }
            }
        };
        let share_read = match &work {
            Work::Op(op) if matches!(op.rule, Rule::Tra { .. } | Rule::Steps(_)) => {
                Some(op.share_read())
            }
            _ => None,
        };
        let repeat = if case.name == Workload::Decode { 16 } else { 1 };
        Ok(Self { work, repeat, share_read })
    }

    /// Runs the work [`repeat`](Self::repeat) times.
    pub fn run(&mut self) -> Result<(), LabError> {
        for _ in 0..self.repeat {
            match &mut self.work {
                Work::Op(op) => op.run(),
                Work::TrainStep(trainer) => {
                    black_box(trainer.step()?);
                }
                Work::Prefill { decoder, tokens } => {
                    let tokens = tokens_of(decoder, tokens)?;
                    black_box(decoder.forward(tokens, Pass::eval()).into_data());
                }
                Work::Decode { decoder, cache, batch } => {
                    let tokens = tokens_of(decoder, &vec![vec![5]; *batch])?;
                    black_box(decoder.forward(tokens, Pass::cached(cache)).into_data());
                }
            }
        }
        Ok(())
    }
}

fn tokens_of(decoder: &Decoder, tokens: &[Vec<u32>]) -> Result<Tensor<2, Int>, LabError> {
    Ok(decoder.tokens(tokens).map_err(tra_nn::Error::from)?)
}

/// Pause before every run, because the threads of the previous one may still be spinning.
const PAUSE: Duration = Duration::from_millis(20);

/// Cases that take turns.
#[derive(Clone, Debug)]
pub struct Group {
    /// The work to measure.
    pub name: Workload,
    /// Number of sequences.
    pub batch: usize,
    /// Length of each sequence.
    pub length: usize,
    /// Forget gates of the attention operation, if it is measured alone.
    pub gate: Gate,
}

/// The participants, and how often they run.
#[derive(Clone, Debug)]
pub struct Options {
    /// A program whose argument `bench-worker` calls [`serve`].
    pub program: PathBuf,
    /// The mechanisms.
    pub attention: Vec<String>,
    /// Size of the decoder.
    pub size: Size,
    /// Vocabulary of the decoder.
    pub vocab: usize,
    /// Timed runs per participant.
    pub repeat: usize,
    /// Threads per participant.
    pub threads: usize,
    /// PyTorch, if it takes part.
    pub torch: Option<Torch>,
}

/// PyTorch as a participant.
#[derive(Clone, Debug)]
pub struct Torch {
    /// The Python interpreter that has PyTorch.
    pub python: PathBuf,
    /// Mechanisms it runs: tra, rope.
    pub attention: Vec<String>,
    /// Modes it runs in: eager, compiled.
    pub modes: Vec<String>,
}

/// Measures a group. Returns the participants with their times, and the speed of the fastest f32
/// matrix product measured in between, in operations per second.
pub fn measure(
    group: &Group,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<(Vec<Participant>, f64), LabError> {
    let what = format!("{} {} x {}", group.name.text(), group.batch, group.length);
    let mut all = Vec::new();
    for attention in &options.attention {
        let mut case = Case::new(group.name, attention, options.size, group.batch, group.length);
        (case.gate, case.vocab) = (group.gate, options.vocab);
        observer.status(&format!("{what}: {attention} warms up"));
        all.push(Participant::ours(case.clone(), &options.program, options.threads)?);
        let torch = options.torch.as_ref().filter(|torch| torch.attention.contains(attention));
        let Some(Torch { python, modes, .. }) = torch else { continue };
        for mode in modes {
            observer.status(&format!("{what}: {attention} in PyTorch, {mode}, warms up"));
            match Participant::torch(case.clone(), python, mode, options.threads) {
                Ok(participant) => all.push(participant),
                Err(Failed::Never(error)) => return Err(error),
                Err(Failed::ThisCase(error)) => {
                    observer.warn(format!("{what}, {attention}, {mode}: {error}"));
                }
            }
        }
    }
    let (product, mut peak) = (Peak::new(), 0.0f64);
    take_turns(&mut all, options.repeat, &what, observer, || {
        let begin = Instant::now();
        let operations = product.run();
        peak = peak.max(operations / begin.elapsed().as_secs_f64());
    })?;
    Ok((all, peak))
}

/// Returns the seconds of every case, run `repeat` times in turns.
pub(crate) fn in_turns(
    cases: Vec<Case>,
    repeat: usize,
    threads: usize,
    what: &str,
    program: &Path,
    observer: &mut dyn Observer,
) -> Result<Vec<Vec<f64>>, LabError> {
    let mut all = Vec::new();
    for case in cases {
        observer.status(&format!("{what}: {} warms up", case.attention));
        all.push(Participant::ours(case, program, threads)?);
    }
    take_turns(&mut all, repeat, what, observer, || {})?;
    Ok(all.iter().map(|participant| participant.seconds.clone()).collect())
}

/// Runs every participant once per round, and then ends them.
fn take_turns(
    all: &mut [Participant],
    repeat: usize,
    what: &str,
    observer: &mut dyn Observer,
    mut after_round: impl FnMut(),
) -> Result<(), LabError> {
    for round in 0..repeat {
        for participant in &mut *all {
            let (by, attention) = (participant.by.label(), &participant.case.attention);
            observer.status(&format!("{what}: {attention} {by}, {}/{repeat}", round + 1));
            sleep(PAUSE);
            participant.run()?;
        }
        sleep(PAUSE);
        after_round();
    }
    observer.status("");
    all.iter_mut().try_for_each(Participant::end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs() {
        for name in Workload::ALL {
            for attention in ["tra", "rope", "nope", "alibi", "fox"] {
                let mut case = Case::new(name, attention, Size::Tiny, 2, 70);
                for gate in [Gate::Initial, Gate::Open] {
                    case.gate = gate;
                    let mut work = PreparedWorkload::new(&case).unwrap();
                    work.run().unwrap();
                    work.run().unwrap();
                    assert!(case.flops() > 0.0);
                    if let Some(share) = work.share_read {
                        assert!(share > 0.0 && share <= 1.0, "{attention} {gate:?} {share}");
                    }
                }
            }
        }
        let case = Case::new(Workload::Op, "cope", Size::Tiny, 1, 8);
        assert!(PreparedWorkload::new(&case).is_err_and(|e| e.to_string().contains("cope")));
    }
}
