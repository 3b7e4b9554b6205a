//! Loads run directories for a report.

use std::path::Path;

use burn::tensor::{Device, Tensor};
use tra_nn::{Decoder, Pass, Probe};
use tra_report::page::{HeadPicture, Picture, Report, Run, html};
use tra_tasks::OpenTask;

use crate::budget;
use crate::config::RunConfig;
use crate::error::LabError;
use crate::records::Metric;
use crate::run_dir::RunDir;

/// The sequence that the attention pictures show.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// The split it is drawn from.
    pub split: String,
    /// Its index in the split.
    pub index: u64,
    /// Its length, or the nearest shorter length of the task.
    pub length: usize,
}

impl Default for Shown {
    fn default() -> Self {
        Self { split: "train".into(), index: 0, length: 48 }
    }
}

/// Loads runs for a report.
///
/// A run that cannot be read and a picture that cannot be drawn are left out, with a line on the
/// page and a call of `warn`. Returns an error only if no run can be read.
pub fn load(
    title: &str,
    paths: &[impl AsRef<Path>],
    shown: Option<&Shown>,
    commands: Vec<String>,
    device: &Device,
    mut warn: impl FnMut(String),
) -> Result<Report, LabError> {
    let (mut runs, mut left_out, mut first) = (Vec::new(), Vec::new(), None);
    for path in paths {
        let path = path.as_ref();
        match run(path, shown, device, &mut warn) {
            Ok((run, no_picture)) => {
                let name = &run.name;
                left_out.extend(no_picture.map(|e| format!("the attention of {name}: {e}")));
                runs.push(run);
            }
            Err(error) => {
                left_out.push(format!("the run {}: {error}", path.display()));
                first = first.or(Some(error));
            }
        }
    }
    if let (true, Some(error)) = (runs.is_empty(), first) {
        return Err(error);
    }
    left_out.iter().for_each(|text| warn(format!("the page is without {text}")));
    let version = env!("CARGO_PKG_VERSION").into();
    Ok(Report { title: title.into(), version, commands, runs, left_out })
}

/// Loads runs and writes their page to `out`, with the commands that repeat them.
pub fn write(
    title: &str,
    runs: &[impl AsRef<Path>],
    shown: Option<&Shown>,
    out: &Path,
    warn: impl FnMut(String),
) -> Result<(), LabError> {
    let names: Vec<String> = runs.iter().map(|run| run.as_ref().display().to_string()).collect();
    let commands =
        names.iter().map(|run| format!("tra train --config {run}/config.toml --out NEW"));
    let commands =
        commands.chain([format!("tra report {} --out {}", names.join(" "), out.display())]);
    let report = load(title, runs, shown, commands.collect(), &Device::flex(), warn)?;
    save(out, &html(&report))
}

/// Writes the page of a run into its folder. A failure is only a warning, because the run itself is
/// complete.
pub fn write_for(run: &RunDir, mut warn: impl FnMut(String)) {
    let title = |config: RunConfig| {
        format!("{} with {}", run.name(), config.model.decoder.attention.name())
    };
    let shown = Shown::default();
    let written = run.config().and_then(|config| {
        write(&title(config), &[run.path()], Some(&shown), &run.report_path(), &mut warn)
    });
    if let Err(error) = written {
        warn(format!("cannot write the page of {}: {error}", run.name()));
    }
}

/// Writes a text file atomically, and creates its folder.
pub fn save(path: &Path, text: &str) -> Result<(), LabError> {
    let write = || {
        path.parent().map_or(Ok(()), tra_disk::create_dir_all)?;
        tra_disk::write_atomically(path, text.as_bytes())
    };
    write().map_err(|error| LabError::io("cannot write", path, error))
}

