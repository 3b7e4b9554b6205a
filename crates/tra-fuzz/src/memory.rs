//! Counts allocated memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Size of an allocation that is always refused. No input is that large, and the machine should not
/// try to provide it.
const TOO_MUCH: usize = 4 << 30;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static INPUT: Mutex<String> = Mutex::new(String::new());

/// The system allocator with counters. Tests install it with `#[global_allocator]`.
pub struct Counting;

fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

/// Returns whether to refuse a request. A refused request ends the process, so the input is printed
/// first.
fn refuse(bytes: usize) -> bool {
    if bytes < TOO_MUCH {
        return false;
    }
    let mut to = std::io::stderr();
    let _ = to.write_all(b"\ntoo much memory is asked for by the input ");
    if let Ok(path) = INPUT.try_lock() {
        let _ = to.write_all(path.as_bytes());
    }
    let _ = to.write_all(b"\n");
    true
}

// SAFETY: every call is passed unchanged to the system allocator, or returns null, which means that
// the allocation failed.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refuse(layout.size()) {
            return std::ptr::null_mut();
        }
        add(layout.size());
        // SAFETY: the caller upholds the same contract, and the arguments are unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if refuse(layout.size()) {
            return std::ptr::null_mut();
        }
        add(layout.size());
        // SAFETY: the caller upholds the same contract, and the arguments are unchanged.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the same contract, and the arguments are unchanged.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if refuse(size) {
            return std::ptr::null_mut();
        }
        add(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the same contract, and the arguments are unchanged.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Sets the path of the next input.
pub(crate) fn announce(path: &Path) {
    if let Ok(mut current) = INPUT.lock()
        && *current != path.to_string_lossy()
    {
        *current = path.to_string_lossy().into_owned();
    }
}

/// Resets the peak. Returns the number of bytes allocated now.
pub(crate) fn start() -> usize {
    let live = LIVE.load(Ordering::Relaxed);
    PEAK.store(live, Ordering::Relaxed);
    live
}

/// Returns the largest number of bytes allocated at the same time since [`start`].
pub(crate) fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}
