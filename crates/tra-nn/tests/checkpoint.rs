//! Checkpoints: what is saved is loaded, to the bit, and what does not fit is named.

mod common;

use std::path::PathBuf;

use burn::tensor::Device;
use common::{floats, lively, mechanisms};
use tra_nn::attention::{AnyAttentionConfig, TraConfig, TraResearch};
use tra_nn::checkpoint::{HostTensor, TensorFile, Values};
use tra_nn::{Decoder, DecoderConfig, Pass, Research};

fn recorded(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/recorded").join(name)
}

/// Loads what `change` makes of a saved model, and gives the error.
fn error_after(change: impl FnOnce(&mut TensorFile)) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors");
    let device = Device::flex();
    DecoderConfig::new(7, 1, 8, 2).init_seeded(1, &device).unwrap().save(&path).unwrap();
    let mut file = TensorFile::read(&path).unwrap();
    change(&mut file);
    file.write().unwrap();
    let text = Decoder::load(&path, &device).unwrap_err().to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// A tied model has one tensor less, and the kernel and plain operations agree about it.
#[test]
fn a_tied_model_comes_back_without_an_output_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors");
    let device = Device::flex();
    let config = DecoderConfig::new(9, 1, 12, 2).with_tied(true);
    let saved = lively(config, 3, &device);
    saved.save(&path).unwrap();
    let loaded = Decoder::load(&path, &device).unwrap();
    assert!(loaded.config().tied && loaded.out.is_none());
    assert!(!loaded.parameter_shapes().contains_key("out.weight"));
    let tokens = loaded.tokens(&[[1, 5, 8]]).unwrap();
    let logits = loaded.forward(tokens.clone(), Pass::eval());
    assert_eq!(floats(logits.clone()), floats(saved.forward(tokens.clone(), Pass::eval())));
    // The definition: hidden states times the rows of the table.
    let hidden = loaded.hidden(tokens, Pass::eval()).reshape([3, 12]);
    let expected = hidden.matmul(loaded.embedding.weight.val().transpose());
    let largest = (logits.reshape([3, 9]) - expected).abs().max().into_scalar::<f32>();
    assert!(largest < 1e-5, "{largest}");
}

/// Where embeddings begin is as published unless it is said; then positions follow, and the file says it.
#[test]
fn embeddings_begin_in_the_range_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors");
    let device = Device::flex();
    let attention: AnyAttentionConfig =
        serde_json::from_str(r#"{"name": "learned", "count": 50}"#).unwrap();
    let config = DecoderConfig::new(50, 1, 12, 2).with_attention(attention);
    let largest = |config: &DecoderConfig| {
        let decoder = config.init_seeded(3, &device).unwrap();
        decoder.save(&path).unwrap();
        assert_eq!(Decoder::load(&path, &device).unwrap().config(), config);
        let position = decoder.position.unwrap().weight.val();
        let table = decoder.embedding.weight.val();
        [table, position].map(|x| x.abs().max().into_scalar::<f32>())
    };
    assert!(largest(&config).iter().all(|x| (0.009..=0.01).contains(x)));
    let file = std::fs::read(&path).unwrap();
    assert!(!String::from_utf8_lossy(&file).contains("embedding_bound"), "as ever");
    let wide = config.with_research(Research::default().with_embedding_bound(2.0));
    assert!(largest(&wide).iter().all(|x| (1.8..=2.0).contains(x)));
}

