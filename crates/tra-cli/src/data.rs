//! `tra data`: fetching text, looking at it, and making a tokenizer for it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tra_disk::AtomicFile;
use tra_fetch::{Observer, Request};
use tra_text::{Corpus, Part, TextError, Tokenizer, default_cache, source};

use crate::terminal;

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
    bar: terminal::Bytes,
    name: String,
    bytes: u64,
}

impl Observer for Download {
    fn present(&mut self, name: &str) {
        eprintln!("{name}: there already, and its checksum is right");
    }

    fn file(&mut self, name: &str, bytes: u64) {
        (self.name, self.bytes) = (name.into(), bytes);
    }

    fn progress(&mut self, done: u64) {
        self.bar.show(&self.name, done, self.bytes);
    }

    fn finished(&mut self) {
        self.bar.finish();
        eprintln!("{}: {}, checked", self.name, terminal::bytes(self.bytes));
    }
}

fn get(args: GetArgs) -> Result<ExitCode> {
    let out = args.out.unwrap_or_else(|| Path::new("data").join(&args.name));
    let mut download =
        Download { bar: terminal::Bytes::new("downloading"), name: String::new(), bytes: 0 };
    let mirror = std::env::var("HF_ENDPOINT").ok().filter(|address| !address.is_empty());
    let endpoint = mirror.as_deref().unwrap_or(tra_fetch::HUB);
    let request = Request { endpoint, ..Request::new(&args.name, &out) };
    let files = tra_fetch::get(&request, &mut download);
    download.bar.finish();
    for file in files? {
        terminal::print(&format!("{}\n", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tokens(args: TokensArgs) -> Result<ExitCode> {
    let tokenizer = Tokenizer::open(&args.tokenizer)?;
    let corpus = Corpus::find(&args.text, Part::Train)?;
    let mut bar = terminal::Bytes::new("tokenising");
    let name = terminal::file_name(&args.text);
    let (begin, cache) = (Instant::now(), default_cache()?);
    let tokens = corpus.tokens(&tokenizer, &cache, &mut |done| bar.show(&name, done.read, done.of));
    bar.finish();
    let tokens = tokens?;
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

/// A line longer than this is sent in parts, so that it need not be in memory as a whole.
const LONGEST_LINE: usize = 1 << 18;

/// Sends a file line by line.
fn lines(file: &Path, to: &SyncSender<String>) -> Result<(), TextError> {
    let mut waiting = String::new();
    let send = |line: &str| drop(to.send(line.into()));
    source::read(file, &mut |_| {}, &mut |part| {
        waiting += part;
        if let Some(end) = waiting.rfind('\n') {
            waiting[..=end].split_inclusive('\n').for_each(send);
            waiting.drain(..=end);
        }
        while waiting.len() > LONGEST_LINE {
            let place = part_of(&waiting);
            send(&waiting[..place]);
            waiting.drain(..place);
        }
        Ok(())
    })?;
    send(&waiting);
    Ok(())
}

/// Where a long line is cut: before white space, if there is some.
fn part_of(line: &str) -> usize {
    let most = line.floor_char_boundary(LONGEST_LINE);
    line[..most].rfind(char::is_whitespace).filter(|place| *place > 0).unwrap_or(most)
}

fn tokenizer(args: TokenizerArgs) -> Result<ExitCode> {
    let vocab = learn_tokenizer(&args.text, args.vocab, &args.out)?;
    let out = args.out.display();
    terminal::print(&format!("{out}: {} tokens\n", terminal::thousands(vocab as u64)))?;
    if vocab < args.vocab {
        terminal::warn(format!(
            "the text has no more pairs that occur twice: {vocab} tokens it is"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Learns a tokenizer from the training part of a text and writes it; how many tokens it has.
pub fn learn_tokenizer(text: &Path, vocab: usize, to: &Path) -> Result<usize> {
    if !(257..=1 << 20).contains(&vocab) {
        bail!("--vocab {vocab}: a tokenizer has 257 tokens at least and 1,048,576 at most");
    }
    let corpus = Corpus::find(text, Part::Train)?;
    let out = to.display();
    let same = |file: &PathBuf| file.canonicalize().ok() == to.canonicalize().ok();
    if to.exists() && corpus.files().iter().any(same) {
        bail!("{out} is the text itself: choose another --out");
    }
    // Begun now: learning takes a while, to find out then that it cannot be kept. Several processes
    // may learn the same one.
    let unwritable = || format!("cannot write {out}");
    let mut file = AtomicFile::create(to).with_context(unwritable)?;
    let spinner = terminal::spinner(format!("learning from {}", terminal::file_name(text)));
    // Line by line, for the words in them are counted and nothing else; a few at a time, so that the
    // text may be larger than memory.
    let (sender, receiver) = sync_channel::<String>(1 << 10);
    let learned = thread::scope(|scope| {
        let reader = scope.spawn(move || corpus.files().iter().try_for_each(|f| lines(f, &sender)));
        let learned = Tokenizer::learn(receiver.into_iter(), vocab);
        match reader.join() {
            Ok(read) => read.and(learned),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    spinner.finish_and_clear();
    let json = learned?;
    let vocab = Tokenizer::from_record(&json)?.vocab();
    file.write_all(json.as_bytes()).with_context(unwritable)?;
    file.commit().with_context(unwritable)?;
    Ok(vocab)
}
