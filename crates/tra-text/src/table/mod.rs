//! Reads the column `text` of a parquet file, row by row.
//!
//! The library allocates the sizes that a file states without checking them, and panics on some
//! broken files. So sizes and counts are checked first (`header.rs`, `pages.rs`), and panics become
//! errors (`guard.rs`).

mod header;
mod pages;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use parquet::basic::{ConvertedType, Type};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::ColumnDescPtr;

use crate::error::{TextError, first_line};
use crate::guard::guarded;
use header::PageHeader;
use pages::Checked;

/// Number of rows read at once.
const ROWS: usize = 1024;

/// A page decompresses to at most this many bytes, or to [`TIMES`] times its size. If it states more
/// than both, its header is wrong.
const UNPACKED: u64 = 16 << 20;
const TIMES: u64 = 1024;

/// Reads a table. A row without a line break at its end gets one.
pub(crate) fn read(
    path: &Path,
    file: File,
    bytes: u64,
    read: &mut dyn FnMut(u64),
    sink: &mut dyn FnMut(&str) -> Result<(), TextError>,
) -> Result<(), TextError> {
    let wrong = |reason: String| {
        TextError::file(path, format!("cannot be read as parquet: {}", first_line(&reason)))
    };
    let library = file.try_clone().map_err(TextError::io("cannot read the text", path))?;
    let reader = call(|| SerializedFileReader::new(library)).map_err(wrong)?;
    let column = column(path, &reader)?;
    let groups = reader.num_row_groups();
    let mut any = false;
    for number in 0..groups {
        let group = call(|| reader.get_row_group(number)).map_err(wrong)?;
        let mut rows = Rows::open(&file, group.as_ref(), column).map_err(wrong)?;
        while let Some(texts) = rows.next().map_err(wrong)? {
            for text in texts {
                any = true;
                let text = String::from_utf8_lossy(text.data());
                sink(&text)?;
                if !text.ends_with('\n') {
                    sink("\n")?;
                }
            }
        }
        read(bytes / groups as u64);
    }
    if !any {
        return Err(TextError::file(path, "is empty: it has no row with text"));
    }
    Ok(())
}

/// Reads a packed table. Parquet is read from its end, which takes a file. This one has no
/// name and is gone when closed.
pub(crate) fn read_packed(
    path: &Path,
    mut unpacked: Box<dyn Read + '_>,
    sink: &mut dyn FnMut(&str) -> Result<(), TextError>,
) -> Result<(), TextError> {
    let mut unpack = || {
        let mut file = tempfile::tempfile()?;
        std::io::copy(&mut unpacked, &mut file)?;
        Ok(file)
    };
    let file = unpack().map_err(TextError::io("cannot unpack the text", path))?;
    read(path, file, 0, &mut |_| {}, sink)
}

/// Calls the library. An error or a panic becomes one line.
fn call<T>(call: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    guarded(call)?.map_err(|e| e.to_string())
}

/// Returns the index of the column `text`.
fn column(path: &Path, reader: &SerializedFileReader<File>) -> Result<usize, TextError> {
    let schema = reader.metadata().file_metadata().schema_descr();
    let fields = schema.root_schema().get_fields();
    if !fields.iter().any(|field| field.name() == "text") {
        let names: Vec<_> =
            fields.iter().map(|field| field.name().escape_debug().to_string()).collect();
        let reason = format!("has no column called text; it has {}", names.join(", "));
        return Err(TextError::file(path, reason));
    }
    let is_text = |column: &ColumnDescPtr| {
        column.path().parts() == ["text"]
            && column.physical_type() == Type::BYTE_ARRAY
            && column.converted_type() != ConvertedType::DECIMAL
            && column.max_rep_level() == 0
    };
    let found = schema.columns().iter().position(is_text);
    found.ok_or_else(|| TextError::file(path, "its column text does not hold text"))
}

/// Reads the rows of one row group.
struct Rows {
    reader: ColumnReaderImpl<ByteArrayType>,
    marks: Vec<i16>,
    texts: Vec<ByteArray>,
}

impl Rows {
    fn open(file: &File, group: &dyn RowGroupReader, column: usize) -> Result<Self, String> {
        let about = group.metadata().columns().get(column).ok_or("a column is missing")?;
        let (first, length) = guarded(|| about.byte_range())?;
        check_pages(file, first, length)?;
        let pages = call(|| group.get_column_page_reader(column))?;
        let description = about.column_descr_ptr();
        let optional = description.max_def_level() > 0;
        let reader = ColumnReaderImpl::new(description, Box::new(Checked { pages, optional }));
        Ok(Self { reader, marks: Vec::new(), texts: Vec::new() })
    }

    /// Returns the next rows, without those that are empty.
    fn next(&mut self) -> Result<Option<&[ByteArray]>, String> {
        let Self { reader, marks, texts } = self;
        marks.clear();
        texts.clear();
        let (rows, _, _) = call(|| reader.read_records(ROWS, Some(marks), None, texts))?;
        Ok((rows > 0).then_some(texts))
    }
}

/// Checks the header of every page of a column. Their content is not read.
fn check_pages(mut file: &File, first: u64, length: u64) -> Result<(), String> {
    let wrong = |reason: &str| format!("{reason} (cut short, or damaged)");
    let whole = file.metadata().map_err(|e| e.to_string())?.len();
    let end = first.checked_add(length).filter(|end| *end <= whole);
    let end = end.ok_or_else(|| wrong("a column reaches past the end of the file"))?;
    let mut at = first;
    while at < end {
        file.seek(SeekFrom::Start(at)).map_err(|e| e.to_string())?;
        // Headers are short, except for those that quote a text.
        let mut bytes = Vec::new();
        let header = loop {
            let before = bytes.len() as u64;
            let more = (before + 512).min(end - at - before);
            file.take(more).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
            match PageHeader::read(&bytes) {
                Some(header) => break header,
                None if bytes.len() as u64 > before => {}
                None => return Err(wrong("a page has no header")),
            }
        };
        let sizes = (u64::try_from(header.packed), u64::try_from(header.unpacked));
        let (Ok(packed), Ok(unpacked)) = sizes else { return Err(wrong("a page has no size")) };
        if unpacked > UNPACKED.max(packed.saturating_mul(TIMES)) {
            return Err(wrong(&format!("a page of {packed} bytes claims to unpack to {unpacked}")));
        }
        if header.words as u64 > unpacked {
            return Err(wrong("a dictionary has more words than bytes"));
        }
        at = at.saturating_add(header.length as u64).saturating_add(packed);
    }
    Ok(())
}
