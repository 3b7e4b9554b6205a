//! The surroundings of a mechanism while it runs: cache, dropout, observation.

use burn::tensor::{Bool, Tensor};

use super::Horizon;
use crate::cache::LayerCache;
use crate::dropout::{AttentionDropout, DropoutPlacement};
use crate::fused::{self, Kernel, Rule};
use crate::ops::{causal, masked_softmax, scores, weighted_sum};
use crate::pass::LayerProbe;

/// The surroundings of a mechanism while it runs: cache, dropout, observation.
///
/// Every mechanism ends in [`attend`](Context::attend), or in the last step of it if its weights are
/// not a softmax. So dropout, empty rows and observation are the same for all.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) cache: Option<&'a mut LayerCache>,
    /// Whether this is a pass of training, in which dropout and what else belongs to training is on.
    pub(crate) training: bool,
    pub(crate) dropout: Option<AttentionDropout>,
    pub(crate) probe: Option<&'a mut LayerProbe>,
}

impl Context<'_> {
    /// Sets the lowest factor on the logits in training: [`Research::sharpness`](crate::Research::sharpness).
    pub fn with_sharpness(mut self, lowest: f64) -> Self {
        if let Some(dropout) = &mut self.dropout {
            dropout.sharpness = lowest;
        }
        self
    }

    /// Returns how to run the fused kernel, if there is one for tensors like `q` here. There is none
    /// under observation, which needs matrices that the kernel never makes, and none for dropout on
    /// the weights. Call it after [`extend`](Self::extend).
    pub(crate) fn kernel(&self, q: &Tensor<4>, horizon: Horizon) -> Option<Kernel> {
        let dropout = self.dropout.as_ref().map_or(Some(None), AttentionDropout::on_logits)?;
        if self.probe.is_some() || !fused::usable(q) {
            return None;
        }
        let bounds = self.cache.as_ref().and_then(|cache| cache.bounds());
        Some(Kernel { dropout, horizon: horizon.into(), bounds })
    }

    /// Returns the number of earlier positions. Call it before [`extend`](Self::extend).
    pub fn past(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.len())
    }

    /// Adds new keys and values to the cache; returns all there are, the cached ones first.
    ///
    /// # Panics
    /// If keys and values differ in shape, or from what the cache holds in more than the length.
    pub fn extend(&mut self, k: Tensor<4>, v: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let (of_k, of_v) = (k.dims(), v.dims());
        assert_eq!(of_k, of_v, "keys of {of_k:?} do not fit values of {of_v:?}");
        match &mut self.cache {
            Some(cache) => cache.extend(k, v),
            None => (k, v),
        }
    }

    /// Adds a mechanism's own number per head and position, `[batch, heads, length]`, to the cache;
    /// returns all there are, the cached ones first.
    pub fn extend_state(&mut self, state: Tensor<3>) -> Tensor<3> {
        match &mut self.cache {
            Some(cache) => cache.extend_state(state),
            None => state,
        }
    }

    /// Adds `[batch, heads, keys]` to the sums over all queries so far, for mechanisms in which a query
    /// changes what later ones see of each key. `new` holds the sums over the new queries. Returns the
    /// sums before them, with zeros for new keys.
    pub fn add_totals(&mut self, new: Tensor<3>) -> Tensor<3> {
        let [batch, heads, keys] = new.dims();
        let zeros = |count| Tensor::zeros([batch, heads, count], (&new.device(), new.dtype()));
        let Some(cache) = &mut self.cache else { return zeros(keys) };
        let before = match cache.totals().take() {
            Some(old) => {
                let known = old.dims()[2];
                Tensor::cat(vec![old, zeros(keys - known)], 2)
            }
            None => zeros(keys),
        };
        *cache.totals() = Some(before.clone() + new);
        before
    }

    /// Returns true where a query may see a key, in the shape of `scores`.
    pub fn visible(&self, scores: &Tensor<4>) -> Tensor<4, Bool> {
        let [batch, heads, queries, keys] = scores.dims();
        causal(queries, keys, &scores.device()).expand([batch, heads, queries, keys])
    }

    /// Applies the threshold: true where a key is visible and its score is strictly positive.
    pub fn keep(&mut self, scores: &Tensor<4>, visible: &Tensor<4, Bool>) -> Tensor<4, Bool> {
        let keep = scores.clone().greater_elem(0.0).bool_and(visible.clone());
        match &mut self.probe {
            Some(probe) => probe.threshold(scores, visible, keep),
            None => keep,
        }
    }

    /// Shows the counts of a mechanism to an observer.
    pub(crate) fn observe_count(&mut self, count: &Tensor<4>, keep: &Tensor<4, Bool>) {
        if let Some(probe) = &mut self.probe {
            probe.count = Some(count.clone().mask_fill(keep.clone().bool_not(), 0.0));
        }
    }

    /// Attends from `q` to all visible keys by a plain softmax: with the kernel, if there is one.
    pub(super) fn dense(self, [q, k, v]: [Tensor<4>; 3]) -> Tensor<4> {
        if let Some(kernel) = self.kernel(&q, Horizon::Exact) {
            return fused::attend([q, k, v], Rule::Dense, kernel);
        }
        let scores = scores(q, k);
        let visible = self.visible(&scores);
        self.attend(scores, visible, v)
    }

    /// Takes the softmax of `logits` over the keys where `takes_part`, then the weighted sum of `v`.
    ///
    /// A row in which no key takes part is exactly zero.
    pub fn attend(self, logits: Tensor<4>, takes_part: Tensor<4, Bool>, v: Tensor<4>) -> Tensor<4> {
        let logits = self.drop(logits, DropoutPlacement::Logits);
        let weights = masked_softmax(logits, takes_part.clone());
        self.weigh(weights, takes_part, v)
    }

    /// Applies dropout, in training and at its place.
    pub(super) fn drop(&self, x: Tensor<4>, at: DropoutPlacement) -> Tensor<4> {
        match &self.dropout {
            Some(dropout) => dropout.apply(x, at),
            None => x,
        }
    }

    /// Returns the weighted sum of `v`, for mechanisms whose weights are not a softmax. They drop
    /// logits themselves.
    pub(super) fn weigh(
        mut self,
        weights: Tensor<4>,
        takes_part: Tensor<4, Bool>,
        v: Tensor<4>,
    ) -> Tensor<4> {
        let weights = self.drop(weights, DropoutPlacement::Weights);
        if let Some(probe) = &mut self.probe {
            probe.keep = Some(takes_part);
            probe.weights = Some(weights.clone());
        }
        weighted_sum(weights, v)
    }
}
