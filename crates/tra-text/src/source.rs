//! Finds the files that a path stands for, and reads their text.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::error::TextError;
use crate::table;

/// Extensions of text files in a folder. `.gz` or `.zst` may follow.
const ENDINGS: [&str; 6] = ["txt", "text", "tokens", "raw", "md", "parquet"];

/// Number of bytes read at once.
const READ: usize = 1 << 20;

/// A file is not text if more than one in this many of its first bytes is not UTF-8.
const ONE_INVALID_IN: usize = 10;

const NOT_REGULAR: &str = "is not a regular file: copy its content to one";

/// A part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// For training.
    Train,
    /// For choosing the best checkpoint.
    Valid,
    /// For the final test.
    Test,
}

impl Part {
    /// Returns the part that a file belongs to by its name: `wiki.train.tokens`, `validation-00000.parquet`.
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        name.split(|c: char| !c.is_alphanumeric()).find_map(|word| match word {
            "train" | "training" => Some(Part::Train),
            "valid" | "validation" | "val" | "dev" => Some(Part::Valid),
            "test" => Some(Part::Test),
            _ => None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Part::Train => "train",
            Part::Valid => "valid",
            Part::Test => "test",
        }
    }
}

/// Returns the files that a path stands for, in the order of their names.
///
/// A file stands for itself. A folder stands for all text files in it and below it; if their names
/// say which are for training, validation and testing, only for those of `part`.
pub fn find(path: &Path, part: Part) -> Result<Vec<PathBuf>, TextError> {
    let about = std::fs::metadata(path).map_err(TextError::io("cannot read the text", path))?;
    if about.is_file() {
        return Ok(vec![path.into()]);
    }
    if !about.is_dir() {
        return Err(TextError::file(path, NOT_REGULAR));
    }
    let mut files = Vec::new();
    walk(path, &mut files, &mut HashSet::new())?;
    if files.is_empty() {
        let endings = ENDINGS.map(|e| format!(".{e}")).join(", ");
        let reason =
            format!("contains no text files (looked for {endings}, also with .gz or .zst)");
        return Err(TextError::file(path, reason));
    }
    // A single name may be a coincidence: a novel about a train.
    let parts: HashSet<Part> = files.iter().filter_map(|file| Part::of(file)).collect();
    if parts.contains(&Part::Train) && parts.len() > 1 {
        files.retain(|file| Part::of(file) == Some(part));
        if files.is_empty() {
            let name = part.name();
            let reason = format!("has files for training, but no file with {name} in its name");
            return Err(TextError::file(path, reason));
        }
    }
    Ok(files)
}

fn walk(
    folder: &Path,
    files: &mut Vec<PathBuf>,
    seen: &mut HashSet<PathBuf>,
) -> Result<(), TextError> {
    let io = || TextError::io("cannot list the folder", folder);
    // A link may lead back to a folder above it.
    if !seen.insert(folder.canonicalize().map_err(io())?) {
        return Ok(());
    }
    let mut entries =
        std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(io())?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        // A broken link is kept, so that reading it names it in an error.
        let about = std::fs::metadata(&path).ok();
        if about.as_ref().is_some_and(Metadata::is_dir) {
            walk(&path, files, seen)?;
        } else if about.is_none_or(|about| about.is_file())
            && ENDINGS.contains(&ending(&path).0.as_str())
        {
            files.push(path);
        }
    }
    Ok(())
}

/// Opens a regular file. Others are refused: a pipe may block forever and can be read only once, and
/// a device may never end.
pub(crate) fn open(path: &Path) -> Result<File, TextError> {
    let io = || TextError::io("cannot read the file", path);
    // Checked before opening, because opening a pipe blocks.
    if !std::fs::metadata(path).map_err(io())?.is_file() {
        return Err(TextError::file(path, NOT_REGULAR));
    }
    File::open(path).map_err(io())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Plain,
    Gz,
    Zst,
}

/// Returns the extension of a file without that of its compression, and the compression.
fn ending(path: &Path) -> (String, Packing) {
    let of = |path: &Path| path.extension().map(|e| e.to_string_lossy().to_lowercase());
    let stem = || of(Path::new(path.file_stem().unwrap_or_default())).unwrap_or_default();
    match of(path).as_deref() {
        Some("gz") => (stem(), Packing::Gz),
        Some("zst") => (stem(), Packing::Zst),
        Some(other) => (other.into(), Packing::Plain),
        None => (String::new(), Packing::Plain),
    }
}

