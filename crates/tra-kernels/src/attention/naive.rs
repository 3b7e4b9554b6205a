//! The definition of dense attention: one head in plain f64 loops, the reference for the kernel.

/// One head: `softmax(q . k / sqrt(dim) + bias) v` over the keys up to each query.
#[derive(Clone, Copy, Debug)]
pub struct Dense<'a> {
    /// Number of queries, keys, and the width of the head.
    pub sizes: [usize; 3],
    /// Queries x dim.
    pub q: &'a [f64],
    /// Keys x dim.
    pub k: &'a [f64],
    /// Keys x dim.
    pub v: &'a [f64],
    /// Queries x keys, added to the scores.
    pub bias: &'a [f64],
    /// Queries x keys, multiplied with the logits: the factors of dropout.
    pub factor: &'a [f64],
}

impl Dense<'_> {
    /// Returns the weights, queries x keys, and the output, queries x dim.
    pub fn forward(&self) -> (Vec<f64>, Vec<f64>) {
        let [queries, keys, dim] = self.sizes;
        let (mut weights, mut out) = (vec![0.0; queries * keys], vec![0.0; queries * dim]);
        for i in 0..queries {
            let visible = keys - queries + i + 1;
            let logits: Vec<f64> = (0..visible)
                .map(|j| {
                    let score: f64 =
                        (0..dim).map(|t| self.q[i * dim + t] * self.k[j * dim + t]).sum();
                    let at = i * keys + j;
                    (score / (dim as f64).sqrt() + self.bias[at]) * self.factor[at]
                })
                .collect();
            let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|a| (a - max).exp()).sum();
            for j in 0..visible {
                weights[i * keys + j] = (logits[j] - max).exp() / sum;
                for t in 0..dim {
                    out[i * dim + t] += weights[i * keys + j] * self.v[j * dim + t];
                }
            }
        }
        (weights, out)
    }

    /// Returns the gradients of `sum(grad * out)` with respect to queries, keys, values and biases.
    pub fn backward(&self, grad: &[f64]) -> [Vec<f64>; 4] {
        let [queries, keys, dim] = self.sizes;
        let (weights, out) = self.forward();
        let mut dq = vec![0.0; queries * dim];
        let mut dk = vec![0.0; keys * dim];
        let mut dv = vec![0.0; keys * dim];
        let mut dbias = vec![0.0; queries * keys];
        let scale = 1.0 / (dim as f64).sqrt();
        for i in 0..queries {
            let g = &grad[i * dim..][..dim];
            let mean: f64 = (0..dim).map(|t| g[t] * out[i * dim + t]).sum();
            for j in 0..keys - queries + i + 1 {
                let at = i * keys + j;
                let gv: f64 = (0..dim).map(|t| g[t] * self.v[j * dim + t]).sum();
                dbias[at] = weights[at] * (gv - mean) * self.factor[at];
                for t in 0..dim {
                    dv[j * dim + t] += weights[at] * g[t];
                    dq[i * dim + t] += dbias[at] * self.k[j * dim + t] * scale;
                    dk[j * dim + t] += dbias[at] * self.q[i * dim + t] * scale;
                }
            }
        }
        [dq, dk, dv, dbias]
    }
}
