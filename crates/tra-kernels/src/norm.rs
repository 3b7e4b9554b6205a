//! RMS norm over rows: `y = x / sqrt(mean(x^2) + eps) * weight`.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use crate::parallel::{add_up, piece, written};
use crate::simd::{Isa, Simd, kernel};

/// Returns every row of `width` numbers normalised and, if there is a `weight`, multiplied with it;
/// and one over the root mean square of each row.
///
/// # Panics
/// If a size does not fit.
pub fn forward(
    isa: Isa,
    x: &[f32],
    weight: Option<&[f32]>,
    eps: f32,
    width: usize,
) -> (Vec<f32>, Vec<f32>) {
    check(isa, x, weight, width);
    let mut inverse = vec![0.0; x.len() / width];
    let rows = piece(width);
    let write = |out: &mut [MaybeUninit<f32>]| {
        x.par_chunks(rows * width)
            .zip(out.par_chunks_mut(rows * width))
            .zip(inverse.par_chunks_mut(rows))
            .for_each(|((x, out), inverse)| {
                // SAFETY: the instruction set is there, and the sizes fit.
                unsafe { run_forward(isa, x, weight, eps, out, inverse) };
            });
    };
    // SAFETY: every row is written.
    (unsafe { written(x.len(), write) }, inverse)
}

/// Returns the gradients with respect to `x` and to the weight, if there is one.
///
/// # Panics
/// If a size does not fit.
pub fn backward(
    isa: Isa,
    x: &[f32],
    weight: Option<&[f32]>,
    inverse: &[f32],
    dy: &[f32],
    width: usize,
) -> (Vec<f32>, Option<Vec<f32>>) {
    check(isa, x, weight, width);
    assert_eq!(inverse.len(), x.len() / width, "there must be one root mean square a row");
    assert_eq!(dy.len(), x.len(), "there must be one gradient a number");
    let rows = piece(width);
    let mut pieces: Vec<Vec<f32>> = Vec::new();
    let write = |dx: &mut [MaybeUninit<f32>]| {
        pieces = x
            .par_chunks(rows * width)
            .zip(dy.par_chunks(rows * width))
            .zip(dx.par_chunks_mut(rows * width))
            .zip(inverse.par_chunks(rows))
            .map(|(((x, dy), dx), inverse)| {
                let mut dweight = vec![0.0; weight.map_or(0, <[f32]>::len)];
                // SAFETY: the instruction set is there, and the sizes fit.
                unsafe { run_backward(isa, x, weight, inverse, dy, dx, &mut dweight) };
                dweight
            })
            .collect();
    };
    // SAFETY: every row is written.
    let dx = unsafe { written(x.len(), write) };
    (dx, weight.map(|weight| add_up(pieces, weight.len())))
}

fn check(isa: Isa, x: &[f32], weight: Option<&[f32]>, width: usize) {
    assert!(isa.is_available(), "this machine has no {isa}");
    assert!(width > 0, "a width of 0");
    assert!(x.len().is_multiple_of(width), "{} numbers are no whole rows of {width}", x.len());
    let weights = weight.map_or(width, <[f32]>::len);
    assert_eq!(weights, width, "there must be one weight a column");
}

kernel!(unsafe fn run_forward = forward_rows(
    x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [MaybeUninit<f32>], inverse: &mut [f32],
));
kernel!(unsafe fn run_backward = backward_rows(
    x: &[f32], weight: Option<&[f32]>, inverse: &[f32], dy: &[f32], dx: &mut [MaybeUninit<f32>],
    dweight: &mut [f32],
));

/// # Safety
/// The CPU must have `S`; `out` has the size of `x`, `inverse` one number per row.
#[inline(always)]
unsafe fn forward_rows<S: Simd>(
    x: &[f32],
    weight: Option<&[f32]>,
    eps: f32,
    out: &mut [MaybeUninit<f32>],
    inverse: &mut [f32],
) {
    let width = x.len() / inverse.len().max(1);
    let whole = width / S::LANES * S::LANES;
    for (row, inverse) in inverse.iter_mut().enumerate() {
        let x = &x[row * width..][..width];
        let out = &mut out[row * width..][..width];
        // SAFETY: up to `whole` there are whole vectors.
        unsafe {
            let mut sum = S::splat(0.0);
            for t in (0..whole).step_by(S::LANES) {
                let x = S::load(x.as_ptr().add(t));
                sum = S::fma(x, x, sum);
            }
            let tail: f32 = x[whole..].iter().map(|x| x * x).sum();
            *inverse = 1.0 / ((S::sum(sum) + tail) / width as f32 + eps).sqrt();
            for t in (0..whole).step_by(S::LANES) {
                let mut y = S::mul(S::load(x.as_ptr().add(t)), S::splat(*inverse));
                if let Some(weight) = weight {
                    y = S::mul(y, S::load(weight.as_ptr().add(t)));
                }
                S::store(out.as_mut_ptr().cast::<f32>().add(t), y);
            }
        }
        for t in whole..width {
            out[t].write(x[t] * *inverse * weight.map_or(1.0, |w| w[t]));
        }
    }
}