/// Passes the text of a file to `sink`, piece by piece.
///
/// Each maximal sequence of bytes that are not UTF-8 becomes U+FFFD. A byte order mark at the
/// beginning is left out. A file that is not text at all is refused. `read` is told how many more
/// bytes of the file have been read.
pub fn read(
    path: &Path,
    read: &mut dyn FnMut(u64),
    sink: &mut dyn FnMut(&str) -> Result<(), TextError>,
) -> Result<(), TextError> {
    let (ending, packing) = ending(path);
    let file = open(path)?;
    let bytes = file.metadata().map_err(TextError::io("cannot read the text", path))?.len();
    if ending == "parquet" && packing == Packing::Plain {
        return table::read(path, file, bytes, read, sink);
    }
    let counted = Counted { inner: BufReader::with_capacity(READ, file), read };
    let unpacked: Box<dyn Read> = match packing {
        Packing::Plain => Box::new(counted),
        Packing::Gz => Box::new(flate2::read::MultiGzDecoder::new(counted)),
        Packing::Zst => unpack_zst(path, counted)?,
    };
    if ending == "parquet" {
        return table::read_packed(path, unpacked, sink);
    }
    read_plain(path, unpacked, sink)
}

#[cfg(feature = "zstd")]
fn unpack_zst<'a>(path: &Path, from: impl Read + 'a) -> Result<Box<dyn Read + 'a>, TextError> {
    let decoder = zstd::Decoder::new(from);
    Ok(Box::new(decoder.map_err(TextError::io("cannot unpack the text", path))?))
}

#[cfg(not(feature = "zstd"))]
fn unpack_zst<'a>(path: &Path, _: impl Read + 'a) -> Result<Box<dyn Read + 'a>, TextError> {
    let name = path.display().to_string();
    Err(TextError::NotBuilt { name, action: "read .zst", feature: "zstd" })
}

/// Returns how a file is read, by its name: the same bytes may be text under one name and compressed
/// under another.
pub(crate) fn kind(path: &Path) -> &'static str {
    match ending(path) {
        (ending, _) if ending == "parquet" => "parquet",
        (_, Packing::Plain) => "plain",
        (_, Packing::Gz) => "gz",
        (_, Packing::Zst) => "zst",
    }
}

struct Counted<'a, R> {
    inner: R,
    read: &'a mut dyn FnMut(u64),
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buffer)?;
        (self.read)(n as u64);
        Ok(n)
    }
}

fn read_plain(
    path: &Path,
    mut from: impl Read,
    sink: &mut dyn FnMut(&str) -> Result<(), TextError>,
) -> Result<(), TextError> {
    let mut bytes = Vec::with_capacity(READ + 4);
    let mut offset = 0;
    loop {
        let before = bytes.len();
        let n = from.by_ref().take(READ as u64).read_to_end(&mut bytes);
        let n = n.map_err(TextError::io("cannot read the text", path))?;
        debug_assert_eq!(before + n, bytes.len());
        if offset == 0 {
            check_text(path, &bytes)?;
            if bytes.starts_with(&[0xEF, 0xBB, 0xBF]) {
                bytes.drain(..3);
            }
        }
        if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
            let reason = format!("is not text: it has a zero byte at {}", offset + at);
            return Err(TextError::file(path, reason));
        }
        // A character that is cut in two waits for its rest, unless the file ends.
        let whole = if n == 0 { bytes.len() } else { complete(&bytes) };
        if whole > 0 {
            sink(&String::from_utf8_lossy(&bytes[..whole]))?;
            bytes.drain(..whole);
            offset += whole;
        }
        if n == 0 {
            return Ok(());
        }
    }
}

/// Returns the number of bytes before a last character that may be incomplete.
pub(crate) fn complete(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    for at in (from..bytes.len()).rev() {
        let needed = match bytes[at] {
            0x00..=0x7F => 1,
            0x80..=0xBF => continue,
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            _ => 4,
        };
        return if at + needed > bytes.len() { at } else { bytes.len() };
    }
    bytes.len()
}

