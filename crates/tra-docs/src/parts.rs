//! Splits a document into prose, code and generated regions.

use crate::Problem;

/// The kind of a part of a document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind<'a> {
    /// Words, and fenced blocks that are not code.
    Prose,
    /// Code, comments, and targets of links.
    Code,
    /// A generated table with its two comments.
    Table {
        /// The specification in the first comment.
        spec: &'a str,
    },
    /// A generated figure with its two comments.
    Figure {
        /// The specification in the first comment.
        spec: &'a str,
    },
}

/// A part of a document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part<'a> {
    /// Its kind.
    pub kind: Kind<'a>,
    /// All of its text.
    pub text: &'a str,
    /// Start of its text in the document, in bytes.
    pub at: usize,
    /// Line of its start, from 1.
    pub line: usize,
    /// Byte range of the generated body in the document; empty for other kinds.
    pub body: (usize, usize),
}

/// Languages of fenced blocks that are code. All other blocks are output, which counts as prose.
const LANGUAGES: &[&str] = &["json", "md", "python", "rust", "sh", "toml", "yaml"];

const TABLE: (&str, &str) = ("<!-- figures:", "<!-- /figures -->");
const FIGURE: (&str, &str) = ("<!--=", "<!--/-->");

/// Splits a document. The concatenated parts are the document.
pub fn parts(text: &str) -> Result<Vec<Part<'_>>, Problem> {
    let mut found: Vec<Part<'_>> = Vec::new();
    let (mut at, mut prose) = (0, 0);
    let mut line = 1;
    let mut push = |kind, at: usize, end: usize, body| {
        if at < end {
            found.push(Part { kind, text: &text[at..end], at, line, body });
            line += text[at..end].matches('\n').count();
        }
    };
    while at < text.len() {
        let here = |what| Problem { line: 1 + text[..at].matches('\n').count(), what };
        match special(text, at).map_err(here)? {
            None => at += text[at..].chars().next().map_or(1, char::len_utf8),
            Some((kind, end, body)) => {
                push(Kind::Prose, prose, at, (0, 0));
                push(kind, at, end, body);
                (at, prose) = (end, end);
            }
        }
    }
    push(Kind::Prose, prose, at, (0, 0));
    Ok(found)
}

type Special<'a> = Option<(Kind<'a>, usize, (usize, usize))>;

/// Returns the part other than prose that starts at `at`, and where it ends.
fn special(text: &str, at: usize) -> Result<Special<'_>, String> {
    let rest = &text[at..];
    if !rest.starts_with(['<', '`', ']', 'h']) {
        return Ok(None);
    }
    let code = |length: Option<usize>| Ok(length.map(|length| (Kind::Code, at + length, (0, 0))));
    let begins_line = text[..at].rsplit('\n').next().is_some_and(|line| line.trim().is_empty());
    if rest.starts_with(TABLE.0) {
        let (spec, body, end) = region(rest, TABLE)?;
        return Ok(Some((Kind::Table { spec }, at + end, (at + body.0, at + body.1))));
    }
    if rest.starts_with(FIGURE.0) {
        let before = text[..at].rsplit('\n').next().unwrap_or_default();
        if before.trim_start_matches([' ', '-', '*', '>']).is_empty() {
            return Err(
                "a figure must not start a line: Markdown would show the line as HTML".into()
            );
        }
        let (spec, body, end) = region(rest, FIGURE)?;
        return Ok(Some((Kind::Figure { spec }, at + end, (at + body.0, at + body.1))));
    }
    if rest.starts_with(TABLE.1) || rest.starts_with(FIGURE.1) {
        return Err("the end of a region without its start".into());
    }
    if rest.starts_with("<!--") {
        return code(rest.find("-->").map(|end| end + 3));
    }
    if begins_line && rest.starts_with("```") {
        let indent = text[..at].rsplit('\n').next().unwrap_or_default();
        let close = format!("\n{indent}```");
        let end = rest.find(&close).ok_or("a fenced block without its end")? + close.len();
        let language = rest[3..].lines().next().unwrap_or_default().trim();
        let output = !LANGUAGES.contains(&language);
        return Ok(Some((if output { Kind::Prose } else { Kind::Code }, at + end, (0, 0))));
    }
    if rest.starts_with('`') {
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        let inner = &rest[ticks..];
        let paragraph = &inner[..inner.find("\n\n").unwrap_or(inner.len())];
        return code(paragraph.find(&rest[..ticks]).map(|end| end + 2 * ticks));
    }
    if rest.starts_with("](") {
        return code(rest.find(')'));
    }
    if rest.starts_with("https://") || rest.starts_with("http://") {
        return code(rest.find([' ', '\n', '>', ')']).or(Some(rest.len())));
    }
    Ok(None)
}

type Region<'a> = (&'a str, (usize, usize), usize);

/// Reads a region at the start of a text: its specification, its body, and where it ends.
fn region<'a>(rest: &'a str, (open, close): (&str, &str)) -> Result<Region<'a>, String> {
    let spec = rest.find("-->").ok_or("a comment without its end")?;
    let body = spec + 3;
    let length = rest[body..].find(close).ok_or(format!("a region without its {close}"))?;
    if rest[body..body + length].contains(open) {
        return Err(format!("a region without its {close}"));
    }
    Ok((&rest[open.len()..spec], (body, body + length), body + length + close.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_links_comments_and_regions_are_told_from_prose() {
        let text = "a `b 1` [c](d2) <!-- e 3 -->\n```sh\nf 4\n```\n<!-- figures: g -->\n5\n<!-- /figures -->\n\
                    ```\nh 6\n```\nat <!--= i -->7<!--/--> https://j/8\n";
        let all = parts(text).unwrap();
        assert_eq!(all.iter().map(|part| part.text).collect::<String>(), text);
        let prose = all.iter().filter(|part| part.kind == Kind::Prose);
        let digits: String =
            prose.flat_map(|part| part.text.chars()).filter(char::is_ascii_digit).collect();
        assert_eq!(digits, "6");
        let bodies: Vec<&str> = all.iter().map(|part| &text[part.body.0..part.body.1]).collect();
        assert!(bodies.contains(&"\n5\n") && bodies.contains(&"7"), "{bodies:?}");
    }

    #[test]
    fn a_figure_does_not_begin_a_line() {
        assert!(parts("a <!--= b c int -->1<!--/-->").is_ok());
        for text in
            ["<!--= b c int -->1<!--/-->", "a\n  <!--= b -->1<!--/-->", "- <!--= b -->1<!--/-->"]
        {
            assert!(parts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_region_that_does_not_end_is_an_error() {
        for text in ["<!-- figures: a -->\n1\n", "a <!--= a -->1", "1 <!-- /figures -->", "```\n1"]
        {
            assert!(parts(text).is_err(), "{text}");
        }
    }
}
