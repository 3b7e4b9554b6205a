//! Runs side by side: processes of this program, each with its share of the threads.
//!
//! A small model does not keep two threads busy, and two runs of one thread each end well before the same two runs of
//! two threads one after the other. Runs lock their folders, so the processes need not agree on who makes which.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::interrupt::STOPPED;
use crate::terminal;

/// How many at a time, and threads for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jobs {
    pub count: usize,
    pub threads: usize,
}

impl Jobs {
    /// As many as were asked for, or as there are threads, but no more than there is work for.
    pub fn new(asked: Option<usize>, threads: usize, work: usize) -> Self {
        let count = asked.unwrap_or(threads).min(work).max(1);
        Self { count, threads: (threads / count).max(1) }
    }

    /// Starts them with these arguments and sees them to their end; whether they came to it.
    pub fn run(&self, arguments: &[OsString], interrupted: &AtomicBool) -> Result<bool> {
        let lines = std::io::stderr().is_terminal().then(MultiProgress::new);
        let mut workers = Vec::new();
        let mut failed = None;
        for _ in 0..self.count {
            match Worker::start(arguments, self.threads, lines.clone()) {
                Ok(worker) => workers.push(worker),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let mut at_work = true;
        while at_work {
            at_work = false;
            for worker in &mut workers {
                match worker.is_at_work() {
                    Ok(is) => at_work |= is,
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if interrupted.load(Ordering::SeqCst) || failed.is_some() {
                workers.iter_mut().for_each(Worker::stop);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let said: Vec<String> = workers.into_iter().filter_map(Worker::finish).collect();
        // One that is interrupted before it can see to it ends as if killed, and that is no failure.
        if interrupted.load(Ordering::SeqCst) && said.is_empty() {
            return Ok(false);
        }
        match (said.into_iter().next(), failed) {
            (Some(error), _) => bail!("{error}"),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(true),
        }
    }
}

struct Worker {
    child: Child,
    /// While it is open the worker works.
    work: Option<ChildStdin>,
    /// Ends with what it said is wrong.
    reader: JoinHandle<Option<String>>,
    ended: bool,
}

impl Worker {
    fn start(arguments: &[OsString], threads: usize, lines: Option<MultiProgress>) -> Result<Self> {
        let mut child = Command::new(this_program()?)
            .args(arguments)
            .env("RAYON_NUM_THREADS", threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a process for a run")?;
        let (work, said) = (child.stdin.take(), child.stderr.take().context("no standard error")?);
        let reader = std::thread::spawn(move || listen(said, lines));
        Ok(Self { child, work, reader, ended: false })
    }

    /// An error if it ended, but not by itself or because it was told to.
    fn is_at_work(&mut self) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let status = self.child.try_wait().inspect_err(|_| self.ended = true)?;
        let Some(status) = status else { return Ok(true) };
        self.ended = true;
        if status.success() || status.code() == Some(STOPPED.into()) {
            return Ok(false);
        }
        bail!("a run was ended from outside ({status}); if memory was short, give --jobs 1")
    }

    /// Lets it end after the step at hand.
    fn stop(&mut self) {
        self.work = None;
    }

    /// What it said is wrong.
    fn finish(self) -> Option<String> {
        self.reader.join().ok().flatten()
    }
}

/// Shows what a worker says, on a line of its own where there is a terminal; the first thing that it says is wrong.
fn listen(said: ChildStderr, lines: Option<MultiProgress>) -> Option<String> {
    let bar = lines.as_ref().map(|lines| {
        let style = ProgressStyle::with_template("{spinner} {wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = lines.add(ProgressBar::new_spinner().with_style(style));
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    });
    let (mut said, mut line, mut error) = (BufReader::new(said), Vec::new(), None);
    // To the end, whatever it says: who is not listened to cannot go on speaking.
    while said.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().to_string();
        line.clear();
        if let Some(cause) = text.strip_prefix("error: ") {
            error.get_or_insert(cause.to_string());
            continue;
        }
        // A warning or an evaluation stays to be read; anything else is how far it has come.
        let stays = text.starts_with("warning: ") || text.contains(" step ");
        match &bar {
            Some(bar) if stays => bar.println(text),
            Some(bar) => bar.set_message(text),
            None => terminal::say(&text),
        }
    }
    bar.inspect(ProgressBar::finish_and_clear);
    error
}

/// The program as it was started, even if another has taken its place since.
fn this_program() -> Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() {
        return Ok(running);
    }
    std::env::current_exe().context("this program's own file")
}

/// In a worker: stops it when the process that started it closes its end, or is gone.
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
