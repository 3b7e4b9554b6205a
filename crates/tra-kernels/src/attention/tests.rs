//! Every instruction set against the definitions in f64, forward and every gradient.
//!
//! Queries and keys are multiples of 1/4, so that products are exact in f32 and no score is kept
//! by one side and dropped by the other; many are exactly 0, which the strict threshold drops.

use proptest::prelude::*;

use super::naive::Dense;
use super::*;
use crate::tra::naive;
use tra_random::Stream;

#[derive(Clone, Debug)]
struct Case {
    shape: Shape,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    /// Gate or steps.
    extra: Vec<f32>,
    grad: Vec<f32>,
    dropout: Option<Dropout>,
    horizon: Horizon,
}

fn shape(length: usize, dim: usize) -> Shape {
    Shape { batch: 1, heads: 2, queries: length, keys: length, dim }
}

fn numbers(stream: Stream, n: usize, f: impl Fn(Stream, u64) -> f64) -> Vec<f32> {
    (0..n as u64).map(|i| f(stream, i) as f32).collect()
}

fn quarters(stream: Stream, i: u64) -> f64 {
    (stream.below(i, 13) as f64 - 6.0) / 4.0
}

impl Case {
    fn new(shape: Shape, seed: u64) -> Self {
        let stream = Stream::new(seed);
        let heads = shape.batch * shape.heads;
        let (queries, keys) = (heads * shape.queries, heads * shape.keys);
        Self {
            shape,
            q: numbers(stream.fork(0), queries * shape.dim, quarters),
            k: numbers(stream.fork(1), keys * shape.dim, quarters),
            v: numbers(stream.fork(2), keys * shape.dim, |s, i| s.normal(i)),
            extra: numbers(stream.fork(3), keys, |s, i| 2.0 * s.normal(i)),
            grad: numbers(stream.fork(4), queries * shape.dim, |s, i| s.normal(i)),
            dropout: None,
            horizon: Horizon::Rounding,
        }
    }

    /// The inputs are `[batch, heads, rows, dim]`, the gate `[batch, heads, queries]`.
    fn inputs<'a>(&'a self, rule: Rule<Rows<'a>>, isa: Isa) -> Inputs<'a> {
        let Shape { dim, .. } = self.shape;
        Inputs {
            shape: self.shape,
            q: Rows::contiguous(&self.q, self.shape.query_rows(), dim),
            k: Rows::contiguous(&self.k, self.shape.key_rows(), dim),
            v: Rows::contiguous(&self.v, self.shape.key_rows(), dim),
            rule,
            dropout: self.dropout,
            horizon: self.horizon,
            bounds: None,
            isa,
        }
    }

