//! What is masked changes nothing: a NaN or an infinity behind the mask reaches no query that does not see
//! it, forward or backward; every mechanism, by kernels and by plain operations.

mod common;

use burn::tensor::{DType, Device, Tensor, TensorData};
use common::{floats, in_type, mechanisms, normals};
use tra_nn::attention::{AnyAttentionConfig, Attention, AttentionConfig, HeadSizes, Heads};
use tra_nn::{DropoutPlacement, LayerPass, WeightInit};
use tra_random::Stream;

const HEADS: usize = 2;
const LENGTH: usize = 70;
const DIM: usize = 8;
const WIDTH: usize = HEADS * DIM;
const POISONS: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

/// `q`, `k`, `v` as `[heads, length, dim]` and the hidden states as `[length, width]`, flattened.
#[derive(Clone)]
struct Case([Vec<f32>; 4]);

#[derive(Clone)]
struct Outcome {
    out: Vec<f64>,
    /// Of the queries, keys, values and hidden states; empty where there is none.
    gradients: [Vec<f64>; 4],
}

impl Case {
    fn new() -> Self {
        Self([0, 1, 2, 3].map(|tag| {
            normals(Stream::new(3), tag, [HEADS * LENGTH * DIM]).iter::<f32>().collect()
        }))
    }

    /// A row of one position, in every head.
    fn row(&mut self, which: usize, position: usize, to: f32) {
        for head in 0..HEADS {
            self.0[which][(head * LENGTH + position) * DIM..][..DIM].fill(to);
        }
    }

    /// The loss is the sum of the outputs of the queries before `scored`, times fixed numbers.
    fn run(
        &self,
        config: &AnyAttentionConfig,
        dtype: DType,
        scored: usize,
        train: bool,
    ) -> Outcome {
        let device = Device::flex().autodiff();
        let on = (&device, dtype);
        let sizes = HeadSizes { width: WIDTH, heads: HEADS, head_dim: DIM, layer: 0 };
        let mechanism = in_type(config.init(sizes, &WeightInit::seeded(4, &device)), dtype);
        let heads = |i: usize| {
            let data = TensorData::new(self.0[i].clone(), [1, HEADS, LENGTH, DIM]);
            Tensor::<4>::from_data(data, on).require_grad()
        };
        let [q, k, v] = [0, 1, 2].map(heads);
        let hidden = TensorData::new(self.0[3].clone(), [1, LENGTH, WIDTH]);
        let hidden = Tensor::<3>::from_data(hidden, on).require_grad();
        let all = Heads { q: q.clone(), k: k.clone(), v: v.clone(), hidden: hidden.clone() };
        let pass = if train { LayerPass::train(1, 2, 0) } else { LayerPass::eval() };
        let out = mechanism.forward(all, pass.context(0.2, DropoutPlacement::Logits));
        let weights = normals(Stream::new(7), 0, [1, HEADS, LENGTH, DIM]);
        let weights = Tensor::<4>::from_data(weights, on).narrow(2, 0, scored);
        let loss = (out.clone().narrow(2, 0, scored) * weights).sum();
        let gradients = loss.backward();
        let of = |x: &Tensor<4>| x.grad(&gradients).map(floats).unwrap_or_default();
        let hidden = hidden.grad(&gradients).map(floats).unwrap_or_default();
        Outcome { out: floats(out), gradients: [of(&q), of(&k), of(&v), hidden] }
    }
}

/// Compares rows of `width` numbers, `length` of them a head, at the positions asked for.
fn close(what: &str, ours: &[f64], expected: &[f64], width: usize, at: impl Fn(usize) -> bool) {
    assert_eq!(ours.len(), expected.len(), "{what}");
    for (index, (a, b)) in ours.iter().zip(expected).enumerate() {
        let position = index / width % LENGTH;
        let tolerance = 1e-5 * (1.0 + b.abs());
        assert!(!at(position) || (a - b).abs() <= tolerance, "{what} at {position}: {a} for {b}");
    }
}

/// By kernels, where there are any, in f32, and without in f64.
fn both_ways(
    check: impl Fn(bool, &dyn Fn(&Case, usize) -> Outcome) + Sync,
    config: &AnyAttentionConfig,
) {
    for train in [false, true] {
        for (plain, dtype) in [(false, DType::F32), (true, DType::F64)] {
            check(plain, &|case, scored| case.run(config, dtype, scored, train));
        }
    }
}

#[test]
fn the_future_reaches_no_query() {
    let bad = 41;
    for config in mechanisms() {
        let name = format!("{config:?}");
        both_ways(
            |plain, run| {
                let good = run(&Case::new(), bad);
                for poison in POISONS {
                    for which in [1, 2, 3] {
                        let mut case = Case::new();
                        match which {
                            3 => case.0[3][bad * WIDTH..][..WIDTH].fill(poison),
                            _ => case.row(which, bad, poison),
                        }
                        let ours = run(&case, bad);
                        let what = format!("{name}, plain {plain}, {poison} in {which}");
                        let before = |position| position < bad;
                        close(&format!("{what}: out"), &ours.out, &good.out, DIM, before);
                        // In selective attention a query has a part in what later ones see, and so in
                        // the gradient of those that see the poison.
                        if name.starts_with("Selective") {
                            continue;
                        }
                        let ([dq, ..], [expected, ..]) = (&ours.gradients, &good.gradients);
                        close(&format!("{what}: dq"), dq, expected, DIM, before);
                    }
                }
            },
            &config,
        );
    }
}

/// A key that no query keeps, because its score is no number: it is as if its score were 0.
#[test]
fn a_key_that_left_reaches_nothing() {
    let bad = 41;
    let thresholds = ["tra", "tra-threshold", "tra-absolute"];
    for config in mechanisms().iter().filter(|config| thresholds.contains(&config.name())) {
        // A leak reaches keys that left: that is what it is for.
        if format!("{config:?}").contains("leak: 0.5") {
            continue;
        }
        both_ways(
            |plain, run| {
                let mut good = Case::new();
                good.row(1, bad, 0.0);
                let expected = run(&good, LENGTH);
                for poison in POISONS {
                    for key in [0.0, f32::NAN] {
                        let mut case = good.clone();
                        case.row(1, bad, key);
                        case.row(2, bad, poison);
                        let ours = run(&case, LENGTH);
                        let what = format!("{config:?}, plain {plain}, {poison} behind {key}");
                        close(&format!("{what}: out"), &ours.out, &expected.out, DIM, |_| true);
                        for (index, (a, b)) in
                            ours.gradients.iter().zip(&expected.gradients).enumerate()
                        {
                            let width = if index == 3 { WIDTH } else { DIM };
                            close(&format!("{what}: gradient {index}"), a, b, width, |_| true);
                        }
                    }
                }
            },
            config,
        );
    }
}
