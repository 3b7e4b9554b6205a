//! The definition: one head of Threshold Relative Attention in plain `f64` loops.
//!
//! Every line follows a formula of the paper. Nothing here is optimised, and nothing should be: faster
//! implementations are compared with this one.
//!
//! All matrices are row-major slices. Queries may be fewer than keys, as when decoding with a
//! cache: query `i` is then at position `keys - queries + i`.

/// Sizes and epsilon of one head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head {
    /// Number of queries; at most `keys`.
    pub queries: usize,
    /// Number of keys.
    pub keys: usize,
    /// Head dimension, `e` in the paper.
    pub dim: usize,
    /// Added to the mean square inside the root of the query/key norm.
    pub eps: f64,
}

impl Head {
    /// A head over one whole sequence with the published epsilon of 1e-6.
    pub fn new(length: usize, dim: usize) -> Self {
        Self { queries: length, keys: length, dim, eps: 1e-6 }
    }

    /// # Panics
    /// If the inputs have other sizes.
    fn check(&self, inputs: Inputs<'_>) {
        let Self { queries, keys, dim, .. } = *self;
        assert!(queries <= keys, "more queries than keys: {queries} and {keys}");
        let sizes = [inputs.q, inputs.k, inputs.v, inputs.gate].map(<[f64]>::len);
        let expected = [queries * dim, keys * dim, keys * dim, queries];
        assert_eq!(sizes, expected, "the sizes of queries, keys, values and gates");
    }

    /// Returns the position of query `i` among the keys.
    fn position(&self, i: usize) -> usize {
        self.keys - self.queries + i
    }
}

/// Inputs. Lengths: `q` queries x dim, `k` and `v` keys x dim, `gate` queries.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Queries, before the norm.
    pub q: &'a [f64],
    /// Keys, before the norm.
    pub k: &'a [f64],
    /// Values.
    pub v: &'a [f64],
    /// Forget gate of each query, before log-sigmoid.
    pub gate: &'a [f64],
}

/// Output, with the intermediate quantities of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forward {
    /// Queries x keys: `q . k / sqrt(e)`, before the threshold.
    pub score: Vec<f64>,
    /// Queries x keys: which keys take part.
    pub keep: Vec<bool>,
    /// Queries x keys: kept keys from this one to the query, itself included; 0 where not kept.
    pub count: Vec<u32>,
    /// Queries x keys: softmax over the kept keys; a row that keeps nothing is zero.
    pub weights: Vec<f64>,
    /// Queries x dim.
    pub out: Vec<f64>,
}

/// Gradients with respect to [`Inputs`], each of the shape of its input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gradients {
    /// With respect to the queries before the norm.
    pub q: Vec<f64>,
    /// With respect to the keys before the norm.
    pub k: Vec<f64>,
    /// With respect to the values.
    pub v: Vec<f64>,
    /// With respect to the gate before log-sigmoid.
    pub gate: Vec<f64>,
}

/// Computes one head.
///
/// ```
/// use tra_kernels::tra::naive::{forward, Head, Inputs};
///
/// let (q, k, v) = ([1.0, 1.0], [1.0, -1.0, 2.0, 2.0], [10.0, 0.0, 20.0, 0.0]);
/// let head = Head { queries: 1, keys: 2, dim: 2, eps: 0.0 };
/// let one = forward(head, Inputs { q: &q, k: &k, v: &v, gate: &[0.0] });
/// // The older key is orthogonal to the query: its score is not positive, so it takes no part.
/// assert_eq!(one.keep, [false, true]);
/// assert_eq!(one.out, [20.0, 0.0]);
/// ```
pub fn forward(head: Head, inputs: Inputs<'_>) -> Forward {
    let (q, k) = normalised(head, inputs);
    attend(head, Inputs { q: &q, k: &k, ..inputs }, None)
}

/// Computes one head without the norm: `q` and `k` are used as they are. `factor`, queries x keys, is
/// the factor of dropout on the logits.
pub fn attend(head: Head, inputs: Inputs<'_>, factor: Option<&[f64]>) -> Forward {
    let Head { queries, keys, dim, .. } = head;
    head.check(inputs);
    let (q, k) = (inputs.q, inputs.k);
    let scale = 1.0 / (dim as f64).sqrt();
    let factor = |at: usize| factor.map_or(1.0, |f| f[at]);

    let mut f = Forward {
        score: vec![0.0; queries * keys],
        keep: vec![false; queries * keys],
        count: vec![0; queries * keys],
        weights: vec![0.0; queries * keys],
        out: vec![0.0; queries * dim],
    };
    for i in 0..queries {
        let row = i * keys;
        let visible = head.position(i) + 1;
        for j in 0..visible {
            f.score[row + j] = dot(&q[i * dim..][..dim], &k[j * dim..][..dim]) * scale;
            f.keep[row + j] = f.score[row + j] > 0.0;
        }
        let mut kept = 0;
        for j in (0..visible).rev().filter(|j| f.keep[row + j]) {
            kept += 1;
            f.count[row + j] = kept;
        }
        let d = log_sigmoid(inputs.gate[i]);
        let logit =
            |j: usize| (f.score[row + j] + d * f64::from(f.count[row + j])) * factor(row + j);
        let keeps = |j: &usize| f.keep[row + j];
        let max = (0..visible).filter(keeps).map(logit).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = (0..visible).filter(keeps).map(|j| (logit(j) - max).exp()).sum();
        for j in (0..visible).filter(keeps) {
            f.weights[row + j] = (logit(j) - max).exp() / sum;
            for t in 0..dim {
                f.out[i * dim + t] += f.weights[row + j] * inputs.v[j * dim + t];
            }
        }
    }
    f
}

