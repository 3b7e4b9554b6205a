//! A few queries against many keys, as in generation: lanes run over the width of the head.

use super::bias::{falls, slope, step};
use super::dropped_tail::dot;
use super::forward::{LOWEST, SavedOut, inverse};
use super::horizon::{Bounds, Horizon, ROUND_UP, SHARE};
use super::logits::{BOUNDED, log_sigmoid};
use super::tile::padded;
use super::views::RowsOut;
use super::{Inputs, Rows, Rule};
use crate::scratch::with_scratch;
use crate::simd::{Simd, kernel};

/// Keys per block.
const BLOCK: usize = 32;

/// Attends from all queries of one head.
///
/// # Safety
/// Nobody else may write this head of `out` and `saved`; the instruction set must be there.
pub(super) unsafe fn decode_head(
    inputs: &Inputs<'_>,
    at: [usize; 2],
    bounds: Bounds,
    out: RowsOut<'_>,
    saved: SavedOut,
) {
    let dim = inputs.shape.dim;
    for query in 0..inputs.shape.queries {
        with_scratch([padded(dim)], |[sums]| {
            // SAFETY: the caller's promise.
            let row = unsafe { decode_row(inputs.isa, inputs, at, query, bounds, sums) };
            let inverse = inverse(row.sum);
            // SAFETY: a row of this head.
            let out = unsafe { out.row(at, query) };
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = *sum * inverse;
            }
            let index = inputs.shape.query_index(at, query);
            // SAFETY: as above.
            unsafe { saved.write(index, row.shift, inverse, row.stop) };
        });
    }
}

/// The bias of the keys of one query, from the newest to the oldest.
struct RowBias<'a> {
    slope: f32,
    steps: Option<&'a [f32]>,
    position: usize,
    /// Whether it never grows with distance, so that far keys can be left out.
    falls: bool,
    /// The sum of the steps after the next key; in f64, as for tiles.
    forgotten: f64,
}

impl<'a> RowBias<'a> {
    /// Returns the bias of a dense rule; TRA has none.
    fn new(rule: Rule<Rows<'a>>, at: [usize; 2], position: usize) -> Option<Self> {
        let (slope, steps, falls) = match rule {
            Rule::Tra { .. } => return None,
            Rule::Dense => (0.0, None, false),
            Rule::Slope(slopes) => {
                let slope = slope(slopes, at[1]);
                (slope, None, slope >= 0.0)
            }
            Rule::Steps(steps) => {
                let steps = steps.row(at, 0);
                (0.0, Some(steps), falls(&steps[..=position]))
            }
        };
        Some(Self { slope, steps, position, falls, forgotten: 0.0 })
    }

    /// Returns the bias of key `j`, which is next; older keys follow.
    #[inline(always)]
    fn next(&mut self, j: usize) -> f32 {
        let bias = self.of(j);
        if let Some(steps) = self.steps {
            self.forgotten += step(steps[j]);
        }
        bias
    }

    /// Returns the bias of key `j`, if all newer keys have been read.
    #[inline(always)]
    fn of(&self, j: usize) -> f32 {
        match self.steps {
            Some(_) => self.forgotten as f32,
            None => self.slope * (j as f32 - self.position as f32),
        }
    }
}

struct Row {
    shift: f32,
    sum: f32,
    stop: usize,
}

kernel!(unsafe fn decode_row = decode_generic(
    inputs: &Inputs<'_>, at: [usize; 2], query: usize, bounds: Bounds, sums: &mut [f32],
) -> Row);

/// # Safety
/// The CPU must have `S`; `sums` must hold a padded row.
#[inline(always)]
unsafe fn decode_generic<S: Simd>(
    inputs: &Inputs<'_>,
    at: [usize; 2],
    query: usize,
    bounds: Bounds,
    sums: &mut [f32],
) -> Row {
    let shape = inputs.shape;
    let q = inputs.q.row(at, query);
    let scale = shape.scale();
    let position = shape.position(query);
    sums.fill(0.0);
    // SAFETY: the caller's promise.
    let bound = unsafe { dot::<S>(q, q) }.sqrt() * scale * bounds.key_norm * ROUND_UP;
    let (d, series) = match inputs.rule {
        Rule::Tra { gate, .. } => log_sigmoid(gate.row(at, query)[0]),
        _ => (0.0, 0.0),
    };
    let mut bias = RowBias::new(inputs.rule, at, position);
    let may_stop = inputs.horizon != Horizon::Exact && bias.as_ref().is_none_or(|bias| bias.falls);
    // A query of TRA whose scores cannot be positive keeps nothing. With a leak, every key is part of
    // its gradient.
    let never_matters = matches!(inputs.rule, Rule::Tra { leak, .. } if leak == 0.0);
    let bounded = bias.is_none() && bound <= BOUNDED;
    let mut row = Row { shift: if bounded { bound + d } else { LOWEST }, sum: 0.0, stop: 0 };
    let mut count: u32 = 0;
    let mut end = position + 1;
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        // Unused places weigh nothing.
        let mut logits = [f32::NEG_INFINITY; BLOCK];
        for j in (start..end).rev() {
            // SAFETY: the caller's promise.
            let score = unsafe { dot::<S>(q, inputs.k.row(at, j)) } * scale;
            logits[j - start] = match &mut bias {
                Some(bias) => score + bias.next(j),
                None if score > 0.0 => {
                    count += 1;
                    d * count as f32 + score
                }
                None => continue,
            };
        }
        // SAFETY: BLOCK is whole vectors of every instruction set.
        unsafe {
            if !bounded {
                let mut largest = S::splat(row.shift);
                for i in (0..BLOCK).step_by(S::LANES) {
                    largest = S::max(S::load(logits.as_ptr().add(i)), largest);
                }
                let largest = S::largest(largest);
                if largest > row.shift {
                    let shrink = (row.shift - largest).exp();
                    sums.iter_mut().for_each(|sum| *sum *= shrink);
                    row.sum *= shrink;
                    row.shift = largest;
                }
            }
            let mut sum = S::splat(0.0);
            for i in (0..BLOCK).step_by(S::LANES) {
                let p = logits.as_mut_ptr().add(i);
                let weight = S::exp(S::sub(S::load(p), S::splat(row.shift)));
                sum = S::add(sum, weight);
                S::store(p, weight);
            }
            row.sum += S::sum(sum);
        }
        for j in (start..end).rev() {
            let weight = logits[j - start];
            if weight != 0.0 {
                for (sum, v) in sums.iter_mut().zip(inputs.v.row(at, j)) {
                    *sum += weight * v;
                }
            }
        }
        row.stop = start;
        end = start;
        if !may_stop || start == 0 {
            continue;
        }
        // See `horizon.rs`.
        let unread = start as f32;
        let (highest, times) = match &bias {
            Some(bias) => (bound + bias.of(start - 1), unread),
            None => (bound + d * (count as f32 + 1.0), series.min(unread)),
        };
        let above = highest - row.shift;
        // Anything above 1 is not small, and neither is a bound that is NaN.
        let mut tail = if above <= 1.0 { above.exp() * times } else { f32::INFINITY };
        if bias.is_none() && inputs.horizon == Horizon::Rounding {
            tail *= count as f32 + times;
        }
        let largest = sums.iter().fold(0.0f32, |w, x| w.max(x.abs()));
        let small = tail <= SHARE * row.sum && tail * bounds.value <= SHARE * largest;
        if small || (bound == 0.0 && never_matters) {
            break;
        }
    }
    row
}

const _: () = assert!(BLOCK.is_multiple_of(16));
