//! Flags that choose a trained language model, the same for every command that needs one.

use std::path::PathBuf;

use anyhow::Result;
use tra_lab::language::{CheckpointSelector, LanguageModel};

use crate::{run_folder, terminal};

#[derive(clap::Args)]
pub struct ModelArgs {
    /// Run directory, or model file (model.safetensors)
    #[arg(value_name = "DIR")]
    model: PathBuf,

    /// Step of the checkpoint to use [default: the newest]
    #[arg(long, value_name = "STEP", help_heading = "Model")]
    checkpoint: Option<u64>,

    /// Use the checkpoint that did best in the evaluations during training
    #[arg(long, conflicts_with = "checkpoint", help_heading = "Model")]
    best: bool,

    /// Tokenizer of a model file that contains none: gpt2, bytes, or a tokenizer.json
    #[arg(long, help_heading = "Model")]
    tokenizer: Option<String>,

    /// Device: flex (the CPU), or a GPU backend of this build, for example cuda:0
    #[arg(long, default_value = "flex", help_heading = "Model")]
    device: String,
}

impl ModelArgs {
    pub fn open(&self) -> Result<LanguageModel> {
        let device = tra_nn::device::by_name(&self.device)?;
        let selector = match (self.best, self.checkpoint) {
            (true, _) => CheckpointSelector::Best,
            (_, Some(step)) => CheckpointSelector::Step(step),
            _ => CheckpointSelector::Newest,
        };
        if self.model.is_dir() {
            run_folder::check(&self.model)?;
        }
        let tokenizer = self.tokenizer.as_deref();
        Ok(LanguageModel::open(&self.model, selector, tokenizer, &device, terminal::warn)?)
    }
}
