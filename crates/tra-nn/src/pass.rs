//! How to run a model: plainly, in training, with a cache, or under observation.

use burn::tensor::{Bool, Tensor, TensorData};
use tra_random::Stream;

use crate::attention::Context;
use crate::cache::{Cache, LayerCache};
use crate::dropout::{AttentionDropout, DropoutPlacement};

/// One run of a [`Decoder`](crate::Decoder).
#[derive(Debug, Default)]
pub struct Pass<'a> {
    pub(crate) cache: Option<&'a mut Cache>,
    /// The draws of the training step, if this is one.
    pub(crate) training: Option<Stream>,
    pub(crate) probe: Option<&'a mut Probe>,
}

impl<'a> Pass<'a> {
    /// The whole sequence at once, no dropout.
    pub fn eval() -> Self {
        Self::default()
    }

    /// A training step: dropout is on, and is a function of these two numbers alone.
    pub fn train(seed: u64, step: u64) -> Self {
        let stream = Stream::new(seed).fork_name("dropout").fork(step);
        Self { training: Some(stream), ..Self::default() }
    }

    /// A training step on one of several parts of a batch, each with its own dropout.
    pub fn train_part(seed: u64, step: u64, part: u64) -> Self {
        let pass = Self::train(seed, step);
        Self { training: pass.training.map(|stream| stream.fork_name("part").fork(part)), ..pass }
    }

    /// The tokens that follow those in `cache`; they are added to it.
    pub fn cached(cache: &'a mut Cache) -> Self {
        Self { cache: Some(cache), ..Self::default() }
    }

    /// Also observes, or steers, the attention of every layer.
    pub fn with_probe(self, probe: &'a mut Probe) -> Self {
        Self { probe: Some(probe), ..self }
    }
}

/// One run of an [`AttentionLayer`](crate::attention::AttentionLayer).
#[derive(Debug, Default)]
pub struct LayerPass<'a> {
    pub(crate) cache: Option<&'a mut LayerCache>,
    /// The draws of the training step, if this is one.
    pub(crate) training: Option<Stream>,
    pub(crate) probe: Option<&'a mut LayerProbe>,
}

impl<'a> LayerPass<'a> {
    /// The whole sequence at once, no dropout.
    pub fn eval() -> Self {
        Self::default()
    }

    /// A training step: dropout is on, and is a function of these numbers alone. Every layer of a
    /// model needs its own `layer`.
    pub fn train(seed: u64, step: u64, layer: u64) -> Self {
        let stream = Stream::new(seed).fork_name("dropout").fork(step).fork(layer);
        Self { training: Some(stream), ..Self::default() }
    }

    /// The positions that follow those in `cache`; they are added to it.
    pub fn cached(cache: &'a mut LayerCache) -> Self {
        Self { cache: Some(cache), ..Self::default() }
    }

    /// Also observes, or steers, the attention.
    pub fn with_probe(self, probe: &'a mut LayerProbe) -> Self {
        Self { probe: Some(probe), ..self }
    }

    /// Returns the context for a bare mechanism: dropout (in training only) at this rate and place.
    pub fn context(self, rate: f64, placement: DropoutPlacement) -> Context<'a> {
        Context {
            cache: self.cache,
            training: self.training.is_some(),
            dropout: self.training.map(|stream| AttentionDropout {
                rate,
                placement,
                stream,
                sharpness: 1.0,
            }),
            probe: self.probe,
        }
    }
}

/// A query and a key of one head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// Which sequence of the batch.
    pub batch: usize,
    /// Which head.
    pub head: usize,
    /// Which query.
    pub query: usize,
    /// Which key.
    pub key: usize,
}

/// Observes what attention does in one layer, and may overrule the threshold for single pairs.
///
/// A score within rounding of 0 may be kept by one implementation and dropped by another; the counts
/// of all older keys then differ by one. To compare two implementations, `near` lists such pairs, and
/// `flip` makes them fall the same way.
#[derive(Clone, Debug, Default)]
pub struct LayerProbe {
    /// Pairs whose score is at most this far from 0 are listed in `near`.
    pub margin: f32,
    /// Pairs for which the outcome of the threshold is reversed.
    pub flip: Vec<Pair>,
    /// Visible pairs with a score within `margin` of 0, and that score. A score of exactly 0, as of a
    /// zero vector, has nothing to do with rounding and is not among them.
    pub near: Vec<(Pair, f32)>,
    /// Which keys take part, `[batch, heads, queries, keys]`.
    pub keep: Option<Tensor<4, Bool>>,
    /// Kept keys from this one to the query; 0 where not kept.
    pub count: Option<Tensor<4>>,
    /// Attention weights.
    pub weights: Option<Tensor<4>>,
}

impl LayerProbe {
    /// Applies `flip` to the outcome of the threshold and lists what is near it.
    pub(crate) fn threshold(
        &mut self,
        scores: &Tensor<4>,
        visible: &Tensor<4, Bool>,
        keep: Tensor<4, Bool>,
    ) -> Tensor<4, Bool> {
        let shape = scores.dims();
        let near = scores.clone().abs().lower_equal_elem(self.margin).bool_and(visible.clone());
        let near = near.bool_and(scores.clone().not_equal_elem(0.0));
        let at = |[batch, head, query, key]: [usize; 4]| Pair { batch, head, query, key };
        let near = near.int().into_data_as::<i64>();
        let scores = scores.to_data_as::<f32>();
        let found = near.iter::<i64>().zip(scores.iter::<f32>()).enumerate();
        self.near = found
            .filter(|(_, (near, _))| *near != 0)
            .map(|(index, (_, score))| (at(unravel(index, shape)), score))
            .collect();
        if self.flip.is_empty() {
            return keep;
        }
        let mut flip = vec![false; shape.iter().product()];
        for p in &self.flip {
            flip[((p.batch * shape[1] + p.head) * shape[2] + p.query) * shape[3] + p.key] = true;
        }
        keep.clone().bool_xor(Tensor::from_bool(TensorData::new(flip, shape), &keep.device()))
    }
}

fn unravel(mut index: usize, shape: [usize; 4]) -> [usize; 4] {
    let mut at = [0; 4];
    for d in (0..4).rev() {
        at[d] = index % shape[d];
        index /= shape[d];
    }
    at
}

/// One [`LayerProbe`] for every layer of a decoder.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// In the order of the layers.
    pub layers: Vec<LayerProbe>,
}

impl Probe {
    /// Observes `layers` layers and lists the pairs within `margin` of the threshold.
    pub fn new(layers: usize, margin: f32) -> Self {
        Self { layers: vec![LayerProbe { margin, ..LayerProbe::default() }; layers] }
    }
}
