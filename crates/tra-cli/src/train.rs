//! `tra train`: turns flags into settings, trains, and says how to continue.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use toml::Value;
use tra_lab::config::{Lengths, Override, RunConfig};
use tra_lab::observer::{Event, Observer};
use tra_lab::run_dir::RunDir;
use tra_lab::session::{Session, open_task};
use tra_lab::train::{self, End, Forecast, Outcome, train};
use tra_nn::device::Device;
use tra_report::tables;

use crate::interrupt::{STOPPED, on_interrupt};
use crate::names::{self, Names};
use crate::run_folder;
use crate::terminal::{self, Terminal};

/// Train a decoder on a task
///
/// Settings come from flags, a TOML file, or both; flags take precedence. The run directory records
/// everything. A run continued with --resume is bit for bit the same as one never interrupted.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra train --task flipflop --size tiny --length 64 --steps 300 --out runs/ff
  tra train --task copy --set task.alphabet=26 --length 1..50 \\
      --attention rope --out runs/copy
  tra train --config configs/quick.toml --seed 2 --out runs/quick-2
  tra train --resume runs/ff --steps 600
  tra train --text wiki.train.tokens --valid wiki.valid.tokens --length 128 \\
      --batch 16 --accumulate 4 --steps 2000 --eval-every 200 --out runs/wiki
  tra train --text books/ --tokenizer bytes --out runs/books --dry-run

`tra tasks` lists the tasks, `tra mechanisms` the attention mechanisms.
docs/train.md describes the run directory and every setting.")]
pub struct Args {
    /// Output directory for the run (must not already contain one)
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    #[arg(required_unless_present_any = ["resume", "dry_run"])]
    out: Option<PathBuf>,

    /// Continue the run in this directory
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,

    /// TOML file with settings
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,

    /// Train three steps, print the memory and time the run would need, and stop
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,

    /// Device: flex (the CPU), or a GPU backend of this build, for example cuda:0
    #[arg(long, default_value = "flex")]
    device: String,
}

/// Settings that have a flag.
#[derive(clap::Args, Clone, Default)]
#[command(allow_negative_numbers = true)]
pub struct Settings {
    /// Task (see `tra tasks`) [default: flipflop, or text with --text]
    #[arg(long, help_heading = "Settings", value_parser = Names(names::tasks))]
    #[arg(hide_possible_values = true)]
    task: Option<String>,
    /// Training text: a file or a folder; plain, .gz, .zst, or parquet
    #[arg(long, help_heading = "Settings", value_name = "PATH")]
    text: Option<String>,
    /// Validation text [default: that of the folder, or the last 5% of the text]
    #[arg(long, help_heading = "Settings", value_name = "PATH")]
    valid: Option<String>,
    /// Tokenizer: gpt2, bytes, or the path of a tokenizer.json [default: gpt2]
    #[arg(long, help_heading = "Settings")]
    tokenizer: Option<String>,
    /// Attention mechanism: tra, rope, alibi, … (see `tra mechanisms`) [default: tra]
    #[arg(long, help_heading = "Settings", value_name = "NAME")]
    #[arg(value_parser = Names(names::mechanisms), hide_possible_values = true)]
    attention: Option<String>,
    /// Model size: tiny, mini, small or medium [default: mini]
    #[arg(long, help_heading = "Settings", value_parser = Names(names::sizes))]
    #[arg(hide_possible_values = true)]
    size: Option<String>,
    /// Number of blocks [default: that of --size]
    #[arg(long, help_heading = "Settings")]
    layers: Option<i64>,
    /// Width of the model [default: that of --size]
    #[arg(long, help_heading = "Settings")]
    width: Option<i64>,
    /// Number of heads [default: that of --size]
    #[arg(long, help_heading = "Settings")]
    heads: Option<i64>,
    /// Share one weight matrix between embedding and output
    #[arg(long, help_heading = "Settings")]
    tied: bool,
    /// Training length, or a range such as 1..50 [default: that of the task]
    #[arg(long, help_heading = "Settings")]
    length: Option<Lengths>,
    /// Sequences per batch [default: 16]
    #[arg(long, help_heading = "Settings")]
    batch: Option<i64>,
    /// Batches per step, whose gradients are summed [default: 1]
    #[arg(long, help_heading = "Settings")]
    accumulate: Option<i64>,
    /// Training steps [default: 100]
    #[arg(long, help_heading = "Settings")]
    steps: Option<i64>,
    /// Peak learning rate [default: 3e-4]
    #[arg(long, help_heading = "Settings")]
    lr: Option<f64>,
    /// Fraction of the steps in which the learning rate rises [default: 0.05]
    #[arg(long, help_heading = "Settings")]
    warmup: Option<f64>,
    /// adamw, or muon for the matrices of the blocks [default: adamw]
    #[arg(long, help_heading = "Settings")]
    optimizer: Option<String>,
    /// Decoupled weight decay [default: 0.01]
    #[arg(long, help_heading = "Settings")]
    weight_decay: Option<f64>,
    /// Clip the gradient to this norm; 0 turns clipping off [default: 1]
    #[arg(long, help_heading = "Settings")]
    clip: Option<f64>,
    /// Dropout rate [default: 0.01]
    #[arg(long, help_heading = "Settings")]
    dropout: Option<f64>,
    /// Where attention applies dropout: logits or weights [default: logits]
    #[arg(long, help_heading = "Settings")]
    dropout_placement: Option<String>,
    /// Random seed of weights, data and dropout [default: 1]
    #[arg(long, help_heading = "Settings")]
    seed: Option<i64>,
    /// Steps between evaluations [default: only at the end]
    #[arg(long, help_heading = "Settings")]
    eval_every: Option<i64>,
    /// Comma-separated splits to evaluate [default: all except train]
    #[arg(long, help_heading = "Settings", value_delimiter = ',')]
    eval_splits: Option<Vec<String>>,
    /// Evaluation sequences per split [default: 64]
    #[arg(long, help_heading = "Settings")]
    eval_sequences: Option<i64>,
    /// Stop after N evaluations in a row with every split fully correct
    #[arg(long, help_heading = "Settings", value_name = "N")]
    until_perfect: Option<i64>,
    /// Steps between checkpoints [default: 100]
    #[arg(long, help_heading = "Settings")]
    save_every: Option<i64>,
    /// Number of newest checkpoints to keep, besides the best [default: 2]
    #[arg(long, help_heading = "Settings")]
    keep: Option<i64>,
    /// Any other setting, for example model.attention.theta=10000; repeatable
    #[arg(long, help_heading = "Settings", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
}