    fn gate(&self) -> Rule<Rows<'_>> {
        self.leaking(0.0)
    }

    fn leaking(&self, leak: f32) -> Rule<Rows<'_>> {
        Rule::Tra { gate: Rows::contiguous(&self.extra, self.shape.query_rows(), 1), leak }
    }

    fn run(&self, rule: Rule<Rows<'_>>, isa: Isa) -> (Vec<f32>, Gradients, Saved) {
        let inputs = self.inputs(rule, isa);
        let mut out = vec![f32::NAN; self.shape.all_queries() * self.shape.dim];
        let saved = forward(&inputs, &mut out);
        let grad = Rows::contiguous(&self.grad, self.shape.query_rows(), self.shape.dim);
        let gradients = backward(&inputs, &saved, &out, grad);
        (out, gradients, saved)
    }

    fn factors(&self, head: usize) -> Vec<f64> {
        let Shape { queries, keys, .. } = self.shape;
        let one = |i: usize| {
            let row = self.dropout.map(|d| d.row((head * queries + i) as u64));
            (0..keys as u32).map(move |j| row.map_or(1.0, |row| f64::from(row.factor(j))))
        };
        (0..queries).flat_map(one).collect()
    }

    /// Output and gradients of every head by the definition, heads one after another.
    fn expected(&self, rule: Rule<Rows<'_>>) -> Vec<[Vec<f64>; 5]> {
        let Shape { batch, heads, queries, keys, dim } = self.shape;
        let wide = |x: &[f32], head: usize, n: usize| -> Vec<f64> {
            x[head * n..][..n].iter().map(|x| f64::from(*x)).collect()
        };
        let one = |head: usize| {
            let (q, grad) =
                (wide(&self.q, head, queries * dim), wide(&self.grad, head, queries * dim));
            let (k, v) = (wide(&self.k, head, keys * dim), wide(&self.v, head, keys * dim));
            let factor = self.factors(head);
            match rule {
                Rule::Tra { leak, .. } => {
                    let leak = f64::from(leak);
                    let gate = wide(&self.extra, head, queries);
                    let of = naive::Head { queries, keys, dim, eps: 0.0 };
                    let inputs = naive::Inputs { q: &q, k: &k, v: &v, gate: &gate };
                    let f = naive::attend(of, inputs, Some(&factor));
                    let g = naive::attend_backward(of, inputs, &f, &grad, Some(&factor), leak);
                    [f.out, g.q, g.k, g.v, g.gate]
                }
                _ => {
                    let at = [head / heads, head % heads];
                    let of = |i: usize, j: usize| match rule {
                        Rule::Tra { .. } | Rule::Dense => 0.0,
                        Rule::Slope(slopes) => {
                            f64::from(slopes.row([0, at[1]], 0)[0]) * (j as f64 - i as f64)
                        }
                        Rule::Steps(x) => {
                            let steps = x.row(at, 0).get(j + 1..=i).unwrap_or_default();
                            steps.iter().map(|x| f64::from(*x)).sum()
                        }
                    };
                    let bias: Vec<f64> = (keys - queries..keys)
                        .flat_map(|i| (0..keys).map(move |j| of(i, j)))
                        .collect();
                    let dense = Dense {
                        sizes: [queries, keys, dim],
                        q: &q,
                        k: &k,
                        v: &v,
                        bias: &bias,
                        factor: &factor,
                    };
                    let [dq, dk, dv, dbias] = dense.backward(&grad);
                    let mut steps = vec![0.0; keys];
                    for (i, row) in dbias.chunks(keys).enumerate() {
                        for (j, d) in row[..=keys - queries + i].iter().enumerate() {
                            steps[j + 1..=keys - queries + i].iter_mut().for_each(|x| *x += d);
                        }
                    }
                    [dense.forward().1, dq, dk, dv, steps]
                }
            }
        };
        (0..batch * heads).map(one).collect()
    }

    fn check(&self, rule: Rule<Rows<'_>>, isa: Isa) {
        let (out, g, _) = self.run(rule, isa);
        let expected = self.expected(rule);
        let Shape { heads, queries, keys, dim, .. } = self.shape;
        // A logit is rounded to its own size: large biases cost digits.
        let largest = match rule {
            Rule::Steps(_) => {
                let rows = self.steps();
                let sums = rows.chunks(keys.max(1)).map(|row| row.iter().sum::<f32>().abs());
                sums.fold(0.0f32, f32::max)
            }
            _ => 0.0,
        };
        let digits = 1.0 + f64::from(largest) / 16.0;
        let parts: [(&str, &[f32], usize, usize, f64); 5] = [
            ("out", &out, queries, dim, 5e-6),
            ("dq", &g.q, queries, dim, 2e-5),
            ("dk", &g.k, keys, dim, 2e-5),
            ("dv", &g.v, keys, dim, 2e-5),
            (
                "drule",
                &g.rule,
                if g.rule.len() == self.shape.all_queries() { queries } else { keys },
                1,
                2e-5,
            ),
        ];
        for (which, (name, ours, rows, width, tolerance)) in parts.into_iter().enumerate() {
            if ours.is_empty() {
                continue;
            }
            let all = expected.iter().flat_map(|head| &head[which]);
            let scale = all.fold(1f64, |w, x| w.max(x.abs()));
            for (head, expected) in expected.iter().enumerate() {
                for (i, x) in expected[which].iter().enumerate() {
                    let (row, t) = (i / width, i % width);
                    let token = (head / heads * rows + row) * heads + head % heads;
                    let ours = f64::from(ours[token * width + t]);
                    assert!(
                        (ours - x).abs() <= tolerance * scale * digits,
                        "{isa}: {name} of {:?}, head {head}, row {row}, {t}: {ours} for {x} (scale {scale})",
                        self.shape
                    );
                }
            }
        }
    }

    /// Every rule there is.
    fn check_all(&self, isa: Isa) {
        self.check(self.gate(), isa);
        self.check(self.leaking(0.5), isa);
        self.check(Rule::Dense, isa);
        let slopes: Vec<f32> = (0..self.shape.heads).map(|h| 0.5f32.powi(h as i32 + 1)).collect();
        self.check(Rule::Slope(Rows::contiguous(&slopes, [1, self.shape.heads, 1], 1)), isa);
        let mut steps = self.steps();
        self.check(Rule::Steps(self.steps_rows(&steps)), isa);
        // Steps that do not fall with distance: nothing may be left out.
        steps.iter_mut().for_each(|x| *x = -*x);
        self.check(Rule::Steps(self.steps_rows(&steps)), isa);
    }

    /// Steps as FoX has them, negative all of them.
    fn steps(&self) -> Vec<f32> {
        self.extra.iter().map(|x| -0.05 * x.abs()).collect()
    }

    fn steps_rows<'a>(&self, steps: &'a [f32]) -> Rows<'a> {
        let [batch, heads, keys] = self.shape.key_rows();
        Rows::contiguous(steps, [batch, heads, 1], keys)
    }
}

