//! The updates of an optimizer. They have no gradient themselves.

use burn::backend::flex::Flex;
use burn::tensor::Tensor;
use rayon::prelude::*;
use tra_kernels::adamw::{Step, step};
use tra_kernels::muon;
use tra_kernels::simd::Isa;

use super::flex::{numbers, primitive};
use super::layers::owned;

/// Moves a parameter and its moments by one step of AdamW, in place where nobody else uses their
/// memory. The moments and the gradient have as many elements as the parameter, in any shape, and
/// none of them is tracked.
///
/// # Panics
/// Unless all are [usable](super::usable).
pub fn adamw<const D: usize>(
    value: Tensor<D>,
    moments: &mut [Tensor<1>; 2],
    gradient: Tensor<1>,
    numbers_of_step: Step,
) -> Tensor<D> {
    let device = value.device();
    let gradient = primitive(gradient);
    let mut value = owned(primitive(value));
    let [mut first, mut second] = [0, 1].map(|i| {
        let taken = std::mem::replace(&mut moments[i], Tensor::empty([0], &device));
        owned(primitive(taken))
    });
    step(
        Isa::best(),
        numbers_of_step,
        value.storage_mut::<f32>(),
        first.storage_mut::<f32>(),
        second.storage_mut::<f32>(),
        &numbers(&gradient),
    );
    *moments = [first, second].map(Tensor::from_primitive::<Flex>);
    Tensor::from_primitive::<Flex>(value)
}

/// Moves a matrix and its momentum by one step of Muon, as [`adamw`] does.
///
/// # Panics
/// Unless all are [usable](super::usable).
pub fn muon(
    value: Tensor<2>,
    momentum: &mut Tensor<1>,
    gradient: Tensor<1>,
    numbers_of_step: muon::Step,
) -> Tensor<2> {
    let (device, shape) = (value.device(), value.dims());
    let gradient = primitive(gradient);
    let mut value = owned(primitive(value));
    let mut taken = owned(primitive(std::mem::replace(momentum, Tensor::empty([0], &device))));
    let (to, memory) = (value.storage_mut::<f32>(), taken.storage_mut::<f32>());
    muon::step(shape, numbers_of_step, to, memory, &numbers(&gradient));
    *momentum = Tensor::from_primitive::<Flex>(taken);
    Tensor::from_primitive::<Flex>(value)
}

/// Returns the sum of the squares of a gradient, in f64, in an order that does not depend on the
/// number of threads.
///
/// # Panics
/// Unless it is [usable](super::usable).
pub fn sum_of_squares(gradient: &Tensor<1>) -> f64 {
    let gradient = primitive(gradient.clone());
    let piece = |x: &[f32]| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
    let pieces: Vec<f64> = numbers(&gradient).par_chunks(16_384).map(piece).collect();
    pieces.iter().sum()
}
