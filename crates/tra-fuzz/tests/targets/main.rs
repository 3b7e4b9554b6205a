//! Tests every file reader of the workspace with broken files. See the documentation of `tra_fuzz`.

mod checkpoints;
mod configs;
mod runs;
mod texts;
mod tokenizers;

use std::path::{Path, PathBuf};

#[global_allocator]
static COUNTING: tra_fuzz::Counting = tra_fuzz::Counting;

/// Returns the path of a file or folder of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text<T, E: ToString>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
