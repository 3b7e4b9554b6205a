//! A text tokenised once: a file of numbers, mapped into memory.
//!
//! The file is named after what it holds: content of the text, tokenizer and version of this code. It
//! is written beside, synced and renamed, so that one under its name is always whole.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memmap2::Mmap;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::error::TextError;
use crate::pieces::Pieces;
use crate::source::{self, Part};
use crate::stamp::{self, Stamp};
use crate::tokenizer::Tokenizer;

/// Another version reads no older cache: tokens, order or layout have changed.
const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"tratoken";
const HEADER: usize = 64;

/// Pieces tokenised side by side: two for each thread keep all of them busy to the end.
const PER_THREAD: usize = 2;

/// A half-written cache that nobody has touched for so long is of no use to anybody.
const ABANDONED: Duration = Duration::from_secs(3600);

/// How far tokenising has come: bytes read, and bytes there are. Of packed files they are the packed
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Read so far.
    pub read: u64,
    /// In all.
    pub of: u64,
}

/// Where caches go unless told otherwise: `TRA_CACHE`, or `tra` in the user's folder for caches.
pub fn default_cache() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || Some(PathBuf::from(set("HOME").or_else(|| set("USERPROFILE"))?).join(".cache"));
    match set("TRA_CACHE") {
        Some(folder) => folder.into(),
        None => set("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(home)
            .unwrap_or_else(std::env::temp_dir)
            .join("tra"),
    }
}

/// The files of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corpus {
    path: PathBuf,
    files: Vec<PathBuf>,
}

impl Corpus {
    /// The files that a path stands for: see [`source::find`].
    pub fn find(path: &Path, part: Part) -> Result<Self, TextError> {
        Ok(Self { path: path.into(), files: source::find(path, part)? })
    }

    /// The files, in order.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    fn key(
        &self,
        tokenizer: &Tokenizer,
        stamps: &[Stamp],
        folder: &Path,
    ) -> Result<[u8; 32], TextError> {
        let mut key = Sha256::new();
        key.update(VERSION.to_le_bytes());
        key.update(tokenizer.fingerprint());
        for (file, stamp) in self.files.iter().zip(stamps) {
            key.update(source::kind(file));
            key.update(stamp::content(file, stamp, folder)?);
        }
        Ok(key.finalize().into())
    }

    /// Its tokens, if they are in the cache.
    pub fn cached(
        &self,
        tokenizer: &Tokenizer,
        folder: &Path,
    ) -> Result<Option<Tokens>, TextError> {
        let key = self.key(tokenizer, &self.stamps()?, folder)?;
        Tokens::open(&place(folder, &key), &key)
    }

    /// Its tokens: from the cache in `folder`, or tokenised now and put there. Between two files
    /// stands the tokenizer's end of text.
    pub fn tokens(
        &self,
        tokenizer: &Tokenizer,
        folder: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Tokens, TextError> {
        fs::create_dir_all(folder)
            .map_err(TextError::io("cannot make the cache folder", folder))?;
        let stamps = self.stamps()?;
        let key = self.key(tokenizer, &stamps, folder)?;
        let place = place(folder, &key);
        if let Some(tokens) = Tokens::open(&place, &key)? {
            return Ok(tokens);
        }
        remove_abandoned(folder);
        let beside = place.with_extension("partial");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&beside);
        let file = file.map_err(TextError::io("cannot write the cache", &beside))?;
        // Another process at the same text: wait for it, and take what it made.
        file.lock().map_err(TextError::io("cannot lock the cache", &beside))?;
        if let Some(tokens) = Tokens::open(&place, &key)? {
            let _ = fs::remove_file(&beside);
            return Ok(tokens);
        }
        let written = self
            .write(&file, &beside, &key, tokenizer, &stamps, progress)
            .and_then(|()| self.unchanged(&stamps))
            .and_then(|()| {
                fs::rename(&beside, &place).map_err(TextError::io("cannot write the cache", &place))
            });
        written.inspect_err(|_| {
            let _ = fs::remove_file(&beside);
        })?;
        Tokens::open(&place, &key)?
            .ok_or_else(|| TextError::file(&place, "vanished as it was made"))
    }

    fn stamps(&self) -> Result<Vec<Stamp>, TextError> {
        self.files.iter().map(|file| Stamp::of(file)).collect()
    }

    fn unchanged(&self, stamps: &[Stamp]) -> Result<(), TextError> {
        for ((file, before), now) in self.files.iter().zip(stamps).zip(self.stamps()?) {
            if now != *before {
                let reason = "was changed while it was read: run again when it is at rest";
                return Err(TextError::file(file, reason));
            }
        }
        Ok(())
    }

    fn write(
        &self,
        file: &File,
        path: &Path,
        key: &[u8; 32],
        tokenizer: &Tokenizer,
        stamps: &[Stamp],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), TextError> {
        let io =
            || TextError::io("cannot write the cache (free some space, or set TRA_CACHE)", path);
        file.set_len(0).map_err(io())?;
        let mut writer = Writer::new(file, tokenizer.vocab()).map_err(io())?;
        let of = stamps.iter().map(Stamp::bytes).sum();
        let mut read = 0;
        for (number, file) in self.files.iter().enumerate() {
            if number > 0 {
                let end: Vec<u32> = tokenizer.end_of_text().into_iter().collect();
                writer.put(&end).map_err(io())?;
            }
            let mut pieces = Pieces::default();
            let mut waiting: Vec<String> = Vec::new();
            let most = PER_THREAD * rayon::current_num_threads();
            let mut encode = |waiting: &mut Vec<String>| -> Result<(), TextError> {
                let encoded: Result<Vec<Vec<u32>>, TextError> =
                    waiting.par_iter().map(|text| tokenizer.encode(text)).collect();
                for tokens in encoded? {
                    writer.put(&tokens).map_err(io())?;
                }
                writer.bytes += waiting.iter().map(|text| text.len() as u64).sum::<u64>();
                waiting.clear();
                Ok(())
            };
            let mut count = |bytes: u64| {
                read = (read + bytes).min(of);
                progress(Progress { read, of });
            };
            source::read(file, &mut count, &mut |text| {
                waiting.extend(pieces.push(text, tokenizer));
                if waiting.len() >= most { encode(&mut waiting) } else { Ok(()) }
            })?;
            waiting.extend(pieces.rest());
            encode(&mut waiting)?;
        }
        if writer.count == 0 {
            return Err(TextError::file(&self.path, "is empty: the tokenizer made no token of it"));
        }
        progress(Progress { read: of, of });
        writer.finish(key).map_err(io())
    }
}

