//! Keeping freed memory for the next step, and how much was ever held.
//!
//! A training step allocates and frees the same large tensors again and again. By default glibc
//! gives each back to the system at once, and the system clears every page anew when it is asked
//! for again: more time than computing takes, in places.

/// Tells the allocator to keep what is freed. Call it once, before the first large allocation.
///
/// Only glibc on Linux needs and gets it; elsewhere this does nothing.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::c_int;
        unsafe extern "C" {
            fn mallopt(param: c_int, value: c_int) -> c_int;
        }
        // The names are glibc's, from malloc.h.
        const M_TRIM_THRESHOLD: c_int = -1;
        const M_TOP_PAD: c_int = -2;
        const M_MMAP_MAX: c_int = -4;
        // SAFETY: mallopt takes two integers, keeps no pointer, and is called before other threads
        // allocate; an unknown parameter makes it return 0 and change nothing.
        unsafe {
            mallopt(M_MMAP_MAX, 0);
            mallopt(M_TRIM_THRESHOLD, c_int::MAX);
            mallopt(M_TOP_PAD, 64 << 20);
        }
    }
}

/// The most memory this process ever held, in bytes, where the system tells.
pub fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
