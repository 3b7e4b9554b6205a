//! AdamW and Muon, both with decoupled weight decay, and clipping by the norm of the whole gradient.

use std::collections::BTreeMap;
use std::convert::Infallible;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use tra_kernels::muon;
use tra_nn::Decoder;
use tra_nn::checkpoint::HostTensor;
use tra_nn::fused;

const EPS: f64 = 1e-8;

/// How parameters follow their gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// AdamW for all.
    #[default]
    AdamW,
    /// Muon for the matrices of the blocks' linear layers, AdamW for the rest: embeddings, output, norms, biases.
    Muon,
}

/// What an optimizer does beside following the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerConfig {
    /// How parameters follow their gradients.
    pub kind: OptimizerKind,
    /// How slowly AdamW's first and second moment follow the gradient.
    pub betas: [f64; 2],
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

/// Gradients of all parameters, flattened, in the order of the model's parameters.
pub struct FlatGradients(Vec<Tensor<1>>);

impl FlatGradients {
    /// Takes the gradients of one backward pass; a parameter that took no part has zeros.
    pub fn take(decoder: &Decoder, gradients: Gradients) -> Self {
        struct Take(Gradients, Vec<Tensor<1>>);
        impl ModuleVisitor for Take {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let value = param.val();
                let count = value.shape().num_elements();
                let gradient = value.grad_remove(&mut self.0).map(|g| g.reshape([count]));
                let zeros = || Tensor::zeros([count], &value.device().inner());
                self.1.push(gradient.unwrap_or_else(zeros));
            }
        }
        let mut take = Take(gradients, Vec::new());
        decoder.visit(&mut take);
        Self(take.1)
    }

    /// No gradient at all, as of a batch in which nothing is scored.
    pub fn zeros(decoder: &Decoder) -> Self {
        let device = decoder.device().inner();
        Self(parameters(decoder).into_iter().map(|(n, _)| Tensor::zeros([n], &device)).collect())
    }

    /// Adds the gradients of another backward pass.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.into_iter().zip(other.0).map(|(a, b)| a + b).collect())
    }

    /// The norm over all parameters. FlatGradients in f64 in a fixed order, so that it does not depend on
    /// the number of threads.
    pub fn norm(&self) -> f64 {
        let squares = self.0.iter().map(|gradient| {
            if fused::usable(gradient) {
                return fused::sum_of_squares(gradient);
            }
            gradient.to_data_as::<f32>().iter::<f32>().map(|g| f64::from(g).powi(2)).sum::<f64>()
        });
        squares.sum::<f64>().sqrt()
    }
}

/// What an optimizer knows of the gradients before, for one parameter, flattened.
#[derive(Clone, Debug)]
enum Memory {
    /// First and second moments.
    AdamW(Box<[Tensor<1>; 2]>),
    Muon(Box<Tensor<1>>),
}

impl Memory {
    /// In the order of their names in a checkpoint.
    fn tensors(&self) -> &[Tensor<1>] {
        match self {
            Self::AdamW(moments) => moments.as_slice(),
            Self::Muon(momentum) => std::slice::from_ref(momentum.as_ref()),
        }
    }
}

/// The optimizer, with its memory of every parameter.
#[derive(Clone, Debug)]
pub struct Optimizer {
    settings: OptimizerConfig,
    memory: Vec<Memory>,
}

impl Optimizer {
    /// Without memory, for a model.
    pub fn new(decoder: &Decoder, settings: OptimizerConfig) -> Self {
        let device = decoder.device().inner();
        let zeros = |_: &str, count: usize| Ok::<_, Infallible>(Tensor::zeros([count], &device));
        let Ok(optimizer) = Self::with(decoder, settings, zeros);
        optimizer
    }

