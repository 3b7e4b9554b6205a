//! Gradients. Scores and weights are computed anew, tile by tile, in the order of the forward pass
//! and up to where it stopped.

use std::ops::Range;

use rayon::prelude::*;

use super::bias::{HeadBias, step_sums};
use super::dropped_tail::{Pairs, add_scaled};
use super::forward::{gathered, pack_queries, with_gathered};
use super::horizon::Bounds;
use super::logits::{Lanes, Walk};
use super::tile::{
    KEYS, QUERIES, Strided, all_finite, block, pack, padded, product, product_of_seen, transpose,
};
use super::views::RowsOut;
use super::{Inputs, Rows, Rule, Saved, Shape};
use crate::scratch::with_scratch;
use crate::simd::{Simd, kernel};

/// Gradients with respect to the inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gradients {
    /// Of the queries, `[batch, queries, heads, dim]`.
    pub q: Vec<f32>,
    /// Of the keys, `[batch, keys, heads, dim]`.
    pub k: Vec<f32>,
    /// Of the values, `[batch, keys, heads, dim]`.
    pub v: Vec<f32>,
    /// [`Rule::Tra`]: of the gate before log-sigmoid, `[batch, queries, heads]`. [`Rule::Steps`]: of
    /// the steps, `[batch, keys, heads]`. Else empty.
    pub rule: Vec<f32>,
}

/// Gradients of `sum(grad * out)`, where [`forward`](super::forward()) gave `out` and `saved` for
/// the same inputs. `out` is `[batch, queries, heads, dim]`.
///
/// # Panics
/// When one of the inputs, `out`, `grad` or what was saved has another size than the shape says, or this
/// machine lacks the instruction set.
pub fn backward(inputs: &Inputs<'_>, saved: &Saved, out: &[f32], grad: Rows<'_>) -> Gradients {
    let shape = inputs.shape;
    inputs.check();
    shape.check_saved(saved);
    grad.check("gradients", shape.query_rows(), shape.dim);
    assert_eq!(out.len(), shape.all_queries() * shape.dim, "the output has another size");
    let (queries, keys) = (shape.all_queries(), shape.batch * shape.heads * shape.keys);
    let (tra, steps) = (inputs.rule.is_tra(), matches!(inputs.rule, Rule::Steps(_)));
    let own = if tra {
        queries
    } else if steps {
        keys
    } else {
        0
    };
    let mut gradients = Gradients {
        q: vec![0.0; queries * shape.dim],
        k: vec![0.0; keys * shape.dim],
        v: vec![0.0; keys * shape.dim],
        rule: vec![0.0; own],
    };
    if shape.all_queries() * shape.dim == 0 {
        return gradients;
    }
    let (k, v) = gathered(inputs);
    let inputs = &with_gathered(inputs, &k, &v);
    let Gradients { q, k, v, rule } = &mut gradients;
    let dq = RowsOut::new(q, shape.query_rows(), shape.dim);
    let dk = RowsOut::new(k, shape.key_rows(), shape.dim);
    let dv = RowsOut::new(v, shape.key_rows(), shape.dim);
    let rule_rows = if tra { shape.query_rows() } else { shape.key_rows() };
    let drule = RowsOut::new(rule, rule_rows, usize::from(tra || steps));
    let sums = step_sums(inputs);
    let pass = Pass {
        inputs,
        sums: &sums,
        finite_keys: finite_keys(inputs),
        saved,
        out: Rows::by_token(out, shape.query_rows(), shape.dim),
        grad,
        dq,
        dgate: tra.then_some(drule),
    };

    // Several pieces a head, where there are few heads: each sums the gradients of the keys it
    // read by itself. How many depends on the shape alone.
    let (heads, tiles) = (shape.batch * shape.heads, shape.queries.div_ceil(QUERIES));
    let pieces = 8usize.div_ceil(heads).min(tiles);
    let each = tiles.div_ceil(pieces);
    let jobs = (0..heads * pieces).into_par_iter().map(|job| {
        let (head, piece) = (job / pieces, job % pieces);
        let at = [head / shape.heads, head % shape.heads];
        let queries = (piece * each * QUERIES).min(shape.queries)
            ..((piece + 1) * each * QUERIES).min(shape.queries);
        pass.piece(at, queries)
    });
    let computed: Vec<Piece> = jobs.collect();
    (0..heads).into_par_iter().for_each(|head| {
        let at = [head / shape.heads, head % shape.heads];
        let width = padded(shape.dim);
        let scale = shape.scale();
        let mut dsums = vec![0.0f64; if steps { shape.keys } else { 0 }];
        for piece in &computed[head * pieces..(head + 1) * pieces] {
            for (i, j) in piece.keys.clone().enumerate() {
                // SAFETY: each head is written by one job.
                let (dk, dv) = unsafe { (dk.row(at, j), dv.row(at, j)) };
                dk.iter_mut().zip(&piece.dk[i * width..]).for_each(|(to, x)| *to += x * scale);
                dv.iter_mut().zip(&piece.dv[i * width..]).for_each(|(to, x)| *to += x);
                if steps {
                    dsums[j] += piece.dsums[i];
                }
            }
        }
        // A step is part of the bias of every pair of a query at or behind it with a key before it, and
        // so of none in which the query comes before it: added up from the newest query back, which
        // keeps what is not finite away from the steps of later positions.
        let mut dstep = 0.0;
        for (j, dsum) in dsums.iter().enumerate().skip(1).rev() {
            dstep -= dsum;
            // SAFETY: as above.
            let to = unsafe { drule.row(at, j) };
            to[0] = dstep as f32;
        }
    });
    gradients
}

