//! Choosing a token from its logits.

use crate::error::TokenError;

/// How to choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 always takes the most likely token.
    pub temperature: f64,
    /// Only the `k` most likely tokens.
    pub top_k: Option<usize>,
    /// Only the most likely tokens that together have this probability.
    pub top_p: Option<f64>,
}

impl Sampling {
    /// Always the most likely token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: None, top_p: None };

    /// Every token with the probability the model gives it.
    pub const PLAIN: Self = Self { temperature: 1.0, top_k: None, top_p: None };

    /// Says what is wrong with the settings, if anything is.
    pub fn validate(&self) -> Result<(), TokenError> {
        let wrong = |text: String| Err(TokenError::Sampling(text));
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return wrong(format!("temperature must be 0 or more, not {}", self.temperature));
        }
        if self.top_k == Some(0) {
            return wrong("top-k must be at least 1".into());
        }
        match self.top_p {
            Some(p) if !(p > 0.0 && p <= 1.0) => wrong(format!("top-p must lie in 0..1, not {p}")),
            _ => Ok(()),
        }
    }

    /// The token that `draw`, uniform in `[0, 1)`, falls on. Equal logits count from the lowest
    /// token up.
    pub fn choose(&self, logits: &[f32], draw: f64) -> u32 {
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let logit = |token: u32| logits[token as usize];
        order.sort_by(|a, b| logit(*b).total_cmp(&logit(*a)));
        let Some(&best) = order.first() else { return 0 };
        if self.temperature == 0.0 {
            return best;
        }
        order.truncate(self.top_k.unwrap_or(usize::MAX));
        let weight = |token: u32| (f64::from(logit(token) - logit(best)) / self.temperature).exp();
        let mut total: f64 = order.iter().map(|t| weight(*t)).sum();
        if let Some(top_p) = self.top_p {
            let mut mass = 0.0;
            let nucleus = order.iter().position(|t| {
                mass += weight(*t);
                mass >= top_p * total
            });
            order.truncate(nucleus.map_or(order.len(), |last| last + 1));
            total = mass;
        }
        let mut left = draw * total;
        let chosen = order.iter().find(|t| {
            left -= weight(**t);
            left < 0.0
        });
        *chosen.unwrap_or(&order[order.len() - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, f32::NEG_INFINITY];

    fn share(sampling: Sampling, token: u32) -> f64 {
        let draws = 10_000;
        let hits = (0..draws)
            .filter(|i| sampling.choose(&LOGITS, f64::from(*i) / f64::from(draws)) == token)
            .count();
        hits as f64 / f64::from(draws)
    }

    #[test]
    fn shares_follow_the_softmax() {
        let sum = 1.0 + 2f64.exp() + 1f64.exp();
        assert!((share(Sampling::PLAIN, 1) - 2f64.exp() / sum).abs() < 1e-3);
        assert!((share(Sampling::PLAIN, 0) - 1.0 / sum).abs() < 1e-3);
        assert_eq!(share(Sampling::PLAIN, 3), 0.0);
    }

    #[test]
    fn every_setting_changes_the_outcome() {
        assert_eq!(share(Sampling::GREEDY, 1), 1.0);
        let cold = Sampling { temperature: 0.5, ..Sampling::PLAIN };
        assert!(share(cold, 1) > share(Sampling::PLAIN, 1));
        let two = Sampling { top_k: Some(2), ..Sampling::PLAIN };
        assert!(share(two, 0) == 0.0 && share(two, 2) > 0.0);
        let nucleus = Sampling { top_p: Some(0.7), ..Sampling::PLAIN };
        assert!(share(nucleus, 0) == 0.0 && share(nucleus, 2) > 0.0);
        assert_eq!(share(Sampling { top_p: Some(0.6), ..Sampling::PLAIN }, 1), 1.0);
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        for bad in [
            Sampling { temperature: -1.0, ..Sampling::PLAIN },
            Sampling { temperature: f64::NAN, ..Sampling::PLAIN },
            Sampling { top_k: Some(0), ..Sampling::PLAIN },
            Sampling { top_p: Some(0.0), ..Sampling::PLAIN },
            Sampling { top_p: Some(1.5), ..Sampling::PLAIN },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
        assert!(Sampling::GREEDY.validate().is_ok() && Sampling::PLAIN.validate().is_ok());
    }
}
