//! Recordings of one operation of another mechanism, made with a library that implements it.

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor, TensorData};
use serde_json::{Map, Value};
use tra_nn::attention::{AnyAttentionConfig, Attention, AttentionConfig, HeadSizes, Heads};
use tra_nn::checkpoint::{HostTensor, TensorFile, names};
use tra_nn::ops::rms_normalise;
use tra_nn::{ConfigError, DropoutPlacement, LayerPass, LayerProbe, Mismatch, WeightInit};

use super::attention::qk_norm_eps;
use super::compare::{Check, Tolerance};
use super::{NEAR, NearThreshold, Verdict, VerifyError, has_kernel, host};

pub(super) fn verify(
    file: &TensorFile,
    tolerance: Tolerance,
    device: &Device,
) -> Result<Verdict, VerifyError> {
    let recording = Recording::of(file, device)?;
    let plain = recording.compute(true, device);
    let mut tensors = recording.compare("", &plain, tolerance);
    // The kernel is compared only if no pair is near the threshold, as for TRA.
    if plain.near == 0 && recording.config.has_kernel() && has_kernel(device) {
        let kernel = recording.compute(false, device);
        tensors.extend(recording.compare("kernel.", &kernel, tolerance));
    }
    let name = recording.config.name();
    let [batch, heads, length, dim] = recording.shape;
    let by = file.metadata.get("library").map(|library| format!(", by {library}"));
    Ok(Verdict {
        path: file.path.clone(),
        contents: format!(
            "{name}: batch {batch}, heads {heads}, length {length}, head_dim {dim}{}",
            by.unwrap_or_default()
        ),
        near_threshold: NearThreshold { pairs: plain.near, followed: 0 },
        tensors,
    })
}

/// A complete recording: all tensors are present and have matching shapes.
struct Recording<'a> {
    file: &'a TensorFile,
    config: AnyAttentionConfig,
    sizes: HeadSizes,
    eps: f64,
    /// Shape of `q`.
    shape: [usize; 4],
    /// Shapes of the inputs: `q`, `k`, `v`, and `hidden` if the mechanism uses it.
    inputs: BTreeMap<&'static str, Vec<usize>>,
    /// Shapes of the mechanism's own parameters.
    parameters: BTreeMap<String, Vec<usize>>,
}

/// Results of this implementation for the inputs of a recording.
struct Computed {
    out: Vec<f32>,
    /// Gradients, by their name in the file.
    gradients: BTreeMap<String, HostTensor>,
    /// Number of near-threshold pairs, for mechanisms with a threshold.
    near: usize,
}

impl<'a> Recording<'a> {
    fn of(file: &'a TensorFile, device: &Device) -> Result<Self, VerifyError> {
        let config = config(file).map_err(|reason| VerifyError::bad_config(&file.path, reason))?;
        let shape = shape(file)?;
        let [batch, heads, length, head_dim] = shape;
        let hidden = file.tensors.get("hidden").map(|hidden| hidden.shape.as_slice());
        let width = match hidden {
            Some(&[_, _, width]) if width > 0 => width,
            _ => heads * head_dim,
        };
        let layer = match file.metadata.get("layer") {
            None => 0,
            Some(text) => text.parse().map_err(|_| VerifyError::Metadata {
                path: file.path.clone(),
                key: "layer",
                text: text.clone(),
            })?,
        };
        let sizes = HeadSizes { width, heads, head_dim, layer };
        config
            .validate(sizes)
            .map_err(|reason| VerifyError::bad_config(&file.path, reason.to_string()))?;
        let mut inputs = BTreeMap::from(["q", "k", "v"].map(|name| (name, shape.to_vec())));
        if hidden.is_some() {
            inputs.insert("hidden", vec![batch, length, width]);
        }
        let parameters = names::shapes(&config.init(sizes, &WeightInit::seeded(0, device)));
        let eps = qk_norm_eps(file)?;
        let recording = Self { file, config, sizes, eps, shape, inputs, parameters };
        recording.check()?;
        Ok(recording)
    }

    /// Returns the names and shapes of the gradients.
    fn gradients(&self) -> BTreeMap<String, Vec<usize>> {
        let of_inputs = self.inputs.iter().map(|(name, s)| (format!("grad_{name}"), s.clone()));
        let of_own = self.parameters.iter().map(|(name, s)| (format!("grad.{name}"), s.clone()));
        of_inputs.chain(of_own).collect()
    }

