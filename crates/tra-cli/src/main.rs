//! The `tra` program: parses, calls `tra-lab`, prints.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod bench;
mod completions;
mod crash;
mod data;
mod demo;
mod eval;
mod generate;
mod interrupt;
mod mechanisms;
mod model;
mod names;
mod perplexity;
mod report;
mod reproduce;
mod run_folder;
mod sweep;
mod tasks;
mod terminal;
mod train;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Prints one line when memory runs out.
#[global_allocator]
static ALLOCATOR: tra_kernels::memory::Allocator =
    tra_kernels::memory::Allocator::new(crash::out_of_memory);

/// Threshold Relative Attention: attention that generalises to sequences far longer than those it
/// was trained on
#[derive(Parser)]
#[command(name = "tra", version, max_term_width = 80)]
#[command(after_help = "\
Examples:
  tra demo                                # TRA and RoPE, in a minute or two
  tra train --task copy --length 1..50 --steps 300 --out runs/copy
  tra eval runs/copy --lengths 100,200
  tra COMMAND --help                      # options and examples of a command")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Train(Box<train::Args>),
    Eval(eval::Args),
    Perplexity(perplexity::Args),
    Generate(generate::Args),
    Report(report::Args),
    Reproduce(reproduce::Args),
    Sweep(sweep::Args),
    Mechanisms(mechanisms::Args),
    Tasks(tasks::TasksArgs),
    Sample(tasks::SampleArgs),
    Data(data::Args),
    Verify(verify::Args),
    Bench(bench::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    BenchWorker,
}

fn main() -> ExitCode {
    tra_kernels::memory::keep_freed_memory();
    crash::set_hook();
    let command = Cli::parse().command;
    if let Err(error) = crash::check_environment() {
        terminal::say(&format!("error: {error}"));
        return ExitCode::from(2);
    }
    let outcome = match command {
        Command::Demo(args) => demo::run(args),
        Command::Train(args) => train::run(*args),
        Command::Eval(args) => eval::run(args),
        Command::Perplexity(args) => perplexity::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Report(args) => report::run(args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Mechanisms(args) => mechanisms::run(args),
        Command::Tasks(args) => tasks::tasks(args),
        Command::Sample(args) => tasks::sample(args),
        Command::Data(args) => data::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Completions(args) => completions::run(args),
        Command::BenchWorker => bench::worker(),
    };
    outcome.unwrap_or_else(|error| {
        terminal::say(&format!("error: {error:#}"));
        ExitCode::from(2)
    })
}