/// Returns the gradients of `sum(grad_out * out)`, given the result of [`forward`] for the same inputs.
///
/// `keep` and `count` are piecewise constant, so no gradient flows through them.
pub fn backward(head: Head, inputs: Inputs<'_>, f: &Forward, grad_out: &[f64]) -> Gradients {
    let (q, k) = normalised(head, inputs);
    let g = attend_backward(head, Inputs { q: &q, k: &k, ..inputs }, f, grad_out, None, 0.0);
    let Head { dim, eps, .. } = head;
    Gradients {
        q: normalise_backward(inputs.q, &g.q, dim, eps),
        k: normalise_backward(inputs.k, &g.k, dim, eps),
        ..g
    }
}

/// Returns the same gradients for [`attend`].
///
/// With a `leak`, each score of a query that keeps no key receives that share of the gradient it would
/// have had as the only kept key, with the exponential of its logit as weight, at most 1. So a score
/// can return above the threshold.
pub fn attend_backward(
    head: Head,
    inputs: Inputs<'_>,
    f: &Forward,
    grad_out: &[f64],
    factor: Option<&[f64]>,
    leak: f64,
) -> Gradients {
    let Head { queries, keys, dim, .. } = head;
    let (q, k) = (inputs.q, inputs.k);
    let scale = 1.0 / (dim as f64).sqrt();
    let factor = |at: usize| factor.map_or(1.0, |f| f[at]);

    let mut dq = vec![0.0; queries * dim];
    let mut dk = vec![0.0; keys * dim];
    let mut dv = vec![0.0; keys * dim];
    let mut dgate = vec![0.0; queries];
    for i in 0..queries {
        let g = &grad_out[i * dim..][..dim];
        let mean = dot(g, &f.out[i * dim..][..dim]);
        let mut dd = 0.0;
        for j in (0..keys).filter(|j| f.keep[i * keys + j]) {
            let p = f.weights[i * keys + j];
            let da = p * (dot(g, &inputs.v[j * dim..][..dim]) - mean);
            let da = da * factor(i * keys + j);
            dd += da * f64::from(f.count[i * keys + j]);
            for t in 0..dim {
                dv[j * dim + t] += p * g[t];
                dq[i * dim + t] += da * k[j * dim + t] * scale;
                dk[j * dim + t] += da * q[i * dim + t] * scale;
            }
        }
        dgate[i] = dd * sigmoid(-inputs.gate[i]);
        if leak == 0.0 || f.keep[i * keys..][..keys].contains(&true) {
            continue;
        }
        let d = log_sigmoid(inputs.gate[i]);
        for j in 0..=head.position(i) {
            let at = i * keys + j;
            let p = ((f.score[at] + d) * factor(at)).exp().min(1.0);
            let ds = leak * p * dot(g, &inputs.v[j * dim..][..dim]) * factor(at);
            for t in 0..dim {
                dq[i * dim + t] += ds * k[j * dim + t] * scale;
                dk[j * dim + t] += ds * q[i * dim + t] * scale;
            }
        }
    }
    Gradients { q: dq, k: dk, v: dv, gate: dgate }
}

fn normalised(head: Head, inputs: Inputs<'_>) -> (Vec<f64>, Vec<f64>) {
    (normalise(inputs.q, head.dim, head.eps), normalise(inputs.k, head.dim, head.eps))
}

/// Applies the RMS norm to every row of `dim` numbers, without a learned scale.
fn normalise(x: &[f64], dim: usize, eps: f64) -> Vec<f64> {
    x.chunks_exact(dim).flat_map(|row| row.iter().map(|x| x / rms(row, eps))).collect()
}

/// With `y = x / r` and `r = rms(x)`: `dx = (dy - y (y . dy) / e) / r`.
fn normalise_backward(x: &[f64], dy: &[f64], dim: usize, eps: f64) -> Vec<f64> {
    let mut dx = Vec::with_capacity(x.len());
    for (x, dy) in x.chunks_exact(dim).zip(dy.chunks_exact(dim)) {
        let r = rms(x, eps);
        let along = dot(x, dy) / (r * dim as f64);
        dx.extend(x.iter().zip(dy).map(|(x, dy)| (dy - x / r * along) / r));
    }
    dx
}

