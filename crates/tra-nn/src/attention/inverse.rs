//! Scores divided by the distance: the worked example of ARCHITECTURE.md, built with the tests.

use burn::module::Module;
use burn::tensor::Tensor;

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads};
use crate::init::WeightInit;
use crate::ops::{distance, scores};
use crate::settings::settings;

settings! {
    /// Settings of [`Inverse`].
    pub struct InverseConfig {
        /// Whether to normalise queries and keys as TRA does.
        qk_norm: bool = false, with_qk_norm;
    }
}

impl AttentionConfig for InverseConfig {
    type Attention = Inverse;

    fn init(&self, _: HeadSizes, _: &WeightInit) -> Inverse {
        Inverse {}
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }
}

/// `softmax(q . k / sqrt(e) / (i - j + 1))`.
#[derive(Module, Debug)]
pub struct Inverse {}

impl Attention for Inverse {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        // With a cache, all keys and values so far.
        let (k, v) = context.extend(heads.k, heads.v);
        let scores = scores(heads.q, k);
        let [_, _, queries, keys] = scores.dims();
        let visible = context.visible(&scores);
        let distance = distance(queries, keys, &scores.device(), scores.dtype());
        context.attend(scores / (distance.clamp_min(0.0) + 1.0), visible, v)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution, Tolerance};

    use super::*;
    use crate::attention::AttentionLayerConfig;
    use crate::{LayerCache, LayerPass};

    /// So that neither the document nor this file can change alone.
    #[test]
    fn the_document_shows_this_file() {
        let document = include_str!("../../../../ARCHITECTURE.md");
        let (_, section) = document.split_once("## How to add a mechanism").unwrap();
        let (_, block) = section.split_once("```rust\n").unwrap();
        let (block, _) = block.split_once("   ```").unwrap();
        let shown: Vec<&str> =
            block.lines().map(|line| line.strip_prefix("   ").unwrap_or(line)).collect();
        let (code, _) = include_str!("inverse.rs").split_once("\n#[cfg(test)]").unwrap();
        let (_, code) = code.split_once("\n\n").unwrap();
        assert_eq!(shown.join("\n"), code.trim_end());
    }

    #[test]
    fn it_is_a_mechanism() {
        let device = Device::flex();
        let x = Tensor::<3>::random([2, 9, 12], Distribution::Default, &device);
        let layer = |config| {
            let layer = AttentionLayerConfig::new(12, 3).with_mechanism(config);
            layer.init_with(&WeightInit::seeded(1, &device)).unwrap()
        };
        let all = |config| layer(config).forward(x.clone(), LayerPass::eval()).into_data();
        let plain = all(InverseConfig::default());
        assert_ne!(plain, all(InverseConfig::default().with_qk_norm(true)));
        let mut cache = LayerCache::new();
        let layer = layer(InverseConfig::default());
        let parts = [(0, 5), (5, 4)].map(|(from, count)| {
            layer.forward(x.clone().narrow(1, from, count), LayerPass::cached(&mut cache))
        });
        let parts = Tensor::cat(parts.into(), 1).into_data();
        parts.assert_approx_eq::<f32>(&plain, Tolerance::absolute(1e-5));
    }
}
