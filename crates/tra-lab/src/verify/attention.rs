//! Recordings of one attention operation.

use burn::tensor::{Device, Tensor, TensorData};
use tra_nn::attention::threshold_relative_attention;
use tra_nn::checkpoint::{HostTensor, TensorFile};
use tra_nn::ops::rms_normalise;
use tra_nn::{DropoutPlacement, LayerPass, LayerProbe, Mismatch, Pair};

use super::compare::{Check, Tolerance};
use super::{NEAR, NearThreshold, Verdict, VerifyError, has_kernel, host};

pub(super) fn verify(
    file: &TensorFile,
    tolerance: Tolerance,
    device: &Device,
) -> Result<Verdict, VerifyError> {
    let shape = check(file)?;
    let [batch, heads, length, dim] = shape;
    let eps = qk_norm_eps(file)?;
    let recorded = |name: &str| file.tensors[name].as_floats().unwrap_or_default();
    let recorded_keep: Vec<bool> =
        file.tensors["keep"].as_ints().unwrap_or_default().iter().map(|k| *k != 0).collect();

    let mut computed = compute(file, shape, eps, Some(Vec::new()), device);
    let near = computed.near.clone();
    let fell_apart: Vec<Pair> = near
        .iter()
        .map(|(pair, _)| *pair)
        .filter(|pair| {
            let at = ((pair.batch * heads + pair.head) * length + pair.query) * length + pair.key;
            computed.keep[at] != recorded_keep[at]
        })
        .collect();
    let followed = fell_apart.len();
    if followed > 0 {
        computed = compute(file, shape, eps, Some(fell_apart), device);
    }

    let as_floats =
        |keep: &[bool]| keep.iter().map(|k| f32::from(u8::from(*k))).collect::<Vec<_>>();
    let mut tensors = vec![
        Check::exact("keep", &as_floats(&computed.keep), &as_floats(&recorded_keep)),
        Check::exact("count", &computed.count, recorded("count")),
        Check::output("weights", &computed.weights, recorded("weights"), tolerance),
        Check::output("out", &computed.out, recorded("out"), tolerance),
    ];
    let mut gradients = |prefix: &str, computed: &Computed| {
        let all: Vec<_> = GRADIENTS
            .iter()
            .zip(&computed.gradients)
            .map(|(name, ours)| (format!("{prefix}{name}"), ours, &file.tensors[*name]))
            .collect();
        tensors.extend(Check::gradients(&all, tolerance));
    };
    gradients("", &computed);
    // The kernel cannot be observed or steered, so it is compared only if no pair is near the
    // threshold.
    if near.is_empty() && has_kernel(device) {
        let computed = compute(file, shape, eps, None, device);
        gradients("kernel.", &computed);
        tensors.push(Check::output("kernel.out", &computed.out, recorded("out"), tolerance));
    }
    Ok(Verdict {
        path: file.path.clone(),
        contents: format!(
            "attention: batch {batch}, heads {heads}, length {length}, head_dim {dim}"
        ),
        near_threshold: NearThreshold { pairs: near.len(), followed },
        tensors,
    })
}

/// Returns the epsilon inside the root of the norm of queries and keys.
pub(super) fn qk_norm_eps(file: &TensorFile) -> Result<f64, VerifyError> {
    let Some(text) = file.metadata.get("qk_norm_eps") else { return Ok(1e-6) };
    text.parse().map_err(|_| VerifyError::Metadata {
        path: file.path.clone(),
        key: "qk_norm_eps",
        text: text.clone(),
    })
}

const GRADIENTS: [&str; 4] = ["grad_q", "grad_k", "grad_v", "grad_gate"];

