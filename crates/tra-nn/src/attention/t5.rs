//! Relative position bias in buckets (Raffel et al. 2020).

use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor, TensorData};

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads};
use crate::error::ConfigError;
use crate::init::WeightInit;
use crate::ops::scores;
use crate::settings::settings;

settings! {
    /// Settings of [`T5`].
    pub struct T5Config {
        /// Number of biases per head.
        buckets: usize = 32, with_buckets;
        /// Distance from which all keys have the last bias.
        max_distance: usize = 128, with_max_distance;
        /// Whether to normalise queries and keys as TRA does.
        qk_norm: bool = false, with_qk_norm;
    }
}

impl AttentionConfig for T5Config {
    type Attention = T5;

    fn init(&self, sizes: HeadSizes, init: &WeightInit) -> T5 {
        let relative_bias = init.constant([self.buckets, sizes.heads], 0.0);
        T5 { relative_bias, max_distance: self.max_distance }
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }

    fn validate(&self, _: HeadSizes) -> Result<(), ConfigError> {
        let Self { buckets, max_distance, .. } = *self;
        if buckets >= 2 && max_distance > buckets / 2 {
            return Ok(());
        }
        let reason = format!(
            "buckets must be at least 2 and max_distance above half of them, not {buckets} \
             and {max_distance}"
        );
        Err(ConfigError::Mechanism { mechanism: "t5", reason })
    }
}

/// `softmax(q . k / sqrt(e) + b[bucket of the distance])`: each distance below half the buckets has
/// its own bias, longer ones share biases in growing steps, and all from `max_distance` on have the
/// last one. Every layer has its own table, which begins at zero.
#[derive(Module, Debug)]
pub struct T5 {
    /// The biases, `[buckets, heads]`.
    pub relative_bias: Param<Tensor<2>>,
    max_distance: usize,
}

impl T5 {
    /// Returns the index of the bias for a distance.
    fn bucket(&self, distance: usize) -> usize {
        let [buckets, _] = self.relative_bias.dims();
        let exact = buckets / 2;
        if distance < exact {
            return distance;
        }
        let ratio = |a: usize| (a as f64 / exact as f64).ln();
        let share = ratio(distance) / ratio(self.max_distance);
        (exact + (share * (buckets - exact) as f64) as usize).min(buckets - 1)
    }
}

impl Attention for T5 {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let (k, v) = context.extend(heads.k, heads.v);
        let scores = scores(heads.q, k);
        let [_, count, queries, keys] = scores.dims();
        // The bias of every distance, then of every pair: `[1, heads, queries, keys]`.
        let of_distance: Vec<i64> = (0..keys).map(|d| self.bucket(d) as i64).collect();
        let pairs = (keys - queries..keys).flat_map(|i| {
            let of_distance = &of_distance;
            (0..keys).map(move |j| of_distance[i.saturating_sub(j)])
        });
        let pairs = TensorData::new(pairs.collect::<Vec<_>>(), [queries * keys]);
        let pairs = Tensor::<1, Int>::from_data(pairs, &scores.device());
        let bias = self.relative_bias.val().select(0, pairs);
        let bias = bias.transpose().reshape([1, count, queries, keys]);
        let visible = context.visible(&scores);
        context.attend(scores + bias, visible, v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    /// The first distance of every bucket from the eighth on, for 32 buckets and 128, as the published
    /// code has them.
    #[test]
    fn buckets_are_those_of_the_published_code() {
        let device = Device::flex();
        let sizes = HeadSizes { width: 4, heads: 1, head_dim: 4, layer: 0 };
        let t5 = T5Config::default().init(sizes, &WeightInit::seeded(0, &device));
        let firsts: Vec<usize> =
            (8..32).map(|b| (0..1000).find(|d| t5.bucket(*d) == b).unwrap()).collect();
        assert_eq!(firsts[..9], [8, 9, 10, 11, 12, 13, 14, 15, 16]);
        assert_eq!(firsts[9..], [19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]);
        assert_eq!(t5.bucket(127), 31);
        assert_eq!(t5.bucket(1 << 40), 31);
    }
}
