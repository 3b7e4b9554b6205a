//! Operations with a kernel of their own on the embedded CPU backend.
//!
//! Each is one node of the autodiff graph with a handwritten gradient, made of the slices-only
//! kernels of `tra-kernels`. They take f32 tensors on the CPU backend. Their callers ask [`usable`]
//! first and fall back to a plain composition of tensor operations for everything else:
//! other backends and other precisions. Tests compare the two by running a model in f64.
//!
//! | file | what it computes |
//! | --- | --- |
//! | `graph.rs` | how an operation becomes a node |
//! | `flex.rs` | between the backend's tensors and slices |
//! | `attention.rs` | TRA, and dense attention with a bias |
//! | `layers.rs` | RMS norm, linear, gated unit, dropout, rotation, entmax |
//! | `loss.rs` | cross-entropy |
//! | `update.rs` | the steps of AdamW and Muon, which have no gradient |

mod attention;
mod flex;
mod graph;
mod layers;
mod loss;
mod update;

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Tensor};

pub(crate) use attention::{Kernel, attend, check_shapes, extend_bounds, shapes_fit};
pub(crate) use layers::{drop, entmax, linear, normalise, rotate, swiglu};
pub use loss::{NOT_SCORED, cross_entropy};
pub use tra_kernels::adamw::Step as AdamWStep;
pub(crate) use tra_kernels::attention::Rule;
pub use tra_kernels::muon::Step as MuonStep;
pub use update::{adamw, muon, sum_of_squares};

/// Returns whether there is a kernel for a tensor like this one.
pub fn usable<const D: usize>(x: &Tensor<D>) -> bool {
    x.dtype() == DType::F32
        && x.shape().num_elements() > 0
        && matches!(x.device().inner().as_dispatch(), DispatchDevice::Flex(_))
}
