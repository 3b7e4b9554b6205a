//! Working memory that a thread keeps for its next piece of work.

use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` with buffers of these sizes. Their content is unspecified.
///
/// In debug builds each buffer is at the end of its own memory with nothing mapped after it, so that a
/// kernel that leaves its buffer is stopped at once. It holds NaN, so that reading what was never
/// written shows. CI runs the tests of the kernels in this way too.
pub(crate) fn with_scratch<const N: usize, R>(
    sizes: [usize; N],
    f: impl FnOnce([&mut [f32]; N]) -> R,
) -> R {
    #[cfg(all(debug_assertions, target_os = "linux"))]
    {
        let mut buffers = sizes.map(guard::Guarded::new);
        f(buffers.each_mut().map(guard::Guarded::numbers))
    }
    #[cfg(not(all(debug_assertions, target_os = "linux")))]
    kept(sizes, f)
}

/// Takes buffers from the memory that the thread keeps.
#[cfg_attr(all(debug_assertions, target_os = "linux"), allow(dead_code))]
fn kept<const N: usize, R>(sizes: [usize; N], f: impl FnOnce([&mut [f32]; N]) -> R) -> R {
    // Taken out of its place: if `f` comes here again, it has its own memory.
    let mut memory = SCRATCH.take();
    // A little space between the buffers, so that they do not all begin in the same lines of the
    // cache.
    let gap = 48;
    let needed = sizes.iter().map(|size| size + gap).sum();
    if memory.len() < needed {
        memory.resize(needed, f32::NAN);
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

/// Memory that ends where a page ends, followed by a page that nobody may touch.
#[cfg(all(debug_assertions, target_os = "linux"))]
pub(crate) mod guard {
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        fn mmap(
            at: *mut c_void,
            len: usize,
            prot: c_int,
            flags: c_int,
            fd: c_int,
            off: i64,
        ) -> *mut c_void;
        fn mprotect(at: *mut c_void, len: usize, prot: c_int) -> c_int;
        fn munmap(at: *mut c_void, len: usize) -> c_int;
    }

    /// The largest page of Linux machines.
    const PAGE: usize = 65_536;
    const READ_WRITE: c_int = 1 | 2;
    const PRIVATE_ANONYMOUS: c_int = 0x2 | 0x20;

    pub(crate) struct Guarded {
        memory: *mut u8,
        mapped: usize,
        size: usize,
    }

    impl Guarded {
        /// Returns `size` numbers, all NaN.
        pub(crate) fn new(size: usize) -> Self {
            let room = (size * 4).next_multiple_of(PAGE);
            let mapped = room + PAGE;
            // SAFETY: a new mapping; the result is checked.
            let memory = unsafe {
                let memory =
                    mmap(std::ptr::null_mut(), mapped, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
                assert!(memory as isize != -1, "no memory for a test");
                assert_eq!(mprotect(memory.cast::<u8>().add(room).cast(), PAGE, 0), 0);
                memory.cast::<u8>()
            };
            let mut guarded = Self { memory, mapped, size };
            guarded.numbers().fill(f32::NAN);
            guarded
        }

        pub(crate) fn numbers(&mut self) -> &mut [f32] {
            // SAFETY: within the mapping, aligned, written when it was made, and borrowed with self.
            unsafe {
                let start = self.memory.add(self.mapped - PAGE - self.size * 4).cast();
                std::slice::from_raw_parts_mut(start, self.size)
            }
        }
    }

    impl Drop for Guarded {
        fn drop(&mut self) {
            // SAFETY: the mapping made in `new`.
            unsafe { munmap(self.memory.cast(), self.mapped) };
        }
    }
}
