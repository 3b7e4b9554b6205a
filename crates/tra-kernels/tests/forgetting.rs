//! FoX at length: logits are as exact far into a sequence as at its beginning.

use tra_kernels::attention::{
    Gradients, Horizon, Inputs, Rows, Rule, Saved, Shape, backward, forward,
};
use tra_kernels::simd::Isa;
use tra_random::Stream;

const DIM: usize = 16;

struct Case {
    keys: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    grad: Vec<f32>,
    /// `log f` of every position.
    steps: Vec<f32>,
}

impl Case {
    /// Gates around one half, with a stretch of nearly open ones, over which weights reach far.
    fn new(keys: usize) -> Self {
        let stream = Stream::new(keys as u64);
        let draw = |tag: u64| -> Vec<f32> {
            (0..(keys * DIM) as u64).map(|i| stream.fork(tag).normal(i) as f32).collect()
        };
        let steps = (0..keys).map(|t| {
            let x = stream.fork(9).normal(t as u64) as f32;
            if t % 1000 < 400 { -0.001 * x.abs() } else { -0.7 * x.abs() }
        });
        Self { keys, q: draw(0), k: draw(1), v: draw(2), grad: draw(3), steps: steps.collect() }
    }

    /// The last `queries` of them.
    fn inputs(&self, queries: usize, horizon: Horizon) -> Inputs<'_> {
        let keys = [1, 1, self.keys];
        Inputs {
            shape: Shape { batch: 1, heads: 1, queries, keys: self.keys, dim: DIM },
            q: Rows::contiguous(&self.q[(self.keys - queries) * DIM..], [1, 1, queries], DIM),
            k: Rows::contiguous(&self.k, keys, DIM),
            v: Rows::contiguous(&self.v, keys, DIM),
            rule: Rule::Steps(Rows::contiguous(&self.steps, [1, 1, 1], self.keys)),
            dropout: None,
            horizon,
            bounds: None,
            isa: Isa::best(),
        }
    }

    fn run(&self, horizon: Horizon) -> (Vec<f32>, Saved, Gradients) {
        let inputs = self.inputs(self.keys, horizon);
        let mut out = vec![f32::NAN; self.keys * DIM];
        let saved = forward(&inputs, &mut out);
        let grad = Rows::contiguous(&self.grad, [1, 1, self.keys], DIM);
        let gradients = backward(&inputs, &saved, &out, grad);
        (out, saved, gradients)
    }

    /// One row by the definition: its logits from the newest key on.
    fn logits(&self, i: usize) -> Vec<f64> {
        let mut bias = 0.0;
        let mut logits = Vec::with_capacity(i + 1);
        for j in (0..=i).rev() {
            let dot: f64 = (0..DIM)
                .map(|t| f64::from(self.q[i * DIM + t]) * f64::from(self.k[j * DIM + t]))
                .sum();
            logits.push(dot / (DIM as f64).sqrt() + bias);
            bias += f64::from(self.steps[j]);
        }
        logits
    }

    /// Output and the logarithm of the sum of exponentials of a row by the definition.
    fn row(&self, i: usize) -> (Vec<f64>, f64) {
        let logits = self.logits(i);
        let max = logits.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = logits.iter().map(|x| (x - max).exp()).sum();
        let mut out = vec![0.0; DIM];
        for (back, logit) in logits.iter().enumerate() {
            let weight = (logit - max).exp() / sum;
            for (t, out) in out.iter_mut().enumerate() {
                *out += weight * f64::from(self.v[(i - back) * DIM + t]);
            }
        }
        (out, max + sum.ln())
    }
}

/// Outputs, and the logarithm of the sum of exponentials, which is what logits are off by together.
#[test]
fn logits_are_exact_at_every_length() {
    for length in [4096, 65_536] {
        let case = Case::new(length);
        let (out, saved, _) = case.run(Horizon::Rounding);
        let share = saved.share_read(case.inputs(length, Horizon::Rounding).shape);
        assert!(share < 0.7, "{length}: the horizon is switched off: {share}");
        let mut worst = [0.0f64; 2];
        for i in (0..length).step_by(length / 512) {
            let (expected, log_sum) = case.row(i);
            for (ours, expected) in out[i * DIM..].iter().zip(&expected) {
                worst[0] = worst[0].max((f64::from(*ours) - expected).abs());
            }
            let ours = f64::from(saved.shift[i]) - f64::from(saved.inverse_sum[i]).ln();
            worst[1] = worst[1].max((ours - log_sum).abs());
        }
        println!("{length}: outputs off by {:.1e}, logits by {:.1e}", worst[0], worst[1]);
        assert!(worst.iter().all(|x| *x < 1e-5), "{length}: {worst:?}");
    }
}

