//! Counts memory as it is taken.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Refused outright: no input is so large, and the machine need not find out whether it has as much.
const TOO_MUCH: usize = 4 << 30;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static INPUT: Mutex<String> = Mutex::new(String::new());

/// The system's allocator, counted. A test takes it with `#[global_allocator]`.
pub struct Counting;

fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

/// The process ends with such a request, so the input is named now.
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

// SAFETY: every call goes to the system's allocator as it is, or gets null, which means refused.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refuse(layout.size()) {
            return std::ptr::null_mut();
        }
        add(layout.size());
        // SAFETY: the caller's promises are those asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if refuse(layout.size()) {
            return std::ptr::null_mut();
        }
        add(layout.size());
        // SAFETY: the caller's promises are those asked for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those asked for.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if refuse(size) {
            return std::ptr::null_mut();
        }
        add(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those asked for.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Says which input comes next.
pub(crate) fn announce(path: &Path) {
    if let Ok(mut current) = INPUT.lock()
        && *current != path.to_string_lossy()
    {
        *current = path.to_string_lossy().into_owned();
    }
}

/// Begins to watch for a peak; returns what is taken now.
pub(crate) fn start() -> usize {
    let live = LIVE.load(Ordering::Relaxed);
    PEAK.store(live, Ordering::Relaxed);
    live
}

/// The most that was taken at once since [`start`].
pub(crate) fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}
