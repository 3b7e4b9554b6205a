//! Settings given by flags and as `--set path=value`, and which of them caused an error.

use std::fmt;
use std::path::Path;

use toml::{Table, Value};

use crate::error::LabError;

/// A setting given by a flag: its path in the file and its value.
pub type Override = (&'static str, Value);

/// A setting as the user gave it.
pub(crate) enum Given<'a> {
    Flag(Override),
    Set(&'a str),
}

impl Given<'_> {
    /// Returns its path in the file.
    fn path(&self) -> &str {
        match self {
            Self::Flag((path, _)) => path,
            Self::Set(setting) => setting.split('=').next().unwrap_or_default().trim(),
        }
    }

    /// Writes it into the settings.
    pub(crate) fn apply(&self, table: &mut Table) -> Result<(), LabError> {
        match self {
            Self::Flag((path, value)) => insert(table, &today(path), value.clone()),
            Self::Set(setting) => {
                let (path, text) = setting.split_once('=').ok_or_else(|| {
                    LabError::Setting("write it as path=value, such as task.alphabet=26".into())
                })?;
                // A bare word is a string: --set model.attention.name=rope.
                let line = format!("value = {}", text.trim());
                let value = line.parse::<Table>().ok().and_then(|mut t| t.remove("value"));
                insert(
                    table,
                    &today(path.trim()),
                    value.unwrap_or_else(|| Value::from(text.trim())),
                )
            }
        }
    }
}

/// Formats the setting as it is typed: `--eval-every 3`, `--set steps=many`.
impl fmt::Display for Given<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), Into::into);
        match self {
            Self::Set(setting) => write!(f, "--set {setting}"),
            Self::Flag((path, value)) => {
                let value = match value {
                    Value::Array(all) => all.iter().map(text).collect::<Vec<String>>().join(","),
                    Value::Boolean(true) => String::new(),
                    other => text(other),
                };
                write!(f, "{}", format!("--{} {value}", flag(path)).trim_end())
            }
        }
    }
}

/// Returns the flag of a setting: usually the last part of its path. A path that ends in `.name`
/// uses the part before it.
fn flag(path: &str) -> String {
    let short = path.trim_end_matches(".name");
    let short = match short.strip_prefix("eval.") {
        Some(rest) if rest != "until_perfect" => format!("eval-{rest}"),
        _ => short.rsplit('.').next().unwrap_or(short).into(),
    };
    short.replace('_', "-")
}

/// Attributes an error to the setting that caused it. `made` builds the settings from the file and
/// the first `count` items of `given`.
///
/// An item that the error names is the cause. Otherwise it is the first item that produces this
/// very error, or the file if the file alone produces it. Other errors on the way do not count,
/// because a later item may correct them.
pub(crate) fn blame<T>(
    error: LabError,
    file: Option<&Path>,
    given: &[Given<'_>],
    made: impl Fn(usize) -> Result<T, LabError>,
) -> LabError {
    let reason = error.to_string();
    let same = |count: &usize| made(*count).is_err_and(|e| e.to_string() == reason);
    let first = (0..=given.len()).find(same);
    // Only paths with a dot: a single word such as `length` occurs in many errors.
    let named = |given: &&Given<'_>| given.path().contains('.') && reason.contains(given.path());
    let named = given.iter().rposition(|given| named(&given)).map(|at| at + 1);
    match (first.map(|first| if first > 0 { named.unwrap_or(first) } else { 0 }), file) {
        (None | Some(0), Some(path)) => LabError::Config { path: path.into(), reason },
        (None | Some(0), None) => error,
        (Some(count), _) => match (&given[count - 1], file) {
            // The error already names the setting, and without a file there is no doubt about its
            // source.
            (Given::Flag(_), None) => error,
            (given, _) => LabError::Given { setting: given.to_string(), cause: Box::new(error) },
        },
    }
}

/// Tables that contain a `research` table, and the settings that older files have outside it.
const RESEARCH: [(&str, &[&str]); 2] = [
    ("model", &["sharpness", "embedding_dropout", "embedding_bound"]),
    ("model.attention", &["leak"]),
];

/// Returns the current path of a setting, which may have moved into `research`.
fn today(path: &str) -> String {
    let (parent, key) = path.rsplit_once('.').unwrap_or_default();
    match RESEARCH.iter().any(|(table, moved)| *table == parent && moved.contains(&key)) {
        true => format!("{parent}.research.{key}"),
        false => path.into(),
    }
}

/// Moves the settings of an older file to their current place.
///
/// A setting that is in both places stays and becomes an unknown field. Only TRA has a leak, so
/// other mechanisms are skipped.
pub(crate) fn regroup(table: &mut Table) {
    for (path, moved) in RESEARCH {
        let part = path.split('.').try_fold(&mut *table, |t, key| t.get_mut(key)?.as_table_mut());
        let Some(part) = part else { continue };
        if part.get("name").is_some_and(|name| name.as_str() != Some("tra")) {
            continue;
        }
        for key in moved {
            if part.get("research").is_some_and(|group| group.get(key).is_some()) {
                continue;
            }
            let Some(value) = part.remove(*key) else { continue };
            let group = part.entry("research").or_insert_with(|| Table::new().into());
            if let Value::Table(group) = group {
                group.insert((*key).into(), value);
            }
        }
    }
}

/// Writes a value at a dotted path and creates the tables on the way.
fn insert(table: &mut Table, path: &str, value: Value) -> Result<(), LabError> {
    let (mut table, mut rest) = (table, path);
    while let Some((head, tail)) = rest.split_once('.') {
        let next = table.entry(head).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(next) = next else {
            return Err(LabError::Setting(format!(
                "{path}: {head} is a single value and has no settings of its own"
            )));
        };
        (table, rest) = (next, tail);
    }
    // Settings of the previous mechanism or task do not apply to the new one.
    if rest == "name" && table.get("name") != Some(&value) {
        table.clear();
    }
    table.insert(rest.into(), value);
    Ok(())
}
