//! A process that runs one case when it is told to: ours or PyTorch's, by the same protocol.
//!
//! It reads the case as one line of JSON, warms up and answers `{"ready": true}`. Then it answers
//! every line `run` with `{"seconds": …}`, and `end` with `{"peak_memory_bytes": …}`. Anything that
//! goes wrong is `{"error": "…"}`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::Case;
use crate::error::LabError;
use crate::stats::median;

/// Whose implementation it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Ours.
    Us,
    /// PyTorch, eager or compiled.
    Torch(String),
}

impl By {
    /// Name in a table.
    pub fn label(&self) -> String {
        match self {
            By::Us => "tra".into(),
            By::Torch(mode) => format!("torch {mode}"),
        }
    }
}

/// A process that runs one case when it is told to.
pub struct Participant {
    /// Whose implementation it is.
    pub by: By,
    /// What it runs.
    pub case: Case,
    /// Seconds of every run so far.
    pub seconds: Vec<f64>,
    /// Bytes at its peak, once it has ended.
    pub peak_memory: u64,
    /// Share of the visible pairs that were read, where it is known.
    pub share_read: Option<f64>,
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

/// Why a process cannot take part.
pub(super) enum Failed {
    /// It cannot be started, or has no PyTorch.
    Never(LabError),
    /// It cannot do this case, as for want of memory.
    ThisCase(LabError),
}

impl From<Failed> for LabError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Never(error) | Failed::ThisCase(error) => error,
        }
    }
}

/// PyTorch's side of the comparison, written to be fair to it; it travels in the program.
const PEER: &str = include_str!("peer.py");

impl Participant {
    /// `program` is one whose argument `bench-worker` calls [`serve`](super::serve).
    pub(super) fn ours(case: Case, program: &Path, threads: usize) -> Result<Self, LabError> {
        let mut command = Command::new(program);
        command.arg("bench-worker").env("RAYON_NUM_THREADS", threads.to_string());
        Ok(Self::start(command, By::Us, case, json!({}))?)
    }

    pub(super) fn torch(
        case: Case,
        python: &Path,
        mode: &str,
        threads: usize,
    ) -> Result<Self, Failed> {
        let mut command = Command::new(python);
        command.args(["-c", PEER]);
        // Far keys get denormal weights, which slow PyTorch's TRA to half; we take them for 0, and so
        // may it.
        let more = json!({ "mode": mode, "threads": threads, "flush_denormal": true });
        let named =
            |error| LabError::Other(format!("PyTorch through {}: {error}", python.display()));
        Self::start(command, By::Torch(mode.into()), case, more).map_err(|failed| match failed {
            Failed::Never(error) => Failed::Never(named(error)),
            Failed::ThisCase(error) => Failed::ThisCase(named(error)),
        })
    }

    fn start(mut command: Command, by: By, case: Case, more: Value) -> Result<Self, Failed> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // What PyTorch has to say about itself is not for this table.
        command.stderr(if by == By::Us { Stdio::inherit() } else { Stdio::null() });
        let cannot = |error| Failed::Never(LabError::Other(format!("cannot be started: {error}")));
        let mut child = command.spawn().map_err(cannot)?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let Some(from) = from else { unreachable!("standard output was asked for") };
        let mut request = serde_json::to_value(&case).unwrap_or_default();
        if let (Some(request), Some(more)) = (request.as_object_mut(), more.as_object()) {
            request.extend(more.clone());
        }
        let (seconds, from) = (Vec::new(), BufReader::new(from));
        let mut participant =
            Self { by, case, seconds, peak_memory: 0, share_read: None, child, to, from };
        let ready = participant.ask(&request.to_string())?;
        participant.share_read = ready["share_read"].as_f64();
        Ok(participant)
    }

    /// Asks, and returns the answer.
    fn ask(&mut self, line: &str) -> Result<Value, Failed> {
        let wrong = |text: String| Err(Failed::ThisCase(LabError::Other(text)));
        if let Some(to) = &mut self.to {
            // A process that is gone says why on its standard output, if anywhere.
            let _ = writeln!(to, "{line}").and_then(|()| to.flush());
        }
        let mut text = String::new();
        if let Err(error) = self.from.read_line(&mut text) {
            return wrong(format!("cannot be heard: {error}"));
        }
        if text.is_empty() {
            let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
            return wrong(format!("ended without an answer ({status}); was there enough memory?"));
        }
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        match answer["error"].as_str() {
            Some(error) => {
                let error = LabError::Other(format!("{}: {error}", self.case.attention));
                // What has no PyTorch says which kind of error it is.
                let never = answer["missing"] == "torch";
                Err(if never { Failed::Never(error) } else { Failed::ThisCase(error) })
            }
            None if !answer.is_object() => wrong(format!("answered {}", text.trim())),
            None => Ok(answer),
        }
    }

    pub(super) fn run(&mut self) -> Result<(), LabError> {
        let answer = self.ask("run")?;
        let missing = || LabError::Other("no seconds in the answer".into());
        self.seconds.push(answer["seconds"].as_f64().ok_or_else(missing)?);
        Ok(())
    }

    pub(super) fn end(&mut self) -> Result<(), LabError> {
        self.peak_memory = self.ask("end")?["peak_memory_bytes"].as_u64().unwrap_or(0);
        self.to = None;
        let _ = self.child.wait();
        Ok(())
    }

    /// Median of the runs.
    pub fn median(&self) -> f64 {
        median(&self.seconds)
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        if self.to.is_some() {
            // An error elsewhere: nobody will ask this one again.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
