//! The forward pass.

use std::ops::Range;

use rayon::prelude::*;

use super::bias::{HeadBias, step_sums};
use super::decode::decode_head;
use super::dropped_tail::{Pairs, add_scaled};
use super::horizon::{Bounds, Horizon, SHARE};
use super::logits::{BOUNDED, Lanes, Walk};
use super::tile::{
    KEYS, QUERIES, Strided, all_finite, block, pack, padded, product, product_of_seen, transpose,
};
use super::views::RowsOut;
use super::{Inputs, Rows, Rule, Saved};
use crate::scratch::with_scratch;
use crate::simd::{Simd, kernel};

/// Up to so many queries the decoding kernel, whose lanes run over the head's width, is faster.
const FEW: usize = 4;

/// Attends; writes `[batch, queries, heads, dim]` into `out`, every element of it.
///
/// # Panics
/// When `out` or one of the inputs has another size than the shape says, there are more queries than
/// keys, or this machine lacks the instruction set.
pub fn forward(inputs: &Inputs<'_>, out: &mut [f32]) -> Saved {
    let shape = inputs.shape;
    inputs.check();
    let mut saved = Saved::new(shape.all_queries());
    let out = RowsOut::new(out, shape.query_rows(), shape.dim);
    if shape.all_queries() * shape.dim == 0 {
        return saved;
    }
    let bounds = Bounds::of_heads(inputs);
    let saving = SavedOut {
        shift: saved.shift.as_mut_ptr(),
        inverse_sum: saved.inverse_sum.as_mut_ptr(),
        stop: saved.stop.as_mut_ptr(),
    };
    let heads = shape.batch * shape.heads;
    if shape.queries <= FEW && inputs.dropout.is_none() {
        // Handing a head to another thread takes longer than reading a hundred keys.
        (0..heads).into_par_iter().with_min_len(4).for_each(|head| {
            let at = [head / shape.heads, head % shape.heads];
            // SAFETY: each head is written by one job.
            unsafe { decode_head(inputs, at, bounds[head], out, saving) };
        });
    } else {
        let tiles = shape.queries.div_ceil(QUERIES);
        let (k, v) = gathered(inputs);
        let inputs = &with_gathered(inputs, &k, &v);
        let sums = step_sums(inputs);
        (0..heads * tiles).into_par_iter().for_each(|job| {
            let (head, tile) = (job / tiles, job % tiles);
            let at = [head / shape.heads, head % shape.heads];
            let bias = HeadBias::new(inputs, &sums, at);
            // SAFETY: each tile is written by one job.
            unsafe { forward_tile(inputs, at, tile * QUERIES, bounds[head], bias, out, saving) };
        });
    }
    saved
}

/// Keys and values one after another, where that spares copying them for every tile: not for a few
/// queries against many keys, of which most are never read.
pub(super) fn gathered(inputs: &Inputs<'_>) -> (Option<Vec<f32>>, Option<Vec<f32>>) {
    let shape = inputs.shape;
    if 2 * shape.queries < shape.keys {
        return (None, None);
    }
    (inputs.k.gathered(shape.key_rows()), inputs.v.gathered(shape.key_rows()))
}

/// The same inputs, with what was [`gathered`].
pub(super) fn with_gathered<'a>(
    inputs: &Inputs<'a>,
    k: &'a Option<Vec<f32>>,
    v: &'a Option<Vec<f32>>,
) -> Inputs<'a> {
    let rows = |x: &'a Vec<f32>| Rows::contiguous(x, inputs.shape.key_rows(), inputs.shape.dim);
    Inputs { k: k.as_ref().map_or(inputs.k, rows), v: v.as_ref().map_or(inputs.v, rows), ..*inputs }
}

/// [`Saved`], written by several threads, each query by one of them.
#[derive(Clone, Copy)]
pub(super) struct SavedOut {
    shift: *mut f32,
    inverse_sum: *mut f32,
    stop: *mut u32,
}

// SAFETY: the writers promise to write different rows.
unsafe impl Send for SavedOut {}
// SAFETY: as above.
unsafe impl Sync for SavedOut {}