    /// With the memory that `get` gives for a name and a number of elements.
    fn with<E>(
        decoder: &Decoder,
        settings: OptimizerConfig,
        get: impl Fn(&str, usize) -> Result<Tensor<1>, E>,
    ) -> Result<Self, E> {
        let one = |(index, (count, matrix)): (usize, (usize, bool))| {
            let first = get(&format!("{index:05}.first"), count)?;
            Ok(match matrix && settings.kind == OptimizerKind::Muon {
                true => Memory::Muon(Box::new(first)),
                false => {
                    let second = get(&format!("{index:05}.second"), count)?;
                    Memory::AdamW(Box::new([first, second]))
                }
            })
        };
        let memory = parameters(decoder).into_iter().enumerate().map(one);
        Ok(Self { settings, memory: memory.collect::<Result<_, E>>()? })
    }

    /// One step, number `step` from 0. `scale` multiplies the gradient (clipping).
    pub fn step(
        &mut self,
        decoder: Decoder,
        gradients: FlatGradients,
        scale: f64,
        lr: f64,
        step: u64,
    ) -> Decoder {
        let OptimizerConfig { betas: [beta1, beta2], weight_decay, .. } = self.settings;
        let t = i32::try_from(step + 1).unwrap_or(i32::MAX);
        decoder.map(&mut Update {
            betas: [beta1, beta2],
            decay: 1.0 - lr * weight_decay,
            lr,
            rate: lr / (1.0 - beta1.powi(t)),
            second: (1.0 - beta2.powi(t)).sqrt(),
            scale,
            memory: self.memory.iter_mut(),
            gradients: gradients.0.into_iter(),
        })
    }

    /// How many numbers it remembers.
    pub fn size(&self) -> usize {
        let tensors = self.memory.iter().flat_map(Memory::tensors);
        tensors.map(|tensor| tensor.shape().num_elements()).sum()
    }

    /// Its memory under names, for a checkpoint.
    pub fn tensors(&self) -> BTreeMap<String, HostTensor> {
        let host = |t: &Tensor<1>| {
            HostTensor::floats(t.dims(), t.to_data_as::<f32>().iter::<f32>().collect())
        };
        let named = |(index, memory): (usize, &Memory)| {
            let names = ["first", "second"].map(|name| format!("{index:05}.{name}"));
            let tensors: Vec<_> = memory.tensors().iter().map(host).collect();
            names.into_iter().zip(tensors)
        };
        self.memory.iter().enumerate().flat_map(named).collect()
    }

    /// With the memory of a checkpoint, or what is wrong with it.
    pub fn from_tensors(
        decoder: &Decoder,
        settings: OptimizerConfig,
        tensors: &BTreeMap<String, HostTensor>,
    ) -> Result<Self, String> {
        let device = decoder.device().inner();
        let read = |name: &str, count: usize| {
            let tensor = tensors.get(name).filter(|t| t.shape == [count]);
            let values = tensor
                .and_then(HostTensor::as_floats)
                .ok_or_else(|| format!("the optimizer's {name} is missing or of another size"))?;
            if values.iter().any(|value| !value.is_finite()) {
                return Err(format!("the optimizer's {name} is not finite"));
            }
            Ok::<_, String>(read_tensor(values, &device))
        };
        let optimizer = Self::with(decoder, settings, read)?;
        let expected: usize = optimizer.memory.iter().map(|memory| memory.tensors().len()).sum();
        if tensors.len() != expected {
            return Err("the optimizer's state is of another model or optimizer".into());
        }
        Ok(optimizer)
    }
}

fn read_tensor(values: &[f32], device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

/// Of every parameter, how many numbers it has, and whether it is the matrix of a linear layer of a block.
fn parameters(decoder: &Decoder) -> Vec<(usize, bool)> {
    #[derive(Default)]
    struct Collect {
        place: Vec<(String, String)>,
        found: Vec<(usize, bool)>,
    }
    impl ModuleVisitor for Collect {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.place.push((name.into(), container.into()));
        }

        fn exit_module(&mut self, _: &str, _: &str) {
            self.place.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let in_block = self.place.first().is_some_and(|(name, _)| name == "layers");
            let last = self.place.last();
            let linear = last.is_some_and(|(name, of)| name == "weight" && of == "Struct:Linear");
            self.found.push((param.lazy_shape().num_elements(), in_block && linear));
        }
    }
    let mut collect = Collect::default();
    decoder.visit(&mut collect);
    collect.found
}

