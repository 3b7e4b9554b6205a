//! The hidden folder downloads lie in until they are whole.

use std::path::{Path, PathBuf};

use tra_disk::Lock;

use crate::FetchError;
use crate::notes::NOTES;

/// The hidden folder, ours alone while this lives.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
    /// There until it is dropped.
    lock: Option<Lock>,
    /// The folder around it, if it was made for this.
    made: Option<PathBuf>,
}

impl Scratch {
    /// Makes or takes up the hidden folder in `out`.
    pub(crate) fn open(out: &Path) -> Result<Self, FetchError> {
        let folder = out.join(".download");
        let made = (!out.exists()).then(|| out.to_path_buf());
        tra_disk::create_dir_all(&folder)
            .map_err(|error| FetchError::io("cannot make", &folder, error))?;
        let path = folder.join("lock");
        let lock = Lock::try_acquire(&path)
            .map_err(|error| FetchError::io("cannot lock", &path, error))?
            .ok_or_else(|| FetchError::Busy { out: out.into() })?;
        // Nobody else writes notes now: what is unfinished is of a process that was killed.
        tra_disk::remove_partial(&out.join(NOTES));
        Ok(Self { folder, lock: Some(lock), made })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes all that is left in it.
    pub(crate) fn clear(self) {
        // What cannot be removed harms nobody: the files are in their places.
        let _ = tra_disk::remove_dir_all(&self.folder);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            lock.remove();
        }
        // Refused, as wanted, where a download was interrupted, and where there are files.
        let _ = tra_disk::remove_empty_dir(&self.folder);
        let _ = self.made.as_deref().map(tra_disk::remove_empty_dir);
    }
}
