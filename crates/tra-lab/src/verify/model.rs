//! Recordings of a whole decoder.

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor};
use tra_nn::checkpoint::{HostTensor, TensorFile};
use tra_nn::{Decoder, Mismatch, Pair, Pass, Probe, TokenError};
use tra_tasks::flipflop::after_reads;

use super::compare::{Check, Tolerance};
use super::{NEAR, NearThreshold, Verdict, VerifyError, has_kernel, host};
use crate::loss::cross_entropy;

/// Selects the tokens that count in the loss.
type Scored = fn(&[u32]) -> Vec<bool>;

/// Losses that a recording may use, by their name in the metadata.
pub(super) const LOSSES: [(&str, Scored); 2] = [
    ("cross-entropy at the position after each read", after_reads),
    ("cross-entropy at every next token", |tokens| vec![true; tokens.len()]),
];

/// Number of single pairs to try for a position that disagrees. After that it counts as a real
/// difference.
const TRIES: usize = 200;

pub(super) fn verify(
    mut file: TensorFile,
    tolerance: Tolerance,
    device: &Device,
) -> Result<Verdict, VerifyError> {
    let config = file.config()?;
    let default = LOSSES[1].0;
    let loss = file.metadata.get("loss").map_or(default, String::as_str);
    let Some((_, scored)) = LOSSES.iter().find(|(name, _)| *name == loss) else {
        return Err(VerifyError::UnknownLoss { path: file.path.clone(), loss: loss.into() });
    };
    let shapes = config.init_seeded(0, device)?.parameter_shapes();
    let [batch, length] = check(&file, &shapes, config.vocab)?;
    let tokens = read_tokens(&file, length, config.vocab)?;
    let scored: Vec<Vec<bool>> = tokens.iter().map(|tokens| scored(tokens)).collect();

    let recorded = Recorded::take(&mut file);
    let path = file.path.clone();
    let decoder = Decoder::from_tensors(config.clone(), file, device)?;
    let run = Run { decoder: &decoder, tokens: &tokens, recorded: &recorded, tolerance };
    let Followed { flips, probe, logits } = run.follow_recording();

    let mut tensors = run.compare("", logits, &scored);
    let pairs = probe.layers.iter().map(|layer| layer.near.len()).sum();
    // The kernels cannot be observed or steered, so they are compared only if no pair is near the
    // threshold.
    if pairs == 0 && has_kernel(device) {
        let batch = decoder.tokens(&tokens)?;
        tensors.extend(run.compare("kernel.", decoder.forward(batch, Pass::eval()), &scored));
    }
    let name = config.attention.name();
    let tra_nn::DecoderConfig { layers, width, heads, vocab, .. } = config;
    Ok(Verdict {
        path,
        contents: format!(
            "decoder: {name}, layers {layers}, width {width}, heads {heads}, vocab {vocab}, \
             tokens {batch} x {length}"
        ),
        near_threshold: NearThreshold { pairs, followed: flips.len() },
        tensors,
    })
}

/// Checks that parameters, gradients, tokens, logits and loss are present and fit together.
fn check(
    file: &TensorFile,
    parameters: &BTreeMap<String, Vec<usize>>,
    vocab: usize,
) -> Result<[usize; 2], VerifyError> {
    let mut wrong = Mismatch::default();
    let tokens = &file.tensors["tokens"];
    let &[batch, length] = tokens.shape.as_slice() else {
        wrong.mistyped.push(("tokens".into(), "[batch, length]"));
        return Err(VerifyError::does_not_fit(&file.path, wrong));
    };
    if tokens.as_ints().is_none() {
        wrong.mistyped.push(("tokens".into(), "integers"));
    }
    for (name, needed) in parameters {
        file.check(name, needed, &mut wrong);
        let gradient = format!("grad.{name}");
        // A NaN in a result is reported by the comparison.
        if file.tensors.get(&gradient).is_none_or(|g| g.not_finite() == 0 || g.shape != *needed) {
            file.check(&gradient, needed, &mut wrong);
        }
    }
    for (name, needed) in [("logits", vec![batch, length, vocab]), ("loss", vec![1])] {
        match file.tensors.get(name) {
            Some(t) if t.not_finite() > 0 && t.shape == needed => {}
            Some(t) if name == "loss" && t.shape.is_empty() => {}
            _ => file.check(name, &needed, &mut wrong),
        }
    }
    let known = |name: &str| {
        ["tokens", "logits", "loss"].contains(&name)
            || parameters.contains_key(name.strip_prefix("grad.").unwrap_or(name))
    };
    wrong.unexpected = file.tensors.keys().filter(|name| !known(name)).cloned().collect();
    if wrong.is_empty() {
        Ok([batch, length])
    } else {
        Err(VerifyError::does_not_fit(&file.path, wrong))
    }
}

