//! `tra perplexity`: perplexity of a language model as its window grows.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use tra_lab::perplexity::{Windows, measure};
use tra_lab::records::Protocol;
use tra_report::tables;

use crate::model::ModelArgs;
use crate::terminal::{self, Terminal};

/// Measure the perplexity of a text at any window
///
/// Protocol `chunk` cuts the text into windows that do not overlap. Protocol `sliding` moves the
/// window by a stride and scores only the new tokens, so that every token has at least
/// window - stride tokens before it. Both score every token except the first exactly once.
///
/// Memory stays bounded at any window. Results are also saved in the run's perplexity.json and
/// shown in its report.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra perplexity runs/wiki --text wiki.test.tokens
  tra perplexity runs/wiki --text wiki.test.tokens --protocol chunk,sliding \\
      --windows 128,256,512,1024,2048,4096 --limit 100000
  tra perplexity model.safetensors --text book.txt --windows 16384 --json

Intervals are 95% intervals over blocks of 1,024 consecutive tokens. The column
`change` compares each window with the first one, token by token.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Text to score: a file or a folder, as for `tra train`
    #[arg(long, value_name = "PATH")]
    text: PathBuf,

    /// Comma-separated windows, in tokens
    #[arg(long, value_delimiter = ',', default_value = "128,256,512,1024,2048,4096")]
    windows: Vec<usize>,

    /// Comma-separated protocols: chunk, sliding
    #[arg(long, value_delimiter = ',', default_value = "chunk")]
    protocol: Vec<Protocol>,

    /// Stride of --protocol sliding [default: half the window]
    #[arg(long, value_name = "TOKENS")]
    stride: Option<usize>,

    /// Score only the first TOKENS tokens of the text
    #[arg(long, value_name = "TOKENS")]
    limit: Option<usize>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let mut all: Vec<Windows> = Vec::new();
    for protocol in &args.protocol {
        for window in &args.windows {
            all.push(Windows::new(*protocol, *window, args.stride)?);
        }
    }
    if args.stride.is_some() && !args.protocol.contains(&Protocol::Sliding) {
        bail!("--stride is for --protocol sliding; the windows of chunk do not overlap");
    }
    let model = args.model.open()?;
    let mut terminal = Terminal::new();
    let found = measure(&model, &args.text, &all, args.limit, &mut terminal)?;
    terminal.clear();
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&found)?),
        false => tables::perplexity(&found),
    };
    let Some(run) = &model.run else {
        terminal::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let kept = terminal::print_and_keep(&text, || run.add_perplexity(&found))?;
    tra_lab::report::write_for(run, terminal::warn);
    Ok(kept)
}
