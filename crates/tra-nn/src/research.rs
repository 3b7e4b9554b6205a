//! Settings for experiments, apart from those that a user of the layer needs.

use serde_json::{Map, Value};

use crate::error::ConfigError;
use crate::settings::settings;

settings! {
    /// Settings for experiments with training. All are off by default: the defaults are the
    /// published decoder. TRA has one more, [`TraResearch`](crate::attention::TraResearch).
    #[derive(Copy)]
    pub struct Research {
        /// Lowest factor on the logits in training. Every layer multiplies its logits, at every
        /// step, by a number drawn evenly from `sharpness` to 1. A flatter softmax is what a longer
        /// sequence makes: the right key must stand out further, or the others must leave.
        sharpness: f64 = 1.0, with_sharpness;
        /// Rate of dropout on the embedding; `None` is the rate of the rest. A rate of 0.1 carries
        /// copies to longer strings (docs/tried.md).
        #[serde(skip_serializing_if = "Option::is_none")]
        embedding_dropout: Option<f64> = None, with_embedding_dropout;
        /// Embeddings begin uniform in this range around 0. An AdamW step moves them by up to the
        /// learning rate, whatever their size, so a high learning rate wants a wider range.
        embedding_bound: f64 = 0.01, with_embedding_bound;
    }
}

impl Research {
    /// The settings that older files have beside `research` instead of in it.
    const MOVED: [&str; 3] = ["sharpness", "embedding_dropout", "embedding_bound"];

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let Self { sharpness, embedding_dropout, embedding_bound } = *self;
        if let Some(rate) = embedding_dropout.filter(|rate| !(0.0..1.0).contains(rate)) {
            return Err(ConfigError::EmbeddingDropout(rate));
        }
        if !(sharpness > 0.0 && sharpness <= 1.0) {
            return Err(ConfigError::Sharpness(sharpness));
        }
        if !(embedding_bound > 0.0 && (embedding_bound as f32).is_finite()) {
            return Err(ConfigError::EmbeddingBound(embedding_bound));
        }
        Ok(())
    }
}

/// Brings the settings of a decoder, as any version wrote them, into today's form.
pub(crate) fn regroup(config: &mut Map<String, Value>) {
    into_group(config, &Research::MOVED);
    if let Some(Value::Object(attention)) = config.get_mut("attention") {
        into_group(attention, &["leak"]);
    }
}

/// Moves settings into `research`. A setting that is there too stays, and is then an unknown field.
fn into_group(settings: &mut Map<String, Value>, moved: &[&str]) {
    for key in moved {
        if settings.get("research").is_some_and(|group| group.get(key).is_some()) {
            continue;
        }
        let Some(value) = settings.remove(*key) else { continue };
        let group = settings.entry("research").or_insert_with(|| Map::new().into());
        if let Value::Object(group) = group {
            group.insert((*key).into(), value);
        }
    }
}