impl SavedOut {
    /// # Safety
    /// `row` must be one of the rows of the [`Saved`] behind it, and no other thread's.
    pub(super) unsafe fn write(&self, row: usize, shift: f32, inverse_sum: f32, stop: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            *self.shift.add(row) = shift;
            *self.inverse_sum.add(row) = inverse_sum;
            *self.stop.add(row) = stop as u32;
        }
    }
}

/// 0 where nothing was summed, so that a row without keys is exactly zero.
pub(super) fn inverse(sum: f32) -> f32 {
    if sum > 0.0 { 1.0 / sum } else { 0.0 }
}

/// Before any logit is known: below every one there is, and finite, so that a difference of two
/// is never infinity minus infinity.
pub(super) const LOWEST: f32 = -1e30;

/// The queries from `from` on.
///
/// # Safety
/// Nobody else may write this tile of `out` and `saved`.
unsafe fn forward_tile(
    inputs: &Inputs<'_>,
    at: [usize; 2],
    from: usize,
    bounds: Bounds,
    bias: HeadBias<'_>,
    out: RowsOut<'_>,
    saved: SavedOut,
) {
    let dim = inputs.shape.dim;
    let width = padded(dim);
    let sizes = [QUERIES * width, QUERIES * width, KEYS * QUERIES, KEYS * width, KEYS * width];
    with_scratch(sizes, |[q, sums, weights, keys, values]| {
        let norms = pack_queries(inputs, at, from, sums);
        transpose(sums, dim, q);
        sums.fill(0.0);
        let lanes = Lanes::new(inputs, at, from, &norms, bounds, bias);
        let (shift, sum, stop) = ([LOWEST; QUERIES], [0.0; QUERIES], [0; QUERIES]);
        let mut tile =
            Tile { inputs, at, lanes, bounds, shift, sum, stop, q, sums, weights, keys, values };
        // SAFETY: the instruction set was checked when the pass began.
        unsafe { run_tile(inputs.isa, &mut tile, bias) };
        let Tile { lanes, shift, sum, stop, sums, .. } = tile;
        for i in 0..lanes.queries {
            let inverse = inverse(sum[i]);
            // SAFETY: the rows of this tile, which are ours.
            let row = unsafe { out.row(at, from + i) };
            for (out, sum) in row.iter_mut().zip(&sums[i * width..]) {
                *out = sum * inverse;
            }
            let index = inputs.shape.query_index(at, from + i);
            // SAFETY: as above.
            unsafe { saved.write(index, shift[i], inverse, stop[i]) };
        }
    });
}

/// Copies the queries of a tile, with zeros for those that are not there, and gives their norms.
pub(super) fn pack_queries(
    inputs: &Inputs<'_>,
    at: [usize; 2],
    from: usize,
    out: &mut [f32],
) -> [f32; QUERIES] {
    let dim = inputs.shape.dim;
    let width = padded(dim);
    let queries = QUERIES.min(inputs.shape.queries - from);
    let mut norms = [0.0; QUERIES];
    pack((from..from + queries).map(|i| inputs.q.row(at, i)), dim, out);
    for (norm, row) in norms.iter_mut().zip(out.chunks_exact_mut(width)).take(queries) {
        // In 16 sums, which compilers turn into vectors.
        let mut squares = [0.0; 16];
        for row in row.chunks_exact(16) {
            squares.iter_mut().zip(row).for_each(|(sum, q)| *sum += q * q);
        }
        *norm = squares.iter().sum::<f32>().sqrt();
    }
    out[queries * width..QUERIES * width].fill(0.0);
    norms
}

/// One tile of queries on its way through the keys.
struct Tile<'a, 'b> {
    inputs: &'a Inputs<'a>,
    at: [usize; 2],
    lanes: Lanes,
    bounds: Bounds,
    /// What is taken from the logits; the sums are relative to it.
    shift: [f32; QUERIES],
    sum: [f32; QUERIES],
    stop: [usize; QUERIES],
    /// Queries, `[dim][QUERIES]`.
    q: &'b mut [f32],
    /// Weighted sums of the values, `[QUERIES][padded dim]`.
    sums: &'b mut [f32],
    /// Scores, then weights, of one block of keys, `[KEYS][QUERIES]`.
    weights: &'b mut [f32],
    /// `[KEYS][padded dim]`, as are the values.
    keys: &'b mut [f32],
    values: &'b mut [f32],
}