fn read_tokens(
    file: &TensorFile,
    length: usize,
    vocab: usize,
) -> Result<Vec<Vec<u32>>, TokenError> {
    let all = file.tensors["tokens"].as_ints().unwrap_or_default();
    let batch = file.tensors["tokens"].shape[0];
    (0..batch)
        .map(|sequence| {
            let row = all[sequence * length..][..length].iter().enumerate();
            row.map(|(position, token)| {
                u32::try_from(*token)
                    .ok()
                    .filter(|t| (*t as usize) < vocab)
                    .ok_or(TokenError::OutsideVocab { token: *token, sequence, position, vocab })
            })
            .collect()
        })
        .collect()
}

/// Results of the other implementation.
struct Recorded {
    logits: HostTensor,
    loss: HostTensor,
    gradients: BTreeMap<String, HostTensor>,
}

impl Recorded {
    /// Moves the results out of `file`, so that only the parameters stay.
    fn take(file: &mut TensorFile) -> Self {
        let empty = || HostTensor::floats([0], Vec::new());
        file.tensors.remove("tokens");
        let logits = file.tensors.remove("logits").unwrap_or_else(empty);
        let loss = file.tensors.remove("loss").unwrap_or_else(empty);
        let (gradients, parameters) = std::mem::take(&mut file.tensors)
            .into_iter()
            .partition(|(name, _)| name.starts_with("grad."));
        file.tensors = parameters;
        let strip = |(name, tensor): (String, HostTensor)| (name["grad.".len()..].into(), tensor);
        let gradients: BTreeMap<_, _> = gradients;
        Self { logits, loss, gradients: gradients.into_iter().map(strip).collect() }
    }
}

/// A decoder that is being compared.
struct Run<'a> {
    decoder: &'a Decoder,
    tokens: &'a [Vec<u32>],
    recorded: &'a Recorded,
    tolerance: Tolerance,
}

/// A layer and a pair in it.
type Flip = (usize, Pair);

/// A forward pass in which single pairs follow the recording.
struct Followed {
    flips: Vec<Flip>,
    probe: Probe,
    logits: Tensor<3>,
}

