//! Named tensors on the host, read from safetensors or PyTorch files and written as safetensors.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::tensor::Metadata;
use safetensors::{Dtype, SafeTensorError, SafeTensors, View};
use tra_disk::Checksum;

use crate::error::{CheckpointError, Error, Mismatch};

/// The key of the metadata under which the checksum of a file stands.
const CHECKSUM: &str = "checksum";

/// A file of named tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorFile {
    /// Where it was read from, or is to be written to.
    pub path: PathBuf,
    /// What the file says about itself.
    pub metadata: BTreeMap<String, String>,
    /// The tensors by name.
    pub tensors: BTreeMap<String, HostTensor>,
}

/// A tensor in main memory, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub values: Values,
}

/// Numbers of a [`HostTensor`]. Narrower types are widened on reading; f64 is rounded to f32.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Floats.
    Float(Vec<f32>),
    /// Integers and booleans.
    Int(Vec<i64>),
}

impl HostTensor {
    /// Floats of a given shape.
    pub fn floats(shape: impl Into<Vec<usize>>, values: Vec<f32>) -> Self {
        Self { shape: shape.into(), values: Values::Float(values) }
    }

    /// The floats, if it holds floats.
    pub fn as_floats(&self) -> Option<&[f32]> {
        match &self.values {
            Values::Float(values) => Some(values),
            Values::Int(_) => None,
        }
    }

    /// The integers, if it holds integers.
    pub fn as_ints(&self) -> Option<&[i64]> {
        match &self.values {
            Values::Int(values) => Some(values),
            Values::Float(_) => None,
        }
    }

    /// How many of its numbers are NaN or infinite.
    pub fn not_finite(&self) -> usize {
        self.as_floats().map_or(0, |v| v.iter().filter(|x| !x.is_finite()).count())
    }
}

impl CheckpointError {
    pub(crate) fn at(self, path: &Path) -> Error {
        Error::Checkpoint { path: path.into(), reason: self }
    }
}

impl TensorFile {
    /// Reads a safetensors file, or a PyTorch state dict if the name ends in `.pt` or `.pth`.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let is_pytorch = path.extension().is_some_and(|e| e == "pt" || e == "pth");
        let (metadata, tensors) =
            if is_pytorch { read_pytorch(path) } else { read_safetensors(path) }
                .map_err(|reason| reason.at(path))?;
        Ok(Self { path: path.into(), metadata, tensors })
    }

    /// Reads the metadata of a safetensors file, without its tensors. A file that is cut short is an
    /// error here too.
    pub fn read_metadata(path: impl AsRef<Path>) -> Result<BTreeMap<String, String>, Error> {
        let path = path.as_ref();
        read_header(path).map_err(|reason| reason.at(path))
    }

    /// Adds to `wrong` what keeps tensor `name` from being finite floats of the needed shape.
    pub fn check(&self, name: &str, needed: &[usize], wrong: &mut Mismatch) {
        match self.tensors.get(name) {
            None => wrong.missing.push(name.into()),
            Some(found) if found.shape != needed => {
                wrong.misshaped.push((name.into(), found.shape.clone(), needed.into()));
            }
            Some(found) if found.as_floats().is_none() => {
                wrong.mistyped.push((name.into(), "floats"));
            }
            Some(found) if found.not_finite() > 0 => {
                wrong.not_finite.push((name.into(), found.not_finite()));
            }
            Some(_) => {}
        }
    }

    /// Refuses tensors with NaN or infinite values, and names them.
    pub fn check_finite(&self) -> Result<(), Error> {
        let counts = self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.not_finite()));
        let not_finite: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
        match not_finite.is_empty() {
            true => Ok(()),
            false => {
                let wrong = Mismatch { not_finite, ..Mismatch::default() };
                Err(CheckpointError::from(wrong).at(&self.path))
            }
        }
    }

    /// Writes a safetensors file, whole or not at all, with a checksum in its metadata.
    pub fn write(&self) -> Result<(), Error> {
        let bytes = self.bytes().map_err(|reason| reason.at(&self.path))?;
        let io = |source| CheckpointError::Io { action: "cannot write it", source };
        tra_disk::write_atomically(&self.path, &bytes).map_err(|e| io(e).at(&self.path))
    }
}

