//! Initial weights: every parameter is drawn from its own stream, named after it.
//!
//! So a model depends on its seed alone, not on the order in which its layers are built, the device
//! or the number of threads. A parameter is drawn when it is first used: a model that is then loaded
//! from a file costs nothing to make.

use burn::module::{Param, ParamId};
use burn::nn::{Embedding, Linear};
use burn::tensor::{Device, Distribution, Tensor, TensorData};
use tra_random::Stream;

use crate::attention::RotationTables;

/// Makes the parameters of a module.
#[derive(Clone, Debug)]
pub struct WeightInit {
    device: Device,
    stream: Stream,
    /// Shared by the layers of the model that is being made.
    rotations: RotationTables,
}

impl WeightInit {
    /// Weights that depend on `seed` alone.
    pub fn seeded(seed: u64, device: &Device) -> Self {
        Self {
            device: device.clone(),
            stream: Stream::new(seed),
            rotations: RotationTables::default(),
        }
    }

    /// Weights that differ at every call, drawn from the generator of the device, which
    /// `device.seed(…)` resets. This is what `init(&device)` of Burn's own layers does.
    pub fn random(device: &Device) -> Self {
        let draw = Tensor::<1>::random([4], Distribution::Uniform(0.0, 65536.0), device);
        let words: Vec<f32> = draw.into_data_as::<f32>().iter::<f32>().collect();
        let seed = words.iter().fold(0, |seed: u64, word| (seed << 16) | (*word as u64 & 0xFFFF));
        Self::seeded(seed, device)
    }

    /// Returns the same for the part of a model with this name: `layers`, `0`, `attn`, …
    pub fn scope(&self, name: &str) -> Self {
        Self { stream: self.stream.fork_name(name), ..self.clone() }
    }

    pub(crate) fn rotation_tables(&self) -> RotationTables {
        self.rotations.clone()
    }

    /// The device the parameters live on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Uniform in `-bound..bound`.
    pub fn uniform<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        bound: f64,
    ) -> Param<Tensor<D>> {
        self.draw(name, shape, move |s, i| (2.0 * s.uniform(i) - 1.0) * bound)
    }

    /// Normal with mean 0.
    pub fn normal<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        std: f64,
    ) -> Param<Tensor<D>> {
        self.draw(name, shape, move |s, i| s.normal(i) * std)
    }

    /// One value everywhere. It is used for norms, whose scale begins at 1, and for tables that
    /// begin at 0.
    pub fn constant<const D: usize>(&self, shape: [usize; D], value: f64) -> Param<Tensor<D>> {
        self.lazy(shape, move |device| Tensor::full(shape, value, device))
    }

    /// PyTorch's default for a linear layer: weight and bias uniform in `±1 / sqrt(input)`.
    pub fn linear(&self, name: &str, input: usize, output: usize, bias: bool) -> Linear {
        let scope = self.scope(name);
        let bound = 1.0 / (input as f64).sqrt();
        Linear {
            weight: scope.uniform("weight", [input, output], bound),
            bias: bias.then(|| scope.uniform("bias", [output], bound)),
        }
    }

    /// A lookup table, uniform in `±bound`.
    pub fn embedding(&self, name: &str, rows: usize, width: usize, bound: f64) -> Embedding {
        Embedding { weight: self.scope(name).uniform("weight", [rows, width], bound) }
    }

    fn draw<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        value: impl Fn(Stream, u64) -> f64 + Send + Sync + 'static,
    ) -> Param<Tensor<D>> {
        let stream = self.stream.fork_name(name);
        self.lazy(shape, move |device| {
            let count = shape.iter().product::<usize>() as u64;
            let values: Vec<f32> = (0..count).map(|i| value(stream, i) as f32).collect();
            Tensor::from_data(TensorData::new(values, shape), device)
        })
    }

    fn lazy<const D: usize>(
        &self,
        shape: [usize; D],
        make: impl Fn(&Device) -> Tensor<D> + Send + Sync + 'static,
    ) -> Param<Tensor<D>> {
        let init = move |device: &Device, tracked| make(device).set_require_grad(tracked);
        Param::uninitialized(ParamId::new(), init, self.device.clone(), true, shape.into())
    }
}
