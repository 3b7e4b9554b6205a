//! Verification accepts what is equal, and only that.

use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor};
use tra_lab::loss::cross_entropy;
use tra_lab::verify::{Tolerance, Verdict, verify};
use tra_nn::attention::{AnyAttentionConfig, AttentionConfig, mechanisms};
use tra_nn::checkpoint::{HostTensor, TensorFile, Values};
use tra_nn::{Decoder, DecoderConfig, Pair, Pass, Probe};

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn run(path: &Path) -> Verdict {
    verify(path, Tolerance::default(), &Device::flex()).unwrap()
}

fn differing(verdict: &Verdict) -> Vec<&str> {
    verdict.tensors.iter().filter(|t| !t.agrees).map(|t| t.name.as_str()).collect()
}

#[test]
fn every_recording_in_the_repository_agrees() {
    let mut seen = 0;
    for folder in ["tests/golden", "tests/recorded"] {
        for entry in std::fs::read_dir(repository(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "safetensors") {
                let verdict = run(&path);
                assert!(verdict.agrees(), "{}: {:?}", path.display(), differing(&verdict));
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 31);
}

/// Writes a changed copy of a recording and verifies it.
fn changed(recording: &str, change: impl FnOnce(&mut TensorFile)) -> Result<Verdict, String> {
    let directory = tempfile::tempdir().unwrap();
    let mut file = TensorFile::read(repository(recording)).unwrap();
    file.path = directory.path().join("changed.safetensors");
    change(&mut file);
    file.write().unwrap();
    let outcome = verify(&file.path, Tolerance::default(), &Device::flex());
    outcome.map_err(|error| error.to_string())
}

fn nudge(file: &mut TensorFile, name: &str, factor: f32) {
    let Values::Float(values) = &mut file.tensors.get_mut(name).unwrap().values else { panic!() };
    let largest = values.iter_mut().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap();
    *largest *= factor;
}

/// Every tensor of a recording is compared: a change of one element by 1/1000 is found, and no
/// other tensor is blamed.
#[test]
fn one_wrong_element_is_found_in_any_tensor() {
    for recording in [
        "tests/golden/attention_t7.safetensors",
        "tests/golden/model_flipflop_trained.safetensors",
        "tests/recorded/rival_fox.safetensors",
    ] {
        let names: Vec<String> = run(&repository(recording))
            .tensors
            .iter()
            .map(|t| t.name.clone())
            .filter(|name| name != "keep")
            .collect();
        for name in names.iter().filter(|name| !name.starts_with("kernel.")) {
            let verdict = changed(recording, |file| nudge(file, name, 1.001)).unwrap();
            // A tensor that the kernels compute too differs there as well.
            let kernel = names.iter().find(|other| other.strip_prefix("kernel.") == Some(name));
            let expected: Vec<&str> =
                [name].into_iter().chain(kernel).map(|n| n.as_str()).collect();
            assert_eq!(differing(&verdict), expected);
        }
        assert!(names.iter().any(|name| name.starts_with("kernel.")), "{recording}");
    }
    let verdict = changed("tests/golden/attention_t7.safetensors", |file| {
        let Values::Int(keep) = &mut file.tensors.get_mut("keep").unwrap().values else { panic!() };
        keep[0] = 1 - keep[0];
    });
    assert_eq!(differing(&verdict.unwrap()), ["keep"]);
}

/// Mechanisms without a recording. Absolute positions are added to the embedding, so their
/// attention is that of `nope`.
const UNRECORDED: [&str; 2] = ["sinusoidal", "learned"];

#[test]
fn every_rival_was_recorded_with_a_library() {
    let rivals = mechanisms().map(|mechanism| mechanism.name);
    for name in rivals.filter(|n| !n.starts_with("tra") && !UNRECORDED.contains(n)) {
        let verdict = run(&repository(&format!("tests/recorded/rival_{name}.safetensors")));
        let contents = &verdict.contents;
        assert!(contents.starts_with(&format!("{name}: batch ")), "{contents}");
        assert!(contents.contains(", by "), "{contents}");
        let by_kernel = verdict.tensors.iter().any(|t| t.name == "kernel.grad_q");
        assert_eq!(by_kernel, name.parse::<AnyAttentionConfig>().unwrap().has_kernel(), "{name}");
    }
}

/// The settings in a recording's metadata are used.
#[test]
fn a_rival_with_other_settings_differs() {
    for (recording, key, value) in [
        ("alibi", "attention", "nope"),
        ("rope", "settings", r#"{"theta": 10000.0}"#),
        ("rope", "settings", r#"{"qk_norm": true}"#),
        ("t5", "settings", r#"{"buckets": 12, "max_distance": 40}"#),
        ("differential", "layer", "0"),
    ] {
        let recording = format!("tests/recorded/rival_{recording}.safetensors");
        let verdict = changed(&recording, |file| {
            file.metadata.insert(key.into(), value.into());
        });
        assert!(differing(&verdict.unwrap()).contains(&"out"), "{recording}: {key} {value}");
    }
}

#[test]
fn another_model_differs() {
    let verdict = changed("tests/golden/model_lm.safetensors", |file| {
        nudge(file, "layers.1.mlp.linear2.weight", -1.0);
    });
    assert!(differing(&verdict.unwrap()).contains(&"logits"));
}

#[test]
fn tolerances_are_obeyed() {
    let path = repository("tests/golden/model_flipflop.safetensors");
    let agrees = |atol, rtol| {
        let verdict = verify(&path, Tolerance { atol, rtol }, &Device::flex()).unwrap();
        let (outputs, gradients): (Vec<_>, Vec<_>) =
            verdict.tensors.into_iter().partition(|t| !t.name.contains("grad."));
        (outputs.iter().all(|t| t.agrees), gradients.iter().all(|t| t.agrees))
    };
    assert_eq!(agrees(1e-5, 1e-4), (true, true));
    assert_eq!(agrees(1e-9, 1e-4), (false, true));
    assert_eq!(agrees(1e-5, 1e-9), (true, false));
}

#[test]
fn what_cannot_be_judged_is_named() {
    let model = "tests/golden/model_lm.safetensors";
    let attention = "tests/golden/attention_t7.safetensors";
    let error = |recording, change: fn(&mut TensorFile)| changed(recording, change).unwrap_err();
    let token = |token: i64| {
        changed(model, |file| {
            let tokens = file.tensors.get_mut("tokens").unwrap();
            let Values::Int(tokens) = &mut tokens.values else { panic!() };
            tokens[49] = token;
        })
        .unwrap_err()
    };
    let text = error(model, |file| drop(file.tensors.remove("grad.out.weight")));
    assert!(text.contains("missing tensors: grad.out.weight"), "{text}");
    let text = error(model, |file| drop(file.tensors.remove("outln.weight")));
    assert!(text.contains("missing tensors: outln.weight"), "{text}");
    let text = error(model, |file| nudge(file, "outln.weight", f32::NAN));
    assert!(text.contains("NaN or infinity in: outln.weight (1)"), "{text}");
    let text = error(model, |file| drop(file.metadata.insert("heads".into(), "5".into())));
    assert!(text.contains("heads (5) must divide the width (48)"), "{text}");
    let text = error(model, |file| drop(file.metadata.insert("loss".into(), "hinge".into())));
    assert!(text.contains("unknown loss \"hinge\""), "{text}");
    let text = token(101);
    assert!(text.contains("token 101 at sequence 1, position 1 is outside"), "{text}");
    assert!(token(-1).contains("token -1"));
    let text = error(attention, |file| drop(file.tensors.remove("gate")));
    assert!(text.contains("missing tensors: gate"), "{text}");
    let text = error(attention, |file| {
        file.tensors.insert("v".into(), HostTensor::floats([2, 2, 7, 8], vec![0.0; 224]));
    });
    assert!(text.contains("v is [2, 2, 7, 8] and should be [2, 2, 7, 16]"), "{text}");
    let text = error(attention, |file| nudge(file, "q", f32::INFINITY));
    assert!(text.contains("NaN or infinity in: q"), "{text}");
    let text = error(attention, |file| drop(file.tensors.remove("q")));
    assert!(text.contains("not a recording"), "{text}");
    let rival = "tests/recorded/rival_cope.safetensors";
    let note = |key: &str, value: &str| {
        let note = |file: &mut TensorFile| drop(file.metadata.insert(key.into(), value.into()));
        changed(rival, note).unwrap_err()
    };
    assert!(note("attention", "best").contains("unknown attention \"best\""));
    assert!(note("settings", "{").contains("bad model config in the metadata: settings"));
    assert!(note("settings", r#"{"steps": 1}"#).contains("unknown field `steps`"));
    assert!(note("settings", r#"{"npos": 0}"#).contains("cope: npos must be at least 1"));
    let text = note("settings", r#"{"npos": 9}"#);
    assert!(text.contains("pos_emb is [8, 5] and should be [9, 5]"), "{text}");
    assert!(note("layer", "last").contains("layer is \"last\" in the metadata, not a number"));
    let text = note("attention", "fox");
    assert!(text.contains("unknown field `npos`"), "{text}");
    let text = error(rival, |file| drop(file.tensors.remove("grad.pos_emb")));
    assert!(text.contains("missing tensors: grad.pos_emb"), "{text}");
    let text = error(rival, |file| {
        let hidden = HostTensor::floats([2, 36, 7], vec![0.0; 504]);
        file.tensors.insert("hidden".into(), hidden);
    });
    assert!(text.contains("missing tensors: grad_hidden"), "{text}");
    assert!(text.contains("hidden is [2, 36, 7] and should be [2, 37, 7]"), "{text}");
    let text = error(rival, |file| file.tensors.get_mut("q").unwrap().shape = vec![6, 37, 5]);
    assert!(text.contains("q should hold [batch, heads, length, head_dim]"), "{text}");
    let verdict = changed(rival, |file| nudge(file, "grad_q", f32::NAN)).unwrap();
    assert_eq!(differing(&verdict), ["grad_q"]);
    // A NaN among the results is a difference, not an unreadable file.
    let verdict = changed(model, |file| nudge(file, "grad.out.weight", f32::NAN)).unwrap();
    assert_eq!(differing(&verdict), ["grad.out.weight", "kernel.grad.out.weight"]);
}

/// Records our own decoder, with the given pairs reversed.
fn record(
    path: &Path,
    (config, seed): (&DecoderConfig, u64),
    tokens: &[Vec<u32>],
    flips: &[(usize, Pair)],
) -> Probe {
    let device = Device::flex().autodiff();
    let mut tensors = config.init_seeded(seed, &device).unwrap().parameters();
    for (_, bias) in tensors.iter_mut().filter(|(name, _)| name.ends_with("delta_proj.bias")) {
        // The gates are wide open, so that far keys matter as much as near ones.
        *bias = HostTensor::floats(bias.shape.clone(), vec![6.0; config.heads]);
    }
    let file = TensorFile { path: path.into(), metadata: Default::default(), tensors };
    let decoder = Decoder::from_tensors(config.clone(), file, &device).unwrap();
    let mut probe = Probe::new(config.layers, 1e-5);
    for (layer, pair) in flips {
        probe.layers[*layer].flip.push(*pair);
    }
    let batch = decoder.tokens(tokens).unwrap();
    let logits = decoder.forward(batch, Pass::eval().with_probe(&mut probe));
    let scored: Vec<Vec<bool>> = tokens.iter().map(|t| vec![true; t.len()]).collect();
    let loss = cross_entropy(logits.clone(), tokens, &scored).map(|(sum, n)| sum / n as f64);
    let host = |t: Tensor<3>| t.into_data_as::<f32>().iter::<f32>().collect::<Vec<_>>();
    let (batch, length) = (tokens.len(), tokens[0].len());

    decoder.save(path).unwrap();
    let mut file = TensorFile::read(path).unwrap();
    file.tensors.insert("logits".into(), HostTensor::floats(logits.dims(), host(logits)));
    let value = loss.as_ref().map_or(f32::NAN, |loss| loss.clone().into_scalar::<f32>());
    file.tensors.insert("loss".into(), HostTensor::floats([1], vec![value]));
    let gradients = loss.map(|loss| decoder.gradients(&loss.backward())).unwrap_or_default();
    for (name, shape) in decoder.parameter_shapes() {
        let zeros = || HostTensor::floats(shape.clone(), vec![0.0; shape.iter().product()]);
        let gradient = gradients.get(&name).cloned().unwrap_or_else(zeros);
        file.tensors.insert(format!("grad.{name}"), gradient);
    }
    let ints = tokens.iter().flatten().map(|t| i64::from(*t)).collect();
    let tokens = HostTensor { shape: vec![batch, length], values: Values::Int(ints) };
    file.tensors.insert("tokens".into(), tokens);
    file.metadata.insert("loss".into(), "cross-entropy at every next token".into());
    file.write().unwrap();
    probe
}

fn random_tokens(length: usize, vocab: u64) -> Vec<Vec<u32>> {
    let stream = tra_random::Stream::new(3);
    let sequence = |s| (0..length as u64).map(|i| stream.fork(s).below(i, vocab) as u32).collect();
    (0..2).map(sequence).collect()
}

/// Two reversed near-threshold pairs are found and followed, and then everything agrees. A reversed
/// pair far from the threshold is a difference.
#[test]
fn near_threshold_pairs_follow_the_recording_and_others_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("recording.safetensors");
    let config = DecoderConfig::new(257, 2, 30, 3);
    let tokens = random_tokens(257, 257);
    let near_pairs = |seed| -> Vec<(usize, Pair)> {
        let layers = record(&path, (&config, seed), &tokens, &[]).layers.into_iter().enumerate();
        layers.flat_map(|(l, probe)| probe.near.into_iter().map(move |(p, _)| (l, p))).collect()
    };
    let (seed, near) = (0..100)
        .map(|seed| (seed, near_pairs(seed)))
        .find(|(_, near)| near.len() >= 2)
        .expect("some seed has two near-threshold pairs");
    assert_eq!(run(&path).near_threshold.followed, 0);

    record(&path, (&config, seed), &tokens, &near[..2]);
    let verdict = run(&path);
    assert!(verdict.agrees(), "{:?}", differing(&verdict));
    assert_eq!(verdict.near_threshold.followed, 2);

    let far = Pair { batch: 1, head: 0, query: 200, key: 190 };
    assert!(!near.contains(&(0, far)));
    record(&path, (&config, seed), &tokens, &[(0, far)]);
    assert!(differing(&run(&path)).contains(&"logits"));
}

#[test]
fn every_mechanism_can_be_recorded_and_verified() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("recording.safetensors");
    for mechanism in mechanisms() {
        let (name, attention) = (mechanism.name, mechanism.config());
        let config = DecoderConfig::new(9, 2, 12, 2).with_attention(attention);
        record(&path, (&config, 1), &random_tokens(21, 9), &[]);
        let verdict = run(&path);
        assert!(verdict.agrees(), "{name}: {:?}", differing(&verdict));
        assert!(verdict.contents.contains(name));
    }
}

#[test]
fn lengths_zero_and_one_have_no_loss_and_still_agree() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("recording.safetensors");
    for length in [0, 1] {
        record(&path, (&DecoderConfig::new(9, 1, 12, 2), 1), &random_tokens(length, 9), &[]);
        let verdict = run(&path);
        assert!(verdict.agrees(), "{length}: {:?}", differing(&verdict));
    }
    let empty = changed("tests/golden/attention_t7.safetensors", |file| {
        for (name, tensor) in &mut file.tensors {
            tensor.shape[2] = 0;
            if ["keep", "count", "weights"].contains(&name.as_str()) {
                tensor.shape[3] = 0;
            }
            match &mut tensor.values {
                Values::Float(values) => values.clear(),
                Values::Int(values) => values.clear(),
            }
        }
    });
    assert!(empty.unwrap().agrees());
}
