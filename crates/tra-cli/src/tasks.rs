//! `tra tasks` and `tra sample`: what there is to learn, and what it looks like.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tra_lab::budget;
use tra_lab::config::{Lengths, RunConfig};
use tra_tasks::{TaskInfo, TaskSpec};

use crate::terminal;

/// List the tasks and their splits
#[derive(clap::Args)]
pub struct TasksArgs {
    /// One JSON object instead of a list
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

/// Print samples of a task
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra sample flipflop --length 16 --count 3
  tra sample copy --length 5 --set task.alphabet=26
  tra sample addition --split 21-40
  tra sample text --length 16 --set task.text=wiki.test.tokens

Answers, the tokens a model is scored on, stand in [brackets].")]
pub struct SampleArgs {
    /// The task: see `tra tasks`
    task: String,

    /// The split to draw from
    #[arg(long, default_value = "train")]
    split: String,

    /// The length, or a range as 1..50 [default: the split's own]
    #[arg(long)]
    length: Option<Lengths>,

    /// How many
    #[arg(long, default_value_t = 3)]
    count: u64,

    /// The seed
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// A setting of the task, as task.alphabet=26
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,

    /// Tokens and answers as JSON
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
    // One at a time: there may be more than memory holds.
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
