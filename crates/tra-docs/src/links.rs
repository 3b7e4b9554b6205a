//! Checks that links within the repository have a target.

use std::path::Path;

use crate::Problem;
use crate::parts::{Kind, parts};

/// Returns the relative links of a document whose file or heading does not exist.
pub fn broken(path: &Path, text: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    for (line, target) in links(text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
        let folder = path.parent().unwrap_or(path);
        let target_file = folder.join(file);
        let read = if file.is_empty() {
            Ok(text.to_string())
        } else {
            std::fs::read_to_string(&target_file)
        };
        let leads = match read {
            Ok(other) => anchor.is_empty() || headings(&other).any(|heading| heading == anchor),
            Err(_) => anchor.is_empty() && target_file.exists(),
        };
        if !leads {
            found.push(Problem { line, what: format!("broken link to {target}") });
        }
    }
    found
}

fn links(text: &str) -> Vec<(usize, String)> {
    let parts = parts(text).unwrap_or_default();
    let code = parts.iter().filter(|part| part.kind == Kind::Code);
    let target = |text: &str| Some(text.strip_prefix("](")?.trim().to_string());
    code.filter_map(|part| Some((part.line, target(part.text)?))).collect()
}

/// Returns the anchors of a document's headings, as GitHub generates them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let name = line.trim_start_matches('#').trim().to_lowercase();
        let kept = name.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_nowhere_are_found() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("page.md");
        let text = "# One thing\n[a](Cargo.toml) [b](#one-thing) [c](https://x.y)\n[d](gone.md) [e](#gone)\n";
        let lines: Vec<usize> = broken(&path, text).into_iter().map(|p| p.line).collect();
        assert_eq!(lines, [3, 3]);
    }
}