    fn check(&self) -> Result<(), VerifyError> {
        let file = self.file;
        let mut given = self.parameters.clone();
        given.extend(self.inputs.iter().map(|(name, s)| (name.to_string(), s.clone())));
        given.insert("grad_out".into(), self.shape.to_vec());
        let mut results = self.gradients();
        results.insert("out".into(), self.shape.to_vec());

        let mut wrong = Mismatch::default();
        for (name, needed) in &given {
            file.check(name, needed, &mut wrong);
        }
        for (name, needed) in &results {
            // A NaN in a result is reported by the comparison.
            if file.tensors.get(name).is_none_or(|t| t.not_finite() == 0 || t.shape != *needed) {
                file.check(name, needed, &mut wrong);
            }
        }
        let known = |name: &String| given.contains_key(name) || results.contains_key(name);
        wrong.unexpected = file.tensors.keys().filter(|name| !known(name)).cloned().collect();
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(VerifyError::does_not_fit(&file.path, wrong)),
        }
    }

    fn floats(&self, name: &str) -> &[f32] {
        self.file.tensors[name].as_floats().unwrap_or_default()
    }

    fn tensor<const D: usize>(&self, name: &str, device: &Device) -> Tensor<D> {
        let shape = self.file.tensors[name].shape.clone();
        Tensor::from_data(TensorData::new(self.floats(name).to_vec(), shape), device)
    }

    /// Computes the operation, either from plain operations under observation, or by the kernel if
    /// there is one.
    fn compute(&self, observed: bool, device: &Device) -> Computed {
        let [batch, _, length, _] = self.shape;
        let [q, k, v] = ["q", "k", "v"].map(|name| self.tensor::<4>(name, device).require_grad());
        let hidden = match self.inputs.contains_key("hidden") {
            true => self.tensor::<3>("hidden", device),
            false => Tensor::zeros([batch, length, self.sizes.width], device),
        };
        let hidden = hidden.require_grad();
        let mechanism = self.config.init(self.sizes, &WeightInit::seeded(0, device));
        let mechanism = names::replace(mechanism, &mut self.file.tensors.clone());

        let norm = |x: &Tensor<4>| match self.config.qk_norm() {
            true => rms_normalise(x.clone(), self.eps),
            false => x.clone(),
        };
        let heads = Heads { q: norm(&q), k: norm(&k), v: v.clone(), hidden: hidden.clone() };
        let mut probe = LayerProbe { margin: NEAR, ..LayerProbe::default() };
        let pass =
            if observed { LayerPass::eval().with_probe(&mut probe) } else { LayerPass::eval() };
        let out = mechanism.forward(heads, pass.context(0.0, DropoutPlacement::Logits));

        let backward = (out.clone() * self.tensor::<4>("grad_out", device)).sum().backward();
        let own = names::gradients(&mechanism, &backward).into_iter();
        let mut gradients: BTreeMap<String, HostTensor> =
            own.map(|(name, gradient)| (format!("grad.{name}"), gradient)).collect();
        for (name, x) in [("grad_q", &q), ("grad_k", &k), ("grad_v", &v)] {
            if let Some(gradient) = x.grad(&backward) {
                gradients.insert(name.into(), HostTensor::floats(x.dims(), host(gradient)));
            }
        }
        if let Some(gradient) = hidden.grad(&backward) {
            let gradient = HostTensor::floats(hidden.dims(), host(gradient));
            gradients.insert("grad_hidden".into(), gradient);
        }
        Computed { out: host(out), gradients, near: probe.near.len() }
    }

    fn compare(&self, prefix: &str, computed: &Computed, tolerance: Tolerance) -> Vec<Check> {
        let out = format!("{prefix}out");
        let mut tensors = vec![Check::output(&out, &computed.out, self.floats("out"), tolerance)];
        // A result that does not depend on an input has a gradient of zero.
        let zero = |shape: &[usize]| HostTensor::floats(shape, vec![0.0; shape.iter().product()]);
        let ours: BTreeMap<String, HostTensor> = self
            .gradients()
            .into_iter()
            .map(|(name, shape)| {
                let found = computed.gradients.get(&name).cloned();
                (name, found.unwrap_or_else(|| zero(&shape)))
            })
            .collect();
        let all: Vec<_> = ours
            .iter()
            .map(|(name, ours)| (format!("{prefix}{name}"), ours, &self.file.tensors[name]))
            .collect();
        tensors.extend(Check::gradients(&all, tolerance));
        tensors
    }
}

/// Returns the mechanism named in the metadata, with the settings given there or its defaults.
fn config(file: &TensorFile) -> Result<AnyAttentionConfig, String> {
    let name = file.metadata.get("attention").map_or("", String::as_str);
    let default: AnyAttentionConfig = name.parse().map_err(|e: ConfigError| e.to_string())?;
    let Some(text) = file.metadata.get("settings") else { return Ok(default) };
    let mut settings: Map<String, Value> =
        serde_json::from_str(text).map_err(|e| format!("settings: {e}"))?;
    settings.insert("name".into(), name.into());
    serde_json::from_value(Value::Object(settings)).map_err(|e| format!("settings: {e}"))
}

/// Returns the shape of `q`, in which no size may be 0.
fn shape(file: &TensorFile) -> Result<[usize; 4], VerifyError> {
    let found = &file.tensors["q"].shape;
    let mut wrong = Mismatch::default();
    match <[usize; 4]>::try_from(found.as_slice()) {
        Ok(shape) if !shape.contains(&0) => return Ok(shape),
        Ok(shape) => {
            let needed = shape.map(|size| size.max(1)).to_vec();
            wrong.misshaped.push(("q".into(), found.clone(), needed));
        }
        Err(_) => wrong.mistyped.push(("q".into(), "[batch, heads, length, head_dim]")),
    }
    Err(VerifyError::does_not_fit(&file.path, wrong))
}
