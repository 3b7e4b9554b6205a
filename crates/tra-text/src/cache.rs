//! Tokenises a text once and finds its tokens again.
//!
//! The name of a cache file is a hash of the text's content, the tokenizer and the way of tokenising.
//! The file is written under another name and renamed, so that it is always complete. A damaged file
//! is made again.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rayon::prelude::*;
use sha2::{Digest, Sha256};
use tra_disk::Lock;

use crate::chunker::Pieces;
use crate::error::TextError;
use crate::fingerprint::{self, Stamp};
use crate::source::{self, Part};
use crate::tokenizer::Tokenizer;
use crate::tokens::{Tokens, Writer};

/// Version of the way of tokenising: changes when the same text and tokenizer have other tokens than
/// before. It is part of the key, and a run refuses a text with another key. The layout of the file
/// has a version of its own.
const TOKENISING: u32 = 1;

/// Pieces per thread that are tokenised at once: two keep all threads busy to the end.
const PER_THREAD: usize = 2;

/// Age at which a half-written cache is removed.
const ABANDONED: Duration = Duration::from_secs(3600);

/// How far tokenising has come, in bytes of the files as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read so far.
    pub read: u64,
    /// Bytes in all.
    pub of: u64,
}

/// Returns the folder that this user's caches go to: `TRA_CACHE`, or `tra` in the user's cache folder.
///
/// This is the only place in the library that reads the environment. Every process of a user must
/// find the same folder (the program, its workers, the tests), and no config file may name it,
/// because it differs from machine to machine. Callers with a folder of their own pass it to
/// [`Corpus::tokens`].
///
/// A user without a home directory has no such folder: other users could write to a shared one.
pub fn default_cache() -> Result<PathBuf, TextError> {
    cache_folder(&|name| std::env::var_os(name))
}

fn cache_folder(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, TextError> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || Some(set("HOME").or_else(|| set("USERPROFILE"))?.join(".cache"));
    let within = || set("XDG_CACHE_HOME").or_else(home).map(|folder| folder.join("tra"));
    set("TRA_CACHE").or_else(within).ok_or(TextError::NoCacheFolder)
}

/// The files of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corpus {
    path: PathBuf,
    files: Vec<PathBuf>,
}

impl Corpus {
    /// Finds the files that a path stands for, as [`source::find`] does.
    pub fn find(path: &Path, part: Part) -> Result<Self, TextError> {
        Ok(Self { path: path.into(), files: source::find(path, part)? })
    }

