//! Cached decoding equals the full forward, for every mechanism and any chunking.

mod common;

use burn::tensor::{Device, Tensor};
use common::{floats, in_f64, lively, mechanisms, odd_sizes, tokens};
use tra_nn::attention::{LearnedConfig, SinusoidalConfig};
use tra_nn::{Decoder, DecoderConfig, Generate, Pass, Sampling};

fn chunked(decoder: &Decoder, sequences: &[Vec<u32>], chunks: &[usize]) -> Tensor<3> {
    let mut cache = decoder.new_cache();
    let mut logits = Vec::new();
    let mut chunks = chunks.iter().cycle();
    let length = sequences[0].len();
    while cache.len() < length {
        let from = cache.len();
        let to = (from + chunks.next().unwrap()).min(length);
        let piece: Vec<&[u32]> = sequences.iter().map(|s| &s[from..to]).collect();
        let batch = decoder.tokens(&piece).unwrap();
        logits.push(decoder.forward(batch, Pass::cached(&mut cache)));
        assert_eq!(cache.len(), to);
    }
    Tensor::cat(logits, 1)
}

fn largest_difference(a: Tensor<3>, b: Tensor<3>) -> f64 {
    assert_eq!(a.dims(), b.dims());
    floats(a - b).into_iter().map(f64::abs).fold(0.0, f64::max)
}

/// In f64, so that rounding cannot hide a real difference or move a score over the threshold.
#[test]
fn any_chunking_gives_the_logits_of_the_full_forward() {
    let device = Device::flex();
    for attention in mechanisms() {
        let config = odd_sizes(11, 2, attention.clone());
        let decoder = in_f64(lively(config, 5, &device));
        let sequences = [tokens(1, 61, 11), tokens(2, 61, 11)];
        let full = decoder.forward(decoder.tokens(&sequences).unwrap(), Pass::eval());
        for chunks in [&[1][..], &[7, 1, 30], &[60, 1], &[2, 3], &[61]] {
            let pieces = chunked(&decoder, &sequences, chunks);
            let difference = largest_difference(full.clone(), pieces);
            assert!(difference < 1e-10, "{attention:?} {chunks:?}: {difference}");
        }
    }
}

/// Longer than any other test, where a table or mask sized at construction would end.
#[test]
fn long_sequences_too() {
    let device = Device::flex();
    for attention in mechanisms() {
        let config = DecoderConfig::new(7, 2, 8, 2).with_attention(attention.clone());
        let decoder = in_f64(lively(config, 6, &device));
        let sequence = [tokens(3, 1500, 7)];
        let full = decoder.forward(decoder.tokens(&sequence).unwrap(), Pass::eval());
        let pieces = chunked(&decoder, &sequence, &[1021, 1, 300, 1, 1, 64]);
        let difference = largest_difference(full, pieces);
        assert!(difference < 1e-9, "{attention:?}: {difference}");
    }
}

/// Each mechanism must feel position where it claims to, or the tests above would pass for a
/// decode that drops the position bias in both paths.
#[test]
fn order_matters_except_where_it_cannot() {
    let device = Device::flex();
    for attention in mechanisms() {
        let name = attention.name();
        let config = DecoderConfig::new(11, 1, 16, 2).with_attention(attention);
        let decoder = in_f64(lively(config, 8, &device));
        let (mut a, last) = (tokens(4, 12, 10), 10);
        a.push(last);
        let mut b = a.clone();
        b[..12].reverse();
        let logits = |s: &Vec<u32>| {
            let all = decoder.forward(decoder.tokens(&[s]).unwrap(), Pass::eval());
            all.narrow(1, 12, 1)
        };
        let difference = largest_difference(logits(&a), logits(&b));
        let blind = ["nope", "tra-threshold"].contains(&name);
        assert_eq!(difference < 1e-12, blind, "{name}: {difference}");
    }
}

/// Only learned positions come to an end, and say so before anything is computed.
#[test]
fn a_sequence_past_the_learned_positions_is_refused() {
    let device = Device::flex();
    let learned = LearnedConfig::default().with_count(20);
    let config = DecoderConfig::new(11, 1, 16, 2).with_attention(learned);
    assert_eq!((config.limit(), DecoderConfig::new(11, 1, 16, 2).limit()), (Some(20), None));
    assert!(config.check_length(20).is_ok());
    let error = config.check_length(21).unwrap_err().to_string();
    assert!(error.contains("21 tokens") && error.contains("count=21"), "{error}");
    let decoder = config.init_seeded(1, &device).unwrap();
    let generate = |tokens, max_tokens| {
        let options = Generate::default().with_max_tokens(max_tokens);
        decoder.generate(&vec![1; tokens], options).map(|all| all.count())
    };
    assert_eq!(generate(15, 6).unwrap(), 6);
    assert!(generate(15, 7).unwrap_err().to_string().contains("21 tokens"));
    assert!(generate(21, 0).is_err());
    let sinusoidal = SinusoidalConfig::default();
    assert_eq!(DecoderConfig::new(11, 1, 16, 2).with_attention(sinusoidal).limit(), None);
}

#[test]
fn generation_repeats_and_follows_its_options() {
    let device = Device::flex();
    let decoder = lively(DecoderConfig::new(11, 2, 16, 2), 3, &device);
    let prompt = tokens(9, 600, 11);
    let run =
        |options: Generate| -> Vec<u32> { decoder.generate(&prompt, options).unwrap().collect() };
    let options = Generate::default().with_max_tokens(40).with_seed(1);
    let first = run(options.clone());
    assert_eq!(first.len(), 40);
    assert_eq!(first, run(options.clone()));
    assert_ne!(first, run(options.clone().with_seed(2)));
    let stop = options.clone().with_stop(vec![first[5]]);
    let stopped = run(stop);
    assert!(stopped.len() <= 5 && !stopped.contains(&first[5]));
    assert_eq!(stopped[..], first[..stopped.len()]);

    // Greedy generation is the arg-max of the full forward over what there is so far.
    let greedy = run(options.with_max_tokens(5).with_sampling(Sampling::GREEDY));
    let all = [prompt.clone(), greedy.clone()].concat();
    let logits = decoder.forward(decoder.tokens(&[&all]).unwrap(), Pass::eval());
    let best = logits.argmax(2).into_data_as::<i64>();
    let best: Vec<i64> = best.iter::<i64>().skip(599).take(5).collect();
    assert_eq!(greedy.iter().map(|t| i64::from(*t)).collect::<Vec<_>>(), best);

    let none = Generate::default().with_max_tokens(0);
    assert!(run(none).is_empty());
    let error = decoder.generate(&[], Generate::default()).unwrap_err();
    assert!(error.to_string().contains("prompt is empty"));
    let error = decoder.generate(&[1, 11], Generate::default()).unwrap_err();
    assert!(error.to_string().contains("token 11"), "{error}");
}

#[test]
fn nothing_in_gives_nothing_out() {
    let device = Device::flex();
    for attention in mechanisms() {
        let config = DecoderConfig::new(11, 1, 16, 2).with_attention(attention);
        let decoder = config.init_seeded(1, &device).unwrap();
        let empty = decoder.tokens(&[Vec::<u32>::new(), Vec::new()]).unwrap();
        assert_eq!(decoder.forward(empty, Pass::eval()).dims(), [2, 0, 11]);
        let none = decoder.tokens(&Vec::<Vec<u32>>::new()).unwrap();
        assert_eq!(decoder.forward(none, Pass::eval()).dims(), [0, 0, 11]);
    }
}