/// Returns an error if the beginning of a file is not text.
fn check_text(path: &Path, bytes: &[u8]) -> Result<(), TextError> {
    let wrong = |reason: &str| Err(TextError::file(path, reason));
    if bytes.is_empty() {
        return wrong("is empty: there is nothing to learn from or to test on");
    }
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return wrong("is UTF-16: convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)");
    }
    let head = &bytes[..complete(bytes).min(64 << 10)];
    let invalid: usize = head.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    if head.contains(&0) || invalid * ONE_INVALID_IN > head.len() {
        return wrong("is a binary file, not text (text is read as UTF-8)");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(path: &Path) -> Result<String, String> {
        let mut all = String::new();
        let mut sink = |text: &str| {
            all += text;
            Ok(())
        };
        read(path, &mut |_| {}, &mut sink).map_err(|e| e.to_string())?;
        Ok(all)
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn packed_files_hold_the_same_text() {
        use std::io::Write;

        let folder = tempfile::tempdir().unwrap();
        let text = "Ein Wörterbuch 戦場 \n".repeat(100_000);
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a.txt"), &text).unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(text.as_bytes()).unwrap();
        std::fs::write(at("a.txt.gz"), gz.finish().unwrap()).unwrap();
        std::fs::write(at("a.txt.zst"), zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
        for name in ["a.txt", "a.txt.gz", "a.txt.zst"] {
            assert!(text_of(&at(name)).unwrap() == text, "{name}");
        }
        std::fs::write(at("cut.txt.gz"), &std::fs::read(at("a.txt.gz")).unwrap()[..500]).unwrap();
        std::fs::write(at("cut.txt.zst"), &std::fs::read(at("a.txt.zst")).unwrap()[..50]).unwrap();
        for name in ["cut.txt.gz", "cut.txt.zst"] {
            assert!(text_of(&at(name)).unwrap_err().contains(name));
        }
    }

    #[test]
    fn what_is_no_utf8_is_replaced_wherever_it_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let padding = "x".repeat(READ - 2);
        for bytes in [
            &b"\xE6\x88\xA6 ok"[..],
            b"a\xFFb\xC3(c",
            b"\xE6\x88 cut",
            b"\xF0\x9F\x98\x80!",
            b"ends \xE6\x88",
        ] {
            let all = [padding.as_bytes(), bytes].concat();
            std::fs::write(&path, &all).unwrap();
            assert!(text_of(&path).unwrap() == String::from_utf8_lossy(&all), "{bytes:?}");
        }
        std::fs::write(&path, "\u{feff}text").unwrap();
        assert_eq!(text_of(&path).unwrap(), "text");
    }

    #[test]
    fn what_is_no_text_is_refused_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let noise: Vec<u8> =
            (0..100_000u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 24) as u8 | 1).collect();
        let late = [&[b'a'; 2 * READ][..], b"\0"].concat();
        for (bytes, part) in [
            (&b""[..], "empty"),
            (b"\x7fELF\0\0\0", "binary"),
            (&noise, "binary"),
            (b"\xFF\xFEh\0i\0", "UTF-16"),
            (&late, "zero byte"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let error = text_of(&path).unwrap_err();
            assert!(error.contains(part) && error.contains("a.txt"), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
        let parquet = folder.path().join("a.parquet");
        std::fs::write(&parquet, "PAR1 not really").unwrap();
        assert!(text_of(&parquet).unwrap_err().contains("parquet"));
    }

    #[test]
    fn a_folder_is_its_texts_or_the_part_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let names = |part| {
            find(folder.path(), part).map_err(|e| e.to_string()).map(|files| {
                let names = files.iter().map(|f| f.file_name().unwrap().to_string_lossy().into());
                names.collect::<Vec<String>>()
            })
        };
        assert!(names(Part::Train).unwrap_err().contains("no text files"));
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        for name in ["b.txt", "a.md", "sub/c.raw.gz", ".hidden.txt", "picture.png"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        assert_eq!(names(Part::Test).unwrap(), ["a.md", "b.txt", "c.raw.gz"]);
        // One such name alone does not make a data set, and a link to a folder above ends the search.
        std::fs::write(folder.path().join("the-last-train.txt"), "x").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(folder.path(), folder.path().join("sub/back")).unwrap();
        assert_eq!(names(Part::Train).unwrap().len(), 4);
        std::fs::remove_file(folder.path().join("the-last-train.txt")).unwrap();
        for name in ["wiki.train.tokens", "wiki.valid.tokens"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        assert_eq!(names(Part::Train).unwrap(), ["wiki.train.tokens"]);
        assert_eq!(names(Part::Valid).unwrap(), ["wiki.valid.tokens"]);
        assert!(names(Part::Test).unwrap_err().contains("test"));
        assert!(find(&folder.path().join("gone"), Part::Train).is_err());
        #[cfg(unix)]
        assert!(find(Path::new("/dev/zero"), Part::Train).is_err(), "it never ends");
    }
}
