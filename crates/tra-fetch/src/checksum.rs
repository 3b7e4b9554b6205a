//! The checksums the hub states in its ETags.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// A checksum in hexadecimal digits; their number tells which kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Checksum(String);

/// Digits of a sha256 of the content: a file in large file storage.
const LARGE: usize = 64;
/// Digits of git's sha1 of the content with a header: a file in the repository itself.
const BLOB: usize = 40;

impl Checksum {
    /// Reads an ETag; none if it is of neither kind.
    pub(crate) fn parse(etag: &str) -> Option<Self> {
        // A server that may compress on the way marks the tag as weak.
        let digits = etag.strip_prefix("W/").unwrap_or(etag).to_ascii_lowercase();
        let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        (hex && [LARGE, BLOB].contains(&digits.len())).then_some(Self(digits))
    }

    /// The checksum of the same kind of a file.
    pub(crate) fn of_file(&self, path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        Ok(Self(if self.0.len() == LARGE {
            digest(Sha256::new(), &mut file)?
        } else {
            let header = format!("blob {}\0", file.metadata()?.len());
            digest(Sha1::new_with_prefix(header), &mut file)?
        }))
    }

    /// Whether the file is there, of that length, with this checksum.
    pub(crate) fn fits(&self, path: &Path, bytes: u64) -> io::Result<bool> {
        match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
            Ok(found) if !found.is_file() || found.len() != bytes => Ok(false),
            Ok(_) => Ok(self.of_file(path)? == *self),
        }
    }

    /// The first digits, enough to tell two apart.
    pub(crate) fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

fn digest<D: Digest>(mut state: D, file: &mut File) -> io::Result<String> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => state.update(&buffer[..read]),
        }
    }
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
