//! Every mechanism against its definition in plain f64 loops.

mod common;

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::Linear;
use burn::tensor::{DType, Device, Tensor};
use common::{floats, normals};
use tra_nn::attention::{
    AnyAttention, AnyAttentionConfig, Asentmax, Attention, AttentionConfig, Differential,
    HeadSizes, Heads, NopeConfig, mechanisms,
};
use tra_nn::{DecoderConfig, DropoutPlacement, LayerPass, Pass, WeightInit};
use tra_random::Stream;

const BATCH: usize = 2;
const LENGTH: usize = 19;
const DIM: usize = 5;

/// One head of the inputs and what the formulas need of it.
struct Head {
    q: Vec<Vec<f64>>,
    k: Vec<Vec<f64>>,
    v: Vec<Vec<f64>>,
    hidden: Vec<Vec<f64>>,
    number: usize,
    heads: usize,
    /// Queries and keys of head 0.
    zero: [Vec<Vec<f64>>; 2],
}

impl Head {
    fn z(&self, i: usize, j: usize) -> f64 {
        dot(&self.q[i], &self.k[j]) / (DIM as f64).sqrt()
    }

    fn positive(&self, i: usize, from: usize) -> f64 {
        (from..=i).filter(|t| self.z(i, *t) > 0.0).count() as f64
    }

    /// `log sigmoid(w . x + b)` of this head at a position.
    fn log_gate(&self, projection: &Linear, at: usize) -> f64 {
        let weight = floats(projection.weight.val());
        let bias = floats(projection.bias.clone().unwrap().val())[self.number];
        let x = &self.hidden[at];
        -(1.0 + (-dot_column(x, &weight, self.number) - bias).exp()).ln()
    }

    /// `z` of rotated queries and keys.
    fn turned(&self, i: usize, j: usize) -> f64 {
        dot(&rotated(&self.q[i], i), &rotated(&self.k[j], j)) / (DIM as f64).sqrt()
    }

