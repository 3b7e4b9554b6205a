//! Cross-entropy over a large vocabulary, without a second copy of the logits.

use rayon::prelude::*;

use crate::parallel::count;
use crate::simd::{Isa, Simd, kernel};

/// A row that is not scored.
pub const NOT_SCORED: u32 = u32::MAX;

/// Returns the sum of the cross-entropy of the scored rows of `logits`, rows of `vocab` numbers, and
/// replaces the logits by their gradients: in a scored row the softmax, less one at the target;
/// elsewhere zeros.
///
/// # Panics
/// If a size does not fit or a target is outside the vocabulary.
pub fn forward_in_place(isa: Isa, logits: &mut [f32], vocab: usize, targets: &[u32]) -> f64 {
    assert!(isa.is_available(), "this machine has no {isa}");
    assert_eq!(logits.len(), count([vocab, targets.len()]), "there must be one target a row");
    let one = |(row, target): (&mut [f32], &u32)| {
        if *target == NOT_SCORED {
            row.fill(0.0);
            return 0.0;
        }
        let target = *target as usize;
        assert!(target < vocab, "a target outside the vocabulary");
        let at_target = row[target];
        // SAFETY: the instruction set is there.
        let log_sum = unsafe { softmax(isa, row) };
        row[target] -= 1.0;
        f64::from(log_sum) - f64::from(at_target)
    };
    // Collected first, so that they are added up in their order.
    let losses: Vec<f64> =
        logits.par_chunks_mut(vocab.max(1)).zip(targets).map(one).with_min_len(8).collect();
    losses.iter().sum()
}

/// Returns the cross-entropy of the target of every row of `logits`, and whether the target is the
/// likeliest. A tie does not count, and neither does a NaN.
///
/// # Panics
/// If a size does not fit or a target is outside the vocabulary.
pub fn score(isa: Isa, logits: &[f32], vocab: usize, targets: &[u32]) -> Vec<(f64, bool)> {
    assert!(isa.is_available(), "this machine has no {isa}");
    assert_eq!(logits.len(), count([vocab, targets.len()]), "there must be one target a row");
    let one = |(row, target): (&[f32], &u32)| {
        assert!((*target as usize) < vocab, "a target outside the vocabulary");
        let at_target = row[*target as usize];
        // SAFETY: the instruction set is there.
        let log_sum = unsafe { log_sum_exp(isa, row) };
        // Not `>=`: a NaN must not count as smaller.
        #[allow(clippy::neg_cmp_op_on_partial_ord)]
        let no_smaller = row.iter().filter(|logit| !(**logit < at_target)).count();
        (f64::from(log_sum) - f64::from(at_target), no_smaller == 1 && !at_target.is_nan())
    };
    logits.par_chunks(vocab.max(1)).zip(targets).map(one).with_min_len(8).collect()
}

kernel!(unsafe fn log_sum_exp = log_sum_exp_generic(row: &[f32]) -> f32);

/// Returns the rest after the last whole vector, padded with numbers without weight; where it begins;
/// and the largest number of the row.
///
/// # Safety
/// The CPU must have `S`.
#[inline(always)]
unsafe fn survey<S: Simd>(row: &[f32]) -> ([f32; 16], usize, f32) {
    let whole = row.len() / S::LANES * S::LANES;
    let mut rest = [f32::NEG_INFINITY; 16];
    rest[..row.len() - whole].copy_from_slice(&row[whole..]);
    // SAFETY: up to `whole` there are whole vectors.
    unsafe {
        let mut largest = S::load(rest.as_ptr());
        for at in (0..whole).step_by(S::LANES) {
            largest = S::max(S::load(row.as_ptr().add(at)), largest);
        }
        (rest, whole, S::largest(largest))
    }
}

/// Returns the logarithm of the sum of exponentials.
///
/// # Safety
/// The CPU must have `S`.
#[inline(always)]
unsafe fn log_sum_exp_generic<S: Simd>(row: &[f32]) -> f32 {
    // SAFETY: up to `whole` there are whole vectors.
    unsafe {
        let (rest, whole, largest) = survey::<S>(row);
        let shift = S::splat(largest);
        let mut sum = S::exp(S::sub(S::load(rest.as_ptr()), shift));
        for at in (0..whole).step_by(S::LANES) {
            sum = S::add(sum, S::exp(S::sub(S::load(row.as_ptr().add(at)), shift)));
        }
        largest + S::sum(sum).ln()
    }
}

