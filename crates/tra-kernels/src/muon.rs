//! One step of Muon: momentum, whose matrix is brought close to the nearest orthogonal one.
//!
//! After K. Jordan, "Muon: an optimizer for hidden layers in neural networks" (2024), with the scale
//! of "Muon is scalable for LLM training" (arXiv 2502.16982), which makes steps as large as AdamW's. All
//! directions of a matrix then move by the same amount, the rare ones too.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use crate::linear::{Matrix, product};
use crate::parallel::{count, written};

/// How slowly the momentum follows the gradient.
pub const MOMENTUM: f32 = 0.95;
/// `p(x) = a x + b x^3 + c x^5`, five times, takes every singular value in 0.01..=1 to 0.65..=1.25.
pub const COEFFICIENTS: [f32; 3] = [3.4445, -4.775, 2.0315];
/// Number of iterations.
pub const ITERATIONS: usize = 5;

/// The numbers of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Factor on the gradient, before anything else: clipping.
    pub scale: f32,
    /// `1 - lr * weight_decay`.
    pub decay: f32,
    /// The learning rate; see [`rate`].
    pub lr: f32,
}

/// Returns the factor on an orthogonal `[rows, columns]`: the root mean square of its entries is then
/// that of a step of AdamW, 0.2 of the learning rate.
pub fn rate(rows: usize, columns: usize, lr: f64) -> f64 {
    lr * 0.2 * (rows.max(columns) as f64).sqrt()
}

/// Moves a matrix `[rows, columns]`, row-major, and its momentum by one step along `gradient`.
///
/// # Panics
/// If the sizes differ.
pub fn step(
    [rows, columns]: [usize; 2],
    step: Step,
    value: &mut [f32],
    momentum: &mut [f32],
    gradient: &[f32],
) {
    let n = count([rows, columns]);
    assert!(value.len() == n && momentum.len() == n && gradient.len() == n, "sizes differ");
    let mut x = vec![0.0; n];
    const PIECE: usize = 16_384;
    let pieces = x.par_chunks_mut(PIECE).zip(momentum.par_chunks_mut(PIECE));
    pieces.zip(gradient.par_chunks(PIECE)).for_each(|((x, m), g)| {
        for ((x, m), g) in x.iter_mut().zip(m).zip(g) {
            let g = g * step.scale * (1.0 - MOMENTUM);
            *m = without_denormals(*m * MOMENTUM + g);
            // Nesterov momentum: as if the next gradient were this one.
            *x = *m * MOMENTUM + g;
        }
    });
    let x = orthogonal([rows, columns], x);
    let rate = rate(rows, columns, f64::from(step.lr)) as f32;
    value.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE)).for_each(|(value, x)| {
        value.iter_mut().zip(x).for_each(|(value, x)| *value = *value * step.decay - x * rate);
    });
}

/// Replaces denormal numbers by 0. Without a gradient a momentum falls by the same factor at every
/// step, until rounding keeps it among the denormal numbers, where every operation takes many times
/// as long. And as its length does not matter, it would continue to move the matrix.
fn without_denormals(m: f32) -> f32 {
    if m.abs() < f32::MIN_POSITIVE { 0.0 } else { m }
}

/// Returns the matrix `[rows, columns]`, row-major, with its singular values near 1. Zeros stay zeros.
///
/// # Panics
/// If the size does not fit.
pub fn orthogonal([rows, columns]: [usize; 2], mut x: Vec<f32>) -> Vec<f32> {
    assert_eq!(x.len(), count([rows, columns]), "sizes differ");
    // Summed in an order that does not depend on the number of threads.
    let norm = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    if norm == 0.0 {
        return x;
    }
    x.par_iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
    let [a, b, c] = COEFFICIENTS;
    let tall = rows > columns;
    let small = rows.min(columns);
    for _ in 0..ITERATIONS {
        let (as_is, turned) = ((&x[..], columns, 1), (&x[..], 1, columns));
        let (left, right) = if tall { (turned, as_is) } else { (as_is, turned) };
        let mut p = multiply([small, small, rows.max(columns)], left, right);
        let squared = multiply([small; 3], (&p, small, 1), (&p, small, 1));
        p.iter_mut().zip(&squared).for_each(|(p, squared)| *p = b * *p + c * squared);
        p.iter_mut().step_by(small + 1).for_each(|diagonal| *diagonal += a);
        let p = (&p[..], small, 1);
        x = match tall {
            true => multiply([rows, columns, small], as_is, p),
            false => multiply([rows, columns, small], p, as_is),
        };
    }
    x
}

