//! Our side of the protocol in `participant.rs`.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tra_lab::bench::{Case, PreparedWorkload};

pub fn worker() -> Result<ExitCode> {
    crate::crash::answer_to_asker();
    match serve() {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            say(&json!({ "error": format!("{error:#}") }))?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn say(value: &Value) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{value}")?;
    Ok(out.flush()?)
}

fn serve() -> Result<()> {
    let mut lines = std::io::stdin().lock().lines();
    let line = lines.next().context("no case")??;
    let case: Case = serde_json::from_str(&line).context("the case")?;
    let mut work = PreparedWorkload::new(&case)?;
    let begin = Instant::now();
    // Slow work is warm after once.
    for _ in 0..3 {
        work.run()?;
        if begin.elapsed() > Duration::from_secs(2) {
            break;
        }
    }
    // A single short run cannot be timed well.
    let begin = Instant::now();
    work.run()?;
    let runs = (0.05 / begin.elapsed().as_secs_f64().max(1e-6)).ceil().clamp(1.0, 1000.0) as usize;
    say(&json!({ "ready": true, "share_read": work.share_read }))?;
    for line in lines {
        match line?.as_str() {
            "run" => {
                let begin = Instant::now();
                for _ in 0..runs {
                    work.run()?;
                }
                let seconds = begin.elapsed().as_secs_f64() / (runs * work.repeat) as f64;
                say(&json!({ "seconds": seconds }))?;
            }
            _ => break,
        }
    }
    say(&json!({ "peak_memory_bytes": tra_kernels::memory::peak() }))
}