/// The lengths of the issue; the longest with the width heads have, the others with every one.
#[test]
fn every_path_agrees_with_the_definition() {
    for isa in Isa::available() {
        for length in [1, 2, 15, 16, 17, 63, 64, 65, 111] {
            for dim in [8, 24, 32, 64, 80, 128] {
                Case::new(shape(length, dim), (length * dim) as u64).check_all(isa);
            }
        }
    }
}

/// Without a leak a head that keeps nothing stays so; with one, a key is called back whose value would lower the loss, and pushed on
/// whose value would raise it.
#[test]
fn a_leak_reaches_what_left_and_changes_no_output() {
    for isa in Isa::available() {
        let mut case = Case::new(shape(3, 8), 1);
        case.q.fill(0.5);
        case.k.fill(-0.25);
        case.grad.fill(1.0);
        for (row, v) in case.v.chunks_mut(8).enumerate() {
            v.fill(if row % 3 == 0 { -1.0 } else { 1.0 });
        }
        let (out, none, _) = case.run(case.gate(), isa);
        let all = [&none.q, &none.k, &none.v, &none.rule].into_iter().flatten();
        assert!(all.chain(&out).all(|x| *x == 0.0), "{isa}");
        let (same, some, _) = case.run(case.leaking(1.0), isa);
        assert_eq!(out, same, "{isa}");
        // Keys by token, then head. A step against the gradient, along q, which is positive, raises the score.
        for (row, dk) in some.k.chunks(8).enumerate() {
            let wanted = row / 2 == 0;
            assert!(dk.iter().all(|x| if wanted { *x < 0.0 } else { *x > 0.0 }), "{isa}: {dk:?}");
        }
        assert!(some.v.iter().chain(&some.rule).all(|x| *x == 0.0), "{isa}");
    }
}

/// No score of a query of zeros is positive, so that nothing is kept and reading could stop at once; but what left has a gradient.
#[test]
fn a_leak_reaches_every_key_of_a_query_of_zeros() {
    let mut case = Case::new(shape(150, 8), 2);
    case.q.fill(0.0);
    for isa in Isa::available() {
        case.check(case.leaking(0.5), isa);
    }
}

#[test]
fn long_sequences_agree_with_the_definition() {
    let dims: &[usize] = if cfg!(debug_assertions) { &[64] } else { &[8, 24, 32, 64, 80, 128] };
    for isa in Isa::available() {
        for dim in dims {
            let mut case = Case::new(shape(513, *dim), *dim as u64);
            case.shape.heads = 1;
            case.check_all(isa);
        }
    }
}

#[test]
fn dropout_on_logits_is_the_same_in_every_path() {
    for isa in Isa::available() {
        for (length, rate) in [(1, 0.3), (17, 0.3), (300, 0.01), (300, 0.5)] {
            let mut case = Case::new(shape(length, 24), 5);
            case.dropout = Some(Dropout::new(Stream::new(9), rate));
            case.check_all(isa);
            // Gates so closed that all logits but the dropped ones vanish.
            case.extra.iter_mut().for_each(|x| *x -= 200.0);
            case.check(case.gate(), isa);
        }
    }
}

