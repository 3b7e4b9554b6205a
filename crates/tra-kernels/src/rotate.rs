//! Rotary position embedding: turns pairs of dimensions by an angle that depends on the position.

use rayon::prelude::*;

use crate::parallel::{count, piece};

/// Turns every head of every token in `x`, `[batch, length, heads, dim]`, by the angles of its
/// position; `cos` and `sin` are `[length, dim / 2]`. Dimension `t` is paired with `t + dim / 2`;
/// if `dim` is odd, the last stays as it is. With `back` it turns the other way, which is the
/// gradient.
///
/// # Panics
/// If a size does not fit.
pub fn rotate(
    x: &mut [f32],
    [length, heads, dim]: [usize; 3],
    cos: &[f32],
    sin: &[f32],
    back: bool,
) {
    let pairs = dim / 2;
    let angles = count([length, pairs]);
    assert!(cos.len() == angles && sin.len() == angles, "there must be an angle a pair");
    if x.is_empty() || pairs == 0 {
        return;
    }
    let sequence = count([length, heads, dim]);
    let whole = x.len().is_multiple_of(sequence);
    assert!(whole, "{} numbers are no whole sequences of {sequence}", x.len());
    let tokens = piece(heads * dim);
    x.par_chunks_mut(tokens * heads * dim).enumerate().for_each(|(index, x)| {
        for (token, x) in (index * tokens..).zip(x.chunks_exact_mut(heads * dim)) {
            let at = token % length * pairs;
            let (cos, sin) = (&cos[at..][..pairs], &sin[at..][..pairs]);
            for head in x.chunks_exact_mut(dim) {
                let (a, b) = head.split_at_mut(pairs);
                for (t, (a, b)) in a.iter_mut().zip(b).enumerate() {
                    let s = if back { -sin[t] } else { sin[t] };
                    (*a, *b) = (*a * cos[t] - *b * s, *a * s + *b * cos[t]);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turning_there_and_back_changes_nothing() {
        for dim in [1, 2, 5, 8] {
            let (length, heads, pairs) = (3, 2, dim / 2);
            let angle = |i: usize| i as f32 * 0.7;
            let cos: Vec<f32> = (0..length * pairs).map(|i| angle(i).cos()).collect();
            let sin: Vec<f32> = (0..length * pairs).map(|i| angle(i).sin()).collect();
            let given: Vec<f32> = (0..2 * length * heads * dim).map(|i| i as f32).collect();
            let mut x = given.clone();
            rotate(&mut x, [length, heads, dim], &cos, &sin, false);
            if dim > 1 {
                assert_ne!(x, given);
                // The second token of the second sequence, second head, first pair.
                let at = ((length + 1) * heads + 1) * dim;
                let (a, b) = (given[at], given[at + pairs]);
                let (c, s) = (cos[pairs], sin[pairs]);
                assert!((x[at] - (a * c - b * s)).abs() < 1e-3);
            }
            rotate(&mut x, [length, heads, dim], &cos, &sin, true);
            assert!(x.iter().zip(&given).all(|(a, b)| (a - b).abs() < 1e-4));
        }
    }
}
