//! One step of AdamW.

use rayon::prelude::*;

use crate::simd::{Isa, Simd, kernel};

/// The numbers of one step, bias corrections included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// How slowly the moments follow the gradient.
    pub betas: [f32; 2],
    /// Factor on the gradient, before anything else: clipping.
    pub scale: f32,
    /// `1 - lr * weight_decay`.
    pub decay: f32,
    /// `lr / (1 - beta1^t)`.
    pub rate: f32,
    /// `sqrt(1 - beta2^t)`.
    pub second: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
}

/// Moves `value` and both moments by one step along `gradient`.
///
/// # Panics
/// If the sizes differ.
pub fn step(
    isa: Isa,
    step: Step,
    value: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    gradient: &[f32],
) {
    assert!(isa.is_available(), "this machine has no {isa}");
    let n = value.len();
    assert!(first.len() == n && second.len() == n && gradient.len() == n, "sizes differ");
    const PIECE: usize = 16_384;
    value
        .par_chunks_mut(PIECE)
        .zip(first.par_chunks_mut(PIECE))
        .zip(second.par_chunks_mut(PIECE))
        .zip(gradient.par_chunks(PIECE))
        // SAFETY: the instruction set is there, and the sizes are the same.
        .for_each(|(((value, m), v), g)| unsafe { run(isa, step, value, m, v, g) });
}

kernel!(unsafe fn run = generic(
    step: Step, value: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32],
));

/// Replaces denormal numbers by 0. Without a gradient a moment falls by the same factor at every step,
/// until rounding keeps it among the denormal numbers, where every operation takes 20 to 35 times as
/// long. A NaN stays.
///
/// # Safety
/// The CPU must have `S`.
#[inline(always)]
unsafe fn without_denormals<S: Simd>(x: S::V) -> S::V {
    // SAFETY: the caller's promise.
    unsafe {
        let tiny = S::gt(S::splat(f32::MIN_POSITIVE), S::abs(x));
        S::select(tiny, S::splat(0.0), x)
    }
}

/// # Safety
/// The CPU must have `S`; all slices have the same size.
#[inline(always)]
unsafe fn generic<S: Simd>(step: Step, value: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32]) {
    let [beta1, beta2] = step.betas;
    let whole = value.len() / S::LANES * S::LANES;
    // SAFETY: up to `whole` there are whole vectors.
    unsafe {
        for at in (0..whole).step_by(S::LANES) {
            let g = S::mul(S::load(g.as_ptr().add(at)), S::splat(step.scale));
            let (pm, pv) = (m.as_mut_ptr().add(at), v.as_mut_ptr().add(at));
            let more = S::mul(g, S::splat(1.0 - beta1));
            let m = without_denormals::<S>(S::fma(S::load(pm), S::splat(beta1), more));
            let more = S::mul(S::mul(g, g), S::splat(1.0 - beta2));
            let v = without_denormals::<S>(S::fma(S::load(pv), S::splat(beta2), more));
            S::store(pm, m);
            S::store(pv, v);
            let root = S::add(S::div(S::sqrt(v), S::splat(step.second)), S::splat(step.eps));
            let change = S::div(S::mul(m, S::splat(step.rate)), root);
            let p = value.as_mut_ptr().add(at);
            S::store(p, S::sub(S::mul(S::load(p), S::splat(step.decay)), change));
        }
    }
    for at in whole..value.len() {
        let g = g[at] * step.scale;
        let normal = |x: f32| if x.abs() < f32::MIN_POSITIVE { 0.0 } else { x };
        m[at] = normal(m[at] * beta1 + g * (1.0 - beta1));
        v[at] = normal(v[at] * beta2 + g * g * (1.0 - beta2));
        let change = m[at] * step.rate / (v[at].sqrt() / step.second + step.eps);
        value[at] = value[at] * step.decay - change;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As with the embedding of a token that no longer occurs.
    #[test]
    fn moments_without_gradient_end_at_zero() {
        let numbers =
            Step { betas: [0.9, 0.98], scale: 1.0, decay: 1.0, rate: 0.01, second: 1.0, eps: 1e-8 };
        for isa in Isa::available() {
            let n = 37;
            let (mut value, g) = (vec![1.0; n], vec![0.0; n]);
            let (mut m, mut v) = (vec![1e-30; n], vec![1e-30; n]);
            m[1] = -1e-30;
            m[2] = f32::NAN;
            for _ in 0..1500 {
                step(isa, numbers, &mut value, &mut m, &mut v, &g);
                assert!(m.iter().chain(&v).all(|x| !x.is_subnormal()), "{isa}");
            }
            assert!(m[2].is_nan() && value[2].is_nan(), "{isa}: a NaN is not hidden");
            m[2] = 0.0;
            assert!(m.iter().chain(&v).all(|x| *x == 0.0), "{isa}: {m:?} {v:?}");
        }
    }

    #[test]
    fn every_instruction_set_agrees_with_the_formula() {
        let numbers = Step {
            betas: [0.9, 0.98],
            scale: 0.5,
            decay: 0.999,
            rate: 0.01,
            second: 0.3,
            eps: 1e-8,
        };
        for isa in Isa::available() {
            let n = 16_384 + 37;
            let g: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin()).collect();
            let mut value: Vec<f32> = (0..n).map(|i| (i as f32 * 0.11).cos()).collect();
            let before = value.clone();
            let (mut m, mut v) = (vec![0.1; n], vec![0.2; n]);
            step(isa, numbers, &mut value, &mut m, &mut v, &g);
            for i in 0..n {
                let g = f64::from(g[i]) * 0.5;
                let (em, ev) = (0.09 + 0.1 * g, 0.98 * 0.2 + 0.02 * g * g);
                let expected = f64::from(before[i]) * 0.999 - 0.01 * em / (ev.sqrt() / 0.3 + 1e-8);
                assert!((f64::from(value[i]) - expected).abs() < 1e-6, "{isa} {i}");
                assert!((f64::from(m[i]) - em).abs() < 1e-6 && (f64::from(v[i]) - ev).abs() < 1e-6);
            }
        }
    }
}
