//! `tra verify`: prints what `tra_lab::verify` found.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tra_lab::observer::Observer;
use tra_lab::verify::{Check, Tolerance, Verdict, VerifyError, verify};
use tra_report::TextTable;

use crate::terminal::{self, Terminal};

/// Check this implementation against tensors recorded elsewhere
///
/// Reads recorded tensors, recomputes the outputs and every gradient, and prints one line per
/// tensor. The exit code is 0 if all agree, 1 if a tensor differs, 2 if a file cannot be checked.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra verify tests/golden/*.safetensors
  tra verify exported.safetensors --rtol 1e-3
  tra verify exported.safetensors --json | jq '.files[].agrees'

docs/verify.md describes the kinds of recordings and how to make one.")]
pub struct Args {
    /// Recordings: safetensors files of one attention operation or of a decoder
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Tolerance of outputs, relative to the tensor's largest value if that is above 1
    #[arg(long, default_value_t = Tolerance::default().atol, value_parser = tolerance)]
    atol: f64,

    /// Tolerance of gradients, relative to the tensor's largest value
    #[arg(long, default_value_t = Tolerance::default().rtol, value_parser = tolerance)]
    rtol: f64,

    /// Device: flex (the CPU), or a GPU backend of this build, for example cuda:0
    #[arg(long, default_value = "flex")]
    device: String,

    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("must be a number of at least 0, for example 1e-5".into()),
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let device = tra_nn::device::by_name(&args.device)?;
    let tolerance = Tolerance { atol: args.atol, rtol: args.rtol };
    let (mut outcomes, mut progress) = (Vec::new(), Terminal::new());
    for path in &args.files {
        progress.status(&format!("verifying {}", path.display()));
        let outcome = verify(path, tolerance, &device);
        progress.clear();
        if !args.json {
            match &outcome {
                Ok(verdict) => terminal::print(&table(verdict))?,
                Err(error) => terminal::say(&format!("error: {error}")),
            }
        }
        outcomes.push((path, outcome));
    }
    let count = |f: fn(&Result<Verdict, VerifyError>) -> bool| {
        outcomes.iter().filter(|(_, outcome)| f(outcome)).count()
    };
    let unreadable = count(Result::is_err);
    let differ = count(|outcome| outcome.as_ref().is_ok_and(|v| !v.agrees()));
    let agree = outcomes.len() - unreadable - differ;
    if args.json {
        let files: Vec<_> = outcomes.iter().map(|(path, outcome)| object(path, outcome)).collect();
        terminal::print(&format!("{:#}\n", json!({ "files": files })))?;
    } else {
        let tensors = outcomes.iter().flat_map(|(_, o)| o.as_ref().ok()).map(|v| v.tensors.len());
        terminal::print(&summary(agree, differ, unreadable, tensors.sum()))?;
    }
    Ok(ExitCode::from(match (unreadable, differ) {
        (0, 0) => 0,
        (0, _) => 1,
        _ => 2,
    }))
}

fn table(verdict: &Verdict) -> String {
    let near = verdict.near_threshold;
    let mut text = format!("{}\n  {}\n", verdict.path.display(), verdict.contents);
    text += &format!(
        "  near-threshold pairs: {} ({} decided differently here and taken from the file)\n",
        near.pairs, near.followed
    );
    let mut table = TextTable::new(1, ["  tensor", "absolute", "relative", "allowed", ""]);
    for Check { name, absolute, relative, allowed, agrees } in &verdict.tensors {
        let number = |x: &Option<f64>| x.map_or("NaN".into(), short);
        let verdict = if *agrees { "ok" } else { "DIFFERS" };
        let (name, verdict) = (format!("  {name}"), verdict.into());
        table.row([name, number(absolute), number(relative), short(*allowed), verdict]);
    }
    format!("{text}{table}\n")
}

fn short(x: f64) -> String {
    if x == 0.0 { "0".into() } else { format!("{x:.1e}") }
}

fn summary(agree: usize, differ: usize, unreadable: usize, tensors: usize) -> String {
    let parts = [(agree, "agree"), (differ, "differ"), (unreadable, "not checked")];
    let parts: Vec<String> =
        parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    format!("files: {} ({tensors} tensors compared)\n", parts.join(", "))
}

fn object(path: &Path, outcome: &Result<Verdict, VerifyError>) -> serde_json::Value {
    match outcome {
        Ok(verdict) => {
            let mut object = json!(verdict);
            object["agrees"] = json!(verdict.agrees());
            object
        }
        Err(error) => json!({ "path": path, "agrees": false, "error": error.to_string() }),
    }
}
