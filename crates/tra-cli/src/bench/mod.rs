//! `tra bench`: how fast it is here, beside PyTorch if there is one.
//!
//! Every case runs in a process of its own, ours and PyTorch's alike, so that its peak memory is
//! its own. All processes of a group are started and warmed up, and then take turns: a machine
//! that slows down slows all of them.

mod participant;
mod table;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tra_lab::bench::{Case, Gate, Peak, Workload};
use tra_nn::Size;

use crate::{crash, terminal};
use participant::{By, Failed, Participant};
pub use worker::worker;

/// Before every run: the threads of the one before may still be spinning.
const PAUSE: Duration = Duration::from_millis(20);

/// Measure speed and memory, with PyTorch as a comparison
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra bench
  tra bench --only train_step --attention tra,rope --batch 8 --length 512
  tra bench --only op --length 8192,16384,65536
  tra bench --only op --length 16384 --gate open --torch python3 \\
      --torch-attention rope --torch-mode eager
  tra bench --only decode --attention tra --length 1024,65536
  tra bench --torch venv/bin/python --json > bench.json

Workloads:
  op          attention alone, forward and backward
  op_forward  attention alone, forward
  train_step  forward, loss, backward, clipping and AdamW
  prefill     forward without gradients
  decode      one token after a context of the given length

Times are medians. The share of peak performance counts the products of dense
attention, so a mechanism that skips far keys can exceed 100%.

TRA_ISA=avx512|avx2|neon|portable selects the instruction set of the kernels.")]
pub struct Args {
    /// Workloads, as listed below [default: op,train_step,prefill,decode]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,

    /// Mechanisms (see `tra mechanisms`)
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "tra,rope")]
    attention: Vec<String>,

    /// Model size: tiny, mini, small or medium
    #[arg(long, default_value = "mini")]
    size: String,

    /// Sequences per batch [default: 8 for train_step, else 1]
    #[arg(long)]
    batch: Option<usize>,

    /// Sequence lengths; for decode, of the context [default: 512 for train_step,
    /// else 4096]
    #[arg(long, value_name = "LENGTHS", value_delimiter = ',')]
    length: Vec<usize>,

    /// Forget gates of op: initial (0) or open (no horizon)
    #[arg(long, value_name = "GATES", value_delimiter = ',', default_value = "initial")]
    gate: Vec<String>,

    /// Size of the vocabulary
    #[arg(long, default_value_t = 256)]
    vocab: usize,

    /// Timed runs per workload, of which the median is reported
    #[arg(long, default_value_t = 5)]
    repeat: usize,

    /// Number of threads [default: all cores]
    #[arg(long)]
    threads: Option<usize>,

    /// Also measure PyTorch, with this Python
    #[arg(long, value_name = "PYTHON")]
    torch: Option<PathBuf>,

    /// Mechanisms to measure in PyTorch (memory of its tra grows with the square of
    /// the length)
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "tra,rope")]
    torch_attention: Vec<String>,

    /// PyTorch modes: eager, compiled
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "eager,compiled")]
    torch_mode: Vec<String>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// What takes turns.