/// What one piece of a head contributes to the gradients of the keys it read.
struct Piece {
    keys: Range<usize>,
    /// Rows of the padded width.
    dk: Vec<f32>,
    dv: Vec<f32>,
    /// Of the sum of the steps behind each key.
    dsums: Vec<f64>,
}

/// Of every head, whether its keys are all finite.
fn finite_keys(inputs: &Inputs<'_>) -> Vec<bool> {
    let Shape { batch, heads, keys, .. } = inputs.shape;
    let of = |head: usize| match inputs.bounds {
        Some(bounds) => bounds[head].key_norm.is_finite(),
        None => (0..keys).all(|j| all_finite(inputs.k.row([head / heads, head % heads], j))),
    };
    (0..batch * heads).into_par_iter().map(of).collect()
}

struct Pass<'a> {
    inputs: &'a Inputs<'a>,
    sums: &'a [(Vec<f64>, bool)],
    finite_keys: Vec<bool>,
    saved: &'a Saved,
    out: Rows<'a>,
    grad: Rows<'a>,
    dq: RowsOut<'a>,
    dgate: Option<RowsOut<'a>>,
}

impl Pass<'_> {
    fn piece(&self, at: [usize; 2], queries: Range<usize>) -> Piece {
        let (inputs, shape) = (self.inputs, self.inputs.shape);
        let stops = queries.clone().map(|i| self.saved.stop[shape.query_index(at, i)] as usize);
        // Behind the horizon there are still the keys that dropout leaves.
        let oldest = if inputs.dropout.is_some() { 0 } else { stops.min().unwrap_or(0) };
        let keys = oldest..if queries.is_empty() { oldest } else { shape.position(queries.end) };
        let size = keys.len() * padded(shape.dim);
        let mut piece =
            Piece { dk: vec![0.0; size], dv: vec![0.0; size], dsums: vec![0.0; keys.len()], keys };
        for from in queries.step_by(QUERIES) {
            self.tile(at, from, &mut piece);
        }
        piece
    }

    fn tile(&self, at: [usize; 2], from: usize, piece: &mut Piece) {
        let (inputs, shape) = (self.inputs, self.inputs.shape);
        let (dim, width) = (shape.dim, padded(shape.dim));
        let (rows, block) = (QUERIES * width, KEYS * width);
        let sizes = [rows, rows, rows, rows, rows, KEYS * QUERIES, KEYS * QUERIES, block, block];
        with_scratch(sizes, |[q, qt, g, gt, dq, weights, ds, keys, values]| {
            let norms = pack_queries(inputs, at, from, q);
            transpose(q, dim, qt);
            let bias = HeadBias::new(inputs, self.sums, at);
            let lanes = Lanes::new(inputs, at, from, &norms, Bounds::default(), bias);
            let n = lanes.queries;
            pack((from..from + n).map(|i| self.grad.row(at, i)), dim, g);
            g[n * width..rows].fill(0.0);
            transpose(g, dim, gt);
            dq.fill(0.0);
            let finite = Finite {
                q: norms.iter().all(|norm| norm.is_finite()),
                g: all_finite(&g[..n * width]),
                keys: self.finite_keys[at[0] * shape.heads + at[1]],
            };
            // Lanes without a query weigh nothing: e^-1e30. They do not keep nothing, which would leak.
            let mut row = [[1e30; QUERIES], [1.0; QUERIES], [0.0; QUERIES]];
            let mut stop = [usize::MAX; QUERIES];
            for i in 0..n {
                let index = shape.query_index(at, from + i);
                let dot = dot16(&g[i * width..][..dim], self.out.row(at, from + i));
                row[0][i] = self.saved.shift[index];
                row[1][i] = self.saved.inverse_sum[index];
                row[2][i] = dot;
                stop[i] = self.saved.stop[index] as usize;
            }
            let [shift, inverse_sum, mean] = row;
            let mut tile = Tile {
                inputs,
                at,
                lanes,
                finite,
                shift,
                inverse_sum,
                mean,
                stop,
                drow: [0.0; QUERIES],
                q,
                qt,
                g,
                gt,
                dq,
                weights,
                ds,
                keys,
                values,
                piece,
            };
            // SAFETY: the instruction set was checked when the pass began.
            unsafe { run_tile(inputs.isa, &mut tile, bias) };
            let Tile { lanes, drow, dq, piece, .. } = tile;
            let scale = shape.scale();
            for i in 0..n {
                // SAFETY: each query belongs to one piece.
                let row = unsafe { self.dq.row(at, from + i) };
                for (to, from) in row.iter_mut().zip(&dq[i * width..]) {
                    *to = from * scale;
                }
                match self.dgate {
                    // Through log-sigmoid: its slope is 1 - e^d.
                    // SAFETY: as above.
                    Some(dgate) => unsafe {
                        dgate.row(at, from + i)[0] = drow[i] / lanes.series[i];
                    },
                    // The query's own part of the bias is taken away.
                    None => piece.dsums[lanes.first + i - piece.keys.start] -= f64::from(drow[i]),
                }
            }
        });
    }
}

