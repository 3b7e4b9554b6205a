//! A trained language model: the decoder and its tokenizer, from a run or a single file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};

use burn::tensor::Device;
use tra_disk::AtomicFile;
use tra_nn::Decoder;
use tra_nn::checkpoint::TensorFile;
use tra_text::{Corpus, Part, TextError, Tokenizer, source};

use crate::error::LabError;
use crate::run_dir::{RunDir, TOKENIZER};

/// Some trainers round the vocabulary up for speed, to a multiple of this number.
const ROUNDED: usize = 128;

/// Selects a checkpoint of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointSelector {
    /// The newest checkpoint.
    Newest,
    /// The best checkpoint by the evaluations during training.
    Best,
    /// The checkpoint of a step.
    Step(u64),
}

/// A decoder and its tokenizer.
#[derive(Debug)]
pub struct LanguageModel {
    /// The decoder.
    pub decoder: Decoder,
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// Training steps; 0 if unknown.
    pub step: u64,
    /// The run, unless the model is a single file.
    pub run: Option<RunDir>,
    /// The file it was read from.
    pub file: PathBuf,
}

impl LanguageModel {
    /// Opens a checkpoint of a run directory, or a model file.
    ///
    /// The tokenizer is normally stored in the file. `tokenizer` (a name or a path) is for files
    /// without one, such as PyTorch's.
    pub fn open(
        path: &Path,
        selector: CheckpointSelector,
        tokenizer: Option<&str>,
        device: &Device,
        mut warn: impl FnMut(String),
    ) -> Result<Self, LabError> {
        if path.is_file() {
            if selector != CheckpointSelector::Newest {
                let reason = "is a single model file; --best and --checkpoint need a run directory";
                return Err(LabError::run_dir(path, reason));
            }
            let (decoder, tokenizer) = read(TensorFile::read(path)?, tokenizer, device)?;
            return Ok(Self { decoder, tokenizer, step: 0, run: None, file: path.into() });
        }
        let run = RunDir::open(path)?;
        let open = |step: u64| Ok((step, TensorFile::read(run.model_file(step))?));
        let (step, tensors) = match selector {
            CheckpointSelector::Newest => run
                .newest_readable(&mut warn, open)?
                .ok_or_else(|| LabError::run_dir(path, "has no checkpoint yet; train it first"))?,
            CheckpointSelector::Best => open(run.best_step()?)?,
            CheckpointSelector::Step(step) => {
                run.check_step(step)?;
                open(step)?
            }
        };
        let file = tensors.path.clone();
        let (decoder, tokenizer) = read(tensors, tokenizer, device)?;
        run.check_model(decoder.config())?;
        Ok(Self { decoder, tokenizer, step, run: Some(run), file })
    }
}

fn read(
    mut file: TensorFile,
    given: Option<&str>,
    device: &Device,
) -> Result<(Decoder, Tokenizer), LabError> {
    let path = file.path.clone();
    let kept = file.metadata.remove(TOKENIZER);
    let config = file.config()?;
    let tokenizer = match (given, kept) {
        (Some(name), kept) => {
            let given = Tokenizer::open(name)?;
            if kept.is_some_and(|record| record != given.record()) {
                let reason = "was trained with another tokenizer, which is stored in it; leave out \
                              --tokenizer";
                return Err(LabError::run_dir(&path, reason));
            }
            given
        }
        (None, Some(record)) => Tokenizer::from_record(&record)?,
        (None, None) => {
            let reason = "keeps no tokenizer: it was not trained on text, or not by `tra train`; \
                          if it is a language model, name its tokenizer with --tokenizer";
            return Err(LabError::run_dir(&path, reason));
        }
    };
    let (vocab, tokens) = (config.vocab, tokenizer.vocab());
    if vocab != tokens && vocab != tokens.next_multiple_of(ROUNDED) {
        let name = tokenizer.name();
        let reason = format!(
            "the model knows {vocab} tokens, but {name} has {tokens}; choose its own --tokenizer"
        );
        return Err(LabError::run_dir(&path, reason));
    }
    Ok((Decoder::from_tensors(config, file, device)?, tokenizer))
}

/// Learns a tokenizer of `vocab` tokens from the training part of a text and writes it to `to`.
///
/// Returns its number of tokens, which is less than `vocab` if the text has too few pairs that
/// occur twice.
pub fn learn_tokenizer(text: &Path, vocab: usize, to: &Path) -> Result<usize, LabError> {
    if !(257..=1 << 20).contains(&vocab) {
        return Err(LabError::Setting(format!(
            "--vocab must be between 257 and 1,048,576, not {vocab}"
        )));
    }
    let corpus = Corpus::find(text, Part::Train)?;
    let same = |file: &PathBuf| file.canonicalize().ok() == to.canonicalize().ok();
    if to.exists() && corpus.files().iter().any(same) {
        let out = to.display();
        return Err(LabError::Setting(format!("{out} is the text itself; choose another --out")));
    }
    // Created before learning, which takes a while, so that an unwritable path is reported at once.
    // Several processes may learn the same tokenizer.
    let unwritable = |error| LabError::io("cannot write", to, error);
    let mut file = AtomicFile::create(to).map_err(unwritable)?;
    // Read line by line, because only words are counted. Only a few lines are held at once, so the
    // text may be larger than memory.
    let (sender, receiver) = sync_channel::<String>(1 << 10);
    let learned = std::thread::scope(|scope| {
        let reader = scope.spawn(move || corpus.files().iter().try_for_each(|f| lines(f, &sender)));
        let learned = Tokenizer::learn(receiver.into_iter(), vocab);
        match reader.join() {
            Ok(read) => read.and(learned),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    let json = learned?;
    let vocab = Tokenizer::from_record(&json)?.vocab();
    file.write_all(json.as_bytes()).map_err(unwritable)?;
    file.commit().map_err(unwritable)?;
    Ok(vocab)
}

/// A longer line is sent in parts, so that it need not fit in memory.
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

/// Returns where a long line is split: before white space, if there is any.
fn part_of(line: &str) -> usize {
    let most = line.floor_char_boundary(LONGEST_LINE);
    line[..most].rfind(char::is_whitespace).filter(|place| *place > 0).unwrap_or(most)
}
