//! Makes an operation a node of the autodiff graph.

use std::fmt::Debug;
use std::sync::Arc;

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use tra_kernels::attention::Saved;

/// An operation on tensors of the CPU backend.
pub(crate) trait Op: Debug + Send + Sync {
    /// Returns the output, and what the backward pass needs; `tracked` says whether there may be one.
    fn forward(&self, inputs: Vec<FlexTensor>, tracked: bool) -> (FlexTensor, SavedForBackward);

    /// Returns the gradients of the inputs in their order; only those that are `wanted` are needed.
    ///
    /// # Panics
    /// If `kept` is not what the forward pass kept.
    fn backward(&self, kept: SavedForBackward, grad: FlexTensor, wanted: &[bool]) -> OpGrads;
}

/// The gradient of every input, if it is wanted.
pub(crate) type OpGrads = Vec<Option<FlexTensor>>;

/// What an operation keeps for its backward pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct SavedForBackward {
    pub(crate) tensors: Vec<FlexTensor>,
    pub(crate) attention: Option<Arc<Saved>>,
}

impl SavedForBackward {
    pub(crate) fn tensors(tensors: Vec<FlexTensor>) -> Self {
        Self { tensors, attention: None }
    }
}

/// What the backend runs: an operation of one to four inputs.
#[backend_extension(Flex, Autodiff)]
pub(crate) trait FusedOps: Backend {
    fn fused_1(op: Arc<dyn Op>, a: FloatTensor<Self>) -> FloatTensor<Self>;
    fn fused_2(op: Arc<dyn Op>, a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;
    fn fused_3(
        op: Arc<dyn Op>,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
    fn fused_4(
        op: Arc<dyn Op>,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl FusedOps for Flex {
    fn fused_1(op: Arc<dyn Op>, a: FlexTensor) -> FlexTensor {
        op.forward(vec![a], false).0
    }
    fn fused_2(op: Arc<dyn Op>, a: FlexTensor, b: FlexTensor) -> FlexTensor {
        op.forward(vec![a, b], false).0
    }
    fn fused_3(op: Arc<dyn Op>, a: FlexTensor, b: FlexTensor, c: FlexTensor) -> FlexTensor {
        op.forward(vec![a, b, c], false).0
    }
    fn fused_4(
        op: Arc<dyn Op>,
        a: FlexTensor,
        b: FlexTensor,
        c: FlexTensor,
        d: FlexTensor,
    ) -> FlexTensor {
        op.forward(vec![a, b, c, d], false).0
    }
}

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

impl<C: CheckpointStrategy> FusedOps for Autodiff<Flex, C> {
    fn fused_1(op: Arc<dyn Op>, a: Tracked<C>) -> Tracked<C> {
        node::<C, 1>(op, [a])
    }
    fn fused_2(op: Arc<dyn Op>, a: Tracked<C>, b: Tracked<C>) -> Tracked<C> {
        node::<C, 2>(op, [a, b])
    }
    fn fused_3(op: Arc<dyn Op>, a: Tracked<C>, b: Tracked<C>, c: Tracked<C>) -> Tracked<C> {
        node::<C, 3>(op, [a, b, c])
    }
    fn fused_4(
        op: Arc<dyn Op>,
        a: Tracked<C>,
        b: Tracked<C>,
        c: Tracked<C>,
        d: Tracked<C>,
    ) -> Tracked<C> {
        node::<C, 4>(op, [a, b, c, d])
    }
}

#[derive(Debug)]
struct Step;

impl<const N: usize> Backward<Flex, N> for Step {
    type State = (Arc<dyn Op>, SavedForBackward);

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<Flex>(&ops.node);
        let (op, kept) = ops.state;
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let gradients = op.backward(kept, grad, &wanted);
        // A missing gradient would go unnoticed in training.
        assert_eq!(gradients.len(), N, "{op:?} must return a gradient for each of its inputs");
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

fn node<C: CheckpointStrategy, const N: usize>(
    op: Arc<dyn Op>,
    inputs: [Tracked<C>; N],
) -> Tracked<C> {
    let guards = inputs.each_ref().map(|input| input.node());
    let inputs = inputs.into_iter().map(|input| input.into_primitive()).collect();
    match Step.prepare::<C>(guards).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let (output, kept) = op.forward(inputs, true);
            prep.finish((op, kept), output)
        }
        OpsKind::UnTracked(prep) => prep.finish(op.forward(inputs, false).0),
    }
}
