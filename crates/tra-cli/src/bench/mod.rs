//! `tra bench`: measures speed and memory on this machine, and optionally those of PyTorch.

mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tra_lab::bench::{Gate, Group, Options, Torch, Workload, measure, serve};
use tra_nn::Size;

use crate::crash;
use crate::terminal::{self, Terminal};

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

Times are medians. The share of peak performance counts the matrix products of
dense attention, so a mechanism that skips distant keys can exceed 100%.

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

    /// Sequence lengths; for decode, context lengths [default: 512 for train_step,
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

    /// Mechanisms to measure in PyTorch (its tra needs memory quadratic in the
    /// length)
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "tra,rope")]
    torch_attention: Vec<String>,

    /// PyTorch modes: eager, compiled
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "eager,compiled")]
    torch_mode: Vec<String>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
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
    // Our own mechanisms are checked when they start. The PyTorch script supports these two.
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
                groups.push(Group { name, batch, length, gate: *gate });
            }
        }
    }

    let options = Options {
        program: std::env::current_exe().context("cannot find this program's own file")?,
        attention: args.attention,
        size,
        vocab: args.vocab,
        repeat: args.repeat,
        threads,
        torch: args.torch.map(|python| Torch {
            python,
            attention: args.torch_attention,
            modes: args.torch_mode,
        }),
    };
    let (mut terminal, mut fastest, mut all) = (Terminal::new(), 0.0f64, Vec::new());
    for group in groups {
        let (participants, peak) = measure(&group, &options, &mut terminal)?;
        fastest = fastest.max(peak);
        all.push((group, participants));
    }
    terminal.clear();
    let size = &args.size;
    terminal::print(&match args.json {
        true => table::json(&all, size, fastest),
        false => table::text(&all, size, fastest),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs one case for the parent process.
pub fn worker() -> Result<ExitCode> {
    crash::answer_to_asker();
    let ran = serve(std::io::stdin().lock(), std::io::stdout())?;
    Ok(if ran { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Parses the items of a list, or the defaults if it is empty.
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
