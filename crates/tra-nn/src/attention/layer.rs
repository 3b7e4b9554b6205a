//! Projections around a mechanism: the layer a model uses.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};

use super::{Attention, AttentionConfig, HeadSizes, Heads};
use crate::dropout::DropoutPlacement;
use crate::error::{ConfigError, Error};
use crate::init::WeightInit;
use crate::ops::{linear, rms_normalise};
use crate::pass::LayerPass;

/// Inside the root of the query/key norm.
pub(crate) const QK_NORM_EPS: f64 = 1e-6;

/// Settings of an [`AttentionLayer`].
#[derive(Clone, Debug)]
pub struct AttentionLayerConfig<C> {
    /// Width of the model.
    pub width: usize,
    /// Number of heads; they share the width evenly.
    pub heads: usize,
    /// Settings of the mechanism.
    pub mechanism: C,
    /// Rate of dropout in training.
    pub dropout: f64,
    /// Where attention drops.
    pub dropout_placement: DropoutPlacement,
    /// The least that logits are multiplied by in training: see [`DecoderConfig::sharpness`](crate::DecoderConfig::sharpness).
    pub sharpness: f64,
    /// Which layer of the model it is, from 0: `differential` begins elsewhere in every layer.
    pub layer: usize,
}

impl<C: AttentionConfig + Default> AttentionLayerConfig<C> {
    /// A layer with the mechanism's default settings and the published dropout of 0.01.
    pub fn new(width: usize, heads: usize) -> Self {
        Self {
            width,
            heads,
            mechanism: C::default(),
            dropout: 0.01,
            dropout_placement: DropoutPlacement::Logits,
            sharpness: 1.0,
            layer: 0,
        }
    }
}

impl<C: AttentionConfig> AttentionLayerConfig<C> {
    /// Makes the layer with weights drawn from the generator of the device.
    pub fn init(&self, device: &Device) -> Result<AttentionLayer<C::Attention>, Error> {
        self.init_with(&WeightInit::random(device))
    }

    /// Makes the layer with weights from `init`.
    pub fn init_with(&self, init: &WeightInit) -> Result<AttentionLayer<C::Attention>, Error> {
        let sizes = self.sizes()?;
        let Self { width, heads, .. } = *self;
        Ok(AttentionLayer {
            tokeys: init.linear("tokeys", width, width, false),
            toqueries: init.linear("toqueries", width, width, false),
            tovalues: init.linear("tovalues", width, width, false),
            mechanism: self.mechanism.init(sizes, init),
            c_out: init.linear("c_out", width, width, true),
            heads,
            qk_norm: self.mechanism.qk_norm(),
            dropout: self.dropout,
            dropout_placement: self.dropout_placement,
            sharpness: self.sharpness,
        })
    }

    fn sizes(&self) -> Result<HeadSizes, ConfigError> {
        let Self { width, heads, dropout, sharpness, layer, .. } = *self;
        for (field, value) in [("width", width), ("heads", heads)] {
            if value == 0 {
                return Err(ConfigError::Zero { field });
            }
        }
        if width % heads != 0 {
            return Err(ConfigError::HeadsDoNotDivideWidth { heads, width });
        }
        if !(0.0..1.0).contains(&dropout) {
            return Err(ConfigError::Dropout(dropout));
        }
        if !(sharpness > 0.0 && sharpness <= 1.0) {
            return Err(ConfigError::Sharpness(sharpness));
        }
        let sizes = HeadSizes { width, heads, head_dim: width / heads, layer };
        self.mechanism.validate(sizes)?;
        Ok(sizes)
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
    /// When `x` has another width than the layer.
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
