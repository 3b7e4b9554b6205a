//! Text of an experiment: its location, its tokenizer, and perplexity instead of tests.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use tra_text::{Corpus, Part};

use super::{Grid, Options, Scale, TextSettings, Trial};
use crate::error::LabError;
use crate::language::{CheckpointSelector, LanguageModel, learn_tokenizer};
use crate::observer::Observer;
use crate::perplexity::{Windows, measure};
use crate::records::{Perplexity, Protocol, TextTrialResult};
use crate::run_dir::RunDir;
use crate::session::ended_at;

const PROTOCOLS: [Protocol; 2] = [Protocol::Chunk, Protocol::Sliding];

/// Returns the text settings of a scale.
pub fn settings(grid: &Grid, scale: Scale) -> Result<&TextSettings, LabError> {
    let missing = || {
        LabError::Setting(format!(
            "the {} scale has no [text]; add that table to the experiment",
            scale.name()
        ))
    };
    grid.scale(scale).text.as_ref().ok_or_else(missing)
}

/// Returns the folder of the text.
pub fn folder(part: &TextSettings, given: Option<&Path>) -> Result<PathBuf, LabError> {
    let folder = match given {
        Some(folder) => folder.to_path_buf(),
        None => Path::new("data").join(&part.set),
    };
    if Corpus::find(&folder, Part::Train).is_err() {
        return Err(LabError::Setting(format!(
            "no text in {}; fetch it with tra data get {}, or name its folder with --text",
            folder.display(),
            part.set
        )));
    }
    Ok(folder)
}

/// Adds the text and its tokenizer to the tasks of an experiment. Learns the tokenizer if it does
/// not exist yet.
pub fn prepare(
    grid: &mut Grid,
    part: &TextSettings,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<PathBuf, LabError> {
    let (out, folder) = (&options.out, folder(part, options.text.as_deref())?);
    let tokenizer = match part.vocab {
        None => "gpt2".to_string(),
        Some(vocab) => {
            let unwritable = |error| LabError::io("cannot create", out, error);
            tra_disk::create_dir_all(out).map_err(unwritable)?;
            let file = out.join("tokenizer.json");
            if !file.exists() {
                observer.status("learning a tokenizer");
                learn_tokenizer(&folder, vocab, &file)?;
                observer.status("");
            }
            file.display().to_string()
        }
    };
    for task in &mut grid.tasks {
        task.settings.insert("text".into(), folder.display().to_string().into());
        task.settings.insert("tokenizer".into(), tokenizer.clone().into());
    }
    Ok(folder)
}

/// Measures a trained run at every window, unless all of them are already measured.
pub fn test(
    trial: &Trial,
    part: &TextSettings,
    folder: &Path,
    device: &Device,
    observer: &mut dyn Observer,
) -> Result<bool, LabError> {
    let run = RunDir::open(&trial.cell.path)?;
    let newest = CheckpointSelector::Newest;
    let warn = |text| observer.warn(text);
    let model = LanguageModel::open(&trial.cell.path, newest, None, device, warn)?;
    let windows = windows(part)?;
    if !is_measured(&run, model.step, &windows)? {
        let found = measure(&model, folder, &windows, part.limit, observer)?;
        run.add_perplexity(&found)?;
    }
    Ok(true)
}

/// Returns how many runs are not trained or not measured.
pub fn unfinished(trials: &[Trial], part: &TextSettings) -> Result<usize, LabError> {
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

fn windows(part: &TextSettings) -> Result<Vec<Windows>, LabError> {
    let mut windows = Vec::new();
    for protocol in PROTOCOLS {
        for window in &part.windows {
            windows.push(Windows::new(protocol, *window, None)?);
        }
    }
    Ok(windows)
}

/// Returns whether perplexity at every window is known for this step of a run.
fn is_measured(run: &RunDir, step: u64, windows: &[Windows]) -> Result<bool, LabError> {
    let has = |known: &Perplexity, w: &Windows| {
        known.results.iter().any(|r| (r.protocol, r.window) == (w.protocol, w.window))
    };
    let known = run.perplexities()?;
    Ok(known.at(step).any(|known| windows.iter().all(|w| has(known, w))))
}

/// Returns the results of every trained run.
pub fn found(trials: &[Trial]) -> Result<Vec<TextTrialResult>, LabError> {
    let mut all = Vec::new();
    for trial in trials {
        if !RunDir::exists(&trial.cell.path)? {
            continue;
        }
        let run = RunDir::open(&trial.cell.path)?;
        // A run that cannot be read is already listed as failed.
        if let Ok(Some(step)) = ended_at(&run, &trial.cell.config)
            && let Some(found) = run.perplexities()?.at(step).next()
        {
            all.push(TextTrialResult {
                model: trial.model.clone(),
                seed: trial.cell.config.seed,
                perplexity: found.clone(),
            });
        }
    }
    Ok(all)
}
