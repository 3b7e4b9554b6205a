//! What is masked changes nothing: a NaN or an infinity behind the mask reaches no query that does
//! not see it, forward or backward, on any instruction set.

use tra_kernels::attention::{Gradients, Horizon, Inputs, Rows, Rule, Shape, backward, forward};
use tra_kernels::dropout::Dropout;
use tra_kernels::simd::Isa;
use tra_random::Stream;

/// One head, so that a row is a token.
const DIM: usize = 24;
const LENGTH: usize = 150;

#[derive(Clone)]
struct Case {
    queries: usize,
    keys: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    /// The gate of every query, or the step of every key.
    extra: Vec<f32>,
    grad: Vec<f32>,
    dropout: Option<Dropout>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Tra,
    Leaking,
    Nope,
    Alibi,
    Fox,
}

const KINDS: [Kind; 5] = [Kind::Tra, Kind::Leaking, Kind::Nope, Kind::Alibi, Kind::Fox];

impl Case {
    fn new(queries: usize, keys: usize) -> Self {
        let draw = |tag: u64, n: usize| -> Vec<f32> {
            (0..n as u64).map(|i| Stream::new(7).fork(tag).normal(i) as f32).collect()
        };
        Self {
            queries,
            keys,
            q: draw(0, queries * DIM),
            k: draw(1, keys * DIM),
            v: draw(2, keys * DIM),
            extra: draw(3, keys).iter().map(|x| -0.1 * x.abs()).collect(),
            grad: draw(4, queries * DIM),
            dropout: None,
        }
    }

    fn run(&self, kind: Kind, isa: Isa) -> (Vec<f32>, Gradients) {
        let (queries, keys) = ([1, 1, self.queries], [1, 1, self.keys]);
        let gate = Rows::contiguous(&self.extra[self.keys - self.queries..], queries, 1);
        let inputs = Inputs {
            shape: Shape { batch: 1, heads: 1, queries: self.queries, keys: self.keys, dim: DIM },
            q: Rows::contiguous(&self.q, queries, DIM),
            k: Rows::contiguous(&self.k, keys, DIM),
            v: Rows::contiguous(&self.v, keys, DIM),
            rule: match kind {
                Kind::Tra => Rule::Tra { gate, leak: 0.0 },
                Kind::Leaking => Rule::Tra { gate, leak: 0.5 },
                Kind::Nope => Rule::Dense,
                Kind::Alibi => Rule::Slope(Rows::contiguous(&[0.25], [1, 1, 1], 1)),
                Kind::Fox => {
                    let steps = Rows::contiguous(&self.extra, [1, 1, 1], self.keys);
                    Rule::Steps(steps)
                }
            },
            dropout: self.dropout,
            horizon: Horizon::Rounding,
            bounds: None,
            isa,
        };
        let mut out = vec![f32::NAN; self.queries * DIM];
        let saved = forward(&inputs, &mut out);
        let grad = Rows::contiguous(&self.grad, queries, DIM);
        let gradients = backward(&inputs, &saved, &out, grad);
        (out, gradients)
    }
}

fn close(what: &str, ours: &[f32], expected: &[f32]) {
    assert_eq!(ours.len(), expected.len(), "{what}");
    for (at, (a, b)) in ours.iter().zip(expected).enumerate() {
        let tolerance = 1e-5 * (1.0 + b.abs());
        assert!((a - b).abs() <= tolerance, "{what} [{at}]: {a} for {b}");
    }
}

const POISONS: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