/// `c += a b`; where `b` is not all finite, without what is multiplied by 0.
///
/// # Safety
/// Everything named must be there, and the CPU must have `S`.
#[inline(always)]
unsafe fn add_product<S: Simd>(
    finite: bool,
    sizes: [usize; 3],
    a: Strided,
    b: (*const f32, usize),
    c: (*mut f32, usize),
) {
    // SAFETY: the caller's promise.
    unsafe {
        match finite {
            true => product::<S, true>(sizes, a, b, c),
            false => product_of_seen(sizes, a, b, c),
        }
    }
}

/// Weights and gradients below this are taken for 0: close to the smallest f32 every product with
/// them would leave the normal numbers, which costs a hundred times as much.
const TINY: f32 = 1e-35;

/// In 16 sums, which compilers turn into vectors.
fn dot16(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    for (a, b) in a.chunks(16).zip(b.chunks(16)) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum()
}

/// What of a tile is all finite. What is not is kept from where its factor is 0: behind the mask, 0
/// times infinity must stay 0.
struct Finite {
    q: bool,
    g: bool,
    keys: bool,
}

/// One tile of queries on its way through the keys, once more.
struct Tile<'a, 'b> {
    inputs: &'a Inputs<'a>,
    at: [usize; 2],
    lanes: Lanes,
    finite: Finite,
    shift: [f32; QUERIES],
    inverse_sum: [f32; QUERIES],
    /// `g . o`.
    mean: [f32; QUERIES],
    stop: [usize; QUERIES],
    /// TRA: the gradient of `d`. Dense: the sum of the gradients of the logits.
    drow: [f32; QUERIES],
    /// Queries and gradients, `[QUERIES][padded dim]`, and the same transposed.
    q: &'b mut [f32],
    qt: &'b mut [f32],
    g: &'b mut [f32],
    gt: &'b mut [f32],
    dq: &'b mut [f32],
    /// Scores, then weights, of one block of keys, `[KEYS][QUERIES]` …
    weights: &'b mut [f32],
    /// … and `g . v`, then the gradients of the scores.
    ds: &'b mut [f32],
    keys: &'b mut [f32],
    values: &'b mut [f32],
    piece: &'b mut Piece,
}