impl TensorFile {
    /// Returns the bytes of the file. The `safetensors` crate writes metadata in an order that changes
    /// from run to run. So it writes the tensors, and this puts the metadata, in the order of the keys,
    /// in front of them.
    fn bytes(&self) -> Result<Vec<u8>, CheckpointError> {
        let unwritable = |e: &dyn std::fmt::Display| CheckpointError::Safetensors(e.to_string());
        let plain = safetensors::serialize(&self.tensors, None).map_err(|e| unwritable(&e))?;
        let tensors = SafeTensors::deserialize(&plain).map_err(|e| unwritable(&e))?;
        let mut metadata = self.metadata.clone();
        metadata.insert(CHECKSUM.into(), checksum(&self.metadata, &tensors));
        let short = || CheckpointError::Safetensors("it is shorter than any header".into());
        let (length, rest) = plain.split_first_chunk::<8>().ok_or_else(short)?;
        let (header, data) =
            rest.split_at_checked(u64::from_le_bytes(*length) as usize).ok_or_else(short)?;
        let metadata = serde_json::to_string(&metadata).map_err(|e| unwritable(&e))?;
        let tensors = header.trim_ascii_end().strip_prefix(b"{").ok_or_else(short)?;
        let comma = if tensors == b"}" { "" } else { "," };
        let mut header = format!("{{\"__metadata__\":{metadata}{comma}").into_bytes();
        header.extend_from_slice(tensors);
        // Tensors begin at a multiple of eight.
        header.resize(header.len().next_multiple_of(8), b' ');
        Ok([&(header.len() as u64).to_le_bytes()[..], &header, data].concat())
    }
}

/// Returns the checksum of a file: of its metadata, names, types, shapes and numbers.
fn checksum(metadata: &BTreeMap<String, String>, file: &SafeTensors<'_>) -> String {
    let mut sum = Checksum::default();
    for (key, value) in metadata.iter().filter(|(key, _)| *key != CHECKSUM) {
        sum.field(key.as_bytes());
        sum.field(value.as_bytes());
    }
    let tensors: BTreeMap<_, _> = file.iter().collect();
    for (name, view) in tensors {
        sum.field(name.as_bytes());
        sum.field(format!("{:?} {:?}", view.dtype(), view.shape()).as_bytes());
        sum.field(view.data());
    }
    sum.hex()
}

type Contents = (BTreeMap<String, String>, BTreeMap<String, HostTensor>);

/// Opens a regular file: reading a pipe may block, and a device may never end.
fn open(path: &Path) -> Result<File, CheckpointError> {
    let io = |source| CheckpointError::Io { action: "cannot read it", source };
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Err(io(std::io::Error::other("not a regular file")));
    }
    File::open(path).map_err(io)
}

fn read_safetensors(path: &Path) -> Result<Contents, CheckpointError> {
    let mut bytes = Vec::new();
    let io = |source| CheckpointError::Io { action: "cannot read it", source };
    open(path)?.read_to_end(&mut bytes).map_err(io)?;
    let unreadable = |e: SafeTensorError| CheckpointError::Safetensors(plain(&e));
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(unreadable)?;
    let file = SafeTensors::deserialize(&bytes).map_err(unreadable)?;
    let mut metadata: BTreeMap<String, String> =
        header.metadata().clone().unwrap_or_default().into_iter().collect();
    // Files of other programs, and older ones of ours, have none.
    if metadata.remove(CHECKSUM).is_some_and(|noted| noted != checksum(&metadata, &file)) {
        return Err(CheckpointError::Damaged);
    }
    let mut tensors = BTreeMap::new();
    for (name, view) in file.iter() {
        let values = decode(name, &format!("{:?}", view.dtype()), view.data())?;
        tensors.insert(name.to_string(), HostTensor { shape: view.shape().into(), values });
    }
    Ok((metadata, tensors))
}