/// What the kernels do too: a memory that fades ends at 0, because denormal numbers are slow.
fn without_denormals(x: Tensor<1>) -> Tensor<1> {
    let tiny = x.clone().abs().lower_elem(f32::MIN_POSITIVE);
    x.mask_fill(tiny, 0.0)
}

struct Update<'a> {
    betas: [f64; 2],
    decay: f64,
    lr: f64,
    rate: f64,
    second: f64,
    scale: f64,
    memory: std::slice::IterMut<'a, Memory>,
    gradients: std::vec::IntoIter<Tensor<1>>,
}

impl ModuleMapper for Update<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (Some(memory), Some(gradient)) = (self.memory.next(), self.gradients.next()) else {
            unreachable!("one gradient and one memory for every parameter");
        };
        param.map(|value| {
            let device = value.device();
            let value = value.inner();
            let fused = fused::usable(&value) && fused::usable(&gradient);
            let new = match memory {
                Memory::AdamW(moments) if fused => {
                    fused::adamw(value, moments, gradient, self.adamw_step())
                }
                Memory::AdamW(moments) => self.adamw(value, moments, gradient),
                Memory::Muon(momentum) => {
                    let shape = value.dims();
                    let matrix = value.reshape([shape[0], shape[1]]);
                    let new = match fused {
                        true => fused::muon(matrix, momentum, gradient, self.muon_step()),
                        false => self.muon(matrix, momentum, gradient),
                    };
                    new.reshape(shape)
                }
            };
            match device.is_autodiff() {
                true => Tensor::from_inner(new).require_grad(),
                false => new,
            }
        })
    }
}

