//! Attention with linear biases (Press et al. 2021).

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads, Horizon};
use crate::fused::{self, Rule};
use crate::init::WeightInit;
use crate::ops::{distance, scores};
use crate::settings::settings;

settings! {
    /// Settings of [`Alibi`].
    pub struct AlibiConfig {
        /// Whether to normalise queries and keys as TRA does.
        qk_norm: bool = false, with_qk_norm;
        /// Whether to stop reading keys where no older key can change the result.
        horizon: Horizon = Horizon::Rounding, with_horizon;
    }
}

impl AttentionConfig for AlibiConfig {
    type Attention = Alibi;

    fn init(&self, _: HeadSizes, _: &WeightInit) -> Alibi {
        Alibi { horizon: self.horizon }
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }

    fn has_kernel(&self) -> bool {
        true
    }
}

/// `softmax(q . k / sqrt(e) - m (i - j))` with a fixed slope `m` per head.
#[derive(Module, Debug)]
pub struct Alibi {
    #[module(skip)]
    horizon: Horizon,
}

impl Attention for Alibi {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let (k, v) = context.extend(heads.k, heads.v);
        let ([_, count, ..], device, dtype) = (heads.q.dims(), heads.q.device(), heads.q.dtype());
        let slopes = TensorData::new(slopes(count), [1, count, 1]);
        let slopes = Tensor::<3>::from_data(slopes, (&device, dtype));
        if let Some(kernel) = context.kernel(&heads.q, self.horizon) {
            return fused::attend([heads.q, k, v], Rule::Slope(slopes), kernel);
        }
        let scores = scores(heads.q, k);
        let [_, _, queries, keys] = scores.dims();
        let visible = context.visible(&scores);
        let slopes = slopes.unsqueeze_dim::<4>(3);
        context.attend(scores - slopes * distance(queries, keys, &device, dtype), visible, v)
    }
}

/// `2^(-8h/H)` for heads `h` of `1..=H`. If `H` is not a power of 2: the slopes of the lower power
/// `P`, then every other slope of `2P`.
fn slopes(heads: usize) -> Vec<f64> {
    let of = |n: usize| (1..=n).map(move |h| (-8.0 * h as f64 / n as f64).exp2());
    let lower = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
    of(lower).chain(of(2 * lower).step_by(2)).take(heads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_follow_the_paper() {
        assert_eq!(slopes(1), [1.0 / 256.0]);
        let eight: Vec<f64> = (1..=8).map(|h| 0.5f64.powi(h)).collect();
        assert_eq!(slopes(8), eight);
        let three = [2f64.powi(-4), 2f64.powi(-8), 2f64.powi(-2)];
        assert_eq!(slopes(3), three);
        assert_eq!(slopes(12).len(), 12);
        assert_eq!(slopes(12)[8..], [-0.5, -1.5, -2.5, -3.5].map(f64::exp2));
    }
}