/// Files from before 2026-11-18 have the settings for experiments beside the others.
#[test]
fn settings_of_research_are_read_where_they_stood() {
    let research = Research::default()
        .with_sharpness(0.3)
        .with_embedding_dropout(Some(0.1))
        .with_embedding_bound(1.0);
    let leaking = TraConfig::default().with_research(TraResearch::default().with_leak(0.5));
    let config = DecoderConfig::new(7, 1, 8, 2).with_attention(leaking).with_research(research);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors");
    let device = Device::flex();
    config.init_seeded(1, &device).unwrap().save(&path).unwrap();
    let mut file = TensorFile::read(&path).unwrap();
    let now = file.metadata["config"].clone();
    assert!(now.contains(r#""research":{"leak":0.5}"#), "{now}");
    let old = r#"{"vocab":7,"layers":1,"width":8,"heads":2,"attention":{"name":"tra","horizon":"rounding","leak":0.5},
        "dropout":0.01,"embedding_dropout":0.1,"dropout_placement":"logits","sharpness":0.3,"norm_eps":1e-6,
        "pad_index":0,"embedding_bound":1.0}"#;
    file.metadata.insert("config".into(), old.into());
    file.write().unwrap();
    let loaded = Decoder::load(&path, &device).unwrap();
    assert_eq!(loaded.config(), &config);
    loaded.save(&path).unwrap();
    assert_eq!(TensorFile::read(&path).unwrap().metadata["config"], now);
    let both = old.replace("\"sharpness\"", "\"research\":{\"sharpness\":1.0},\"sharpness\"");
    assert!(DecoderConfig::from_json(&both).unwrap_err().to_string().contains("sharpness"));
}

/// Words about a model come back, and do not change the bytes from one time to the next.
#[test]
fn what_is_said_about_a_model_stands_in_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let decoder = DecoderConfig::new(7, 1, 8, 2).init_seeded(1, &device).unwrap();
    let about = || (0..9).map(|i| (format!("key {i}"), format!("\"{{é\n{i}"))).collect();
    let save = |name: &str| {
        let path = directory.path().join(name);
        decoder.save_with(&path, about()).unwrap();
        path
    };
    let (one, two) = (save("one"), save("two"));
    assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&two).unwrap());
    let read = TensorFile::read(&one).unwrap();
    assert_eq!(read.metadata["key 3"], "\"{é\n3");
    assert_eq!(TensorFile::read_metadata(&one).unwrap(), read.metadata);
    assert_eq!(Decoder::load(&one, &device).unwrap().parameters(), decoder.parameters());
}

#[test]
fn every_mechanism_comes_back_to_the_bit_from_its_file_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors");
    let device = Device::flex();
    for attention in mechanisms() {
        let config = DecoderConfig::new(9, 2, 12, 2).with_attention(attention);
        let saved = lively(config, 3, &device);
        saved.save(&path).unwrap();
        let loaded = Decoder::load(&path, &device).unwrap();
        assert_eq!(loaded.config(), saved.config());
        assert_eq!(loaded.parameters(), saved.parameters());
        let logits =
            |d: &Decoder| floats(d.forward(d.tokens(&[[1, 2, 3, 4, 5]]).unwrap(), Pass::eval()));
        assert_eq!(logits(&loaded), logits(&saved));

        let first = std::fs::read(&path).unwrap();
        loaded.save(&path).unwrap();
        assert_eq!(first, std::fs::read(&path).unwrap(), "the same model is the same file");
    }
    let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing is left beside the file");
}

#[test]
fn names_and_layout_are_those_of_the_reference() {
    let decoder = DecoderConfig::new(6, 1, 8, 2).init_seeded(0, &Device::flex()).unwrap();
    let shapes = decoder.parameter_shapes();
    let expected = [
        ("embedding.weight", vec![6, 8]),
        ("layers.0.attn.c_out.bias", vec![8]),
        ("layers.0.attn.c_out.weight", vec![8, 8]),
        ("layers.0.attn.delta_proj.bias", vec![2]),
        ("layers.0.attn.delta_proj.weight", vec![2, 8]),
        ("layers.0.attn.tokeys.weight", vec![8, 8]),
        ("layers.0.attn.toqueries.weight", vec![8, 8]),
        ("layers.0.attn.tovalues.weight", vec![8, 8]),
        ("layers.0.ln1.weight", vec![8]),
        ("layers.0.ln2.weight", vec![8]),
        ("layers.0.mlp.linear1.bias", vec![32]),
        ("layers.0.mlp.linear1.weight", vec![32, 8]),
        ("layers.0.mlp.linear2.bias", vec![8]),
        ("layers.0.mlp.linear2.weight", vec![8, 16]),
        ("out.weight", vec![6, 8]),
        ("outln.weight", vec![8]),
    ];
    let expected = expected.map(|(name, shape)| (name.to_string(), shape));
    assert_eq!(shapes, expected.into_iter().collect());
}