/// Makes an existing path absolute; other values (`gpt2`) stay as they are.
fn absolute(path: &str) -> Value {
    let full = Path::new(path).exists().then(|| std::path::absolute(path).ok()).flatten();
    full.map_or_else(|| Value::from(path), |full| Value::from(full.to_string_lossy().into_owned()))
}

impl Settings {
    fn is_text(&self) -> bool {
        [&self.text, &self.valid, &self.tokenizer].iter().any(|setting| setting.is_some())
    }

    /// Rejects flags that do not go together, and names that do not exist.
    fn check(&self) -> Result<()> {
        if let Some(name) = &self.attention {
            names::check_mechanism(name).with_context(|| format!("--attention {name}"))?;
        }
        match &self.task {
            Some(task) if task != "text" && self.is_text() => {
                bail!("--text, --valid and --tokenizer are for --task text, not {task}")
            }
            _ => Ok(()),
        }
    }

    pub fn overrides(&self) -> Vec<Override> {
        let text = |x: &Option<String>| x.clone().map(Value::from);
        let int = |x: Option<i64>| x.map(Value::from);
        let float = |x: Option<f64>| x.map(Value::from);
        let all = [
            // A name first: it clears the settings of the task or mechanism before.
            ("task.name", text(&self.task).or_else(|| self.is_text().then(|| "text".into()))),
            ("task.text", self.text.as_deref().map(absolute)),
            ("task.valid", self.valid.as_deref().map(absolute)),
            ("task.tokenizer", self.tokenizer.as_deref().map(absolute)),
            ("model.attention.name", text(&self.attention)),
            ("model.size", text(&self.size)),
            ("model.layers", int(self.layers)),
            ("model.width", int(self.width)),
            ("model.heads", int(self.heads)),
            ("model.dropout", float(self.dropout)),
            ("model.tied", self.tied.then(|| Value::from(true))),
            ("model.dropout_placement", text(&self.dropout_placement)),
            ("length", self.length.map(|l| Value::from(l.to_string()))),
            ("batch", int(self.batch)),
            ("accumulate", int(self.accumulate)),
            ("steps", int(self.steps)),
            ("lr", float(self.lr)),
            ("warmup", float(self.warmup)),
            ("optimizer", text(&self.optimizer)),
            ("weight_decay", float(self.weight_decay)),
            ("clip", float(self.clip)),
            ("seed", int(self.seed)),
            ("eval.every", int(self.eval_every)),
            ("eval.splits", self.eval_splits.clone().map(Value::from)),
            ("eval.sequences", int(self.eval_sequences)),
            ("eval.until_perfect", int(self.until_perfect)),
            ("save_every", int(self.save_every)),
            ("keep", int(self.keep)),
        ];
        all.into_iter().filter_map(|(path, value)| Some((path, value?))).collect()
    }
}