fn place(folder: &Path, key: &[u8; 32]) -> PathBuf {
    folder.join(format!("{}.tokens", &stamp::hex(key)[..32]))
}

/// Removes what killed processes left half-written: an hour old, and nobody holds it.
fn remove_abandoned(folder: &Path) {
    let old = |path: &Path| {
        let modified = path.metadata().and_then(|about| about.modified()).ok();
        modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > ABANDONED)
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let partial = path.extension().is_some_and(|e| e == "partial");
        if partial && old(&path) && File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            // Lost space is no reason to fail.
            let _ = fs::remove_file(&path);
        }
    }
}

/// Appends tokens; the header comes last.
struct Writer<'a> {
    to: BufWriter<&'a File>,
    wide: bool,
    count: u64,
    bytes: u64,
}

impl<'a> Writer<'a> {
    fn new(file: &'a File, vocab: usize) -> std::io::Result<Self> {
        let mut to = BufWriter::with_capacity(1 << 20, file);
        to.write_all(&[0; HEADER])?;
        Ok(Self { to, wide: vocab > 1 << 16, count: 0, bytes: 0 })
    }

    fn put(&mut self, tokens: &[u32]) -> std::io::Result<()> {
        for token in tokens {
            let bytes = token.to_le_bytes();
            self.to.write_all(if self.wide { &bytes } else { &bytes[..2] })?;
        }
        self.count += tokens.len() as u64;
        Ok(())
    }

    fn finish(mut self, key: &[u8; 32]) -> std::io::Result<()> {
        self.to.seek(SeekFrom::Start(0))?;
        self.to.write_all(MAGIC)?;
        self.to.write_all(&VERSION.to_le_bytes())?;
        self.to.write_all(&(if self.wide { 4u32 } else { 2 }).to_le_bytes())?;
        self.to.write_all(&self.count.to_le_bytes())?;
        self.to.write_all(&self.bytes.to_le_bytes())?;
        self.to.write_all(key)?;
        self.to.flush()?;
        self.to.get_ref().sync_all()
    }
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
    /// Opens a cache if there is one; what is not whole or not of this key is none.
    fn open(path: &Path, key: &[u8; 32]) -> Result<Option<Self>, TextError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(TextError::io("cannot read the cache", path)(e)),
        };
        // SAFETY: a file under this name is written once, elsewhere, and then renamed; nobody
        // writes to it or cuts it short. It may be removed, which leaves the mapping as it is.
        let map = unsafe { Mmap::map(&file) };
        let map = map.map_err(TextError::io("cannot map the cache", path))?;
        let number = |from: usize, bytes: usize| -> u64 {
            map[from..from + bytes].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
        };
        if map.len() < HEADER
            || &map[..8] != MAGIC
            || number(8, 4) != u64::from(VERSION)
            || map[32..64] != *key
        {
            return Ok(None);
        }
        let (width, count, text_bytes) = (number(12, 4), number(16, 8), number(24, 8));
        let whole = matches!(width, 2 | 4)
            && count.checked_mul(width).and_then(|n| n.checked_add(HEADER as u64))
                == Some(map.len() as u64);
        let key = stamp::hex(key);
        let tokens =
            |map| Self { map, width: width as usize, count: count as usize, text_bytes, key };
        Ok(whole.then(|| tokens(map)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none; a text without any is refused, so there are some.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Another text or tokenizer has another.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Bytes of the text, as UTF-8.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Tokens `range`, counted from 0.
    ///
    /// # Panics
    /// When it reaches past the end.
    pub fn range(&self, range: Range<usize>) -> Vec<u32> {
        assert!(range.end <= self.count, "there are {} tokens", self.count);
        let bytes = &self.map[HEADER + range.start * self.width..HEADER + range.end * self.width];
        match self.width {
            2 => bytes.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b).into()).collect(),
            _ => bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect(),
        }
    }
}
