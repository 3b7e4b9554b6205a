//! Locks between processes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::fault;

/// Held while a process works on something. The operating system releases it when the process ends,
/// however it ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes a lock, or returns `None` if somebody else holds it.
    pub fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let lock = Self::open(path)?;
            match lock.file.try_lock() {
                Ok(()) if lock.is_in_place() => return Ok(Some(lock)),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Takes a lock, and waits while somebody else holds it.
    pub fn acquire(path: &Path) -> io::Result<Self> {
        loop {
            let lock = Self::open(path)?;
            lock.file.lock()?;
            if lock.is_in_place() {
                return Ok(lock);
            }
        }
    }

    /// Releases the lock and removes its file, for locks that are made by the thousand. Where it
    /// cannot be removed it stays, which harms nobody.
    pub fn remove(self) {
        // Elsewhere a file that others have open cannot be removed, nor its identity be told.
        if cfg!(unix) {
            let _ = crate::remove_file(&self.path);
        }
    }

    fn open(path: &Path) -> io::Result<Self> {
        fault::check(path)?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        Ok(Self { file, path: path.into() })
    }

    /// Whether the file that was locked still has its name. Whoever held the lock may have removed
    /// the file meanwhile, and somebody else may have made and locked another.
    #[cfg(unix)]
    fn is_in_place(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let identity = |about: std::fs::Metadata| (about.dev(), about.ino());
        let named = std::fs::metadata(&self.path).map(identity);
        self.file.metadata().map(identity).is_ok_and(|ours| named.is_ok_and(|named| named == ours))
    }

    #[cfg(not(unix))]
    fn is_in_place(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_lock_that_is_removed_is_still_held_by_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let holders = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let lock = Lock::acquire(&path).unwrap();
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                        std::thread::yield_now();
                        holders.fetch_sub(1, Ordering::SeqCst);
                        lock.remove();
                    }
                });
            }
        });
        assert!(!path.exists());
    }
}
