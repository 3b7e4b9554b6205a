//! Makes a chosen file operation fail, for tests.
//!
//! A test counts the operations of something, then repeats it once for every operation and every
//! fault. Only files under one folder are concerned, so tests can run side by side. Programs inject
//! nothing; they pay one atomic load per operation.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What happens to the chosen operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Half of the bytes are written, then the disk is full. Other operations fail outright.
    ShortWrite,
    /// The disk is full.
    NoSpace,
    /// The operating system says no.
    NoPermission,
    /// The process is gone: this operation is half done if it is a write and not done otherwise, and
    /// no later operation reaches the disk.
    Crash,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 4] = [Self::ShortWrite, Self::NoSpace, Self::NoPermission, Self::Crash];

    fn error(self) -> io::Error {
        match self {
            Self::ShortWrite | Self::NoSpace => io::ErrorKind::StorageFull.into(),
            Self::NoPermission => io::ErrorKind::PermissionDenied.into(),
            Self::Crash => io::Error::other("the process is gone (a fault of a test)"),
        }
    }
}

/// A fault that waits for its operation; dropped, it is over.
#[derive(Debug)]
pub struct Injection(Arc<Plan>);

#[derive(Debug)]
struct Plan {
    folder: PathBuf,
    at: u64,
    fault: Fault,
    seen: AtomicU64,
}

/// Plans in force; a number beside the list, so that programs need not take the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static PLANS: Mutex<Vec<Arc<Plan>>> = Mutex::new(Vec::new());

/// Lets operation number `at`, from 0, on files under `folder` fail. `u64::MAX` only counts.
pub fn inject(folder: &Path, at: u64, fault: Fault) -> Injection {
    let plan = Arc::new(Plan { folder: folder.into(), at, fault, seen: AtomicU64::new(0) });
    plans().push(plan.clone());
    COUNT.fetch_add(1, Ordering::SeqCst);
    Injection(plan)
}

impl Injection {
    /// Returns how many operations there were so far.
    pub fn operations(&self) -> u64 {
        self.0.seen.load(Ordering::SeqCst)
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        plans().retain(|plan| !Arc::ptr_eq(plan, &self.0));
        COUNT.fetch_sub(1, Ordering::SeqCst);
    }
}

fn plans() -> MutexGuard<'static, Vec<Arc<Plan>>> {
    PLANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is to become of a write.
pub(crate) enum Verdict {
    Proceed,
    Fail(io::Error),
    /// So many bytes are written before it fails.
    Short(usize, io::Error),
}

/// Asked before every operation but a write.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    match write(path, 0) {
        Verdict::Proceed => Ok(()),
        Verdict::Fail(error) | Verdict::Short(_, error) => Err(error),
    }
}

/// Asked before every write of so many bytes.
pub(crate) fn write(path: &Path, bytes: usize) -> Verdict {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return Verdict::Proceed;
    }
    let plan = plans().iter().find(|plan| path.starts_with(&plan.folder)).cloned();
    let Some(plan) = plan else { return Verdict::Proceed };
    let number = plan.seen.fetch_add(1, Ordering::SeqCst);
    let (fault, error) = (plan.fault, plan.fault.error());
    match number.cmp(&plan.at) {
        std::cmp::Ordering::Less => Verdict::Proceed,
        std::cmp::Ordering::Equal => match fault {
            Fault::ShortWrite | Fault::Crash => Verdict::Short(bytes / 2, error),
            Fault::NoSpace | Fault::NoPermission => Verdict::Fail(error),
        },
        std::cmp::Ordering::Greater if fault == Fault::Crash => Verdict::Fail(error),
        std::cmp::Ordering::Greater => Verdict::Proceed,
    }
}
