//! Working memory that a thread keeps for its next piece of work.

use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` with buffers of these sizes, of whatever content. In debug builds they hold NaN, so
/// that reading what was never written shows.
pub(crate) fn with_scratch<const N: usize, R>(
    sizes: [usize; N],
    f: impl FnOnce([&mut [f32]; N]) -> R,
) -> R {
    // Taken out of its place: should `f` come here again, it gets memory of its own.
    let mut memory = SCRATCH.take();
    // A little more than asked for between the buffers, so that they do not all begin in the same
    // lines of the cache.
    let gap = 48;
    let needed = sizes.iter().map(|size| size + gap).sum();
    if memory.len() < needed {
        memory.resize(needed, f32::NAN);
    }
    if cfg!(debug_assertions) {
        memory.fill(f32::NAN);
    }
    let mut rest = &mut memory[..];
    let buffers = sizes.map(|size| {
        let (buffer, after) = std::mem::take(&mut rest).split_at_mut(size + gap);
        rest = after;
        &mut buffer[..size]
    });
    let result = f(buffers);
    SCRATCH.set(memory);
    result
}