    /// The weights of the keys up to `i`, which sum to 1, or to 0 where no key takes part.
    fn shares(&self, mechanism: &AnyAttention, i: usize) -> Vec<f64> {
        let weights = self.weights(mechanism, i).unwrap_or_else(|| {
            let logits = (0..=i).map(|j| self.logit(mechanism, i, j));
            logits.map(|a| a.map_or(0.0, f64::exp)).collect()
        });
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| if sum == 0.0 { 0.0 } else { weight / sum }).collect()
    }

    /// The weights of the keys up to `i`, for mechanisms whose weights are no softmax of logits.
    fn weights(&self, mechanism: &AnyAttention, i: usize) -> Option<Vec<f64>> {
        match mechanism {
            AnyAttention::StickBreaking(_) => {}
            AnyAttention::Asentmax(m) => return Some(self.sparse(m, i)),
            _ => return None,
        }
        let mut weights = vec![0.0; i + 1];
        let mut stick = 1.0;
        for j in (0..i).rev() {
            let share = 1.0 / (1.0 + (-self.z(i, j)).exp());
            weights[j] = stick * share;
            stick -= weights[j];
        }
        weights[i] = stick;
        Some(weights)
    }

    /// Entmax with its threshold found by bisection.
    fn sparse(&self, m: &Asentmax, i: usize) -> Vec<f64> {
        let biased = self.heads / 2;
        let logits: Vec<f64> = (0..=i)
            .map(|j| {
                if self.number < biased {
                    return self.z(i, j) - (i - j) as f64 / (self.number + 1) as f64;
                }
                let of = |projection: &Linear| {
                    let weight = floats(projection.weight.val());
                    dot_column(&self.hidden[i], &weight, self.number - biased)
                };
                let beta = (1.0 + of(&m.beta_proj).exp()).ln();
                let gamma = 2.0 * of(&m.gamma_proj).tanh();
                // With one key any scale will do.
                let n = (i + 1).max(2) as f64;
                self.z(i, j) * (1.0 + beta * n.ln().powf(gamma))
            })
            .collect();
        let weights = |tau: f64| logits.iter().map(move |z| (z / 2.0 - tau).max(0.0).powi(2));
        let largest = logits.iter().copied().fold(f64::MIN, f64::max) / 2.0;
        let (mut low, mut high) = (largest - 1.0, largest);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if weights(middle).sum::<f64>() > 1.0 { low = middle } else { high = middle }
        }
        weights(low).collect()
    }

    /// The logit of key `j` for query `i`, or nothing if it takes no part.
    fn logit(&self, mechanism: &AnyAttention, i: usize, j: usize) -> Option<f64> {
        let z = self.z(i, j);
        match mechanism {
            AnyAttention::Tra(m) => {
                (z > 0.0).then(|| z + self.log_gate(&m.delta_proj, i) * self.positive(i, j))
            }
            AnyAttention::TraThreshold(_) => (z > 0.0).then_some(z),
            AnyAttention::TraDistance(m) => {
                Some(z + self.log_gate(&m.delta_proj, i) * self.positive(i, j))
            }
            AnyAttention::TraAbsolute(m) => {
                (z > 0.0).then(|| z + self.log_gate(&m.delta_proj, i) * (i - j + 1) as f64)
            }
            // Some know position from the embedding: see the last test.
            AnyAttention::Nope(_) | AnyAttention::Sinusoidal(_) | AnyAttention::Learned(_) => {
                Some(z)
            }
            // Differential attention is the difference of two of these.
            AnyAttention::Rope(_) | AnyAttention::Differential(_) => Some(self.turned(i, j)),
            AnyAttention::Alibi(_) => {
                let slope = [2f64.powi(-4), 2f64.powi(-8), 2f64.powi(-2)][self.number];
                Some(z - slope * (i - j) as f64)
            }
            AnyAttention::Cope(m) => {
                let [npos, _] = m.pos_emb.dims();
                let table = floats(m.pos_emb.val());
                let gates = (j..=i).map(|t| 1.0 / (1.0 + (-self.z(i, t)).exp()));
                let p = gates.sum::<f64>().min((npos - 1) as f64);
                let bias = |at: f64| dot(&self.q[i], &table[at as usize * DIM..][..DIM]);
                let part = p - p.floor();
                Some(z + bias(p.floor()) * (1.0 - part) + bias(p.ceil()) * part)
            }
            AnyAttention::Ssmax(m) => {
                Some(self.turned(i, j) * floats(m.scale.val())[self.number] * ((i + 1) as f64).ln())
            }
            AnyAttention::T5(m) => {
                // 6 buckets up to 9: distances 0, 1 and 2 alone, then 3, 4-6 (3 * 3^(1/3) = 4.3,
                // 3 * 3^(2/3) = 6.2) and so on.
                let bucket = match i - j {
                    near @ 0..3 => near,
                    3..=4 => 3,
                    5..=6 => 4,
                    _ => 5,
                };
                Some(z + floats(m.relative_bias.val())[bucket * self.heads + self.number])
            }
            AnyAttention::StickBreaking(_) | AnyAttention::Asentmax(_) => {
                unreachable!("they have weights")
            }
            AnyAttention::Selective(_) => {
                let [q, k] = &self.zero;
                let said = (j + 1..i).map(|t| dot(&q[t], &k[j]) / (DIM as f64).sqrt());
                let said: f64 = said.map(|z| z.max(0.0)).sum();
                Some(z - if j == 0 { 0.0 } else { said })
            }
            AnyAttention::Fox(m) => {
                Some(z + (j + 1..=i).map(|t| self.log_gate(&m.fgate_proj, t)).sum::<f64>())
            }
        }
    }
}

fn rotated(x: &[f64], position: usize) -> Vec<f64> {
    let half = DIM / 2;
    let mut y = x.to_vec();
    for t in 0..half {
        let angle = position as f64 * 500_000f64.powf(-2.0 * t as f64 / DIM as f64);
        y[t] = x[t] * angle.cos() - x[t + half] * angle.sin();
        y[t + half] = x[t] * angle.sin() + x[t + half] * angle.cos();
    }
    y
}

