//! The gated linear unit of the decoder: `a * silu(g)` where a row holds `a` and then `g`.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use crate::dropout::Dropout;
use crate::parallel::{count, piece, written};
use crate::simd::{Isa, Simd, kernel};

/// Returns `a * silu(g)`, rows of `half` numbers from rows of twice as many, with optional dropout.
///
/// # Panics
/// If a size does not fit.
pub fn forward(isa: Isa, both: &[f32], half: usize, dropout: Option<Dropout>) -> Vec<f32> {
    check(isa, both, half);
    let rows = piece(2 * half);
    let write = |out: &mut [MaybeUninit<f32>]| {
        let pieces = both.par_chunks(2 * half * rows).zip(out.par_chunks_mut(half * rows));
        pieces.enumerate().for_each(|(index, (both, out))| {
            // SAFETY: the instruction set is there, the sizes fit, and `out` is written.
            let out = unsafe {
                run_forward(isa, both, half, out);
                out.assume_init_mut()
            };
            if let Some(dropout) = dropout {
                dropout.apply(isa, out, (index * rows) as u64, half);
            }
        });
    };
    // SAFETY: every row is written.
    unsafe { written(both.len() / 2, write) }
}

/// Returns the gradient with respect to `both`.
///
/// # Panics
/// If a size does not fit.
pub fn backward(
    isa: Isa,
    both: &[f32],
    half: usize,
    dropout: Option<Dropout>,
    dy: &[f32],
) -> Vec<f32> {
    check(isa, both, half);
    assert_eq!(dy.len(), both.len() / 2, "there must be one gradient a number that came out");
    let rows = piece(2 * half);
    let write = |dboth: &mut [MaybeUninit<f32>]| {
        both.par_chunks(2 * half * rows)
            .zip(dy.par_chunks(half * rows))
            .zip(dboth.par_chunks_mut(2 * half * rows))
            .enumerate()
            .for_each(|(index, ((both, dy), dboth))| {
                // The first half of every row first holds `dy` after dropout.
                for (row, (dy, dboth)) in
                    dy.chunks(half).zip(dboth.chunks_mut(2 * half)).enumerate()
                {
                    let da = dboth[..half].write_copy_of_slice(dy);
                    if let Some(dropout) = dropout {
                        dropout.apply(isa, da, (index * rows + row) as u64, half);
                    }
                }
                // SAFETY: the instruction set is there, and the sizes fit.
                unsafe { run_backward(isa, both, half, dboth) };
            });
    };
    // SAFETY: every row is written.
    unsafe { written(both.len(), write) }
}

fn check(isa: Isa, both: &[f32], half: usize) {
    assert!(isa.is_available(), "this machine has no {isa}");
    let width = count([2, half]);
    let whole = half > 0 && both.len().is_multiple_of(width);
    assert!(whole, "{} numbers are no whole rows of twice {half}", both.len());
}

kernel!(unsafe fn run_forward = forward_rows(
    both: &[f32], half: usize, out: &mut [MaybeUninit<f32>],
));
kernel!(unsafe fn run_backward = backward_rows(
    both: &[f32], half: usize, dboth: &mut [MaybeUninit<f32>],
));

/// `1 / (1 + e^-x)`; no positive number is exponentiated.
#[inline(always)]
unsafe fn sigmoid<S: Simd>(x: S::V) -> S::V {
    // SAFETY: the caller's promise that the CPU has `S`.
    unsafe {
        let (zero, one) = (S::splat(0.0), S::splat(1.0));
        let e = S::exp(S::sub(zero, S::abs(x)));
        S::div(S::select(S::ge(x, zero), one, e), S::add(one, e))
    }
}

/// # Safety
/// The CPU must have `S`; `both` holds rows of twice `half` numbers, `out` rows of `half`.
#[inline(always)]
unsafe fn forward_rows<S: Simd>(both: &[f32], half: usize, out: &mut [MaybeUninit<f32>]) {
    let whole = half / S::LANES * S::LANES;
    for (both, out) in both.chunks_exact(2 * half).zip(out.chunks_exact_mut(half)) {
        let (a, g) = both.split_at(half);
        // SAFETY: up to `whole` there are whole vectors; what is left over is copied into one.
        unsafe {
            for t in (0..whole).step_by(S::LANES) {
                let g = S::load(g.as_ptr().add(t));
                let y = S::mul(S::load(a.as_ptr().add(t)), S::mul(g, sigmoid::<S>(g)));
                S::store(out.as_mut_ptr().cast::<f32>().add(t), y);
            }
            if whole < half {
                let mut rest = [0.0; 16];
                rest[..half - whole].copy_from_slice(&g[whole..]);
                let v = S::load(rest.as_ptr());
                S::store(rest.as_mut_ptr(), S::mul(v, sigmoid::<S>(v)));
                for t in whole..half {
                    out[t].write(a[t] * rest[t - whole]);
                }
            }
        }
    }
}

