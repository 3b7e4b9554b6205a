//! Fused attention in f32: Threshold Relative Attention, and dense attention with a separable
//! bias.
//!
//! Nothing of the size length x length is ever stored. Queries are processed in tiles of 64, one per
//! lane. The keys of a tile are read in blocks from the newest to the oldest: counting kept keys is
//! then one addition per key, and reading can end at the horizon (see [`horizon`]).
//!
//! | file | what it holds |
//! | --- | --- |
//! | `forward.rs`, `forward_tile.rs` | the forward pass, and that of one tile |
//! | `backward.rs`, `backward_tile.rs` | its gradients; scores are computed anew, nothing of them is kept |
//! | `decode.rs` | a few queries against many keys, as in generation |
//! | `logits.rs` | from scores to logits: threshold, count, gate, bias, dropout |
//! | `horizon.rs` | when the keys not yet read no longer matter, and the proof |
//! | `dropped_tail.rs` | dropped logits past the horizon |
//! | `bias.rs` | the bias of dense attention, prepared for the kernels |
//! | `naive.rs` | dense attention in plain f64, as `tra::naive` is for TRA: the reference |
//! | `tile.rs`, `views.rs` | products in the cache; views of the inputs |
//!
//! Results do not depend on the number of threads: work is cut by the shape alone, and pieces are
//! summed in their order.

mod backward;
mod backward_tile;
mod bias;
mod decode;
mod dropped_tail;
mod forward;
mod forward_tile;
pub mod horizon;
mod logits;
pub mod naive;
mod tile;
mod views;

use crate::dropout::Dropout;
use crate::parallel::count;
use crate::simd::Isa;

pub use backward::{Gradients, backward};
pub use forward::forward;
pub use horizon::{Bounds, Horizon};
pub use views::Rows;

/// Sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Heads of each.
    pub heads: usize,
    /// Queries; the last one is at the last key.
    pub queries: usize,
    /// Keys; at least as many as queries.
    pub keys: usize,
    /// Width of a head, `e` in the paper.
    pub dim: usize,
}

impl Shape {
    fn query_rows(&self) -> [usize; 3] {
        [self.batch, self.heads, self.queries]
    }

    fn key_rows(&self) -> [usize; 3] {
        [self.batch, self.heads, self.keys]
    }

    /// Returns the factor on the products of queries and keys.
    fn scale(&self) -> f32 {
        1.0 / (self.dim as f32).sqrt()
    }

    /// Returns the position of a query among the keys.
    fn position(&self, query: usize) -> usize {
        self.keys - self.queries + query
    }

    /// Refuses what a pass of another shape saved.
    ///
    /// # Panics
    /// If there is not one number per query, or a query stopped at a key that does not exist.
    fn check_saved(&self, saved: &Saved) {
        let sizes = [saved.shift.len(), saved.inverse_sum.len(), saved.stop.len()];
        let rows = self.all_queries();
        assert!(sizes == [rows; 3], "{sizes:?} queries were saved, but there are {rows}");
        let far = saved.stop.iter().find(|stop| **stop as usize > self.keys);
        assert!(far.is_none(), "a query stopped at key {far:?} of {} keys", self.keys);
    }

    /// Number of all queries of all heads.
    fn all_queries(&self) -> usize {
        self.batch * self.heads * self.queries
    }

    /// Number of one query of one head among all.
    fn query_index(&self, [batch, head]: [usize; 2], query: usize) -> usize {
        (batch * self.heads + head) * self.queries + query
    }
}

/// The mechanism as kernels know it: which keys take part, and what is added to their scores.
///
/// `X` holds the mechanism's own numbers, if it has any: [`Rows`] in a kernel, a tensor on the way
/// to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule<X> {
    /// Threshold Relative Attention.
    Tra {
        /// Forget gate of each query before log-sigmoid: `[batch, heads, queries]` rows of one number.
        gate: X,
        /// Gradient leak for queries that keep no key, `0..=1`. The output does not depend on it.
        leak: f32,
    },
    /// All keys take part, with their scores as they are: NoPE, and RoPE, whose queries and keys
    /// come rotated.
    Dense,
    /// Dense attention with the bias `-slope (i - j)`: ALiBi. `[1, heads, 1]` rows of one number.
    Slope(X),
    /// Dense attention with a bias that is the sum of `x_t` over the positions `t` after key `j`,
    /// up to that of query `i`: FoX, whose steps are the logarithms of its gates. `[batch, heads, 1]`
    /// rows of `keys` numbers. The sums are taken in f64, so that logits are exact at every length.
    Steps(X),
}

