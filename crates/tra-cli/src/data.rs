//! `tra data`: downloads data sets, tokenises text, and learns tokenizers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use tra_fetch::Request;
use tra_lab::language::learn_tokenizer;
use tra_lab::observer::{Event, Observer};
use tra_lab::session::tokenising;
use tra_text::{Corpus, Part, Progress, Tokenizer, default_cache};

use crate::terminal::{self, Terminal};

/// Download data sets, tokenise text, learn a tokenizer
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra data get wikitext-103                 # into data/wikitext-103
  tra train --text data/wikitext-103 --out runs/wiki
  tra data tokens wiki.train.tokens         # number of tokens
  tra data tokenizer wiki.train.tokens --vocab 4096 --out tokenizer.json")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Get(GetArgs),
    Tokens(TokensArgs),
    Tokenizer(TokenizerArgs),
}

/// Download a data set from the Hugging Face hub
///
/// Files are checked against their checksums. An interrupted download is continued.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra data get wikitext-103                 # into data/wikitext-103
  tra data get flipflop --out /data/ff
  HF_ENDPOINT=https://hf-mirror.example tra data get wikitext-2

Without internet access, copy the files into a folder and pass it to
`tra train --text`. The error message lists the files.")]
struct GetArgs {
    /// Data set: wikitext-103, wikitext-2 or flipflop
    name: String,

    /// Output directory [default: data/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Tokenise a text as `tra train` does, and count its tokens
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra data tokens wiki.train.tokens
  tra data tokens books/ --tokenizer tokenizer.json --json

The tokens are cached, so that `tra train` starts at once.")]
struct TokensArgs {
    /// Text: a file or a folder
    text: PathBuf,

    /// Tokenizer: gpt2, bytes, or the path of a tokenizer.json
    #[arg(long, default_value = "gpt2")]
    tokenizer: String,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Learn a byte-pair tokenizer from a text
///
/// Small models train faster with a small vocabulary: with GPT-2's 50,257 tokens, a small decoder
/// spends most of its time and memory on the vocabulary.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra data tokenizer wiki.train.tokens --vocab 4096 --out tokenizer.json
  tra train --text wiki.train.tokens --tokenizer tokenizer.json --out runs/wiki")]
struct TokenizerArgs {
    /// Text: a file or a folder
    text: PathBuf,

    /// Number of tokens in the vocabulary
    #[arg(long, default_value_t = 4096)]
    vocab: usize,

    /// Output file (tokenizer.json)
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Get(args) => get(args),
        Command::Tokens(args) => tokens(args),
        Command::Tokenizer(args) => tokenizer(args),
    }
}

struct Download {
    terminal: Terminal,
    name: String,
    bytes: u64,
}

impl tra_fetch::Observer for Download {
    fn present(&mut self, name: &str) {
        terminal::say(&format!("{name}: already present, checksum correct"));
    }

    fn file(&mut self, name: &str, bytes: u64) {
        (self.name, self.bytes) = (name.into(), bytes);
    }

    fn progress(&mut self, done: u64) {
        let what = format!("downloading {}", self.name);
        self.terminal.event(Event::Progress { what, done, of: self.bytes, bytes: true });
    }

    fn finished(&mut self) {
        self.terminal.clear();
        terminal::say(&format!("{}: {}, checksum correct", self.name, terminal::bytes(self.bytes)));
    }
}

fn get(args: GetArgs) -> Result<ExitCode> {
    let out = args.out.unwrap_or_else(|| Path::new("data").join(&args.name));
    let mut download = Download { terminal: Terminal::new(), name: String::new(), bytes: 0 };
    let mirror = std::env::var("HF_ENDPOINT").ok().filter(|address| !address.is_empty());
    let endpoint = mirror.as_deref().unwrap_or(tra_fetch::HUB);
    let request = Request { endpoint, ..Request::new(&args.name, &out) };
    let files = tra_fetch::get(&request, &mut download);
    download.terminal.clear();
    for file in files? {
        terminal::print(&format!("{}\n", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tokens(args: TokensArgs) -> Result<ExitCode> {
    let tokenizer = Tokenizer::open(&args.tokenizer)?;
    let corpus = Corpus::find(&args.text, Part::Train)?;
    let mut terminal = Terminal::new();
    let (begin, cache) = (Instant::now(), default_cache()?);
    let progress = &mut |done: Progress| tokenising(&args.text, done.read, done.of, &mut terminal);
    let tokens = corpus.tokens(&tokenizer, &cache, progress)?;
    terminal.clear();
    let seconds = begin.elapsed().as_secs_f64();
    if args.json {
        let about = json!({
            "files": corpus.files(), "tokenizer": args.tokenizer, "vocab": tokenizer.vocab(),
            "tokens": tokens.len(), "bytes": tokens.text_bytes(), "cache": cache,
        });
        terminal::print(&format!("{about:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (count, bytes) = (tokens.len() as u64, tokens.text_bytes());
    terminal::print(&format!(
        "{}: {} file(s), {} of text, {} tokens of {} ({:.2} bytes per token)\n{seconds:.1} s; cached in {}\n",
        args.text.display(),
        corpus.files().len(),
        terminal::bytes(bytes),
        terminal::thousands(count),
        tokenizer.name(),
        bytes as f64 / count as f64,
        cache.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn tokenizer(args: TokenizerArgs) -> Result<ExitCode> {
    let mut terminal = Terminal::new();
    terminal.status(&format!("learning from {}", terminal::file_name(&args.text)));
    let vocab = learn_tokenizer(&args.text, args.vocab, &args.out)?;
    terminal.clear();
    let out = args.out.display();
    terminal::print(&format!("{out}: {} tokens\n", terminal::thousands(vocab as u64)))?;
    if vocab < args.vocab {
        terminal::warn(format!(
            "no other pair occurs twice in the text, so the tokenizer has only {vocab} tokens"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
