//! Cutting work into pieces that do not depend on the number of threads.

/// Rows a piece: enough that handing it to another thread is worth it.
pub(crate) fn piece(width: usize) -> usize {
    (16_384 / width.max(1)).max(1)
}

/// Adds up what pieces computed, in their order.
pub(crate) fn add_up(pieces: Vec<Vec<f32>>, width: usize) -> Vec<f32> {
    let mut sum = vec![0.0; width];
    for piece in pieces {
        sum.iter_mut().zip(piece).for_each(|(sum, x)| *sum += x);
    }
    sum
}
