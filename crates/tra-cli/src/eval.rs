//! `tra eval`: tests a trained model.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use tra_lab::config::Lengths;
use tra_lab::eval::{Question, evaluate};
use tra_lab::records::Evaluation;
use tra_lab::run_dir::RunDir;

use crate::show;

/// Test a trained model, at any length
///
/// Exact match, error per answer token (per read for flip-flop) and loss, each with its 95%
/// interval. Memory stays bounded at any length. Results are also kept in the run's eval.json.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra eval runs/ff
  tra eval runs/ff --split iid,sparse,dense --sequences 256 --json
  tra eval runs/ff --split iid --lengths 512,4096,16384 --sequences 16")]
pub struct Args {
    /// The run directory
    #[arg(value_name = "DIR")]
    run: PathBuf,

    /// Splits, separated by commas [default: all but train]
    #[arg(long, value_delimiter = ',')]
    split: Vec<String>,

    /// Lengths, separated by commas; a range as 51..100 draws from it [default: the split's own]
    #[arg(long, value_delimiter = ',')]
    lengths: Vec<Lengths>,

    /// Sequences of each split and length
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    sequences: u64,

    /// Which checkpoint: a step [default: the newest]
    #[arg(long, value_name = "STEP")]
    checkpoint: Option<u64>,

    /// The best checkpoint by the evaluations during training
    #[arg(long, conflicts_with = "checkpoint")]
    best: bool,

    /// Where to compute: flex (the CPU), or a GPU backend this build has, as in cuda:0
    #[arg(long, default_value = "flex")]
    device: String,

    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let device = tra_nn::device::by_name(&args.device)?;
    let run = RunDir::open(&args.run)?;
    let config = run.config()?;
    show::open_text(&config)?;
    let task = config.task.build()?;
    let wanted = if args.best { Some(run.best_step()?) } else { args.checkpoint };
    let (step, decoder) = match wanted {
        Some(step) => (step, run.model(step, &device)?),
        None => run.newest_model(&device, show::warn)?,
    };
    run.check_data(task.as_ref(), &decoder, &run.position()?.unwrap_or_default())?;
    let splits = if args.split.is_empty() { config.eval_splits() } else { args.split };
    let mut results = Vec::new();
    let begin = Instant::now();
    for split in splits {
        let own = config.split_lengths(&split)?;
        let lengths = if args.lengths.is_empty() { vec![own] } else { args.lengths.clone() };
        for lengths in lengths {
            let spinner = show::spinner(format!("{split} at {lengths}"));
            let question = Question {
                split: split.clone(),
                lengths,
                sequences: args.sequences,
                seed: config.seed,
            };
            let result = evaluate(&decoder, task.as_ref(), &question, |done| {
                spinner.set_message(format!("{split} at {lengths}: {done}/{}", args.sequences));
            });
            spinner.finish_and_clear();
            results.push(result?);
        }
    }
    let peak =
        tra_kernels::memory::peak().map(|peak| format!(", {} at the peak", show::bytes(peak)));
    let seconds = show::duration(begin.elapsed().as_secs_f64());
    eprintln!("took {seconds}{}", peak.unwrap_or_default());
    let evaluation = Evaluation { step, results };
    run.merge_evaluation(&evaluation)?;
    match args.json {
        true => show::print(&format!("{}\n", serde_json::to_string_pretty(&evaluation)?))?,
        false => show::print(&show::results_table(&evaluation.results, config.task.measure()))?,
    }
    Ok(ExitCode::SUCCESS)
}