/// Returns `a b`, where `[m, n, k]` are the rows of `a`, the columns of `b`, and the inner size.
fn multiply([m, n, k]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>) -> Vec<f32> {
    let write = |out: &mut [MaybeUninit<f32>]| product([m, n, k], a, b, out, false);
    // SAFETY: the product writes all of it.
    unsafe { written(m * n, write) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tra_random::Stream;

    fn draw(tag: u64, n: usize) -> Vec<f32> {
        (0..n as u64).map(|i| Stream::new(tag).normal(i) as f32).collect()
    }

    /// The same in f64 loops, on the wide one of the matrix and its transpose.
    fn plainly([rows, columns]: [usize; 2], x: &[f32]) -> Vec<f64> {
        let tall = rows > columns;
        let (small, large) = (rows.min(columns), rows.max(columns));
        let place = |i: usize, j: usize| if tall { j * columns + i } else { i * columns + j };
        let norm = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let mut x: Vec<f64> = x.iter().map(|x| f64::from(*x) / norm.max(1e-300)).collect();
        let [a, b, c] = COEFFICIENTS.map(f64::from);
        for _ in 0..ITERATIONS {
            let gram = |i: usize, j: usize| -> f64 {
                (0..large).map(|k| x[place(i, k)] * x[place(j, k)]).sum()
            };
            let g: Vec<Vec<f64>> =
                (0..small).map(|i| (0..small).map(|j| gram(i, j)).collect()).collect();
            let squared = |i: usize, j: usize| (0..small).map(|k| g[i][k] * g[k][j]).sum::<f64>();
            let p: Vec<Vec<f64>> = (0..small)
                .map(|i| (0..small).map(|j| b * g[i][j] + c * squared(i, j)).collect())
                .collect();
            let mut next = x.clone();
            for i in 0..small {
                for j in 0..large {
                    let more: f64 = (0..small).map(|k| p[i][k] * x[place(k, j)]).sum();
                    next[place(i, j)] = a * x[place(i, j)] + more;
                }
            }
            x = next;
        }
        x
    }

    #[test]
    fn wide_tall_and_square_agree_with_sums() {
        for [rows, columns] in
            [[1, 1], [1, 7], [7, 1], [5, 5], [3, 20], [20, 3], [40, 90], [90, 40]]
        {
            let x = draw(7, rows * columns);
            let expected = plainly([rows, columns], &x);
            for (ours, x) in orthogonal([rows, columns], x).iter().zip(&expected) {
                assert!((f64::from(*ours) - x).abs() < 1e-4, "{rows} {columns}: {ours} {x}");
            }
        }
        assert!(orthogonal([0, 3], Vec::new()).is_empty());
    }

    /// What it is for: a direction of a hundredth of the largest moves as much as that one, nearly.
    #[test]
    fn all_directions_come_out_alike() {
        let mut x = vec![0.0; 4 * 6];
        for (i, size) in [1.0, 0.3, 0.03, 0.01].into_iter().enumerate() {
            x[i * 6 + i] = size;
        }
        for (at, y) in orthogonal([4, 6], x).iter().enumerate() {
            match at % 6 == at / 6 {
                true => assert!((0.65..1.25).contains(y), "{at}: {y}"),
                false => assert!(y.abs() < 1e-6, "{at}: {y}"),
            }
        }
        // The length of the gradient does not matter, however small or large; none is no step.
        let x = draw(1, 24);
        let scaled = |by: f32| orthogonal([4, 6], x.iter().map(|x| x * by).collect());
        for by in [1e-20, 1e20] {
            let far =
                scaled(by).iter().zip(scaled(1.0)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far < 1e-4, "{by}: {far}");
        }
        assert_eq!(scaled(0.0), [0.0; 24]);
        assert!(scaled(f32::NAN).iter().all(|x| x.is_nan()));
    }

    #[test]
    fn a_step_keeps_momentum_decays_and_moves_along_it() {
        let (rows, columns) = (6, 4);
        let (first, second) = (draw(2, 24), draw(3, 24));
        let (mut value, mut momentum) = (draw(1, 24), vec![0.0; 24]);
        let (before, numbers) = (value.clone(), Step { scale: 0.5, decay: 0.99, lr: 0.1 });
        step([rows, columns], numbers, &mut value, &mut momentum, &first);
        let one = plainly([rows, columns], &first);
        let size = 0.1 * 0.2 * 6f64.sqrt();
        let after: Vec<f64> =
            before.iter().zip(&one).map(|(v, x)| f64::from(*v) * 0.99 - size * x).collect();
        for (ours, expected) in value.iter().zip(&after) {
            assert!((f64::from(*ours) - expected).abs() < 1e-5, "{ours} {expected}");
        }
        step([rows, columns], numbers, &mut value, &mut momentum, &second);
        let m: Vec<f32> = first
            .iter()
            .zip(&second)
            .map(|(a, b)| 0.95 * 0.05 * 0.5 * a + 0.05 * 0.5 * b)
            .collect();
        momentum.iter().zip(&m).for_each(|(ours, m)| assert!((ours - m).abs() < 1e-6));
        let x: Vec<f32> = m.iter().zip(&second).map(|(m, g)| 0.95 * m + 0.05 * 0.5 * g).collect();
        let two = plainly([rows, columns], &x);
        for ((ours, before), x) in value.iter().zip(&after).zip(&two) {
            let expected = before * 0.99 - size * x;
            assert!((f64::from(*ours) - expected).abs() < 1e-5, "{ours} {expected}");
        }
    }
    /// A matrix that gets no gradient comes to rest.
    #[test]
    fn momentum_without_gradient_ends_at_zero() {
        let (mut value, mut momentum) = (draw(1, 24), vec![1e-35; 24]);
        let numbers = Step { scale: 1.0, decay: 1.0, lr: 0.1 };
        for _ in 0..300 {
            step([6, 4], numbers, &mut value, &mut momentum, &[0.0; 24]);
            assert!(momentum.iter().all(|m| !m.is_subnormal()));
        }
        assert_eq!(momentum, [0.0; 24]);
        let before = value.clone();
        step([6, 4], numbers, &mut value, &mut momentum, &[0.0; 24]);
        assert_eq!(value, before);
    }
}