kernel!(unsafe fn run_tile = run_generic(tile: &mut Tile<'_, '_>, bias: HeadBias<'_>));

/// # Safety
/// The CPU must have `S`.
#[inline(always)]
unsafe fn run_generic<S: Simd>(tile: &mut Tile<'_, '_>, bias: HeadBias<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        match tile.inputs.rule {
            Rule::Tra { leak, .. } => tile.run::<S, true>(HeadBias::None, leak),
            _ => tile.run::<S, false>(bias, 0.0),
        }
    }
}

impl Tile<'_, '_> {
    /// # Safety
    /// The CPU must have `S`.
    #[inline(always)]
    unsafe fn run<S: Simd, const TRA: bool>(&mut self, bias: HeadBias<'_>, leak: f32) {
        let (inputs, at, dim) = (self.inputs, self.at, self.inputs.shape.dim);
        let width = padded(dim);
        let lanes = 2 * S::LANES;
        let parts = self.lanes.queries.div_ceil(lanes);
        let mut oldest = [0; QUERIES];
        for (oldest, stops) in oldest.iter_mut().zip(self.stop.chunks(lanes)) {
            *oldest = stops.iter().copied().min().unwrap_or(0);
        }
        let lowest = oldest[..parts].iter().copied().min().unwrap_or(0);
        let newest = self.lanes.first + self.lanes.queries;
        let mut end = newest;
        while end > lowest {
            let start = end.saturating_sub(block(TRA, newest - end));
            // A forward pass in other blocks may have stopped within this one.
            let start = start.max(self.piece.keys.start);
            let n = end - start;
            let keys = inputs.k.block(at, start..end, self.keys).as_ptr();
            let values = inputs.v.block(at, start..end, self.values).as_ptr();
            // The columns that have a weight for any of these keys: those of neighbouring parts.
            let mut active: Range<usize> = 0..0;
            for (part, oldest) in oldest[..parts].iter().enumerate() {
                let column = part * lanes;
                let unseen = self.lanes.first + column + lanes <= start;
                if end <= *oldest || unseen {
                    if !active.is_empty() {
                        // Between active ones, should there be another behind.
                        for i in 0..n {
                            self.weights[i * QUERIES + column..][..lanes].fill(0.0);
                            self.ds[i * QUERIES + column..][..lanes].fill(0.0);
                        }
                    }
                    continue;
                }
                // SAFETY: `column + lanes` is within a row of QUERIES numbers, and the buffers
                // hold KEYS >= n rows.
                unsafe {
                    let weights = (self.weights.as_mut_ptr().add(column), QUERIES);
                    let ds = (self.ds.as_mut_ptr().add(column), QUERIES);
                    let q = (self.qt.as_ptr().add(column), QUERIES);
                    let g = (self.gt.as_ptr().add(column), QUERIES);
                    product::<S, false>([n, dim, lanes], Strided(keys, width, 1), q, weights);
                    product::<S, false>([n, dim, lanes], Strided(values, width, 1), g, ds);
                    let mut counts = self.block::<S, TRA>(column, start..end, bias, leak);
                    counts |= self.block::<S, TRA>(column + S::LANES, start..end, bias, leak);
                    if counts || !active.is_empty() {
                        let from = if active.is_empty() { column } else { active.start };
                        active = from..column + lanes;
                    }
                }
            }
            if !active.is_empty() {
                let (column, inner) = (active.start, active.len());
                // SAFETY: as above; the buffers of the piece hold all keys from its first on.
                unsafe {
                    let weights = self.weights.as_ptr().add(column);
                    let ds = self.ds.as_ptr().add(column);
                    let at = (start - self.piece.keys.start) * width;
                    let dv = (self.piece.dv.as_mut_ptr().add(at), width);
                    let dk = (self.piece.dk.as_mut_ptr().add(at), width);
                    let dq = (self.dq.as_mut_ptr().add(column * width), width);
                    let g = (self.g.as_ptr().add(column * width), width);
                    let q = (self.q.as_ptr().add(column * width), width);
                    let Finite { q: finite_q, g: finite_g, keys: finite_keys } = self.finite;
                    let by_key = [n, inner, width];
                    let (weights, by_query) = (Strided(weights, QUERIES, 1), [inner, n, width]);
                    add_product::<S>(finite_g, by_key, weights, g, dv);
                    add_product::<S>(finite_q, by_key, Strided(ds, QUERIES, 1), q, dk);
                    let keys = (keys, width);
                    add_product::<S>(finite_keys, by_query, Strided(ds, 1, QUERIES), keys, dq);
                }
            }
            end = start;
        }
        if inputs.dropout.is_some() {
            // SAFETY: the caller's promise.
            unsafe { self.far::<S, TRA>() };
        }
    }

    /// Turns the scores of a block into weights and `g . v` into the gradients of the scores; says
    /// whether there was any weight.
    ///
    /// # Safety
    /// The CPU must have `S`, and both must have been computed.
    #[inline(always)]
    unsafe fn block<S: Simd, const TRA: bool>(
        &mut self,
        column: usize,
        block: Range<usize>,
        bias: HeadBias<'_>,
        leak: f32,
    ) -> bool {
        let (near, n) = (self.lanes.first, block.len());
        let dropout = self.inputs.dropout.map(|d| (d.threshold(), d.scale()));
        let steps = bias.in_two_parts();
        let scale = self.inputs.shape.scale();
        // SAFETY: the buffers hold the block; `column` and its lanes are within the tile.
        unsafe {
            let mut walk = Walk::<S>::new(&self.lanes, column, scale, dropout, steps);
            let shift = S::load(self.shift.as_ptr().add(column));
            let inverse_sum = S::load(self.inverse_sum.as_ptr().add(column));
            let mean = S::load(self.mean.as_ptr().add(column));
            let (zero, one, tiny) = (S::splat(0.0), S::splat(1.0), S::splat(TINY));
            let empty = S::ge(zero, inverse_sum);
            let leaks = TRA && leak > 0.0 && S::bits(empty) != 0;
            let (mut drow, mut any) = (zero, zero);
            for i in (0..n).rev() {
                let (place, j) = (i * QUERIES + column, block.start + i);
                let w = self.weights.as_mut_ptr().add(place);
                let ds = self.ds.as_mut_ptr().add(place);
                let step = walk.step::<TRA>(S::load(w), j, bias.of(j, near));
                let weight = S::mul(S::exp(S::sub(step.logit, shift)), inverse_sum);
                let weight = S::select(step.keep, weight, zero);
                let none = S::gt(tiny, weight);
                let weight = S::select(none, zero, weight);
                let da = S::mul(S::mul(weight, S::sub(S::load(ds), mean)), step.factor);
                let da = S::select(S::gt(tiny, S::abs(da)), zero, da);
                // Without a weight there is no gradient, be it 0 times infinity.
                let da = S::select(none, zero, da);
                drow = S::fma(da, if TRA { step.count } else { S::splat(1.0) }, drow);
                any = S::add(any, weight);
                let mut dscore = da;
                if leaks {
                    // Where nothing is kept the output is 0. A key that stayed would be the first that counts.
                    let share = S::exp(S::fma(walk.d, step.factor, step.logit));
                    let share = S::select(S::gt(share, one), one, share);
                    let left = S::mul(S::mul(share, S::load(ds)), step.factor);
                    let left = S::mul(left, S::splat(leak));
                    let left = S::select(S::gt(tiny, S::abs(left)), zero, left);
                    dscore = S::select(S::and(empty, step.visible), left, da);
                    any = S::add(any, S::abs(dscore));
                }
                if steps {
                    self.piece.dsums[j - self.piece.keys.start] += f64::from(S::sum(da));
                }
                S::store(w, weight);
                S::store(ds, dscore);
            }
            let p = self.drow.as_mut_ptr().add(column);
            S::store(p, S::add(S::load(p), drow));
            if TRA {
                let mut kept = [0.0; 16];
                S::store(kept.as_mut_ptr(), walk.kept);
                self.lanes.add_counts(column, &kept[..S::LANES]);
            }
            // A NaN is not above 0, and must be passed on.
            S::bits(S::ge(S::splat(0.0), any)) != (1u64 << S::LANES).wrapping_sub(1) as u32
        }
    }

    /// The dropped keys behind the horizon: their logits are 0 whatever their score, so that only
    /// their values have a gradient.
    ///
    /// # Safety
    /// The CPU must have `S`.
    #[inline(always)]
    unsafe fn far<S: Simd, const TRA: bool>(&mut self) {
        let width = padded(self.inputs.shape.dim);
        let Self { inputs, at, lanes, shift, inverse_sum, g, piece, stop, .. } = self;
        let mut weights = shift.map(|shift| (-shift).exp());
        weights.iter_mut().zip(inverse_sum).for_each(|(weight, inverse)| *weight *= *inverse);
        let mut pairs = Pairs::new();
        let mut end = stop[..lanes.queries].iter().copied().max().unwrap_or(0);
        while end > 0 {
            let start = end.saturating_sub(Pairs::KEYS);
            for column in (0..lanes.queries).step_by(S::LANES) {
                let keys = start..end.min(stop[column]);
                // SAFETY: the caller's promise.
                unsafe { pairs.find::<S, TRA>(inputs, *at, lanes, column, keys) };
                let taking_part = pairs.get().iter().map(|(i, j)| (*i as usize, *j as usize));
                for (i, j) in taking_part.filter(|(i, _)| weights[*i] != 0.0) {
                    let dv = &mut piece.dv[(j - piece.keys.start) * width..][..width];
                    // SAFETY: as above.
                    unsafe { add_scaled::<S>(dv, weights[i], &g[i * width..][..width]) };
                }
            }
            end = start;
        }
    }
}
