//! Locks between processes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

use crate::fault;

/// Held while a process works on something. The operating system releases it when the process ends,
/// however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes a lock, or returns `None` if somebody else holds it.
    pub fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes a lock, and waits while somebody else holds it.
    pub fn acquire(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        file.lock()?;
        Ok(Self { _file: file })
    }
}

fn open(path: &Path) -> io::Result<File> {
    fault::check(path)?;
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}
