//! What a user of the library may get wrong is said in one line that names the shapes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{Device, Tensor};
use tra_nn::attention::{AttentionLayerConfig, TraConfig, threshold_relative_attention};
use tra_nn::{DropoutPlacement, LayerPass, ops};

fn says<R>(what: &str, parts: &[&str], call: impl FnOnce() -> R) {
    let outcome = catch_unwind(AssertUnwindSafe(|| drop(call())));
    let panic = outcome.expect_err(&format!("{what}: not refused"));
    let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    for part in parts {
        assert!(said.contains(part), "{what}: {said:?} does not say {part:?}");
    }
}

#[test]
fn wrong_shapes_are_named() {
    let device = Device::flex();
    let zeros = |shape: [usize; 4]| Tensor::<4>::ones(shape, &device);
    let right = [1, 2, 70, 32];
    let attend = |q: [usize; 4], k: [usize; 4], v: [usize; 4], gate: [usize; 3]| {
        let gate = Tensor::<3>::zeros(gate, &device);
        let context = LayerPass::eval().context(0.0, DropoutPlacement::Logits);
        threshold_relative_attention(zeros(q), zeros(k), zeros(v), gate, context)
    };
    let gate = [1, 2, 70];
    assert_eq!(attend(right, right, right, gate).unwrap().dims(), right);
    let narrow = [1, 2, 70, 16];
    for (what, q, k, v, gate) in [
        ("values", right, right, narrow, gate),
        ("keys and values", right, narrow, narrow, gate),
        ("queries", narrow, right, right, gate),
        ("heads", [1, 1, 70, 32], right, right, [1, 1, 70]),
        ("fewer keys than queries", right, [1, 2, 60, 32], [1, 2, 60, 32], gate),
        ("gate", right, right, right, [1, 2, 1]),
    ] {
        let error = attend(q, k, v, gate).expect_err(what);
        assert_eq!((error.queries, error.keys, error.values, error.gate), (q, k, v, gate));
        assert!(error.to_string().contains(&format!("{v:?}")), "{what}: {error}");
    }
    let layer = AttentionLayerConfig::<TraConfig>::new(16, 2).init(&device).unwrap();
    let x = Tensor::<3>::ones([1, 5, 12], &device);
    says("layer", &["[1, 5, 12]", "16"], || layer.forward(x.clone(), LayerPass::eval()));
    let weight = Tensor::<2>::ones([12, 4], &device);
    let bias = Tensor::<1>::ones([3], &device);
    says("bias", &["[3]", "[12, 4]"], || ops::product(x, weight, Some(bias)));
}
