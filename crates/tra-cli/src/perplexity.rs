//! `tra perplexity`: perplexity of a language model as its window grows.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use tra_lab::language::LanguageModel;
use tra_lab::perplexity::{Windows, change, losses, summarise};
use tra_lab::records::{Perplexity, Protocol};
use tra_text::{Corpus, Part, default_cache};

use crate::model::ModelArgs;
use crate::terminal;

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
    let found = measure(&model, &args.text, &all, args.limit)?;
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&found)?),
        false => table(&found),
    };
    let Some(run) = &model.run else {
        terminal::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let kept = terminal::print_and_keep(&text, || run.add_perplexity(&found))?;
    crate::report::write_for(run);
    Ok(kept)
}

/// Measures the perplexity of a text, or of its first `limit` tokens, at each of the windows `all`.
pub fn measure(
    model: &LanguageModel,
    text: &Path,
    all: &[Windows],
    limit: Option<usize>,
) -> Result<Perplexity> {
    let corpus = Corpus::find(text, Part::Test)?;
    let mut bar = terminal::Bytes::new("tokenising");
    let name = terminal::file_name(text);
    let tokens = corpus.tokens(&model.tokenizer, &default_cache()?, &mut |done| {
        bar.show(&name, done.read, done.of);
    });
    bar.finish();
    let tokens = tokens?;
    let count = tokens.len().min(limit.unwrap_or(usize::MAX));
    if count < 2 {
        bail!("{name}: too short; at least 2 tokens are needed, one to read and one to predict");
    }
    let scored = count as u64 - 1;
    let longest = all.iter().map(|windows| windows.window).max().unwrap_or(0);
    if longest as u64 > scored {
        let scored = terminal::thousands(scored);
        terminal::warn(format!(
            "{name} has only {scored} tokens to score; longer windows contain the whole text"
        ));
    }
    // Where decoding loses text (`[UNK]`, lower case), the share of the text's own bytes.
    let share = tokens.text_bytes() as f64 * scored as f64 / tokens.len() as f64;
    let content = tokens.key().to_string();
    let tokens = tokens.range(0..count);
    let bytes = match model.tokenizer.is_lossless() {
        true => model.tokenizer.decode(&tokens[1..]).len() as u64,
        false => share.round() as u64,
    };
    let mut results = Vec::new();
    // The losses at the first window of the protocol at hand.
    let mut first: Option<(Windows, Vec<(f64, usize)>)> = None;
    for &windows in all {
        let of = format!("{} at {}", windows.protocol.name(), windows.window);
        let mut progress = terminal::Counting::new(of, scored);
        let losses = losses(&model.decoder, &tokens, windows, |done| progress.show(done as u64))?;
        progress.finish();
        let mut result = summarise(&losses, windows, bytes);
        match &first {
            Some((other, before)) if other.protocol == windows.protocol => {
                result.change = Some(change(&losses, before, other.window));
            }
            _ => first = Some((windows, losses)),
        }
        results.push(result);
    }
    let text = text.display().to_string();
    Ok(Perplexity { step: model.step, text, content, tokens: scored, bytes, results })
}

fn table(found: &Perplexity) -> String {
    let (tokens, bytes) = (terminal::thousands(found.tokens), terminal::bytes(found.bytes));
    let mut text = format!("{}: {tokens} tokens scored, {bytes}\n", found.text);
    text += &format!(
        "{:<9} {:>6} {:>6} {:>10} {:>17} {:>15} {:>9}\n",
        "protocol", "window", "stride", "perplexity", "95% interval", "change", "bits/byte"
    );
    for r in &found.results {
        let [low, high] = r.perplexity_interval;
        let change = r.change.as_ref().map_or(String::new(), |change| {
            let percent = |difference: f64| 100.0 * (difference.exp() - 1.0);
            let reach = (percent(change.loss_interval[1]) - percent(change.loss_interval[0])) / 2.0;
            format!("{:+.2}±{reach:.2}%", percent(change.loss))
        });
        text += &format!(
            "{:<9} {:>6} {:>6} {:>10.2} {:>17} {change:>15} {:>9.4}\n",
            r.protocol.name(),
            r.window,
            r.stride,
            r.perplexity,
            format!("{low:.2}..{high:.2}"),
            r.bits_per_byte
        );
    }
    text
}
