//! Lengths as users type them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length or an inclusive range of lengths: `512` or `1..50`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Shortest length.
    pub from: usize,
    /// Longest length.
    pub to: usize,
}

impl std::str::FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            part.trim().replace('_', "").parse::<usize>().map_err(|_| {
                format!(
                    "{text:?} is not a length; write a number such as 512, or a range such as 1..50"
                )
            })
        };
        let (from, to) = match text.split_once("..") {
            Some((from, to)) => (number(from)?, number(to.trim_start_matches('='))?),
            None => (number(text)?, number(text)?),
        };
        if from > to {
            return Err(format!(
                "{text:?} is an empty range of lengths; write the shorter length first"
            ));
        }
        Ok(Self { from, to })
    }
}

impl std::fmt::Display for Lengths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.from == self.to {
            true => write!(f, "{}", self.from),
            false => write!(f, "{}..{}", self.from, self.to),
        }
    }
}

impl Serialize for Lengths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lengths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(usize),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(n) => Ok(Self { from: n, to: n }),
            Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}
