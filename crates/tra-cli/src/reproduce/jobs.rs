//! Runs side by side: processes of this program, each with its share of the threads.
//!
//! A small model does not keep two threads busy, and two runs of one thread each end well before the same two runs of
//! two threads one after the other. Runs lock their folders, so the processes need not agree on who makes which.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

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
        let terminal = std::io::stderr().is_terminal();
        let lines = MultiProgress::new();
        let mut workers = Vec::new();
        for _ in 0..self.count {
            let bar = terminal.then(|| lines.add(bar()));
            workers.push(Worker::start(arguments, self.threads, bar, lines.clone())?);
        }
        let mut failed = None;
        while workers.iter_mut().any(|worker| worker.is_at_work()) {
            let broken = workers.iter().find_map(|worker| worker.broken());
            if interrupted.load(Ordering::SeqCst) || broken.is_some() {
                failed = failed.or(broken);
                workers.iter_mut().for_each(Worker::stop);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let failed = failed.or_else(|| workers.iter().find_map(|worker| worker.broken()));
        let mut errors = Vec::new();
        for worker in workers {
            errors.extend(worker.finish()?);
        }
        let _ = lines.clear();
        match (failed, errors.first()) {
            (_, Some(error)) => bail!("{error}"),
            (Some(status), None) => {
                bail!("a run was ended from outside ({status}); if memory was short, give --jobs 1")
            }
            (None, None) => Ok(!interrupted.load(Ordering::SeqCst)),
        }
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {wide_msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = ProgressBar::new_spinner().with_style(style);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

struct Worker {
    child: Child,
    /// While it is open the worker works.
    work: Option<ChildStdin>,
    /// What it said is wrong.
    reader: JoinHandle<Option<String>>,
    status: Option<ExitStatus>,
}

impl Worker {
    fn start(
        arguments: &[OsString],
        threads: usize,
        bar: Option<ProgressBar>,
        lines: MultiProgress,
    ) -> Result<Self> {
        let program = std::env::current_exe().context("this program's own file")?;
        let mut child = Command::new(program)
            .args(arguments)
            .env("RAYON_NUM_THREADS", threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a process for a run")?;
        let (work, said) = (child.stdin.take(), child.stderr.take().context("no standard error")?);
        let reader = std::thread::spawn(move || {
            let mut error = None;
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                match (&bar, line.strip_prefix("error: ")) {
                    (_, Some(text)) => error = Some(text.to_string()),
                    (Some(_), None) if line.starts_with("warning: ") => {
                        let _ = lines.println(line);
                    }
                    (Some(bar), None) => bar.set_message(line),
                    (None, None) => eprintln!("{line}"),
                }
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
            error
        });
        Ok(Self { child, work, reader, status: None })
    }

    fn is_at_work(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.is_none()
    }

    /// How it ended, if not by itself or because it was told to.
    fn broken(&self) -> Option<ExitStatus> {
        self.status.filter(|status| !status.success() && status.code() != Some(STOPPED.into()))
    }

    /// Lets it end after the step at hand.
    fn stop(&mut self) {
        self.work = None;
    }

    fn finish(self) -> Result<Option<String>> {
        self.reader
            .join()
            .map_err(|_| anyhow::anyhow!("internal, please report it: lost a run's words"))
    }
}

/// What a process that was interrupted ends with.
pub const STOPPED: u8 = 130;

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
