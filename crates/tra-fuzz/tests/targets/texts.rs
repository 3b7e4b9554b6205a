//! Text files in every compression format, and token caches.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use tra_fuzz::{Target, fuzz, put};
use tra_text::{Corpus, Part, Tokenizer, source};

use super::text;

const TEXT: &str = "The history of the world \u{6226}\u{5834}\n = Title = \n\tna\u{ef}ve  x\r\n";

fn read(path: &Path) -> Result<(), String> {
    let mut bytes = 0;
    text(source::read(path, &mut |_| {}, &mut |text| {
        bytes += text.len();
        Ok(())
    }))
}

#[test]
fn plain() {
    let corpus = vec![TEXT.into(), TEXT.repeat(20).into(), b"\xEF\xBB\xBFx\xC3(\xFF y".to_vec()];
    let tokenizer = Tokenizer::open("gpt2").unwrap();
    let target = Target { name: "plain", file: "a.txt", corpus, words: &["\u{feff}", "\u{3000}"] };
    fuzz(&target, |path| {
        let mut all = String::new();
        let mut sink = |part: &str| {
            all += part;
            Ok(())
        };
        text(source::read(path, &mut |_| {}, &mut sink))?;
        let tokens = text(tokenizer.encode(&all))?;
        assert_eq!(tokenizer.decode(&tokens), all.as_bytes());
        Ok(())
    });
}

fn gz(text: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    to.write_all(text).unwrap();
    to.finish().unwrap()
}

#[test]
fn packed_gz() {
    // A megabyte of one letter, which unpacks to a thousand times its compressed size.
    let corpus = vec![gz(TEXT.as_bytes()), gz(&[b'a'; 1 << 20])];
    fuzz(&Target { name: "gz", file: "a.txt.gz", corpus, words: &["\u{1f}\u{8b}"] }, read);
}

#[test]
fn packed_zst() {
    let pack = |text: &[u8]| zstd::encode_all(text, 3).unwrap();
    let corpus = vec![pack(TEXT.as_bytes()), pack(&[b'a'; 1 << 20])];
    fuzz(&Target { name: "zst", file: "a.txt.zst", corpus, words: &["(\u{b5}/\u{fd}"] }, read);
}

fn parquet_file(compression: Compression, version: WriterVersion, dictionary: bool) -> Vec<u8> {
    let schema = "message m { required int64 id; optional binary text (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_writer_version(version)
        .set_dictionary_enabled(dictionary)
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for _ in 0..2 {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&[1, 2, 3, 4], None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let texts = ["one", "one", TEXT].map(ByteArray::from);
        column.typed::<ByteArrayType>().write_batch(&texts, Some(&[1, 0, 1, 1]), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn parquet() {
    use WriterVersion::{PARQUET_1_0 as V1, PARQUET_2_0 as V2};
    let zstd = Compression::ZSTD(Default::default());
    let corpus = vec![
        parquet_file(Compression::UNCOMPRESSED, V1, true),
        parquet_file(Compression::UNCOMPRESSED, V2, false),
        parquet_file(Compression::SNAPPY, V1, false),
        parquet_file(zstd, V2, true),
    ];
    let words = ["PAR1", "text", "UTF8", "content"];
    fuzz(&Target { name: "parquet", file: "a.parquet", corpus, words: &words }, read);
}

/// A damaged cache is detected. `tra-text` tests that it is then rebuilt, with fewer inputs because
/// that takes longer.
#[test]
fn cache() {
    let folder = tempfile::tempdir().unwrap();
    let (source, caches) = (folder.path().join("a.txt"), folder.path().join("cache"));
    fs::write(&source, TEXT).unwrap();
    let tokenizer = Tokenizer::open("gpt2").unwrap();
    let files = Corpus::find(&source, Part::Train).unwrap();
    let right = files.tokens(&tokenizer, &caches, &mut |_| {}).unwrap();
    let right = right.range(0..right.len());
    let cache = fs::read_dir(&caches).unwrap().map(|entry| entry.unwrap().path());
    let cache =
        cache.filter(|path| path.extension().is_some_and(|e| e == "tokens")).last().unwrap();
    let whole = fs::read(&cache).unwrap();
    let target = Target {
        name: "cache",
        file: "a.tokens",
        corpus: vec![whole.clone()],
        words: &["tratoken"],
    };
    fuzz(&target, |path| {
        let bytes = fs::read(path).unwrap();
        put(&cache, &bytes);
        let found = text(files.cached(&tokenizer, &caches))?;
        assert_eq!(found.is_some(), bytes == whole, "a damaged cache is used, or a whole one not");
        assert!(found.is_none_or(|tokens| tokens.range(0..tokens.len()) == right));
        Ok(())
    });
}
