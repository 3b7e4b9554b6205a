//! `tra mechanisms`: what `--attention` can be, and its settings.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value, json};
use tra_nn::attention::{AnyAttentionConfig, AttentionConfig, MechanismInfo, mechanisms};

use crate::names::{self, Names};
use crate::terminal;

/// Columns of a terminal that everything must fit.
const COLUMNS: usize = 80;

/// What each setting means. A name means the same in every mechanism that has it.
const SETTINGS: [(&str, &str); 8] = [
    ("buckets", "Number of biases per head."),
    ("count", "Number of positions. Longer sequences are refused."),
    (
        "horizon",
        "Where to stop reading far keys: `rounding` stops where no f32 result can change by more \
         than its rounding, `exact` reads every key.",
    ),
    (
        "research.leak",
        "Gradient leak for queries that keep no key, from 0 to 1. Such a query has zero output \
         and zero gradient, so its head cannot recover. With 1, each of its scores receives, in \
         training, the gradient it would have had as the only kept key. The forward result never \
         changes.",
    ),
    ("max_distance", "Distance from which on all keys share the last bias."),
    ("npos", "Number of positions in the table. Keys further away use the last one."),
    ("qk_norm", "Normalise queries and keys as TRA does, before any rotation."),
    ("theta", "Base of the wavelengths."),
];

/// List the attention mechanisms and their settings
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tra mechanisms
  tra mechanisms tra                      # what each of its settings means
  tra mechanisms --json | jq '.mechanisms[].name'
  tra train --attention rope --set model.attention.theta=10000 --out runs/rope")]
pub struct Args {
    /// Describe only this mechanism, in detail
    #[arg(value_parser = Names(names::mechanisms), hide_possible_values = true)]
    name: Option<String>,

    /// Print one JSON object instead of a list
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(name) = &args.name {
        names::check_mechanism(name)?;
    }
    let chosen = |name: &str| args.name.as_deref().is_none_or(|wanted| wanted == name);
    let all = mechanisms().filter(|info| chosen(info.name));
    let all = all.map(Mechanism::new).collect::<Result<Vec<_>>>()?;
    let text = match (args.json, &args.name) {
        (true, _) => {
            let all: Vec<Value> = all.iter().map(Mechanism::object).collect();
            format!("{:#}\n", json!({ "mechanisms": all }))
        }
        (false, Some(_)) => all.iter().map(Mechanism::details).collect(),
        (false, None) => list(&all),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

struct Mechanism {
    name: &'static str,
    about: &'static str,
    has_kernel: bool,
    settings: Map<String, Value>,
}

impl Mechanism {
    fn new(info: MechanismInfo) -> Result<Self> {
        let config = info.config();
        let (settings, has_kernel) = (settings(&config)?, config.has_kernel());
        Ok(Self { name: info.name, about: info.about, has_kernel, settings })
    }

    fn object(&self) -> Value {
        let settings = self.settings.iter().map(
            |(name, default)| json!({ "name": name, "default": default, "about": meaning(name) }),
        );
        let settings: Vec<Value> = settings.collect();
        json!({
            "name": self.name, "about": self.about, "fused_kernel": self.has_kernel,
            "settings": settings,
        })
    }

    fn details(&self) -> String {
        let mut text = format!("{}: {}\n\n", self.name, self.about);
        let kernel = match self.has_kernel {
            true => "Fused kernel on the CPU: memory grows with the length.",
            false => "Plain tensor operations: memory grows with the square of the length.",
        };
        text += &format!("{kernel}\n");
        let Some(first) = self.settings.keys().next() else {
            return text + "No settings.\n";
        };
        text += "\nSettings:\n";
        for (name, default) in &self.settings {
            text += &format!("  {name} [default: {}]\n", plain(default));
            text += &wrapped(&meaning(name), 6);
        }
        let name = self.name;
        text += "\nExample:\n";
        text += &format!("  tra train --attention {name} --out runs/{name} \\\n");
        text + &format!("      --set model.attention.{first}=VALUE\n")
    }
}

fn list(all: &[Mechanism]) -> String {
    let width = all.iter().map(|mechanism| mechanism.name.len()).max().unwrap_or(0) + 2;
    let mut text = String::new();
    for Mechanism { name, about, settings, .. } in all {
        text += &format!("{name:<width$}{about}\n");
        let settings = settings.iter().map(|(name, value)| format!("{name}={}", plain(value)));
        let settings = settings.collect::<Vec<_>>().join(", ");
        if !settings.is_empty() {
            text += &wrapped(&settings, width);
        }
    }
    text += "\nChoose a mechanism with `tra train --attention NAME` and change a setting with\n";
    text + "`--set model.attention.SETTING=VALUE`. `tra mechanisms NAME` explains them.\n"
}

/// Groups of settings that are not written while all of them have their defaults.
const UNWRITTEN: [(&str, &str, f64); 1] = [("research", "leak", 0.0)];

/// Returns the settings of a mechanism with their values, as `--set model.attention.…` names them.
fn settings(config: &AnyAttentionConfig) -> Result<Map<String, Value>> {
    let mut all = Map::new();
    let written = serde_json::to_value(config)?;
    for (group, name, value) in UNWRITTEN {
        let mut with = written.clone();
        with[group] = json!({ name: value });
        // A mechanism without this group rejects it.
        if serde_json::from_value::<AnyAttentionConfig>(with).is_ok_and(|same| same == *config) {
            all.insert(format!("{group}.{name}"), json!(value));
        }
    }
    let Value::Object(written) = written else { return Ok(all) };
    all.extend(written.into_iter().filter(|(name, _)| name != "name"));
    Ok(all)
}

fn meaning(setting: &str) -> String {
    let found = SETTINGS.iter().find(|(name, _)| *name == setting);
    found.map_or(String::new(), |(_, about)| about.to_string())
}

/// A value as typed after `--set PATH=`.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().map_or(number.to_string(), |x| x.to_string()),
        other => other.to_string(),
    }
}

