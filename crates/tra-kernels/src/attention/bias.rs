//! What dense attention adds to a score, made ready for the kernels.

use rayon::prelude::*;

use super::{Bias, Inputs, Rule};

/// A step below this is taken for it: no score makes up for it, and sums of f64 keep seven digits
/// behind the point beside it. An infinity would leave nothing but NaN behind it.
const CLOSED: f32 = -1e9;

/// A step as it is summed.
pub(super) fn step(x: f32) -> f64 {
    f64::from(if x < CLOSED { CLOSED } else { x })
}

/// Whether far keys weigh ever less: no step takes anything back. Exact, and one comparison a key.
pub(super) fn falls(steps: &[f32]) -> bool {
    steps.iter().all(|x| *x <= 0.0)
}

/// The bias of all heads.
pub(super) enum Biases<'a> {
    None,
    Slope(&'a [f32]),
    /// Of every head the sums of its steps from the oldest on, and whether it [`falls`].
    Steps(Vec<(Vec<f64>, bool)>),
}

impl<'a> Biases<'a> {
    pub(super) fn new(inputs: &Inputs<'a>) -> Self {
        let shape = inputs.shape;
        let steps = match inputs.rule {
            Rule::Tra { .. } | Rule::Dense(Bias::None) => return Self::None,
            Rule::Dense(Bias::Slope(slopes)) => return Self::Slope(slopes),
            Rule::Dense(Bias::Steps(steps)) => steps,
        };
        let sums = |head: usize| {
            let row = steps.row([head / shape.heads, head % shape.heads], 0);
            let mut sum = 0.0;
            let sums = row.iter().map(|x| {
                sum += step(*x);
                sum
            });
            (sums.collect(), falls(row))
        };
        Self::Steps((0..shape.batch * shape.heads).into_par_iter().map(sums).collect())
    }

    /// That of one head.
    pub(super) fn head(&self, heads: usize, [batch, head]: [usize; 2]) -> HeadBias<'_> {
        match self {
            Self::None => HeadBias::None,
            Self::Slope(slopes) => HeadBias::Slope(slopes[head]),
            Self::Steps(all) => {
                let (sums, falls) = &all[batch * heads + head];
                HeadBias::Steps { sums, falls: *falls }
            }
        }
    }
}

/// The bias of one head.
#[derive(Clone, Copy)]
pub(super) enum HeadBias<'a> {
    None,
    Slope(f32),
    Steps { sums: &'a [f64], falls: bool },
}

impl HeadBias<'_> {
    /// The part of the bias that belongs to the position `j`, counted from the position `near` the
    /// queries, so that the numbers are small, and exact to rounding, where weights are large. In two
    /// parts, of which the second is what rounding takes from the first; it is 0 but for steps.
    #[inline(always)]
    pub(super) fn of(&self, j: usize, near: usize) -> (f32, f32) {
        match self {
            Self::None => (0.0, 0.0),
            Self::Slope(slope) => (slope * (j as f32 - near as f32), 0.0),
            Self::Steps { sums, .. } => {
                let exact = sums[near] - sums[j];
                let high = exact as f32;
                (high, (exact - f64::from(high)) as f32)
            }
        }
    }

    /// Whether it never grows with distance, so that far keys can be left out.
    pub(super) fn falls(&self) -> bool {
        match self {
            Self::None => false,
            Self::Slope(slope) => *slope >= 0.0,
            Self::Steps { falls, .. } => *falls,
        }
    }

    /// Whether it has a second part.
    pub(super) fn in_two_parts(&self) -> bool {
        matches!(self, Self::Steps { .. })
    }
}