    /// Returns the files, in order.
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
        key.update(TOKENISING.to_le_bytes());
        key.update(tokenizer.fingerprint());
        for (file, stamp) in self.files.iter().zip(stamps) {
            key.update(source::kind(file));
            key.update(fingerprint::content(file, stamp, folder)?);
        }
        Ok(key.finalize().into())
    }

    /// Returns the tokens of the text if they are in the cache in `folder`.
    pub fn cached(
        &self,
        tokenizer: &Tokenizer,
        folder: &Path,
    ) -> Result<Option<Tokens>, TextError> {
        let key = self.key(tokenizer, &self.stamps()?, folder)?;
        Tokens::open(&place(folder, &key), &key)
    }

    /// Returns the tokens of the text from the cache in `folder`, or makes them and puts them there.
    /// The tokenizer's end of text stands between two files.
    pub fn tokens(
        &self,
        tokenizer: &Tokenizer,
        folder: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Tokens, TextError> {
        tra_disk::create_dir_all(folder)
            .map_err(TextError::io("cannot create the cache folder", folder))?;
        let stamps = self.stamps()?;
        let key = self.key(tokenizer, &stamps, folder)?;
        let place = place(folder, &key);
        if let Some(tokens) = Tokens::open(&place, &key)? {
            return Ok(tokens);
        }
        remove_abandoned(folder);
        // Another process may be tokenising the same text: wait for it, and use its result.
        let lock = place.with_extension(LOCK);
        let lock = Lock::acquire(&lock).map_err(TextError::io("cannot lock the cache", &lock))?;
        let tokens = self.make(&place, &key, tokenizer, &stamps, progress);
        lock.remove();
        tokens
    }

    /// Makes the cache, unless another process has made it by now. The caller holds its lock.
    fn make(
        &self,
        place: &Path,
        key: &[u8; 32],
        tokenizer: &Tokenizer,
        stamps: &[Stamp],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Tokens, TextError> {
        if let Some(tokens) = Tokens::open(place, key)? {
            return Ok(tokens);
        }
        tra_disk::remove_partial(place);
        let mut writer = Writer::create(place, tokenizer.vocab())?;
        self.write(&mut writer, tokenizer, stamps, progress)?;
        self.check_unchanged(stamps)?;
        writer.finish(key)?;
        Tokens::open(place, key)?.ok_or_else(|| {
            TextError::file(place, "was damaged while it was written: check the disk")
        })
    }

    fn stamps(&self) -> Result<Vec<Stamp>, TextError> {
        self.files.iter().map(|file| Stamp::of(file)).collect()
    }

    fn check_unchanged(&self, stamps: &[Stamp]) -> Result<(), TextError> {
        for ((file, before), now) in self.files.iter().zip(stamps).zip(self.stamps()?) {
            if now != *before {
                let reason = "was changed while it was read: run again when nothing writes to it";
                return Err(TextError::file(file, reason));
            }
        }
        Ok(())
    }

    fn write(
        &self,
        writer: &mut Writer,
        tokenizer: &Tokenizer,
        stamps: &[Stamp],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), TextError> {
        let of = stamps.iter().map(Stamp::bytes).sum();
        let mut read = 0;
        let most = PER_THREAD * rayon::current_num_threads();
        for (number, file) in self.files.iter().enumerate() {
            if number > 0 {
                writer.put(tokenizer.end_of_text().as_slice())?;
            }
            let mut pieces = Pieces::default();
            let mut waiting: Vec<String> = Vec::new();
            let mut encode = |waiting: &mut Vec<String>| -> Result<(), TextError> {
                for some in waiting.chunks(most) {
                    let encoded: Result<Vec<Vec<u32>>, TextError> =
                        some.par_iter().map(|text| tokenizer.encode(text)).collect();
                    encoded?.iter().try_for_each(|tokens| writer.put(tokens))?;
                }
                writer.add_text(waiting.iter().map(|text| text.len() as u64).sum());
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
        if writer.is_empty() {
            return Err(TextError::file(
                &self.path,
                "is empty: the tokenizer made no tokens from it",
            ));
        }
        progress(Progress { read: of, of });
        Ok(())
    }
}

/// File extension of a lock; the rest of its name is that of the cache.
const LOCK: &str = "lock";

fn place(folder: &Path, key: &[u8; 32]) -> PathBuf {
    folder.join(format!("{}.tokens", &fingerprint::hex(key)[..32]))
}

/// Removes what killed processes left behind, if it is an hour old and nobody holds its lock.
fn remove_abandoned(folder: &Path) {
    let old = |path: &Path| {
        let modified = path.metadata().and_then(|about| about.modified()).ok();
        modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > ABANDONED)
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is = |ending: &str| path.extension().is_some_and(|found| found == ending);
        if !(is("partial") || is(LOCK)) || !old(&path) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let cache = name.trim_start_matches('.').split('.').next().unwrap_or_default();
        let lock = Lock::try_acquire(&folder.join(cache).with_extension(LOCK));
        if let Ok(Some(lock)) = lock {
            // A failure only costs disk space.
            if is("partial") {
                let _ = tra_disk::remove_file(&path);
            }
            lock.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_never_in_a_folder_that_all_users_share() {
        let with = |set: &[(&str, &str)]| {
            let find = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            cache_folder(&find).map_err(|e| e.to_string())
        };
        let all = [("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("TRA_CACHE", "/t")];
        assert_eq!(with(&all).unwrap(), Path::new("/t"));
        assert_eq!(with(&all[..2]).unwrap(), Path::new("/x/tra"));
        assert_eq!(with(&all[..1]).unwrap(), Path::new("/h/.cache/tra"));
        for none in [&[][..], &[("HOME", ""), ("TRA_CACHE", "")]] {
            let error = with(none).unwrap_err();
            assert!(error.contains("TRA_CACHE") && error.lines().count() == 1, "{error}");
        }
    }
}
