//! Locks between processes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::fault;

/// A lock that one process holds at a time. The operating system releases it when the process ends,
/// however it ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes a lock, or returns `None` if another holder has it.
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

    /// Takes a lock. Waits while another holder has it.
    pub fn acquire(path: &Path) -> io::Result<Self> {
        loop {
            let lock = Self::open(path)?;
            lock.file.lock()?;
            if lock.is_in_place() {
                return Ok(lock);
            }
        }
    }

    /// Releases the lock and removes its file, for locks that are created by the thousand. A file that
    /// cannot be removed is harmless.
    pub fn remove(self) {
        // On other systems an open file cannot be removed, and files have no identity to compare.
        if cfg!(unix) {
            let _ = crate::remove_file(&self.path);
        }
    }

    fn open(path: &Path) -> io::Result<Self> {
        fault::check(path)?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        Ok(Self { file, path: path.into() })
    }

    /// Returns whether the locked file still has its name. The previous holder may have removed the
    /// file, and another process may have created and locked a new one.
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
