//! Shared by the tests: every mechanism, small models, f64.
#![allow(dead_code, reason = "every test file uses its own part")]

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};
use tra_nn::attention::{AnyAttentionConfig, mechanisms as all_mechanisms};
use tra_nn::{Decoder, DecoderConfig};
use tra_random::Stream;

/// Every mechanism with its default settings, but for learned positions up to 2,000, and those of the rivals with QK-norm on.
pub fn mechanisms() -> Vec<AnyAttentionConfig> {
    let mut all: Vec<_> = all_mechanisms().map(|mechanism| mechanism.config()).collect();
    for name in all_mechanisms().map(|m| m.name).filter(|name| !name.starts_with("tra")) {
        let json = format!(r#"{{"name": "{name}", "qk_norm": true}}"#);
        all.push(serde_json::from_str(&json).unwrap());
    }
    all.push(serde_json::from_str(r#"{"name": "tra", "research": {"leak": 0.5}}"#).unwrap());
    for attention in &mut all {
        // Enough for every test.
        if let AnyAttentionConfig::Learned(learned) = attention {
            learned.count = 2000;
        }
    }
    all
}

/// A small decoder in which nothing is a power of two: three heads of 5, or four where they work in pairs.
pub fn odd_sizes(vocab: usize, layers: usize, attention: AnyAttentionConfig) -> DecoderConfig {
    let heads = if attention.name() == "differential" { 4 } else { 3 };
    DecoderConfig::new(vocab, layers, 5 * heads, heads).with_attention(attention)
}

/// A decoder whose weights are large enough that every part of it matters: the published start is
/// so small (and CoPE's table so zero) that a missing part would hardly show.
pub fn lively(config: DecoderConfig, seed: u64, device: &Device) -> Decoder {
    let decoder = config.init_seeded(seed, device).unwrap();
    decoder.map(&mut Lively(Stream::new(seed).fork_name("lively"), 0))
}

struct Lively(Stream, u64);

impl ModuleMapper for Lively {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.1 += 1;
        let noise = normals(self.0, self.1, param.dims());
        param.map(|t| {
            let (device, grad) = (t.device(), t.is_require_grad());
            let noise = Tensor::<D>::from_data(noise, &device) * 0.2;
            (t.detach() + noise).detach().set_require_grad(grad)
        })
    }
}

/// The same model in double precision.
pub fn in_f64(decoder: Decoder) -> Decoder {
    in_type(decoder, DType::F64)
}

/// The same module with parameters of another type.
pub fn in_type<M: Module>(module: M, dtype: DType) -> M {
    struct Cast(DType);
    impl ModuleMapper for Cast {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|t| {
                let grad = t.is_require_grad();
                t.detach().cast(self.0).detach().set_require_grad(grad)
            })
        }
    }
    module.map(&mut Cast(dtype))
}

pub fn normals<const D: usize>(stream: Stream, tag: u64, shape: [usize; D]) -> TensorData {
    let count = shape.iter().product::<usize>() as u64;
    let values: Vec<f64> = (0..count).map(|i| stream.fork(tag).normal(i)).collect();
    TensorData::new(values, shape)
}

pub fn tokens(seed: u64, length: usize, vocab: usize) -> Vec<u32> {
    let stream = Stream::new(seed).fork_name("tokens");
    (0..length as u64).map(|i| stream.below(i, vocab as u64) as u32).collect()
}

pub fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data_as::<f64>().iter::<f64>().collect()
}
