//! Every measured figure in README and docs is found in a raw file of this repository.
//!
//! A figure is a number with a decimal point or a unit, or a whole number from 100,000 on. It must be found in a file that its own section, or
//! one above it, links to: as it is printed there, or by rounding a number of it; times may be given as ratios
//! of two medians of one benchmark. What was not measured, as a setting or what others published, stands in
//! `NOT_MEASURED`, where a reader can judge it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Phrases with numbers that nobody measured here, and where they stand.
const NOT_MEASURED: &[(&str, &str)] = &[
    ("docs/bench.md", "can show more than 100%"),
    ("docs/bench.md", "24 GiB"),
    ("docs/bench.md", "dropout 0.01 in training"),
    // What we set out to reach.
    ("docs/bench.md", "| 2.5x |"),
    ("docs/bench.md", "| 1.3x |"),
    ("docs/bench.md", "| 10x |"),
    ("docs/bench.md", "| 2x |"),
    ("docs/bench.md", "| 20x |"),
    ("docs/bench.md", "| 1.5x |"),
    ("docs/bench.md", "at most 9.6x"),
    ("docs/bench.md", "at most 1.5x"),
    // Defaults.
    ("docs/runs.md", "| 0.05 |"),
    ("docs/runs.md", "| [0.9, 0.98] |"),
    ("docs/runs.md", "| 0.01 |"),
    ("docs/runs.md", "| 1.0 |"),
    ("docs/runs.md", "95% intervals"),
    // What the TRA paper says.
    ("README.md", "12-14% more than RoPE"),
];

/// Whole numbers that are lengths or steps, and so were not found but asked for.
const SETTINGS: [f64; 3] = [100_000.0, 262_144.0, 1_048_576.0];

/// What has versions.
const VERSIONED: [&str; 4] = ["Rust", "PyTorch", "Burn", "Debian"];

const UNITS: &[(&str, f64)] = &[
    ("%", 100.0),
    ("ms", 1e3),
    ("µs", 1e6),
    ("s", 1.0),
    ("seconds", 1.0),
    ("min", 1.0 / 60.0),
    ("minutes", 1.0 / 60.0),
    ("hours", 1.0 / 3600.0),
    ("MiB", 1.0 / 1_048_576.0),
    ("GiB", 1.0 / 1_073_741_824.0),
    ("GFLOP/s", 1e-9),
    ("tokens/s", 1.0),
    ("x", 1.0),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A number in a text: its value, how many decimals it has, and the unit behind it.
#[derive(Clone, Debug)]
struct Figure {
    text: String,
    value: f64,
    decimals: usize,
    unit: Option<usize>,
}

impl Figure {
    fn is_measured(&self) -> bool {
        let length = SETTINGS.contains(&self.value);
        self.decimals > 0 || self.unit.is_some() || (self.value >= 1e5 && !length)
    }
}

/// All numbers of a text. `1,234.5` is one; digits in words (`f32`, `step-100`) and in dates are none.
fn numbers(text: &str) -> Vec<Figure> {
    let chars: Vec<char> = text.chars().collect();
    let digit = |i: usize| chars.get(i).is_some_and(char::is_ascii_digit);
    let mut found = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        if !digit(i) {
            i += 1;
            continue;
        }
        let begin = i;
        let mut shown = String::new();
        let mut decimals = 0;
        while digit(i) {
            shown.push(chars[i]);
            i += 1;
            let group = chars.get(i) == Some(&',') && (1..4).all(|k| digit(i + k)) && !digit(i + 4);
            if group && decimals == 0 {
                i += 1;
            }
        }
        if chars.get(i) == Some(&'.') && digit(i + 1) {
            shown.push('.');
            i += 1;
            while digit(i) {
                shown.push(chars[i]);
                decimals += 1;
                i += 1;
            }
        }
        let before = begin.checked_sub(1).map(|at| chars[at]);
        let after = chars.get(i).copied();
        let in_word = before.is_some_and(|c| c.is_alphabetic() || c == '_' || c == '.')
            || (before == Some('-') && begin > 1 && chars[begin - 2].is_alphanumeric());
        let word = chars[..begin].iter().rev().skip(1).take_while(|c| c.is_alphabetic());
        let word: String = word.collect::<String>().chars().rev().collect();
        let version = before == Some(' ') && VERSIONED.contains(&word.as_str());
        // A version, a date, a power, a name.
        let goes_on = matches!(after, Some('.' | '-')) && digit(i + 1) || after == Some('e');
        if in_word || goes_on || version {
            while i < chars.len() && (chars[i].is_alphanumeric() || ".-".contains(chars[i])) {
                i += 1;
            }
            continue;
        }
        let rest: String = chars[i..chars.len().min(i + 10)].iter().collect();
        let word = rest.trim_start_matches([' ', '\u{a0}']);
        let unit = UNITS.iter().position(|(unit, _)| {
            let near = word.len() == rest.len() || (*unit != "x" && *unit != "%");
            let end = |tail: &str| !tail.starts_with(|c: char| c.is_alphanumeric() || c == '/');
            near && word.strip_prefix(unit).is_some_and(end)
        });
        let value = shown.parse().unwrap();
        found.push(Figure { text: shown, value, decimals, unit });
    }
    found
}

