//! The list of mechanisms. Adding one is one new file beside this and one line below.

use std::str::FromStr;

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::*;

/// A mechanism as a user chooses it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MechanismInfo {
    /// The name that users type.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    config: fn() -> AnyAttentionConfig,
}

impl MechanismInfo {
    /// Returns the default settings.
    pub fn config(&self) -> AnyAttentionConfig {
        (self.config)()
    }
}

impl Default for AnyAttentionConfig {
    fn default() -> Self {
        TraConfig::default().into()
    }
}

/// Default settings of the mechanism of a name.
///
/// ```
/// use tra_nn::attention::{AnyAttentionConfig, RopeConfig};
///
/// let rope: AnyAttentionConfig = "rope".parse()?;
/// assert_eq!(rope, RopeConfig::default().into());
/// # Ok::<(), tra_nn::ConfigError>(())
/// ```
impl FromStr for AnyAttentionConfig {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let found = mechanisms().find(|mechanism| mechanism.name == name);
        found.map(|found| found.config()).ok_or_else(|| ConfigError::UnknownAttention(name.into()))
    }
}

/// One line per mechanism: its module and config, the name that users type, what it is.
macro_rules! mechanisms {
    ($($name:literal: $module:ident, $config:ident, $about:literal;)*) => {
        /// Lists all mechanisms.
        pub fn mechanisms() -> impl ExactSizeIterator<Item = MechanismInfo> {
            [$(MechanismInfo {
                name: $name,
                about: $about,
                config: || AnyAttentionConfig::$module($config::default()),
            }),*].into_iter()
        }

        /// Any mechanism, as a decoder holds it.
        #[derive(Module, Debug)]
        pub enum AnyAttention {
            $(#[doc = $about] $module($module),)*
        }

        impl Attention for AnyAttention {
            fn forward(&self, heads: Heads, context: Context<'_>) -> Tensor<4> {
                match self { $(Self::$module(mechanism) => mechanism.forward(heads, context),)* }
            }
        }

        /// Settings of any mechanism, under its name.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        pub enum AnyAttentionConfig {
            $(#[doc = $about] #[serde(rename = $name)] $module($config),)*
        }

        impl AttentionConfig for AnyAttentionConfig {
            type Attention = AnyAttention;

            fn init(&self, sizes: HeadSizes, init: &WeightInit) -> AnyAttention {
                match self { $(Self::$module(c) => AnyAttention::$module(c.init(sizes, init)),)* }
            }

            fn qk_norm(&self) -> bool {
                match self { $(Self::$module(config) => config.qk_norm(),)* }
            }

            fn has_kernel(&self) -> bool {
                match self { $(Self::$module(config) => config.has_kernel(),)* }
            }

            fn positions(&self) -> Option<PositionEncoding> {
                match self { $(Self::$module(config) => config.positions(),)* }
            }

            fn validate(&self, sizes: HeadSizes) -> Result<(), ConfigError> {
                match self { $(Self::$module(config) => config.validate(sizes),)* }
            }
        }

        impl AnyAttentionConfig {
            /// Returns the name that users type.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$module(_) => $name,)* }
            }
        }

        $(impl From<$config> for AnyAttentionConfig {
            fn from(config: $config) -> Self {
                Self::$module(config)
            }
        })*
    };
}

mechanisms! {
    "tra": Tra, TraConfig, "Threshold Relative Attention";
    "tra-threshold": TraThreshold, TraThresholdConfig, "ablation: the threshold without distance";
    "tra-distance": TraDistance, TraDistanceConfig, "ablation: the counts without the threshold";
    "tra-absolute": TraAbsolute, TraAbsoluteConfig, "ablation: plain distance for the counts";
    "nope": Nope, NopeConfig, "dense softmax, no position at all";
    "rope": Rope, RopeConfig, "rotary position embedding";
    "alibi": Alibi, AlibiConfig, "attention with linear biases";
    "cope": Cope, CopeConfig, "contextual position encoding";
    "fox": Fox, FoxConfig, "forgetting attention, a gate on every step";
    "selective": Selective, SelectiveConfig, "queries tell later ones which keys to ignore";
    "differential": Differential, DifferentialConfig, "rotary, the difference of two softmaxes";
    "stickbreaking": StickBreaking, StickBreakingConfig, "each key takes a share of what is left";
    "ssmax": Ssmax, SsmaxConfig, "rotary, with logits that grow with the number of keys";
    "asentmax": Asentmax, AsentmaxConfig, "sparse weights, with a scale that grows with the keys";
    "t5": T5, T5Config, "a learned bias for every bucket of distances";
    "sinusoidal": Sinusoidal, SinusoidalConfig, "waves of the position added to the embedding";
    "learned": Learned, LearnedConfig, "a vector for every position added to the embedding";
}
