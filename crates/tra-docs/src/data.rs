//! Reads raw results and selects values from them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::Value;

/// The raw results, each file read once.
pub struct Data {
    folder: PathBuf,
    json: RefCell<HashMap<String, Rc<Value>>>,
    made: RefCell<HashMap<String, String>>,
}

impl Data {
    /// Opens the results under the root of a workspace.
    pub fn new(root: &Path) -> Self {
        let (json, made) = Default::default();
        Self { folder: root.join("docs/results"), json, made }
    }

    /// Returns a text file, by its path under `docs/results`.
    pub fn text(&self, file: &str) -> Result<String, String> {
        std::fs::read_to_string(self.folder.join(file)).map_err(|e| format!("{file}: {e}"))
    }

    /// Returns a JSON file, by its path under `docs/results`.
    pub fn json(&self, file: &str) -> Result<Rc<Value>, String> {
        if let Some(known) = self.json.borrow().get(file) {
            return Ok(known.clone());
        }
        let value: Value =
            serde_json::from_str(&self.text(file)?).map_err(|e| format!("{file}: {e}"))?;
        let value = Rc::new(value);
        self.json.borrow_mut().insert(file.into(), value.clone());
        Ok(value)
    }

    /// Returns the cached body of a specification, or makes it.
    pub(crate) fn remember(
        &self,
        spec: &str,
        make: impl FnOnce() -> Result<String, String>,
    ) -> Result<String, String> {
        if let Some(known) = self.made.borrow().get(spec) {
            return Ok(known.clone());
        }
        let made = make()?;
        self.made.borrow_mut().insert(spec.into(), made.clone());
        Ok(made)
    }
}

/// Returns the values at a path: `runs[model=tra,seed=1].results[0].loss`.
///
/// A list without brackets stands for all of its items.
pub fn select<'a>(value: &'a Value, path: &str) -> Result<Vec<&'a Value>, String> {
    let mut found = vec![value];
    for step in steps(path) {
        let (key, filter) = match step.split_once('[') {
            Some((key, filter)) => (key, Some(filter.trim_end_matches(']'))),
            None => (step, None),
        };
        found = found.into_iter().flat_map(items).collect();
        if !key.is_empty() {
            found = found.into_iter().filter_map(|value| value.get(key)).collect();
        }
        if let Some(filter) = filter {
            found = found.into_iter().flat_map(|list| matching(list, filter)).collect();
        }
        if found.is_empty() {
            return Err(format!("{path}: nothing at {step}"));
        }
    }
    Ok(found.into_iter().flat_map(items).collect())
}

/// Splits a path into its steps. A dot between brackets does not end a step.
fn steps(path: &str) -> Vec<&str> {
    let (mut all, mut from, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in path.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            '.' if depth == 0 => {
                all.push(&path[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    all.push(&path[from..]);
    all
}

fn items(value: &Value) -> Vec<&Value> {
    value.as_array().map_or(vec![value], |list| list.iter().collect())
}

fn matching<'a>(list: &'a Value, filter: &str) -> Vec<&'a Value> {
    if let Ok(index) = filter.parse::<usize>() {
        return list.get(index).into_iter().collect();
    }
    let wanted: Vec<(&str, &str)> = filter.split(',').filter_map(|f| f.split_once('=')).collect();
    let fits = |item: &&Value| wanted.iter().all(|(key, value)| text_of(&item[*key]) == *value);
    items(list).into_iter().filter(fits).collect()
}

/// Returns a value as text; a string has no quotes.
pub fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_selects_by_key_index_and_filter() {
        let value = serde_json::json!({"runs": [
            {"model": "tra", "rate": 0.1, "results": [{"x": 1}, {"x": 2}]},
            {"model": "rope", "rate": 0.2, "results": [{"x": 3}]},
        ]});
        let texts = |path: &str| -> Vec<String> {
            select(&value, path).unwrap().into_iter().map(text_of).collect()
        };
        assert_eq!(texts("runs.results.x"), ["1", "2", "3"]);
        assert_eq!(texts("runs[rate=0.2].results[0].x"), ["3"]);
        assert_eq!(texts("runs[model=tra,rate=0.1].results[1].x"), ["2"]);
        assert!(select(&value, "runs[model=fox].results").is_err());
    }
}
