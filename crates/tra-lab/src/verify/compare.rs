//! Comparison of tensors.

use serde::Serialize;
use tra_nn::checkpoint::HostTensor;

/// Largest differences that still count as agreement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// For outputs: the largest difference. It is absolute if all values are at most 1, and
    /// otherwise relative to the largest value of the tensor.
    pub atol: f64,
    /// For gradients: the largest difference, relative to the largest value of the tensor.
    pub rtol: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { atol: 1e-5, rtol: 1e-4 }
    }
}

/// The comparison of one tensor.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Name of the tensor.
    pub name: String,
    /// Largest difference, or `None` if one value is NaN and the other is not.
    pub absolute: Option<f64>,
    /// `absolute` as a fraction of the largest recorded value.
    pub relative: Option<f64>,
    /// Largest difference allowed.
    pub allowed: f64,
    /// Whether the difference is allowed.
    pub agrees: bool,
}

impl Check {
    /// Compares numbers that must be equal.
    pub(super) fn exact(name: &str, ours: &[f32], recorded: &[f32]) -> Self {
        Self::new(name, ours, recorded, 0.0)
    }

    /// Compares an output.
    pub(super) fn output(name: &str, ours: &[f32], recorded: &[f32], tolerance: Tolerance) -> Self {
        Self::new(name, ours, recorded, tolerance.atol * largest(recorded).max(1.0))
    }

    /// Compares all gradients of a recording. Each item is `(name, ours, recorded)`.
    ///
    /// A gradient that cancels to zero consists of rounding errors only, so it has no scale of its
    /// own. It is compared on the scale of the others: a hundredth of the upper quartile of their
    /// largest values.
    pub(super) fn gradients(
        all: &[(String, &HostTensor, &HostTensor)],
        tolerance: Tolerance,
    ) -> Vec<Self> {
        let floats = |tensor: &HostTensor| tensor.as_floats().unwrap_or_default().to_vec();
        let mut scales: Vec<f64> = all.iter().map(|(_, _, r)| largest(&floats(r))).collect();
        let scale_of = scales.clone();
        scales.sort_by(f64::total_cmp);
        let floor = 0.01 * scales.get(3 * scales.len() / 4).copied().unwrap_or(0.0);
        let check =
            |((name, ours, recorded), scale): (&(String, &HostTensor, &HostTensor), f64)| {
                Self::new(name, &floats(ours), &floats(recorded), tolerance.rtol * scale.max(floor))
            };
        all.iter().zip(scale_of).map(check).collect()
    }

    fn new(name: &str, ours: &[f32], recorded: &[f32], allowed: f64) -> Self {
        debug_assert_eq!(ours.len(), recorded.len(), "{name}: the shapes were checked before");
        let difference = |(a, b): (&f32, &f32)| match a == b {
            true => 0.0, // equal infinities too
            false => (f64::from(*a) - f64::from(*b)).abs(),
        };
        let absolute = ours
            .iter()
            .zip(recorded)
            .map(difference)
            .try_fold(0.0, |most: f64, d| if d.is_nan() { None } else { Some(most.max(d)) });
        let scale = largest(recorded);
        Self {
            name: name.into(),
            absolute,
            relative: absolute.map(|d| if d == 0.0 { 0.0 } else { d / scale }),
            allowed,
            agrees: absolute.is_some_and(|d| d <= allowed),
        }
    }
}

fn largest(values: &[f32]) -> f64 {
    values.iter().map(|x| f64::from(x.abs())).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { atol: 1e-5, rtol: 1e-4 };

    #[test]
    fn outputs_are_held_to_the_absolute_tolerance() {
        let check = |a: f32, b: f32| Check::output("x", &[a, 0.5], &[b, 0.5], TOLERANCE).agrees;
        assert!(check(0.1, 0.100_009));
        assert!(!check(0.1, 0.100_02));
        assert!(check(100.0, 100.000_5), "relative if values are large");
        assert!(!check(f32::NAN, 0.1) && !check(0.1, f32::NAN));
    }

    #[test]
    fn small_gradients_are_held_to_their_own_scale() {
        let tensor = |x: f32| HostTensor::floats([1], vec![x]);
        let check = |ours: f32, recorded: f32, other: f32| {
            let (a, b, c) = (tensor(ours), tensor(recorded), tensor(other));
            let all = [("g".to_string(), &a, &b), ("other".into(), &c, &c)];
            Check::gradients(&all, TOLERANCE)[0].agrees
        };
        assert!(check(1e-3, 1.000_05e-3, 1e-3));
        assert!(!check(1e-3, 1.001e-3, 1e-3), "an absolute tolerance would let this pass");
        assert!(check(3e-9, 0.0, 1.0), "noise around zero");
        assert!(!check(3e-3, 0.0, 1.0));
    }
}
