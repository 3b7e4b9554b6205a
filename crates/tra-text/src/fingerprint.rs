//! What a file contains, told from its content; remembered while its date and size stay.

use std::fs::{self, Metadata};
use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tra_disk::Checksum;

use crate::error::TextError;
use crate::source;

/// A file that was changed so shortly before it was looked at may be changed again without a new date.
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

    /// As text; none while the file is too fresh to be trusted.
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

/// The SHA-256 of a file, from the note in `notes` if the file has not changed since.
pub(crate) fn content(path: &Path, stamp: &Stamp, notes: &Path) -> Result<[u8; 32], TextError> {
    let full = path.canonicalize().map_err(TextError::io("cannot read the text", path))?;
    let key = hex(&Sha256::digest(full.as_os_str().as_encoded_bytes()));
    let place = notes.join(format!("{}.stamp", &key[..32]));
    let settled = stamp.settled();
    if let (Some(settled), Ok(found)) = (&settled, fs::read_to_string(&place))
        && let Some(hash) = found.lines().nth(1).and_then(unhex)
        // Whatever is not what would be written now was damaged, or is of another state of the file.
        && found == note(&key, settled, &hash)
    {
        return Ok(hash);
    }
    let hash = sha256(path)?;
    if let Some(settled) = settled {
        // Only a short cut: without it the file is read once more next time.
        let _ = tra_disk::write_atomically(&place, note(&key, &settled, &hash).as_bytes());
    }
    Ok(hash)
}

/// What is noted of a file, with a checksum, so that damage does not make it another file.
fn note(key: &str, settled: &str, hash: &[u8; 32]) -> String {
    let mut checksum = Checksum::default();
    for field in [key.as_bytes(), settled.as_bytes(), hash] {
        checksum.field(field);
    }
    format!("{settled}\n{}\n{}\n", hex(hash), checksum.hex())
}

fn sha256(path: &Path) -> Result<[u8; 32], TextError> {
    let io = || TextError::io("cannot read the text", path);
    let mut file = source::open(path)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 18]);
    loop {
        let n = file.read(&mut buffer).map_err(io())?;
        if n == 0 {
            return Ok(hash.finalize().into());
        }
        hash.update(&buffer[..n]);
    }
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
        // The note is what is read now: a file with the same date and size is not read again.
        write("two", old);
        assert_eq!(content(), first);
        write("two", old + Duration::from_nanos(1_000_000));
        assert_eq!(content(), <[u8; 32]>::from(Sha256::digest("two")));
        // A fresh file is never taken on trust: it may be written twice within one tick of the clock.
        let now = SystemTime::now();
        for text in ["six", "ten"] {
            write(text, now);
            assert_eq!(content(), <[u8; 32]>::from(Sha256::digest(text)));
        }
    }
}
