//! The backward pass of one tile. Scores and weights are computed anew, in the order of the forward
//! pass and up to where it stopped.

use std::ops::Range;

use super::backward::Piece;
use super::bias::HeadBias;
use super::dropped_tail::{Pairs, add_scaled};
use super::logits::{Lanes, Walk};
use super::tile::{QUERIES, Strided, block, padded, product, product_of_seen};
use super::{Inputs, Rule};
use crate::simd::{Simd, kernel};

/// Computes `c += a b`; if `b` is not all finite, without the terms whose factor is 0.
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

/// Weights and gradients below this count as 0: their products would be denormal numbers, which take
/// a hundred times as long.
const TINY: f32 = 1e-35;

/// Which operands of a tile are all finite. The others need care where a factor is 0: masked, 0 times
/// infinity must stay 0.
pub(super) struct Finite {
    pub q: bool,
    pub g: bool,
    pub keys: bool,
}

/// One tile of queries on its second way through the keys.
pub(super) struct Tile<'a, 'b> {
    pub inputs: &'a Inputs<'a>,
    pub at: [usize; 2],
    pub lanes: Lanes,
    pub finite: Finite,
    pub shift: [f32; QUERIES],
    pub inverse_sum: [f32; QUERIES],
    /// `g . o`.
    pub mean: [f32; QUERIES],
    pub stop: [usize; QUERIES],
    /// TRA: the gradient of `d`. Dense: the sum of the gradients of the logits.
    pub drow: [f32; QUERIES],
    /// Queries and gradients, `[QUERIES][padded dim]`, and the same transposed.
    pub q: &'b mut [f32],
    pub qt: &'b mut [f32],
    pub g: &'b mut [f32],
    pub gt: &'b mut [f32],
    pub dq: &'b mut [f32],
    /// Scores, then weights, of one block of keys, `[KEYS][QUERIES]` …
    pub weights: &'b mut [f32],
    /// … and `g . v`, then the gradients of the scores.
    pub ds: &'b mut [f32],
    pub keys: &'b mut [f32],
    pub values: &'b mut [f32],
    pub piece: &'b mut Piece,
}

kernel!(pub(super) unsafe fn run_tile = run_generic(tile: &mut Tile<'_, '_>, bias: HeadBias<'_>));

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
        let (inputs, at) = (self.inputs, self.at);
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
            // A forward pass with other blocks may have stopped within this one.
            let start = start.max(self.piece.keys.start);
            let keys = inputs.k.block(at, start..end, self.keys).as_ptr();
            let values = inputs.v.block(at, start..end, self.values).as_ptr();
            // SAFETY: the caller's promise; keys and values are those of the block.
            unsafe {
                let active =
                    self.weigh::<S, TRA>(&oldest[..parts], start..end, keys, values, bias, leak);
                self.add_products::<S>(active, start..end, keys);
            }
            end = start;
        }
        if inputs.dropout.is_some() {
            // SAFETY: the caller's promise.
            unsafe { self.far::<S, TRA>() };
        }
    }

    /// Computes the weights of a block and the gradients of its scores; returns the columns that have
    /// a weight for any of these keys, which are those of neighbouring parts.
    ///
    /// # Safety
    /// The CPU must have `S`; `keys` and `values` must be those of the block, in padded rows.
    #[inline(always)]
    unsafe fn weigh<S: Simd, const TRA: bool>(
        &mut self,
        oldest: &[usize],
        block: Range<usize>,
        keys: *const f32,
        values: *const f32,
        bias: HeadBias<'_>,
        leak: f32,
    ) -> Range<usize> {
        let (n, dim, lanes) = (block.len(), self.inputs.shape.dim, 2 * S::LANES);
        let width = padded(dim);
        let mut active: Range<usize> = 0..0;
        for (part, oldest) in oldest.iter().enumerate() {
            let column = part * lanes;
            let unseen = self.lanes.first + column + lanes <= block.start;
            if block.end <= *oldest || unseen {
                if !active.is_empty() {
                    // Between active columns, if there are more.
                    for i in 0..n {
                        self.weights[i * QUERIES + column..][..lanes].fill(0.0);
                        self.ds[i * QUERIES + column..][..lanes].fill(0.0);
                    }
                }
                continue;
            }
            // SAFETY: `column + lanes` is within a row of QUERIES numbers, and the buffers hold
            // KEYS >= n rows.
            unsafe {
                let weights = (self.weights.as_mut_ptr().add(column), QUERIES);
                let ds = (self.ds.as_mut_ptr().add(column), QUERIES);
                let q = (self.qt.as_ptr().add(column), QUERIES);
                let g = (self.gt.as_ptr().add(column), QUERIES);
                product::<S, false>([n, dim, lanes], Strided(keys, width, 1), q, weights);
                product::<S, false>([n, dim, lanes], Strided(values, width, 1), g, ds);
                let mut counts = self.block::<S, TRA>(column, block.clone(), bias, leak);
                counts |= self.block::<S, TRA>(column + S::LANES, block.clone(), bias, leak);
                if counts || !active.is_empty() {
                    let from = if active.is_empty() { column } else { active.start };
                    active = from..column + lanes;
                }
            }
        }
        active
    }

    /// Adds what the active columns contribute to the gradients of values, keys and queries.
    ///
    /// # Safety
    /// The CPU must have `S`; `keys` must be those of the block, in padded rows.
    #[inline(always)]
    unsafe fn add_products<S: Simd>(
        &mut self,
        active: Range<usize>,
        block: Range<usize>,
        keys: *const f32,
    ) {
        let width = padded(self.inputs.shape.dim);
        let (column, inner, n) = (active.start, active.len(), block.len());
        if inner == 0 {
            return;
        }
        // SAFETY: the columns are within a row of QUERIES numbers, and the buffers hold KEYS >= n
        // rows; those of the piece hold all keys from its first on.
        unsafe {
            let weights = self.weights.as_ptr().add(column);
            let ds = self.ds.as_ptr().add(column);
            let at = (block.start - self.piece.keys.start) * width;
            let dv = (self.piece.dv.as_mut_ptr().add(at), width);
            let dk = (self.piece.dk.as_mut_ptr().add(at), width);
            let dq = (self.dq.as_mut_ptr().add(column * width), width);
            let g = (self.g.as_ptr().add(column * width), width);
            let q = (self.q.as_ptr().add(column * width), width);
            let Finite { q: finite_q, g: finite_g, keys: finite_keys } = self.finite;
            let (by_key, by_query) = ([n, inner, width], [inner, n, width]);
            add_product::<S>(finite_g, by_key, Strided(weights, QUERIES, 1), g, dv);
            add_product::<S>(finite_q, by_key, Strided(ds, QUERIES, 1), q, dk);
            add_product::<S>(finite_keys, by_query, Strided(ds, 1, QUERIES), (keys, width), dq);
        }
    }

    /// Turns the scores of a block into weights and `g . v` into the gradients of the scores;
    /// returns whether there was any weight.
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
                // Without a weight there is no gradient, even for 0 times infinity.
                let da = S::select(none, zero, da);
                drow = S::fma(da, if TRA { step.count } else { S::splat(1.0) }, drow);
                any = S::add(any, weight);
                let mut dscore = da;
                if leaks {
                    // Without a kept key the output is 0. As the only kept key it would have count 1.
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
            // A NaN is not above 0, and must count.
            S::bits(S::ge(S::splat(0.0), any)) != (1u64 << S::LANES).wrapping_sub(1) as u32
        }
    }

    /// Adds the dropped keys past the horizon. Their logits are 0 for every score, so only their values
    /// have a gradient.
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
