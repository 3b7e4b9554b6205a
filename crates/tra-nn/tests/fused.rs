//! The fused operations against the plain composition of tensor operations, which an f64 model takes:
//! every mechanism, with and without dropout, whole and through a cache, forward and every gradient.

mod common;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor};
use common::{floats, in_f64, lively, mechanisms, normals, tokens};
use tra_nn::attention::AnyAttentionConfig;
use tra_nn::{Decoder, DecoderConfig, DropoutPlacement, Pass, Research, fused};
use tra_random::Stream;

struct Outcome {
    logits: Vec<f64>,
    gradients: Vec<Vec<f64>>,
}

fn run(decoder: &Decoder, sequences: &[Vec<u32>], pass: Pass<'_>) -> Outcome {
    struct Collect(Gradients, Vec<Vec<f64>>);
    impl ModuleVisitor for Collect {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push(floats(param.val().grad(&self.0).expect("every parameter takes part")));
        }
    }
    let logits = decoder.forward(decoder.tokens(sequences).unwrap(), pass);
    let weights = normals(Stream::new(7), 0, logits.dims());
    let options = (&logits.device(), logits.dtype());
    let loss = (logits.clone() * Tensor::<3>::from_data(weights, options)).sum();
    let mut collect = Collect(loss.backward(), Vec::new());
    decoder.visit(&mut collect);
    Outcome { logits: floats(logits), gradients: collect.1 }
}

fn forward(decoder: &Decoder, tokens: &[u32], pass: Pass<'_>) -> Tensor<3> {
    decoder.forward(decoder.tokens(&[tokens]).unwrap(), pass)
}

fn close(name: &str, ours: &[f64], plain: &[f64], tolerance: f64) {
    assert_eq!(ours.len(), plain.len());
    let scale = plain.iter().fold(1e-3f64, |w, x| w.max(x.abs()));
    for (at, (a, b)) in ours.iter().zip(plain).enumerate() {
        assert!((a - b).abs() <= tolerance * scale, "{name} [{at}]: {a} and {b}, scale {scale}");
    }
}

fn check(config: DecoderConfig, length: usize, pass: fn() -> Pass<'static>) {
    let name = format!("{:?}", config.attention);
    let decoder = lively(config.clone(), 5, &Device::flex().autodiff());
    let batch = [tokens(1, length, config.vocab), tokens(2, length, config.vocab)];
    let ours = run(&decoder, &batch, pass());
    let plain = run(&in_f64(decoder), &batch, pass());
    close(&format!("{name} logits"), &ours.logits, &plain.logits, 1e-4);
    for (index, (a, b)) in ours.gradients.iter().zip(&plain.gradients).enumerate() {
        close(&format!("{name} gradient {index}"), a, b, 1e-3);
    }
}

#[test]
fn every_mechanism_agrees_with_its_plain_composition() {
    for attention in mechanisms() {
        // Heads of 1, 8 and 20, which is no multiple of any vector.
        for (width, heads, length) in [(3, 3, 5), (16, 2, 33), (40, 2, 70)] {
            let config = DecoderConfig::new(9, 2, width, heads).with_attention(attention.clone());
            let config = match config.validate() {
                Ok(()) => config,
                // Heads in pairs.
                Err(_) => DecoderConfig::new(9, 2, 4, 4).with_attention(attention.clone()),
            };
            check(config.clone().with_dropout(0.0), length, Pass::eval);
            check(config.clone().with_dropout(0.2), length, || Pass::train(3, 4));
            let flat = Research::default().with_sharpness(0.3);
            check(config.with_dropout(0.2).with_research(flat), length, || Pass::train(3, 4));
        }
    }
}

#[test]
fn dropout_on_weights_takes_the_plain_way() {
    let config = DecoderConfig::new(9, 1, 16, 2)
        .with_dropout(0.3)
        .with_dropout_placement(DropoutPlacement::Weights);
    check(config, 20, || Pass::train(3, 4));
}

#[test]
fn a_cache_gives_the_same_through_the_kernels() {
    for attention in mechanisms() {
        let name = format!("{attention:?}");
        let config = DecoderConfig::new(9, 2, 16, 2).with_attention(attention);
        let decoder = lively(config, 5, &Device::flex());
        let all = tokens(1, 150, 9);
        let plain = floats(forward(&in_f64(decoder.clone()), &all, Pass::eval()));
        let mut cache = decoder.new_cache();
        let mut pieces = Vec::new();
        let mut from = 0;
        for size in [1, 1, 70, 3, 1, 5, 60, 1, 8] {
            let piece = &all[from..from + size];
            pieces.extend(floats(forward(&decoder, piece, Pass::cached(&mut cache))));
            from += size;
        }
        assert_eq!(from, 150);
        close(&name, &pieces, &plain, 1e-4);
    }
}

#[test]
fn the_horizon_can_be_switched_off() {
    let exact: AnyAttentionConfig =
        serde_json::from_str(r#"{"name": "tra", "horizon": "exact"}"#).unwrap();
    let text = serde_json::to_string(&exact).unwrap();
    assert!(text.contains("exact"), "{text}");
    let wrong = serde_json::from_str::<AnyAttentionConfig>(r#"{"name": "tra", "horizon": "far"}"#);
    assert!(wrong.is_err());
    let device = Device::flex();
    let logits = |attention: AnyAttentionConfig| {
        let config = DecoderConfig::new(9, 1, 16, 2).with_attention(attention);
        let decoder = lively(config, 5, &device);
        floats(decoder.forward(decoder.tokens(&[tokens(1, 300, 9)]).unwrap(), Pass::eval()))
    };
    let default = AnyAttentionConfig::default();
    close("horizon", &logits(default), &logits(exact), 1e-6);
}

/// The gradient takes the place of the logits only where nobody else holds them.
#[test]
fn the_loss_leaves_logits_alone_that_others_hold() {
    let device = Device::flex().autodiff();
    let x = Tensor::<2>::from_floats([[1.0, 2.0, 3.0], [0.5, 0.0, -1.0]], &device).require_grad();
    let logits = x.clone() * 2.0;
    let before = floats(logits.clone());
    let loss = fused::cross_entropy(logits.clone(), vec![2, fused::NOT_SCORED]) * 3.0;
    assert_eq!(floats(logits), before);
    let gradients = loss.backward();
    let gradient = floats(x.grad(&gradients).unwrap());
    let e = [-4.0f64, -2.0, 0.0].map(f64::exp);
    let sum: f64 = e.iter().sum();
    for (t, ours) in gradient[..3].iter().enumerate() {
        let expected = 6.0 * (e[t] / sum - f64::from(u8::from(t == 2)));
        assert!((ours - expected).abs() < 1e-5, "{t}: {ours} {expected}");
    }
    assert_eq!(gradient[3..], [0.0; 3]);
}
