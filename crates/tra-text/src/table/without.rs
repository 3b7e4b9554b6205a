//! Stands in for `mod.rs` in a build without the feature `parquet`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::TextError;

fn not_built(path: &Path) -> TextError {
    let name = path.display().to_string();
    TextError::NotBuilt { name, action: "read parquet", feature: "parquet" }
}

/// Returns an error that names the feature.
pub(crate) fn read(
    path: &Path,
    _: File,
    _: u64,
    _: &mut dyn FnMut(u64),
    _: &mut dyn FnMut(&str) -> Result<(), TextError>,
) -> Result<(), TextError> {
    Err(not_built(path))
}

/// Returns an error that names the feature.
pub(crate) fn read_packed(
    path: &Path,
    _: Box<dyn Read + '_>,
    _: &mut dyn FnMut(&str) -> Result<(), TextError>,
) -> Result<(), TextError> {
    Err(not_built(path))
}
