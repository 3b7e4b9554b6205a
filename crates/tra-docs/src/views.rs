//! The views: what a region can show from a results file.

mod accuracy;
mod bench;

use serde_json::Value;

use crate::data::{Data, select, text_of};
use crate::format;

/// The arguments of a view: words and `key=value` pairs.
struct Arguments<'a> {
    words: Vec<&'a str>,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> Arguments<'a> {
    /// Parses arguments, and refuses options that the view does not have.
    fn read(text: &'a str, known: &[&str]) -> Result<Self, String> {
        let is_option =
            |word: &&str| word.split_once('=').is_some_and(|(key, _)| !key.contains('['));
        let (pairs, words): (Vec<&str>, _) = text.split_whitespace().partition(is_option);
        let options: Vec<_> = pairs.into_iter().filter_map(|pair| pair.split_once('=')).collect();
        match options.iter().find(|(key, _)| !known.contains(key)) {
            Some((key, _)) => Err(format!("unknown option {key}")),
            None => Ok(Self { words, options }),
        }
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.options.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    /// Returns the comma-separated values of an option.
    fn list(&self, key: &str) -> Option<Vec<&'a str>> {
        Some(self.get(key)?.split(',').collect())
    }

    fn word(&self, at: usize, what: &str) -> Result<&'a str, String> {
        self.words.get(at).copied().ok_or(format!("{what} is missing"))
    }
}

/// Returns the body of a table's region.
pub(crate) fn table(spec: &str, data: &Data) -> Result<String, String> {
    let (view, arguments) =
        spec.trim().split_once(char::is_whitespace).unwrap_or((spec.trim(), ""));
    match view {
        "accuracy" => accuracy::table(arguments, data),
        "compare" => accuracy::compare(arguments, data),
        "perplexity" => perplexity(arguments, data),
        "bench" => bench::table(arguments, data),
        "records" => records(arguments, data),
        "lines" => lines(arguments, data),
        _ => Err(format!("unknown view {view:?}")),
    }
}

/// Returns the body of a single figure: `FILE PATH [AGGREGATE] FORMAT`.
pub(crate) fn figure(spec: &str, data: &Data) -> Result<String, String> {
    let words: Vec<&str> = spec.split_whitespace().collect();
    let (file, path, aggregate, format) = match words[..] {
        [file, path, format] => (file, path, None, format),
        [file, path, aggregate, format] => (file, path, Some(aggregate), format),
        _ => return Err("a figure is FILE PATH [AGGREGATE] FORMAT".into()),
    };
    let json = data.json(file)?;
    let found = select(&json, path).map_err(|e| format!("{file}: {e}"))?;
    let number = |v: &&Value| v.as_f64().ok_or(format!("{path}: {v} is not a number"));
    let numbers = || found.iter().map(number);
    let fold = |of: fn(f64, f64) -> f64| -> Result<Value, String> {
        let all = numbers().collect::<Result<Vec<f64>, String>>()?;
        Ok(all.into_iter().reduce(of).unwrap_or(0.0).into())
    };
    match aggregate {
        None => match found[..] {
            [one] => format::value(one, format),
            _ => Err(format!("{file}: {path}: {} values and no aggregate", found.len())),
        },
        Some("count") => format::value(&found.len().into(), format),
        Some("sum") => format::value(&fold(|a, b| a + b)?, format),
        Some("min") => format::value(&fold(f64::min)?, format),
        Some("max") => format::value(&fold(f64::max)?, format),
        Some("mean") => {
            let sum = fold(|a, b| a + b)?.as_f64().unwrap_or(0.0);
            format::value(&(sum / found.len() as f64).into(), format)
        }
        Some("range") => {
            let ends = [fold(f64::min)?, fold(f64::max)?];
            let [low, high] = [format::value(&ends[0], format)?, format::value(&ends[1], format)?];
            Ok(if low == high { low } else { format!("{low} to {high}") })
        }
        Some(other) => Err(format!("unknown aggregate {other}")),
    }
}

/// Formats a Markdown table. Columns of numbers are aligned right.
fn markdown(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let is_number = |cell: &String| cell.chars().all(|c| !c.is_alphabetic()) || cell.contains('%');
    let has_unit = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit());
    let right =
        |at: usize| at > 0 && rows.iter().all(|row| is_number(&row[at]) || has_unit(&row[at]));
    let rule: Vec<String> =
        (0..header.len()).map(|at| if right(at) { "---:" } else { "---" }.into()).collect();
    let body: String = rows.iter().map(|row| line(row)).collect();
    line(header) + &line(&rule) + &body
}

