//! Writes files whole or not at all.
//!
//! Every file of a run, a cache and a download is written through this crate. A crash at any moment
//! leaves the old file or the new one, and a test can make any single operation fail ([`fault`]).
//!
//! ```
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("config.toml");
//! tra_disk::write_atomically(&path, b"steps = 7\n")?;
//! assert_eq!(std::fs::read(&path)?, b"steps = 7\n");
//! # Ok::<(), std::io::Error>(())
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod checksum;
pub mod fault;
mod lock;

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub use checksum::Checksum;
pub use lock::Lock;

/// End of the name of an unfinished file. It begins with a dot and the name of the finished file.
const PARTIAL: &str = ".partial";

/// Replaces a file: writes another file beside it, syncs it, renames it, and syncs the folder.
///
/// Two processes may replace the same file at the same time. The later rename wins, and no reader
/// sees half a file.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes)?;
    file.commit()
}

/// A file that appears under its name only when it is committed. If it is dropped before, nothing is
/// left of it.
#[derive(Debug)]
pub struct AtomicFile {
    file: File,
    path: PathBuf,
    beside: PathBuf,
    committed: bool,
}

impl AtomicFile {
    /// Starts a file that will appear at `path`.
    pub fn create(path: &Path) -> io::Result<Self> {
        let beside = beside(path)?;
        fault::check(&beside)?;
        let file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
        Ok(Self { file, path: path.into(), beside, committed: false })
    }

    /// Syncs the file and moves it to its place.
    pub fn commit(mut self) -> io::Result<()> {
        fault::check(&self.beside)?;
        self.file.sync_all()?;
        rename(&self.beside, &self.path)?;
        self.committed = true;
        sync_folder(parent(&self.path))
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_all(&mut self.file, &self.beside, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.committed {
            // A failure only costs disk space, and `remove_partial` finds the file.
            let _ = remove_file(&self.beside);
        }
    }
}

/// Returns a name beside `path` that no other process or thread uses.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("the path has no file name"))?;
    // Two hosts may share a folder, so a process id is not enough. These keys are random.
    let unique = RandomState::new().build_hasher().finish();
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{unique:016x}{PARTIAL}"));
    Ok(path.with_file_name(hidden))
}

/// Removes what killed processes left of an unfinished `path`. Only for callers that know that nobody
/// else is writing that file.
pub fn remove_partial(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let start = format!(".{name}.");
    for entry in fs::read_dir(parent(path)).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let is_ours = found
            .to_str()
            .is_some_and(|found| found.starts_with(&start) && found.ends_with(PARTIAL));
        if is_ours {
            let _ = remove_file(&entry.path());
        }
    }
}

/// Appends to a file and creates it if necessary. Does not sync: see [`sync_file`].
pub fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fault::check(path)?;
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    write_all(&mut file, path, bytes)
}

fn write_all(file: &mut File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some((is_half_done, error)) = fault::planned(path) else { return file.write_all(bytes) };
    if is_half_done {
        file.write_all(&bytes[..bytes.len() / 2])?;
    }
    Err(error)
}

/// Syncs a file to the disk. A file that does not exist is no error.
pub fn sync_file(path: &Path) -> io::Result<()> {
    fault::check(path)?;
    match File::open(path) {
        Ok(file) => file.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Syncs the names in a folder to the disk. A rename is not durable before that.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    fault::check(folder)?;
    // Only on Unix can a folder be opened as a file, and only there it is needed.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Creates a folder and those above it.
pub fn create_dir_all(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fault::check(folder)?;
    fs::create_dir_all(folder)
}

/// Renames a file or folder.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fault::check(to)?;
    fs::rename(from, to)
}

/// Removes a file.
pub fn remove_file(path: &Path) -> io::Result<()> {
    fault::check(path)?;
    fs::remove_file(path)
}

/// Removes an empty folder. Fails if it is not empty.
pub fn remove_empty_dir(folder: &Path) -> io::Result<()> {
    fault::check(folder)?;
    fs::remove_dir(folder)
}

/// Removes a folder with everything in it. A folder that does not exist is no error.
pub fn remove_dir_all(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    fault::check(folder)?;
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fault::Fault;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn any_single_fault_leaves_the_old_file_or_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let counted = fault::inject(folder.path(), u64::MAX, Fault::NoSpace);
        write_atomically(&path, b"old").unwrap();
        let operations = counted.operations();
        drop(counted);
        assert_eq!(operations, 5, "create, write, sync, rename, sync of the folder");
        for fault in Fault::ALL {
            for at in 0..operations {
                fs::write(&path, "old").unwrap();
                let injected = fault::inject(folder.path(), at, fault);
                let result = write_atomically(&path, b"new");
                drop(injected);
                assert!(result.is_err(), "{fault:?} at {at}");
                let found = fs::read(&path).unwrap();
                let renamed = at == operations - 1;
                assert_eq!(found, if renamed { b"new" } else { b"old" }, "{fault:?} at {at}");
                if fault != Fault::Crash {
                    assert_eq!(names(folder.path()), ["a"], "{fault:?} at {at}");
                }
                remove_partial(&path);
                assert_eq!(names(folder.path()), ["a"], "{fault:?} at {at}");
            }
        }
    }

    #[test]
    fn a_short_write_tears_what_is_appended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        append(&path, b"one\n").unwrap();
        let injected = fault::inject(folder.path(), 1, Fault::ShortWrite);
        let error = append(&path, b"three\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        drop(injected);
        assert_eq!(fs::read(&path).unwrap(), b"one\nthr");
    }

    #[test]
    fn writers_of_one_file_do_not_disturb_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::thread::scope(|scope| {
            for text in ["first", "other"] {
                let path = &path;
                scope.spawn(move || {
                    (0..100).for_each(|_| write_atomically(path, text.as_bytes()).unwrap());
                });
            }
        });
        assert!(["first", "other"].contains(&fs::read_to_string(&path).unwrap().as_str()));
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_lock_is_held_by_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = Lock::try_acquire(&path).unwrap();
        assert!(held.is_some() && Lock::try_acquire(&path).unwrap().is_none());
        drop(held);
        assert!(Lock::try_acquire(&path).unwrap().is_some());
    }
}
