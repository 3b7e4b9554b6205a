//! AdamW with decoupled weight decay and clipping by the norm of the whole gradient.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use tra_nn::Decoder;
use tra_nn::checkpoint::HostTensor;
use tra_nn::fused;

const EPS: f64 = 1e-8;

/// What AdamW does beside following the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How slowly the first and the second moment follow the gradient.
    pub betas: [f64; 2],
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

/// Gradients of all parameters, flattened, in the order of the model's parameters.
pub struct Summed(Vec<Tensor<1>>);

impl Summed {
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
        Self(counts(decoder).into_iter().map(|n| Tensor::zeros([n], &device)).collect())
    }

    /// Adds the gradients of another backward pass.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.into_iter().zip(other.0).map(|(a, b)| a + b).collect())
    }

    /// The norm over all parameters. Summed in f64 in a fixed order, so that it does not depend on
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

/// The optimizer's memory: first and second moments of every parameter, flattened.
#[derive(Clone, Debug)]
pub struct AdamW {
    settings: Settings,
    moments: Vec<[Tensor<1>; 2]>,
}

impl AdamW {
    /// Fresh moments for a model.
    pub fn new(decoder: &Decoder, settings: Settings) -> Self {
        let device = decoder.device().inner();
        let counts = counts(decoder);
        let zeros = |count: &usize| [(); 2].map(|()| Tensor::zeros([*count], &device));
        Self { settings, moments: counts.iter().map(zeros).collect() }
    }

    /// One step, number `step` from 0. `scale` multiplies the gradient (clipping).
    pub fn step(
        &mut self,
        decoder: Decoder,
        gradients: Summed,
        scale: f64,
        lr: f64,
        step: u64,
    ) -> Decoder {
        let Settings { betas: [beta1, beta2], weight_decay } = self.settings;
        let t = i32::try_from(step + 1).unwrap_or(i32::MAX);
        decoder.map(&mut Update {
            betas: [beta1, beta2],
            decay: 1.0 - lr * weight_decay,
            rate: lr / (1.0 - beta1.powi(t)),
            second: (1.0 - beta2.powi(t)).sqrt(),
            scale,
            moments: self.moments.iter_mut(),
            gradients: gradients.0.into_iter(),
        })
    }

    /// The moments under names, for a checkpoint.
    pub fn tensors(&self) -> BTreeMap<String, HostTensor> {
        let host = |t: &Tensor<1>| {
            HostTensor::floats(t.dims(), t.to_data_as::<f32>().iter::<f32>().collect())
        };
        let named = |(index, [m, v]): (usize, &[Tensor<1>; 2])| {
            [(format!("{index:05}.first"), host(m)), (format!("{index:05}.second"), host(v))]
        };
        self.moments.iter().enumerate().flat_map(named).collect()
    }

    /// The moments from a checkpoint, or what is wrong with them.
    pub fn from_tensors(
        decoder: &Decoder,
        settings: Settings,
        tensors: &BTreeMap<String, HostTensor>,
    ) -> Result<Self, String> {
        let device = decoder.device().inner();
        let read = |name: String, count: usize| {
            let tensor = tensors.get(&name).filter(|t| t.shape == [count]);
            let values = tensor
                .and_then(HostTensor::as_floats)
                .ok_or_else(|| format!("the optimizer's {name} is missing or of another size"))?;
            Ok::<_, String>(read_tensor(values, &device))
        };
        let counts = counts(decoder);
        if tensors.len() != 2 * counts.len() {
            return Err("the optimizer's state is of another model".into());
        }
        let moments = counts.into_iter().enumerate().map(|(index, count)| {
            Ok([
                read(format!("{index:05}.first"), count)?,
                read(format!("{index:05}.second"), count)?,
            ])
        });
        Ok(Self { settings, moments: moments.collect::<Result<_, String>>()? })
    }
}

fn read_tensor(values: &[f32], device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

fn counts(decoder: &Decoder) -> Vec<usize> {
    struct Count(Vec<usize>);
    impl ModuleVisitor for Count {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(param.lazy_shape().num_elements());
        }
    }
    let mut count = Count(Vec::new());
    decoder.visit(&mut count);
    count.0
}

struct Update<'a> {
    betas: [f64; 2],
    decay: f64,
    rate: f64,
    second: f64,
    scale: f64,
    moments: std::slice::IterMut<'a, [Tensor<1>; 2]>,
    gradients: std::vec::IntoIter<Tensor<1>>,
}

impl ModuleMapper for Update<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (Some(moments), Some(gradient)) = (self.moments.next(), self.gradients.next()) else {
            unreachable!("one gradient and two moments for every parameter");
        };
        param.map(|value| {
            let device = value.device();
            let value = value.inner();
            let new = if fused::usable(&value) && fused::usable(&gradient) {
                fused::adamw(value, moments, gradient, self.numbers())
            } else {
                self.plain(value, moments, gradient)
            };
            match device.is_autodiff() {
                true => Tensor::from_inner(new).require_grad(),
                false => new,
            }
        })
    }
}

impl Update<'_> {
    fn numbers(&self) -> fused::AdamWStep {
        fused::AdamWStep {
            betas: self.betas.map(|beta| beta as f32),
            scale: self.scale as f32,
            decay: self.decay as f32,
            rate: self.rate as f32,
            second: self.second as f32,
            eps: EPS as f32,
        }
    }

    fn plain<const D: usize>(
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
        *moments = [m.clone(), v.clone()];
        let step = m * self.rate / (v.sqrt() / self.second + EPS);
        let shape = value.dims();
        value * self.decay - step.reshape(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use tra_nn::{DecoderConfig, Pass};

    const SETTINGS: Settings = Settings { betas: [0.9, 0.999], weight_decay: 0.1 };

    /// Against AdamW in plain f64 for one parameter over three steps.
    #[test]
    fn follows_the_formula() {
        let device = Device::flex().autodiff();
        let mut decoder = DecoderConfig::new(5, 1, 8, 2).init_seeded(1, &device).unwrap();
        let name = "layers.0.mlp.linear1.bias";
        let values = |d: &Decoder| d.parameters()[name].as_floats().unwrap().to_vec();
        let mut expected: Vec<f64> = values(&decoder).iter().map(|x| f64::from(*x)).collect();
        let (mut m, mut v) = (vec![0.0; expected.len()], vec![0.0; expected.len()]);
        let mut adam = AdamW::new(&decoder, SETTINGS);
        for step in 0..3 {
            let tokens = decoder.tokens(&[[1, 2, 3, 4]]).unwrap();
            let loss = decoder.forward(tokens, Pass::eval()).powf_scalar(2.0).sum();
            let gradients = loss.backward();
            let named = decoder.gradients(&gradients)[name].clone();
            let summed = Summed::take(&decoder, gradients);
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
        let mut adam = AdamW::new(&decoder, SETTINGS);
        let tokens = decoder.tokens(&[[1, 2, 3, 4]]).unwrap();
        let loss = decoder.forward(tokens, Pass::eval()).powf_scalar(2.0).sum();
        let summed = Summed::take(&decoder, loss.backward());
        let decoder = adam.step(decoder, summed, 1.0, 0.01, 0);
        let tensors = adam.tensors();
        assert_eq!(AdamW::from_tensors(&decoder, SETTINGS, &tensors).unwrap().tensors(), tensors);
        let other = DecoderConfig::new(6, 1, 8, 2).init_seeded(1, &device).unwrap();
        assert!(AdamW::from_tensors(&other, SETTINGS, &tensors).is_err());
    }
}