fn perplexity(arguments: &str, data: &Data) -> Result<String, String> {
    let arguments = Arguments::read(arguments, &["protocol", "models", "windows"])?;
    let json = data.json(arguments.word(0, "the file")?)?;
    let protocol = arguments.get("protocol").ok_or("protocol= is missing")?;
    let all: Vec<String> = select(&json, "runs.model")?.into_iter().map(text_of).collect();
    let models = arguments.list("models").unwrap_or(all.iter().map(String::as_str).collect());
    let column = |model: &str| {
        let path = format!("runs[model={model}].perplexity.results[protocol={protocol}]");
        select(&json, &path)
    };
    let columns = models.iter().map(|model| column(model)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::new();
    for (at, result) in columns[0].iter().enumerate() {
        let window = text_of(&result["window"]);
        if arguments.list("windows").is_some_and(|list| !list.contains(&window.as_str())) {
            continue;
        }
        let cell = |column: &Vec<&Value>| format::value(&column[at]["perplexity"], ".2");
        let cells = columns.iter().map(cell).collect::<Result<Vec<_>, _>>()?;
        rows.push([vec![format::value(&result["window"], "int")?], cells].concat());
    }
    let change = |column: &Vec<&Value>| -> Option<String> {
        let change = &column.last()?["change"];
        let of = |value: &Value| Some(100.0 * value.as_f64()?.exp_m1());
        let [low, high] = [of(&change["loss_interval"][0])?, of(&change["loss_interval"][1])?];
        Some(format!("{:+.1}% ± {:.1}", of(&change["loss"])?, (high - low) / 2.0))
    };
    let cells: Vec<String> = columns.iter().map(|c| change(c).unwrap_or_default()).collect();
    rows.push([vec!["change".to_string()], cells].concat());
    let names = models.iter().map(|model| format!("`{model}`"));
    let header: Vec<String> = std::iter::once("window".to_string()).chain(names).collect();
    Ok(markdown(&header, &rows))
}

fn records(arguments: &str, data: &Data) -> Result<String, String> {
    let arguments = Arguments::read(arguments, &["columns"])?;
    let (file, path) = (arguments.word(0, "the file")?, arguments.word(1, "the path")?);
    let json = data.json(file)?;
    let columns = arguments.list("columns").ok_or("columns= is missing")?;
    let columns: Vec<(&str, &str)> = columns
        .into_iter()
        .map(|column| column.split_once(':').unwrap_or((column, "text")))
        .collect();
    let found = select(&json, path).map_err(|e| format!("{file}: {e}"))?;
    if let Some((key, _)) =
        columns.iter().find(|(key, _)| !found.iter().any(|r| r.get(key).is_some()))
    {
        return Err(format!("{file}: {path}: no record has {key}"));
    }
    let cell = |record: &Value, (key, format): &(&str, &str)| match record.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(value) => format::value(value, format),
    };
    let row = |record: &&Value| columns.iter().map(|column| cell(record, column)).collect();
    let rows = found.iter().map(row).collect::<Result<Vec<Vec<String>>, String>>()?;
    let header: Vec<String> = columns.iter().map(|(key, _)| key.replace('_', " ")).collect();
    Ok(markdown(&header, &rows))
}

fn lines(arguments: &str, data: &Data) -> Result<String, String> {
    let arguments = Arguments::read(arguments, &["lines"])?;
    let file = arguments.word(0, "the file")?;
    let text = data.text(file)?;
    let (from, to) = match arguments.get("lines") {
        None => (1, text.lines().count()),
        Some(range) => {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let number =
                |text: &str| text.parse().map_err(|_| format!("{text:?} is not a line number"));
            (number(from)?, number(to)?)
        }
    };
    let taken: Vec<&str> = text.lines().skip(from.max(1) - 1).take(to + 1 - from).collect();
    if taken.len() != to + 1 - from {
        return Err(format!("{file} has no lines {from}-{to}"));
    }
    Ok(format!("```text\n{}\n```", taken.join("\n").trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_a_view_does_not_have_are_refused() {
        assert!(Arguments::read("a.json modles=tra", &["models"]).is_err());
        let read = Arguments::read("a.json runs[model=tra].x models=b,c", &["models"]).unwrap();
        assert_eq!(read.words, ["a.json", "runs[model=tra].x"]);
        assert_eq!(read.list("models").unwrap(), ["b", "c"]);
    }

    #[test]
    fn columns_of_numbers_are_aligned_to_the_right() {
        let cells = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        let table = markdown(&cells("a b c"), &[cells("d 1 e"), cells("f – 2")]);
        assert_eq!(table, "| a | b | c |\n| --- | ---: | --- |\n| d | 1 | e |\n| f | – | 2 |\n");
    }
}