/// Training may flatten the softmax.
#[test]
fn flatter_logits_are_the_same_in_every_path() {
    for isa in Isa::available() {
        for (rate, factor) in [(0.0, 0.5), (0.1, 0.3), (0.0, 0.01)] {
            let mut case = Case::new(shape(300, 24), 6);
            case.dropout = Some(Dropout::new(Stream::new(9), rate).times(factor));
            case.check_all(isa);
        }
    }
}

#[test]
fn a_few_queries_against_many_keys() {
    for isa in Isa::available() {
        for queries in [1, 2, 4, 5, 70] {
            for keys in [70, 71, 200] {
                let shape = Shape { batch: 2, heads: 3, queries, keys, dim: 24 };
                Case::new(shape, keys as u64).check_all(isa);
            }
        }
    }
}

#[test]
fn nothing_in_nothing_out() {
    for shape in
        [shape(0, 8), Shape { batch: 0, ..shape(3, 8) }, Shape { queries: 0, ..shape(3, 8) }]
    {
        let case = Case::new(shape, 1);
        let (out, gradients, _) = case.run(case.gate(), Isa::best());
        assert!(out.is_empty() && gradients.q.is_empty());
        assert!(gradients.k.iter().chain(&gradients.v).all(|x| *x == 0.0));
    }
}

#[test]
fn a_query_of_zeros_gives_exactly_zero_and_reads_little() {
    for isa in Isa::available() {
        let mut case = Case::new(shape(300, 16), 3);
        case.q.fill(0.0);
        let (out, g, saved) = case.run(case.gate(), isa);
        assert!(out.iter().chain(&g.q).chain(&g.k).chain(&g.v).chain(&g.rule).all(|x| *x == 0.0));
        assert!(saved.share_read(case.shape) < 0.6, "{isa}: {}", saved.share_read(case.shape));
    }
}

/// Bounds so large that the softmax needs its running maximum after all.
#[test]
fn large_scores_do_not_overflow() {
    for isa in Isa::available() {
        let mut case = Case::new(shape(150, 32), 8);
        case.q.iter_mut().for_each(|x| *x *= 64.0);
        case.check_all(isa);
    }
}

/// The largest difference to the exact result, relative to the largest output of the row, and the share of
/// the keys that a pass for the output alone reads.
fn off(case: &Case, isa: Isa) -> (f64, f64) {
    let dim = case.shape.dim;
    let exact = Case { horizon: Horizon::Exact, ..case.clone() };
    let (far, _, all) = exact.run(exact.gate(), isa);
    assert!(all.stop.iter().all(|stop| *stop == 0));
    let (mut worst, mut share) = (0.0f64, 1.0);
    for horizon in [Horizon::Rounding, Horizon::Output] {
        let case = Case { horizon, ..case.clone() };
        let (near, _, saved) = case.run(case.gate(), isa);
        for (near, far) in near.chunks(dim).zip(far.chunks(dim)) {
            let scale = far.iter().fold(f32::MIN_POSITIVE, |w, x| w.max(x.abs()));
            for (a, b) in near.iter().zip(far) {
                worst = worst.max(f64::from((a - b).abs()) / f64::from(scale));
            }
        }
        let before = std::mem::replace(&mut share, saved.share_read(case.shape));
        assert!(share <= before, "{isa}: the output alone needs no more keys");
    }
    (worst, share)
}

/// What one rounding of the sums may do on either side, beyond what the proof leaves.
const ROUNDING: f64 = 3.0 / 16_777_216.0;

