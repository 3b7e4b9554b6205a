//! Text for an experiment: where it is, its tokenizer, and perplexity in place of tests.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use tra_lab::language::{CheckpointSelector, LanguageModel};
use tra_lab::perplexity::Windows;
use tra_lab::records::{Perplexity, Protocol};
use tra_lab::reproduce::{Experiment, TextPart, Trial};
use tra_lab::run_dir::RunDir;
use tra_lab::session::ended_at;
use tra_nn::device::Device;
use tra_text::{Corpus, Part};

use crate::terminal;

const PROTOCOLS: [Protocol; 2] = [Protocol::Chunk, Protocol::Sliding];

/// Where the text is.
pub fn folder(part: &TextPart, given: Option<&Path>) -> Result<PathBuf> {
    let folder = match given {
        Some(folder) => folder.to_path_buf(),
        None => Path::new("data").join(&part.set),
    };
    if Corpus::find(&folder, Part::Train).is_err() {
        bail!(
            "no text in {}: fetch it with tra data get {}, or name a folder that has it with --text",
            folder.display(),
            part.set
        );
    }
    Ok(folder)
}

/// Puts the text and its tokenizer into the tasks of an experiment; learns the tokenizer if it is not there.
pub fn prepare(
    experiment: &mut Experiment,
    part: &TextPart,
    given: Option<&Path>,
    out: &Path,
) -> Result<PathBuf> {
    let folder = folder(part, given)?;
    let tokenizer = match part.vocab {
        None => "gpt2".to_string(),
        Some(vocab) => {
            std::fs::create_dir_all(out)?;
            let file = out.join("tokenizer.json");
            if !file.exists() {
                crate::data::learn_tokenizer(&folder, vocab, &file)?;
            }
            file.display().to_string()
        }
    };
    for task in &mut experiment.tasks {
        task.settings.insert("text".into(), folder.display().to_string().into());
        task.settings.insert("tokenizer".into(), tokenizer.clone().into());
    }
    Ok(folder)
}

/// Perplexity of a trained run at every window, unless it is there already.
pub fn test(trial: &Trial, part: &TextPart, folder: &Path, device: &Device) -> Result<()> {
    let run = RunDir::open(&trial.cell.path)?;
    let model = LanguageModel::open(
        &trial.cell.path,
        CheckpointSelector::Newest,
        None,
        device,
        terminal::warn,
    )?;
    let windows = windows(part)?;
    if is_measured(&run, model.step, &windows)? {
        return Ok(());
    }
    let found = crate::perplexity::measure(&model, folder, &windows, part.limit)?;
    Ok(run.add_perplexity(&found)?)
}

/// How many runs are not trained, or not measured.
pub fn unfinished(trials: &[Trial], part: &TextPart) -> Result<usize> {
    let windows = windows(part)?;
    let mut count = 0;
    for trial in trials {
        let done = match RunDir::open(&trial.cell.path) {
            Ok(run) => is_measured(&run, trial.cell.config.steps, &windows)?,
            Err(_) => false,
        };
        count += usize::from(!done);
    }
    Ok(count)
}

fn windows(part: &TextPart) -> Result<Vec<Windows>> {
    let mut windows = Vec::new();
    for protocol in PROTOCOLS {
        for window in &part.windows {
            windows.push(Windows::new(protocol, *window, None)?);
        }
    }
    Ok(windows)
}

/// Whether perplexity at every window is known of a run after this step.
fn is_measured(run: &RunDir, step: u64, windows: &[Windows]) -> Result<bool> {
    let has = |known: &Perplexity, w: &Windows| {
        known.results.iter().any(|r| (r.protocol, r.window) == (w.protocol, w.window))
    };
    let known = run.perplexities()?;
    Ok(known.at(step).any(|known| windows.iter().all(|w| has(known, w))))
}

/// What was found of every run.
pub fn found(trials: &[Trial]) -> Result<Vec<(String, u64, Perplexity)>> {
    let mut all = Vec::new();
    for trial in trials {
        if !RunDir::exists(&trial.cell.path)? {
            continue;
        }
        let run = RunDir::open(&trial.cell.path)?;
        // One that cannot be read has been listed as failed.
        if let Ok(Some(step)) = ended_at(&run, &trial.cell.config)
            && let Some(found) = run.perplexities()?.at(step).next()
        {
            all.push((trial.model.clone(), trial.cell.config.seed, found.clone()));
        }
    }
    Ok(all)
}

/// A row for every model, a column for every window; means over seeds.
pub fn table(found: &[(String, u64, Perplexity)]) -> String {
    let mut models: Vec<&str> = Vec::new();
    for (model, ..) in found {
        if !models.contains(&model.as_str()) {
            models.push(model);
        }
    }
    let mut windows: Vec<usize> =
        found.iter().flat_map(|(.., f)| f.results.iter().map(|r| r.window)).collect();
    windows.sort();
    windows.dedup();
    let mut text = String::new();
    for protocol in PROTOCOLS {
        text += &format!("perplexity, {}\n{:<14}", protocol.name(), "window");
        windows.iter().for_each(|window| text += &format!(" {window:>8}"));
        text.push('\n');
        for model in &models {
            text += &format!("{model:<14}");
            for window in &windows {
                let of = found.iter().filter(|(name, ..)| name == model);
                let values: Vec<f64> = of
                    .flat_map(|(.., found)| &found.results)
                    .filter(|r| r.protocol == protocol && r.window == *window)
                    .map(|r| r.perplexity)
                    .collect();
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                let shown = if values.is_empty() { "-".into() } else { format!("{mean:.2}") };
                text += &format!(" {shown:>8}");
            }
            text.push('\n');
        }
        text.push('\n');
    }
    text
}