impl<X> Rule<X> {
    /// Returns whether keys leave by the threshold.
    pub fn is_tra(&self) -> bool {
        matches!(self, Self::Tra { .. })
    }

    /// Returns the same rule with its numbers held in another way.
    pub fn map<Y>(self, f: impl FnOnce(X) -> Y) -> Rule<Y> {
        match self {
            Self::Tra { gate, leak } => Rule::Tra { gate: f(gate), leak },
            Self::Dense => Rule::Dense,
            Self::Slope(slopes) => Rule::Slope(f(slopes)),
            Self::Steps(steps) => Rule::Steps(f(steps)),
        }
    }

    /// Returns the same rule with its numbers borrowed.
    pub fn as_ref(&self) -> Rule<&X> {
        match self {
            Self::Tra { gate, leak } => Rule::Tra { gate, leak: *leak },
            Self::Dense => Rule::Dense,
            Self::Slope(slopes) => Rule::Slope(slopes),
            Self::Steps(steps) => Rule::Steps(steps),
        }
    }
}

/// Inputs of the kernels.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Sizes.
    pub shape: Shape,
    /// Queries; for TRA normalised already.
    pub q: Rows<'a>,
    /// Keys; for TRA normalised already.
    pub k: Rows<'a>,
    /// Values.
    pub v: Rows<'a>,
    /// The mechanism.
    pub rule: Rule<Rows<'a>>,
    /// Dropout on the logits.
    pub dropout: Option<Dropout>,
    /// Whether to stop at the horizon.
    pub horizon: Horizon,
    /// Bounds of the keys and values of each head, if known; otherwise they are computed.
    pub bounds: Option<&'a [Bounds]>,
    /// The instruction set to use.
    pub isa: Isa,
}

impl Inputs<'_> {
    /// Checks everything that the kernels rely on and that a safe caller could get wrong.
    ///
    /// # Panics
    /// If something does not fit the shape; the message names it.
    fn check(&self) {
        let shape = self.shape;
        let Shape { batch, heads, queries, keys, dim } = shape;
        assert!(self.isa.is_available(), "this machine has no {}", self.isa);
        assert!(queries <= keys, "more queries than keys: {queries} and {keys}");
        // The largest of all sizes, with room for padding to whole vectors.
        count([batch, heads, keys.max(1), dim.max(1), 16]);
        assert!(u32::try_from(keys).is_ok(), "more keys than a u32 counts: {keys}");
        self.q.check("queries", shape.query_rows(), dim);
        self.k.check("keys", shape.key_rows(), dim);
        self.v.check("values", shape.key_rows(), dim);
        match self.rule {
            Rule::Tra { gate, .. } => gate.check("gates", shape.query_rows(), 1),
            Rule::Slope(slopes) => slopes.check("slopes", [1, heads, 1], 1),
            Rule::Steps(steps) => steps.check("steps", [batch, heads, 1], keys),
            Rule::Dense => {}
        }
        if let Some(bounds) = self.bounds {
            assert_eq!(bounds.len(), batch * heads, "there must be bounds for each head");
        }
    }
}

/// What the forward pass saves for the backward pass, per query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// Subtracted from the logits before exponentiation.
    pub shift: Vec<f32>,
    /// One over the sum of the exponentials; 0 if no key was kept.
    pub inverse_sum: Vec<f32>,
    /// The oldest key that was read; 0 unless the row stopped at the horizon.
    pub stop: Vec<u32>,
}

impl Saved {
    fn new(rows: usize) -> Self {
        Self { shift: vec![0.0; rows], inverse_sum: vec![0.0; rows], stop: vec![0; rows] }
    }

    /// Returns the share of visible query-key pairs that were read: the effect of the horizon.
    pub fn share_read(&self, shape: Shape) -> f64 {
        let (mut read, mut all) = (0, 0);
        for (row, stop) in self.stop.iter().enumerate() {
            let behind = shape.queries.saturating_sub(row % shape.queries.max(1));
            let visible = (shape.keys.saturating_sub(behind) + 1) as u64;
            all += visible;
            // A query that can keep nothing stops before it reads anything.
            read += visible.saturating_sub(u64::from(*stop));
        }
        read as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests;
