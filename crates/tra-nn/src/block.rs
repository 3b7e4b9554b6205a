//! One block of the decoder, as published: it normalises the residual stream itself.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::silu;
use tra_kernels::dropout::Dropout;
use tra_random::Stream;

use crate::attention::{AnyAttention, AttentionLayer};
use crate::config::DecoderConfig;
use crate::dropout::drop;
use crate::error::Error;
use crate::fused;
use crate::init::WeightInit;
use crate::norm::RmsNorm;
use crate::ops::linear;
use crate::pass::LayerPass;

/// Attention, then the feed-forward part, each after a norm and added to the stream.
#[derive(Module, Debug)]
pub struct Block {
    /// Before attention.
    pub ln1: RmsNorm,
    /// Attention.
    pub attn: AttentionLayer<AnyAttention>,
    /// Before the feed-forward part.
    pub ln2: RmsNorm,
    /// The feed-forward part.
    pub mlp: Mlp,
}

impl Block {
    pub(crate) fn new(
        config: &DecoderConfig,
        layer: usize,
        init: &WeightInit,
    ) -> Result<Self, Error> {
        let DecoderConfig { width, dropout, norm_eps, .. } = *config;
        Ok(Self {
            ln1: RmsNorm::new(width, norm_eps, &init.scope("ln1")),
            attn: config.attention_layer(layer).init_with(&init.scope("attn"))?,
            ln2: RmsNorm::new(width, norm_eps, &init.scope("ln2")),
            mlp: Mlp::new(width, dropout, &init.scope("mlp")),
        })
    }

    /// Runs the block. Shape `[batch, length, width]` in and out.
    pub fn forward(&self, x: Tensor<3>, pass: LayerPass<'_>) -> Tensor<3> {
        let stream = pass.training;
        let x = self.ln1.forward(x);
        let x = x.clone() + self.attn.forward(x, pass);
        let x = self.ln2.forward(x);
        x.clone() + self.mlp.forward(x, stream.map(|s| s.fork_name("mlp")))
    }
}

/// The feed-forward part: a gated linear unit with SiLU.
#[derive(Module, Debug)]
pub struct Mlp {
    /// `width` to `4 width`; the second half gates the first.
    pub linear1: Linear,
    /// `2 width` to `width`.
    pub linear2: Linear,
    dropout: f64,
}

impl Mlp {
    fn new(width: usize, dropout: f64, init: &WeightInit) -> Self {
        Self {
            linear1: init.linear("linear1", width, 4 * width, true),
            linear2: init.linear("linear2", 2 * width, width, true),
            dropout,
        }
    }

    fn forward(&self, x: Tensor<3>, stream: Option<Stream>) -> Tensor<3> {
        let half = 2 * x.dims()[2];
        let both = linear(&self.linear1, x);
        if fused::usable(&both) {
            let stream = stream.filter(|_| self.dropout > 0.0);
            let dropout = stream.map(|stream| Dropout::new(stream, self.dropout));
            return linear(&self.linear2, fused::swiglu(both, dropout));
        }
        let (a, gate) = (both.clone().narrow(2, 0, half), both.narrow(2, half, half));
        self.linear2.forward(drop(a * silu(gate), self.dropout, stream))
    }
}
