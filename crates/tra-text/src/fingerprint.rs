//! Identifies files by their content. The hash is remembered while date and size stay the same.

use std::fs::{self, Metadata};
use std::io::{self, BufReader};
use std::path::Path;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tra_disk::Checksum;

use crate::error::TextError;
use crate::source;

/// Age above which a file's date is trusted: a younger file may change again without a new date.
const SETTLED: Duration = Duration::from_secs(2);

/// Date, size and identity of a file: they change when it is written to or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    identity: u64,
}

impl Stamp {
    pub fn of(path: &Path) -> Result<Self, TextError> {
        let about = fs::metadata(path).map_err(TextError::io("cannot read the text", path))?;
        let identity = identity(&about);
        Ok(Self { bytes: about.len(), modified: about.modified().ok(), identity })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the stamp as text, or `None` while the file is too young to be trusted.
    fn settled(&self) -> Option<String> {
        let modified = self.modified?;
        let age = SystemTime::now().duration_since(modified).ok()?;
        let since = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        (age > SETTLED).then(|| format!("{} {} {}", self.bytes, since.as_nanos(), self.identity))
    }
}

#[cfg(unix)]
fn identity(about: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(about)
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> u64 {
    0
}

/// Returns the SHA-256 of a file, from the note in `notes` if the file has not changed since.
pub(crate) fn content(path: &Path, stamp: &Stamp, notes: &Path) -> Result<[u8; 32], TextError> {
    let full = path.canonicalize().map_err(TextError::io("cannot read the text", path))?;
    let key = hex(&Sha256::digest(full.as_os_str().as_encoded_bytes()));
    let place = notes.join(format!("{}.stamp", &key[..32]));
    let settled = stamp.settled();
    if let (Some(settled), Ok(found)) = (&settled, fs::read_to_string(&place))
        && let Some(hash) = found.lines().nth(1).and_then(unhex)
        // Any other note is damaged, or describes another state of the file.
        && found == note(&key, settled, &hash)
    {
        return Ok(hash);
    }
    let hash = sha256(path)?;
    if let Some(settled) = settled {
        // A failure is harmless: the file is hashed again next time.
        let _ = tra_disk::write_atomically(&place, note(&key, &settled, &hash).as_bytes());
    }
    Ok(hash)
}

/// Returns the note about a file. Its checksum reveals damage.
fn note(key: &str, settled: &str, hash: &[u8; 32]) -> String {
    let mut checksum = Checksum::default();
    for field in [key.as_bytes(), settled.as_bytes(), hash] {
        checksum.field(field);
    }
    format!("{settled}\n{}\n{}\n", hex(hash), checksum.hex())
}

fn sha256(path: &Path) -> Result<[u8; 32], TextError> {
    let mut file = BufReader::with_capacity(1 << 18, source::open(path)?);
    let mut hash = Sha256::new();
    io::copy(&mut file, &mut hash).map_err(TextError::io("cannot read the text", path))?;
    Ok(hash.finalize().into())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let bytes = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_note_is_used_only_while_the_file_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let content = || content(&path, &Stamp::of(&path).unwrap(), folder.path()).unwrap();
        let old = SystemTime::now() - Duration::from_secs(100);
        let write = |text: &str, when: SystemTime| {
            fs::write(&path, text).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(when).unwrap();
        };
        write("one", old);
        let first = content();
        assert_eq!(first, <[u8; 32]>::from(Sha256::digest("one")));
        // A file with the same date and size is not read again.
        write("two", old);
        assert_eq!(content(), first);
        write("two", old + Duration::from_nanos(1_000_000));
        assert_eq!(content(), <[u8; 32]>::from(Sha256::digest("two")));
        // A new file is always read: it may be written twice within one tick of the clock.
        let now = SystemTime::now();
        for text in ["six", "ten"] {
            write(text, now);
            assert_eq!(content(), <[u8; 32]>::from(Sha256::digest(text)));
        }
    }
}