kernel!(unsafe fn run_tile = run_generic(tile: &mut Tile<'_, '_>, bias: HeadBias<'_>));

/// # Safety
/// The CPU must have `S`.
#[inline(always)]
unsafe fn run_generic<S: Simd>(tile: &mut Tile<'_, '_>, bias: HeadBias<'_>) {
    let inputs = tile.inputs;
    let bounded = inputs.dropout.is_none() && tile.lanes.bound.iter().all(|b| *b <= BOUNDED);
    // SAFETY: the caller's promise.
    unsafe {
        match (inputs.rule, bounded) {
            (Rule::Tra { .. }, true) => tile.run::<S, true, true>(HeadBias::None),
            (Rule::Tra { .. }, false) => tile.run::<S, true, false>(HeadBias::None),
            _ => tile.run::<S, false, false>(bias),
        }
    }
}

impl Tile<'_, '_> {
    /// # Safety
    /// The CPU must have `S`.
    #[inline(always)]
    unsafe fn run<S: Simd, const TRA: bool, const BOUNDED: bool>(&mut self, bias: HeadBias<'_>) {
        let (inputs, at, dim) = (self.inputs, self.at, self.inputs.shape.dim);
        let width = padded(dim);
        // Two vectors of queries go through the keys together and stop together.
        let lanes = 2 * S::LANES;
        let parts = self.lanes.queries.div_ceil(lanes);
        let mut done = [false; QUERIES];
        if BOUNDED {
            for i in 0..QUERIES {
                self.shift[i] = self.lanes.bound[i] + self.lanes.d[i];
            }
        }
        let may_stop = inputs.horizon != Horizon::Exact && (TRA || bias.falls());
        let newest = self.lanes.first + self.lanes.queries;
        let mut end = newest;
        while end > 0 && !done[..parts].iter().all(|d| *d) {
            let start = end.saturating_sub(block(TRA, newest - end));
            let n = end - start;
            let keys = inputs.k.block(at, start..end, self.keys).as_ptr();
            let values = inputs.v.block(at, start..end, self.values);
            // Behind the mask, 0 times infinity must stay 0. Looked for only where the head has one.
            let all_finite = self.bounds.value.is_finite() || all_finite(values);
            let values = values.as_ptr();
            for (part, done) in done[..parts].iter_mut().enumerate() {
                let column = part * lanes;
                if *done || self.lanes.first + column + lanes <= start {
                    continue;
                }
                // SAFETY: `column + lanes` is within a row of QUERIES numbers, and the buffers
                // hold KEYS >= n rows.
                unsafe {
                    let weights = self.weights.as_mut_ptr().add(column);
                    let q = (self.q.as_ptr().add(column), QUERIES);
                    let keys = Strided(keys, width, 1);
                    product::<S, false>([n, dim, lanes], keys, q, (weights, QUERIES));
                    self.weigh::<S, TRA, BOUNDED>(column, start..end, bias);
                    self.weigh::<S, TRA, BOUNDED>(column + S::LANES, start..end, bias);
                    let weights = Strided(self.weights.as_ptr().add(column), 1, QUERIES);
                    let values = (values, width);
                    let sums = (self.sums.as_mut_ptr().add(column * width), width);
                    match all_finite {
                        true => product::<S, true>([lanes, n, width], weights, values, sums),
                        false => product_of_seen([lanes, n, width], weights, values, sums),
                    }
                    if may_stop && start > 0 {
                        *done = self.beyond::<S, TRA>(column, start, bias)
                            && self.beyond::<S, TRA>(column + S::LANES, start, bias);
                    }
                }
                self.stop[column..column + lanes].fill(start);
            }
            end = start;
        }
        if inputs.dropout.is_some() {
            // SAFETY: the caller's promise.
            unsafe { self.far::<S, TRA>() };
        }
    }

    /// Turns the scores of a block into weights.
    ///
    /// # Safety
    /// The CPU must have `S`, and the block must have been scored.
    #[inline(always)]
    unsafe fn weigh<S: Simd, const TRA: bool, const BOUNDED: bool>(
        &mut self,
        column: usize,
        block: Range<usize>,
        bias: HeadBias<'_>,
    ) {
        let (near, n) = (self.lanes.first, block.len());
        let parts = bias.in_two_parts();
        let scale = self.inputs.shape.scale();
        let dropout = self.inputs.dropout.map(|d| (d.threshold(), d.scale()));
        // SAFETY: the buffers hold the block; `column` and its lanes are within the tile.
        unsafe {
            let mut walk = Walk::<S>::new(&self.lanes, column, scale, dropout, parts);
            let weights = self.weights.as_mut_ptr().add(column);
            let mut shift = S::load(self.shift.as_ptr().add(column));
            let mut sum = S::splat(0.0);
            if BOUNDED {
                for i in (0..n).rev() {
                    let p = weights.add(i * QUERIES);
                    let step = walk.step::<TRA>(S::load(p), block.start + i, (0.0, 0.0));
                    let weight = S::exp(S::sub(step.logit, shift));
                    let weight = S::select(step.keep, weight, S::splat(0.0));
                    sum = S::add(sum, weight);
                    S::store(p, weight);
                }
            } else {
                let mut largest = shift;
                for i in (0..n).rev() {
                    let (p, j) = (weights.add(i * QUERIES), block.start + i);
                    let step = walk.step::<TRA>(S::load(p), j, bias.of(j, near));
                    let logit = S::select(step.keep, step.logit, S::splat(f32::NEG_INFINITY));
                    largest = S::max(logit, largest);
                    S::store(p, logit);
                }
                if S::bits(S::gt(largest, shift)) != 0 {
                    let shrink = S::exp(S::sub(shift, largest));
                    self.shrink::<S>(column, shrink);
                    shift = largest;
                    S::store(self.shift.as_mut_ptr().add(column), shift);
                }
                for i in 0..n {
                    let p = weights.add(i * QUERIES);
                    let weight = S::exp(S::sub(S::load(p), shift));
                    sum = S::add(sum, weight);
                    S::store(p, weight);
                }
            }
            let p = self.sum.as_mut_ptr().add(column);
            S::store(p, S::add(S::load(p), sum));
            if TRA {
                let mut kept = [0.0; 16];
                S::store(kept.as_mut_ptr(), walk.kept);
                self.lanes.add_counts(column, &kept[..S::LANES]);
            }
        }
    }

    /// Scales what was summed for a vector of queries.
    ///
    /// # Safety
    /// The CPU must have `S`; `column` and its lanes must be within the tile.
    #[inline(always)]
    unsafe fn shrink<S: Simd>(&mut self, column: usize, factors: S::V) {
        let width = padded(self.inputs.shape.dim);
        let mut each = [0.0; 16];
        // SAFETY: the caller's promise; rows are whole vectors.
        unsafe {
            S::store(each.as_mut_ptr(), factors);
            let p = self.sum.as_mut_ptr().add(column);
            S::store(p, S::mul(S::load(p), factors));
            for (lane, factor) in each[..S::LANES].iter().enumerate() {
                for t in (0..width).step_by(S::LANES) {
                    let p = self.sums.as_mut_ptr().add((column + lane) * width + t);
                    S::store(p, S::mul(S::load(p), S::splat(*factor)));
                }
            }
        }
    }

    /// Whether the keys before `start` no longer matter for a vector of queries; see
    /// [`horizon`](super::horizon).
    ///
    /// # Safety
    /// The CPU must have `S`; `column` and its lanes must be within the tile.
    #[inline(always)]
    unsafe fn beyond<S: Simd, const TRA: bool>(
        &self,
        column: usize,
        start: usize,
        bias: HeadBias<'_>,
    ) -> bool {
        let Lanes { d, d_low, series, bound, counted, queries, .. } = &self.lanes;
        let scale = self.inputs.dropout.map_or(1.0, |d| d.scale());
        let width = padded(self.inputs.shape.dim);
        let there = ((1u64 << queries.saturating_sub(column).min(S::LANES)) - 1) as u32;
        let mut tails = [0.0; 16];
        // SAFETY: the arrays hold QUERIES numbers; the rows of `sums` are whole vectors.
        unsafe {
            let (d, b) = (S::load(d.as_ptr().add(column)), S::load(bound.as_ptr().add(column)));
            let unread = S::splat(start as f32);
            let (highest, times) = if TRA {
                let next = S::add(S::load(counted.as_ptr().add(column)), S::splat(1.0));
                // A flatter softmax falls off more slowly: see `horizon.rs`.
                let flatter = S::splat((1.0 / scale).max(1.0));
                let series = S::mul(S::load(series.as_ptr().add(column)), flatter);
                (S::fma(d, next, b), S::select(S::gt(unread, series), series, unread))
            } else {
                let (newest, low) = bias.of(start - 1, self.lanes.first);
                let low = S::sub(S::splat(low), S::load(d_low.as_ptr().add(column)));
                let newest = S::add(S::sub(S::splat(newest), d), low);
                (S::add(b, newest), unread)
            };
            let shift = S::load(self.shift.as_ptr().add(column));
            let highest = S::sub(S::mul(highest, S::splat(scale)), shift);
            // Whatever is above 1 is not small, and exp takes nothing above 88.
            let highest = S::select(S::gt(highest, S::splat(1.0)), S::splat(1.0), highest);
            let mut tail = S::mul(S::exp(highest), times);
            if TRA && self.inputs.horizon == Horizon::Rounding {
                // In the gate's gradient every key counts as often as keys are kept up to it.
                tail = S::mul(tail, S::add(S::load(counted.as_ptr().add(column)), times));
            }
            let read = S::mul(S::load(self.sum.as_ptr().add(column)), S::splat(SHARE));
            // A query whose scores cannot be positive will keep nothing. With a leak every key has a part in its gradient.
            let leaks = matches!(self.inputs.rule, Rule::Tra { leak, .. } if leak > 0.0);
            let never = if TRA && !leaks { S::bits(S::ge(S::splat(0.0), b)) } else { 0 };
            if (S::bits(S::ge(read, tail)) | never) & there != there {
                return false;
            }
            S::store(tails.as_mut_ptr(), tail);
            let open = there & !never;
            for (lane, tail) in tails[..S::LANES].iter().enumerate() {
                let row = self.sums.as_ptr().add((column + lane) * width);
                let mut largest = S::splat(0.0);
                for t in (0..width).step_by(S::LANES) {
                    largest = S::max(S::abs(S::load(row.add(t))), largest);
                }
                let small = S::largest(largest) * SHARE >= tail * self.bounds.value;
                if open >> lane & 1 == 1 && !small {
                    return false;
                }
            }
            true
        }
    }

    /// Adds the dropped keys behind the horizon.
    ///
    /// # Safety
    /// The CPU must have `S`.
    #[inline(always)]
    unsafe fn far<S: Simd, const TRA: bool>(&mut self) {
        let (inputs, at) = (self.inputs, self.at);
        let width = padded(inputs.shape.dim);
        let queries = self.lanes.queries;
        let weights = self.shift.map(|shift| (-shift.max(0.0)).exp());
        let mut pairs = Pairs::new();
        let mut end = self.stop[..queries].iter().copied().max().unwrap_or(0);
        while end > 0 {
            let start = end.saturating_sub(Pairs::KEYS);
            for column in (0..queries).step_by(S::LANES) {
                let keys = start..end.min(self.stop[column]);
                // SAFETY: the caller's promise.
                unsafe { pairs.find::<S, TRA>(inputs, at, &self.lanes, column, keys) };
                for (i, j) in pairs.get().iter().map(|(i, j)| (*i as usize, *j as usize)) {
                    let row = &mut self.sums[i * width..][..width];
                    if self.shift[i] < 0.0 {
                        let shrink = self.shift[i].exp();
                        row.iter_mut().for_each(|sum| *sum *= shrink);
                        self.sum[i] *= shrink;
                        self.shift[i] = 0.0;
                    }
                    self.sum[i] += weights[i];
                    // A weight of 0 takes up nothing, be it infinite.
                    if weights[i] != 0.0 {
                        // SAFETY: as above.
                        unsafe { add_scaled::<S>(row, weights[i], inputs.v.row(at, j)) };
                    }
                }
            }
            end = start;
        }
    }
}
