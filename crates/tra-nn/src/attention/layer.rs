//! The layer that a model uses: projections around a mechanism.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::{Attention, AttentionConfig, HeadSizes, Heads};
use crate::dropout::DropoutPlacement;
use crate::error::{ConfigError, Error};
use crate::init::WeightInit;
use crate::ops::{linear, rms_normalise};
use crate::pass::LayerPass;

/// Epsilon of the norm of queries and keys.
pub(crate) const QK_NORM_EPS: f64 = 1e-6;

/// Settings of an [`AttentionLayer`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AttentionLayerConfig<C> {
    /// Width of the model.
    pub width: usize,
    /// Number of heads; they share the width evenly.
    pub heads: usize,
    /// Settings of the mechanism.
    #[serde(default)]
    pub mechanism: C,
    /// Rate of dropout in training.
    #[serde(default = "published_dropout")]
    pub dropout: f64,
    /// Where attention drops.
    #[serde(default)]
    pub dropout_placement: DropoutPlacement,
    /// Index of the layer in the model: `differential` begins differently in every layer.
    #[serde(default)]
    pub layer: usize,
    /// [`Research::sharpness`](crate::Research::sharpness), as a decoder sets it.
    #[serde(skip, default = "published_sharpness")]
    pub(crate) sharpness: f64,
}

fn published_dropout() -> f64 {
    0.01
}

fn published_sharpness() -> f64 {
    1.0
}

impl<C: AttentionConfig + Default> AttentionLayerConfig<C> {
    /// A layer with the mechanism's default settings and the published dropout of 0.01.
    pub fn new(width: usize, heads: usize) -> Self {
        Self {
            width,
            heads,
            mechanism: C::default(),
            dropout: published_dropout(),
            dropout_placement: DropoutPlacement::Logits,
            layer: 0,
            sharpness: published_sharpness(),
        }
    }
}

impl<C: AttentionConfig> AttentionLayerConfig<C> {
    /// Sets the settings of the mechanism.
    #[must_use]
    pub fn with_mechanism(self, mechanism: C) -> Self {
        Self { mechanism, ..self }
    }

    /// Sets the rate of dropout in training.
    #[must_use]
    pub fn with_dropout(self, dropout: f64) -> Self {
        Self { dropout, ..self }
    }

    /// Sets where attention drops.
    #[must_use]
    pub fn with_dropout_placement(self, dropout_placement: DropoutPlacement) -> Self {
        Self { dropout_placement, ..self }
    }

    /// Sets the index of the layer in the model.
    #[must_use]
    pub fn with_layer(self, layer: usize) -> Self {
        Self { layer, ..self }
    }

    /// Makes the layer with weights drawn from the generator of the device.
    pub fn init(&self, device: &Device) -> Result<AttentionLayer<C::Attention>, Error> {
        self.init_with(&WeightInit::random(device))
    }

    /// Makes the layer with weights from `init`.
    pub fn init_with(&self, init: &WeightInit) -> Result<AttentionLayer<C::Attention>, Error> {
        self.validate()?;
        let Self { width, heads, .. } = *self;
        Ok(AttentionLayer {
            tokeys: init.linear("tokeys", width, width, false),
            toqueries: init.linear("toqueries", width, width, false),
            tovalues: init.linear("tovalues", width, width, false),
            mechanism: self.mechanism.init(self.sizes(), init),
            c_out: init.linear("c_out", width, width, true),
            heads,
            qk_norm: self.mechanism.qk_norm(),
            dropout: self.dropout,
            dropout_placement: self.dropout_placement,
            sharpness: self.sharpness,
        })
    }

    /// Refuses settings that no layer can have, and names the one at fault.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { width, heads, dropout, .. } = *self;
        for (field, value) in [("width", width), ("heads", heads)] {
            ConfigError::check_not_zero(field, value)?;
        }
        if width % heads != 0 {
            return Err(ConfigError::HeadsDoNotDivideWidth { heads, width });
        }
        if !(0.0..1.0).contains(&dropout) {
            return Err(ConfigError::Dropout(dropout));
        }
        self.mechanism.validate(self.sizes())
    }

    fn sizes(&self) -> HeadSizes {
        let Self { width, heads, layer, .. } = *self;
        HeadSizes { width, heads, head_dim: width / heads, layer }
    }
}

/// Multi-head causal self-attention with any mechanism.
///
/// Field names are those of a reference checkpoint.
#[derive(Module, Debug)]
pub struct AttentionLayer<A> {
    /// Makes keys.
    pub tokeys: Linear,
    /// Makes queries.
    pub toqueries: Linear,
    /// Makes values.
    pub tovalues: Linear,
    /// Attends.
    pub mechanism: A,
    /// Joins the heads.
    pub c_out: Linear,
    heads: usize,
    qk_norm: bool,
    dropout: f64,
    #[module(skip)]
    dropout_placement: DropoutPlacement,
    sharpness: f64,
}

impl<A: Attention> AttentionLayer<A> {
    /// Attends within `x`, and to what the cache in `pass` holds.
    ///
    /// Shape `[batch, length, width]` in and out.
    ///
    /// # Panics
    /// If `x` has another width than the layer.
    pub fn forward(&self, x: Tensor<3>, pass: LayerPass<'_>) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let split = |projection: &Linear, norm: bool| {
            let y = linear(projection, x.clone());
            let y = y.reshape([batch, length, self.heads, width / self.heads]);
            let y = if norm { rms_normalise(y, QK_NORM_EPS) } else { y };
            y.swap_dims(1, 2)
        };
        let heads = Heads {
            q: split(&self.toqueries, self.qk_norm),
            k: split(&self.tokeys, self.qk_norm),
            v: split(&self.tovalues, false),
            hidden: x.clone(),
        };
        let context = pass.context(self.dropout, self.dropout_placement);
        let context = context.with_sharpness(self.sharpness);
        let out = self.mechanism.forward(heads, context);
        linear(&self.c_out, out.swap_dims(1, 2).reshape([batch, length, width]))
    }
}
