//! Absolute positions, added to the embedding.

use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorData};

use crate::init::WeightInit;

/// The vectors of positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PositionEncoding {
    /// Sines and cosines of wavelengths up to `theta` times 2 pi; there is no last position.
    Sinusoidal {
        /// Base of the wavelengths.
        theta: f64,
    },
    /// A table of learned vectors.
    Learned {
        /// Number of positions.
        count: usize,
    },
}

/// The vectors that a decoder adds to the embedding at every position.
#[derive(Module, Debug)]
pub struct PositionEmbedding {
    /// `learned`: the vectors, `[count, width]`. `sinusoidal`: one number, the size of the waves. It is
    /// learned: embeddings begin a hundred times smaller than a wave and grow in training.
    pub weight: Param<Tensor<2>>,
    #[module(skip)]
    positions: PositionEncoding,
}

impl PositionEmbedding {
    pub(crate) fn new(
        positions: PositionEncoding,
        width: usize,
        bound: f64,
        init: &WeightInit,
    ) -> Self {
        let init = init.scope("position");
        let weight = match positions {
            PositionEncoding::Learned { count } => init.uniform("weight", [count, width], bound),
            PositionEncoding::Sinusoidal { .. } => init.constant([1, 1], bound),
        };
        Self { weight, positions }
    }

    /// Adds the positions from `past` on to `x`, `[batch, length, width]`.
    ///
    /// # Panics
    /// Past the end of a learned table; [`check_length`](crate::DecoderConfig::check_length) tells before.
    pub(crate) fn add(&self, x: Tensor<3>, past: usize) -> Tensor<3> {
        let [_, length, width] = x.dims();
        let vectors = match self.positions {
            PositionEncoding::Learned { count } => {
                let end = past + length;
                assert!(end <= count, "position {end} is past the {count} learned positions");
                self.weight.val().narrow(0, past, length)
            }
            PositionEncoding::Sinusoidal { theta } => {
                let waves = TensorData::new(waves(theta, past, length, width), [length, width]);
                Tensor::from_data(waves, (&x.device(), x.dtype())) * self.weight.val()
            }
        };
        x + vectors.unsqueeze_dim(0)
    }
}

/// Dimension `2t` of position `i` holds `sin(i theta^(-2t/width))`, dimension `2t + 1` the cosine.
fn waves(theta: f64, past: usize, length: usize, width: usize) -> Vec<f64> {
    let rates: Vec<f64> =
        (0..width).map(|d| theta.powf(-((d - d % 2) as f64) / width as f64)).collect();
    let wave = |i: usize, d: usize| {
        let angle = i as f64 * rates[d];
        if d.is_multiple_of(2) { angle.sin() } else { angle.cos() }
    };
    (past..past + length)
        .flat_map(|i| (0..width).map(move |d| (i, d)))
        .map(|(i, d)| wave(i, d))
        .collect()
}
