//! Gradients of every mechanism against finite differences, in f64, at odd sizes.

mod common;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor};
use common::{floats, in_f64, lively, mechanisms, normals, odd_sizes, tokens};
use tra_nn::attention::AnyAttentionConfig;
use tra_nn::{Decoder, DecoderConfig, DropoutPlacement, Pass, Probe};
use tra_random::Stream;

const LENGTH: usize = 7;

/// Adds `delta` to element `at` of the `nth` parameter.
struct Nudge {
    nth: usize,
    at: usize,
    delta: f64,
    seen: usize,
}

impl ModuleMapper for Nudge {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.seen += 1;
        if self.seen - 1 != self.nth {
            return param;
        }
        param.map(|t| {
            let (shape, device, dtype) = (t.dims(), t.device(), t.dtype());
            let mut values = floats(t);
            values[self.at] += self.delta;
            let data = burn::tensor::TensorData::new(values, shape);
            Tensor::from_data(data, (&device, dtype))
        })
    }
}

/// Every parameter's gradient, in the order of the walk.
fn gradients(decoder: &Decoder, loss: Tensor<1>) -> Vec<Vec<f64>> {
    struct Collect(burn::tensor::Gradients, Vec<Vec<f64>>);
    impl burn::module::ModuleVisitor for Collect {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push(floats(param.val().grad(&self.0).expect("every parameter takes part")));
        }
    }
    let mut collect = Collect(loss.backward(), Vec::new());
    decoder.visit(&mut collect);
    collect.1
}

fn check(config: DecoderConfig, pass: fn() -> Pass<'static>) {
    let name = format!("{:?}", config.attention);
    let device = Device::flex().autodiff();
    let vocab = config.vocab;
    let length = LENGTH;
    let trained = in_f64(lively(config, 21, &device));
    let plain = trained.valid();
    let sequences = [tokens(1, length, vocab), tokens(2, length, vocab)];
    let weights = normals(Stream::new(7), 0, [2, length, vocab]);
    let loss = |decoder: &Decoder| {
        let logits = decoder.forward(decoder.tokens(&sequences).unwrap(), pass());
        let options = (&logits.device(), logits.dtype());
        (logits * Tensor::<3>::from_data(weights.clone(), options)).sum()
    };

    let mut probe = Probe::new(plain.layers.len(), 1e-4);
    plain.forward(plain.tokens(&sequences).unwrap(), Pass::eval().with_probe(&mut probe));
    assert!(probe.layers.iter().all(|l| l.near.is_empty()), "{name}: too near a kink to differ");

    let analytic = gradients(&trained, loss(&trained));
    for (nth, gradient) in analytic.iter().enumerate() {
        // Every element of small parameters, and one in eleven of large ones.
        for at in (0..gradient.len()).step_by(if gradient.len() > 64 { 11 } else { 1 }) {
            let h = 1e-5;
            let at_delta = |delta| {
                let moved = plain.clone().map(&mut Nudge { nth, at, delta, seen: 0 });
                floats(loss(&moved))[0]
            };
            let numeric = (at_delta(h) - at_delta(-h)) / (2.0 * h);
            assert!(
                (numeric - gradient[at]).abs() < 1e-6 * (1.0 + numeric.abs()),
                "{name}: parameter {nth}[{at}]: {numeric} against {}",
                gradient[at]
            );
        }
    }
}

#[test]
fn of_every_mechanism() {
    for attention in mechanisms() {
        // No padding, so that every row is trained; and no position is left over.
        let attention = match attention {
            AnyAttentionConfig::Learned(c) => c.with_count(LENGTH).into(),
            other => other,
        };
        let mut config = odd_sizes(5, 1, attention);
        config.pad_index = None;
        check(config, Pass::eval);
    }
}

#[test]
fn through_dropout_on_logits_and_on_weights() {
    for placement in [DropoutPlacement::Logits, DropoutPlacement::Weights] {
        let mut config =
            DecoderConfig::new(5, 2, 10, 2).with_dropout(0.3).with_dropout_placement(placement);
        config.pad_index = None;
        check(config, || Pass::train(3, 14));
    }
}

/// One table, used at both ends: its gradient is the sum of both.
#[test]
fn through_a_tied_output() {
    let config = DecoderConfig::new(5, 1, 15, 3).without_padding().with_tied(true);
    check(config, Pass::eval);
}

/// The padding token's embedding is used as it is and never trained, as in PyTorch.
#[test]
fn the_padding_row_is_never_trained() {
    let device = Device::flex().autodiff();
    let decoder = DecoderConfig::new(5, 1, 16, 2).init_seeded(1, &device).unwrap();
    let batch = decoder.tokens(&[[0, 3, 0, 2]]).unwrap();
    let loss = decoder.forward(batch, Pass::eval()).powf_scalar(2.0).sum();
    let gradient = decoder.gradients(&loss.backward())["embedding.weight"].clone();
    let rows: Vec<bool> =
        gradient.as_floats().unwrap().chunks(16).map(|row| row.iter().any(|g| *g != 0.0)).collect();
    assert_eq!(rows, [false, false, true, true, false]);
}
