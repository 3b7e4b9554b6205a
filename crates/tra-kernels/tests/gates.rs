//! The horizon leaves out nothing that a gradient shows: every gradient, that of the gate too, with
//! the horizon and without, judged by the definition in f64.

use tra_kernels::attention::{
    Gradients, Horizon, Inputs, Rows, Rule, Saved, Shape, backward, forward,
};
use tra_kernels::simd::Isa;
use tra_kernels::tra::naive;
use tra_random::Stream;

const DIM: usize = 16;
const LENGTH: usize = 900;

struct Case {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    gate: Vec<f32>,
    grad: Vec<f32>,
}

impl Case {
    /// Scores are exact: queries and keys are multiples of 1/4.
    fn new(gate: f32, seed: u64) -> Self {
        let stream = Stream::new(seed);
        let quarters = |tag: u64| -> Vec<f32> {
            let of = |i| (stream.fork(tag).below(i, 13) as f32 - 6.0) / 4.0;
            (0..(LENGTH * DIM) as u64).map(of).collect()
        };
        let normal = |tag: u64| -> Vec<f32> {
            (0..(LENGTH * DIM) as u64).map(|i| stream.fork(tag).normal(i) as f32).collect()
        };
        let gate = vec![gate; LENGTH];
        Self { q: quarters(0), k: quarters(1), v: normal(2), gate, grad: normal(3) }
    }

    fn run(&self, horizon: Horizon, isa: Isa) -> (Gradients, Saved) {
        let rows = [1, 1, LENGTH];
        let inputs = Inputs {
            shape: Shape { batch: 1, heads: 1, queries: LENGTH, keys: LENGTH, dim: DIM },
            q: Rows::contiguous(&self.q, rows, DIM),
            k: Rows::contiguous(&self.k, rows, DIM),
            v: Rows::contiguous(&self.v, rows, DIM),
            rule: Rule::Tra { gate: Rows::contiguous(&self.gate, rows, 1), leak: 0.0 },
            dropout: None,
            horizon,
            bounds: None,
            isa,
        };
        let mut out = vec![f32::NAN; LENGTH * DIM];
        let saved = forward(&inputs, &mut out);
        let gradients = backward(&inputs, &saved, &out, Rows::contiguous(&self.grad, rows, DIM));
        (gradients, saved)
    }

    fn expected(&self) -> naive::Gradients {
        let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|x| f64::from(*x)).collect() };
        let (q, k, v, gate) = (wide(&self.q), wide(&self.k), wide(&self.v), wide(&self.gate));
        let head = naive::Head { queries: LENGTH, keys: LENGTH, dim: DIM, eps: 0.0 };
        let inputs = naive::Inputs { q: &q, k: &k, v: &v, gate: &gate };
        let f = naive::attend(head, inputs, None);
        naive::attend_backward(head, inputs, &f, &wide(&self.grad), None, 0.0)
    }
}

/// The largest error, relative to the largest gradient of its row of `width`.
fn worst(ours: &[f32], expected: &[f64], width: usize) -> f64 {
    let mut worst = 0.0f64;
    for (ours, expected) in ours.chunks(width).zip(expected.chunks(width)) {
        let scale = expected.iter().fold(1e-30f64, |w, x| w.max(x.abs()));
        for (a, b) in ours.iter().zip(expected) {
            worst = worst.max((f64::from(*a) - b).abs() / scale);
        }
    }
    worst
}

/// Every score as large as its bound, so that the tail that the horizon leaves out is as heavy as it
/// can be, and old values opposite to new ones, so that every bit of it would show.
fn tight(gate: f32) -> Case {
    let mut case = Case::new(gate, 7);
    case.q.fill(1.0);
    case.k.fill(1.0);
    for (row, v) in case.v.chunks_mut(DIM).enumerate() {
        v.fill(if row < LENGTH / 2 { -1.0 } else { 1.0 });
    }
    case.grad.iter_mut().for_each(|g| *g = g.abs());
    case
}

#[test]
fn the_horizon_changes_no_gradient() {
    for isa in Isa::available() {
        // From gates that close at once to gates that forget over hundreds of keys.
        for gate in [-3.0, 0.0, 1.0, 2.0, 2.5, 3.0] {
            check("drawn", &Case::new(gate, 6), isa);
            check("tight", &tight(gate), isa);
        }
    }
}

/// With the horizon errors are those without it, and one rounding more.
fn check(name: &str, case: &Case, isa: Isa) {
    let expected = case.expected();
    let (near, saved) = case.run(Horizon::Rounding, isa);
    let (far, all) = case.run(Horizon::Exact, isa);
    assert!(all.stop.iter().all(|stop| *stop == 0));
    let what = format!("{isa}, {name}, gate {}", case.gate[0]);
    let stopped = saved.stop.iter().filter(|stop| **stop > 0).count();
    assert!(stopped > 0 || case.gate[0] > 2.0, "{what}: no row stopped");
    let parts = [
        ("dq", &near.q, &far.q, &expected.q),
        ("dk", &near.k, &far.k, &expected.k),
        ("dv", &near.v, &far.v, &expected.v),
    ];
    for (part, near, far, expected) in parts {
        let (near, far) = (worst(near, expected, DIM), worst(far, expected, DIM));
        assert!(near <= 2.0 * far + 1e-6, "{what}, {part}: {near:e}, exact {far:e}");
    }
    // A gate's gradient is a rounded sum: its error is measured by the size of the terms.
    let mut off = [0.0f64; 2];
    for i in 0..LENGTH {
        let size = terms(case, i);
        for (off, ours) in off.iter_mut().zip([&near.rule, &far.rule]) {
            *off = off.max((f64::from(ours[i]) - expected.gate[i]).abs() / size);
        }
    }
    let [near, far] = off;
    println!("{what}: {near:.1e}, exact {far:.1e}, {stopped} stopped");
    assert!(near <= far + 6e-8, "{what}: gates off by {near:e}, without the horizon {far:e}");
}

/// The sum of `p (|g| . |v|) c` over the kept keys of a row, times the slope of the gate: what the
/// gate's gradient is a rounded sum of.
fn terms(case: &Case, i: usize) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let gate = f64::from(case.gate[i]);
    let d = -(-gate).exp().ln_1p();
    let (mut count, mut sum, mut terms) = (0.0, 0.0, 0.0);
    for j in (0..=i).rev() {
        let s = dot(&case.q[i * DIM..][..DIM], &case.k[j * DIM..][..DIM]) / (DIM as f64).sqrt();
        if s > 0.0 {
            count += 1.0;
            let e = (s + d * count).exp();
            sum += e;
            let size: f64 = (0..DIM)
                .map(|t| f64::from((case.grad[i * DIM + t] * case.v[j * DIM + t]).abs()))
                .sum();
            terms += e * size * count;
        }
    }
    let slope = 1.0 / (1.0 + gate.exp());
    (terms / sum.max(1e-300) * slope).max(1e-30)
}
