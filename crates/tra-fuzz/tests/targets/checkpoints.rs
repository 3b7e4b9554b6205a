//! Models: safetensors files and PyTorch state dicts.

use std::fs;
use std::io::{Cursor, Read, Write};
use std::path::Path;

use burn::tensor::Device;
use tra_fuzz::{Target, fuzz, put};
use tra_nn::attention::AnyAttentionConfig;
use tra_nn::checkpoint::TensorFile;
use tra_nn::{Decoder, DecoderConfig};
use zip::write::SimpleFileOptions;

use super::{repository, text};

fn read(path: &Path) -> Result<(), String> {
    let metadata = text(TensorFile::read_metadata(path));
    let tensors = text(TensorFile::read(path));
    let model = text(Decoder::load(path, &Device::flex()));
    // All errors are about the same file, so the harness checks only the first.
    [metadata.map(drop), tensors.map(drop), model.map(drop)].into_iter().collect()
}

fn model(attention: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let attention: AnyAttentionConfig = attention.parse().unwrap();
    let config = DecoderConfig::new(5, 1, 8, 2).with_attention(attention);
    config.init_seeded(1, &Device::flex()).unwrap().save(&path).unwrap();
    fs::read(path).unwrap()
}

#[test]
fn safetensors() {
    let header = br#"{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]},"c":{"dtype":"BOOL","shape":[4],"data_offsets":[28,32]},"__metadata__":{"config":"{}","layers":"1","heads":"2"}}"#;
    let mut plain = (header.len() as u64).to_le_bytes().to_vec();
    plain.extend(header);
    plain.extend([0; 32]);
    let words = [
        "F64",
        "F16",
        "BF16",
        "I64",
        "I32",
        "U8",
        "BOOL",
        "F4",
        "F8_E4M3",
        "shape",
        "data_offsets",
        "dtype",
        "__metadata__",
        "\"config\":\"{}\"",
        "[0,0]",
        "[]",
        "layers",
        "width",
        "heads",
        "vocab",
        "learned",
        "cope",
        "t5",
        "pad_index",
        "{",
        "}",
    ];
    let corpus = [model("tra"), model("learned"), model("cope"), model("t5"), plain].to_vec();
    fuzz(&Target { name: "safetensors", file: "a.safetensors", corpus, words: &words }, read);
}

const WORDS: [&str; 10] = [
    "storage",
    "FloatStorage",
    "torch._utils\n_rebuild_tensor_v2\n",
    "collections\nOrderedDict\n",
    "ccopy_reg\n_reconstructor\n",
    "\u{0}\u{0}",
    "((((((((",
    "tttt",
    "}}}}]]]]",
    "R.",
];

fn recorded() -> Vec<u8> {
    fs::read(repository("tests/recorded/model_small.pt")).unwrap()
}

#[test]
fn state_dict() {
    let corpus = vec![recorded(), pickle(&recorded())];
    fuzz(&Target { name: "state_dict", file: "a.pt", corpus, words: &WORDS }, |path| {
        [
            text(TensorFile::read(path)).map(drop),
            text(Decoder::load(path, &Device::flex())).map(drop),
        ]
        .into_iter()
        .collect()
    });
}

/// Returns the files of an archive.
fn files(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(Cursor::new(archive)).unwrap();
    let count = archive.len();
    let one = |index| {
        let mut file = archive.by_index(index).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        (file.name().unwrap().into_owned(), bytes)
    };
    (0..count).map(one).collect()
}

fn pickle(archive: &[u8]) -> Vec<u8> {
    files(archive).into_iter().find(|(name, _)| name.ends_with("data.pkl")).unwrap().1
}

/// Returns an archive with another pickle and valid checksums. A direct change to an archive fails
/// its checksums.
fn repacked(files: &[(String, Vec<u8>)], pickle: &[u8]) -> Vec<u8> {
    let mut to = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        to.start_file(name, SimpleFileOptions::default()).unwrap();
        to.write_all(if name.ends_with("data.pkl") { pickle } else { bytes }).unwrap();
    }
    to.finish().unwrap().into_inner()
}

#[test]
fn pickles() {
    let files = files(&recorded());
    let corpus = vec![pickle(&recorded())];
    let target = Target { name: "pickle", file: "data.pkl", corpus, words: &WORDS };
    fuzz(&target, |path| {
        let packed = path.with_file_name("a.pt");
        put(&packed, &repacked(&files, &fs::read(path).unwrap()));
        text(TensorFile::read(&packed)).map(drop)
    });
}
