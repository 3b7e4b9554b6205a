//! `y = x W + b` and its gradients, on the matrix products of the `gemm` crate.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use crate::parallel::{add_up, count, piece, written};

/// Sizes of `x`, `W` and `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of `x` and `y`.
    pub rows: usize,
    /// Columns of `x`, rows of `W`.
    pub input: usize,
    /// Columns of `y` and of `W`.
    pub output: usize,
}

/// Returns `x W + b`. All matrices are row-major.
///
/// # Panics
/// If a size does not fit.
pub fn forward(sizes: Sizes, x: &[f32], w: &[f32], b: Option<&[f32]>) -> Vec<f32> {
    let Sizes { rows, input, output } = sizes;
    check("x", x, [rows, input]);
    check("W", w, [input, output]);
    assert!(b.is_none_or(|b| b.len() == output), "there must be one bias a column");
    let write = |out: &mut [MaybeUninit<f32>]| {
        if let Some(b) = b {
            out.par_chunks_mut((piece(output) * output).max(1)).for_each(|out| {
                for out in out.chunks_mut(output) {
                    out.write_copy_of_slice(b);
                }
            });
        }
        product([rows, output, input], (x, input, 1), (w, output, 1), out, b.is_some());
    };
    // SAFETY: the product writes all of it.
    unsafe { written(count([rows, output]), write) }
}

/// Refuses a matrix whose size is not the one that the products read.
fn check(name: &str, matrix: &[f32], [rows, columns]: [usize; 2]) {
    let found = matrix.len();
    assert!(
        found == count([rows, columns]),
        "{name} has {found} numbers, not the {rows} x {columns} of its size"
    );
}

/// Returns the gradient with respect to `x`.
///
/// # Panics
/// If a size does not fit.
pub fn backward_x(sizes: Sizes, w: &[f32], dy: &[f32]) -> Vec<f32> {
    let Sizes { rows, input, output } = sizes;
    check("dy", dy, [rows, output]);
    check("W", w, [input, output]);
    let write = |dx: &mut [MaybeUninit<f32>]| {
        product([rows, input, output], (dy, output, 1), (w, 1, output), dx, false);
    };
    // SAFETY: the product writes all of it.
    unsafe { written(count([rows, input]), write) }
}

/// Returns the gradient with respect to `W`.
///
/// # Panics
/// If a size does not fit.
pub fn backward_w(sizes: Sizes, x: &[f32], dy: &[f32]) -> Vec<f32> {
    let Sizes { rows, input, output } = sizes;
    check("x", x, [rows, input]);
    check("dy", dy, [rows, output]);
    let write = |dw: &mut [MaybeUninit<f32>]| {
        product([input, output, rows], (x, 1, input), (dy, output, 1), dw, false);
    };
    // SAFETY: the product writes all of it.
    unsafe { written(count([input, output]), write) }
}

/// Returns the gradient with respect to `b`: the sum of the rows of `dy`.
///
/// # Panics
/// If a size does not fit.
pub fn backward_b(sizes: Sizes, dy: &[f32]) -> Vec<f32> {
    let Sizes { rows, output, .. } = sizes;
    check("dy", dy, [rows, output]);
    if output == 0 {
        return Vec::new();
    }
    let sum = |dy: &[f32]| {
        let mut sum = vec![0.0; output];
        for row in dy.chunks_exact(output) {
            sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
        sum
    };
    add_up(dy.par_chunks(piece(output) * output).map(sum).collect(), output)
}

/// Rows per piece.
const ROWS: usize = 512;

/// A matrix with its distances between rows and between columns.
pub(crate) type Matrix<'a> = (&'a [f32], usize, usize);

/// Refuses a matrix whose last element would be past its end.
fn check_span((numbers, row, column): Matrix<'_>, [rows, columns]: [usize; 2]) {
    if rows == 0 || columns == 0 {
        return;
    }
    let last = count([rows - 1, row]).checked_add(count([columns - 1, column]));
    assert!(last.is_some_and(|last| last < numbers.len()), "a matrix ends before its last element");
}

/// Computes `out = a b` or `out += a b`; `out` is row-major, and every element is written.
pub(crate) fn product(
    [m, n, k]: [usize; 3],
    a: Matrix<'_>,
    b: Matrix<'_>,
    out: &mut [MaybeUninit<f32>],
    add: bool,
) {
    assert_eq!(out.len(), count([m, n]), "the product has another size");
    check_span(a, [m, k]);
    check_span(b, [k, n]);
    // Many rows are cut into pieces. These never wait for each other, unlike the threads within one
    // product. It does not pay if a large second matrix would be packed once per piece.
    if m >= 2 * ROWS && k <= 2 * ROWS {
        out.par_chunks_mut(ROWS * n.max(1)).enumerate().for_each(|(piece, out)| {
            let a = (&a.0[piece * ROWS * a.1..], a.1, a.2);
            product([out.len() / n.max(1), n, k], a, b, out, add);
        });
        return;
    }
    if k == 0 && !add {
        out.fill(MaybeUninit::new(0.0));
    }
    if m * n * k == 0 {
        return;
    }
    // Below about a million multiplications a second thread costs more than it saves.
    let parallelism =
        if m * n * k >= 1 << 20 { gemm::Parallelism::Rayon(0) } else { gemm::Parallelism::None };
    // SAFETY: above it was checked that the matrices hold what their sizes and strides span.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr().cast::<f32>(),
            1,
            n as isize,
            add,
            a.0.as_ptr(),
            a.2 as isize,
            a.1 as isize,
            b.0.as_ptr(),
            b.2 as isize,
            b.1 as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tra_random::Stream;

    #[test]
    fn products_and_gradients_agree_with_sums() {
        for (rows, input, output) in [(1, 1, 1), (3, 5, 7), (0, 3, 2), (4, 0, 3), (130, 40, 90)] {
            let sizes = Sizes { rows, input, output };
            let draw = |tag: u64, n: usize| -> Vec<f32> {
                (0..n as u64).map(|i| Stream::new(tag).normal(i) as f32).collect()
            };
            let (x, w) = (draw(1, rows * input), draw(2, input * output));
            let (b, dy) = (draw(3, output), draw(4, rows * output));
            let (out, plain) = (forward(sizes, &x, &w, Some(&b)), forward(sizes, &x, &w, None));
            let (dx, dw) = (backward_x(sizes, &w, &dy), backward_w(sizes, &x, &dy));
            let db = backward_b(sizes, &dy);
            let close = |ours: f32, x: f64| {
                assert!((f64::from(ours) - x).abs() < 1e-4, "{sizes:?}: {ours} {x}");
            };
            let f = f64::from;
            for r in 0..rows {
                for o in 0..output {
                    let y: f64 =
                        (0..input).map(|i| f(x[r * input + i]) * f(w[i * output + o])).sum();
                    close(plain[r * output + o], y);
                    close(out[r * output + o], y + f(b[o]));
                }
                for i in 0..input {
                    let d = (0..output).map(|o| f(dy[r * output + o]) * f(w[i * output + o])).sum();
                    close(dx[r * input + i], d);
                }
            }
            for o in 0..output {
                close(db[o], (0..rows).map(|r| f(dy[r * output + o])).sum());
                for i in 0..input {
                    let d = (0..rows).map(|r| f(x[r * input + i]) * f(dy[r * output + o])).sum();
                    close(dw[i * output + o], d);
                }
            }
        }
    }
}
