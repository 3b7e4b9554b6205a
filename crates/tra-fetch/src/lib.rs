//! Data sets from the Hugging Face hub, fetched with `hf-hub`.
//!
//! [`get`] puts the files of a data set into a folder. A file gets its name there only once it is
//! whole and its checksum equals the hub's; until then it lies in the hidden folder `.download`
//! beside it, where the next call goes on after an interruption. `checksums.json` notes what was
//! put there, so that a later call finds the data complete without asking the hub. Nothing is
//! printed: an [`Observer`] is told how far it is.
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
pub use sets::NAMES;
#[cfg(not(feature = "hub"))]
pub use without::get;

/// How long a silent server is waited for unless told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What to fetch, and where to.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// One of [`NAMES`].
    pub name: &'a str,
    /// The folder the files go to; it is made if need be.
    pub out: &'a Path,
    /// Address of the hub or a mirror; otherwise the variable `HF_ENDPOINT`, otherwise the hub.
    pub endpoint: Option<&'a str>,
    /// How long the server may send nothing at all before it is given up.
    pub patience: Duration,
}

impl<'a> Request<'a> {
    /// A request to the usual hub with the usual [`PATIENCE`].
    pub fn new(name: &'a str, out: &'a Path) -> Self {
        Self { name, out, endpoint: None, patience: PATIENCE }
    }
}

/// Is told what happens: a progress bar. `()` is one that does not care.
pub trait Observer {
    /// A file is there already, and its checksum is right.
    fn present(&mut self, _name: &str) {}

    /// A file of so many bytes is about to be downloaded.
    fn file(&mut self, name: &str, bytes: u64);

    /// So many of its bytes are here, those of an earlier, interrupted call included.
    fn progress(&mut self, done: u64);

    /// The file is whole, checked and in its place.
    fn finished(&mut self);
}

impl Observer for () {
    fn file(&mut self, _name: &str, _bytes: u64) {}
    fn progress(&mut self, _done: u64) {}
    fn finished(&mut self) {}
}