fn weighted(weights: &[f64], v: &[Vec<f64>]) -> Vec<f64> {
    (0..DIM).map(|t| weights.iter().zip(v).map(|(weight, v)| weight * v[t]).sum()).collect()
}

/// Differential attention of a pair of heads in layer 2, over the values of both.
fn difference(m: &Differential, of: &AnyAttention, pair: [&Head; 2], i: usize) -> Vec<f64> {
    let along =
        |q: &Param<Tensor<1>>, k: &Param<Tensor<1>>| dot(&floats(q.val()), &floats(k.val())).exp();
    let start = 0.8 - 0.6 * (-0.6f64).exp();
    let lambda = along(&m.lambda_q1, &m.lambda_k1) - along(&m.lambda_q2, &m.lambda_k2) + start;
    let [first, second] = pair.map(|head| head.shares(of, i));
    let weights: Vec<f64> = first.iter().zip(&second).map(|(a, b)| a - lambda * b).collect();
    let wide: Vec<f64> = pair.iter().flat_map(|head| weighted(&weights, &head.v)).collect();
    let rms = (dot(&wide, &wide) / wide.len() as f64 + 1e-5).sqrt();
    let scale = floats(m.subln.weight.val());
    wide.iter().zip(scale).map(|(x, scale)| x / rms * scale * (1.0 - start)).collect()
}

