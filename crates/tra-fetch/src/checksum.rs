//! The checksums that the hub states in its ETags.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// A checksum in hexadecimal digits. Their number tells the kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Checksum(String);

/// Digits of a SHA-256 of the content: a file in large file storage.
const LARGE: usize = 64;
/// Digits of git's SHA-1 of a header and the content: a file in the repository itself.
const BLOB: usize = 40;

impl Checksum {
    /// Reads an ETag. Returns `None` if it is of neither kind.
    pub(crate) fn parse(etag: &str) -> Option<Self> {
        // A server that may compress the file marks the tag as weak.
        let digits = etag.strip_prefix("W/").unwrap_or(etag).to_ascii_lowercase();
        let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        (hex && [LARGE, BLOB].contains(&digits.len())).then_some(Self(digits))
    }

    /// Returns the checksum of a file, of the same kind as this one.
    pub(crate) fn of_file(&self, path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self(if self.0.len() == LARGE {
            digest(Sha256::new(), file)?
        } else {
            let header = format!("blob {}\0", file.metadata()?.len());
            digest(Sha1::new_with_prefix(header), file)?
        }))
    }

    /// Returns whether the file exists with that length and this checksum.
    pub(crate) fn fits(&self, path: &Path, bytes: u64) -> io::Result<bool> {
        match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
            Ok(found) if !found.is_file() || found.len() != bytes => Ok(false),
            Ok(_) => Ok(self.of_file(path)? == *self),
        }
    }

    /// Returns the first digits, enough to tell two checksums apart.
    pub(crate) fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

fn digest<D: Digest + io::Write>(mut state: D, file: File) -> io::Result<String> {
    io::copy(&mut BufReader::with_capacity(1 << 18, file), &mut state)?;
    Ok(state.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'hello\n' | sha256sum` and `printf 'hello\n' | git hash-object --stdin`.
    #[test]
    fn both_kinds_as_the_tools_count_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hello");
        std::fs::write(&path, "hello\n").unwrap();
        for known in [
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
            "ce013625030ba8dba906f756967f9e9ca394464a",
        ] {
            let checksum = Checksum::parse(known).unwrap();
            assert_eq!(checksum.of_file(&path).unwrap(), checksum);
            assert!(checksum.fits(&path, 6).unwrap());
            assert!(!checksum.fits(&path, 7).unwrap());
            assert!(!checksum.fits(&folder.path().join("absent"), 6).unwrap());
        }
    }

    #[test]
    fn only_tags_that_are_checksums() {
        let blob = "ce013625030ba8dba906f756967f9e9ca394464a";
        assert_eq!(Checksum::parse(&format!("W/{blob}")), Checksum::parse(blob));
        assert_eq!(Checksum::parse(&blob.to_uppercase()), Checksum::parse(blob));
        for bad in ["", "abc", "../../ce013625030ba8dba906f756967f9e9ca3", &format!("{blob}-2")] {
            assert_eq!(Checksum::parse(bad), None, "{bad}");
        }
    }
}
