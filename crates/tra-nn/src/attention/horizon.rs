//! Whether mechanisms that forget with distance stop reading where no older key can change the result.

use serde::{Deserialize, Serialize};

/// Whether the fused kernel stops at the horizon. [`tra_kernels::attention::horizon`] explains what
/// that is and why it changes no result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Horizon {
    /// Stop where no f32 result can change by more than its rounding.
    #[default]
    Rounding,
    /// Read every key.
    Exact,
}

impl From<Horizon> for tra_kernels::attention::Horizon {
    fn from(horizon: Horizon) -> Self {
        match horizon {
            Horizon::Rounding => Self::Rounding,
            Horizon::Exact => Self::Exact,
        }
    }
}
