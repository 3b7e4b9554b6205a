//! Dropout is a function of seed and step alone, and every one of its options changes the result.

mod common;

use burn::tensor::Device;
use common::{floats, lively, mechanisms, tokens};
use tra_nn::{DecoderConfig, DropoutPlacement, Pass, Research};

fn logits(config: &DecoderConfig, pass: Pass<'_>) -> Vec<f64> {
    let decoder = lively(config.clone(), 2, &Device::flex());
    let batch = [tokens(1, 33, config.vocab), tokens(2, 33, config.vocab)];
    floats(decoder.forward(decoder.tokens(&batch).unwrap(), pass))
}

#[test]
fn the_same_seed_and_step_drop_the_same_and_others_do_not() {
    for attention in mechanisms() {
        let config = DecoderConfig::new(9, 2, 12, 2).with_attention(attention).with_dropout(0.2);
        let weights = config.clone().with_dropout_placement(DropoutPlacement::Weights);
        let first = logits(&config, Pass::train(1, 10));
        assert_eq!(first, logits(&config, Pass::train(1, 10)));
        assert_ne!(first, logits(&config, Pass::train(1, 11)));
        assert_ne!(first, logits(&config, Pass::train(2, 10)));
        assert_ne!(first, logits(&config, Pass::eval()));
        assert_ne!(first, logits(&weights, Pass::train(1, 10)));
        assert_eq!(logits(&config, Pass::eval()), logits(&weights, Pass::eval()));
        let none = config.with_dropout(0.0);
        assert_eq!(logits(&none, Pass::train(1, 10)), logits(&none, Pass::eval()));
    }
}

/// In training alone; the rate of the rest is that of the embedding too unless it has one of its own.
#[test]
fn the_embedding_may_have_a_rate_of_its_own() {
    let config = DecoderConfig::new(9, 2, 12, 2).with_dropout(0.2);
    let with = |config: &DecoderConfig, rate| {
        config.clone().with_research(Research::default().with_embedding_dropout(rate))
    };
    let train = |rate| logits(&with(&config, rate), Pass::train(1, 10));
    assert_eq!(train(None), train(Some(0.2)));
    assert_ne!(train(None), train(Some(0.4)));
    assert_ne!(train(None), train(Some(0.0)));
    let of_it_alone = with(&config.clone().with_dropout(0.0), Some(0.2));
    assert_ne!(logits(&of_it_alone, Pass::train(1, 10)), logits(&of_it_alone, Pass::eval()));
    assert_eq!(logits(&of_it_alone, Pass::eval()), logits(&config, Pass::eval()));
    for wrong in [1.0, -0.1, f64::NAN] {
        let wrong = with(&config, Some(wrong)).init(&Device::flex());
        let message = wrong.unwrap_err().to_string();
        assert!(message.starts_with("embedding_dropout must lie in 0..1, not "), "{message}");
    }
}

/// In training alone, with dropout or without, wherever that drops, and another in every layer and at every step.
#[test]
fn sharpness_scales_the_logits_of_training() {
    let sharpness = |lowest| Research::default().with_sharpness(lowest);
    for attention in mechanisms() {
        let config = DecoderConfig::new(9, 2, 12, 2).with_attention(attention).with_dropout(0.0);
        let flat = config.clone().with_research(sharpness(0.2));
        let first = logits(&flat, Pass::train(1, 10));
        assert_eq!(first, logits(&flat, Pass::train(1, 10)));
        assert_ne!(first, logits(&flat, Pass::train(1, 11)), "{:?}", flat.attention);
        assert_ne!(first, logits(&config, Pass::train(1, 10)));
        assert_eq!(logits(&flat, Pass::eval()), logits(&config, Pass::eval()));
        let weights = flat.clone().with_dropout_placement(DropoutPlacement::Weights);
        assert_eq!(first, logits(&weights, Pass::train(1, 10)));
        let both = weights.with_dropout(0.2);
        assert_ne!(logits(&both, Pass::train(1, 10)), first);
        assert_ne!(
            logits(&both, Pass::train(1, 10)),
            logits(&both.clone().with_research(sharpness(1.0)), Pass::train(1, 10))
        );
    }
    for wrong in [0.0, -0.5, 1.5, f64::NAN] {
        let wrong =
            DecoderConfig::new(9, 2, 12, 2).with_research(sharpness(wrong)).init(&Device::flex());
        let message = wrong.unwrap_err().to_string();
        assert!(message.starts_with("sharpness must be above 0 and at most 1, not "), "{message}");
    }
}

#[test]
fn one_thread_or_two_make_no_difference() {
    let config = DecoderConfig::new(9, 2, 12, 2).with_dropout(0.2);
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| logits(&config, Pass::train(1, 10)))
    };
    assert_eq!(on(1), on(2));
}
