//! The bias that dense attention adds to a score, prepared for the kernels.

use rayon::prelude::*;

use super::{Inputs, Rows, Rule};

/// The lowest step: no score outweighs it, and f64 sums keep seven decimal places beside it. An
/// infinity would turn all later sums into NaN.
const CLOSED: f32 = -1e9;

/// Returns a step as it is summed.
pub(super) fn step(x: f32) -> f64 {
    f64::from(if x < CLOSED { CLOSED } else { x })
}

/// Returns whether the bias never grows with distance: no step is positive.
pub(super) fn falls(steps: &[f32]) -> bool {
    steps.iter().all(|x| *x <= 0.0)
}

/// Returns the slope of a head.
pub(super) fn slope(slopes: Rows<'_>, head: usize) -> f32 {
    slopes.row([0, head], 0)[0]
}

/// Returns what tiles need of the steps, if the rule has any: for each head the sums from the oldest
/// step on, and whether its bias [`falls`].
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
    /// Returns the bias of a head, given the [`step_sums`] of all.
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

    /// Returns the part of the bias that belongs to position `j`, relative to position `near` the
    /// queries. So numbers are small, and exact to rounding, where weights are large. It is in two
    /// parts: the second is the rounding error of the first, and 0 except for steps.
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

    /// Returns whether it never grows with distance, so that far keys can be left out.
    pub(super) fn falls(&self) -> bool {
        match self {
            Self::None => false,
            Self::Slope(slope) => *slope >= 0.0,
            Self::Steps { falls, .. } => *falls,
        }
    }

    /// Returns whether it has a second part.
    pub(super) fn in_two_parts(&self) -> bool {
        matches!(self, Self::Steps { .. })
    }
}