/// With `r = 1 / rms` and `u = dy * weight`: `dx = r (u - x r^2 mean(x u))`, and that of the
/// weight is `dy x r`.
///
/// # Safety
/// The CPU must have `S`; `dy` and `dx` have the size of `x`, `inverse` one number per row.
#[inline(always)]
unsafe fn backward_rows<S: Simd>(
    x: &[f32],
    weight: Option<&[f32]>,
    inverse: &[f32],
    dy: &[f32],
    dx: &mut [MaybeUninit<f32>],
    dweight: &mut [f32],
) {
    let width = x.len() / inverse.len().max(1);
    let whole = width / S::LANES * S::LANES;
    for (row, r) in inverse.iter().enumerate() {
        let (x, dy) = (&x[row * width..][..width], &dy[row * width..][..width]);
        let dx = &mut dx[row * width..][..width];
        // SAFETY: up to `whole` there are whole vectors.
        unsafe {
            let mut sum = S::splat(0.0);
            for t in (0..whole).step_by(S::LANES) {
                let mut u = S::load(dy.as_ptr().add(t));
                if let Some(weight) = weight {
                    u = S::mul(u, S::load(weight.as_ptr().add(t)));
                }
                sum = S::fma(u, S::load(x.as_ptr().add(t)), sum);
            }
            let mut dot = S::sum(sum);
            for t in whole..width {
                dot += dy[t] * weight.map_or(1.0, |w| w[t]) * x[t];
            }
            let along = -dot * r * r / width as f32;
            for t in (0..whole).step_by(S::LANES) {
                let (x, dy) = (S::load(x.as_ptr().add(t)), S::load(dy.as_ptr().add(t)));
                let mut u = dy;
                if let Some(weight) = weight {
                    u = S::mul(u, S::load(weight.as_ptr().add(t)));
                    let p = dweight.as_mut_ptr().add(t);
                    let more = S::mul(S::mul(dy, x), S::splat(*r));
                    S::store(p, S::add(S::load(p), more));
                }
                let u = S::fma(x, S::splat(along), u);
                S::store(dx.as_mut_ptr().cast::<f32>().add(t), S::mul(u, S::splat(*r)));
            }
            for t in whole..width {
                dx[t].write((dy[t] * weight.map_or(1.0, |w| w[t]) + x[t] * along) * r);
                if weight.is_some() {
                    dweight[t] += dy[t] * x[t] * r;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tra_random::Stream;

    /// Against the formula in f64, and its gradients against differences.
    #[test]
    fn every_instruction_set_agrees_with_the_formula() {
        for isa in Isa::available() {
            for (rows, width) in [(1, 1), (3, 5), (2, 16), (70, 40), (2, 257)] {
                for weighted in [false, true] {
                    let draw = |tag: u64, n: usize| -> Vec<f32> {
                        (0..n as u64).map(|i| Stream::new(tag).normal(i) as f32).collect()
                    };
                    let (x, dy) = (draw(1, rows * width), draw(2, rows * width));
                    let weight = weighted.then(|| draw(3, width));
                    let weights = weight.as_deref();
                    let (out, inverse) = forward(isa, &x, weights, 1e-6, width);
                    let (dx, dw) = backward(isa, &x, weights, &inverse, &dy, width);
                    assert_eq!(dw.is_some(), weighted);

                    let mut expected_dw = vec![0.0; width];
                    for row in 0..rows {
                        let at = |t: usize| f64::from(x[row * width + t]);
                        let w = |t: usize| weight.as_ref().map_or(1.0, |w| f64::from(w[t]));
                        let square: f64 = (0..width).map(|t| at(t).powi(2)).sum();
                        let r = 1.0 / (square / width as f64 + 1e-6).sqrt();
                        let g = |t: usize| f64::from(dy[row * width + t]);
                        let dot: f64 = (0..width).map(|t| g(t) * w(t) * at(t)).sum();
                        for t in 0..width {
                            let close = |ours: f32, x: f64| {
                                assert!(
                                    (f64::from(ours) - x).abs() < 2e-5 * (1.0 + x.abs()),
                                    "{isa} {rows}x{width} {weighted}: {ours} {x}"
                                );
                            };
                            close(out[row * width + t], at(t) * r * w(t));
                            let d = r * (g(t) * w(t) - at(t) * r * r * dot / width as f64);
                            close(dx[row * width + t], d);
                            expected_dw[t] += g(t) * at(t) * r;
                        }
                    }
                    for (ours, x) in dw.iter().flatten().zip(expected_dw) {
                        assert!((f64::from(*ours) - x).abs() < 2e-5 * (1.0 + x.abs()));
                    }
                }
            }
        }
    }
}
