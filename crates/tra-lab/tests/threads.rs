//! The number of threads changes no bit at realistic sizes. Two steps with one, two and four
//! threads leave the same weights, for every mechanism with a kernel and both optimizers.
//!
//! Small models would not show a difference, because products and sums are split among threads only
//! above a certain size.

use burn::module::Module;
use burn::tensor::Device;
use rayon::prelude::*;
use tra_lab::loss::cross_entropy;
use tra_lab::optimizer::{FlatGradients, Optimizer, OptimizerConfig, OptimizerKind};
use tra_nn::attention::{AnyAttentionConfig, AttentionConfig, mechanisms};
use tra_nn::{Decoder, DecoderConfig, Pass};
use tra_random::Stream;

const BATCH: usize = 8;
const LENGTH: usize = 512;
const VOCAB: usize = 32;
/// Number of parts of a batch, as in training.
const PARTS: usize = 4;

fn sequences(step: u64) -> Vec<Vec<u32>> {
    let stream = Stream::new(step).fork_name("threads");
    let token = |i: usize| stream.below(i as u64, VOCAB as u64) as u32;
    (0..BATCH).map(|row| (0..LENGTH).map(|t| token(row * LENGTH + t)).collect()).collect()
}

/// Returns the gradient of one step. Its parts are computed in parallel and added in order, as in
/// training.
fn gradients(decoder: &Decoder, step: u64) -> FlatGradients {
    let all = sequences(step);
    let one = |(part, tokens): (usize, &[Vec<u32>])| {
        let decoder = decoder.clone().fork(&decoder.device());
        let scored = vec![vec![true; LENGTH]; tokens.len()];
        let logits = decoder
            .forward(decoder.tokens(tokens).unwrap(), Pass::train_part(1, step, part as u64));
        let (sum, count) = cross_entropy(logits, tokens, &scored).unwrap();
        FlatGradients::take(&decoder, (sum / (PARTS * count) as f64).backward())
    };
    let parts: Vec<FlatGradients> = all.par_chunks(BATCH / PARTS).enumerate().map(one).collect();
    parts.into_iter().reduce(FlatGradients::plus).unwrap()
}

/// Returns the bits of all weights after two steps.
fn trained(attention: &AnyAttentionConfig, kind: OptimizerKind) -> Vec<u32> {
    let device = Device::flex().autodiff();
    let config = DecoderConfig::new(VOCAB, 1, 256, 4).with_attention(attention.clone());
    let mut decoder = config.init_seeded(1, &device).unwrap();
    let settings = OptimizerConfig { kind, betas: [0.9, 0.98], weight_decay: 0.1 };
    let mut optimizer = Optimizer::new(&decoder, settings);
    for step in 0..2 {
        let gradients = gradients(&decoder, step);
        let scale = (1.0 / gradients.norm()).min(1.0);
        decoder = optimizer.step(decoder, gradients, scale, 1e-2, step);
    }
    let parameters = decoder.parameters();
    let numbers = parameters.values().flat_map(|t| t.as_floats().unwrap().to_vec());
    numbers.map(f32::to_bits).collect()
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for mechanism in mechanisms() {
        let (name, attention) = (mechanism.name, mechanism.config());
        if !attention.has_kernel() {
            continue;
        }
        for kind in [OptimizerKind::AdamW, OptimizerKind::Muon] {
            let with = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| trained(&attention, kind))
            };
            let one = with(1);
            assert!(one.len() > 400_000, "{name}: {} numbers", one.len());
            for threads in [2, 4] {
                let differ = with(threads).iter().zip(&one).filter(|(a, b)| a != b).count();
                assert_eq!(
                    differ, 0,
                    "{name}, {kind:?}, {threads} threads: number of differing weights"
                );
            }
        }
    }
}