struct Group {
    name: Workload,
    size: String,
    batch: usize,
    length: usize,
    gate: Gate,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let names = parse(&args.only, &["op", "train_step", "prefill", "decode"], |text| {
        Workload::ALL.into_iter().find(|name| name.text() == text)
    })
    .context("--only takes op, op_forward, train_step, prefill, decode")?;
    let gates = parse(&args.gate, &[], |text| match text {
        "initial" => Some(Gate::Initial),
        "open" => Some(Gate::Open),
        _ => None,
    })
    .context("--gate takes initial, open")?;
    // Ours are checked when they start; PyTorch's peer has these two.
    for attention in &args.torch_attention {
        if !["tra", "rope"].contains(&attention.as_str()) {
            bail!("--torch-attention takes tra, rope; not {attention}");
        }
    }
    for mode in &args.torch_mode {
        if !["eager", "compiled"].contains(&mode.as_str()) {
            bail!("--torch-mode takes eager, compiled; not {mode}");
        }
    }
    let size: Size = args.size.parse().map_err(|e| anyhow::anyhow!("{e}"))?;
    let threads = match args.threads {
        Some(0) => bail!("--threads must be at least 1"),
        Some(threads) => {
            crash::check_threads("--threads", threads)?;
            threads
        }
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    if args.repeat == 0 || args.vocab < 2 || args.batch == Some(0) || args.length.contains(&0) {
        bail!("--repeat, --batch and --length must be at least 1, --vocab at least 2");
    }

    let mut groups = Vec::new();
    for name in names {
        let trains = name == Workload::TrainStep;
        let lengths = match args.length.is_empty() {
            true => vec![if trains { 512 } else { 4096 }],
            false => args.length.clone(),
        };
        let alone = matches!(name, Workload::Op | Workload::OpForward);
        for length in lengths {
            for gate in if alone { &gates[..] } else { &[Gate::Initial] } {
                let batch = args.batch.unwrap_or(if trains { 8 } else { 1 });
                groups.push(Group { name, size: args.size.clone(), batch, length, gate: *gate });
            }
        }
    }

    let mut peak = 0.0;
    let mut results = Vec::new();
    for group in &groups {
        results.push(measure(group, size, &args, threads, &mut peak)?);
    }
    let all: Vec<_> = groups.iter().zip(&results).collect();
    terminal::print(&if args.json { table::json(&all, peak) } else { table::text(&all, peak) })?;
    Ok(ExitCode::SUCCESS)
}

/// The items of a list, or the defaults where it is empty.
fn parse<T>(
    given: &[String],
    default: &[&str],
    read: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>> {
    let given: Vec<&str> = match given.is_empty() {
        true => default.to_vec(),
        false => given.iter().map(String::as_str).collect(),
    };
    let one = |text: &&str| read(text).with_context(|| format!("not {text}"));
    given.iter().map(one).collect()
}

fn measure(
    group: &Group,
    size: Size,
    args: &Args,
    threads: usize,
    peak: &mut f64,
) -> Result<Vec<Participant>> {
    let what = format!("{} {} x {}", group.name.text(), group.batch, group.length);
    let bar = terminal::spinner(what.clone());
    let mut all = Vec::new();
    for attention in &args.attention {
        let mut case = Case::new(group.name, attention, size, group.batch, group.length);
        (case.gate, case.vocab) = (group.gate, args.vocab);
        bar.set_message(format!("{what}: {attention} warms up"));
        all.push(Participant::ours(case.clone(), threads)?);
        let Some(python) = &args.torch else { continue };
        if !args.torch_attention.contains(attention) {
            continue;
        }
        for mode in &args.torch_mode {
            bar.set_message(format!("{what}: {attention} in PyTorch, {mode}, warms up"));
            match Participant::torch(case.clone(), python, mode, threads) {
                Ok(participant) => all.push(participant),
                Err(Failed::Never(error)) => return Err(error),
                Err(Failed::ThisCase(error)) => {
                    bar.suspend(|| {
                        terminal::warn(format!("{what}, {attention}, {mode}: {error:#}"))
                    });
                }
            }
        }
    }
    let product = Peak::new();
    for round in 0..args.repeat {
        for participant in &mut all {
            let (by, attention) = (participant.by.label(), &participant.case.attention);
            bar.set_message(format!("{what}: {attention} {by}, {}/{}", round + 1, args.repeat));
            sleep(PAUSE);
            participant.run()?;
        }
        sleep(PAUSE);
        let begin = Instant::now();
        let operations = product.run();
        *peak = peak.max(operations / begin.elapsed().as_secs_f64());
    }
    for participant in &mut all {
        participant.end()?;
    }
    bar.finish_and_clear();
    Ok(all)
}

/// Seconds of every case, `repeat` times in turns.
pub fn in_turns(
    cases: Vec<Case>,
    repeat: usize,
    threads: usize,
    what: &str,
) -> Result<Vec<Vec<f64>>> {
    let bar = terminal::spinner(what.to_string());
    let mut all = Vec::new();
    for case in cases {
        bar.set_message(format!("{what}: {} warms up", case.attention));
        all.push(Participant::ours(case, threads)?);
    }
    for round in 0..repeat {
        for participant in &mut all {
            let attention = &participant.case.attention;
            bar.set_message(format!("{what}: {attention}, {}/{repeat}", round + 1));
            sleep(PAUSE);
            participant.run()?;
        }
    }
    all.iter_mut().try_for_each(Participant::end)?;
    bar.finish_and_clear();
    Ok(all.iter().map(|participant| participant.seconds.clone()).collect())
}

impl By {
    fn label(&self) -> String {
        match self {
            By::Us => "tra".into(),
            By::Torch(mode) => format!("torch {mode}"),
        }
    }
}