/// Column `at` of `weight`, which has a row for every element of `x`, times `x`.
fn dot_column(x: &[f64], weight: &[f64], at: usize) -> f64 {
    let columns = weight.len() / x.len();
    x.iter().zip(weight[at..].iter().step_by(columns)).map(|(x, w)| x * w).sum()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Random parameters in f64 in place of the published start (CoPE's table begins at zero).
struct Random(Stream, u64);

impl ModuleMapper for Random {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.1 += 1;
        let values = normals(self.0, self.1, param.dims());
        param.map(|t| Tensor::from_data(values, (&t.device(), DType::F64)))
    }
}

fn rows(tensor: Tensor<2>) -> Vec<Vec<f64>> {
    let [_, columns] = tensor.dims();
    floats(tensor).chunks(columns).map(<[f64]>::to_vec).collect()
}

#[test]
fn every_mechanism_computes_its_formula() {
    let device = Device::flex();
    for mechanism in mechanisms() {
        let (name, mut config) = (mechanism.name, mechanism.config());
        let heads_count = if name == "differential" { 4 } else { 3 };
        let width = heads_count * DIM;
        let sizes = HeadSizes { width, heads: heads_count, head_dim: DIM, layer: 2 };
        // Short, so that far keys meet the end of the table.
        match &mut config {
            AnyAttentionConfig::Cope(cope) => cope.npos = 6,
            AnyAttentionConfig::T5(t5) => (t5.buckets, t5.max_distance) = (6, 9),
            _ => {}
        }
        let mechanism = config.init(sizes, &WeightInit::seeded(0, &device));
        let mechanism = mechanism.map(&mut Random(Stream::new(4).fork_name(name), 0));
        let tensor = |tag, shape| {
            Tensor::<4>::from_data(normals(Stream::new(5), tag, shape), (&device, DType::F64))
        };
        let shape = [BATCH, heads_count, LENGTH, DIM];
        // Zero vectors: their scores are exactly 0, which is not positive.
        let zero_at =
            |t: Tensor<4>, at: usize| t.slice_fill([0..BATCH, 0..heads_count, at..at + 1], 0.0);
        let (q, k) = (zero_at(tensor(0, shape), 7), zero_at(tensor(1, shape), 3));
        let v = tensor(2, shape);
        let hidden = tensor(3, [1, BATCH, LENGTH, width]).squeeze_dim::<3>(0);
        let heads = Heads { q: q.clone(), k: k.clone(), v: v.clone(), hidden: hidden.clone() };
        let context = LayerPass::eval().context(0.0, DropoutPlacement::Logits);
        let out = mechanism.forward(heads, context);

        let mut empty_rows = 0;
        for batch in 0..BATCH {
            let of = |t: &Tensor<4>, number: usize| {
                let t = t.clone().slice([batch..batch + 1, number..number + 1]);
                rows(t.reshape([LENGTH, DIM]))
            };
            let head = |number: usize| Head {
                q: of(&q, number),
                k: of(&k, number),
                v: of(&v, number),
                hidden: rows(hidden.clone().narrow(0, batch, 1).reshape([LENGTH, width])),
                number,
                heads: heads_count,
                zero: [of(&q, 0), of(&k, 0)],
            };
            let heads: Vec<Head> = (0..heads_count).map(head).collect();
            for (number, head) in heads.iter().enumerate() {
                for (i, ours) in of(&out, number).iter().enumerate() {
                    let expected = match &mechanism {
                        AnyAttention::Differential(m) => {
                            let pair = [&heads[number / 2 * 2], &heads[number / 2 * 2 + 1]];
                            difference(m, &mechanism, pair, i)[number % 2 * DIM..][..DIM].to_vec()
                        }
                        _ => {
                            let weights = head.shares(&mechanism, i);
                            empty_rows += usize::from(weights.iter().all(|w| *w == 0.0));
                            weighted(&weights, &head.v)
                        }
                    };
                    for (t, (ours, expected)) in ours.iter().zip(expected).enumerate() {
                        let difference = (ours - expected).abs();
                        assert!(
                            difference < 1e-12,
                            "{name} {batch} {number} {i} {t}: {difference}"
                        );
                    }
                }
            }
        }
        let thresholded = ["tra", "tra-threshold", "tra-absolute"].contains(&name);
        assert_eq!(empty_rows > 0, thresholded, "{name}: {empty_rows} empty rows");
    }
}

/// A decoder whose attention is blind to order gives, with positions added to the embedding, what it gives
/// without any for an embedding that holds them.
#[test]
fn absolute_positions_are_added_to_the_embedding() {
    let device = Device::flex();
    let (width, length) = (10, 9);
    for name in ["sinusoidal", "learned"] {
        let attention: AnyAttentionConfig = name.parse().unwrap();
        let config = DecoderConfig::new(length, 1, width, 2).without_padding();
        let with = common::lively(config.clone().with_attention(attention), 3, &device);
        let position = floats(with.position.as_ref().unwrap().weight.val());
        let vector = |i: usize, d: usize| match name {
            "learned" => position[i * width + d],
            _ => {
                let angle = i as f64 * 10_000f64.powf(-((d / 2 * 2) as f64) / width as f64);
                position[0] * if d.is_multiple_of(2) { angle.sin() } else { angle.cos() }
            }
        };
        // Token i stands at position i alone, so its embedding can hold the position.
        let nope = NopeConfig::default();
        let mut without = config.with_attention(nope).init_seeded(3, &device).unwrap();
        let mut table = floats(with.embedding.weight.val());
        for (at, x) in table.iter_mut().enumerate() {
            *x += vector(at / width, at % width);
        }
        let table = burn::tensor::TensorData::new(table, [length, width]);
        let table = Tensor::from_data(table, &device);
        without.embedding.weight = Param::from_tensor(table);
        without.outln = with.outln.clone();
        without.out = with.out.clone();
        let (from, to) = (&with.layers[0], &mut without.layers[0]);
        (to.ln1, to.ln2, to.mlp) = (from.ln1.clone(), from.ln2.clone(), from.mlp.clone());
        to.attn.tokeys = from.attn.tokeys.clone();
        to.attn.toqueries = from.attn.toqueries.clone();
        to.attn.tovalues = from.attn.tovalues.clone();
        to.attn.c_out = from.attn.c_out.clone();
        let tokens: Vec<u32> = (0..length as u32).collect();
        let logits = |decoder: &tra_nn::Decoder| {
            floats(decoder.forward(decoder.tokens(&[&tokens]).unwrap(), Pass::eval()))
        };
        for (a, b) in logits(&with).into_iter().zip(logits(&without)) {
            assert!((a - b).abs() < 1e-4, "{name}: {a} and {b}");
        }
    }
}
