//! Rotary position embedding (Su et al. 2021).

use std::sync::{Arc, Mutex, PoisonError};

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};

use super::{Attention, AttentionConfig, Context, HeadSizes, Heads};
use crate::error::ConfigError;
use crate::fused;
use crate::init::WeightInit;
use crate::settings::settings;

settings! {
    /// Settings of [`Rope`].
    pub struct RopeConfig {
        /// Base of the wavelengths. The TRA paper's setting is 500,000.
        theta: f64 = 500_000.0, with_theta;
        /// Whether to normalise queries and keys as TRA does, before the rotation.
        qk_norm: bool = false, with_qk_norm;
    }
}

impl AttentionConfig for RopeConfig {
    type Attention = Rope;

    fn init(&self, _: HeadSizes, init: &WeightInit) -> Rope {
        Rope::new(self.theta, init)
    }

    fn qk_norm(&self) -> bool {
        self.qk_norm
    }

    fn has_kernel(&self) -> bool {
        true
    }

    fn validate(&self, _: HeadSizes) -> Result<(), ConfigError> {
        check_theta("rope", self.theta)
    }
}

/// Refuses a base of wavelengths that is not positive and finite.
pub(super) fn check_theta(mechanism: &'static str, theta: f64) -> Result<(), ConfigError> {
    if theta > 0.0 && theta.is_finite() {
        return Ok(());
    }
    let reason = format!("theta must be positive, not {theta}");
    Err(ConfigError::Mechanism { mechanism, reason })
}

/// Rotates queries and keys by their position, then `softmax(q . k / sqrt(e))`.
///
/// Dimension `t` is paired with `t + e/2`, as in Llama and GPT-NeoX. If the
/// head dimension is odd, the last one stays as it is.
#[derive(Module, Debug)]
pub struct Rope {
    theta: f64,
    #[module(skip)]
    tables: RotationTables,
}

/// The last few tables of cosines and sines, each for a theta, a first position, a length and a
/// width. Every layer of a pass needs the same one, so all layers of a model share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RotationTables(Arc<Mutex<Vec<(TableKey, RotationTable)>>>);

type TableKey = (u64, usize, usize, usize);
type RotationTable = Arc<[Vec<f32>; 2]>;

impl Attention for Rope {
    fn forward(&self, heads: Heads, mut context: Context<'_>) -> Tensor<4> {
        let [q, k] = self.turn([heads.q, heads.k], context.past());
        let (k, v) = context.extend(k, heads.v);
        context.dense([q, k, v])
    }
}

impl Rope {
    pub(super) fn new(theta: f64, init: &WeightInit) -> Self {
        Self { theta, tables: init.rotation_tables() }
    }

    /// Turns queries and keys by their positions, the first of which is `past`.
    pub(super) fn turn(&self, both: [Tensor<4>; 2], past: usize) -> [Tensor<4>; 2] {
        if fused::usable(&both[0]) {
            let angles = self.angles(past, &both[0]);
            return both.map(|x| fused::rotate(x.swap_dims(1, 2), angles.clone()).swap_dims(1, 2));
        }
        let rotation = self.rotation(past, &both[0]);
        both.map(|x| rotate(x, &rotation))
    }

    /// Returns the same numbers for the fused rotation, `[length, head_dim / 2]` each.
    fn angles(&self, past: usize, like: &Tensor<4>) -> RotationTable {
        let [_, _, length, head_dim] = like.dims();
        let key = (self.theta.to_bits(), past, length, head_dim);
        let mut tables = self.tables.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, table)) = tables.iter().find(|(known, _)| *known == key) {
            return table.clone();
        }
        let pairs = head_dim / 2;
        let speed: Vec<f64> = (0..pairs).map(|pair| self.speed(pair, head_dim)).collect();
        let table = Arc::new([f64::cos, f64::sin].map(|f| {
            let at = |position: usize| speed.iter().map(move |s| f(position as f64 * s) as f32);
            (past..past + length).flat_map(at).collect()
        }));
        tables.truncate(3);
        tables.insert(0, (key, table.clone()));
        table
    }

    /// Returns the angle of a pair of dimensions from one position to the next.
    fn speed(&self, pair: usize, head_dim: usize) -> f64 {
        self.theta.powf(-2.0 * pair as f64 / head_dim as f64)
    }

    /// Returns cosine and sine of every position and pair, each `[1, 1, length, head_dim / 2]`.
    ///
    /// Angles are reduced in f64: at position 65,536 an f32 angle is off by up to 0.004.
    fn rotation(&self, past: usize, like: &Tensor<4>) -> [Tensor<4>; 2] {
        let [_, _, length, head_dim] = like.dims();
        let pairs = head_dim / 2;
        let angle = |at: usize| {
            let (position, pair) = (past + at / pairs, at % pairs);
            position as f64 * self.speed(pair, head_dim)
        };
        [f64::cos, f64::sin].map(|f| {
            let values: Vec<f64> = (0..length * pairs).map(|at| f(angle(at))).collect();
            let data = TensorData::new(values, [1, 1, length, pairs]);
            Tensor::from_data(data, (&like.device(), like.dtype()))
        })
    }
}

fn rotate(x: Tensor<4>, [cos, sin]: &[Tensor<4>; 2]) -> Tensor<4> {
    let [.., head_dim] = x.dims();
    let pairs = head_dim / 2;
    if pairs == 0 {
        return x;
    }
    let (a, b) = (x.clone().narrow(3, 0, pairs), x.clone().narrow(3, pairs, pairs));
    let mut parts =
        vec![a.clone() * cos.clone() - b.clone() * sin.clone(), a * sin.clone() + b * cos.clone()];
    if head_dim % 2 == 1 {
        parts.push(x.narrow(3, head_dim - 1, 1));
    }
    Tensor::cat(parts, 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::scores;
    use burn::tensor::{Device, Distribution, Tolerance};

    #[test]
    fn scores_depend_on_the_difference_of_positions_alone() {
        let device = Device::flex();
        let rope = Rope::new(500_000.0, &WeightInit::seeded(0, &device));
        for head_dim in [1, 2, 5, 8] {
            let shape = [1, 2, 6, head_dim];
            let q = Tensor::<4>::random(shape, Distribution::Default, &device);
            let k = Tensor::<4>::random(shape, Distribution::Default, &device);
            let at = |past| {
                let r = rope.rotation(past, &q);
                scores(rotate(q.clone(), &r), rotate(k.clone(), &r)).into_data()
            };
            at(0).assert_approx_eq::<f32>(&at(100_000), Tolerance::absolute(1e-4));
        }
    }
}