kernel!(unsafe fn softmax = softmax_generic(row: &mut [f32]) -> f32);

/// Applies the softmax in place; returns the logarithm of the sum of exponentials.
///
/// # Safety
/// The CPU must have `S`.
#[inline(always)]
unsafe fn softmax_generic<S: Simd>(row: &mut [f32]) -> f32 {
    // SAFETY: up to `whole` there are whole vectors.
    unsafe {
        let (mut rest, whole, largest) = survey::<S>(row);
        let shift = S::splat(largest);
        let last = S::exp(S::sub(S::load(rest.as_ptr()), shift));
        S::store(rest.as_mut_ptr(), last);
        let mut sum = last;
        for at in (0..whole).step_by(S::LANES) {
            let p = row.as_mut_ptr().add(at);
            let e = S::exp(S::sub(S::load(p), shift));
            sum = S::add(sum, e);
            S::store(p, e);
        }
        let sum = S::sum(sum);
        let inverse = S::splat(1.0 / sum);
        for at in (0..whole).step_by(S::LANES) {
            let p = row.as_mut_ptr().add(at);
            S::store(p, S::mul(S::load(p), inverse));
        }
        for (at, e) in (whole..row.len()).zip(rest) {
            row[at] = e / sum;
        }
        largest + sum.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tra_random::Stream;

    #[test]
    fn every_instruction_set_agrees_with_the_formula() {
        for isa in Isa::available() {
            for vocab in [1, 5, 16, 33, 1000] {
                let rows = 7;
                let given: Vec<f32> = (0..(rows * vocab) as u64)
                    .map(|i| 20.0 * Stream::new(4).normal(i) as f32)
                    .collect();
                let targets: Vec<u32> = (0..rows)
                    .map(|r| if r % 3 == 1 { NOT_SCORED } else { (r * 5 % vocab) as u32 })
                    .collect();
                let mut logits = given.clone();
                let all: Vec<u32> = (0..rows).map(|r| (r * 5 % vocab) as u32).collect();
                let scored = score(isa, &given, vocab, &all);
                let loss = forward_in_place(isa, &mut logits, vocab, &targets);
                let mut expected = 0.0;
                for (row, target) in targets.iter().enumerate() {
                    let x: Vec<f64> =
                        given[row * vocab..][..vocab].iter().map(|x| f64::from(*x)).collect();
                    let max = x.iter().copied().fold(f64::MIN, f64::max);
                    let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
                    let own = max + sum.ln() - x[all[row] as usize];
                    assert!((scored[row].0 - own).abs() < 1e-4, "{isa} {vocab}: {own}");
                    assert_eq!(scored[row].1, x[all[row] as usize] == max);
                    let scored = *target != NOT_SCORED;
                    if scored {
                        expected += max + sum.ln() - x[*target as usize];
                    }
                    for (t, x) in x.iter().enumerate() {
                        let p = (x - max).exp() / sum - f64::from(u8::from(t == *target as usize));
                        let p = if scored { p } else { 0.0 };
                        assert!(
                            (f64::from(logits[row * vocab + t]) - p).abs() < 1e-6,
                            "{isa} {vocab}"
                        );
                    }
                }
                assert!((loss - expected).abs() < 1e-4, "{isa} {vocab}: {loss} {expected}");
            }
        }
    }

    #[test]
    fn an_answer_must_be_the_likeliest_alone() {
        for isa in Isa::available() {
            let right = |logits: &[f32], target| score(isa, logits, logits.len(), &[target])[0].1;
            assert!(right(&[0.0, 2.0, 1.0], 1));
            assert!(!right(&[0.0, 2.0, 1.0], 2));
            assert!(!right(&[2.0, 2.0], 1));
            assert!(!right(&[f32::NAN, 2.0], 1) && !right(&[1.0, f32::NAN], 1));
            assert!(score(isa, &[1.0, f32::NAN], 2, &[0])[0].0.is_nan());
        }
    }

    #[test]
    fn a_nan_is_not_hidden() {
        for isa in Isa::available() {
            for at in [0, 17] {
                let mut logits = vec![1.0; 20];
                logits[at] = f32::NAN;
                assert!(forward_in_place(isa, &mut logits, 20, &[3]).is_nan(), "{isa} {at}");
            }
        }
    }
}