/// What a raw file holds: the numbers as printed, and those that are ratios of medians.
#[derive(Default)]
struct Raw {
    printed: BTreeSet<String>,
    values: Vec<f64>,
    ratios: Vec<f64>,
}

impl Raw {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut raw = Self::default();
        match serde_json::from_str::<serde_json::Value>(&text) {
            Ok(json) => {
                let mut medians = Vec::new();
                raw.collect(&json, &mut medians);
                for a in &medians {
                    raw.ratios.extend(medians.iter().map(|b| a / b));
                }
                raw.values.extend(medians);
            }
            Err(_) => {
                for figure in numbers(&text) {
                    raw.values.push(figure.value);
                    raw.printed.insert(figure.text);
                }
            }
        }
        raw
    }

    fn collect(&mut self, json: &serde_json::Value, medians: &mut Vec<f64>) {
        match json {
            serde_json::Value::Number(number) => self.values.extend(number.as_f64()),
            serde_json::Value::Array(items) => {
                let mut all: Vec<f64> = items.iter().filter_map(|item| item.as_f64()).collect();
                if all.len() > 1 && all.len() == items.len() {
                    all.sort_by(f64::total_cmp);
                    medians.push(all[all.len() / 2]);
                }
                items.iter().for_each(|item| self.collect(item, medians));
            }
            serde_json::Value::Object(fields) => {
                for (name, field) in fields {
                    if name.contains("seconds") || name.contains("memory") {
                        let inner = field.as_object().into_iter().flat_map(|of| of.values());
                        medians.extend(inner.chain([field]).filter_map(|value| value.as_f64()));
                    }
                    self.collect(field, medians);
                }
            }
            _ => {}
        }
    }

    fn has(&self, figure: &Figure) -> bool {
        let rounds = |value: f64| {
            let scale = 10f64.powi(figure.decimals as i32);
            ((value * scale).round() - figure.value * scale).abs() < 0.01
        };
        let scaled = |factor: f64| self.values.iter().any(|value| rounds(value.abs() * factor));
        let unit = figure.unit.map_or(1.0, |unit| UNITS[unit].1);
        self.printed.contains(&figure.text)
            || scaled(1.0)
            || scaled(unit)
            || (figure.unit.is_none() && scaled(100.0))
            || self.ratios.iter().any(|ratio| rounds(*ratio))
    }
}

/// A part of a page under one heading, without code that is no output.
struct Section {
    heading: String,
    level: usize,
    text: String,
}

fn sections(page: &str) -> Vec<Section> {
    let mut all = vec![Section { heading: String::new(), level: 0, text: String::new() }];
    let (mut code, mut output) = (false, false);
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            (code, output) = (!code, !code && language.is_empty());
            continue;
        }
        if !code && line.starts_with('#') {
            let level = line.chars().take_while(|c| *c == '#').count();
            let heading = line[level..].trim().to_string();
            all.push(Section { heading, level, text: String::new() });
        } else if !code || output {
            let section = all.last_mut().unwrap();
            section.text += line;
            section.text.push('\n');
        }
    }
    all
}

/// A text without what stands between backquotes and in the addresses of links, which are given apart.
fn prose(text: &str) -> (String, Vec<String>) {
    let mut links = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        let target: String = rest[at + 2..].chars().take_while(|c| *c != ')').collect();
        rest = &rest[at + 2 + target.len()..];
        links.push(target);
    }
    let mut plain = text.to_string();
    for link in &links {
        plain = plain.replace(&format!("]({link})"), "]");
    }
    let plain = plain.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    (plain, links)
}

