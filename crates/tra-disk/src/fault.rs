//! Makes a chosen file operation fail, for tests.
//!
//! A test counts the operations of some action, then repeats the action once per operation and
//! fault. Faults concern only files under one folder, so tests can run side by side. Programs inject
//! no faults; they pay one atomic load per operation.

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
    /// The operating system denies permission.
    NoPermission,
    /// The process is killed. A write is half done, another operation is not done, and no later
    /// operation reaches the disk.
    Crash,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 4] = [Self::ShortWrite, Self::NoSpace, Self::NoPermission, Self::Crash];

    fn error(self) -> io::Error {
        match self {
            Self::ShortWrite | Self::NoSpace => io::ErrorKind::StorageFull.into(),
            Self::NoPermission => io::ErrorKind::PermissionDenied.into(),
            Self::Crash => io::Error::other("the process is gone (a test injected this fault)"),
        }
    }
}

/// A fault that waits for its operation. Dropping it ends it.
#[derive(Debug)]
pub struct Injection(Arc<Plan>);

#[derive(Debug)]
struct Plan {
    folder: PathBuf,
    at: u64,
    fault: Fault,
    seen: AtomicU64,
}

/// The plans in force. Their number is kept apart, so that programs need not take the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static PLANS: Mutex<Vec<Arc<Plan>>> = Mutex::new(Vec::new());

/// Makes operation number `at`, from 0, on files under `folder` fail. `u64::MAX` only counts.
pub fn inject(folder: &Path, at: u64, fault: Fault) -> Injection {
    let plan = Arc::new(Plan { folder: folder.into(), at, fault, seen: AtomicU64::new(0) });
    plans().push(plan.clone());
    COUNT.fetch_add(1, Ordering::SeqCst);
    Injection(plan)
}

impl Injection {
    /// Returns the number of operations so far.
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

/// Returns the injected error, if there is one. Called before every operation that is not a write.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    planned(path).map_or(Ok(()), |(_, error)| Err(error))
}

/// Returns how the next operation on a file is to fail, if it is: whether a write is half done, and
/// the error.
pub(crate) fn planned(path: &Path) -> Option<(bool, io::Error)> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let plan = plans().iter().find(|plan| path.starts_with(&plan.folder)).cloned()?;
    let number = plan.seen.fetch_add(1, Ordering::SeqCst);
    let (fault, at) = (plan.fault, plan.at);
    let is_half_done = number == at && matches!(fault, Fault::ShortWrite | Fault::Crash);
    let fails = number == at || number > at && fault == Fault::Crash;
    fails.then(|| (is_half_done, fault.error()))
}
