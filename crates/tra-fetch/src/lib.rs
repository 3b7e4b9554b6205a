//! Downloads data sets from the Hugging Face hub with `hf-hub`.
//!
//! [`get`] puts the files of a data set into a folder. A file appears there only once it is complete
//! and its checksum equals the hub's. Until then it is in the hidden folder `.download` beside it,
//! where the next call continues after an interruption. `checksums.json` lists what was put there,
//! so that a later call finds the data complete without asking the hub. Nothing is printed: an
//! [`Observer`] is told the progress.
//!
//! The network code is behind the feature `hub`. Without it [`get`] returns an error that says so.
//!
//! ```no_run
//! let out = std::path::Path::new("data/wikitext-2");
//! let request = tra_fetch::Request::new("wikitext-2", out);
//! let files = tra_fetch::get(&request, &mut ())?;
//! # Ok::<(), tra_fetch::FetchError>(())
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[cfg(feature = "hub")]
mod asking;
#[cfg(feature = "hub")]
mod checksum;
mod error;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod notes;
#[cfg(feature = "hub")]
mod place;
#[cfg(feature = "hub")]
mod scratch;
mod sets;
#[cfg(feature = "hub")]
mod watch;
#[cfg(not(feature = "hub"))]
mod without;

use std::path::Path;
use std::time::Duration;

pub use error::FetchError;
#[cfg(feature = "hub")]
pub use place::get;
pub use sets::{SetInfo, sets};
#[cfg(not(feature = "hub"))]
pub use without::get;

/// Address of the Hugging Face hub.
pub const HUB: &str = "https://huggingface.co";

/// How long a silent server is waited for by default.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What to fetch, and where to.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// A name of [`sets`].
    pub name: &'a str,
    /// The folder that the files go to. It is created if it does not exist.
    pub out: &'a Path,
    /// Address of the hub or a mirror: [`HUB`] by default.
    pub endpoint: &'a str,
    /// How long the server may be silent before the request fails.
    pub patience: Duration,
}

impl<'a> Request<'a> {
    /// Makes a request to [`HUB`] with the default [`PATIENCE`].
    pub fn new(name: &'a str, out: &'a Path) -> Self {
        Self { name, out, endpoint: HUB, patience: PATIENCE }
    }
}

/// Is told what happens, for a progress bar. `()` ignores it.
pub trait Observer {
    /// Called for a file that is there already with the right checksum.
    fn present(&mut self, _name: &str) {}

    /// Called before a file is downloaded, with its size.
    fn file(&mut self, name: &str, bytes: u64);

    /// Called with the number of bytes that are here, those of an interrupted call included.
    fn progress(&mut self, done: u64);

    /// Called when the file is complete, checked and in its place.
    fn finished(&mut self);
}

impl Observer for () {
    fn file(&mut self, _name: &str, _bytes: u64) {}
    fn progress(&mut self, _done: u64) {}
    fn finished(&mut self) {}
}
