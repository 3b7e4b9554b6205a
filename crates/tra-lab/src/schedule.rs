//! The learning rate: a linear warm-up, then a cosine down to 0.

/// Returns the learning rate of step `step` of `steps`, counted from 0.
///
/// It rises linearly to `highest` over the first `warmup` fraction of the steps. Then it follows
/// half a cosine that reaches 0 one step after the last.
pub fn learning_rate(step: u64, steps: u64, highest: f64, warmup: f64) -> f64 {
    let rising = (warmup * steps as f64).round() as u64;
    if step < rising {
        return highest * (step + 1) as f64 / rising as f64;
    }
    let done = (step - rising) as f64 / (steps - rising).max(1) as f64;
    highest * 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_then_falls() {
        let rate = |step| learning_rate(step, 100, 2.0, 0.05);
        assert_eq!(rate(0), 0.4);
        assert_eq!(rate(4), 2.0);
        assert_eq!(rate(5), 2.0);
        assert!((5..99).all(|step| rate(step + 1) < rate(step)));
        assert!(rate(99) > 0.0 && rate(99) < 0.01);
        assert_eq!(rate(100), 0.0);
        assert_eq!(learning_rate(0, 1, 1.0, 0.05), 1.0);
        assert_eq!(learning_rate(3, 10, 1.0, 0.0), learning_rate(3, 10, 1.0, 0.04));
    }
}
