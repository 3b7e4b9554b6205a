//! The cache of generation: keys, values and, for some mechanisms, one number per key and head.

use burn::tensor::{Slice, Tensor};
use tra_kernels::attention::Bounds;

use crate::fused;

/// A tensor that grows along dimension 2, the length.
///
/// It doubles its capacity when full, so that feeding one token at a time copies each entry a
/// constant number of times on average.
#[derive(Clone, Debug, Default)]
struct Growing<const D: usize> {
    buffer: Option<Tensor<D>>,
    length: usize,
}

impl<const D: usize> Growing<D> {
    /// Appends and returns everything so far.
    fn extend(&mut self, new: Tensor<D>) -> Tensor<D> {
        let shape = new.dims();
        let length = self.length + shape[2];
        let buffer = match self.buffer.take() {
            // The first chunk is often the whole prompt: keep it as it is.
            None => new,
            Some(old) => {
                let capacity = old.dims()[2];
                let buffer = if length <= capacity {
                    old
                } else {
                    let mut bigger = shape;
                    bigger[2] = length.max(2 * capacity);
                    let options = (&old.device(), old.dtype());
                    Self::write(Tensor::zeros(bigger, options), 0, old.narrow(2, 0, self.length))
                };
                Self::write(buffer, self.length, new)
            }
        };
        self.length = length;
        let all = buffer.clone().narrow(2, 0, length);
        self.buffer = Some(buffer);
        all
    }

    fn write(buffer: Tensor<D>, at: usize, new: Tensor<D>) -> Tensor<D> {
        let shape = new.dims();
        let slices: Vec<Slice> = (0..D)
            .map(|d| if d == 2 { Slice::from(at..at + shape[d]) } else { Slice::from(0..shape[d]) })
            .collect();
        buffer.slice_assign(&slices, new)
    }
}

/// The cache of one layer.
#[derive(Clone, Debug, Default)]
pub struct LayerCache {
    keys: Growing<4>,
    values: Growing<4>,
    state: Growing<3>,
    totals: Option<Tensor<3>>,
    /// Bounds of the keys and values of each head, for the fused kernel; empty where there is none.
    bounds: Vec<Bounds>,
}

impl LayerCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of positions.
    pub fn len(&self) -> usize {
        self.keys.length
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends keys and values `[batch, heads, new, head_dim]`; returns all so far.
    pub(crate) fn extend(&mut self, k: Tensor<4>, v: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        if let Some(old) = &self.keys.buffer {
            let ([b, h, _, e], [b2, h2, _, e2]) = (old.dims(), k.dims());
            assert!(
                (b, h, e) == (b2, h2, e2),
                "the cache holds batch {b}, {h} heads of {e}; the new keys have batch {b2}, {h2} heads of {e2}"
            );
        }
        if fused::usable(&k) {
            fused::extend_bounds(&mut self.bounds, k.clone(), v.clone());
        }
        (self.keys.extend(k), self.values.extend(v))
    }

    pub(crate) fn bounds(&self) -> Option<Vec<Bounds>> {
        (!self.bounds.is_empty()).then(|| self.bounds.clone())
    }

    /// Returns a mechanism's own numbers for every position, which it replaces at each pass.
    pub(crate) fn totals(&mut self) -> &mut Option<Tensor<3>> {
        &mut self.totals
    }

    /// Appends a mechanism's own `[batch, heads, new]` numbers; returns all so far.
    pub(crate) fn extend_state(&mut self, state: Tensor<3>) -> Tensor<3> {
        self.state.extend(state)
    }
}

/// The cache of a decoder: one [`LayerCache`] per layer.
///
/// See [`Decoder::forward`](crate::Decoder::forward) for an example.
#[derive(Clone, Debug)]
pub struct Cache {
    pub(crate) layers: Vec<LayerCache>,
}

impl Cache {
    pub(crate) fn new(layers: usize) -> Self {
        Self { layers: vec![LayerCache::new(); layers] }
    }

    /// Returns the number of positions.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, LayerCache::len)
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn chunks_of_any_size_add_up_in_order() {
        let device = Device::flex();
        let rows = |from: usize, n: usize| {
            Tensor::<1, burn::tensor::Int>::arange(from as i64..(from + n) as i64, &device)
                .float()
                .reshape([1, 1, n, 1])
                .repeat_dim(1, 2)
        };
        let mut growing = Growing::<4>::default();
        let mut total = 0;
        for n in [3, 1, 1, 7, 1, 30, 1, 1] {
            let all = growing.extend(rows(total, n));
            total += n;
            assert_eq!(all.into_data(), rows(0, total).into_data());
        }
    }

    #[test]
    #[should_panic(expected = "the cache holds batch 1")]
    fn another_batch_size_is_refused() {
        let device = Device::flex();
        let mut cache = LayerCache::new();
        for batch in [1, 2] {
            let k = Tensor::zeros([batch, 2, 3, 4], &device);
            cache.extend(k.clone(), k);
        }
    }
}
