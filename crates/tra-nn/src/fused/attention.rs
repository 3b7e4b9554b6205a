//! Attention as one operation.

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use tra_kernels::attention::{
    Bounds, Gradients, Horizon, Inputs, Rows, Rule, Shape, backward, forward,
};
use tra_kernels::dropout::Dropout;
use tra_kernels::simd::Isa;

use super::flex::{RowTensor, by_token, dims, numbers, primitive, tensor};
use super::graph::{FusedOps, Op, OpGrads, SavedForBackward};

/// How to run the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kernel {
    /// Dropout on the logits.
    pub(crate) dropout: Option<Dropout>,
    pub(crate) horizon: Horizon,
    /// Bounds of the keys and values of each head, where a cache knows them.
    pub(crate) bounds: Option<Vec<Bounds>>,
}

/// Attends by the kernel. What `rule` holds is `[batch, heads, queries]` gates, `[1, heads, 1]`
/// slopes or `[batch, heads, keys]` steps.
pub(crate) fn attend(
    [q, k, v]: [Tensor<4>; 3],
    rule: Rule<Tensor<3>>,
    kernel: Kernel,
) -> Tensor<4> {
    check_shapes(&q, &k, &v);
    let [q, k, v] = [q, k, v].map(Tensor::into_dispatch);
    let mut own = None;
    let rule = rule.map(|numbers| own = Some(numbers.into_dispatch()));
    let op = Arc::new(Attention { kernel, rule });
    Tensor::from_dispatch(match own {
        Some(own) => Dispatch::fused_4(op, q, k, v, own),
        None => Dispatch::fused_3(op, q, k, v),
    })
}

/// Refuses shapes that do not fit together before a kernel sees them, as Burn's own operations do.
///
/// # Panics
/// Unless they [fit](shapes_fit).
pub(crate) fn check_shapes(q: &Tensor<4>, k: &Tensor<4>, v: &Tensor<4>) {
    let [of_q, of_k, of_v] = [q, k, v].map(Tensor::dims);
    let fits = shapes_fit(of_q, of_k, of_v);
    assert!(fits, "queries {of_q:?}, keys {of_k:?} and values {of_v:?} do not fit together");
}

/// Returns whether keys and values have one shape, which differs from that of the queries only in a
/// length that is not shorter.
pub(crate) fn shapes_fit(q: [usize; 4], k: [usize; 4], v: [usize; 4]) -> bool {
    let [batch, heads, queries, dim] = q;
    k == v && k == [batch, heads, k[2], dim] && queries <= k[2]
}

/// Extends the bounds of each head by new keys and values.
///
/// # Panics
/// Unless they are [usable](super::usable).
pub(crate) fn extend_bounds(bounds: &mut Vec<Bounds>, k: Tensor<4>, v: Tensor<4>) {
    let [batch, heads, new, _] = k.dims();
    let [k, v] = [k, v].map(|x| RowTensor::new(&primitive(x.inner())));
    bounds.resize(batch * heads, Bounds::default());
    for (head, bounds) in bounds.iter_mut().enumerate() {
        let at = [head / heads, head % heads];
        for row in 0..new {
            bounds.add_key(k.rows().row(at, row));
            bounds.add_value(v.rows().row(at, row));
        }
    }
}

#[derive(Debug)]
struct Attention {
    kernel: Kernel,
    rule: Rule<()>,
}

impl Attention {
    /// Returns where to stop reading: sooner without gradients.
    fn horizon(&self, tracked: bool) -> Horizon {
        match self.kernel.horizon {
            Horizon::Rounding if !tracked => Horizon::Output,
            horizon => horizon,
        }
    }

    /// Runs `f` with the inputs as the kernel takes them.
    fn with<R>(
        &self,
        inputs: &[FlexTensor],
        horizon: Horizon,
        f: impl FnOnce(&Inputs<'_>) -> R,
    ) -> R {
        let [batch, heads, queries, dim] = dims(&inputs[0]);
        let [_, _, keys, _] = dims(&inputs[1]);
        let [q, k, v] = [0, 1, 2].map(|i| RowTensor::new(&inputs[i]));
        let own = inputs.get(3).map(|x| match self.rule {
            Rule::Steps(()) => RowTensor::new(&x.reshape([batch, heads, 1, keys].into())),
            _ => RowTensor::new(&unsqueeze(x)),
        });
        let rule = match &own {
            Some(own) => self.rule.map(|()| own.rows()),
            None => Rule::Dense,
        };
        f(&Inputs {
            shape: Shape { batch, heads, queries, keys, dim },
            q: q.rows(),
            k: k.rows(),
            v: v.rows(),
            rule,
            dropout: self.kernel.dropout,
            horizon,
            bounds: self.kernel.bounds.as_deref(),
            isa: Isa::best(),
        })
    }
}

/// `[batch, heads, queries]` as `[batch, heads, queries, 1]`, wherever its numbers lie.
fn unsqueeze(x: &FlexTensor) -> FlexTensor {
    let [batch, heads, queries] = dims(x);
    let layout = x.layout();
    let mut strides = layout.strides().to_vec();
    strides.push(1);
    let shape = [batch, heads, queries, 1].into();
    x.clone().with_layout(burn::backend::flex::Layout::new(shape, strides, layout.start_offset()))
}

impl Op for Attention {
    fn forward(&self, inputs: Vec<FlexTensor>, tracked: bool) -> (FlexTensor, SavedForBackward) {
        let shape: [usize; 4] = dims(&inputs[0]);
        let mut out = vec![0.0; shape.iter().product()];
        let saved = self.with(&inputs, self.horizon(tracked), |inputs| forward(inputs, &mut out));
        let out = by_token(out, shape);
        let mut tensors = inputs;
        tensors.push(out.clone());
        (out, SavedForBackward { tensors, attention: Some(Arc::new(saved)) })
    }

    fn backward(&self, kept: SavedForBackward, grad: FlexTensor, _: &[bool]) -> OpGrads {
        let SavedForBackward { mut tensors, attention } = kept;
        let (Some(saved), Some(out)) = (attention, tensors.pop()) else {
            panic!("a backward pass of attention without what its forward pass saved");
        };
        // As the forward pass wrote it: token by token.
        let out = out.transpose(1, 2);
        let grad = RowTensor::new(&grad);
        let Gradients { q, k, v, rule } = self.with(&tensors, self.horizon(true), |inputs| {
            let grad: Rows<'_> = grad.rows();
            backward(inputs, &saved, &numbers(&out), grad)
        });
        let (of_q, of_k) = (dims(&tensors[0]), dims(&tensors[1]));
        let mut gradients =
            vec![Some(by_token(q, of_q)), Some(by_token(k, of_k)), Some(by_token(v, of_k))];
        if let Some(own) = tensors.get(3) {
            let [batch, heads, rows] = dims(own);
            let learned = !rule.is_empty();
            gradients.push(learned.then(|| tensor(rule, [batch, rows, heads]).transpose(1, 2)));
        }
        gradients
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returning no gradients would train a model on without them.
    #[test]
    #[should_panic(expected = "without what its forward pass saved")]
    fn a_backward_pass_without_saved_state_is_refused() {
        let op = Attention { kernel: Kernel::default(), rule: Rule::Dense };
        let x = tensor(vec![1.0; 8], [1, 1, 2, 4]);
        let (_, kept) = op.forward(vec![x.clone(), x.clone(), x.clone()], true);
        assert_eq!(op.backward(kept.clone(), x.clone(), &[true; 3]).len(), 3);
        op.backward(SavedForBackward { attention: None, ..kept }, x, &[true; 3]);
    }
}
