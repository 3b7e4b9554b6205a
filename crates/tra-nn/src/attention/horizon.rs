//! Whether mechanisms that forget with distance stop reading where nothing can change any more.

use serde::{Deserialize, Serialize};

/// Whether the fused kernel stops at the horizon; see [`tra_kernels::attention::horizon`] for what
/// it is and why it changes no result.
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
