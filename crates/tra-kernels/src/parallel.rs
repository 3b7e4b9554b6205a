//! Pieces of work that do not depend on the number of threads, and memory for results.

use std::mem::MaybeUninit;

/// Returns the number of rows per piece: enough that handing it to another thread pays.
pub(crate) fn piece(width: usize) -> usize {
    (16_384 / width.max(1)).max(1)
}

/// Returns the number of elements of these sizes, without trusting the caller that it fits.
///
/// # Panics
/// If it exceeds the address space. A product that wraps around could otherwise equal the length of a
/// slice that is far too short.
pub(crate) fn count<const N: usize>(sizes: [usize; N]) -> usize {
    let product = sizes.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    match product {
        Some(product) => product,
        None => panic!("the sizes {sizes:?} overflow"),
    }
}

/// Returns a vector of `n` numbers that `write` writes, without clearing its memory first.
///
/// # Safety
/// `write` must write every element.
pub(crate) unsafe fn written(n: usize, write: impl FnOnce(&mut [MaybeUninit<f32>])) -> Vec<f32> {
    let checked = cfg!(any(test, debug_assertions));
    // In tests, elements that are left out and writes past the end show.
    let behind = if checked { 64 } else { 0 };
    let mut numbers = Vec::with_capacity(n + behind);
    let memory = &mut numbers.spare_capacity_mut()[..n + behind];
    if checked {
        memory.fill(MaybeUninit::new(f32::NAN));
    }
    write(&mut memory[..n]);
    // SAFETY: filled above.
    assert!(memory[n..].iter().all(|x| unsafe { x.assume_init() }.is_nan()), "written too far");
    // SAFETY: the caller's promise.
    unsafe { numbers.set_len(n) };
    numbers
}

/// Adds up the results of pieces, in their order.
pub(crate) fn add_up(pieces: Vec<Vec<f32>>, width: usize) -> Vec<f32> {
    let mut sum = vec![0.0; width];
    for piece in pieces {
        sum.iter_mut().zip(piece).for_each(|(sum, x)| *sum += x);
    }
    sum
}
