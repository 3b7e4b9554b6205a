//! The loss of a language model.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, TensorData};
use tra_nn::fused;

/// Returns the summed cross-entropy of the scored tokens and their number, or `None` if no token is
/// scored.
///
/// `logits` is `[batch, length, vocab]`; `tokens` and `scored` are `[batch][length]`. Each token is
/// predicted from the position before it, so the first token of a sequence is never scored.
pub fn cross_entropy(
    logits: Tensor<3>,
    tokens: &[Vec<u32>],
    scored: &[Vec<bool>],
) -> Option<(Tensor<1>, usize)> {
    let [batch, length, vocab] = logits.dims();
    let (mut rows, mut targets) = (Vec::new(), Vec::new());
    for (sequence, (tokens, scored)) in tokens.iter().zip(scored).enumerate() {
        for at in (1..length).filter(|at| scored[*at]) {
            rows.push((sequence * length + at - 1) as i64);
            targets.push(i64::from(tokens[at]));
        }
    }
    if rows.is_empty() {
        return None;
    }
    if fused::usable(&logits) {
        let mut all = vec![fused::NOT_SCORED; batch * length];
        for (row, target) in rows.iter().zip(&targets) {
            all[*row as usize] = *target as u32;
        }
        let loss = fused::cross_entropy(logits.reshape([batch * length, vocab]), all);
        return Some((loss, rows.len()));
    }
    let device = logits.device();
    let count = rows.len();
    let ints = |values, shape: [usize; 1]| {
        Tensor::<1, Int>::from_data(TensorData::new(values, shape), &device)
    };
    let rows = logits.reshape([batch * length, vocab]).select(0, ints(rows, [count]));
    let targets = ints(targets, [count]).reshape([count, 1]);
    Some((log_softmax(rows, 1).gather(1, targets).sum().neg(), count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn only_scored_tokens_count() {
        let device = Device::flex();
        let logits = Tensor::<3>::from_floats([[[0.0, 1.0], [2.0, 0.0], [5.0, 5.0]]], &device);
        let loss = |scored: [bool; 3]| {
            cross_entropy(logits.clone(), &[vec![0, 1, 0]], &[scored.to_vec()])
                .map(|(sum, count)| sum.into_scalar::<f32>() / count as f32)
        };
        let first = (1.0 + (-1f32).exp()).ln();
        let second = (1.0 + (-2f32).exp()).ln();
        assert!((loss([true, true, false]).unwrap() - first).abs() < 1e-6);
        assert!((loss([false, true, true]).unwrap() - (first + second) / 2.0).abs() < 1e-6);
        assert_eq!(loss([true, false, false]), None);
    }
}