/// Checks that all tensors are present and have matching shapes. Returns the shape of `q`.
fn check(file: &TensorFile) -> Result<[usize; 4], VerifyError> {
    let mut wrong = Mismatch::default();
    let found = &file.tensors["q"].shape;
    let Ok([batch, heads, length, dim]) = <[usize; 4]>::try_from(found.as_slice()) else {
        let mut message = Mismatch::default();
        // The sizes are unknown, but there should be four of them.
        message.mistyped.push(("q".into(), "[batch, heads, length, head_dim]"));
        return Err(VerifyError::does_not_fit(&file.path, message));
    };
    if dim == 0 && length > 0 {
        wrong.misshaped.push(("q".into(), found.clone(), vec![batch, heads, length, 1]));
    }
    let rows = vec![batch, heads, length];
    let vectors = vec![batch, heads, length, dim];
    let pairs = vec![batch, heads, length, length];
    let expected = [
        ("q", &vectors),
        ("k", &vectors),
        ("v", &vectors),
        ("gate", &rows),
        ("grad_out", &vectors),
        ("count", &pairs),
        ("weights", &pairs),
        ("out", &vectors),
        ("grad_q", &vectors),
        ("grad_k", &vectors),
        ("grad_v", &vectors),
        ("grad_gate", &rows),
    ];
    for (name, needed) in expected {
        file.check(name, needed, &mut wrong);
    }
    match file.tensors.get("keep") {
        None => wrong.missing.push("keep".into()),
        Some(keep) if keep.shape != pairs => {
            wrong.misshaped.push(("keep".into(), keep.shape.clone(), pairs.clone()));
        }
        Some(keep) if keep.as_ints().is_none() => wrong.mistyped.push(("keep".into(), "0 and 1")),
        Some(_) => {}
    }
    let known = |name: &String| name == "keep" || expected.iter().any(|(known, _)| known == name);
    wrong.unexpected = file.tensors.keys().filter(|name| !known(name)).cloned().collect();
    if wrong.is_empty() {
        Ok([batch, heads, length, dim])
    } else {
        Err(VerifyError::does_not_fit(&file.path, wrong))
    }
}

/// Results of this implementation for the inputs of a recording.
struct Computed {
    keep: Vec<bool>,
    count: Vec<f32>,
    weights: Vec<f32>,
    out: Vec<f32>,
    gradients: [HostTensor; 4],
    near: Vec<(Pair, f32)>,
}

/// Computes the operation, either from plain operations under observation with some pairs reversed,
/// or by the kernel.
fn compute(
    file: &TensorFile,
    shape: [usize; 4],
    eps: f64,
    flip: Option<Vec<Pair>>,
    device: &Device,
) -> Computed {
    let [batch, heads, length, dim] = shape;
    let values = |name: &str| file.tensors[name].as_floats().unwrap_or_default().to_vec();
    if shape.contains(&0) {
        let empty = || HostTensor::floats([0], Vec::new());
        return Computed {
            keep: Vec::new(),
            count: Vec::new(),
            weights: Vec::new(),
            out: Vec::new(),
            gradients: [empty(), empty(), empty(), empty()],
            near: Vec::new(),
        };
    }
    let vectors = |name: &str| Tensor::<4>::from_data(TensorData::new(values(name), shape), device);
    let [q, k, v] = ["q", "k", "v"].map(|name| vectors(name).require_grad());
    let gate = TensorData::new(values("gate"), [batch, heads, length]);
    let gate = Tensor::<3>::from_data(gate, device).require_grad();

    let observed = flip.is_some();
    let flip = flip.unwrap_or_default();
    let mut probe = LayerProbe { margin: NEAR, flip, ..LayerProbe::default() };
    let pass = if observed { LayerPass::eval().with_probe(&mut probe) } else { LayerPass::eval() };
    let out = threshold_relative_attention(
        rms_normalise(q.clone(), eps),
        rms_normalise(k.clone(), eps),
        v.clone(),
        gate.clone(),
        pass.context(0.0, DropoutPlacement::Logits),
    );
    let Ok(out) = out else { unreachable!("all inputs have the same shape") };
    let gradients = (out.clone() * vectors("grad_out")).sum().backward();
    let gradient_of = |x: &Tensor<4>| {
        let values =
            x.grad(&gradients).map_or_else(|| vec![0.0; batch * heads * length * dim], host);
        HostTensor::floats(shape, values)
    };
    let of_gate = gate.grad(&gradients).map_or_else(|| vec![0.0; batch * heads * length], host);
    Computed {
        keep: probe
            .keep
            .map(|k| host(k.float()).iter().map(|k| *k != 0.0).collect())
            .unwrap_or_default(),
        count: probe.count.map(host).unwrap_or_default(),
        weights: probe.weights.map(host).unwrap_or_default(),
        out: host(out),
        gradients: [
            gradient_of(&q),
            gradient_of(&k),
            gradient_of(&v),
            HostTensor::floats([batch, heads, length], of_gate),
        ],
        near: probe.near,
    }
}
