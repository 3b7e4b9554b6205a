//! `tra tasks` and `tra sample`: the tasks, and sequences drawn from them.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tra_lab::budget;
use tra_lab::config::{Lengths, RunConfig};
use tra_tasks::{TaskInfo, TaskSpec};

use crate::names::{self, Names};
use crate::terminal;

/// List the tasks and their splits
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra tasks
  tra tasks --json | jq '.tasks[].name'
  tra sample copy                         # what a task looks like")]
pub struct TasksArgs {
    /// Print one JSON object instead of a list
    #[arg(long)]
    json: bool,
}

pub fn tasks(args: TasksArgs) -> Result<ExitCode> {
    let mut text = String::new();
    let mut all = Vec::new();
    for task in TaskSpec::all() {
        let TaskInfo { name, about, unit, splits, .. } = *task.info();
        text += &format!("{name}: {about}\n");
        for split in splits {
            let lengths = Lengths { from: split.from, to: split.to };
            let lengths = format!("{lengths} {unit}");
            text += &format!("  {:<10} {lengths:<18} {}\n", split.name, split.about);
        }
        all.push(json!({
            "name": name, "about": about, "vocab": task.vocab(), "unit": unit,
            "splits": splits.iter().map(|s| json!({
                "name": s.name, "about": s.about, "from": s.from, "to": s.to,
            })).collect::<Vec<_>>(),
        }));
    }
    terminal::print(&if args.json { format!("{:#}\n", json!({ "tasks": all })) } else { text })?;
    Ok(ExitCode::SUCCESS)
}

/// Print sample sequences of a task
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra sample flipflop --length 16 --count 3
  tra sample copy --length 5 --set task.alphabet=26
  tra sample addition --split 21-40
  tra sample text --length 16 --set task.text=wiki.test.tokens

Answers, the tokens that a model is scored on, are in [brackets].")]
pub struct SampleArgs {
    /// Task (see `tra tasks`)
    #[arg(value_parser = Names(names::tasks), hide_possible_values = true)]
    task: String,

    /// Split to draw from
    #[arg(long, default_value = "train")]
    split: String,

    /// Length, or a range such as 1..50 [default: that of the split]
    #[arg(long)]
    length: Option<Lengths>,

    /// Number of sequences
    #[arg(long, default_value_t = 3)]
    count: u64,

    /// Random seed
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Set an option of the task, for example task.alphabet=26
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,

    /// Print tokens and answers as one JSON object
    #[arg(long)]
    json: bool,
}

pub fn sample(args: SampleArgs) -> Result<ExitCode> {
    args.task.parse::<TaskSpec>()?;
    let config = RunConfig::of_task(&args.task, args.length, &args.set)?;
    let task = config.task.open()?;
    let lengths = match args.length {
        Some(lengths) => lengths,
        None => config.split_lengths(&args.split)?,
    };
    task.check_lengths((lengths.from, lengths.to))?;
    budget::sample(&task, lengths).check()?;
    if args.json {
        terminal::print("{\"samples\":[")?;
    }
    // One at a time: --count may be larger than memory.
    for index in 0..args.count {
        let sample = task.draw(&args.split, (lengths.from, lengths.to), args.seed, index)?;
        if args.json {
            let comma = if index > 0 { "," } else { "" };
            let sample = json!({ "tokens": sample.tokens, "scored": sample.scored });
            terminal::print(&format!("{comma}{sample}"))?;
            continue;
        }
        let tokens = sample.tokens.iter().zip(&sample.scored).map(|(token, scored)| {
            let name = task.token_name(*token);
            if *scored { format!("[{name}]") } else { name }
        });
        terminal::print(&format!("{}\n", tokens.collect::<Vec<_>>().join(" ")))?;
    }
    if args.json {
        terminal::print("]}\n")?;
    }
    Ok(ExitCode::SUCCESS)
}
