//! What can go wrong, each in one line with the way out.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use hf_hub::api::sync::ApiError;

use crate::sets::Set;
use crate::watch::Trouble;

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

/// Who is asked for what: the context an error needs.
pub(crate) struct Asking<'a> {
    pub(crate) set: &'static Set,
    pub(crate) out: &'a Path,
    pub(crate) endpoint: &'a str,
}

impl Asking<'_> {
    pub(crate) fn failed(&self, url: &str, trouble: Trouble) -> FetchError {
        let url = url.to_owned();
        match trouble {
            Trouble::Silent(patience) => self.unreachable(format!("silent for {patience:?}")),
            Trouble::Cut(reason) => FetchError::CutShort { url, reason },
            Trouble::Answer(reason) => self.answer(url, reason),
            Trouble::Api(ApiError::RequestError(error)) => self.refused(url, *error),
            Trouble::Api(ApiError::IoError(error)) if is_network(&error) => {
                FetchError::CutShort { url, reason: error.to_string() }
            }
            Trouble::Api(ApiError::IoError(error)) => {
                FetchError::io("cannot write into", self.out, error)
            }
            Trouble::Api(ApiError::LockAcquisition(_)) => FetchError::Busy { out: self.out.into() },
            Trouble::Api(error) => self.answer(url, error.to_string()),
        }
    }

    /// A request that got no answer, or not the one hoped for.
    fn refused(&self, url: String, error: ureq::Error) -> FetchError {
        match error {
            ureq::Error::StatusCode(status) => FetchError::Status { status, url },
            // Its text says "io:" before what the system says.
            ureq::Error::Io(error) => self.unreachable(error.to_string()),
            ureq::Error::BadUri(_)
            | ureq::Error::Http(_)
            | ureq::Error::Json(_)
            | ureq::Error::Protocol(_)
            | ureq::Error::TooManyRedirects
            | ureq::Error::LargeResponseHeader(..)
            | ureq::Error::BodyExceedsLimit(_) => self.answer(url, error.to_string()),
            error => self.unreachable(error.to_string()),
        }
    }

    fn unreachable(&self, reason: String) -> FetchError {
        let host = self.endpoint.split_once("://").map_or(self.endpoint, |(_, host)| host);
        let host = host.split_once('/').map_or(host, |(host, _)| host).to_owned();
        FetchError::Unreachable { host, reason, by_hand: self.set.by_hand(self.out) }
    }

    fn answer(&self, url: String, reason: String) -> FetchError {
        FetchError::Answer { url, reason, endpoint: self.endpoint.into() }
    }
}

/// Whether an error while copying from the network to the disk is the network's.
fn is_network(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<ureq::Error>())
        || matches!(
            error.kind(),
            ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::NotConnected
                | ErrorKind::BrokenPipe
                | ErrorKind::TimedOut
                | ErrorKind::WouldBlock
                | ErrorKind::NetworkDown
                | ErrorKind::NetworkUnreachable
                | ErrorKind::HostUnreachable
        )
}