/// Breaks a text into lines that fit the terminal, each after `indent` spaces.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= COLUMNS => *line += &format!(" {word}"),
            _ => lines.push(format!("{:indent$}{word}", "")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks serde for the names of all settings: it lists them when it rejects one.
    fn known_to_serde(name: &str) -> Vec<String> {
        let wrong = json!({ "name": name, "no such setting": 0 });
        let error = serde_json::from_value::<AnyAttentionConfig>(wrong).unwrap_err().to_string();
        let (_, list) = error.split_once(", ").unwrap();
        let mut names: Vec<String> = list.split('`').skip(1).step_by(2).map(String::from).collect();
        names.sort();
        names
    }

    #[test]
    fn every_setting_is_listed_with_its_meaning() {
        let mut used = Vec::new();
        for info in mechanisms() {
            let name = info.name;
            let mechanism = Mechanism::new(info).unwrap();
            let listed: Vec<String> = mechanism.settings.keys().cloned().collect();
            let group = |name: &String| name.split('.').next().unwrap_or_default().to_string();
            let mut groups: Vec<String> = listed.iter().map(group).collect();
            groups.sort();
            groups.dedup();
            assert_eq!(groups, known_to_serde(name), "{name}");
            for setting in &listed {
                assert!(!meaning(setting).is_empty(), "{name}.{setting}: add it to SETTINGS");
            }
            used.extend(listed);
        }
        assert!(SETTINGS.iter().all(|(name, _)| used.iter().any(|other| other == name)));
    }

    #[test]
    fn everything_fits_the_terminal() {
        let all: Vec<_> = mechanisms().map(|info| Mechanism::new(info).unwrap()).collect();
        let text = list(&all) + &all.iter().map(Mechanism::details).collect::<String>();
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }

    #[test]
    fn values_are_printed_as_they_are_typed() {
        let values = [json!("exact"), json!(500_000.0), json!(0.5), json!(64), json!(false)];
        assert_eq!(values.each_ref().map(plain), ["exact", "500000", "0.5", "64", "false"]);
    }
}