#[cfg(feature = "pytorch")]
#[test]
fn a_pytorch_state_dict_loads_without_a_config() {
    let device = Device::flex();
    let decoder = Decoder::load(recorded("model_small.pt"), &device).unwrap();
    let tra_nn::DecoderConfig { vocab, layers, width, heads, .. } = *decoder.config();
    assert_eq!((vocab, layers, width, heads), (7, 1, 15, 3));
    let recording = TensorFile::read(recorded("model_small.safetensors")).unwrap();
    for (name, tensor) in decoder.parameters() {
        assert_eq!(tensor, recording.tensors[&name], "{name}");
    }
    let config = DecoderConfig::new(7, 1, 15, 5);
    let error = Decoder::load_with_config(recorded("model_small.pt"), config, &device).unwrap_err();
    assert!(
        error.to_string().contains("delta_proj.weight is [3, 15] and should be [5, 15]"),
        "{error}"
    );
}

#[test]
fn everything_wrong_is_named_at_once() {
    let text = error_after(|file| {
        file.tensors.remove("out.weight");
        file.tensors.remove("layers.0.ln1.weight");
        file.tensors.insert("extra".into(), HostTensor::floats([1], vec![0.0]));
        file.tensors.insert("outln.weight".into(), HostTensor::floats([3], vec![0.0; 3]));
        let ints = HostTensor { shape: vec![8], values: Values::Int(vec![0; 8]) };
        file.tensors.insert("layers.0.ln2.weight".into(), ints);
        let nan = HostTensor::floats([2], vec![f32::NAN, f32::INFINITY]);
        file.tensors.insert("layers.0.attn.delta_proj.bias".into(), nan);
    });
    for part in [
        "missing tensors: layers.0.ln1.weight, out.weight",
        "unexpected tensors: extra",
        "wrong shapes: outln.weight is [3] and should be [8]",
        "wrong types: layers.0.ln2.weight should hold floats",
        "NaN or infinity in: layers.0.attn.delta_proj.bias (2)",
    ] {
        assert!(text.contains(part), "{part:?} not in {text:?}");
    }
}

