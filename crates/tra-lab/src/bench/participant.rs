//! A process that runs one case on request, ours or PyTorch's. Both use the same protocol.
//!
//! The process reads the case as one line of JSON, warms up and answers `{"ready": true}`. It
//! answers every line `run` with `{"seconds": …}`, and `end` with `{"peak_memory_bytes": …}`. It
//! reports an error as `{"error": "…"}`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::Case;
use crate::error::LabError;
use crate::stats::median;

/// The implementation that is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// This one.
    Us,
    /// PyTorch, eager or compiled.
    Torch(String),
}

impl By {
    /// Returns its name in a table.
    pub fn label(&self) -> String {
        match self {
            By::Us => "tra".into(),
            By::Torch(mode) => format!("torch {mode}"),
        }
    }
}

/// A process that runs one case on request.
pub struct Participant {
    /// The implementation.
    pub by: By,
    /// The case.
    pub case: Case,
    /// Seconds of every run so far.
    pub seconds: Vec<f64>,
    /// Peak memory in bytes, known when the process has ended.
    pub peak_memory: u64,
    /// Fraction of the visible pairs that were read, if known.
    pub share_read: Option<f64>,
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

/// Why a process cannot take part.
pub(super) enum Failed {
    /// It cannot be started, or PyTorch is missing.
    Never(LabError),
    /// It cannot run this case, for example because memory is short.
    ThisCase(LabError),
}

impl From<Failed> for LabError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Never(error) | Failed::ThisCase(error) => error,
        }
    }
}

/// The PyTorch side of the comparison, embedded in the program.
const PEER: &str = include_str!("peer.py");

impl Participant {
    /// Starts this implementation. The argument `bench-worker` of `program` must call
    /// [`serve`](super::serve).
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
        // Far keys get denormal weights, which double the time of TRA in PyTorch. Our kernels flush
        // them to 0, so PyTorch may too.
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
        // PyTorch's own messages do not belong in the output.
        command.stderr(if by == By::Us { Stdio::inherit() } else { Stdio::null() });
        let cannot = |error| Failed::Never(LabError::Other(format!("cannot be started: {error}")));
        let mut child = command.spawn().map_err(cannot)?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let Some(from) = from else { unreachable!("standard output is piped") };
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

    /// Sends a request and returns the answer.
    fn ask(&mut self, line: &str) -> Result<Value, Failed> {
        let wrong = |text: String| Err(Failed::ThisCase(LabError::Other(text)));
        if let Some(to) = &mut self.to {
            // A write error is ignored: a process that ended has explained why on its standard
            // output.
            let _ = writeln!(to, "{line}").and_then(|()| to.flush());
        }
        let mut text = String::new();
        if let Err(error) = self.from.read_line(&mut text) {
            return wrong(format!("its answer cannot be read: {error}"));
        }
        if text.is_empty() {
            let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
            return wrong(format!(
                "ended without an answer ({status}); if memory ran out, measure a smaller case"
            ));
        }
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        match answer["error"].as_str() {
            Some(error) => {
                let error = LabError::Other(format!("{}: {error}", self.case.attention));
                // The answer says so if PyTorch is missing.
                let never = answer["missing"] == "torch";
                Err(if never { Failed::Never(error) } else { Failed::ThisCase(error) })
            }
            None if !answer.is_object() => wrong(format!("answered {}", text.trim())),
            None => Ok(answer),
        }
    }

    pub(super) fn run(&mut self) -> Result<(), LabError> {
        let answer = self.ask("run")?;
        let missing = || LabError::Other("the answer contains no seconds".into());
        self.seconds.push(answer["seconds"].as_f64().ok_or_else(missing)?);
        Ok(())
    }

    pub(super) fn end(&mut self) -> Result<(), LabError> {
        self.peak_memory = self.ask("end")?["peak_memory_bytes"].as_u64().unwrap_or(0);
        self.to = None;
        let _ = self.child.wait();
        Ok(())
    }

    /// Returns the median time of the runs.
    pub fn median(&self) -> f64 {
        median(&self.seconds)
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        if self.to.is_some() {
            // After an error elsewhere nobody asks this process again.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
