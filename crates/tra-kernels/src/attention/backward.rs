//! The backward pass: cuts heads into pieces and adds up what they contribute.

use std::ops::Range;

use rayon::prelude::*;

use super::backward_tile::{Finite, Tile, run_tile};
use super::bias::{HeadBias, step_sums};
use super::forward::{gathered, pack_queries, with_gathered};
use super::horizon::Bounds;
use super::logits::Lanes;
use super::tile::{KEYS, QUERIES, all_finite, pack, padded, transpose};
use super::views::RowsOut;
use super::{Inputs, Rows, Rule, Saved, Shape};
use crate::scratch::with_scratch;

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

/// Returns the gradients of `sum(grad * out)`, where [`forward`](super::forward()) returned `out` and
/// `saved` for the same inputs. `out` is `[batch, queries, heads, dim]`.
///
/// # Panics
/// If the size of an input, of `out`, `grad` or `saved` does not fit the shape, or this machine lacks
/// the instruction set.
pub fn backward(inputs: &Inputs<'_>, saved: &Saved, out: &[f32], grad: Rows<'_>) -> Gradients {
    let shape = inputs.shape;
    inputs.check();
    shape.check_saved(saved);
    grad.check("gradients", shape.query_rows(), shape.dim);
    assert_eq!(out.len(), shape.all_queries() * shape.dim, "the output has another size");
    let mut gradients = Gradients::zeros(inputs);
    if shape.all_queries() * shape.dim == 0 {
        return gradients;
    }
    let (k, v) = gathered(inputs);
    let inputs = &with_gathered(inputs, &k, &v);
    let Gradients { q, k, v, rule } = &mut gradients;
    let dq = RowsOut::new(q, shape.query_rows(), shape.dim);
    let dk = RowsOut::new(k, shape.key_rows(), shape.dim);
    let dv = RowsOut::new(v, shape.key_rows(), shape.dim);
    let (dgate, dsteps) = match inputs.rule {
        Rule::Tra { .. } => (Some(RowsOut::new(rule, shape.query_rows(), 1)), None),
        Rule::Steps(_) => (None, Some(RowsOut::new(rule, shape.key_rows(), 1))),
        Rule::Dense | Rule::Slope(_) => (None, None),
    };
    let pass = Pass {
        inputs,
        sums: &step_sums(inputs),
        finite_keys: finite_keys(inputs),
        saved,
        out: Rows::by_token(out, shape.query_rows(), shape.dim),
        grad,
        dq,
        dgate,
    };
    // Several pieces per head, where there are few heads: each sums the gradients of the keys it
    // read by itself. How many depends on the shape alone.
    let (heads, tiles) = (shape.batch * shape.heads, shape.queries.div_ceil(QUERIES));
    let pieces = 8usize.div_ceil(heads).min(tiles);
    let each = tiles.div_ceil(pieces) * QUERIES;
    let jobs = (0..heads * pieces).into_par_iter().map(|job| {
        let (head, piece) = (job / pieces, job % pieces);
        let at = [head / shape.heads, head % shape.heads];
        let end = |pieces: usize| (pieces * each).min(shape.queries);
        pass.piece(at, end(piece)..end(piece + 1))
    });
    let computed: Vec<Piece> = jobs.collect();
    computed.par_chunks(pieces).enumerate().for_each(|(head, pieces)| {
        let at = [head / shape.heads, head % shape.heads];
        // SAFETY: each head is written by one job.
        unsafe { add_up(shape, at, pieces, [dk, dv], dsteps) };
    });
    gradients
}

impl Gradients {
    fn zeros(inputs: &Inputs<'_>) -> Self {
        let shape = inputs.shape;
        let (queries, keys) = (shape.all_queries(), shape.batch * shape.heads * shape.keys);
        let own = match inputs.rule {
            Rule::Tra { .. } => queries,
            Rule::Steps(_) => keys,
            Rule::Dense | Rule::Slope(_) => 0,
        };
        let [q, k, v, rule] =
            [queries * shape.dim, keys * shape.dim, keys * shape.dim, own].map(|n| vec![0.0; n]);
        Self { q, k, v, rule }
    }
}

/// Adds up what the pieces of a head contribute to the gradients of its keys, values and steps.
///
/// # Safety
/// Nobody else may write this head.
unsafe fn add_up(
    shape: Shape,
    at: [usize; 2],
    pieces: &[Piece],
    [dk, dv]: [RowsOut<'_>; 2],
    dsteps: Option<RowsOut<'_>>,
) {
    let (width, scale) = (padded(shape.dim), shape.scale());
    let mut dsums = vec![0.0f64; if dsteps.is_some() { shape.keys } else { 0 }];
    for piece in pieces {
        for (i, j) in piece.keys.clone().enumerate() {
            // SAFETY: the caller's promise.
            let (dk, dv) = unsafe { (dk.row(at, j), dv.row(at, j)) };
            dk.iter_mut().zip(&piece.dk[i * width..]).for_each(|(to, x)| *to += x * scale);
            dv.iter_mut().zip(&piece.dv[i * width..]).for_each(|(to, x)| *to += x);
            if dsteps.is_some() {
                dsums[j] += piece.dsums[i];
            }
        }
    }
    let Some(dsteps) = dsteps else { return };
    // A step is part of the bias of every pair of a query at or after it with a key before it. Adding
    // up from the newest query back keeps a gradient that is not finite from the steps of later
    // positions.
    let mut dstep = 0.0;
    for (j, dsum) in dsums.iter().enumerate().skip(1).rev() {
        dstep -= dsum;
        // SAFETY: as above.
        let to = unsafe { dsteps.row(at, j) };
        to[0] = dstep as f32;
    }
}

/// What one piece of a head contributes to the gradients of the keys it read.
pub(super) struct Piece {
    pub keys: Range<usize>,
    /// Rows of the padded width.
    pub dk: Vec<f32>,
    pub dv: Vec<f32>,
    /// Gradients of the sum of the steps after each key.
    pub dsums: Vec<f64>,
}

/// Returns, for each head, whether its keys are all finite.
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
        // Past the horizon there are still the dropped keys.
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
            // Lanes without a query weigh nothing: e^-1e30. Their sum is not 0, or they would leak.
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
                    // The query's own part of the bias is subtracted.
                    None => piece.dsums[lanes.first + i - piece.keys.start] -= f64::from(drow[i]),
                }
            }
        });
    }
}

/// Returns the dot product, in 16 sums, which compilers vectorise.
fn dot16(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    for (a, b) in a.chunks(16).zip(b.chunks(16)) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum()
}
