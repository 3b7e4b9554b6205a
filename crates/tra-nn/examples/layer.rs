//! Uses Threshold Relative Attention as a layer in a Burn model of one's own.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Distribution, Int, Tensor};
use tra_nn::{LayerPass, ThresholdRelativeAttention, ThresholdRelativeAttentionConfig};

/// Says which of several classes a sequence of tokens belongs to.
#[derive(Module, Debug)]
struct Classifier {
    embedding: Embedding,
    norm: LayerNorm,
    attention: ThresholdRelativeAttention,
    head: Linear,
}

impl Classifier {
    fn new(vocab: usize, classes: usize, device: &Device) -> Result<Self, tra_nn::Error> {
        let width = 64;
        Ok(Self {
            embedding: EmbeddingConfig::new(vocab, width).init(device),
            norm: LayerNormConfig::new(width).init(device),
            attention: ThresholdRelativeAttentionConfig::new(width, 4)
                .with_dropout(0.1)
                .init(device)?,
            head: LinearConfig::new(width, classes).init(device),
        })
    }

    /// Takes tokens `[batch, length]` and returns logits `[batch, classes]`.
    fn forward(&self, tokens: Tensor<2, Int>, pass: LayerPass<'_>) -> Tensor<2> {
        let x = self.embedding.forward(tokens);
        let x = x.clone() + self.attention.forward(self.norm.forward(x), pass);
        self.head.forward(x.mean_dim(1).squeeze_dim::<2>(1))
    }
}

fn main() -> Result<(), tra_nn::Error> {
    let device = Device::flex().autodiff();
    let model = Classifier::new(100, 5, &device)?;
    println!("{} parameters", model.num_params());

    // A step of training: dropout depends on seed, step and layer alone.
    let tokens =
        |length| Tensor::<2, Int>::random([8, length], Distribution::Uniform(0.0, 99.0), &device);
    let logits = model.forward(tokens(32), LayerPass::train(1, 0, 0));
    let gradients = logits.clone().square().mean().backward();
    let gate = model.attention.mechanism.delta_proj.weight.val().grad(&gradients);
    let size = gate.map(|gate| gate.abs().max().into_scalar::<f32>());
    println!("logits {:?}, largest gradient of the forget gate {size:?}", logits.dims());

    // There is no limit on the length.
    let long = model.valid().forward(tokens(5000).inner(), LayerPass::eval());
    println!("logits {:?} for sequences of 5000 tokens", long.dims());
    Ok(())
}