/// Measures what a run would cost.
fn forecast(config: &RunConfig, device: &Device) -> Result<String> {
    let count = 3;
    let mut terminal = Terminal::new();
    let task = open_task(config, &mut terminal)?;
    let forecast = train::forecast(config, &task, device, count, &mut terminal)?;
    terminal.clear();
    let Forecast { parameters, state_bytes, tokens_a_step, seconds_a_step } = forecast;
    let mut lines = vec![("parameters", terminal::thousands(parameters as u64))];
    let state = terminal::bytes(state_bytes);
    lines.push(("memory", format!("{state} for weights, gradients and the optimizer state")));
    if let Some(peak) = tra_kernels::memory::peak() {
        lines.push(("", format!("{} at the peak of {count} steps", terminal::bytes(peak))));
    }
    let tokens = tokens_a_step.saturating_mul(config.steps);
    let a_step = terminal::thousands(tokens_a_step);
    let all = terminal::thousands(tokens);
    lines.push(("tokens", format!("{all} in {} steps of {a_step}", config.steps)));
    if let Some(text) = task.text() {
        let (train, valid) = (text.train_tokens as u64, text.valid_tokens as u64);
        let passes = tokens as f64 / train.max(1) as f64;
        let train = terminal::thousands(train);
        lines.push(("text", format!("{train} tokens ({passes:.2} passes over it)")));
        lines.push(("validation", format!("{} tokens", terminal::thousands(valid))));
    }
    let rate = tokens_a_step as f64 / seconds_a_step;
    lines.push(("speed", format!("{seconds_a_step:.2} s per step, {rate:.0} tokens/s")));
    let whole = terminal::duration(seconds_a_step * config.steps as f64);
    lines.push(("time", format!("about {whole} for {} steps, without evaluations", config.steps)));
    Ok(lines.iter().map(|(name, text)| format!("{name:<12}{text}\n")).collect())
}

pub fn run(args: Args) -> Result<ExitCode> {
    let device = tra_nn::device::by_name(&args.device)?;
    args.settings.check()?;
    let overrides = args.settings.overrides();
    if args.dry_run {
        let config = RunConfig::read(args.config.as_deref(), overrides, &args.settings.set)?;
        terminal::print(&forecast(&config, &device)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut terminal = Terminal::new();
    let mut session = match (&args.resume, &args.out) {
        (Some(path), _) => {
            let run = run_folder::open(path)?;
            let lock = RunDir::lock(path)?;
            let config = run.changed_config(overrides, &args.settings.set)?;
            let task = open_task(&config, &mut terminal)?;
            Session::resume(run, lock, config, task, &device, &mut terminal)?
        }
        (None, Some(path)) => {
            let config = RunConfig::read(args.config.as_deref(), overrides, &args.settings.set)?;
            // Before the folder is created: a run that cannot start leaves nothing behind.
            RunDir::check_unused(path)?;
            let task = open_task(&config, &mut terminal)?;
            config.check_runnable(&task)?;
            Session::create(path, RunDir::lock(path)?, config, task, &device)?
        }
        (None, None) => bail!("give --out DIR for a new run, or --resume DIR to continue one"),
    };
    if let Some(end) = session.ended() {
        terminal::print(&nothing_left(&end, session.step()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let interrupted = on_interrupt(Some("the current step and saving"))?;
    let config = session.config();
    let (name, steps) = (config.model.decoder.attention.name().into(), config.steps);
    terminal.event(Event::Run { name, steps, measure: config.measure() });
    let outcome = train(&mut session, &interrupted, &mut terminal);
    terminal.clear();
    finish(&session, &outcome?)
}

fn nothing_left(end: &End, step: u64) -> String {
    match end {
        End::Perfect => format!(
            "nothing left to do: every split was fully correct at step {step}; continue with --until-perfect 0\n"
        ),
        _ => format!("nothing left to do: all {step} steps are done; continue with more --steps\n"),
    }
}

/// Prints the outcome of a run, and writes its page.
fn finish(session: &Session, outcome: &Outcome) -> Result<ExitCode> {
    let (run, config) = (session.run(), session.config());
    let (step, place) = (outcome.position.step, run.path().display());
    tra_lab::report::write_for(run, terminal::warn);
    if let Some(evaluation) = &outcome.evaluation {
        terminal::print(&tables::evaluation(&evaluation.results, config.measure()))?;
    }
    match outcome.end {
        End::Interrupted => {
            let of = config.steps;
            terminal::say(&format!(
                "stopped at step {step} of {of}; continue with: tra train --resume {place}"
            ));
            return Ok(ExitCode::from(STOPPED));
        }
        End::Perfect => {
            terminal::print(&format!("every split fully correct; stopped at step {step}\n"))?
        }
        End::Finished => {}
    }
    terminal::print(&format!(
        "{step} steps, {:.0} tokens/s, {:.1}% of the time outside compute; run in {place}\n",
        outcome.pace.tokens_per_second(),
        100.0 * outcome.pace.share_outside(),
    ))?;
    Ok(ExitCode::SUCCESS)
}
