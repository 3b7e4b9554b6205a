//! The forward pass: cuts heads into tiles and saves what the backward pass needs.

use rayon::prelude::*;

use super::bias::{HeadBias, step_sums};
use super::decode::decode_head;
use super::forward_tile::{Tile, run_tile};
use super::horizon::Bounds;
use super::logits::Lanes;
use super::tile::{KEYS, QUERIES, pack, padded, transpose};
use super::views::RowsOut;
use super::{Inputs, Rows, Saved};
use crate::scratch::with_scratch;

/// Up to this many queries the decoding kernel, whose lanes run over the width of the head, is faster.
const FEW: usize = 4;

/// Attends; writes every element of `out`, `[batch, queries, heads, dim]`.
///
/// # Panics
/// If the size of `out` or of an input does not fit the shape, there are more queries than keys, or
/// this machine lacks the instruction set.
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

/// Returns keys and values one after another, if that saves copying them for every tile: not for a
/// few queries against many keys, most of which are never read.
pub(super) fn gathered(inputs: &Inputs<'_>) -> (Option<Vec<f32>>, Option<Vec<f32>>) {
    let shape = inputs.shape;
    if 2 * shape.queries < shape.keys {
        return (None, None);
    }
    (inputs.k.gathered(shape.key_rows()), inputs.v.gathered(shape.key_rows()))
}

/// Returns the same inputs with what was [`gathered`].
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
    /// `row` must be a row of its [`Saved`], and no other thread's.
    pub(super) unsafe fn write(&self, row: usize, shift: f32, inverse_sum: f32, stop: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            *self.shift.add(row) = shift;
            *self.inverse_sum.add(row) = inverse_sum;
            *self.stop.add(row) = stop as u32;
        }
    }
}

/// Returns 0 if nothing was summed, so that a row without keys is exactly zero.
pub(super) fn inverse(sum: f32) -> f32 {
    if sum > 0.0 { 1.0 / sum } else { 0.0 }
}

/// The maximum before the first logit: below all logits, and finite, so that no difference is infinity
/// minus infinity.
pub(super) const LOWEST: f32 = -1e30;

/// Runs the tile of queries from `from` on.
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

/// Copies the queries of a tile, with zeros in unused rows; returns their norms.
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
        // In 16 sums, which compilers vectorise.
        let mut squares = [0.0; 16];
        for row in row.chunks_exact(16) {
            squares.iter_mut().zip(row).for_each(|(sum, q)| *sum += q * q);
        }
        *norm = squares.iter().sum::<f32>().sqrt();
    }
    out[queries * width..QUERIES * width].fill(0.0);
    norms
}