/// A query by itself, as in generation, has the result that it has among all.
#[test]
fn one_query_is_as_exact_as_all() {
    for length in [4096, 65_536] {
        let mut case = Case::new(length);
        let (out, ..) = case.run(Horizon::Rounding);
        for queries in [1, 3, 5, 70] {
            let mut few = vec![f32::NAN; queries * DIM];
            forward(&case.inputs(queries, Horizon::Rounding), &mut few);
            for (a, b) in few.iter().zip(&out[(length - queries) * DIM..]) {
                assert!((a - b).abs() < 1e-5, "{length}, {queries} queries: {a} {b}");
            }
        }
        // With gates wide open weights reach back to the first key.
        case.steps.iter_mut().for_each(|x| *x *= 1e-3);
        let mut one = vec![f32::NAN; DIM];
        forward(&case.inputs(1, Horizon::Rounding), &mut one);
        let (expected, _) = case.row(length - 1);
        for (ours, expected) in one.iter().zip(&expected) {
            assert!((f64::from(*ours) - expected).abs() < 1e-5, "{length}: {ours} {expected}");
        }
    }
}

/// The gradient of every gate against the definition: `sum over i >= t, j < t of da_ij`.
#[test]
fn gates_have_exact_gradients_at_length() {
    let length = 4096;
    let case = Case::new(length);
    let (_, _, gradients) = case.run(Horizon::Rounding);
    // `steps[t]` is part of every pair with `j < t <= i`: add at `j + 1`, take away behind `i`.
    let mut change = vec![0.0; length + 1];
    for i in 0..length {
        let logits = case.logits(i);
        let (out, log_sum) = case.row(i);
        let g = &case.grad[i * DIM..][..DIM];
        let mean: f64 = g.iter().zip(&out).map(|(g, o)| f64::from(*g) * o).sum();
        for (back, logit) in logits.iter().enumerate() {
            let j = i - back;
            let gv: f64 = (0..DIM).map(|t| f64::from(g[t]) * f64::from(case.v[j * DIM + t])).sum();
            let da = (logit - log_sum).exp() * (gv - mean);
            change[j + 1] += da;
            change[i + 1] -= da;
        }
    }
    let mut expected = 0.0;
    let scale = gradients.rule.iter().fold(1.0f64, |w, x| w.max(f64::from(x.abs())));
    let mut worst = 0.0f64;
    for (t, ours) in gradients.rule.iter().enumerate() {
        expected += change[t];
        worst = worst.max((f64::from(*ours) - expected).abs() / scale);
    }
    println!("gates off by {worst:.1e} of the largest, {scale:.1}");
    assert!(worst < 1e-5, "{worst}");
}

/// Gates that close for good, or are so far closed that no number tells, hide what lies before them
/// and nothing else.
#[test]
fn closed_gates_leave_what_follows_alone() {
    for closed in [-1e4, -1e30, f32::NEG_INFINITY] {
        let mut case = Case::new(300);
        case.steps[100] = closed;
        let (out, ..) = case.run(Horizon::Rounding);
        for i in [99, 100, 101, 250, 299] {
            let first = if i < 100 { 0 } else { 100 };
            let logits: Vec<f64> = case.logits(i)[..=i - first].to_vec();
            let sum: f64 = logits.iter().map(|x| x.exp()).sum();
            for t in 0..DIM {
                let expected: f64 = logits
                    .iter()
                    .enumerate()
                    .map(|(back, x)| x.exp() / sum * f64::from(case.v[(i - back) * DIM + t]))
                    .sum();
                let ours = f64::from(out[i * DIM + t]);
                assert!((ours - expected).abs() < 1e-5, "{closed} {i}: {ours} {expected}");
            }
        }
    }
}