impl Run<'_> {
    /// Compares logits, loss and gradients with the recording.
    fn compare(&self, prefix: &str, logits: Tensor<3>, scored: &[Vec<bool>]) -> Vec<Check> {
        let Self { decoder, tokens, recorded, tolerance } = *self;
        let ours = host(logits.clone());
        let mut tensors = vec![Check::output(
            &format!("{prefix}logits"),
            &ours,
            recorded.logits.as_floats().unwrap_or_default(),
            tolerance,
        )];
        let loss = cross_entropy(logits, tokens, scored).map(|(sum, count)| sum / count as f64);
        let recorded_loss = recorded.loss.as_floats().unwrap_or_default();
        let ours = loss.as_ref().map_or(f32::NAN, |loss| loss.clone().into_scalar::<f32>());
        // A mean over no positions. PyTorch records a NaN.
        let nothing = loss.is_none() && recorded_loss.iter().all(|l| l.is_nan());
        let ours = if nothing { recorded_loss.to_vec() } else { vec![ours] };
        let mut check = Check::output(&format!("{prefix}loss"), &ours, recorded_loss, tolerance);
        if nothing {
            check = Check { absolute: Some(0.0), relative: Some(0.0), agrees: true, ..check };
        }
        tensors.push(check);

        let computed = loss.map(|loss| decoder.gradients(&loss.backward())).unwrap_or_default();
        // A parameter that does not affect the loss has a gradient of zero.
        let zero = |t: &HostTensor| {
            HostTensor::floats(t.shape.clone(), vec![0.0; t.shape.iter().product()])
        };
        let computed: Vec<HostTensor> = recorded
            .gradients
            .iter()
            .map(|(name, recorded)| computed.get(name).cloned().unwrap_or_else(|| zero(recorded)))
            .collect();
        let gradients: Vec<_> = recorded
            .gradients
            .iter()
            .zip(&computed)
            .map(|((name, recorded), ours)| (format!("{prefix}grad.{name}"), ours, recorded))
            .collect();
        tensors.extend(Check::gradients(&gradients, tolerance));
        tensors
    }

    fn forward(&self, flips: Vec<Flip>) -> Followed {
        let mut probe = Probe::new(self.decoder.layers.len(), NEAR);
        for (layer, pair) in &flips {
            probe.layers[*layer].flip.push(*pair);
        }
        let batch = self.decoder.tokens(self.tokens).expect("the tokens were checked before");
        let logits = self.decoder.forward(batch, Pass::eval().with_probe(&mut probe));
        Followed { flips, probe, logits }
    }

    /// Finds the near-threshold pairs that differ in the recording.
    ///
    /// A decoder's recording does not contain which keys were kept. But attention is causal. If a
    /// near-threshold pair causes the first disagreement in a sequence, it belongs to the query at
    /// that position or an earlier one. The pair whose reversal reduces the difference there the
    /// most is reversed. The search continues until everything agrees or no pair helps.
    fn follow_recording(&self) -> Followed {
        let mut best = self.forward(Vec::new());
        while let Some((sequence, position, difference)) = self.first_disagreement(&best.logits) {
            let mut candidates: Vec<(Flip, f32)> = Vec::new();
            for (layer, probe) in best.probe.layers.iter().enumerate() {
                let here = |pair: &Pair| pair.batch == sequence && pair.query <= position;
                let near = probe.near.iter().filter(|(pair, _)| here(pair));
                candidates.extend(near.map(|(pair, score)| ((layer, *pair), score.abs())));
            }
            candidates.retain(|(flip, _)| !best.flips.contains(flip));
            // Candidates at the position of the disagreement come first, then those with scores
            // nearest to 0.
            candidates.sort_by(|(a, x), (b, y)| b.1.query.cmp(&a.1.query).then(x.total_cmp(y)));
            let tried = candidates.into_iter().take(TRIES).map(|(flip, _)| {
                let trial = self.forward([best.flips.clone(), vec![flip]].concat());
                (self.difference(&trial.logits, sequence, position), trial)
            });
            let mended = tried
                .filter(|(left, _)| *left < difference / 2.0)
                .min_by(|(a, _), (b, _)| a.total_cmp(b));
            match mended {
                Some((_, trial)) => best = trial,
                None => break,
            }
        }
        best
    }

    /// Returns the first sequence and position whose logits disagree, and the difference.
    fn first_disagreement(&self, logits: &Tensor<3>) -> Option<(usize, usize, f64)> {
        let [batch, length, _] = logits.dims();
        let recorded = self.recorded.logits.as_floats().unwrap_or_default();
        let scale = recorded.iter().fold(1.0f32, |most, x| most.max(x.abs()));
        let allowed = self.tolerance.atol * f64::from(scale);
        let all = host(logits.clone());
        let places = (0..batch).flat_map(|s| (0..length).map(move |p| (s, p)));
        places
            .map(|(s, p)| (s, p, self.difference_at(&all, length, s, p)))
            .find(|(_, _, difference)| *difference > allowed)
    }

    fn difference(&self, logits: &Tensor<3>, sequence: usize, position: usize) -> f64 {
        self.difference_at(&host(logits.clone()), logits.dims()[1], sequence, position)
    }

    fn difference_at(&self, all: &[f32], length: usize, sequence: usize, position: usize) -> f64 {
        let vocab = self.decoder.config().vocab;
        let at = (sequence * length + position) * vocab;
        let recorded = self.recorded.logits.as_floats().unwrap_or_default();
        let both = all[at..at + vocab].iter().zip(&recorded[at..at + vocab]);
        both.map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max)
    }
}
