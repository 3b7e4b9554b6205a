//! `tra generate`: text in, text out.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rayon::prelude::*;
use serde_json::json;
use tra_lab::generate::Continuation;
use tra_lab::observer::Observer;
use tra_nn::{Generate, Sampling};

use crate::model::ModelArgs;
use crate::terminal::{self, Terminal};

/// Generate text from a prompt
///
/// Text is printed as it is generated. Several prompts are computed in parallel and printed one
/// after the other; their lengths may differ. A model file is enough: it contains its tokenizer.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra generate runs/wiki --prompt \"The history of\" --tokens 200 --top-p 0.95
  tra generate runs/wiki --prompt \"Once\" --prompt \"In 1914 ,\" --seed 2
  cat book.txt | tra generate model.safetensors --tokens 50 --stop \"\\n\\n\"

The same seed generates the same text. Several prompts use the seeds that
follow: the second prompt uses --seed + 1.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Prompt, or - for standard input; repeatable [default: standard input]
    #[arg(long, value_name = "TEXT")]
    prompt: Vec<String>,

    /// File that contains a prompt; repeatable
    #[arg(long, value_name = "FILE")]
    prompt_file: Vec<PathBuf>,

    /// Largest number of tokens to generate
    #[arg(long, default_value_t = 128)]
    tokens: usize,

    /// Divisor of the logits; 0 always takes the most likely token
    #[arg(long, default_value_t = 1.0)]
    temperature: f64,

    /// Sample from the K most likely tokens only
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,

    /// Sample from the most likely tokens that together have probability P
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,

    /// Random seed of the first prompt
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Stop before this text (\n is a line break); repeatable
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,

    /// Do not print the prompt
    #[arg(long)]
    no_echo: bool,

    /// Print one JSON object at the end instead of text
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let sampling = Sampling::default()
        .with_temperature(args.temperature)
        .with_top_k(args.top_k)
        .with_top_p(args.top_p);
    sampling.validate()?;
    let stops: Vec<String> = args.stop.iter().map(|stop| unescape(stop)).collect();
    if stops.iter().any(String::is_empty) {
        bail!("--stop is empty: give the text to stop before");
    }
    let model = args.model.open()?;
    let prompts = prompts(&args)?;
    let options = |number: usize| {
        Generate::default()
            .with_max_tokens(args.tokens)
            .with_stop(model.tokenizer.end_of_text().into_iter().collect())
            .with_sampling(sampling)
            .with_seed(args.seed.wrapping_add(number as u64))
    };
    let streaming = prompts.len() == 1 && !args.json;
    let echo = |prompt: &str| if args.no_echo { String::new() } else { prompt.to_string() };
    let done: Vec<Continuation> = if streaming {
        let prompt = &prompts[0];
        let mut progress = Terminal::new();
        progress.status("reading the prompt");
        let mut begun = false;
        let done = model.generate(prompt, options(0), &stops, &mut |text| {
            if !std::mem::replace(&mut begun, true) {
                progress.clear();
                terminal::print(&echo(prompt))?;
            }
            terminal::print(text)
        });
        progress.clear();
        let done = done?;
        if !begun {
            terminal::print(&echo(prompt))?;
        }
        terminal::print("\n")?;
        vec![done]
    } else {
        let mut progress = Terminal::new();
        progress.status(&format!("{} prompts", prompts.len()));
        let all: Result<Vec<Continuation>> = prompts
            .par_iter()
            .enumerate()
            .map(|(n, prompt)| {
                model.generate(prompt, options(n), &stops, &mut |_| Ok::<(), anyhow::Error>(()))
            })
            .collect();
        progress.clear();
        all?
    };
    if args.json {
        let all = done.iter().map(|d| {
            json!({
                "prompt": d.prompt, "text": d.text, "prompt_tokens": d.prompt_tokens,
                "tokens": d.tokens, "prompt_seconds": d.prompt_seconds, "seconds": d.seconds,
            })
        });
        let all: Vec<_> = all.collect();
        terminal::print(&format!("{:#}\n", json!({ "step": model.step, "continuations": all })))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !streaming {
        for (number, one) in done.iter().enumerate() {
            let rule = if number > 0 { "---\n" } else { "" };
            terminal::print(&format!("{rule}{}{}\n", echo(&one.prompt), one.text))?;
        }
    }
    terminal::say(&pace(&done));
    Ok(ExitCode::SUCCESS)
}

fn pace(done: &[Continuation]) -> String {
    let sum = |of: fn(&Continuation) -> usize| done.iter().map(of).sum::<usize>() as f64;
    let longest = |of: fn(&Continuation) -> f64| done.iter().map(of).fold(1e-9, f64::max);
    let (read, made) = (sum(|d| d.prompt_tokens), sum(|d| d.tokens));
    format!(
        "{read:.0} tokens read at {:.0} tokens/s, {made:.0} generated at {:.1} tokens/s",
        read / longest(|d| d.prompt_seconds),
        made / longest(|d| d.seconds)
    )
}

fn prompts(args: &Args) -> Result<Vec<String>> {
    let mut prompts = Vec::new();
    let stdin = || -> Result<String> {
        if std::io::stdin().is_terminal() {
            terminal::say("reading the prompt from the terminal; end it with Ctrl-D");
        }
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    if args.prompt.iter().filter(|prompt| *prompt == "-").count() > 1 {
        bail!("--prompt - may be given only once: standard input is one prompt");
    }
    for prompt in &args.prompt {
        prompts.push(if prompt == "-" { stdin()? } else { prompt.clone() });
    }
    for path in &args.prompt_file {
        let bytes = std::fs::read(path);
        let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
        prompts.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    if prompts.is_empty() {
        prompts.push(stdin()?);
    }
    Ok(prompts)
}

/// `\n`, `\t` and `\\` as typed in a shell.
fn unescape(text: &str) -> String {
    text.replace("\\\\", "\0").replace("\\n", "\n").replace("\\t", "\t").replace('\0', "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_typed_as_in_a_shell() {
        assert_eq!(unescape("a\\nb\\t\\\\n"), "a\nb\t\\n");
    }
}
