//! Dropout is a function of seed and step alone, and every one of its options changes the result.

mod common;

use burn::tensor::Device;
use common::{floats, lively, mechanisms, tokens};
use tra_nn::{DecoderConfig, DropoutPlacement, Pass};

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

#[test]
fn one_thread_or_two_make_no_difference() {
    let config = DecoderConfig::new(9, 2, 12, 2).with_dropout(0.2);
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| logits(&config, Pass::train(1, 10)))
    };
    assert_eq!(on(1), on(2));
}