fn read_header(path: &Path) -> Result<BTreeMap<String, String>, CheckpointError> {
    let io = |source| CheckpointError::Io { action: "cannot read it", source };
    let unreadable = |e| CheckpointError::Safetensors(plain(&e));
    let mut file = open(path)?;
    let whole = file.metadata().map_err(io)?.len();
    let mut length = [0; 8];
    if whole < length.len() as u64 {
        return Err(unreadable(SafeTensorError::HeaderTooSmall));
    }
    file.read_exact(&mut length).map_err(io)?;
    let behind = whole - length.len() as u64;
    let length = u64::from_le_bytes(length);
    if length > behind {
        return Err(unreadable(SafeTensorError::InvalidHeaderLength));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(io)?;
    let header: Metadata = serde_json::from_slice(&header)
        .map_err(|e| unreadable(SafeTensorError::InvalidHeaderDeserialization(e)))?;
    if header.data_len() as u64 != behind - length {
        return Err(unreadable(SafeTensorError::MetadataIncompleteBuffer));
    }
    let mut metadata = header.metadata().clone().unwrap_or_default();
    metadata.remove(CHECKSUM);
    Ok(metadata.into_iter().collect())
}

/// Explains the most common causes in words that a user can act on.
fn plain(error: &SafeTensorError) -> String {
    use SafeTensorError as E;
    match error {
        E::HeaderTooSmall => "it is shorter than any header".into(),
        E::HeaderTooLarge | E::InvalidHeaderLength => {
            "its header does not fit in the file (another format, or cut short)".into()
        }
        E::MetadataIncompleteBuffer => "its tensors do not fill the file (cut short?)".into(),
        other => other.to_string(),
    }
}

#[cfg(not(feature = "pytorch"))]
fn read_pytorch(path: &Path) -> Result<Contents, CheckpointError> {
    open(path)?;
    Err(CheckpointError::NotBuilt)
}

#[cfg(feature = "pytorch")]
fn read_pytorch(path: &Path) -> Result<Contents, CheckpointError> {
    open(path)?;
    let unreadable = |e: &dyn std::fmt::Display| {
        CheckpointError::Pytorch(e.to_string().lines().next().unwrap_or_default().into())
    };
    let reader = pytorch_reader::PytorchReader::new(path).map_err(|e| unreadable(&e))?;
    let mut tensors = BTreeMap::new();
    for (name, tensor) in reader.tensors() {
        let bytes = tensor.read().map_err(|e| unreadable(&e))?;
        let values = decode(name, &format!("{:?}", tensor.dtype()), &bytes)?;
        tensors.insert(name.clone(), HostTensor { shape: tensor.shape().into(), values });
    }
    Ok((BTreeMap::new(), tensors))
}

/// Decodes numbers. Both readers use the same names of types: F32, BF16, I64, …
fn decode(name: &str, dtype: &str, bytes: &[u8]) -> Result<Values, CheckpointError> {
    fn all<const N: usize, T>(bytes: &[u8], one: impl Fn([u8; N]) -> T) -> Vec<T> {
        bytes.as_chunks().0.iter().map(|chunk| one(*chunk)).collect()
    }
    Ok(match dtype.to_uppercase().as_str() {
        "F32" => Values::Float(all(bytes, f32::from_le_bytes)),
        "F64" => Values::Float(all(bytes, |b| f64::from_le_bytes(b) as f32)),
        "F16" => Values::Float(all(bytes, |b| f16::from_le_bytes(b).to_f32())),
        "BF16" => Values::Float(all(bytes, |b| bf16::from_le_bytes(b).to_f32())),
        "I64" => Values::Int(all(bytes, i64::from_le_bytes)),
        "I32" => Values::Int(all(bytes, |b| i32::from_le_bytes(b).into())),
        "I16" => Values::Int(all(bytes, |b| i16::from_le_bytes(b).into())),
        "I8" => Values::Int(all(bytes, |b| i8::from_le_bytes(b).into())),
        "U32" => Values::Int(all(bytes, |b| u32::from_le_bytes(b).into())),
        "U16" => Values::Int(all(bytes, |b| u16::from_le_bytes(b).into())),
        "U8" | "BOOL" => Values::Int(all(bytes, |b: [u8; 1]| b[0].into())),
        _ => return Err(CheckpointError::Dtype { name: name.into(), dtype: dtype.into() }),
    })
}

impl View for &HostTensor {
    fn dtype(&self) -> Dtype {
        match self.values {
            Values::Float(_) => Dtype::F32,
            Values::Int(_) => Dtype::I64,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match &self.values {
            Values::Float(values) => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Values::Int(values) => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    fn data_len(&self) -> usize {
        match &self.values {
            Values::Float(values) => 4 * values.len(),
            Values::Int(values) => 8 * values.len(),
        }
    }
}