/// The raw files behind a link: itself, or all in its folder.
fn raw_files(page: &Path, link: &str) -> Vec<PathBuf> {
    let target = link.split('#').next().unwrap_or_default();
    if target.is_empty() || target.contains("://") {
        return Vec::new();
    }
    let path = page.parent().unwrap().join(target);
    assert!(path.exists(), "{}: {link} leads nowhere", page.display());
    let raw = |path: &Path| {
        let known = ["json", "jsonl", "txt", "log", "toml"];
        known.contains(&path.extension().unwrap_or_default().to_string_lossy().as_ref())
    };
    let inside = path.canonicalize().unwrap().starts_with(root().join("docs"));
    match path {
        _ if !inside => Vec::new(),
        path if path.is_file() && !path.ends_with("README.md") => {
            if raw(&path) {
                vec![path]
            } else {
                Vec::new()
            }
        }
        path => {
            let folder = if path.is_dir() { path } else { path.parent().unwrap().to_path_buf() };
            walk(&folder).into_iter().filter(|file| raw(file)).collect()
        }
    }
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all.extend(walk(&path)) } else { all.push(path) }
    }
    all.sort();
    all
}

/// The figures of a page that are in no raw file they should be in.
fn missing(page: &Path, text: &str) -> Vec<String> {
    let mut lost = Vec::new();
    // The page of a folder of results is about what is in it.
    let own = page.parent().unwrap();
    let of_folder = own.starts_with(root().join("docs/results/")) && !own.ends_with("results");
    let beside = if of_folder { raw_files(page, "README.md") } else { Vec::new() };
    let mut above: Vec<(usize, Vec<PathBuf>)> = Vec::new();
    for section in sections(text) {
        let (plain, links) = prose(&section.text);
        let own = links.iter().flat_map(|link| raw_files(page, link)).collect();
        above.retain(|(level, _)| *level < section.level);
        above.push((section.level, own));
        let figures: Vec<Figure> =
            numbers(&plain).into_iter().filter(Figure::is_measured).collect();
        if figures.is_empty() {
            continue;
        }
        let files: BTreeSet<&PathBuf> =
            above.iter().flat_map(|(_, files)| files).chain(&beside).collect();
        let raws: Vec<Raw> = files.into_iter().map(|file| Raw::read(file)).collect();
        for figure in figures.iter().filter(|figure| !raws.iter().any(|raw| raw.has(figure))) {
            let unit = figure.unit.map_or("", |unit| UNITS[unit].0);
            lost.push(format!("{}: {}: {} {unit}", page.display(), section.heading, figure.text));
        }
    }
    lost
}

#[test]
fn every_figure_in_readme_and_docs_is_in_a_raw_file() {
    let root = root();
    let results = walk(&root.join("docs/results"));
    let readmes = results.into_iter().filter(|path| path.ends_with("README.md"));
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let pages = std::iter::once(root.join("README.md")).chain(docs).chain(readmes);
    let mut lost = Vec::new();
    for page in pages {
        let mut text = std::fs::read_to_string(&page).unwrap();
        let name = page.strip_prefix(&root).unwrap().display().to_string();
        for (_, phrase) in NOT_MEASURED.iter().filter(|(of, _)| *of == name) {
            assert!(text.contains(phrase), "{name} does not say {phrase:?} any more");
            text = text.replace(phrase, "");
        }
        lost.extend(missing(&page, &text));
    }
    assert!(lost.is_empty(), "not in a raw file that is linked to:\n{}", lost.join("\n"));
}

#[test]
fn figures_are_told_from_other_numbers() {
    let of = |text: &str| -> Vec<String> {
        let all = numbers(text).into_iter();
        let figures = all.filter(Figure::is_measured);
        figures.map(|f| f.text + f.unit.map_or("", |unit| UNITS[unit].0)).collect()
    };
    assert_eq!(
        of("in 1.32 s, 431 ms, 3.05x, 12%, 1,234.5 and 7 runs"),
        ["1.32s", "431ms", "3.05x", "12%", "1234.5"]
    );
    assert!(of("Burn 0.22.1, 2026-11-16, f32, step-100, 1e-3, 8 x 512, 4,096 tokens").is_empty());
}

/// It must be able to fail.
#[test]
fn a_figure_that_nobody_measured_is_found() {
    let page = root().join("docs/results/README.md");
    let text = "# A\n[raw](text-2026-11-16.txt) 432.8 MiB and 17.38 s\n## B\n1.52 s\n# C\n1.52 s";
    let lost = missing(&page, text);
    assert_eq!(lost.len(), 2, "{lost:?}");
    assert!(lost[0].contains("17.38") && lost[1].contains(": C: 1.52"), "{lost:?}");
}