/// `da = dy silu(g)`; `dg = dy a s (1 + g (1 - s))` with `s = sigmoid(g)`. `dy` is in the first
/// half of each row of `dboth`.
///
/// # Safety
/// The CPU must have `S`; both slices hold rows of twice `half` numbers.
#[inline(always)]
unsafe fn backward_rows<S: Simd>(both: &[f32], half: usize, dboth: &mut [MaybeUninit<f32>]) {
    let whole = half / S::LANES * S::LANES;
    for (both, dboth) in both.chunks_exact(2 * half).zip(dboth.chunks_exact_mut(2 * half)) {
        let (a, g) = both.split_at(half);
        let (da, dg) = dboth.split_at_mut(half);
        // SAFETY: `dy` was written there.
        let da = unsafe { da.assume_init_mut() };
        // SAFETY: up to `whole` there are whole vectors; what is left over is copied into one.
        unsafe {
            let one = S::splat(1.0);
            for t in (0..whole).step_by(S::LANES) {
                let (a, g) = (S::load(a.as_ptr().add(t)), S::load(g.as_ptr().add(t)));
                let dy = S::load(da.as_ptr().add(t));
                let s = sigmoid::<S>(g);
                let slope = S::mul(s, S::fma(g, S::sub(one, s), one));
                S::store(dg.as_mut_ptr().cast::<f32>().add(t), S::mul(S::mul(dy, a), slope));
                S::store(da.as_mut_ptr().add(t), S::mul(dy, S::mul(g, s)));
            }
            if whole < half {
                let mut rest = [0.0; 16];
                rest[..half - whole].copy_from_slice(&g[whole..]);
                let v = S::load(rest.as_ptr());
                S::store(rest.as_mut_ptr(), sigmoid::<S>(v));
                for t in whole..half {
                    let s = rest[t - whole];
                    dg[t].write(da[t] * a[t] * s * (1.0 + g[t] * (1.0 - s)));
                    da[t] *= g[t] * s;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tra_random::Stream;

    #[test]
    fn every_instruction_set_agrees_with_the_formula() {
        for isa in Isa::available() {
            for (rows, half) in [(1, 1), (3, 7), (5, 16), (300, 40)] {
                for rate in [0.0, 0.4] {
                    let draw = |tag: u64, n: usize| -> Vec<f32> {
                        (0..n as u64).map(|i| 4.0 * Stream::new(tag).normal(i) as f32).collect()
                    };
                    let (both, dy) = (draw(1, 2 * rows * half), draw(2, rows * half));
                    let dropout = (rate > 0.0).then(|| Dropout::new(Stream::new(3), rate));
                    let out = forward(isa, &both, half, dropout);
                    let dboth = backward(isa, &both, half, dropout, &dy);
                    for at in 0..rows * half {
                        let (row, t) = (at / half, at % half);
                        let factor = dropout.map_or(1.0, |d| d.row(row as u64).factor(t as u32));
                        let (a, g) = (both[2 * row * half + t], both[(2 * row + 1) * half + t]);
                        let (a, g, f) = (f64::from(a), f64::from(g), f64::from(factor));
                        let (s, dy) = (1.0 / (1.0 + (-g).exp()), f * f64::from(dy[at]));
                        let close = |ours: f32, x: f64| {
                            assert!(
                                (f64::from(ours) - x).abs() < 1e-5 * (1.0 + x.abs()),
                                "{isa} {ours} {x}"
                            );
                        };
                        close(out[at], f * a * g * s);
                        close(dboth[2 * row * half + t], dy * g * s);
                        close(dboth[(2 * row + 1) * half + t], dy * a * s * (1.0 + g * (1.0 - s)));
                    }
                }
            }
        }
    }

    #[test]
    fn saturated_gates_stay_finite() {
        for isa in Isa::available() {
            let both = [vec![1.0; 20], [-1e30, -100.0, 100.0, 1e30].repeat(5)].concat();
            let out = forward(isa, &both, 20, None);
            let dboth = backward(isa, &both, 20, None, &[1.0; 20]);
            assert!(out.iter().all(|x| x.is_finite()), "{isa} {out:?}");
            assert!(dboth[..20].iter().all(|x| x.is_finite()), "{isa} {dboth:?}");
        }
    }
}
