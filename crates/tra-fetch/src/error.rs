//! What can go wrong, each in one line with the way out.

use std::io::{self, ErrorKind};
#[cfg(feature = "hub")]
use std::path::Path;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// No such data set.
    #[error("no data set {name:?}; there are {known}")]
    UnknownName {
        /// What was asked for.
        name: String,
        /// What could be asked for.
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
    /// No internet, or nothing at the other end.
    #[error("cannot reach {host} ({reason}): {by_hand}")]
    Unreachable {
        /// The host.
        host: String,
        /// What the network said.
        reason: String,
        /// How to do without it.
        by_hand: String,
    },
    /// The hub said no.
    #[error("HTTP {status} for {url}: {hint}", hint = status_hint(*status))]
    Status {
        /// The status.
        status: u16,
        /// What was asked for.
        url: String,
    },
    /// The hub, or what answers in its place, said something unexpected.
    #[error("{url}: unexpected answer ({reason}): is {endpoint} a Hugging Face hub?")]
    Answer {
        /// What was asked for.
        url: String,
        /// What is wrong with the answer.
        reason: String,
        /// Who was asked.
        endpoint: String,
    },
    /// The connection broke, or the server fell silent.
    #[error("{url}: download cut short ({reason}): run it again, it goes on where it stopped")]
    CutShort {
        /// What was being downloaded.
        url: String,
        /// How it ended.
        reason: String,
    },
    /// The content is not what the hub says it is. It has been deleted.
    #[error("{file}: checksum {found}… instead of {expected}…: deleted; run it again")]
    Mismatch {
        /// The file.
        file: String,
        /// First digits of the hub's checksum.
        expected: String,
        /// First digits of the content's.
        found: String,
    },
    /// The repository has changed its layout.
    #[error("no data files in folder {folder:?} of {page}: has it been reorganised?")]
    NoFiles {
        /// The repository's page.
        page: String,
        /// The folder in it.
        folder: &'static str,
    },
    /// A file of that name is there that is not the hub's.
    #[error("{path} is in the way: it is not the hub's file; move it away", path = path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The folder holds another data set.
    #[error("{out} holds {held}: choose another folder for {wanted}", out = out.display())]
    OtherData {
        /// The folder.
        out: PathBuf,
        /// What it holds.
        held: String,
        /// What was asked for.
        wanted: &'static str,
    },
    /// A `checksums.json` of somebody else.
    #[error("{path} is not as `tra data get` writes it ({reason}): move it away", path = path.display())]
    NotOurNotes {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Somebody else is at it.
    #[error("another download into {out} is under way: wait for it", out = out.display())]
    Busy {
        /// The folder.
        out: PathBuf,
    },
    /// The file system said no.
    #[error("{action} {path}: {cause}{hint}", path = path.display(), hint = io_hint(cause))]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// The file system's answer.
        cause: io::Error,
    },
}

#[cfg(feature = "hub")]
impl FetchError {
    pub(crate) fn io(action: &'static str, path: &Path, cause: io::Error) -> Self {
        Self::Io { action, path: path.into(), cause }
    }
}

fn status_hint(status: u16) -> &'static str {
    match status {
        401 | 403 => "it needs a login (`hf auth login`), or is no longer there",
        404 => "it is not there; has it been moved or renamed?",
        429 => "too many requests; wait some minutes and run it again",
        500.. => "the server has trouble; run it again later",
        _ => "the server refuses",
    }
}

fn io_hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ": free some space and run it again, it goes on where it stopped"
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            ": choose a folder you may write to"
        }
        _ => "",
    }
}
