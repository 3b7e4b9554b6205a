//! Entmax with alpha 1.5 (Peters et al. 2019): like a softmax, but small weights are exactly zero.
//!
//! `p = max(z / 2 - tau, 0)^2` with the `tau` for which the weights sum to 1. That sum falls with
//! `tau` and is convex, so Newton's method, started left of the solution, approaches it with every
//! step and never passes it.

use rayon::prelude::*;

use crate::parallel::piece;

/// Most steps ever taken: far from the solution a step halves the distance, near it the digits double.
const STEPS: usize = 64;

/// Replaces every row of `z`, `[rows, width]`, by its weights. A logit of -1e30 or less takes no part; a row
/// in which none takes part becomes zero.
///
/// # Panics
/// If the rows are not whole.
pub fn forward(z: &mut [f32], width: usize) {
    each_row(z, width, |row| {
        let largest = row.iter().fold(f32::MIN, |a, b| a.max(*b));
        if largest <= -1e30 {
            return row.fill(0.0);
        }
        // Relative to the largest, so that no difference of large numbers loses digits.
        row.iter_mut().for_each(|z| *z = (*z - largest) * 0.5);
        let tau = threshold(row);
        for z in row.iter_mut() {
            let root = (*z - tau).max(0.0);
            *z = root * root;
        }
        // The sum is 1 up to rounding.
        let [sum, _] = sums(row, |p| p);
        let scale = 1.0 / sum;
        row.iter_mut().for_each(|p| *p *= scale);
    });
}

/// Replaces `dp`, the gradient of the weights `p`, by that of the logits: with `s = sqrt(p)` it is
/// `s (dp - sum(s dp) / sum(s))`.
///
/// # Panics
/// If the sizes do not fit.
pub fn backward(p: &[f32], dp: &mut [f32], width: usize) {
    assert_eq!(p.len(), dp.len(), "there must be one gradient a weight");
    check(p.len(), width);
    let rows = piece(width);
    dp.par_chunks_mut(rows * width).zip(p.par_chunks(rows * width)).for_each(|(dp, p)| {
        for (dp, p) in dp.chunks_exact_mut(width).zip(p.chunks_exact(width)) {
            let (mut along, mut sum) = (0.0, 0.0);
            for (dp, p) in dp.iter().zip(p).filter(|(_, p)| **p > 0.0) {
                along += dp * p.sqrt();
                sum += p.sqrt();
            }
            let mean = if sum > 0.0 { along / sum } else { 0.0 };
            for (dp, p) in dp.iter_mut().zip(p) {
                *dp = if *p > 0.0 { p.sqrt() * (*dp - mean) } else { 0.0 };
            }
        }
    });
}

/// Returns `tau` for halved logits whose largest is 0.
fn threshold(row: &[f32]) -> f32 {
    let mut tau = -1.0f32;
    for _ in 0..STEPS {
        let [slope, square] = sums(row, |z| (z - tau).max(0.0));
        let next = tau + (square - 1.0) / (2.0 * slope);
        if next <= tau {
            break;
        }
        tau = next;
    }
    tau
}

/// Returns the sums of `f` and of its square over a row, in eight parts, which compilers vectorise.
fn sums(row: &[f32], f: impl Fn(f32) -> f32) -> [f32; 2] {
    let mut parts = [[0.0; 8]; 2];
    let [once, squared] = &mut parts;
    let chunks = row.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..8 {
            let x = f(chunk[lane]);
            once[lane] += x;
            squared[lane] += x * x;
        }
    }
    for (lane, z) in rest.iter().enumerate() {
        let x = f(*z);
        once[lane] += x;
        squared[lane] += x * x;
    }
    parts.map(|lanes| lanes.iter().sum())
}

fn check(numbers: usize, width: usize) {
    let whole = width > 0 && numbers.is_multiple_of(width);
    assert!(whole, "{numbers} numbers are no whole rows of {width}");
}

fn each_row(x: &mut [f32], width: usize, f: impl Fn(&mut [f32]) + Sync) {
    check(x.len(), width);
    x.par_chunks_mut(piece(width) * width)
        .for_each(|rows| rows.chunks_exact_mut(width).for_each(&f));
}

#[cfg(test)]
mod tests {
    use super::*;
    use tra_random::Stream;

    /// `tau` by bisection in f64.
    fn plain(z: &[f64]) -> Vec<f64> {
        let largest = z.iter().copied().fold(f64::MIN, f64::max) / 2.0;
        let sum = |tau: f64| z.iter().map(|z| (z / 2.0 - tau).max(0.0).powi(2)).sum::<f64>();
        let (mut low, mut high) = (largest - 1.0, largest);
        for _ in 0..200 {
            let middle = (low + high) / 2.0;
            if sum(middle) > 1.0 { low = middle } else { high = middle }
        }
        z.iter().map(|z| (z / 2.0 - low).max(0.0).powi(2)).collect()
    }

    fn rows(rows: usize, width: usize, scale: f64) -> Vec<f32> {
        let stream = Stream::new(9).fork(width as u64);
        (0..(rows * width) as u64).map(|i| (stream.normal(i) * scale) as f32).collect()
    }

    #[test]
    fn weights_are_those_of_the_definition() {
        for width in [1, 2, 5, 8, 9, 64, 333, 5000] {
            for scale in [0.0, 1e-3, 1.0, 30.0, 1e4] {
                let z = rows(3, width, scale);
                let mut p = z.clone();
                forward(&mut p, width);
                for (p, z) in p.chunks(width).zip(z.chunks(width)) {
                    let z: Vec<f64> = z.iter().map(|z| f64::from(*z)).collect();
                    for (p, expected) in p.iter().zip(plain(&z)) {
                        let difference = (f64::from(*p) - expected).abs();
                        assert!(difference < 2e-6, "{width} {scale}: {difference}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_takes_no_part_has_no_weight() {
        let mut p = vec![1.0, -1e30, 1.0, -1e30, -1e30, -1e30];
        forward(&mut p, 3);
        assert_eq!(p, [0.5, 0.0, 0.5, 0.0, 0.0, 0.0]);
        let mut dp = vec![1.0, f32::NAN, 3.0, f32::NAN, 1.0, 1.0];
        backward(&p, &mut dp, 3);
        assert_eq!(dp[3..], [0.0; 3]);
        assert!(dp.iter().all(|d| d.is_finite()));
    }

    /// Against differences in f64, where no weight is about to appear or vanish.
    #[test]
    fn gradients_are_those_of_the_definition() {
        for width in [1, 2, 7, 40] {
            let (z, weights) = (rows(1, width, 1.0), rows(1, width, 2.0));
            let (mut p, mut dz) = (z.clone(), weights.clone());
            forward(&mut p, width);
            backward(&p, &mut dz, width);
            let loss = |z: &[f64]| -> f64 {
                plain(z).iter().zip(&weights).map(|(p, w)| p * f64::from(*w)).sum()
            };
            for at in 0..width {
                let moved = |by: f64| {
                    let mut z: Vec<f64> = z.iter().map(|z| f64::from(*z)).collect();
                    z[at] += by;
                    loss(&z)
                };
                let numeric = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                let difference = (f64::from(dz[at]) - numeric).abs();
                assert!(difference < 2e-4, "{width} {at}: {} {numeric}", dz[at]);
            }
        }
    }
}
