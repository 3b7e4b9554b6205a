//! Parquet files as data sets come in: one column called `text` among others.
#![cfg(feature = "parquet")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use tra_text::source;

fn write(path: &Path, schema: &str, rows: &[Option<&str>], compression: Compression) {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
    for half in rows.chunks(rows.len().div_ceil(2).max(1)) {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let ids: Vec<i64> = (0..half.len() as i64).collect();
        column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let texts: Vec<ByteArray> = half.iter().flatten().map(|t| ByteArray::from(*t)).collect();
        let there: Vec<i16> = half.iter().map(|t| i16::from(t.is_some())).collect();
        column.typed::<ByteArrayType>().write_batch(&texts, Some(&there), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
}

fn text_of(path: &Path) -> Result<String, String> {
    let mut all = String::new();
    let mut sink = |text: &str| {
        all += text;
        Ok(())
    };
    source::read(path, &mut |_| {}, &mut sink).map_err(|e| e.to_string())?;
    Ok(all)
}

const SCHEMA: &str = "message m { required int64 id; optional binary text (UTF8); }";

#[test]
fn the_text_column_is_read_row_by_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train-00000-of-00001.parquet");
    let rows = [Some(""), Some(" = Title = \n"), None, Some("戦場 without end"), Some("last")];
    let zstd = Compression::ZSTD(Default::default());
    let packed = folder.path().join("packed.parquet.gz");
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd] {
        write(&path, SCHEMA, &rows, compression);
        assert_eq!(text_of(&path).unwrap(), "\n = Title = \n戦場 without end\nlast\n");
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&std::fs::read(&path).unwrap()).unwrap();
        std::fs::write(&packed, gz.finish().unwrap()).unwrap();
        assert_eq!(text_of(&packed).unwrap(), text_of(&path).unwrap());
    }
}

#[test]
fn other_columns_are_named_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let schema = "message m { required int64 id; optional binary content (UTF8); }";
    write(&path, schema, &[Some("x")], Compression::SNAPPY);
    let error = text_of(&path).unwrap_err();
    assert!(error.contains("no column called text; it has id, content"), "{error}");
    write(&path, SCHEMA, &[None], Compression::SNAPPY);
    assert!(text_of(&path).unwrap_err().contains("empty"));
    let schema = "message m { required int64 id; optional binary text; }";
    write(&path, schema, &[Some("plain bytes")], Compression::SNAPPY);
    assert_eq!(text_of(&path).unwrap(), "plain bytes\n");
}
