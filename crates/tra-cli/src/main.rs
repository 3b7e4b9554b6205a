//! The `tra` program: parses, calls `tra-lab`, prints.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod bench;
mod crash;
mod data;
mod demo;
mod eval;
mod generate;
mod interrupt;
mod model;
mod perplexity;
mod report;
mod reproduce;
mod sweep;
mod tasks;
mod terminal;
mod train;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Where memory is short, one line says so.
#[global_allocator]
static ALLOCATOR: tra_kernels::memory::Allocator =
    tra_kernels::memory::Allocator::new(crash::out_of_memory);

/// Threshold Relative Attention: attention that keeps working on sequences far longer than those
/// it was trained on.
#[derive(Parser)]
#[command(name = "tra", version, max_term_width = 80)]
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
    Tasks(tasks::TasksArgs),
    Sample(tasks::SampleArgs),
    Data(data::Args),
    Verify(verify::Args),
    Bench(bench::Args),
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
        Command::Tasks(args) => tasks::tasks(args),
        Command::Sample(args) => tasks::sample(args),
        Command::Data(args) => data::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Bench(args) => bench::run(args),
        Command::BenchWorker => bench::worker(),
    };
    outcome.unwrap_or_else(|error| {
        terminal::say(&format!("error: {error:#}"));
        ExitCode::from(2)
    })
}
