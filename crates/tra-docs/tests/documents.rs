//! Checks that the documents of this repository match their raw results.

use std::path::{Path, PathBuf};

use tra_docs::data::Data;
use tra_docs::parts::{Kind, parts};
use tra_docs::{Problem, check, documents, links, prose, root};

fn read_all() -> Vec<(PathBuf, String)> {
    let paths = documents(&root().canonicalize().unwrap()).unwrap();
    assert!(paths.len() > 10, "{paths:?}");
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

fn report(problems: Vec<(&Path, Problem)>) {
    let lines: Vec<String> =
        problems.iter().map(|(path, problem)| format!("{}:{problem}", path.display())).collect();
    assert!(lines.is_empty(), "\n{}", lines.join("\n"));
}

#[test]
fn every_figure_is_generated() {
    let (all, data) = (read_all(), Data::new(&root()));
    report(
        all.iter()
            .flat_map(|(p, t)| check(t, &data).into_iter().map(|e| (p.as_path(), e)))
            .collect(),
    );
}

#[test]
fn every_link_leads_somewhere() {
    let all = read_all();
    report(
        all.iter()
            .flat_map(|(p, t)| links::broken(p, t).into_iter().map(|e| (p.as_path(), e)))
            .collect(),
    );
}

/// Returns where a document has the last digit of a number, in prose or in a generated region.
///
/// Dates, versions, arXiv ids and list numbers are omitted, because a document may contain any.
fn last_digits(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for part in parts(text).unwrap() {
        let (from, to) = match part.kind {
            Kind::Code => continue,
            Kind::Prose => (part.at, part.at + part.text.len()),
            Kind::Table { .. } | Kind::Figure { .. } => part.body,
        };
        let digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        let last = (from..to).filter(|at| digit(*at) && !digit(at + 1));
        found.extend(last.filter(|at| part.kind != Kind::Prose || !in_label(text, *at)));
    }
    found
}

fn in_label(text: &str, at: usize) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || ".-:".contains(c);
    let from = text[..at].rfind(|c| !part_of_word(c)).map_or(0, |before| before + 1);
    let to = text[at..].find(|c| !part_of_word(c)).map_or(text.len(), |after| at + after);
    let begins_line = text[..from].rsplit('\n').next().is_some_and(|line| line.trim().is_empty());
    prose::is_label(text[from..to].trim_matches(['.', ':', '-']))
        || (begins_line && text[..to].ends_with('.'))
}

#[test]
fn changing_any_number_by_its_last_digit_is_noticed() {
    let (data, mut changed) = (Data::new(&root()), 0);
    for (path, text) in read_all() {
        for at in last_digits(&text) {
            let digit = (text.as_bytes()[at] - b'0' + 1) % 10;
            let mutated = format!("{}{digit}{}", &text[..at], &text[at + 1..]);
            let line = 1 + text[..at].matches('\n').count();
            assert!(!check(&mutated, &data).is_empty(), "{}:{line} may be changed", path.display());
            changed += 1;
        }
    }
    println!("{changed} numbers changed, each was noticed");
    assert!(changed > 500, "{changed}");
}

#[test]
fn a_number_added_to_any_document_is_noticed() {
    let data = Data::new(&root());
    for (path, text) in read_all() {
        for added in ["\nIt is right 99.5% of the time.\n", "\n| `tra` | 431 ms |\n"] {
            assert!(!check(&format!("{text}{added}"), &data).is_empty(), "{}", path.display());
        }
    }
}

/// Only results that documents show are kept. Everything else is in the git history.
#[test]
fn results_are_few_and_small_and_every_folder_says_what_it_is() {
    let results = root().join("docs/results");
    let (mut folders, mut files, mut bytes) = (vec![results.clone()], 0, 0);
    while let Some(folder) = folders.pop() {
        assert!(folder.join("README.md").is_file(), "{} has no README.md", folder.display());
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                files += 1;
                bytes += entry.metadata().unwrap().len();
            }
        }
    }
    assert!(files <= 100 && bytes <= 2_500_000, "{files} files, {bytes} bytes");
}
