//! What a user of the library types: settings are built, written and read, and wrong shapes are named.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{Device, Tensor};
use serde::{Serialize, de::DeserializeOwned};
use tra_nn::attention::{
    AnyAttentionConfig, AttentionLayerConfig, TraConfig, mechanisms, threshold_relative_attention,
};
use tra_nn::{
    DecoderConfig, DropoutPlacement, Generate, LayerPass, Sampling, Size,
    ThresholdRelativeAttentionConfig, ops,
};

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

fn comes_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(settings: &T) {
    let text = serde_json::to_string(settings).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), settings, "{text}");
}

#[test]
fn settings_come_back_from_their_text() {
    let layer = ThresholdRelativeAttentionConfig::new(16, 2);
    comes_back(&layer.clone().with_dropout(0.1).with_layer(3));
    assert_eq!(serde_json::from_str(r#"{"width": 16, "heads": 2}"#).ok(), Some(layer));
    comes_back(&DecoderConfig::sized(Size::Tiny, 6).with_tied(true).with_norm_eps(1e-5));
    comes_back(&Generate::default().with_stop(vec![3]).with_sampling(Sampling::GREEDY));
    comes_back(&Sampling::default().with_top_k(Some(5)).with_top_p(Some(0.9)));
    assert!(serde_json::from_str::<Sampling>(r#"{"top_q": 1}"#).is_err());
    for size in Size::all() {
        comes_back(&size);
        assert_eq!(size.name().parse(), Ok(size));
    }
}

/// What a program needs to list the mechanisms with their settings.
#[test]
fn every_mechanism_has_a_name_a_line_and_default_settings() {
    for mechanism in mechanisms() {
        let config = mechanism.config();
        assert_eq!(config.name(), mechanism.name);
        assert_eq!(mechanism.name.parse::<AnyAttentionConfig>(), Ok(config.clone()));
        assert!(!mechanism.about.is_empty());
        comes_back(&config);
        let settings = serde_json::to_value(&config).unwrap();
        assert_eq!(settings["name"], mechanism.name);
        assert!(settings.get("research").is_none(), "{settings}");
    }
    let error = "rop".parse::<AnyAttentionConfig>().unwrap_err().to_string();
    assert!(error.contains("rop") && error.contains("rope, alibi"), "{error}");
}
