//! Reads and writes `checksums.json`: what was put into a folder.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::sets::Set;
use crate::{FetchError, Observer};

/// The name of the file.
pub(crate) const NOTES: &str = "checksums.json";

/// What was put into a folder, and where it comes from.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Notes {
    data: String,
    repository: String,
    /// The commit at which the files were listed.
    pub(crate) revision: String,
    /// Whether these are all files of the data set.
    pub(crate) complete: bool,
    files: BTreeMap<String, Note>,
    #[serde(skip)]
    out: PathBuf,
}

/// A file that was complete when it was put there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) bytes: u64,
    /// As the hub stated it.
    pub(crate) checksum: Checksum,
}

impl Notes {
    /// Returns the notes in a folder, or empty ones. A folder with another data set is refused: both
    /// WikiTexts have files of the same names.
    pub(crate) fn open(out: &Path, set: &Set) -> Result<Self, FetchError> {
        let path = out.join(NOTES);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self {
                    data: set.name.into(),
                    repository: set.repository.into(),
                    revision: String::new(),
                    complete: false,
                    files: BTreeMap::new(),
                    out: out.into(),
                });
            }
            Err(error) => return Err(FetchError::io("cannot read", &path)(error)),
        };
        let notes: Self = serde_json::from_slice(&text)
            .map_err(|error| FetchError::NotOurNotes { path, reason: error.to_string() })?;
        if notes.data != set.name {
            let (out, held) = (out.into(), notes.data);
            return Err(FetchError::OtherData { out, held, wanted: set.name });
        }
        Ok(Self { out: out.into(), ..notes })
    }

    /// Returns the files if all of them are there and unchanged.
    pub(crate) fn all_present(
        &self,
        observer: &mut dyn Observer,
    ) -> io::Result<Option<Vec<PathBuf>>> {
        if !self.complete {
            return Ok(None);
        }
        let paths: Vec<_> = self.files.keys().map(|name| self.out.join(name)).collect();
        for (path, note) in paths.iter().zip(self.files.values()) {
            if !note.checksum.fits(path, note.bytes)? {
                return Ok(None);
            }
        }
        self.files.keys().for_each(|name| observer.present(name));
        Ok(Some(paths))
    }

    /// Returns whether an earlier call put that file there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Adds a file and writes the notes at once: the next file may take hours.
    pub(crate) fn add(&mut self, name: &str, note: Note) -> Result<(), FetchError> {
        self.files.insert(name.into(), note);
        self.write()
    }

    /// Records that these are all files of the data set.
    pub(crate) fn finish(&mut self, names: &[&str]) -> Result<(), FetchError> {
        self.files.retain(|name, _| names.contains(&name.as_str()));
        self.complete = true;
        self.write()
    }

    fn write(&self) -> Result<(), FetchError> {
        let path = self.out.join(NOTES);
        serde_json::to_vec_pretty(self)
            .map_err(io::Error::from)
            .and_then(|text| tra_disk::write_atomically(&path, &text))
            .map_err(FetchError::io("cannot write", &path))
    }
}
