//! The attention operation and a matrix product, each measured on its own.

use std::hint::black_box;

use tra_kernels::attention::{Horizon, Inputs, Rows, Rule, Saved, Shape, backward, forward};
use tra_kernels::linear;
use tra_kernels::simd::Isa;
use tra_random::Stream;

use super::{Case, Gate, Workload};
use crate::error::LabError;

/// The attention operation alone. Its inputs are random normal numbers in the model's memory
/// layout, token by token. Queries and keys are normalised.
pub(super) struct Op {
    pub(super) rule: Rule<Vec<f32>>,
    shape: Shape,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    grad: Vec<f32>,
    out: Vec<f32>,
    with_backward: bool,
}

impl Op {
    pub(super) fn new(case: &Case) -> Result<Self, LabError> {
        let Case { batch, heads, width, length, .. } = *case;
        let dim = width / heads;
        let shape = Shape { batch, heads, queries: length, keys: length, dim };
        let count = batch * length * width;
        let draw = |tag: u64| -> Vec<f32> {
            (0..count as u64).map(|i| Stream::new(tag).normal(i) as f32).collect()
        };
        let normalised = |mut x: Vec<f32>| {
            for row in x.chunks_mut(dim) {
                let square = row.iter().map(|x| x * x).sum::<f32>() / dim as f32;
                row.iter_mut().for_each(|x| *x /= (square + 1e-6).sqrt());
            }
            x
        };
        let open = case.gate == Gate::Open;
        let each = |value: f32| vec![value; batch * heads * length];
        let rule = match case.attention.as_str() {
            "tra" => Rule::Tra { gate: each(if open { 30.0 } else { 0.0 }), leak: 0.0 },
            // The caller has already rotated RoPE's queries and keys.
            "nope" | "rope" => Rule::Dense,
            "alibi" => {
                let slope = |head: usize| 2f32.powf(-8.0 * head as f32 / heads as f32);
                Rule::Slope((1..=heads).map(slope).collect())
            }
            // With gates at their initial value, FoX forgets half at every position.
            "fox" => Rule::Steps(each(if open { 0.0 } else { -std::f32::consts::LN_2 })),
            other => return Err(LabError::NoKernel(other.into())),
        };
        Ok(Self {
            rule,
            shape,
            q: normalised(draw(1)),
            k: normalised(draw(2)),
            v: draw(3),
            grad: draw(4),
            out: vec![0.0; count],
            with_backward: case.name == Workload::Op,
        })
    }

    fn inputs(&self) -> Inputs<'_> {
        let Shape { batch, heads, keys, dim, .. } = self.shape;
        let rows = [batch, heads, keys];
        Inputs {
            shape: self.shape,
            q: Rows::by_token(&self.q, rows, dim),
            k: Rows::by_token(&self.k, rows, dim),
            v: Rows::by_token(&self.v, rows, dim),
            rule: self.rule.as_ref().map(|x| match self.rule {
                Rule::Steps(_) => Rows::contiguous(x, [batch, heads, 1], keys),
                Rule::Slope(_) => Rows::contiguous(x, [1, heads, 1], 1),
                _ => Rows::by_token(x, rows, 1),
            }),
            dropout: None,
            // As in the layer: a pass without gradients may stop earlier.
            horizon: if self.with_backward { Horizon::Rounding } else { Horizon::Output },
            bounds: None,
            isa: Isa::best(),
        }
    }

    fn forward(&mut self) -> Saved {
        let mut out = std::mem::take(&mut self.out);
        let saved = forward(&self.inputs(), &mut out);
        self.out = out;
        saved
    }

    pub(super) fn run(&mut self) {
        let saved = self.forward();
        if self.with_backward {
            let Shape { batch, heads, queries, dim, .. } = self.shape;
            let grad = Rows::by_token(&self.grad, [batch, heads, queries], dim);
            black_box(backward(&self.inputs(), &saved, &self.out, grad));
        }
        black_box(&self.out);
    }

    pub(super) fn share_read(&self) -> f64 {
        let mut out = vec![0.0; self.out.len()];
        forward(&self.inputs(), &mut out).share_read(self.shape)
    }
}

/// A large f32 matrix product that measures the peak speed of this machine.
pub struct Peak {
    a: Vec<f32>,
    b: Vec<f32>,
}

impl Peak {
    const SIZE: usize = 1536;

    /// Creates two square matrices.
    pub fn new() -> Self {
        let draw = |tag: u64| -> Vec<f32> {
            (0..(Self::SIZE * Self::SIZE) as u64)
                .map(|i| Stream::new(tag).uniform(i) as f32)
                .collect()
        };
        Self { a: draw(1), b: draw(2) }
    }

    /// Multiplies them. Returns the number of operations.
    pub fn run(&self) -> f64 {
        let n = Self::SIZE;
        let sizes = linear::Sizes { rows: n, input: n, output: n };
        black_box(linear::forward(sizes, &self.a, &self.b, None));
        2.0 * (n as f64).powi(3)
    }
}

impl Default for Peak {
    fn default() -> Self {
        Self::new()
    }
}
