//! Errors of downloads. Each message is one line and says what to do.

use std::io::{self, ErrorKind};
#[cfg(feature = "hub")]
use std::path::Path;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// There is no data set of that name.
    #[error("no data set {name:?}; there are {known}")]
    UnknownName {
        /// The name that was given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A build without the feature `hub`.
    #[error("{name}: this build cannot download; build with --features hub, or {by_hand}")]
    NotBuilt {
        /// What was asked for.
        name: &'static str,
        /// How to do without it.
        by_hand: String,
    },
    /// The hub cannot be reached.
    #[error("cannot reach {host} ({reason}): {by_hand}")]
    Unreachable {
        /// The host.
        host: String,
        /// The error of the network.
        reason: String,
        /// How to get the files without the hub.
        by_hand: String,
    },
    /// The hub refused a request.
    #[error("HTTP {status} for {url}: {hint}", hint = status_hint(*status))]
    Status {
        /// The HTTP status.
        status: u16,
        /// The address that was requested.
        url: String,
    },
    /// The hub, or another server in its place, sent an answer that cannot be used.
    #[error("{url}: unexpected answer ({reason}): is {endpoint} a Hugging Face hub?")]
    Answer {
        /// The address that was requested.
        url: String,
        /// What is wrong with the answer.
        reason: String,
        /// The address of the hub.
        endpoint: String,
    },
    /// The connection broke, or the server stopped sending.
    #[error("{url}: download cut short ({reason}): run it again to continue")]
    CutShort {
        /// The address of the file.
        url: String,
        /// How the download ended.
        reason: String,
    },
    /// The content does not match the checksum of the hub. The file has been deleted.
    #[error("{file}: checksum {found}… instead of {expected}…: deleted; run it again")]
    Mismatch {
        /// The file.
        file: String,
        /// First digits of the hub's checksum.
        expected: String,
        /// First digits of the checksum of the content.
        found: String,
    },
    /// The repository has no data files where they were.
    #[error("no data files in folder {folder:?} of {page}: has it been reorganised?")]
    NoFiles {
        /// The page of the repository.
        page: String,
        /// The folder in it.
        folder: &'static str,
    },
    /// There is a file of that name that does not come from the hub.
    #[error("{path} is in the way: it does not come from the hub; move it away", path = path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The folder contains another data set.
    #[error("{out} contains {held}: choose another folder for {wanted}", out = out.display())]
    OtherData {
        /// The folder.
        out: PathBuf,
        /// The data set in it.
        held: String,
        /// The data set that was requested.
        wanted: &'static str,
    },
    /// A `checksums.json` that this crate did not write.
    #[error("{path} is not as `tra data get` writes it ({reason}): move it away", path = path.display())]
    NotOurNotes {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process is downloading into the folder.
    #[error("another download into {out} is running: wait for it to end", out = out.display())]
    Busy {
        /// The folder.
        out: PathBuf,
    },
    /// An operation on a file failed.
    #[error("{action} {path}: {cause}{hint}", path = path.display(), hint = io_hint(cause))]
    Io {
        /// What failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
}

#[cfg(feature = "hub")]
impl FetchError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |cause| Self::Io { action, path, cause }
    }
}

fn status_hint(status: u16) -> &'static str {
    match status {
        401 | 403 => "it needs a login (`hf auth login`), or does not exist any more",
        404 => "it does not exist; has it been moved or renamed?",
        429 => "too many requests; wait a few minutes and run it again",
        500.. => "the server has a problem; run it again later",
        _ => "the server refused the request",
    }
}

fn io_hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ": free some space and run it again to continue"
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            ": choose a folder that you may write to"
        }
        _ => "",
    }
}
