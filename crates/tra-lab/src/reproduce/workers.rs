//! Parallel runs: worker processes that share the threads.
//!
//! A small model does not keep two threads busy. Two runs with one thread each finish well before
//! the same two runs one after the other with two threads each. Every run is locked, so workers
//! need not agree on who trains which.
//!
//! A worker writes its events to standard output, one line of JSON each. When its standard input is
//! closed, it stops after the current step.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::error::LabError;
use crate::observer::{Event, Observer};

/// How to start a worker: a program and its arguments.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Exit code of a worker that was told to stop.
    stopped: u8,
}

impl WorkerCommand {
    /// Returns the command that starts this program again, even if its file was replaced in the
    /// meantime.
    pub fn this_program(arguments: Vec<OsString>, stopped: u8) -> Result<Self, LabError> {
        let running = PathBuf::from("/proc/self/exe");
        let program = match running.exists() {
            true => running,
            false => std::env::current_exe().map_err(|error| {
                LabError::Other(format!("cannot find this program's own file: {error}"))
            })?,
        };
        Ok(Self { program, arguments, stopped })
    }

    /// Returns the program.
    pub(crate) fn program(&self) -> &PathBuf {
        &self.program
    }
}

/// Number of parallel runs and threads per run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jobs {
    /// Number of parallel runs.
    pub count: usize,
    /// Threads per run.
    pub threads: usize,
}

impl Jobs {
    /// Creates as many jobs as requested, by default one per thread, but no more than there are
    /// runs left.
    pub fn new(asked: Option<usize>, threads: usize, work: usize) -> Self {
        let count = asked.unwrap_or(threads).min(work).max(1);
        Self { count, threads: (threads / count).max(1) }
    }

    /// Calls `work` with as many threads as a run will have.
    pub(super) fn with_threads<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, LabError> + Send,
    ) -> Result<T, LabError> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads).build();
        let pool =
            pool.map_err(|error| LabError::Other(format!("cannot start threads: {error}")))?;
        pool.install(work)
    }

    /// Starts the workers and waits until they end. Returns `false` if it was interrupted.
    ///
    /// All their events go to the observer.
    pub(super) fn run(
        &self,
        command: &WorkerCommand,
        interrupted: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<bool, LabError> {
        let (sender, events) = channel();
        let (mut workers, mut failed) = (Vec::new(), None);
        for number in 0..self.count {
            match Worker::start(command, self.threads, number, sender.clone()) {
                Ok(worker) => workers.push(worker),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        drop(sender);
        let mut said = None;
        loop {
            match events.recv_timeout(Duration::from_millis(50)) {
                Ok((_, Event::Error(error))) => said = said.or(Some(error)),
                Ok((number, event)) => observer.worker_event(number, event),
                Err(RecvTimeoutError::Timeout) => {}
                // Every worker has closed its output.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if interrupted.load(Ordering::SeqCst) || failed.is_some() || said.is_some() {
                workers.iter_mut().for_each(Worker::stop);
            }
            for worker in &mut workers {
                if let Err(error) = worker.check() {
                    failed = failed.or(Some(error));
                }
            }
        }
        for worker in workers {
            if let Err(error) = worker.wait() {
                failed = failed.or(Some(error));
            }
        }
        // A worker interrupted while it starts exits as if killed. That is not a failure.
        if interrupted.load(Ordering::SeqCst) && said.is_none() {
            return Ok(false);
        }
        match said.map(LabError::Other).or(failed) {
            Some(error) => Err(error),
            None => Ok(true),
        }
    }
}

struct Worker {
    child: Child,
    /// The worker runs while this stays open.
    work: Option<ChildStdin>,
    stopped: u8,
    ended: bool,
}

impl Worker {
    fn start(
        command: &WorkerCommand,
        threads: usize,
        number: usize,
        events: Sender<(usize, Event)>,
    ) -> Result<Self, LabError> {
        let cannot = |error| LabError::Other(format!("cannot start a worker process: {error}"));
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            .env("RAYON_NUM_THREADS", threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(cannot)?;
        let work = child.stdin.take();
        if let Some(said) = child.stdout.take() {
            std::thread::spawn(move || listen(said, number, &events));
        }
        Ok(Self { child, work, stopped: command.stopped, ended: false })
    }

    /// Returns an error if the worker ended for any other reason than finishing or being told to
    /// stop.
    fn check(&mut self) -> Result<(), LabError> {
        if self.ended {
            return Ok(());
        }
        let gone = |error| LabError::Other(format!("cannot wait for a worker process: {error}"));
        let Some(status) = self.child.try_wait().map_err(gone)? else { return Ok(()) };
        self.ended = true;
        if status.success() || status.code() == Some(self.stopped.into()) {
            return Ok(());
        }
        Err(LabError::Other(format!(
            "a worker process was killed ({status}); if memory ran out, try --jobs 1"
        )))
    }

    fn wait(mut self) -> Result<(), LabError> {
        self.stop();
        if !self.ended {
            let _ = self.child.wait();
        }
        self.check()
    }

    /// Tells the worker to stop after the current step.
    fn stop(&mut self) {
        self.work = None;
    }
}

/// Forwards everything a worker writes until it ends. A worker whose output is not read would
/// block.
fn listen(said: ChildStdout, number: usize, events: &Sender<(usize, Event)>) {
    for line in BufReader::new(said).lines().map_while(Result::ok) {
        let event = serde_json::from_str(&line)
            .unwrap_or_else(|_| Event::Warning(format!("a worker printed: {line}")));
        let _ = events.send((number, event));
    }
}

/// Stops this worker when the process that started it closes the pipe or ends.
pub fn stop_with_parent(interrupted: &Arc<AtomicBool>) {
    let interrupted = interrupted.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        interrupted.store(true, Ordering::SeqCst);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_shared_out() {
        let jobs = |asked, threads, work| {
            let Jobs { count, threads } = Jobs::new(asked, threads, work);
            (count, threads)
        };
        assert_eq!(jobs(None, 2, 72), (2, 1));
        assert_eq!(jobs(None, 64, 12), (12, 5));
        assert_eq!(jobs(None, 8, 0), (1, 8));
        assert_eq!(jobs(Some(1), 8, 72), (1, 8));
        assert_eq!(jobs(Some(4), 2, 72), (4, 1));
    }
}
