//! Dropout: which elements a site drops.
//!
//! The pattern is a function of the stream of the site and of the element's row and column, so the
//! backward pass, a resumed run and any kernel rebuild it instead of storing it. Within a row the
//! hash is 32 bits wide and uses only multiplications, shifts and exclusive-or, which every vector
//! instruction set has.

use crate::simd::{Isa, Simd, kernel};
use tra_random::Stream;

/// One dropout site at one training step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    stream: Stream,
    /// An element is dropped when its hash is below this: `rate * 2^32`.
    threshold: u32,
    scale: f32,
}

impl Dropout {
    /// Drops with probability `rate`, and scales what stays by `1 / (1 - rate)`.
    ///
    /// # Panics
    /// Unless `0 <= rate < 1`.
    pub fn new(stream: Stream, rate: f64) -> Self {
        assert!((0.0..1.0).contains(&rate), "a dropout rate lies in 0..1, not {rate}");
        Self {
            stream,
            threshold: (rate * 4_294_967_296.0) as u32,
            scale: (1.0 / (1.0 - rate)) as f32,
        }
    }

    /// Also multiplies what stays by `factor`.
    pub fn times(self, factor: f64) -> Self {
        Self { scale: self.scale * factor as f32, ..self }
    }

    /// Returns the bound below which the hash of an element drops it.
    pub(crate) fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Returns the factor on what stays.
    pub(crate) fn scale(&self) -> f32 {
        self.scale
    }

    /// Returns the pattern of one row.
    pub fn row(&self, row: u64) -> DropoutRow {
        DropoutRow { key: (self.stream.bits(row) >> 32) as u32, dropout: *self }
    }

    /// Multiplies rows of `columns` numbers with their factors; the first is row number `first_row`.
    ///
    /// # Panics
    /// If this machine lacks the instruction set, or rows have no columns.
    pub fn apply(&self, isa: Isa, x: &mut [f32], first_row: u64, columns: usize) {
        assert!(isa.is_available(), "this machine has no {isa}");
        assert!(columns > 0 || x.is_empty(), "rows without columns");
        for (row, x) in (first_row..).zip(x.chunks_mut(columns.max(1))) {
            // SAFETY: the instruction set is there.
            unsafe { apply_row(isa, x, self.row(row).key, self.threshold, self.scale) };
        }
    }

    /// Writes the factor of every element, 0 or `1 / (1 - rate)`, for rows of `columns` numbers, the
    /// first of which is row number `first_row`.
    ///
    /// # Panics
    /// If rows have no columns.
    pub fn fill(&self, out: &mut [f32], first_row: u64, columns: usize) {
        assert!(columns > 0 || out.is_empty(), "rows without columns");
        for (row, out) in (first_row..).zip(out.chunks_mut(columns.max(1))) {
            let row = self.row(row);
            for (column, out) in (0..).zip(out) {
                *out = row.factor(column);
            }
        }
    }
}

/// The pattern of one row of a [`Dropout`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DropoutRow {
    key: u32,
    dropout: Dropout,
}

impl DropoutRow {
    /// Returns the key of the hashes of this row.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Returns the factor on the element in `column`: 0 if it is dropped.
    pub fn factor(&self, column: u32) -> f32 {
        if hash(column.wrapping_mul(0x9E37_79B9) ^ self.key) < self.dropout.threshold {
            0.0
        } else {
            self.dropout.scale
        }
    }
}

kernel!(unsafe fn apply_row = apply_generic(x: &mut [f32], key: u32, threshold: u32, scale: f32));

/// # Safety
/// The CPU must have `S`.
#[inline(always)]
unsafe fn apply_generic<S: Simd>(x: &mut [f32], key: u32, threshold: u32, scale: f32) {
    let whole = x.len() / S::LANES * S::LANES;
    let row = DropoutRow { key, dropout: Dropout { stream: Stream::new(0), threshold, scale } };
    // Columns times the constant of the hash, one vector after another.
    let mut columns = [0u32; 16];
    // SAFETY: up to `whole` there are whole vectors.
    unsafe {
        for at in (0..whole).step_by(S::LANES) {
            for (lane, column) in columns.iter_mut().enumerate() {
                *column = ((at + lane) as u32).wrapping_mul(0x9E37_79B9) ^ key;
            }
            let dropped = S::dropped(S::iload(columns.as_ptr()), 0, threshold);
            let p = x.as_mut_ptr().add(at);
            let kept = S::mul(S::load(p), S::splat(scale));
            S::store(p, S::select(dropped, S::splat(0.0), kept));
        }
    }
    for (column, x) in (whole as u32..).zip(&mut x[whole..]) {
        *x *= row.factor(column);
    }
}

/// A 32-bit finaliser with low bias (two multiply-xorshift rounds).
const fn hash(mut x: u32) -> u32 {
    x = (x ^ (x >> 16)).wrapping_mul(0x7FEB_352D);
    x = (x ^ (x >> 15)).wrapping_mul(0x846C_A68B);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(rate: f64, step: u64) -> Vec<f32> {
        let mut out = vec![f32::NAN; 300 * 301];
        Dropout::new(Stream::new(7).fork(step), rate).fill(&mut out, 0, 301);
        out
    }

    #[test]
    fn drops_the_asked_share_and_keeps_the_mean() {
        for rate in [0.01, 0.1, 0.5] {
            let f = factors(rate, 0);
            let dropped = f.iter().filter(|f| **f == 0.0).count() as f64 / f.len() as f64;
            let sigma = (rate * (1.0 - rate) / f.len() as f64).sqrt();
            assert!((dropped - rate).abs() < 4.0 * sigma, "{rate}: {dropped}");
            let mean = f.iter().sum::<f32>() / f.len() as f32;
            assert!((mean - 1.0).abs() < 0.02, "{mean}");
        }
        assert!(factors(0.0, 0).iter().all(|f| *f == 1.0));
    }

    #[test]
    fn the_pattern_depends_on_the_step_and_not_on_how_it_is_cut() {
        assert_eq!(factors(0.3, 5), factors(0.3, 5));
        assert_ne!(factors(0.3, 5), factors(0.3, 6));
        let whole = factors(0.3, 5);
        let mut part = vec![f32::NAN; 2 * 301];
        Dropout::new(Stream::new(7).fork(5), 0.3).fill(&mut part, 40, 301);
        assert_eq!(part, whole[40 * 301..42 * 301]);
    }

    #[test]
    fn every_instruction_set_applies_the_same_factors() {
        let dropout = Dropout::new(Stream::new(2), 0.3);
        let mut factors = vec![f32::NAN; 5 * 37];
        dropout.fill(&mut factors, 9, 37);
        for isa in Isa::available() {
            let mut x = vec![2.0; factors.len()];
            dropout.apply(isa, &mut x, 9, 37);
            let expected: Vec<f32> = factors.iter().map(|f| 2.0 * f).collect();
            assert_eq!(x, expected, "{isa}");
        }
    }

    #[test]
    fn rows_and_columns_are_uncorrelated() {
        let f = factors(0.5, 1);
        let agree = |step: usize| {
            let same = f.iter().zip(&f[step..]).filter(|(a, b)| a == b).count();
            same as f64 / (f.len() - step) as f64
        };
        for step in [1, 2, 301, 302, 602] {
            assert!((agree(step) - 0.5).abs() < 0.01, "{step}: {}", agree(step));
        }
    }
}
