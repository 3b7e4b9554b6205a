//! The hidden folder downloads lie in until they are whole.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::FetchError;

/// The hidden folder, ours alone while this lives.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
    lock: File,
    /// The folder around it, if it was made for this.
    made: Option<PathBuf>,
}

impl Scratch {
    /// Makes or takes up the hidden folder in `out`.
    pub(crate) fn open(out: &Path) -> Result<Self, FetchError> {
        let folder = out.join(".download");
        let made = (!out.exists()).then(|| out.to_path_buf());
        let make = |error| FetchError::io("cannot make", &folder, error);
        fs::create_dir_all(&folder).map_err(make)?;
        let lock = File::create(folder.join("lock")).map_err(make)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder, lock, made }),
            Err(TryLockError::WouldBlock) => Err(FetchError::Busy { out: out.into() }),
            Err(TryLockError::Error(error)) => {
                Err(FetchError::io("cannot lock", &folder.join("lock"), error))
            }
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes all that is left in it.
    pub(crate) fn clear(self) {
        // What cannot be removed harms nobody: the files are in their places.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.lock.unlock();
        let _ = fs::remove_file(self.folder.join("lock"));
        // Refused, as wanted, where a download was interrupted, and where there are files.
        let _ = fs::remove_dir(&self.folder);
        let _ = self.made.as_ref().map(fs::remove_dir);
    }
}
