//! Strided views of `[batch, heads, rows, width]` with contiguous rows.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use super::tile::{pack, padded};
use crate::parallel::{count, written};

/// Reads rows. The bounds are checked once, when it is made.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    data: &'a [f32],
    start: usize,
    sizes: [usize; 3],
    strides: [usize; 3],
    width: usize,
}

impl<'a> Rows<'a> {
    /// `sizes` are batch, heads and rows; `strides` their distances in `data`.
    ///
    /// # Panics
    /// If a row would lie outside `data`.
    pub fn new(
        data: &'a [f32],
        start: usize,
        sizes: [usize; 3],
        strides: [usize; 3],
        width: usize,
    ) -> Self {
        if sizes.iter().all(|n| *n > 0) {
            let end = sizes.iter().zip(strides).try_fold(start, |at, (n, stride)| {
                (n - 1).checked_mul(stride).and_then(|last| at.checked_add(last))
            });
            let end = end.and_then(|at| at.checked_add(width));
            assert!(end.is_some_and(|end| end <= data.len()), "a row lies outside its buffer");
        }
        Self { data, start, sizes, strides, width }
    }

    /// Rows one after another: `[batch, heads, rows, width]`.
    pub fn contiguous(data: &'a [f32], sizes: [usize; 3], width: usize) -> Self {
        let [_, heads, rows] = sizes;
        Self::new(data, 0, sizes, [heads * rows * width, rows * width, width], width)
    }

    /// The rows of a buffer `[batch, rows, heads, width]`: token by token.
    pub fn by_token(data: &'a [f32], sizes: [usize; 3], width: usize) -> Self {
        let [_, heads, rows] = sizes;
        Self::new(data, 0, sizes, [rows * heads * width, width, heads * width], width)
    }

    /// Refuses a view whose sizes are not those that the kernels read.
    ///
    /// # Panics
    /// Unless there are `sizes` rows of `width` numbers; `name` says which view it is.
    pub(crate) fn check(&self, name: &str, sizes: [usize; 3], width: usize) {
        assert!(
            self.sizes == sizes && self.width == width,
            "the {name} are {:?} rows of {}; there must be {sizes:?} of {width}",
            self.sizes,
            self.width
        );
    }

    /// Returns some rows one after another, each of whole vectors: in place if they are like that,
    /// otherwise copied into `copy`.
    pub(crate) fn block<'b>(
        &self,
        at: [usize; 2],
        rows: Range<usize>,
        copy: &'b mut [f32],
    ) -> &'b [f32]
    where
        'a: 'b,
    {
        if self.strides[2] == self.width && self.width == padded(self.width) {
            return &self.data[self.at(at, rows.start)..][..rows.len() * self.width];
        }
        pack(rows.map(|row| self.row(at, row)), self.width, copy);
        copy
    }

    /// Returns a copy whose rows are one after another in each head, if that saves copying them for
    /// every tile: they are whole vectors and lie apart.
    pub(crate) fn gathered(&self, [batch, heads, rows]: [usize; 3]) -> Option<Vec<f32>> {
        let width = self.width;
        if self.strides[2] == width || width != padded(width) || batch * heads * rows == 0 {
            return None;
        }
        let write = |out: &mut [MaybeUninit<f32>]| {
            out.par_chunks_mut(rows * width).enumerate().for_each(|(head, out)| {
                let at = [head / heads, head % heads];
                for (row, out) in out.chunks_exact_mut(width).enumerate() {
                    out.write_copy_of_slice(self.row(at, row));
                }
            });
        };
        // SAFETY: every row of every head is written.
        Some(unsafe { written(count([batch, heads, rows, width]), write) })
    }

    /// Returns where a row begins.
    fn at(&self, [batch, head]: [usize; 2], row: usize) -> usize {
        let [b, h, r] = self.strides;
        self.start + batch * b + head * h + row * r
    }

    /// Returns one row.
    pub fn row(&self, at: [usize; 2], row: usize) -> &'a [f32] {
        &self.data[self.at(at, row)..][..self.width]
    }
}

/// Writes rows of a buffer `[batch, rows, heads, width]` from several threads.
#[derive(Clone, Copy)]
pub(crate) struct RowsOut<'a> {
    data: *mut f32,
    len: usize,
    rows: usize,
    heads: usize,
    width: usize,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: `row` is unsafe, and its callers promise that no row is used by two threads at once.
unsafe impl Send for RowsOut<'_> {}
// SAFETY: as above.
unsafe impl Sync for RowsOut<'_> {}

impl<'a> RowsOut<'a> {
    pub(crate) fn new(data: &'a mut [f32], [batch, heads, rows]: [usize; 3], width: usize) -> Self {
        assert_eq!(data.len(), count([batch, heads, rows, width]), "the output has another size");
        let len = data.len();
        Self { data: data.as_mut_ptr(), len, rows, heads, width, life: PhantomData }
    }

    /// Returns one row.
    ///
    /// # Safety
    /// Nobody else may use this row while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn row(&self, [batch, head]: [usize; 2], row: usize) -> &'a mut [f32] {
        let at = ((batch * self.rows + row) * self.heads + head) * self.width;
        assert!(at + self.width <= self.len);
        // SAFETY: within the buffer, and the caller's alone.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(at), self.width) }
    }
}
