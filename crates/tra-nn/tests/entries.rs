//! What a user of the library may get wrong is said in one line that names the shapes; and what is forced to
//! run on plain operations does so on every thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{Device, Tensor};
use rayon::prelude::*;
use tra_nn::attention::{AttentionLayerConfig, TraConfig, threshold_relative_attention};
use tra_nn::{DropoutPlacement, LayerPass, fused, ops};

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

/// Training cuts a batch into parts that rayon's workers compute.
#[test]
fn plain_holds_on_every_thread() {
    let x = Tensor::<1>::ones([4], &Device::flex());
    let fused_on = || {
        let parts: Vec<bool> = (0..64)
            .into_par_iter()
            .with_max_len(1)
            .map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                fused::usable(&x)
            })
            .collect();
        parts.iter().filter(|usable| **usable).count()
    };
    assert_eq!(fused_on(), 64);
    assert_eq!(fused::plain(fused_on), 0);
    assert_eq!(fused::plain(|| fused::plain(fused_on)), 0);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    assert_eq!(pool.install(|| fused::plain(fused_on)), 0);
    assert_eq!(pool.install(|| fused::plain(rayon::current_num_threads)), 3);
    assert_eq!(fused_on(), 64);
    // A panic leaves nothing switched off.
    assert!(catch_unwind(|| fused::plain(|| panic!("on purpose"))).is_err());
    assert_eq!(fused_on(), 64);
}