impl Update<'_> {
    fn adamw_step(&self) -> fused::AdamWStep {
        fused::AdamWStep {
            betas: self.betas.map(|beta| beta as f32),
            scale: self.scale as f32,
            decay: self.decay as f32,
            rate: self.rate as f32,
            second: self.second as f32,
            eps: EPS as f32,
        }
    }

    fn muon_step(&self) -> fused::MuonStep {
        let [scale, decay, lr] = [self.scale, self.decay, self.lr].map(|x| x as f32);
        fused::MuonStep { scale, decay, lr }
    }

    /// The same as the kernel, in tensor operations.
    fn adamw<const D: usize>(
        &self,
        value: Tensor<D>,
        moments: &mut [Tensor<1>; 2],
        gradient: Tensor<1>,
    ) -> Tensor<D> {
        let [beta1, beta2] = self.betas;
        let gradient = gradient * self.scale;
        let [m, v] = moments.clone();
        let m = m * beta1 + gradient.clone() * (1.0 - beta1);
        let v = v * beta2 + gradient.square() * (1.0 - beta2);
        let [m, v] = [m, v].map(without_denormals);
        *moments = [m.clone(), v.clone()];
        let step = m * self.rate / (v.sqrt() / self.second + EPS);
        let shape = value.dims();
        value * self.decay - step.reshape(shape)
    }

    /// The same as the kernel, in tensor operations.
    fn muon(&self, value: Tensor<2>, momentum: &mut Tensor<1>, gradient: Tensor<1>) -> Tensor<2> {
        let follow = f64::from(muon::MOMENTUM);
        let gradient = gradient * (self.scale * (1.0 - follow));
        let m = without_denormals(momentum.clone() * follow + gradient.clone());
        *momentum = m.clone();
        let [rows, columns] = value.dims();
        let x = (m * follow + gradient).reshape([rows, columns]);
        let mut x = if rows > columns { x.transpose() } else { x };
        // Scaled first, so that no square leaves the range of the numbers. No gradient is no step.
        let highest = x.clone().abs().max();
        let zero = highest.clone().equal_elem(0.0);
        x = x / highest.mask_fill(zero.clone(), 1.0).unsqueeze();
        let norm = x.clone().square().sum().sqrt().mask_fill(zero, 1.0);
        x = x / norm.unsqueeze();
        let [a, b, c] = muon::COEFFICIENTS;
        for _ in 0..muon::ITERATIONS {
            let gram = x.clone().matmul(x.clone().transpose());
            let p = gram.clone() * b + gram.clone().matmul(gram) * c;
            x = x.clone() * a + p.matmul(x);
        }
        let x = if rows > columns { x.transpose() } else { x };
        value * self.decay - x * muon::rate(rows, columns, self.lr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{DType, Device};
    use tra_nn::{DecoderConfig, Pass};

    const SETTINGS: OptimizerConfig =
        OptimizerConfig { kind: OptimizerKind::AdamW, betas: [0.9, 0.999], weight_decay: 0.1 };

    /// Against AdamW in plain f64 for one parameter over three steps.
    #[test]
    fn follows_the_formula() {
        let device = Device::flex().autodiff();
        let mut decoder = DecoderConfig::new(5, 1, 8, 2).init_seeded(1, &device).unwrap();
        let name = "layers.0.mlp.linear1.bias";
        let values = |d: &Decoder| d.parameters()[name].as_floats().unwrap().to_vec();
        let mut expected: Vec<f64> = values(&decoder).iter().map(|x| f64::from(*x)).collect();
        let (mut m, mut v) = (vec![0.0; expected.len()], vec![0.0; expected.len()]);
        let mut adam = Optimizer::new(&decoder, SETTINGS);
        for step in 0..3 {
            let tokens = decoder.tokens(&[[1, 2, 3, 4]]).unwrap();
            let loss = decoder.forward(tokens, Pass::eval()).powf_scalar(2.0).sum();
            let gradients = loss.backward();
            let named = decoder.gradients(&gradients)[name].clone();
            let summed = FlatGradients::take(&decoder, gradients);
            let (lr, scale) = (0.01, 0.5);
            decoder = adam.step(decoder, summed, scale, lr, step);
            for (i, g) in named.as_floats().unwrap().iter().enumerate() {
                let g = f64::from(*g) * scale;
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.999 * v[i] + 0.001 * g * g;
                let t = step as i32 + 1;
                let (mh, vh) = (m[i] / (1.0 - 0.9f64.powi(t)), v[i] / (1.0 - 0.999f64.powi(t)));
                expected[i] = expected[i] * (1.0 - lr * 0.1) - lr * mh / (vh.sqrt() + 1e-8);
            }
            for (ours, expected) in values(&decoder).iter().zip(&expected) {
                assert!((f64::from(*ours) - expected).abs() < 1e-5, "{step}: {ours} {expected}");
            }
        }
    }

    #[test]
    fn moments_come_back_to_the_bit_and_other_models_are_refused() {
        let device = Device::flex().autodiff();
        let decoder = DecoderConfig::new(5, 1, 8, 2).init_seeded(1, &device).unwrap();
        let mut adam = Optimizer::new(&decoder, SETTINGS);
        let tokens = decoder.tokens(&[[1, 2, 3, 4]]).unwrap();
        let loss = decoder.forward(tokens, Pass::eval()).powf_scalar(2.0).sum();
        let summed = FlatGradients::take(&decoder, loss.backward());
        let decoder = adam.step(decoder, summed, 1.0, 0.01, 0);
        let tensors = adam.tensors();
        assert_eq!(
            Optimizer::from_tensors(&decoder, SETTINGS, &tensors).unwrap().tensors(),
            tensors
        );
        let other = DecoderConfig::new(6, 1, 8, 2).init_seeded(1, &device).unwrap();
        assert!(Optimizer::from_tensors(&other, SETTINGS, &tensors).is_err());
    }

    const MUON: OptimizerConfig = OptimizerConfig { kind: OptimizerKind::Muon, ..SETTINGS };

    struct InF64;

    impl ModuleMapper for InF64 {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|x| x.detach().cast(DType::F64).detach().require_grad())
        }
    }

    fn gradients_of(decoder: &Decoder) -> Gradients {
        let tokens = decoder.tokens(&[[1, 2, 3, 4]]).unwrap();
        decoder.forward(tokens, Pass::eval()).powf_scalar(2.0).sum().backward()
    }

    /// The matrices of the blocks and nothing else, by kernel and by tensor operations alike.
    #[test]
    fn muon_turns_the_matrices_of_blocks_and_leaves_the_rest_to_adamw() {
        let device = Device::flex().autodiff();
        let before = DecoderConfig::new(5, 2, 8, 2).init_seeded(1, &device).unwrap();
        let run = |before: &Decoder| {
            let (mut decoder, mut optimizer) = (before.clone(), Optimizer::new(before, MUON));
            let dtype = before.outln.weight.val().dtype();
            for memory in &mut optimizer.memory {
                match memory {
                    Memory::AdamW(moments) => {
                        **moments = moments.each_ref().map(|x| x.clone().cast(dtype));
                    }
                    Memory::Muon(momentum) => **momentum = momentum.as_ref().clone().cast(dtype),
                }
            }
            for step in 0..3 {
                let summed = FlatGradients::take(&decoder, gradients_of(&decoder));
                decoder = optimizer.step(decoder, summed, 0.5, 0.01, step);
            }
            (decoder.parameters(), optimizer.size())
        };
        let (fused, size) = run(&before);
        // Without kernels in f64.
        let (plain, _) = run(&before.clone().map(&mut InF64));
        for (name, ours) in &fused {
            let far = ours.as_floats().unwrap().iter().zip(plain[name].as_floats().unwrap());
            let far = far.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far < 1e-4, "{name}: {far}");
        }
        // After one step, before the rest has changed their gradients.
        let after_one = |settings| {
            let mut optimizer = Optimizer::new(&before, settings);
            let summed = FlatGradients::take(&before, gradients_of(&before));
            optimizer.step(before.clone(), summed, 0.5, 0.01, 0).parameters()
        };
        let (ours, adamw) = (after_one(MUON), after_one(SETTINGS));
        let other: Vec<_> = ours.keys().filter(|name| ours[*name] != adamw[*name]).collect();
        let matrix = |name: &&String| name.starts_with("layers.") && name.ends_with(".weight");
        let matrices: Vec<_> =
            ours.keys().filter(matrix).filter(|name| ours[*name].shape.len() == 2).collect();
        assert_eq!(other, matrices);
        assert_eq!(matrices.len(), 2 * 7, "{matrices:?}");
        let (all, once) = ours.iter().fold((0, 0), |(all, once), (name, tensor)| {
            let count: usize = tensor.shape.iter().product();
            (all + count, once + if matrices.contains(&name) { count } else { 0 })
        });
        assert_eq!(size, 2 * all - once, "one momentum for a matrix, two moments for the rest");
    }

    #[test]
    fn memory_of_muon_comes_back_and_is_none_of_adamw() {
        let device = Device::flex().autodiff();
        let decoder = DecoderConfig::new(5, 1, 8, 2).init_seeded(1, &device).unwrap();
        let mut muon = Optimizer::new(&decoder, MUON);
        let summed = FlatGradients::take(&decoder, gradients_of(&decoder));
        let decoder = muon.step(decoder, summed, 1.0, 0.01, 0);
        let tensors = muon.tensors();
        let read = |settings| Optimizer::from_tensors(&decoder, settings, &tensors);
        assert_eq!(read(MUON).unwrap().tensors(), tensors);
        assert!(read(SETTINGS).unwrap_err().contains("missing"));
        let adamw = Optimizer::new(&decoder, SETTINGS).tensors();
        let wrong = Optimizer::from_tensors(&decoder, MUON, &adamw).unwrap_err();
        assert!(wrong.contains("another model or optimizer"), "{wrong}");
    }
}
