//! Tables of speed and memory, from the JSON that `tra bench --json` prints.

use serde_json::Value;

use super::{Arguments, markdown};
use crate::data::{Data, select, text_of};
use crate::format;

/// Writes one row per case, one column per implementation.
///
/// `rope` is our implementation, `rope:eager` that of PyTorch in this mode, and `rope:torch` the
/// fastest of PyTorch.
pub(super) fn table(arguments: &str, data: &Data) -> Result<String, String> {
    let arguments = Arguments::read(arguments, &["columns", "measure"])?;
    let columns = arguments.list("columns").ok_or("columns= is missing")?;
    let measure = match arguments.get("measure") {
        None | Some("time") => Measure::Time,
        Some("memory") => Measure::Memory,
        Some("factor") => Measure::Factor,
        Some(other) => return Err(format!("unknown measure {other}")),
    };
    let mut rows = Vec::new();
    for file in &arguments.words {
        let json = data.json(file)?;
        let results = select(&json, "results")?;
        let mut cases: Vec<String> = results.iter().map(|result| case(result)).collect();
        cases.dedup();
        for name in cases {
            let same: Vec<&Value> = results.iter().copied().filter(|r| case(r) == name).collect();
            let cells = columns.iter().map(|column| cell(&same, column, measure));
            rows.push(std::iter::once(name).chain(cells).collect::<Vec<_>>());
        }
    }
    let header: Vec<String> = std::iter::once(String::new())
        .chain(columns.iter().map(|column| heading(column)))
        .collect();
    Ok(markdown(&header, &rows))
}

/// Names a case, as in `training step, 8 x 512`.
fn case(result: &Value) -> String {
    let name = match text_of(&result["name"]).as_str() {
        "train_step" => "training step".to_string(),
        "op" => "attention alone".to_string(),
        "prefill" => "forward".to_string(),
        "decode" => "one token after a context".to_string(),
        other => other.to_string(),
    };
    let gates = if result["gate"] == "open" { ", open gates" } else { "" };
    let length = format::thousands(result["length"].as_f64().unwrap_or(0.0));
    match result["name"].as_str() {
        Some("decode") => format!("{name} of {length}"),
        _ => format!("{name}, {} x {length}{gates}", result["batch"]),
    }
}

fn heading(column: &str) -> String {
    match column.split_once(':') {
        None => format!("`{column}`"),
        Some((attention, "torch")) => format!("`{attention}`, PyTorch"),
        Some((attention, mode)) => format!("`{attention}`, PyTorch {mode}"),
    }
}

/// The quantity to show.
#[derive(Clone, Copy, PartialEq)]
enum Measure {
    Time,
    Memory,
    /// The time divided by that of our TRA.
    Factor,
}

fn cell(results: &[&Value], column: &str, measure: Measure) -> String {
    let found = value(results, column, measure == Measure::Memory);
    let shown = match measure {
        Measure::Time => found.map(format::time),
        Measure::Memory => found.map(format::bytes),
        Measure::Factor => found
            .zip(value(results, "tra", false))
            .map(|(time, ours)| format!("{:.2}", time / ours)),
    };
    shown.unwrap_or_else(|| "–".into())
}

/// Returns the time in seconds, or the peak memory in bytes.
fn value(results: &[&Value], column: &str, memory: bool) -> Option<f64> {
    let (attention, mode) = column.split_once(':').unwrap_or((column, ""));
    let result = results.iter().find(|result| result["attention"] == attention)?;
    let torch = if memory { "torch_peak_memory_bytes" } else { "torch_seconds" };
    match mode {
        "" => result[if memory { "peak_memory_bytes" } else { "seconds" }].as_f64(),
        "torch" => {
            let seconds = result["torch_seconds"].as_object().into_iter().flatten();
            let modes = seconds.filter_map(|(mode, seconds)| Some((mode, seconds.as_f64()?)));
            let (fastest, _) = modes.min_by(|a, b| a.1.total_cmp(&b.1))?;
            result[torch][fastest].as_f64()
        }
        mode => result[torch][mode].as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_ours_one_mode_or_the_fastest_of_pytorch() {
        let result = serde_json::json!({
            "name": "train_step", "attention": "tra", "batch": 8, "length": 512, "gate": "initial",
            "seconds": 0.4, "peak_memory_bytes": 1048576, "torch_seconds": {"eager": 2.0, "compiled": 1.5},
            "torch_peak_memory_bytes": {"eager": 3145728, "compiled": 2097152},
        });
        let show = |column: &str, measure| cell(&[&result], column, measure);
        let (time, memory) = (Measure::Time, Measure::Memory);
        assert_eq!(case(&result), "training step, 8 x 512");
        assert_eq!([show("tra", time), show("tra:eager", time)], ["400 ms", "2.00 s"]);
        assert_eq!([show("tra:torch", time), show("tra:torch", memory)], ["1.50 s", "2 MiB"]);
        assert_eq!([show("rope", time), show("tra:other", time)], ["–", "–"]);
        assert_eq!(show("tra:eager", Measure::Factor), "5.00");
    }
}
