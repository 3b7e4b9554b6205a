//! The forward pass of one tile.

use std::ops::Range;

use super::bias::HeadBias;
use super::dropped_tail::{Pairs, add_scaled};
use super::horizon::{Bounds, Horizon, SHARE};
use super::logits::{BOUNDED, Lanes, Walk};
use super::tile::{QUERIES, Strided, all_finite, block, padded, product, product_of_seen};
use super::{Inputs, Rule};
use crate::simd::{Simd, kernel};

/// One tile of queries on its way through the keys.
pub(super) struct Tile<'a, 'b> {
    pub inputs: &'a Inputs<'a>,
    pub at: [usize; 2],
    pub lanes: Lanes,
    pub bounds: Bounds,
    /// Subtracted from the logits; the sums are relative to it.
    pub shift: [f32; QUERIES],
    pub sum: [f32; QUERIES],
    pub stop: [usize; QUERIES],
    /// Queries, `[dim][QUERIES]`.
    pub q: &'b mut [f32],
    /// Weighted sums of the values, `[QUERIES][padded dim]`.
    pub sums: &'b mut [f32],
    /// Scores, then weights, of one block of keys, `[KEYS][QUERIES]`.
    pub weights: &'b mut [f32],
    /// `[KEYS][padded dim]`, as are the values.
    pub keys: &'b mut [f32],
    pub values: &'b mut [f32],
}

kernel!(pub(super) unsafe fn run_tile = run_generic(tile: &mut Tile<'_, '_>, bias: HeadBias<'_>));

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
            // Masked, 0 times infinity must stay 0. The block is searched only if the head has one.
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

    /// Scales the sums of a vector of queries.
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

    /// Returns whether the keys before `start` no longer matter for a vector of queries; see
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
            // Anything above 1 is not small, and exp takes nothing above 88.
            let highest = S::select(S::gt(highest, S::splat(1.0)), S::splat(1.0), highest);
            let mut tail = S::mul(S::exp(highest), times);
            if TRA && self.inputs.horizon == Horizon::Rounding {
                // In the gate's gradient every key counts as often as keys are kept up to it.
                tail = S::mul(tail, S::add(S::load(counted.as_ptr().add(column)), times));
            }
            let read = S::mul(S::load(self.sum.as_ptr().add(column)), S::splat(SHARE));
            // A query whose scores cannot be positive keeps nothing. With a leak, every key is part of
            // its gradient.
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

    /// Adds the dropped keys past the horizon.
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
                    // A weight of 0 adds nothing, even of an infinite value.
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
