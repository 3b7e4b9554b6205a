//! From scores to logits.

use super::bias::HeadBias;
use super::horizon::{Bounds, ROUND_UP};
use super::tile::QUERIES;
use super::{Inputs, Rule};
use crate::simd::Simd;

/// The largest bound on a score for a softmax without a running maximum: `e^-60` is far from the
/// smallest f32, and what is lost below it is less than `2^-24`.
pub(super) const BOUNDED: f32 = 60.0;

/// Numbers of the queries of a tile, one per lane.
pub(super) struct Lanes {
    /// TRA: log-sigmoid of the gate. Dense: the query's part of the bias, which is subtracted.
    pub d: [f32; QUERIES],
    /// Dense: the rounding error of that, if the bias is in two parts.
    pub d_low: [f32; QUERIES],
    /// TRA: `1 / (1 - e^d)`.
    pub series: [f32; QUERIES],
    /// Upper bound of the scores of this query.
    pub bound: [f32; QUERIES],
    /// Keys kept so far, in whole numbers: an f32 stops counting at 2^24 …
    pub count: [u32; QUERIES],
    /// … and the same rounded.
    pub counted: [f32; QUERIES],
    /// Keys of the dropout pattern.
    pub hash: [u32; QUERIES],
    /// Number of queries in the tile; the other lanes hold zeros.
    pub queries: usize,
    /// Position of the first query.
    pub first: usize,
}

/// Returns `d = log sigmoid(x)` and `1 / (1 - e^d) = 1 + e^x`, the sum of the powers of `e^d`, whose
/// inverse is the slope of `d`. No positive number is exponentiated.
pub(super) fn log_sigmoid(x: f32) -> (f32, f32) {
    let e = (-x.abs()).exp();
    (x.min(0.0) - e.ln_1p(), 1.0 + if x > 0.0 { 1.0 / e } else { e })
}

impl Lanes {
    /// The queries `from..from + queries` of a head, whose norms are `norms`.
    pub(super) fn new(
        inputs: &Inputs<'_>,
        at: [usize; 2],
        from: usize,
        norms: &[f32; QUERIES],
        bounds: Bounds,
        bias: HeadBias<'_>,
    ) -> Self {
        let shape = inputs.shape;
        let queries = QUERIES.min(shape.queries - from);
        let first = shape.position(from);
        let mut lanes = Self {
            d: [0.0; QUERIES],
            d_low: [0.0; QUERIES],
            series: [0.0; QUERIES],
            bound: [0.0; QUERIES],
            count: [0; QUERIES],
            counted: [0.0; QUERIES],
            hash: [0; QUERIES],
            queries,
            first,
        };
        for (i, norm) in norms[..queries].iter().enumerate() {
            lanes.bound[i] = norm * bounds.key_norm * shape.scale() * ROUND_UP;
            match inputs.rule {
                Rule::Tra { gate, .. } => {
                    (lanes.d[i], lanes.series[i]) = log_sigmoid(gate.row(at, from + i)[0]);
                }
                _ => (lanes.d[i], lanes.d_low[i]) = bias.of(first + i, first),
            }
            if let Some(dropout) = inputs.dropout {
                let row = shape.query_index(at, from + i);
                lanes.hash[i] = dropout.row(row as u64).key();
            }
        }
        lanes
    }

    /// Adds the keys that a block kept.
    pub(super) fn add_counts(&mut self, from: usize, kept: &[f32]) {
        for (i, kept) in (from..).zip(kept) {
            self.count[i] += *kept as u32;
            self.counted[i] = self.count[i] as f32;
        }
    }
}

/// One vector of queries on its way through a block of keys, from the newest to the oldest.
pub(super) struct Walk<S: Simd> {
    /// The log-sigmoid of the gate, negative.
    pub d: S::V,
    /// The rounding error of the query's part of a bias in two parts.
    d_low: Option<S::V>,
    counted: S::V,
    /// Keys kept in this block.
    pub kept: S::V,
    hash: S::I,
    lane: S::V,
    /// Position of the first lane.
    first: usize,
    scale: f32,
    dropout: Option<(u32, f32)>,
}

/// The result of one key.
pub(super) struct Step<S: Simd> {
    /// The logit, after dropout.
    pub logit: S::V,
    /// The queries for which the key takes part.
    pub keep: S::M,
    /// The queries that can see it.
    pub visible: S::M,
    /// TRA: its number among the kept keys, from the newest.
    pub count: S::V,
    /// The factor of dropout on the logit.
    pub factor: S::V,
}

impl<S: Simd> Walk<S> {
    /// # Safety
    /// The CPU must have `S`; `column` and the lanes after it must be within the tile.
    #[inline(always)]
    pub(super) unsafe fn new(
        lanes: &Lanes,
        column: usize,
        scale: f32,
        dropout: Option<(u32, f32)>,
        in_two_parts: bool,
    ) -> Self {
        const LANE: [f32; 16] =
            [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];
        debug_assert!(column + S::LANES <= QUERIES);
        // SAFETY: the arrays hold QUERIES numbers.
        unsafe {
            Self {
                d: S::load(lanes.d.as_ptr().add(column)),
                d_low: in_two_parts.then(|| S::load(lanes.d_low.as_ptr().add(column))),
                counted: S::load(lanes.counted.as_ptr().add(column)),
                kept: S::splat(0.0),
                hash: S::iload(lanes.hash.as_ptr().add(column)),
                lane: S::load(LANE.as_ptr()),
                first: lanes.first + column,
                scale,
                dropout,
            }
        }
    }

    /// Advances to key `j`, with its products `q . k` and its part of the bias. The threshold is on the
    /// product before it is scaled: a sum that cancels to exactly 0 is dropped.
    ///
    /// # Safety
    /// The CPU must have `S`.
    #[inline(always)]
    pub(super) unsafe fn step<const TRA: bool>(
        &mut self,
        product: S::V,
        j: usize,
        (bias, bias_low): (f32, f32),
    ) -> Step<S> {
        // SAFETY: the caller's promise.
        unsafe {
            let (zero, one) = (S::splat(0.0), S::splat(1.0));
            let mut visible = S::ge(one, zero);
            let mut keep = if TRA { S::gt(product, zero) } else { visible };
            if j > self.first {
                visible = S::ge(self.lane, S::splat((j - self.first) as f32));
                keep = S::and(keep, visible);
            }
            let score = S::mul(product, S::splat(self.scale));
            let (mut logit, mut count) = (score, zero);
            if TRA {
                self.kept = S::add(self.kept, S::select(keep, one, zero));
                count = S::add(self.counted, self.kept);
                logit = S::fma(self.d, count, score);
            } else {
                let mut bias = S::sub(S::splat(bias), self.d);
                if let Some(d_low) = self.d_low {
                    bias = S::add(bias, S::sub(S::splat(bias_low), d_low));
                }
                logit = S::add(logit, bias);
            }
            let mut factor = one;
            if let Some((threshold, scale)) = self.dropout {
                let dropped = S::dropped(self.hash, j as u32, threshold);
                factor = S::select(dropped, zero, S::splat(scale));
                logit = S::mul(logit, factor);
            }
            Step { logit, keep, visible, count, factor }
        }
    }
}
