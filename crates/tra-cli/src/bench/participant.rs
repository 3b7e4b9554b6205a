//! A process that runs one case when it is told to: ours or PyTorch's, by the same protocol.
//!
//! It reads the case as one line of JSON, warms up and answers `{"ready": true}`. Then it answers
//! every line `run` with `{"seconds": …}`, and `end` with `{"peak_memory_bytes": …}`. Anything that
//! goes wrong is `{"error": "…"}`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tra_lab::bench::Case;

/// Whose implementation it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    Us,
    /// PyTorch, eager or compiled.
    Torch(String),
}

pub struct Participant {
    pub by: By,
    pub case: Case,
    pub seconds: Vec<f64>,
    pub peak_memory: u64,
    /// Share of the visible pairs that were read, where it is known.
    pub share_read: Option<f64>,
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

/// Why PyTorch does not take part.
pub enum Failed {
    /// There is none.
    Never(anyhow::Error),
    /// It cannot do this case, as for want of memory.
    ThisCase(anyhow::Error),
}

const NO_START: &str = "cannot be started";

/// Our side of the comparison, written to be fair to PyTorch; it travels in the program.
const PEER: &str = include_str!("peer.py");

impl Participant {
    pub fn ours(case: Case, threads: usize) -> Result<Self> {
        let program = std::env::current_exe().context("this program's own file")?;
        let mut command = Command::new(program);
        command.arg("bench-worker").env("RAYON_NUM_THREADS", threads.to_string());
        Self::start(command, By::Us, case, json!({}))
    }

    pub fn torch(case: Case, python: &Path, mode: &str, threads: usize) -> Result<Self, Failed> {
        let mut command = Command::new(python);
        command.args(["-c", PEER]);
        let by = By::Torch(mode.into());
        // Far keys get denormal weights, which slow PyTorch's TRA to half; we take them for 0, and so
        // may it.
        let more = json!({ "mode": mode, "threads": threads, "flush_denormal": true });
        let started = Self::start(command, by, case, more);
        started.map_err(|error| {
            let text = format!("{error:#}");
            let never = text.contains(NO_START) || text.contains("import torch");
            let error = error.context(format!("PyTorch through {}", python.display()));
            if never { Failed::Never(error) } else { Failed::ThisCase(error) }
        })
    }

    fn start(mut command: Command, by: By, case: Case, more: Value) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // What PyTorch has to say about itself is not for this table.
        command.stderr(if by == By::Us { Stdio::inherit() } else { Stdio::null() });
        let mut child = command.spawn().context(NO_START)?;
        let from = child.stdout.take().context("no standard output")?;
        let to = child.stdin.take();
        let mut participant = Self {
            by,
            case,
            seconds: Vec::new(),
            peak_memory: 0,
            share_read: None,
            child,
            to,
            from: BufReader::new(from),
        };
        let mut request = serde_json::to_value(&participant.case)?;
        if let (Some(request), Some(more)) = (request.as_object_mut(), more.as_object()) {
            request.extend(more.clone());
        }
        let ready = participant.ask(&request.to_string())?;
        participant.share_read = ready["share_read"].as_f64();
        Ok(participant)
    }

    fn ask(&mut self, line: &str) -> Result<Value> {
        let Some(to) = &mut self.to else { bail!("has ended") };
        // A process that is gone says why on its standard output, if anywhere.
        let _ = writeln!(to, "{line}").and_then(|()| to.flush());
        let mut answer = String::new();
        self.from.read_line(&mut answer)?;
        if answer.is_empty() {
            let status = self.child.wait()?;
            bail!("ended without an answer ({status}); was there enough memory?");
        }
        let answer: Value =
            serde_json::from_str(&answer).with_context(|| format!("answered {}", answer.trim()))?;
        match answer["error"].as_str() {
            Some(error) => bail!("{}: {error}", self.case.attention),
            None => Ok(answer),
        }
    }

    pub fn run(&mut self) -> Result<()> {
        let answer = self.ask("run")?;
        self.seconds.push(answer["seconds"].as_f64().context("no seconds in the answer")?);
        Ok(())
    }

    pub fn end(&mut self) -> Result<()> {
        self.peak_memory = self.ask("end")?["peak_memory_bytes"].as_u64().unwrap_or(0);
        self.to = None;
        self.child.wait()?;
        Ok(())
    }

    /// Median of the runs.
    pub fn median(&self) -> f64 {
        tra_lab::stats::median(&self.seconds)
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
