//! Tables of accuracy, from the `results.json` that `tra reproduce` writes.

use serde_json::Value;

use super::{Arguments, markdown};
use crate::data::{Data, select, text_of};
use crate::format;

/// A test of a model: split, shortest and longest length.
#[derive(Clone, PartialEq)]
struct Test {
    split: String,
    shortest: u64,
    length: u64,
}

impl Test {
    fn of(result: &Value) -> Option<Self> {
        let [shortest, length] = ["shortest", "length"].map(|key| result[key].as_u64());
        Some(Self { split: result["split"].as_str()?.into(), shortest: shortest?, length: length? })
    }

    /// Formats the lengths, as in `51-100`.
    fn lengths(&self) -> String {
        let [from, to] = [self.shortest, self.length].map(|of| format::thousands(of as f64));
        if from == to { to } else { format!("{from}-{to}") }
    }

    /// Formats the lengths, preceded by the split unless it is only a range of lengths.
    fn name(&self) -> String {
        match self.split.as_str() {
            split if split == "iid" || split.starts_with(|c: char| c.is_ascii_digit()) => {
                self.lengths()
            }
            split => format!("`{split}` {}", self.lengths()),
        }
    }

    /// Returns whether a document means this test by `SPLIT@LENGTH`. The length is a number or a
    /// range such as `51-100`.
    fn is(&self, named: &str) -> bool {
        named.split_once('@').is_some_and(|(split, lengths)| {
            split == self.split && lengths == self.lengths().replace(',', "")
        })
    }
}

/// Returns the values of all seeds of a model in a test.
///
/// A seed that was not tested because it got nothing right at a shorter length counts as 0 if other
/// seeds were tested.
fn values(runs: &[&Value], test: &Test, metric: &str) -> Vec<f64> {
    let value = |run: &&Value| {
        let results = run["results"].as_array()?;
        results.iter().find(|r| Test::of(r).as_ref() == Some(test))?[metric].as_f64()
    };
    let found: Vec<Option<f64>> = runs.iter().map(value).collect();
    if found.iter().all(Option::is_none) || (metric != "exact_match" && found.contains(&None)) {
        return Vec::new();
    }
    found.into_iter().map(|value| value.unwrap_or(0.0)).collect()
}

fn cell(runs: &[&Value], test: &Test, metric: &str) -> String {
    let values = values(runs, test, metric);
    let decimals = if metric == "exact_match" { 1 } else { 2 };
    if values.is_empty() { "–".into() } else { format::mean_percent(&values, decimals) }
}

fn runs_of<'a>(runs: &[&'a Value], model: &str) -> Vec<&'a Value> {
    runs.iter().copied().filter(|run| run["model"] == model).collect()
}

fn task_of<'a>(json: &'a Value, task: Option<&str>) -> Result<Vec<&'a Value>, String> {
    match task {
        Some(task) => select(json, &format!("runs[task={task}]")),
        None => select(json, "runs"),
    }
}

/// Different values in their order.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

/// Writes one row per model, one column per test.
pub(super) fn table(arguments: &str, data: &Data) -> Result<String, String> {
    let known = ["task", "models", "tests", "metric", "seeds"];
    let arguments = Arguments::read(arguments, &known)?;
    let json = data.json(arguments.word(0, "the file")?)?;
    let runs = task_of(&json, arguments.get("task"))?;
    let metric = arguments.get("metric").unwrap_or("exact_match");
    let tests = tests_of(&runs, arguments.list("tests"))?;
    let row = |label: String, of: &[&Value]| {
        let cells = tests.iter().map(|test| cell(of, test, metric));
        std::iter::once(label).chain(cells).collect::<Vec<_>>()
    };
    let tasks = distinct(runs.iter().map(|run| text_of(&run["task"])));
    let all = distinct(runs.iter().map(|run| text_of(&run["model"])));
    let models = arguments.list("models").unwrap_or(all.iter().map(String::as_str).collect());
    let mut rows = Vec::new();
    for task in &tasks {
        let runs: Vec<&Value> =
            runs.iter().copied().filter(|r| text_of(&r["task"]) == *task).collect();
        let task = if tasks.len() > 1 { format!("`{task}`, ") } else { String::new() };
        for model in &models {
            let of = runs_of(&runs, model);
            let seeds = match of.len() {
                0 => return Err(format!("no runs of {model}")),
                1 => format!("seed {}", of[0]["seed"]),
                many => format!("{many} seeds"),
            };
            rows.push(row(format!("{task}`{model}`, {seeds}"), &of));
            if arguments.get("seeds") == Some("each") && of.len() > 1 {
                rows.extend(of.iter().map(|run| row(format!("seed {}", run["seed"]), &[run])));
            }
        }
    }
    let names = tests.iter().map(Test::name);
    Ok(markdown(&std::iter::once(String::new()).chain(names).collect::<Vec<_>>(), &rows))
}

