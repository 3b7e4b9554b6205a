//! Generates the figures of the documents from raw results.
//!
//! Also checks that no figure was typed by hand.
//!
//! ```sh
//! cargo run -p tra-docs      # rewrites every generated region
//! cargo test -p tra-docs     # fails if a document differs from what that command writes
//! ```
//!
//! # Regions
//!
//! A generated table is enclosed by two comments. The first one names a raw file under
//! `docs/results`, and what to take from it:
//!
//! ```md
//! <!-- figures: accuracy copy/results.json models=tra,rope -->
//! … written by `cargo run -p tra-docs` …
//! <!-- /figures -->
//! ```
//!
//! A single figure in prose names a file, a path into its JSON, and a format:
//!
//! ```md
//! on up to <!--= copy/results.json runs[seed=1,model=tra].settings.steps int -->800<!--/--> steps
//! ```
//!
//! | view | arguments | what it writes |
//! | --- | --- | --- |
//! | `accuracy` | `FILE [task=] [models=] [tests=SPLIT@LENGTH,…] [metric=token_error] [seeds=each]` | a row per model (and seed), a column per test |
//! | `compare` | `models=`, then one line per row: `FILE SPLIT@LENGTH [task=] [fresh=FILE]` | a row per test, a column per model |
//! | `perplexity` | `FILE protocol= [models=] [windows=]` | a row per window, a column per model |
//! | `bench` | `FILE… columns=tra,rope,tra:eager,rope:torch [measure=memory\|factor]` | a row per case, a column per implementation |
//! | `records` | `FILE PATH columns=KEY[:FORMAT],…` | a row per JSON object |
//! | `lines` | `FILE [lines=FROM-TO]` | lines of a text file in a fenced block |
//!
//! Formats: `text`, `int` (with thousands separators), `.2` (decimals), `%1` (a share in percent),
//! `time`, `bytes`. To combine several values into a single figure, put `mean`, `sum`, `min`,
//! `max`, `count` or `range` before the format.
//!
//! # The rule
//!
//! A document has no digits outside generated regions, code, comments and link targets. The
//! exceptions are names that contain a digit ([`prose::NAMES`]), dates, versions, arXiv ids and the
//! numbers of an ordered list. A fenced block without a programming language is output, so it
//! follows the rule too. Inline code that consists only of a measured figure (`99.5%`, `12 ms`) is
//! refused.

pub mod data;
pub mod format;
pub mod links;
pub mod parts;
pub mod prose;
mod views;

use std::fmt;
use std::path::{Path, PathBuf};

use data::Data;
use parts::{Kind, parts};

/// A problem in a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Line of the document, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

/// Returns the root of the workspace that this crate was built in.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Lists the documents to check: those at the root and in `docs`, including every folder of
/// results.
pub fn documents(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    collect(root, false, &mut all)?;
    collect(&root.join("docs"), true, &mut all)?;
    all.sort();
    Ok(all)
}

fn collect(folder: &Path, deep: bool, all: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && deep {
            collect(&path, deep, all)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            all.push(path);
        }
    }
    Ok(())
}

/// Returns the document with every region regenerated.
pub fn render(text: &str, data: &Data) -> Result<String, Problem> {
    let mut out = String::new();
    for part in parts(text)? {
        match part.kind {
            Kind::Table { spec } => {
                let body = data.remember(spec, || views::table(spec, data));
                let body = body.map_err(|what| Problem { line: part.line, what })?;
                out += &format!("<!-- figures:{spec}-->\n{}\n<!-- /figures -->", body.trim_end());
            }
            Kind::Figure { spec } => {
                let body = data.remember(spec, || views::figure(spec, data));
                let body = body.map_err(|what| Problem { line: part.line, what })?;
                out += &format!("<!--={spec}-->{body}<!--/-->");
            }
            Kind::Prose | Kind::Code => out += part.text,
        }
    }
    Ok(out)
}

/// Returns all problems with the figures of a document.
pub fn check(text: &str, data: &Data) -> Vec<Problem> {
    let mut problems = match render(text, data) {
        Err(problem) => return vec![problem],
        Ok(rendered) => differences(text, &rendered),
    };
    problems.extend(prose::typed_figures(text));
    problems
}

fn differences(text: &str, rendered: &str) -> Vec<Problem> {
    let lines = text.lines().zip(rendered.lines()).enumerate();
    let differs =
        lines.filter(|(_, (is, should))| is != should).map(|(at, (is, should))| Problem {
            line: at + 1,
            what: format!("{is:?} should be {should:?}; run `cargo run -p tra-docs`"),
        });
    let mut all: Vec<Problem> = differs.take(3).collect();
    if all.is_empty() && text != rendered {
        let line = text.lines().count().min(rendered.lines().count());
        all.push(Problem { line, what: "differs from what `cargo run -p tra-docs` writes".into() });
    }
    all
}