#[test]
fn the_horizon_changes_nothing_an_f32_can_show() {
    for isa in Isa::available() {
        let case = Case::new(shape(700, 64), 21);
        assert!(off(&case, isa).0 <= ROUNDING, "{isa}");
        let mut narrow = case.clone();
        narrow.extra.iter_mut().for_each(|x| *x *= 0.3);
        let (worst, read) = off(&narrow, isa);
        assert!(worst <= ROUNDING, "{isa}: {worst:e}");
        assert!(read < 0.9, "{isa}: it should have stopped somewhere: {read}");

        // Initial gates: most is left out.
        let initial = Case { extra: vec![0.0; case.extra.len()], ..case.clone() };
        let (worst, read) = off(&initial, isa);
        assert!(worst <= ROUNDING && read < 0.5, "{isa}: {worst:e}, {read}");

        // Gates near 0 (wide open): everything is read.
        let open = Case { extra: vec![30.0; case.extra.len()], ..case.clone() };
        assert_eq!(off(&open, isa), (0.0, 1.0), "{isa}");

        // Huge values far away, at every size that could slip through, with ordinary ones near.
        for exponent in [3, 6, 8, 10, 20, 30] {
            let mut huge = initial.clone();
            huge.v[..50 * 64].iter_mut().for_each(|v| *v *= 10f32.powi(exponent));
            let (worst, _) = off(&huge, isa);
            assert!(worst <= ROUNDING, "{isa}, 1e{exponent}: {worst:e}");
        }
        // Logits made so flat that weights fall off slowly, all as large as their bound, and far values unlike the near ones.
        let dropout = Some(Dropout::new(Stream::new(9), 0.0).times(0.01));
        let mut flat = Case { dropout, extra: vec![-5.0; case.extra.len()], ..case.clone() };
        flat.q.fill(1.0);
        flat.k.fill(1.0);
        for (row, v) in flat.v.chunks_mut(64).enumerate() {
            v.fill(if row % 700 < 350 { -1.0 } else { 1.0 });
        }
        let (worst, read) = off(&flat, isa);
        assert!(worst <= ROUNDING && read < 0.9, "{isa}: {worst:e}, {read}");
        // Near values of exactly zero: the far ones are all there is.
        let mut zero = initial.clone();
        zero.v[50 * 64..].fill(0.0);
        assert!(off(&zero, isa).0 <= ROUNDING, "{isa}");
    }
}

/// Nothing kept for hundreds of keys, then one at the far end.
#[test]
fn one_kept_key_at_the_far_end_is_found() {
    for isa in Isa::available() {
        for gate in [-40.0, 0.0, 20.0] {
            let mut case = Case::new(Shape { batch: 1, ..shape(500, 16) }, 2);
            case.shape.heads = 1;
            case.q.fill(1.0);
            case.k.fill(-1.0);
            case.k[..16].fill(1.0);
            case.extra.fill(gate);
            let (out, _, _) = case.run(case.gate(), isa);
            for row in out.chunks(16) {
                assert_eq!(row, &case.v[..16], "{isa}");
            }
            case.check(case.gate(), isa);
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let case = Case::new(shape(400, 40), 4);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| case.run(case.gate(), Isa::best()))
    };
    assert_eq!(run(1), run(3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 10 } else { 60 }))]
    #[test]
    fn any_size_agrees_with_the_definition(
        batch in 1usize..3, heads in 1usize..4, keys in 1usize..220, fewer in 0usize..220,
        dim in 1usize..90, seed in 0u64..1000, rate in prop_oneof![Just(0.0), 0.0..0.6], shift in -30.0f32..30.0,
    ) {
        let queries = keys - fewer.min(keys - 1);
        let mut case = Case::new(Shape { batch, heads, queries, keys, dim }, seed);
        case.extra.iter_mut().for_each(|x| *x += shift);
        let flatter = [1.0, 0.3][(seed % 2) as usize];
        let any = rate > 0.0 || flatter < 1.0;
        case.dropout = any.then(|| Dropout::new(Stream::new(seed), rate).times(flatter));
        for isa in Isa::available() {
            case.check_all(isa);
        }
    }
}

/// A zero query keeps no key, so nothing bounds how far back a leak reaches: alone (the path of
/// decoding) and among others, over more than one block of keys.
#[test]
fn a_leak_of_a_zero_query_reaches_every_key() {
    for isa in Isa::available() {
        for (queries, keys) in [(1, 33), (1, 200), (3, 200), (200, 200)] {
            let shape = Shape { batch: 1, heads: 2, queries, keys, dim: 3 };
            let mut case = Case::new(shape, 826);
            case.q[..3].fill(0.0);
            case.check(case.leaking(0.5), isa);
            case.check(case.gate(), isa);
        }
    }
}