fn rms(row: &[f64], eps: f64) -> f64 {
    (dot(row, row) / row.len() as f64 + eps).sqrt()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns the log-sigmoid. Stable for every finite input: neither branch exponentiates a positive
/// number.
fn log_sigmoid(x: f64) -> f64 {
    x.min(0.0) - (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    log_sigmoid(x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tra_random::Stream;

    fn normals(stream: Stream, tag: u64, n: usize) -> Vec<f64> {
        (0..n as u64).map(|i| stream.fork(tag).normal(i)).collect()
    }

    #[test]
    fn a_zero_vector_keeps_nothing_and_gives_exactly_zero() {
        let head = Head::new(3, 4);
        let zero = [0.0; 12];
        let v = [7.0; 12];
        let inputs = Inputs { q: &zero, k: &zero, v: &v, gate: &[0.0; 3] };
        let f = forward(head, inputs);
        assert_eq!(f.out, [0.0; 12]);
        assert!(f.keep.iter().all(|k| !k));
        let g = backward(head, inputs, &f, &[1.0; 12]);
        assert!(g.q.iter().chain(&g.k).chain(&g.v).chain(&g.gate).all(|g| *g == 0.0));
    }

    #[test]
    fn counts_number_the_kept_keys_from_the_newest() {
        let stream = Stream::new(3);
        let head = Head::new(9, 5);
        let (q, k, v) = (normals(stream, 0, 45), normals(stream, 1, 45), normals(stream, 2, 45));
        let f = forward(head, Inputs { q: &q, k: &k, v: &v, gate: &[0.3; 9] });
        for i in 0..9 {
            let counts: Vec<u32> =
                (0..9).rev().filter(|j| f.keep[i * 9 + j]).map(|j| f.count[i * 9 + j]).collect();
            assert_eq!(counts, (1..=counts.len() as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn saturated_gates_stay_finite() {
        for gate in [-1e4, -800.0, 800.0, 1e4] {
            assert!(log_sigmoid(gate).is_finite() && sigmoid(-gate).is_finite());
        }
        assert_eq!(log_sigmoid(-1e4), -1e4);
        assert_eq!(log_sigmoid(0.0), -(2f64.ln()));
    }

    #[test]
    fn fewer_queries_than_keys_are_the_last_rows_of_the_full_forward() {
        let stream = Stream::new(11);
        let (n, e) = (13, 3);
        let (q, k, v) =
            (normals(stream, 0, n * e), normals(stream, 1, n * e), normals(stream, 2, n * e));
        let gate = normals(stream, 3, n);
        let full = forward(Head::new(n, e), Inputs { q: &q, k: &k, v: &v, gate: &gate });
        let head = Head { queries: 4, ..Head::new(n, e) };
        let part = Inputs { q: &q[9 * e..], k: &k, v: &v, gate: &gate[9..] };
        assert_eq!(forward(head, part).out, full.out[9 * e..]);
    }

    /// Central differences of every input element, at odd sizes and with fewer queries than keys.
    #[test]
    fn gradients_match_finite_differences() {
        for (seed, queries, keys, dim) in [(1, 1, 1, 1), (2, 7, 7, 5), (3, 3, 11, 7), (4, 9, 9, 24)]
        {
            let stream = Stream::new(seed);
            let head = Head { queries, keys, dim, eps: 1e-6 };
            let given = [
                normals(stream, 0, queries * dim),
                normals(stream, 1, keys * dim),
                normals(stream, 2, keys * dim),
                normals(stream, 3, queries),
            ];
            let grad_out = normals(stream, 4, queries * dim);
            let run = |x: &[Vec<f64>; 4]| {
                forward(head, Inputs { q: &x[0], k: &x[1], v: &x[2], gate: &x[3] })
            };
            let f = run(&given);
            assert!(f.score.iter().all(|s| *s == 0.0 || s.abs() > 1e-4), "too near a kink");
            let inputs = Inputs { q: &given[0], k: &given[1], v: &given[2], gate: &given[3] };
            let g = backward(head, inputs, &f, &grad_out);
            for (which, analytic) in [&g.q, &g.k, &g.v, &g.gate].into_iter().enumerate() {
                for at in 0..analytic.len() {
                    let h = 1e-6;
                    let loss = |delta: f64| {
                        let mut x = given.clone();
                        x[which][at] += delta;
                        dot(&run(&x).out, &grad_out)
                    };
                    let numeric = (loss(h) - loss(-h)) / (2.0 * h);
                    assert!(
                        (numeric - analytic[at]).abs() < 1e-7 * (1.0 + numeric.abs()),
                        "input {which}[{at}]: {numeric} against {}",
                        analytic[at]
                    );
                }
            }
        }
    }
}