/// Loads a run. Also returns the error if its picture cannot be drawn.
fn run(
    path: &Path,
    shown: Option<&Shown>,
    device: &Device,
    warn: &mut impl FnMut(String),
) -> Result<(Run, Option<LabError>), LabError> {
    let dir = RunDir::open(path)?;
    let config = dir.config()?;
    let model = match dir.steps()?.is_empty() {
        true => None,
        false => Some(dir.newest_model(device, &mut *warn)?),
    };
    let picture = match (&model, shown) {
        (Some((step, decoder)), Some(shown)) => picture_of(&dir, &config, *step, decoder, shown),
        _ => Ok(None),
    };
    let (picture, no_picture) = match picture {
        Ok(picture) => (picture, None),
        // For example, a text that no longer exists.
        Err(error) => (None, Some(error)),
    };
    let (mut steps, mut evaluations) = (Vec::new(), Vec::new());
    for metric in dir.metrics()? {
        match metric {
            Metric::Step(record) => steps.push(record),
            Metric::Evaluation(record) => evaluations.push(record),
        }
    }
    let lengths = config.train_lengths();
    let parameters = model.map_or(0, |(_, decoder)| {
        decoder.parameter_shapes().values().map(|shape| shape.iter().product::<usize>()).sum()
    });
    let run = Run {
        name: dir.name(),
        attention: config.model.decoder.attention.name().into(),
        task: config.task.name().into(),
        unit: config.task.info().unit.into(),
        measure: config.measure(),
        seed: config.seed,
        train_length: (lengths.from, lengths.to),
        parameters,
        settings: toml::to_string(&config).map_err(|e| LabError::Setting(e.to_string()))?,
        steps,
        evaluations,
        results: dir.evaluations()?.newest().map_or_else(Vec::new, |e| e.most_sequences()),
        perplexity: dir.perplexities()?.newest().cloned(),
        picture,
    };
    Ok((run, no_picture))
}

/// Returns the picture of a run, unless that would tokenise a text first.
fn picture_of(
    dir: &RunDir,
    config: &RunConfig,
    step: u64,
    decoder: &Decoder,
    shown: &Shown,
) -> Result<Option<Picture>, LabError> {
    let Some(task) = config.task.open_prepared()? else { return Ok(None) };
    dir.check_data_at(step, &task, decoder)?;
    picture(decoder, &task, config.seed, shown).map(Some)
}

/// Returns what every head of a model attends to in one sequence.
fn picture(
    decoder: &Decoder,
    task: &OpenTask,
    seed: u64,
    shown: &Shown,
) -> Result<Picture, LabError> {
    let length = task.longest_up_to(shown.length).unwrap_or(shown.length);
    budget::picture(decoder.config(), task.token_bounds(length)[0]).check()?;
    let sample = task.draw(&shown.split, (length, length), seed, shown.index)?;
    decoder.config().check_length(sample.tokens.len()).map_err(tra_nn::Error::from)?;
    let mut probe = Probe::new(decoder.layers.len(), 0.0);
    let tokens = decoder.tokens(&[&sample.tokens]).map_err(tra_nn::Error::from)?;
    decoder.forward(tokens, Pass::eval().with_probe(&mut probe));

    let size = sample.tokens.len() * sample.tokens.len();
    let host = |t: Option<Tensor<4>>| -> Vec<f32> {
        t.map(|t| t.into_data_as::<f32>().iter::<f32>().collect()).unwrap_or_default()
    };
    let layers = probe.layers.into_iter().map(|layer| {
        let keep = host(layer.keep.map(|keep| keep.float()));
        // A mechanism may compute more softmaxes than it has heads.
        let heads = layer.weights.as_ref().map_or(0, |weights| weights.dims()[1]);
        let count = match layer.count {
            Some(count) => host(Some(count)),
            None => vec![0.0; heads * size],
        };
        let weights = host(layer.weights);
        let head = |h: usize| HeadPicture {
            keep: keep[h * size..][..size].iter().map(|k| *k != 0.0).collect(),
            count: count[h * size..][..size].iter().map(|c| *c as u32).collect(),
            weights: weights[h * size..][..size].to_vec(),
        };
        (0..heads).map(head).collect()
    });
    Ok(Picture {
        tokens: sample.tokens.iter().map(|token| task.token_name(*token)).collect(),
        layers: layers.collect(),
    })
}
