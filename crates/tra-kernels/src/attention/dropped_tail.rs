//! Dropped logits past the horizon.
//!
//! A dropped logit is 0 at every distance: it does not decay. At the published rate one in a hundred
//! kept keys past the horizon still weighs as much as a near one. These pairs are found by their hash,
//! without reading the others, and added one by one.

use std::ops::Range;

use super::Inputs;
use super::logits::Lanes;
use crate::simd::Simd;

/// Dropped pairs that take part: a lane of the tile and a key.
pub(super) struct Pairs {
    pairs: [(u8, u32); Self::MANY],
    count: usize,
}

impl Pairs {
    /// Keys per search.
    pub(super) const KEYS: usize = 64;
    /// All pairs of the lanes of a vector.
    const MANY: usize = Self::KEYS * 16;

    pub(super) fn new() -> Self {
        Self { pairs: [(0, 0); Self::MANY], count: 0 }
    }

    pub(super) fn get(&self) -> &[(u8, u32)] {
        &self.pairs[..self.count]
    }

    /// Finds the pairs of the lanes from `column` on and the keys `from..to`, at most [`KEYS`] of them.
    ///
    /// [`KEYS`]: Self::KEYS
    ///
    /// # Safety
    /// The CPU must have `S`; `column` and its lanes must be within the tile.
    #[inline(always)]
    pub(super) unsafe fn find<S: Simd, const TRA: bool>(
        &mut self,
        inputs: &Inputs<'_>,
        at: [usize; 2],
        lanes: &Lanes,
        column: usize,
        keys: Range<usize>,
    ) {
        self.count = 0;
        let Some(dropout) = inputs.dropout else { return };
        debug_assert!(keys.len() <= Self::KEYS);
        let there = ((1u64 << (lanes.queries - column).min(S::LANES)) - 1) as u32;
        let first_query = lanes.first - inputs.shape.position(0);
        // First all hashes, without a branch that depends on them; most keys have no hit.
        let mut hits = [(0u32, 0u32); Self::KEYS];
        let mut found = 0;
        // SAFETY: the caller's promise.
        unsafe {
            let hash = S::iload(lanes.hash.as_ptr().add(column));
            for j in keys {
                let bits = S::bits(S::dropped(hash, j as u32, dropout.threshold())) & there;
                hits[found] = (j as u32, bits);
                found += usize::from(bits != 0);
            }
            for (j, mut bits) in hits[..found].iter().copied() {
                let k = inputs.k.row(at, j as usize);
                while bits != 0 {
                    let i = column + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    let keep = !TRA || dot::<S>(inputs.q.row(at, first_query + i), k) > 0.0;
                    self.pairs[self.count] = (i as u8, j);
                    self.count += usize::from(keep);
                }
            }
        }
    }
}

/// Computes `to += factor * from` for rows of whole vectors.
///
/// # Safety
/// The CPU must have `S`.
#[inline(always)]
pub(super) unsafe fn add_scaled<S: Simd>(to: &mut [f32], factor: f32, from: &[f32]) {
    let whole = from.len() / S::LANES * S::LANES;
    assert!(to.len() >= from.len());
    // SAFETY: up to `whole`, both are there.
    unsafe {
        let factor = S::splat(factor);
        for t in (0..whole).step_by(S::LANES) {
            let p = to.as_mut_ptr().add(t);
            S::store(p, S::fma(factor, S::load(from.as_ptr().add(t)), S::load(p)));
        }
    }
    for (to, from) in to[whole..].iter_mut().zip(&from[whole..]) {
        *to += factor * from;
    }
}

/// # Safety
/// The CPU must have `S`.
#[inline(always)]
pub(super) unsafe fn dot<S: Simd>(a: &[f32], b: &[f32]) -> f32 {
    let whole = a.len() / S::LANES * S::LANES;
    assert_eq!(a.len(), b.len());
    // SAFETY: up to `whole`, both are there.
    let mut sum = unsafe {
        let mut sum = S::splat(0.0);
        for t in (0..whole).step_by(S::LANES) {
            sum = S::fma(S::load(a.as_ptr().add(t)), S::load(b.as_ptr().add(t)), sum);
        }
        S::sum(sum)
    };
    for (a, b) in a[whole..].iter().zip(&b[whole..]) {
        sum += a * b;
    }
    sum
}
