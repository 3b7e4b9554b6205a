//! Finds figures that were typed by hand.

use crate::Problem;
use crate::parts::{Kind, parts};

/// Names with a digit that may occur in prose.
pub const NAMES: &[&str] = &[
    "Apache-2.0",
    "AVX-512",
    "AVX2",
    "f32",
    "f64",
    "GPT-2",
    "GPT-2's",
    "SHA-256",
    "u8",
    "UTF-16",
    "UTF-8",
    "WikiText-103",
    "WikiText-2",
    "x86-64",
    "XXH3",
];

/// Units that make a number a measurement.
const UNITS: &[&str] =
    &["%", "x", "s", "ms", "µs", "us", "min", "h", "KiB", "MiB", "GiB", "MB", "GB", "GFLOP/s"];

/// Returns every number in prose that is neither generated nor part of a name.
pub fn typed_figures(text: &str) -> Vec<Problem> {
    let parts = match parts(text) {
        Ok(parts) => parts,
        Err(problem) => return vec![problem],
    };
    let mut found = Vec::new();
    for part in parts {
        let refused: Vec<(usize, String)> = match part.kind {
            Kind::Prose => words(part.text).filter(|(_, word)| !is_name(word)).collect(),
            Kind::Code if is_measured(part.text) => vec![(0, part.text.to_string())],
            _ => Vec::new(),
        };
        found.extend(refused.into_iter().map(|(line, word)| Problem {
            line: part.line + line,
            what: format!("{word:?} is typed by hand: generate it from a results file"),
        }));
    }
    found
}

/// Returns the words of a text that contain a digit, each with the number of lines before it.
fn words(text: &str) -> impl Iterator<Item = (usize, String)> {
    text.split('\n').enumerate().flat_map(|(at, line)| {
        // Skips the number of a list item.
        let item = line.trim_start().split_once(". ").filter(|(number, _)| {
            !number.is_empty() && number.len() < 3 && number.bytes().all(|b| b.is_ascii_digit())
        });
        let line = item.map_or(line, |(_, rest)| rest);
        let split = line.split(|c: char| c.is_whitespace() || "/|,;()[]\"…".contains(c));
        let trim = |word: &str| word.trim_matches(|c: char| "*_.:!?'<>#".contains(c)).to_string();
        let words = split.filter(|word| word.contains(|c: char| c.is_numeric()));
        words.map(move |word| (at, trim(word))).collect::<Vec<_>>()
    })
}

/// Returns whether a word with a digit is a name and not a figure.
pub fn is_name(word: &str) -> bool {
    NAMES.contains(&word) || is_label(word)
}

/// Returns whether a word is a date, a version or an arXiv id.
pub fn is_label(word: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let fields = |by: char| word.split(by).map(|field| (field.len(), digits(field)));
    let date = fields('-').eq([(4, true), (2, true), (2, true)]);
    let version = fields('.').count() == 3 && fields('.').all(|(_, digits)| digits);
    let paper = word.strip_prefix("arXiv:").is_some_and(|id| {
        id.split('.').map(|field| (field.len(), digits(field))).eq([(4, true), (5, true)])
    });
    date || version || paper
}

/// Returns whether inline code consists only of a number with a unit.
fn is_measured(code: &str) -> bool {
    let Some(inner) = code.strip_prefix('`').and_then(|code| code.strip_suffix('`')) else {
        return false;
    };
    let number = inner.trim_matches(|c: char| c == '+' || c == '-' || c == '±');
    let unit = number.trim_start_matches(|c: char| c.is_ascii_digit() || ".,".contains(c));
    unit.len() < number.len() && UNITS.contains(&unit.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_typed_into_prose_is_refused() {
        for typed in [
            "99.5% right",
            "in 3 runs",
            "| `tra` | 12 |",
            "8 x 512",
            "about 1e-3",
            "**7**",
            "½ of it",
            "f33",
            "GPT-3",
            "version 0.2",
            "# In 5 minutes",
            "```\n100.0\n```",
            "```text\n100.0\n```",
            "`99.5%`",
            "takes `12 ms`",
            "12. of May",
            "[431 ms](raw.json)",
        ] {
            let typed = if typed.starts_with("12.") { "on 12. of May" } else { typed };
            assert!(!typed_figures(typed).is_empty(), "{typed}");
        }
    }

    #[test]
    fn names_code_and_link_targets_may_have_digits() {
        let text = "f32, (AVX-512/AVX2), GPT-2's, 2026-11-18, version 0.1.0.\n1. `--seeds 1,2`\n\
                    [paper](https://arxiv.org/abs/2503.23174) arXiv:2503.23174 `lr = 2e-3` `0.01`\n\
                    ```sh\ntra eval --lengths 300\n```\nat <!--= a b int -->7<!--/-->";
        assert_eq!(typed_figures(text), []);
    }

    #[test]
    fn the_line_is_named() {
        assert_eq!(typed_figures("a\n`b`\nc 5\n")[0].line, 3);
    }
}
