//! The file that holds tokens: written once, mapped into memory.
//!
//! A header, then the tokens as u16 or u32, little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | `tratoken` |
//! | 8..12 | version of this layout |
//! | 12..16 | bytes per token |
//! | 16..24 | number of tokens |
//! | 24..32 | bytes of the text, as UTF-8 |
//! | 32..64 | key of text and tokenizer |
//! | 64..72 | checksum of the tokens, then of bytes 0..64 |

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use tra_disk::{AtomicFile, Checksum};

use crate::error::TextError;
use crate::fingerprint;

/// Version of the layout. Files of another version are not read.
const VERSION: u32 = 2;
const MAGIC: &[u8; 8] = b"tratoken";
const CHECKED: usize = 64;
const HEADER: usize = CHECKED + 8;

/// Writes tokens to a file that appears when it is finished. The header is written last.
pub(crate) struct Writer {
    to: BufWriter<AtomicFile>,
    path: PathBuf,
    vocab: usize,
    width: usize,
    checksum: Checksum,
    count: u64,
    text_bytes: u64,
}

impl Writer {
    /// Starts the file that will appear at `path`.
    pub fn create(path: &Path, vocab: usize) -> Result<Self, TextError> {
        let file = AtomicFile::create(path).map_err(unwritable(path))?;
        let mut to = BufWriter::with_capacity(1 << 20, file);
        to.write_all(&[0; HEADER]).map_err(unwritable(path))?;
        let width = if vocab > 1 << 16 { 4 } else { 2 };
        let (path, checksum) = (path.into(), Checksum::default());
        Ok(Self { to, path, vocab, width, checksum, count: 0, text_bytes: 0 })
    }

    /// Appends tokens.
    pub fn put(&mut self, tokens: &[u32]) -> Result<(), TextError> {
        let mut bytes = Vec::with_capacity(tokens.len() * self.width);
        for token in tokens {
            // A model has no row for such a token, and two bytes may not hold it.
            if *token as usize >= self.vocab {
                return Err(TextError::Tokenizer {
                    name: "the tokenizer of this text".into(),
                    reason: format!("it made token {token}, but has only {} tokens", self.vocab),
                });
            }
            bytes.extend_from_slice(&token.to_le_bytes()[..self.width]);
        }
        self.checksum.update(&bytes);
        self.count += tokens.len() as u64;
        self.to.write_all(&bytes).map_err(unwritable(&self.path))
    }

    /// Adds to the number of bytes that the tokens were made from.
    pub fn add_text(&mut self, bytes: u64) {
        self.text_bytes += bytes;
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Writes the header and puts the file in its place.
    pub fn finish(mut self, key: &[u8; 32]) -> Result<(), TextError> {
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend((self.width as u32).to_le_bytes());
        header.extend(self.count.to_le_bytes());
        header.extend(self.text_bytes.to_le_bytes());
        header.extend(key);
        self.checksum.update(&header);
        header.extend(self.checksum.finish().to_le_bytes());
        let mut write = || {
            self.to.seek(SeekFrom::Start(0))?;
            self.to.write_all(&header)?;
            self.to.flush()
        };
        write().map_err(unwritable(&self.path))?;
        let file = self.to.into_inner().map_err(|e| unwritable(&self.path)(e.into_error()))?;
        file.commit().map_err(unwritable(&self.path))
    }
}

fn unwritable(path: &Path) -> impl FnOnce(std::io::Error) -> TextError + use<> {
    TextError::io("cannot write the cache (free some space, or set TRA_CACHE)", path)
}

/// The tokens of a text, in a file that is mapped into memory.
#[derive(Debug)]
pub struct Tokens {
    map: Mmap,
    width: usize,
    count: usize,
    text_bytes: u64,
    key: String,
}

impl Tokens {
    /// Opens a cache, or returns `None` if there is none, if it is damaged or if it has another key.
    pub(crate) fn open(path: &Path, key: &[u8; 32]) -> Result<Option<Self>, TextError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(TextError::io("cannot read the cache", path)(e)),
        };
        // SAFETY: a file of this name is written once under another name and then renamed; nobody
        // writes to it or truncates it. It may be removed, which leaves the mapping as it is.
        let map = unsafe { Mmap::map(&file) };
        let map = map.map_err(TextError::io("cannot map the cache", path))?;
        let Some(header) = map.first_chunk::<HEADER>() else { return Ok(None) };
        let number = |field: Range<usize>| -> u64 {
            header[field].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
        };
        let (width, count, text_bytes) = (number(12..16), number(16..24), number(24..32));
        let fits = header.starts_with(MAGIC)
            && number(8..12) == u64::from(VERSION)
            && header[32..CHECKED] == *key
            && matches!(width, 2 | 4)
            && count.checked_mul(width) == Some((map.len() - HEADER) as u64);
        if !fits {
            return Ok(None);
        }
        // This reads every token, at the speed of the disk: no model is trained on damaged tokens.
        let mut checksum = Checksum::default();
        checksum.update(&map[HEADER..]);
        checksum.update(&header[..CHECKED]);
        if checksum.finish() != number(CHECKED..HEADER) {
            return Ok(None);
        }
        let (width, count, key) = (width as usize, count as usize, fingerprint::hex(key));
        Ok(Some(Self { map, width, count, text_bytes, key }))
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no tokens. It never is: a text without tokens is refused.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the key of text and tokenizer: another text or tokenizer has another key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the number of bytes of the text, as UTF-8.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Returns the tokens in `range`, counted from 0.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn range(&self, range: Range<usize>) -> Vec<u32> {
        assert!(range.end <= self.count, "there are {} tokens", self.count);
        let bytes = &self.map[HEADER + range.start * self.width..HEADER + range.end * self.width];
        match self.width {
            2 => bytes.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b).into()).collect(),
            _ => bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_outside_the_vocabulary_is_never_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tokens");
        let mut writer = Writer::create(&path, 300).unwrap();
        writer.put(&[0, 299]).unwrap();
        let error = writer.put(&[300]).unwrap_err().to_string();
        assert!(error.contains("300") && error.lines().count() == 1, "{error}");
        drop(writer);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
