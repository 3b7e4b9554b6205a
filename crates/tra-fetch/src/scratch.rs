//! The hidden folder for downloads that are not complete.

use std::path::{Path, PathBuf};

use tra_disk::Lock;

use crate::FetchError;
use crate::notes::NOTES;

/// The hidden folder, locked while this value lives.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
    /// `None` only while this is dropped.
    lock: Option<Lock>,
    /// The output folder, if it was created for this.
    made: Option<PathBuf>,
}

impl Scratch {
    /// Creates the hidden folder in `out`, or takes over the one that is there.
    pub(crate) fn open(out: &Path) -> Result<Self, FetchError> {
        let folder = out.join(".download");
        let made = (!out.exists()).then(|| out.to_path_buf());
        tra_disk::create_dir_all(&folder).map_err(FetchError::io("cannot create", &folder))?;
        let path = folder.join("lock");
        let lock = Lock::try_acquire(&path)
            .map_err(FetchError::io("cannot lock", &path))?
            .ok_or_else(|| FetchError::Busy { out: out.into() })?;
        // Nobody else writes notes now, so a partial file was left by a killed process.
        tra_disk::remove_partial(&out.join(NOTES));
        Ok(Self { folder, lock: Some(lock), made })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes the folder with everything in it.
    pub(crate) fn clear(self) {
        // A failure is harmless: the files are in their places.
        let _ = tra_disk::remove_dir_all(&self.folder);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            lock.remove();
        }
        // These fail, as intended, if a download was interrupted or there are files.
        let _ = tra_disk::remove_empty_dir(&self.folder);
        let _ = self.made.as_deref().map(tra_disk::remove_empty_dir);
    }
}
