//! What logit dropout leaves to do behind the horizon.
//!
//! A dropped logit is 0, however far the key: it does not decay, and at the published rate one in a
//! hundred kept keys behind the horizon still weighs as much as a near one. These pairs are found by
//! their hash, without looking at the rest, and taken up one by one.

use super::logits::Lanes;
use super::{Inputs, Rule};
use crate::simd::Simd;

/// Calls `take(query lane, key)` for every dropped pair that takes part, of the lanes from `column`
/// on and the keys before `stop`.
///
/// # Safety
/// The CPU must have `S`; `column` and its lanes must be within the tile.
#[inline(always)]
pub(super) unsafe fn far_pairs<S: Simd, const TRA: bool>(
    inputs: &Inputs<'_>,
    at: [usize; 2],
    lanes: &Lanes,
    column: usize,
    stop: usize,
    mut take: impl FnMut(usize, usize),
) {
    let Some(dropout) = inputs.dropout else { return };
    debug_assert!(matches!(inputs.rule, Rule::Tra { .. }) == TRA);
    let there = ((1u64 << (lanes.queries - column).min(S::LANES)) - 1) as u32;
    let from = lanes.first - inputs.shape.position(0);
    // SAFETY: the caller's promise.
    unsafe {
        let hash = S::iload(lanes.hash.as_ptr().add(column));
        for j in (0..stop).rev() {
            let mut bits = S::bits(S::dropped(hash, j as u32, dropout.threshold())) & there;
            while bits != 0 {
                let i = column + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if !TRA || dot::<S>(inputs.q.row(at, from + i), inputs.k.row(at, j)) > 0.0 {
                    take(i, j);
                }
            }
        }
    }
}

/// Adds a logit of 0 to a softmax; gives what its sums are to be multiplied by, and the weight of
/// what is added to them.
#[inline(always)]
pub(super) fn weigh_far(shift: &mut f32, sum: &mut f32) -> (f32, f32) {
    let factor = if *shift < 0.0 { shift.exp() } else { 1.0 };
    *shift = shift.max(0.0);
    let weight = (-*shift).exp();
    *sum = *sum * factor + weight;
    (factor, weight)
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
