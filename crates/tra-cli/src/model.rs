//! Flags that choose a trained language model, the same for every command that needs one.

use std::path::PathBuf;

use anyhow::Result;
use tra_lab::language::{CheckpointSelector, LanguageModel};

use crate::terminal;

#[derive(clap::Args)]
pub struct ModelArgs {
    /// A run directory, or a model file (model.safetensors)
    #[arg(value_name = "DIR")]
    model: PathBuf,

    /// Which checkpoint of the run: a step [default: the newest]
    #[arg(long, value_name = "STEP", help_heading = "Model")]
    checkpoint: Option<u64>,

    /// The best checkpoint by the evaluations during training
    #[arg(long, conflicts_with = "checkpoint", help_heading = "Model")]
    best: bool,

    /// gpt2, bytes or a tokenizer.json, for a model file that keeps no tokenizer
    #[arg(long, help_heading = "Model")]
    tokenizer: Option<String>,

    /// Where to compute: flex (the CPU), or a GPU backend this build has, as in cuda:0
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
        let tokenizer = self.tokenizer.as_deref();
        Ok(LanguageModel::open(&self.model, selector, tokenizer, &device, terminal::warn)?)
    }
}