/// Returns the tests of some runs, or those that a document names.
fn tests_of(runs: &[&Value], named: Option<Vec<&str>>) -> Result<Vec<Test>, String> {
    let results = runs.iter().flat_map(|run| run["results"].as_array().into_iter().flatten());
    let all = distinct(results.filter_map(Test::of));
    let find = |name: &str| {
        all.iter().find(|test| test.is(name)).cloned().ok_or(format!("no test {name}"))
    };
    match named {
        Some(named) => named.into_iter().map(find).collect(),
        None => Ok(all),
    }
}

/// Writes one row per test, one column per model, from several files.
pub(super) fn compare(arguments: &str, data: &Data) -> Result<String, String> {
    let (first, lines) = arguments.split_once('\n').unwrap_or((arguments, ""));
    let arguments = Arguments::read(first, &["models"])?;
    let models = arguments.list("models").ok_or("models= is missing")?;
    let mut rows = Vec::new();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let line = Arguments::read(line, &["task", "fresh"])?;
        let (file, name) = (line.word(0, "the file")?, line.word(1, "the test")?);
        let json = data.json(file)?;
        let runs = task_of(&json, line.get("task"))?;
        let test = tests_of(&runs, Some(vec![name])).map_err(|e| format!("{file}: {e}"))?.remove(0);
        let settings = &runs[0]["settings"];
        let trained = text_of(&settings["length"]).replace("..", "-");
        let task = text_of(&settings["task"]["name"]);
        let mut row = vec![format!("`{task}`"), trained, test.name()];
        for (at, model) in models.iter().enumerate() {
            row.push(cell(&runs_of(&runs, model), &test, "exact_match"));
            if at == 0 {
                row.push(fresh(line.get("fresh"), model, &test, data)?);
            }
        }
        rows.push(row);
    }
    let mut header: Vec<String> = ["task", "trained on", "tested on"].map(String::from).to_vec();
    for (at, model) in models.iter().enumerate() {
        header.push(format!("`{model}`"));
        if at == 0 {
            header.push(format!("`{model}`, fresh seeds"));
        }
    }
    Ok(markdown(&header, &rows))
}

/// Returns the result of a model on seeds that were not used to choose settings.
fn fresh(file: Option<&str>, model: &str, test: &Test, data: &Data) -> Result<String, String> {
    let Some(file) = file else { return Ok("–".into()) };
    let json = data.json(file)?;
    let runs = task_of(&json, None)?;
    Ok(cell(&runs_of(&runs, model), test, "exact_match"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seed: u64, right: &[(u64, f64)]) -> Value {
        let results = right.iter().map(|(length, right)| {
            serde_json::json!({"split": "iid", "shortest": length, "length": length, "exact_match": right})
        });
        serde_json::json!({"model": "tra", "seed": seed, "results": results.collect::<Vec<_>>()})
    }

    #[test]
    fn a_seed_that_was_given_up_counts_as_none_right() {
        let runs = [run(1, &[(50, 1.0), (300, 0.5)]), run(2, &[(50, 0.0)])];
        let runs: Vec<&Value> = runs.iter().collect();
        let test = |length| Test { split: "iid".into(), shortest: length, length };
        assert_eq!(values(&runs, &test(300), "exact_match"), [0.5, 0.0]);
        assert_eq!(cell(&runs, &test(50), "exact_match"), "50.0% ± 70.7");
        assert_eq!(cell(&runs, &test(1000), "exact_match"), "–");
    }

    #[test]
    fn a_test_is_named_by_split_and_lengths() {
        let test = Test { split: "sparse".into(), shortest: 1000, length: 2000 };
        assert!(test.is("sparse@1000-2000") && !test.is("iid@1000-2000"));
        assert_eq!(test.name(), "`sparse` 1,000-2,000");
    }
}
