//! Small matrix products whose operands sit in the cache, and the sizes they come in.

use crate::simd::Simd;

/// Queries per tile; lanes run over them. A multiple of two vectors of every instruction set.
pub(crate) const QUERIES: usize = 64;
/// The most keys in one block.
pub(crate) const KEYS: usize = 64;

/// Returns the number of keys of the next block, after `read` keys: few at first, so that the rows of
/// TRA stop soon after they may; then as many as there is room for.
pub(crate) fn block(tra: bool, read: usize) -> usize {
    if tra && read < 4 * KEYS { KEYS / 2 } else { KEYS }
}

/// Row-major or transposed: element `(row, column)` is at `row * .1 + column * .2`.
#[derive(Clone, Copy)]
pub(crate) struct Strided(pub *const f32, pub usize, pub usize);

/// Computes `c[m][n] = sum over k of a[m][k] b[k][n]`, or adds it to `c` with `ADD`. `c` has `rows` rows
/// and `columns` columns, a multiple of `LANES`. `b` and `c` are row-major with the given strides.
///
/// # Safety
/// Everything named must be there, and the CPU must have `S`.
#[inline(always)]
pub(crate) unsafe fn product<S: Simd, const ADD: bool>(
    [rows, inner, columns]: [usize; 3],
    a: Strided,
    (b, b_stride): (*const f32, usize),
    (c, c_stride): (*mut f32, usize),
) {
    debug_assert!(columns.is_multiple_of(S::LANES));
    let mut row = 0;
    while row < rows {
        let left = rows - row;
        // SAFETY: `row` and the number of rows handled stay within `rows`.
        unsafe {
            let a = Strided(a.0.add(row * a.1), a.1, a.2);
            let c = (c.add(row * c_stride), c_stride);
            let sizes = [inner, columns];
            row += match left {
                8.. if S::ROWS >= 8 => strip::<S, ADD, 8>(sizes, a, (b, b_stride), c),
                4.. if S::ROWS >= 4 => strip::<S, ADD, 4>(sizes, a, (b, b_stride), c),
                2.. => strip::<S, ADD, 2>(sizes, a, (b, b_stride), c),
                _ => strip::<S, ADD, 1>(sizes, a, (b, b_stride), c),
            };
        }
    }
}

/// Computes `c += a b` as [`product`], but a factor of exactly 0 in `a` leaves out its row of `b`. For a
/// `b` with a NaN or an infinity, which would otherwise reach every row of `c`, as 0 times infinity is
/// NaN. Slow, and never used if all numbers are finite.
///
/// # Safety
/// Everything named must be there.
#[cold]
pub(crate) unsafe fn product_of_seen(
    [rows, inner, columns]: [usize; 3],
    a: Strided,
    (b, b_stride): (*const f32, usize),
    (c, c_stride): (*mut f32, usize),
) {
    for row in 0..rows {
        for k in 0..inner {
            // SAFETY: `row` and `k` are within `rows` and `inner`, whose elements the caller promises.
            let (factor, from, to) = unsafe {
                (
                    *a.0.add(row * a.1 + k * a.2),
                    std::slice::from_raw_parts(b.add(k * b_stride), columns),
                    std::slice::from_raw_parts_mut(c.add(row * c_stride), columns),
                )
            };
            if factor != 0.0 {
                to.iter_mut().zip(from).for_each(|(to, x)| *to += factor * x);
            }
        }
    }
}

/// Returns whether there is no NaN and no infinity: the sum of 0 times each is finite only if all are.
pub(crate) fn all_finite(x: &[f32]) -> bool {
    let mut sums = [0.0f32; 16];
    let chunks = x.chunks_exact(16);
    let rest: f32 = chunks.remainder().iter().map(|x| x * 0.0).sum();
    for x in chunks {
        sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x * 0.0);
    }
    sums.iter().sum::<f32>() + rest == 0.0
}

/// Computes `ROWS` rows of the product.
#[inline(always)]
unsafe fn strip<S: Simd, const ADD: bool, const ROWS: usize>(
    [inner, columns]: [usize; 2],
    a: Strided,
    (b, b_stride): (*const f32, usize),
    (c, c_stride): (*mut f32, usize),
) -> usize {
    let mut column = 0;
    // SAFETY: `column` and the vectors handled stay within `columns`.
    unsafe {
        while column + 2 * S::LANES <= columns {
            micro::<S, ADD, ROWS, 2>(
                inner,
                a,
                (b.add(column), b_stride),
                (c.add(column), c_stride),
            );
            column += 2 * S::LANES;
        }
        if column < columns {
            micro::<S, ADD, ROWS, 1>(
                inner,
                a,
                (b.add(column), b_stride),
                (c.add(column), c_stride),
            );
        }
    }
    ROWS
}

/// `ROWS` rows of `VECTORS` vectors, summed in registers from zero, so that what is added to `c`
/// is rounded to its own size, not to that of `c`.
#[inline(always)]
unsafe fn micro<S: Simd, const ADD: bool, const ROWS: usize, const VECTORS: usize>(
    inner: usize,
    Strided(a, a_row, a_column): Strided,
    (b, b_stride): (*const f32, usize),
    (c, c_stride): (*mut f32, usize),
) {
    // SAFETY: the caller's promise for `ROWS` rows, `inner` and `VECTORS` vectors.
    unsafe {
        let mut sums = [[S::splat(0.0); VECTORS]; ROWS];
        for k in 0..inner {
            let mut right = [S::splat(0.0); VECTORS];
            for (v, right) in right.iter_mut().enumerate() {
                *right = S::load(b.add(k * b_stride + v * S::LANES));
            }
            for (m, sums) in sums.iter_mut().enumerate() {
                let left = S::splat(*a.add(m * a_row + k * a_column));
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = S::fma(left, right, *sum);
                }
            }
        }
        for (m, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                let at = c.add(m * c_stride + v * S::LANES);
                S::store(at, if ADD { S::add(S::load(at), *sum) } else { *sum });
            }
        }
    }
}

/// Returns the size of a padded row of `dim` numbers: whole vectors of every instruction set.
pub(crate) fn padded(dim: usize) -> usize {
    dim.next_multiple_of(16)
}

/// Copies rows of `dim` numbers one after another into [`padded`] rows, with zeros at their ends.
pub(crate) fn pack<'a>(rows: impl Iterator<Item = &'a [f32]>, dim: usize, out: &mut [f32]) {
    for (row, out) in rows.zip(out.chunks_exact_mut(padded(dim))) {
        out[..dim].copy_from_slice(row);
        out[dim..].fill(0.0);
    }
}

/// Transposes `QUERIES` rows of [`padded`] numbers: `out[t][i] = rows[i][t]` for all `t < dim`.
pub(crate) fn transpose(rows: &[f32], dim: usize, out: &mut [f32]) {
    let width = padded(dim);
    assert!(rows.len() >= QUERIES * width && out.len() >= dim.next_multiple_of(4) * QUERIES);
    for i in (0..QUERIES).step_by(4) {
        for t in (0..dim).step_by(4) {
            let from = &rows[i * width + t..];
            // Four rows of four numbers, which compilers turn into shuffles.
            let rows: [[f32; 4]; 4] =
                std::array::from_fn(|r| std::array::from_fn(|c| from[r * width + c]));
            let to = &mut out[t * QUERIES + i..];
            for c in 0..4 {
                let column: [f32; 4] = std::array::from_fn(|r| rows[r][c]);
                to[c * QUERIES..c * QUERIES + 4].copy_from_slice(&column);
            }
        }
    }
}