#[test]
fn configs_that_make_no_sense_are_refused() {
    let with = |from: &str, to: &str| {
        error_after(|file| {
            let config = file.metadata.get_mut("config").unwrap();
            assert!(config.contains(from), "{config}");
            *config = config.replace(from, to);
        })
    };
    assert!(with(r#""heads":2"#, r#""heads":3"#).contains("heads (3) must divide the width (8)"));
    assert!(with(r#""layers":1"#, r#""layers":0"#).contains("layers must be at least 1"));
    assert!(with(r#""name":"tra""#, r#""name":"abc""#).contains("abc"));
    let leak = with(r#""name":"tra""#, r#""name":"tra","leak":1.5"#);
    assert!(leak.contains("leak must be 0 to 1, not 1.5"), "{leak}");
    assert!(with(r#""layers":1"#, r#""layers":1,"depth":2"#).contains("depth"));
    assert!(with(r#""layers":1"#, r#""layers":1000000000"#).contains("1000000000 layers"));
    let huge = with(r#""vocab":7"#, r#""vocab":700000000000"#);
    assert!(huge.contains("should be [700000000000, 8]"), "{huge}");
    assert!(with(r#""dropout":0.01"#, r#""dropout":1.5"#).contains("dropout"));
    assert!(with(r#""pad_index":0"#, r#""pad_index":7"#).contains("outside the vocabulary"));
}

/// Without a config, only TRA's own gate tells the number of heads.
#[test]
fn a_rival_without_a_config_asks_for_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rope.safetensors");
    let device = Device::flex();
    let config =
        DecoderConfig::new(7, 1, 8, 2).with_attention(tra_nn::attention::RopeConfig::default());
    config.init_seeded(1, &device).unwrap().save(&path).unwrap();
    let mut file = TensorFile::read(&path).unwrap();
    file.metadata.clear();
    file.write().unwrap();
    let text = Decoder::load(&path, &device).unwrap_err().to_string();
    assert!(text.contains("give its config"), "{text}");
    assert!(Decoder::load_with_config(&path, config, &device).is_ok());
}

#[test]
fn files_that_are_not_checkpoints_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let whole = std::fs::read(recorded("model_small.safetensors")).unwrap();
    let pytorch = std::fs::read(recorded("model_small.pt")).unwrap();
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("empty.safetensors", Vec::new(), "safetensors"),
        ("text.safetensors", b"this is not a checkpoint at all".to_vec(), "safetensors"),
        ("cut.safetensors", whole[..whole.len() / 2].to_vec(), "cut short"),
        ("header.safetensors", whole[..100].to_vec(), "cut short"),
        ("text.pt", b"this is not a checkpoint at all".to_vec(), "PyTorch"),
        ("cut.pt", pytorch[..pytorch.len() / 2].to_vec(), "PyTorch"),
        ("empty.pt", Vec::new(), "PyTorch"),
    ];
    for (name, bytes, expected) in cases {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let text = Decoder::load(&path, &device).unwrap_err().to_string();
        assert!(text.contains(expected) && text.contains(name), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        if name.ends_with(".safetensors") {
            let shorter = TensorFile::read_metadata(&path).unwrap_err().to_string();
            assert_eq!(shorter, TensorFile::read(&path).unwrap_err().to_string());
        }
    }
    // A device: this one ends at once, others never.
    #[cfg(unix)]
    for name in ["null.safetensors", "null.pt"] {
        let path = directory.path().join(name);
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let text = Decoder::load(&path, &device).unwrap_err().to_string();
        assert!(text.contains("not a regular file") && text.contains(name), "{text}");
    }
    let text = Decoder::load(directory.path().join("none.safetensors"), &device).unwrap_err();
    assert!(text.to_string().contains("cannot read it"), "{text}");
    let decoder = DecoderConfig::new(6, 1, 8, 2).init_seeded(0, &device).unwrap();
    let text = decoder.save(directory.path().join("no/such/folder.safetensors")).unwrap_err();
    assert!(text.to_string().contains("cannot write it"), "{text}");
}

#[test]
fn the_same_seed_gives_the_same_weights_and_another_gives_others() {
    let device = Device::flex();
    let config = DecoderConfig::new(6, 2, 8, 2);
    let weights = |seed| config.init_seeded(seed, &device).unwrap().parameters();
    assert_eq!(weights(4), weights(4));
    let (a, b) = (weights(4), weights(5));
    let drawn = |name: &String| !name.contains("ln");
    for name in a.keys().filter(|name| drawn(name)) {
        assert_ne!(a[name], b[name], "{name}");
    }
    assert_ne!(a["layers.0.attn.tokeys.weight"], a["layers.1.attn.tokeys.weight"]);
    device.seed(9);
    let first = config.init(&device).unwrap().parameters();
    assert_ne!(first, config.init(&device).unwrap().parameters(), "two layers must not be twins");
}

#[test]
fn tokens_are_checked() {
    let decoder = DecoderConfig::new(6, 1, 8, 2).init_seeded(0, &Device::flex()).unwrap();
    let error = decoder.tokens(&[[1, 2], [3, 6]]).unwrap_err().to_string();
    assert_eq!(error, "token 6 at sequence 1, position 1 is outside the vocabulary of 6");
    let error = decoder.tokens(&[vec![1, 2], vec![3]]).unwrap_err().to_string();
    assert_eq!(error, "sequence 1 has 1 tokens where the first has 2");
}
