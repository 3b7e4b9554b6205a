//! `tra completions`: tab completion for shells.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::terminal;

/// Print a script that lets a shell complete `tra` commands
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  source <(tra completions bash)          # for this session; or in ~/.bashrc
  tra completions zsh > ~/.zfunc/_tra     # a folder of your $fpath
  tra completions fish > ~/.config/fish/completions/tra.fish
  tra completions powershell >> $PROFILE")]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub fn run(args: Args) -> Result<ExitCode> {
    // Into memory: the generator panics where it cannot write.
    let mut script = Vec::new();
    generate(args.shell, &mut visible(), "tra", &mut script);
    terminal::print(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the program without the commands that it only calls itself.
fn visible() -> clap::Command {
    let all = crate::Cli::command();
    let commands = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    clap::Command::new("tra").version(env!("CARGO_PKG_VERSION")).subcommands(commands)
}