/// Queries before a key of which the key, the value or the gate is not finite.
#[test]
fn the_future_reaches_no_query() {
    let bad = 97;
    for isa in Isa::available() {
        for kind in KINDS {
            for rate in [0.0, 0.2] {
                let mut good = Case::new(LENGTH, LENGTH);
                good.dropout = (rate > 0.0).then(|| Dropout::new(Stream::new(9), rate));
                let (out, g) = good.run(kind, isa);
                for poison in POISONS {
                    for place in 0..3 {
                        let mut case = good.clone();
                        match place {
                            0 => case.k[bad * DIM + 3] = poison,
                            1 => case.v[bad * DIM + 5] = poison,
                            _ => case.extra[bad] = poison,
                        }
                        let what = format!("{isa} {kind:?} {rate} {poison} in {place}");
                        let (ours, gradients) = case.run(kind, isa);
                        close(&format!("{what}: out"), &ours[..bad * DIM], &out[..bad * DIM]);
                        close(&format!("{what}: dq"), &gradients.q[..bad * DIM], &g.q[..bad * DIM]);
                        if matches!(kind, Kind::Tra | Kind::Leaking) {
                            close(&what, &gradients.rule[..bad], &g.rule[..bad]);
                        }
                    }
                }
            }
        }
    }
}

/// A key that every query drops: what its value is plays no part in anything, and neither does its
/// key, if that is what makes it drop.
#[test]
fn a_key_that_left_reaches_nothing() {
    for isa in Isa::available() {
        for (queries, rate) in [(LENGTH, 0.0), (LENGTH, 0.2), (2, 0.0), (70, 0.0)] {
            let mut good = Case::new(queries, LENGTH);
            good.dropout = (rate > 0.0).then(|| Dropout::new(Stream::new(9), rate));
            let bad = [3, 64, 65, 140];
            for (row, q) in good.q.chunks_mut(DIM).enumerate() {
                q[0] = 0.5 + row as f32 * 0.01;
            }
            for j in bad {
                good.k[j * DIM..][..DIM].fill(0.0);
                good.k[j * DIM] = -1.0;
            }
            let (out, g) = good.run(Kind::Tra, isa);
            for poison in POISONS {
                for in_keys in [false, true] {
                    // A score of +inf is positive, and kept.
                    if in_keys && !poison.is_nan() {
                        continue;
                    }
                    let mut case = good.clone();
                    for j in bad {
                        case.v[j * DIM..][..DIM].fill(poison);
                        if in_keys {
                            case.k[j * DIM + 2] = poison;
                        }
                    }
                    let what = format!("{isa} {queries} {rate} {poison}, keys {in_keys}");
                    let (ours, gradients) = case.run(Kind::Tra, isa);
                    close(&format!("{what}: out"), &ours, &out);
                    close(&format!("{what}: dq"), &gradients.q, &g.q);
                    close(&format!("{what}: dk"), &gradients.k, &g.k);
                    close(&format!("{what}: dv"), &gradients.v, &g.v);
                    close(&format!("{what}: dgate"), &gradients.rule, &g.rule);
                }
            }
        }
    }
}

/// A query that is not finite, or whose gradient is not: keys that it does not see have the gradient
/// they have without it.
#[test]
fn a_query_reaches_no_key_that_it_does_not_see() {
    let bad = 70;
    for isa in Isa::available() {
        for kind in KINDS {
            let mut without = Case::new(LENGTH, LENGTH);
            without.grad[bad * DIM..][..DIM].fill(0.0);
            let (_, g) = without.run(kind, isa);
            for poison in POISONS {
                for in_query in [false, true] {
                    let mut case = without.clone();
                    match in_query {
                        true => case.q[bad * DIM + 1] = poison,
                        false => case.grad[bad * DIM + 1] = poison,
                    }
                    let what = format!("{isa} {kind:?} {poison}, in the query {in_query}");
                    let (_, ours) = case.run(kind, isa);
                    let after = (bad + 1) * DIM..;
                    close(&format!("{what}: dk"), &ours.k[after.clone()], &g.k[after.clone()]);
                    close(&format!("{what}: dv"), &ours.v[after.clone()], &g.v[after.clone()]);
                    close(&format!("{what}: dq"), &ours.q[after.clone()], &g.q[after]);
                    close(&format!("{what}: dq"), &ours.q[..bad * DIM], &g.q[..bad * DIM]);
                }
            }
        }
    }
}
