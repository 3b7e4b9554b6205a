//! Names that users type: completed by shells, and corrected when mistyped.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use tra_nn::attention;

/// Similarity from which a name counts as a misspelling of another; clap uses the same for its flags.
const SIMILAR: f64 = 0.7;

/// Parses any text, and tells shell completions which names there are. The libraries reject unknown names: they also
/// read them from files.
#[derive(Clone)]
pub struct Names(pub fn() -> Vec<&'static str>);

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}

/// Returns the name of every mechanism.
pub fn mechanisms() -> Vec<&'static str> {
    attention::mechanisms().map(|mechanism| mechanism.name).collect()
}

/// Returns the name of every task.
pub fn tasks() -> Vec<&'static str> {
    tra_tasks::TaskSpec::all().map(|task| task.name()).collect()
}

/// Returns the name of every model size.
pub fn sizes() -> Vec<&'static str> {
    vec!["tiny", "mini", "small", "medium"]
}

/// Rejects a name that no mechanism has, and suggests the nearest.
pub fn check_mechanism(name: &str) -> anyhow::Result<()> {
    let all = mechanisms();
    if all.contains(&name) {
        return Ok(());
    }
    let hint = nearest(name, &all).map_or(String::new(), |near| format!("did you mean {near:?}? "));
    anyhow::bail!("unknown mechanism {name:?}; {hint}`tra mechanisms` lists all of them")
}

/// Returns the name that `typed` is most likely a misspelling of.
fn nearest<'a>(typed: &str, names: &[&'a str]) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let scored = names.iter().map(|name| (strsim::jaro(&typed, name), *name));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(score, _)| *score > SIMILAR).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_find_the_nearest() {
        let all = mechanisms();
        for (typed, meant) in [
            ("rop", Some("rope")),
            ("RoPE", Some("rope")),
            ("trathreshold", Some("tra-threshold")),
            ("stick-breaking", Some("stickbreaking")),
            ("sinusodial", Some("sinusoidal")),
            ("xyzzy", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, &all), meant, "{typed}");
        }
    }

    #[test]
    fn every_name_is_one_the_libraries_know() {
        for name in mechanisms() {
            assert!(
                check_mechanism(name).is_ok()
                    && name.parse::<attention::AnyAttentionConfig>().is_ok()
            );
        }
        assert!(tasks().iter().all(|name| name.parse::<tra_tasks::TaskSpec>().is_ok()));
        assert!(sizes().iter().all(|name| name.parse::<tra_nn::Size>().is_ok()));
    }
}
