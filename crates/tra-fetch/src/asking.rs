//! From what `hf-hub` and `ureq` report to errors of ours.

use std::io::{self, ErrorKind};
use std::path::Path;

use hf_hub::api::sync::ApiError;

use crate::FetchError;
use crate::sets::Set;
use crate::watch::Trouble;

/// What was requested from whom: the context that errors need.
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
                FetchError::io("cannot write into", self.out)(error)
            }
            Trouble::Api(ApiError::LockAcquisition(_)) => FetchError::Busy { out: self.out.into() },
            Trouble::Api(error) => self.answer(url, error.to_string()),
        }
    }

    /// Returns the error for a request without a usable answer.
    fn refused(&self, url: String, error: ureq::Error) -> FetchError {
        match error {
            ureq::Error::StatusCode(status) => FetchError::Status { status, url },
            // Without the "io:" that ureq puts before the error of the system.
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

/// Returns whether an error while copying from the network to the disk is one of the network.
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
