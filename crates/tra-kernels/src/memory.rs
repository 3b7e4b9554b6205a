//! Memory: keeping freed memory for the next step, how much the process held, and how much there is.
//!
//! A training step allocates and frees the same large tensors again and again. By default glibc
//! returns each to the system at once, and the system clears every page before it hands it out again.
//! In places that takes longer than the computation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;

/// Tells the allocator to keep freed memory. Call it once, before the first large allocation.
///
/// Only glibc on Linux needs it; elsewhere this does nothing.
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

/// Returns the most memory that this process ever held, in bytes, if the system tells.
pub fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Returns the memory that this process may ever have, in bytes, swap included, if the system tells:
/// that of the machine, or the limit of a container (control groups, version 1 or 2) if that is less.
///
/// The memory of other processes is not subtracted: they may end, or be swapped out. So work that
/// needs more than this cannot succeed.
pub fn total() -> Option<u64> {
    total_by(&|path| std::fs::read_to_string(path).ok())
}

fn total_by(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo"))?;
    let field = |name: &str| -> Option<u64> {
        let line = machine.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let swap = field("SwapTotal:").unwrap_or(0);
    let all = field("MemTotal:")?.saturating_add(swap);
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(|line| group_limit(line, swap, read));
    Some(limits.fold(all, u64::min))
}

/// Returns the limit of one line of `/proc/self/cgroup`, `number:controllers:path`. Every group up to
/// the root limits the groups within it. In a container the path may be the host's, and only the root
/// exists.
fn group_limit(line: &str, swap: u64, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let (root, of_memory, of_swap) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max", Some("memory.swap.max")),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", None)
        }
        _ => return None,
    };
    let number = |path: &Path| read(path)?.trim().parse::<u64>().ok();
    let group = Path::new(root).join(path.trim_start_matches('/'));
    let groups = group.ancestors().take_while(|group| group.starts_with(root));
    let limits = groups.filter_map(|group| {
        // Without a limit on swap there is as much as the machine has.
        let swap = of_swap.and_then(|file| number(&group.join(file))).unwrap_or(swap).min(swap);
        Some(number(&group.join(of_memory))?.saturating_add(swap))
    });
    limits.min()
}

/// The system's allocator, which calls a function of the program if a request fails. Rust itself would
/// end the program with a signal and no advice.
///
/// A request that may fail by contract (`Vec::try_reserve`) ends the program too. So this is for
/// programs, not for libraries: `#[global_allocator] static ALLOCATOR: Allocator = Allocator::new(out_of_memory);`
pub struct Allocator {
    failed: fn(usize) -> !,
}

impl Allocator {
    /// Calls `failed` with the number of bytes of a failed request. It may allocate little, and must
    /// not unwind.
    pub const fn new(failed: fn(usize) -> !) -> Self {
        Self { failed }
    }

    fn checked(&self, memory: *mut u8, size: usize) -> *mut u8 {
        if memory.is_null() {
            (self.failed)(size)
        }
        memory
    }
}

// SAFETY: every call goes to the system's allocator with its arguments, and its result is returned
// as it is; `failed` does not return.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        self.checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        self.checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        self.checked(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: (&str, &str) = ("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\n");
    const KIB: u64 = 1024;

    fn found(files: &[(&str, &str)]) -> Option<u64> {
        total_by(&|path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| text.to_string())
        })
    }

    #[test]
    fn the_memory_is_the_least_of_machine_and_groups() {
        let version_2 = ("/proc/self/cgroup", "0::/user/run\n");
        let version_1 = ("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n");
        assert_eq!(found(&[]), None, "no check where the system does not tell");
        assert_eq!(found(&[MACHINE]), Some(1000 * KIB));
        assert_eq!(found(&[MACHINE, version_2]), Some(1000 * KIB));
        let inner = ("/sys/fs/cgroup/user/run/memory.max", "max\n");
        let outer = ("/sys/fs/cgroup/user/memory.max", "4096\n");
        assert_eq!(found(&[MACHINE, version_2, inner]), Some(1000 * KIB));
        assert_eq!(found(&[MACHINE, version_2, inner, outer]), Some(4096));
        // In a container with the host's path only the root is seen.
        let root = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8192\n");
        let none = ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(found(&[MACHINE, version_1, none]), Some(1000 * KIB));
        assert_eq!(found(&[MACHINE, version_1, none, root]), Some(8192));
    }

    #[test]
    fn swap_counts_as_far_as_it_may_be_used() {
        let machine = ("/proc/meminfo", "MemTotal: 1000 kB\nSwapTotal: 500 kB\n");
        let group = ("/proc/self/cgroup", "0::/\n");
        let limit = ("/sys/fs/cgroup/memory.max", "2048\n");
        assert_eq!(found(&[machine]), Some(1500 * KIB));
        assert_eq!(found(&[machine, group, limit]), Some(2048 + 500 * KIB));
        for (swap, bytes) in [("0\n", 2048), ("100\n", 2148), ("max\n", 2048 + 500 * KIB)] {
            let swap = ("/sys/fs/cgroup/memory.swap.max", swap);
            assert_eq!(found(&[machine, group, limit, swap]), Some(bytes));
        }
    }

    /// The machine that runs the tests has some.
    #[cfg(target_os = "linux")]
    #[test]
    fn linux_tells() {
        assert!(total().is_some_and(|bytes| bytes > 16 << 20));
        assert!(peak().unwrap() <= total().unwrap());
    }
}
