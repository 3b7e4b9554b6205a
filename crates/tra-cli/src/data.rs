//! `tra data`: fetching text, looking at it, and making a tokenizer for it.

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

/// Fetch data sets, tokenise text, learn a tokenizer
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra data get wikitext-103                 # into data/wikitext-103
  tra train --text data/wikitext-103 --out runs/wiki
  tra data tokens wiki.train.tokens         # how many, and where they are kept
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

/// Download a data set from the Hugging Face hub, checked; an interrupted download goes on
#[derive(clap::Args)]
#[command(after_help = "\
Data sets: wikitext-103, wikitext-2, flipflop.

Without internet, put the files into a folder by hand and pass it to --text;
the error says which. HF_ENDPOINT names a mirror.")]
struct GetArgs {
    /// wikitext-103, wikitext-2 or flipflop
    name: String,

    /// The folder it goes to [default: data/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Tokenise a text, as `tra train` does, and say what is in it
#[derive(clap::Args)]
struct TokensArgs {
    /// A file or a folder
    text: PathBuf,

    /// gpt2, bytes, or the path of a tokenizer.json
    #[arg(long, default_value = "gpt2")]
    tokenizer: String,

    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Learn a tokenizer of byte pairs from a text
///
/// A small vocabulary makes small models train faster: GPT-2's 50,257 tokens cost a small decoder
/// most of its time and memory.
#[derive(clap::Args)]
struct TokenizerArgs {
    /// A file or a folder
    text: PathBuf,

    /// How many tokens it is to have
    #[arg(long, default_value_t = 4096)]
    vocab: usize,

    /// The tokenizer.json to write
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
        eprintln!("{name}: there already, and its checksum is right");
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
        eprintln!("{}: {}, checked", self.name, terminal::bytes(self.bytes));
    }
}

fn get(args: GetArgs) -> Result<ExitCode> {
    let out = args.out.unwrap_or_else(|| Path::new("data").join(&args.name));
    let mut download = Download { terminal: Terminal::new(), name: String::new(), bytes: 0 };
    let files = tra_fetch::get(&Request::new(&args.name, &out), &mut download);
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
        "{}: {} file(s), {} of text, {} tokens of {} ({:.2} bytes a token)\n{seconds:.1} s; kept in {}\n",
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
            "the text has no more pairs that occur twice: {vocab} tokens it is"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
