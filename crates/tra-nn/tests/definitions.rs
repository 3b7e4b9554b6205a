//! Every mechanism against its definition in plain f64 loops.

mod common;

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::Linear;
use burn::tensor::{DType, Device, Tensor};
use common::{floats, normals};
use tra_kernels::random::Stream;
use tra_nn::attention::{
    AnyAttention, AnyAttentionConfig, Attention, AttentionConfig, HeadSizes, Heads, NAMES,
};
use tra_nn::{DropoutPlacement, LayerPass, WeightInit};

const BATCH: usize = 2;
const HEADS: usize = 3;
const LENGTH: usize = 19;
const DIM: usize = 5;
const WIDTH: usize = HEADS * DIM;

/// One head of the inputs and what the formulas need of it.
struct Head {
    q: Vec<Vec<f64>>,
    k: Vec<Vec<f64>>,
    v: Vec<Vec<f64>>,
    hidden: Vec<Vec<f64>>,
    number: usize,
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
        let g: f64 = (0..WIDTH).map(|t| x[t] * weight[t * HEADS + self.number]).sum::<f64>() + bias;
        -(1.0 + (-g).exp()).ln()
    }

    /// The weights of the keys up to `i`, for mechanisms whose weights are no softmax of logits.
    fn weights(&self, mechanism: &AnyAttention, i: usize) -> Option<Vec<f64>> {
        let AnyAttention::StickBreaking(_) = mechanism else { return None };
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
            AnyAttention::Nope(_) => Some(z),
            AnyAttention::Rope(_) => {
                Some(dot(&rotated(&self.q[i], i), &rotated(&self.k[j], j)) / (DIM as f64).sqrt())
            }
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
                let z = dot(&rotated(&self.q[i], i), &rotated(&self.k[j], j)) / (DIM as f64).sqrt();
                Some(z * floats(m.scale.val())[self.number] * ((i + 1) as f64).ln())
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
                Some(z + floats(m.relative_bias.val())[bucket * HEADS + self.number])
            }
            AnyAttention::StickBreaking(_) => unreachable!("it has weights"),
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
    let sizes = HeadSizes { width: WIDTH, heads: HEADS, head_dim: DIM };
    for (name, _) in NAMES {
        let mut config = AnyAttentionConfig::by_name(name).unwrap();
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
        let shape = [BATCH, HEADS, LENGTH, DIM];
        // Zero vectors: their scores are exactly 0, which is not positive.
        let zero_at = |t: Tensor<4>, at: usize| t.slice_fill([0..BATCH, 0..HEADS, at..at + 1], 0.0);
        let (q, k) = (zero_at(tensor(0, shape), 7), zero_at(tensor(1, shape), 3));
        let v = tensor(2, shape);
        let hidden = tensor(3, [1, BATCH, LENGTH, WIDTH]).squeeze_dim::<3>(0);
        let heads = Heads { q: q.clone(), k: k.clone(), v: v.clone(), hidden: hidden.clone() };
        let context = LayerPass::eval().context(0.0, DropoutPlacement::Logits);
        let out = mechanism.forward(heads, context);

        let mut empty_rows = 0;
        for batch in 0..BATCH {
            for number in 0..HEADS {
                let of = |t: &Tensor<4>| {
                    let t = t.clone().slice([batch..batch + 1, number..number + 1]);
                    rows(t.reshape([LENGTH, DIM]))
                };
                let hidden = rows(hidden.clone().narrow(0, batch, 1).reshape([LENGTH, WIDTH]));
                let of_zero = |t: &Tensor<4>| {
                    let t = t.clone().slice([batch..batch + 1, 0..1]);
                    rows(t.reshape([LENGTH, DIM]))
                };
                let zero = [of_zero(&q), of_zero(&k)];
                let head = Head { q: of(&q), k: of(&k), v: of(&v), hidden, number, zero };
                let ours = of(&out);
                for (i, ours) in ours.iter().enumerate() {
                    let weights = head.weights(&mechanism, i).unwrap_or_else(|| {
                        let logits = (0..=i).map(|j| head.logit(&mechanism, i, j));
                        logits.map(|a| a.map_or(0.0, f64::exp)).collect()
                    });
                    let sum: f64 = weights.iter().sum();
                    empty_rows += usize::from(sum == 0.0);
                    for t in 0..DIM {
                        let terms = weights.iter().zip(&head.v);
                        let weighted: f64 = terms.map(|(weight, v)| weight * v[t]).sum();
                        let expected = if sum == 0.0 { 0.0 } else { weighted / sum };
                        let difference = (ours[t] - expected).abs();
                        assert!(
                            difference < 1e-12,
                            "{name} {batch} {number} {i} {t}: {difference}"
                        );
                    }
                }
            }
        }
        let thresholded = ["tra", "tra-threshold", "tra-absolute"].contains(name);
        assert_eq!(empty_rows > 0, thresholded, "{name}: {empty_rows} empty rows");
    }
}
