//! Our side of the protocol in `participant.rs`.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Case, PreparedWorkload};
use crate::error::LabError;

/// Runs one case for the process that started this one. Returns whether it succeeded.
pub fn serve(input: impl BufRead, mut output: impl Write) -> std::io::Result<bool> {
    let mut say = |value: &Value| writeln!(output, "{value}").and_then(|()| output.flush());
    let mut lines = input.lines();
    let line = lines.next().transpose()?.unwrap_or_default();
    let (mut work, runs) = match prepare(&line) {
        Ok(prepared) => prepared,
        Err(error) => {
            say(&json!({ "error": error.to_string() }))?;
            return Ok(false);
        }
    };
    say(&json!({ "ready": true, "share_read": work.share_read }))?;
    for line in lines {
        if line? != "run" {
            break;
        }
        let begin = Instant::now();
        for _ in 0..runs {
            if let Err(error) = work.run() {
                say(&json!({ "error": error.to_string() }))?;
                return Ok(false);
            }
        }
        let seconds = begin.elapsed().as_secs_f64() / (runs * work.repeat) as f64;
        say(&json!({ "seconds": seconds }))?;
    }
    say(&json!({ "peak_memory_bytes": tra_kernels::memory::peak() }))?;
    Ok(true)
}

/// Warms up a case, and returns how often to repeat it per timing.
fn prepare(line: &str) -> Result<(PreparedWorkload, usize), LabError> {
    let case: Case = serde_json::from_str(line)
        .map_err(|error| LabError::Other(format!("not a case: {error}")))?;
    let mut work = PreparedWorkload::new(&case)?;
    let begin = Instant::now();
    // Slow work is warm after one run.
    for _ in 0..3 {
        work.run()?;
        if begin.elapsed() > Duration::from_secs(2) {
            break;
        }
    }
    // A single short run cannot be timed precisely.
    let begin = Instant::now();
    work.run()?;
    let runs = (0.05 / begin.elapsed().as_secs_f64().max(1e-6)).ceil().clamp(1.0, 1000.0) as usize;
    Ok((work, runs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Workload;
    use tra_nn::Size;

    #[test]
    fn a_case_is_run_as_often_as_it_is_asked_for() {
        let case = Case::new(Workload::Prefill, "tra", Size::Tiny, 1, 16);
        let input = format!("{}\nrun\nrun\nend\n", serde_json::to_string(&case).unwrap());
        let mut output = Vec::new();
        assert!(serve(input.as_bytes(), &mut output).unwrap());
        let output = String::from_utf8(output).unwrap();
        assert_eq!(output.matches("seconds").count(), 2, "{output}");
        assert!(output.ends_with("}\n") && output.contains("peak_memory_bytes"), "{output}");
        output.lines().for_each(|line| drop(serde_json::from_str::<Value>(line).unwrap()));
    }

    #[test]
    fn what_is_no_case_is_an_error_of_one_line() {
        let mut output = Vec::new();
        assert!(!serve("{}\n".as_bytes(), &mut output).unwrap());
        let output = String::from_utf8(output).unwrap();
        assert!(output.starts_with("{\"error\":\"not a case") && output.lines().count() == 1);
    }
}
