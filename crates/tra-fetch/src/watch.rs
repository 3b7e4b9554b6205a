//! Runs requests to the hub with a time limit.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use hf_hub::api::Progress;
use hf_hub::api::sync::ApiError;

/// Why a request to the hub failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// An error of hf-hub.
    Api(ApiError),
    /// The server was silent for that long.
    Silent(Duration),
    /// The download of a file ended early, for this reason.
    Cut(String),
    /// The answer of the server cannot be used.
    Answer(String),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Api(error.into())
    }
}

enum Event<T> {
    Bytes(u64),
    Done(Result<T, ApiError>),
}

/// Passes the progress of hf-hub to the waiting thread.
pub(crate) struct Reporter<T> {
    sender: SyncSender<Event<T>>,
    done: u64,
}

impl<T> Progress for Reporter<T> {
    fn init(&mut self, _size: usize, _filename: &str) {
        self.done = 0;
    }

    fn update(&mut self, size: usize) {
        self.done += size as u64;
        if self.sender.send(Event::Bytes(self.done)).is_err() {
            // The waiting thread timed out, and the server answered after all. Unwinding is the only
            // way out of hf-hub: it prints nothing, frees hf-hub's lock and ends only this thread.
            resume_unwind(Box::new("nobody waits for this download any more"));
        }
    }

    fn finish(&mut self) {}
}

/// Runs `work` in a thread of its own until it is done or the server is silent for `patience`.
///
/// hf-hub 0.5 has no timeouts, neither for connecting nor for reading, so it would wait forever for
/// a server that stops answering.
pub(crate) fn watch<T: Send + 'static>(
    patience: Duration,
    mut progress: impl FnMut(u64),
    work: impl FnOnce(Reporter<T>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, Trouble> {
    let (sender, events) = sync_channel(16);
    thread::Builder::new().name("hub".into()).spawn(move || {
        let result = work(Reporter { sender: sender.clone(), done: 0 });
        let _ = sender.send(Event::Done(result));
    })?;
    loop {
        match events.recv_timeout(patience) {
            Ok(Event::Bytes(done)) => progress(done),
            Ok(Event::Done(result)) => return result.map_err(Trouble::Api),
            Err(RecvTimeoutError::Timeout) => return Err(Trouble::Silent(patience)),
            // hf-hub panics on some malformed answers.
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Trouble::Answer("hf-hub cannot read it".into()));
            }
        }
    }
}
