//! Operations with a kernel of their own on the embedded CPU backend.
//!
//! Each is one node of the autodiff graph with a handwritten gradient, made of the slices-only
//! kernels of `tra-kernels`. They take f32 tensors on the CPU backend; whoever calls them asks
//! [`usable`] first and has the plain composition of tensor operations ready for everything else:
//! other backends, other precisions, and [`plain`].
//!
//! | file | what it computes |
//! | --- | --- |
//! | `graph.rs` | how an operation becomes a node |
//! | `flex.rs` | between the backend's tensors and slices |
//! | `attention.rs` | TRA, and dense attention with a bias |
//! | `layers.rs` | RMS norm, linear, gated unit, dropout, rotation, entmax |
//! | `loss.rs` | cross-entropy |
//! | `update.rs` | the steps of AdamW and Muon; they have no gradient and are no nodes |

mod attention;
mod flex;
mod graph;
mod layers;
mod loss;
mod update;

use std::cell::Cell;

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Tensor};

pub(crate) use attention::{
    DenseBias, Kernel, bounds_of, check_shapes, dense, shapes_fit, threshold_relative,
};
pub(crate) use layers::{drop, entmax, linear, normalise, rotate, swiglu};
pub use loss::{NOT_SCORED, cross_entropy};
pub use tra_kernels::adamw::Step as AdamWStep;
pub use tra_kernels::muon::Step as MuonStep;
pub use update::{adamw, muon, sum_of_squares};

thread_local! {
    /// Set for good on the threads of [`plain`], and on no other.
    static PLAIN: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` without any fused operation: everything is composed of plain tensor operations, as on a
/// backend without kernels. Tests compare the two.
///
/// That holds for `f` and for all it hands to rayon: it runs in a pool of its own, with as many threads
/// as the one it was called from, whose threads know no kernels. A flag of the calling thread alone
/// would not reach the workers among which training cuts a batch, and one for all threads would
/// reach work that has nothing to do with `f`. Threads that `f` starts itself are not covered.
///
/// # Panics
/// When the system gives no threads, or `f` does.
pub fn plain<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    if PLAIN.get() {
        return f();
    }
    let threads = rayon::current_num_threads();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .start_handler(|_| PLAIN.set(true))
        .build();
    match pool {
        Ok(pool) => pool.install(f),
        Err(error) => panic!("no {threads} threads for plain operations: {error}"),
    }
}

/// Whether there is a kernel for a tensor like this one.
pub fn usable<const D: usize>(x: &Tensor<D>) -> bool {
    !PLAIN.get()
        && x.dtype() == DType::F32
        && x.shape().num_elements() > 0
        && matches!(x.device().inner().as_dispatch(), DispatchDevice::Flex(_))
}
