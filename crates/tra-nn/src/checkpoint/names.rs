//! Maps the parameters of a module to reference names and back.
//!
//! Module fields have the reference names already. Two things differ: a linear weight is `[in, out]`
//! here and `[out, in]` in PyTorch, and a mechanism's own parameters are directly under `attn`.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor, TensorData};

use super::file::{HostTensor, Values};

/// The position of a walk in a module.
#[derive(Default)]
struct Place(Vec<(String, String)>);

impl Place {
    fn enter(&mut self, name: &str, container: &str) {
        self.0.push((name.into(), container.into()));
    }

    fn leave(&mut self) {
        self.0.pop();
    }

    fn name(&self) -> String {
        let named = self
            .0
            .iter()
            .filter(|(name, container)| !container.starts_with("Enum:") && name != "mechanism");
        named.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(".")
    }

    fn is_linear_weight(&self) -> bool {
        self.0
            .last()
            .is_some_and(|(name, container)| name == "weight" && container == "Struct:Linear")
    }

    fn to_host<const D: usize>(&self, tensor: Tensor<D>) -> HostTensor {
        let tensor = if self.is_linear_weight() { tensor.transpose() } else { tensor };
        let shape = tensor.dims().to_vec();
        HostTensor::floats(shape, tensor.into_data_as::<f32>().iter::<f32>().collect())
    }

    fn shape<const D: usize>(&self, param: &Param<Tensor<D>>) -> Vec<usize> {
        let mut shape = param.lazy_shape().to_vec();
        if self.is_linear_weight() {
            shape.reverse();
        }
        shape
    }
}

/// Collects something of every parameter under its reference name.
struct Walk<'a, T> {
    place: Place,
    found: BTreeMap<String, T>,
    gradients: Option<&'a Gradients>,
}

impl<'a, T> Walk<'a, T> {
    fn over(module: &impl Module, gradients: Option<&'a Gradients>) -> BTreeMap<String, T>
    where
        Self: ModuleVisitor,
    {
        let mut walk = Self { place: Place::default(), found: BTreeMap::new(), gradients };
        module.visit(&mut walk);
        walk.found
    }
}

impl ModuleVisitor for Walk<'_, Vec<usize>> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.leave();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.insert(self.place.name(), self.place.shape(param));
    }
}

impl ModuleVisitor for Walk<'_, HostTensor> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.leave();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = match self.gradients {
            Some(gradients) => param.val().grad(gradients),
            None => Some(param.val()),
        };
        if let Some(tensor) = tensor {
            self.found.insert(self.place.name(), self.place.to_host(tensor));
        }
    }
}

/// Returns the shapes of the parameters of a module, or of a mechanism alone, under the names they have in a
/// checkpoint and in PyTorch's layout: a linear weight is `[out, in]`.
pub fn shapes(module: &impl Module) -> BTreeMap<String, Vec<usize>> {
    Walk::over(module, None)
}

pub(super) fn values(module: &impl Module) -> BTreeMap<String, HostTensor> {
    Walk::over(module, None)
}

/// Returns the gradients of the parameters of a module under the same names and in the same layout. A parameter
/// that the loss does not depend on has none.
pub fn gradients(module: &impl Module, gradients: &Gradients) -> BTreeMap<String, HostTensor> {
    Walk::over(module, Some(gradients))
}

/// Returns the module with its parameters taken out of `tensors`.
///
/// # Panics
/// If one of them is not there as floats, in the shape that [`shapes`] returns: check before.
pub fn replace<M: Module>(module: M, tensors: &mut BTreeMap<String, HostTensor>) -> M {
    module.map(&mut Replace { place: Place::default(), tensors })
}

struct Replace<'a> {
    place: Place,
    tensors: &'a mut BTreeMap<String, HostTensor>,
}

impl ModuleMapper for Replace<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.leave();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.place.name();
        let shape = self.place.shape(&param);
        let Some(HostTensor { values: Values::Float(values), .. }) = self.tensors.remove(&name)
        else {
            unreachable!("{name} was checked before");
        };
        let (device, dims) = (param.lazy_device(), param.lazy_shape());
        let new = Tensor::<D>::from_data(TensorData::new(values, shape), &device);
        // Made contiguous once, here, instead of in every product.
        let linear = self.place.is_linear_weight();
        let new = if linear { new.transpose().reshape::<D, _>(dims) } else { new };
        Param::from_tensor(new.detach())
    }
}
