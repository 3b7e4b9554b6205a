//! `tra eval`: evaluates a trained model.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use tra_lab::config::Lengths;
use tra_lab::eval::{check, evaluate};
use tra_lab::observer::counting;
use tra_lab::records::Evaluation;
use tra_lab::run_dir::RunDir;
use tra_lab::session::open_task;
use tra_report::{Measure, tables};

use crate::interrupt::{STOPPED, on_interrupt};
use crate::run_folder;
use crate::terminal::{self, Terminal};

/// Evaluate a trained model, at any length
///
/// Prints exact match with its 95% interval, the error per answer token (per read for flip-flop)
/// and the loss. Memory stays bounded at any length. Results are also saved in the run's
/// eval.json.
///
/// DIR is one run. For a folder of runs, the error lists the runs in it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra eval runs/ff
  tra eval runs/ff --split iid,sparse,dense --sequences 256 --json
  tra eval runs/ff --split iid --lengths 512,4096,16384 --sequences 16")]
pub struct Args {
    /// Run directory
    #[arg(value_name = "DIR")]
    run: PathBuf,

    /// Comma-separated splits [default: all except train]
    #[arg(long, value_delimiter = ',')]
    split: Vec<String>,

    /// Comma-separated lengths, or ranges such as 51..100 [default: those of the split]
    #[arg(long, value_delimiter = ',')]
    lengths: Vec<Lengths>,

    /// Number of sequences per split and length
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    sequences: u64,

    /// Step of the checkpoint to use [default: the newest]
    #[arg(long, value_name = "STEP")]
    checkpoint: Option<u64>,

    /// Use the checkpoint that did best in the evaluations during training
    #[arg(long, conflicts_with = "checkpoint")]
    best: bool,

    /// Device: flex (the CPU), or a GPU backend of this build, for example cuda:0
    #[arg(long, default_value = "flex")]
    device: String,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let device = tra_nn::device::by_name(&args.device)?;
    let run = run_folder::open(&args.run)?;
    let config = run.config()?;
    let mut terminal = Terminal::new();
    let task = open_task(&config, &mut terminal)?;
    let wanted = if args.best { Some(run.best_step()?) } else { args.checkpoint };
    let (step, decoder) = match wanted {
        Some(step) => (step, run.model(step, &device)?),
        None => run.newest_model(&device, terminal::warn)?,
    };
    run.check_data_at(step, &task, &decoder)?;
    let specs = config.eval_specs(&args.split, &args.lengths, args.sequences)?;
    // Check all before the first evaluation, which may take long.
    for spec in &specs {
        check(&decoder, &task, spec)?;
    }
    let interrupted = on_interrupt(Some("with the results so far"))?;
    let (begin, measure) = (Instant::now(), config.measure());
    let (mut results, mut failed) = (Vec::new(), None);
    for spec in &specs {
        let what = format!("{} at {}", spec.split, spec.lengths);
        let progress = counting(what, spec.sequences, &mut terminal);
        let result = evaluate(&decoder, &task, spec, &interrupted, progress);
        // Results from before an error or an interrupt are still printed and saved.
        match result {
            Ok(Some(result)) => results.push(result),
            Ok(None) => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    terminal.clear();
    let stopped = results.len() < specs.len();
    if let Some(error) = failed.take_if(|_| results.is_empty()) {
        return Err(error.into());
    }
    let peak =
        tra_kernels::memory::peak().map(|peak| format!(", {} at the peak", terminal::bytes(peak)));
    let seconds = terminal::duration(begin.elapsed().as_secs_f64());
    terminal::say(&format!("took {seconds}{}", peak.unwrap_or_default()));
    let kept = tell(&run, Evaluation { step, results }, measure, args.json)?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(if stopped { ExitCode::from(STOPPED) } else { kept }),
    }
}

fn tell(run: &RunDir, evaluation: Evaluation, measure: Measure, json: bool) -> Result<ExitCode> {
    let text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(&evaluation)?),
        false => tables::evaluation(&evaluation.results, measure),
    };
    terminal::print_and_keep(&text, || run.add_evaluation(&evaluation))
}
