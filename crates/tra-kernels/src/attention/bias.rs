//! What dense attention adds to a score, made ready for the kernels.

use rayon::prelude::*;

use super::{Inputs, Rows, Rule};

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

/// The slope of a head.
pub(super) fn slope(slopes: Rows<'_>, head: usize) -> f32 {
    slopes.row([0, head], 0)[0]
}

/// What tiles need of the steps, if the rule has any: for each head the sums from the oldest step
/// on, and whether its bias [`falls`].
pub(super) fn step_sums(inputs: &Inputs<'_>) -> Vec<(Vec<f64>, bool)> {
    let Rule::Steps(steps) = inputs.rule else { return Vec::new() };
    let heads = inputs.shape.heads;
    let sums = |head: usize| {
        let row = steps.row([head / heads, head % heads], 0);
        let mut sum = 0.0;
        let sums = row.iter().map(|x| {
            sum += step(*x);
            sum
        });
        (sums.collect(), falls(row))
    };
    (0..inputs.shape.batch * heads).into_par_iter().map(sums).collect()
}

/// The bias of one head.
#[derive(Clone, Copy)]
pub(super) enum HeadBias<'a> {
    None,
    Slope(f32),
    Steps { sums: &'a [f64], falls: bool },
}

impl<'a> HeadBias<'a> {
    /// The bias of the head `at`, given the [`step_sums`] of all.
    pub(super) fn new(
        inputs: &Inputs<'_>,
        sums: &'a [(Vec<f64>, bool)],
        [batch, head]: [usize; 2],
    ) -> Self {
        match inputs.rule {
            Rule::Tra { .. } | Rule::Dense => Self::None,
            Rule::Slope(slopes) => Self::Slope(slope(slopes, head)),
            Rule::Steps(_) => {
                let (sums, falls) = &sums[batch * inputs.shape.heads + head];
                Self::Steps { sums, falls: *falls }
            }
        }
    }

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
