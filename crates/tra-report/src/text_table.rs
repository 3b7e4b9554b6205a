//! A plain-text table that fits a terminal.

use std::fmt::{Display, Formatter, Result};

/// Width of the terminal, in characters.
const WIDTH: usize = 80;

/// A plain-text table: label columns on the left, value columns on the right.
///
/// Each column is as wide as its widest cell. Value columns that do not fit in 80 characters
/// continue in another block below, with the labels repeated.
///
/// ```
/// let mut table = tra_report::TextTable::new(1, ["split", "exact"]);
/// table.row(["iid", "100.0%"]);
/// assert_eq!(table.to_string(), "split  exact\niid   100.0%\n");
/// ```
#[derive(Clone, Debug)]
pub struct TextTable {
    labels: usize,
    headers: usize,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Starts a table. The first `labels` columns are labels and aligned left; the others are
    /// aligned right.
    pub fn new<T: Into<String>>(labels: usize, header: impl IntoIterator<Item = T>) -> Self {
        Self { labels, headers: 0, rows: Vec::new() }.header(header)
    }

    /// Adds a line to the header.
    pub fn header<T: Into<String>>(mut self, cells: impl IntoIterator<Item = T>) -> Self {
        self.row(cells);
        self.headers = self.rows.len();
        self
    }

    /// Adds a row.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Adds an empty line, unless the table has no rows yet.
    pub fn gap(&mut self) {
        if self.rows.len() > self.headers {
            self.rows.push(Vec::new());
        }
    }

    /// Returns the width of the widest cell of each column.
    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..columns).map(width).collect()
    }
}

/// Splits value columns into blocks that fit beside the labels. Each block has at least one column.
fn blocks(labels: &[usize], values: &[usize]) -> Vec<std::ops::Range<usize>> {
    let before = labels.iter().map(|width| width + 1).sum::<usize>();
    let (mut blocks, mut start, mut used) = (Vec::new(), 0, before);
    for (column, width) in values.iter().enumerate() {
        if column > start && used + width > WIDTH {
            blocks.push(start..column);
            (start, used) = (column, before);
        }
        used += width + 1;
    }
    blocks.push(start..values.len());
    blocks
}

impl Display for TextTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let widths = self.widths();
        let (labels, values) = widths.split_at(self.labels.min(widths.len()));
        for (number, block) in blocks(labels, values).into_iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            for row in &self.rows {
                let cell = |column: usize| row.get(column).map_or("", String::as_str);
                let mut line = String::new();
                for (column, width) in labels.iter().enumerate() {
                    line += &format!("{:<width$} ", cell(column));
                }
                for (column, width) in values.iter().enumerate().take(block.end).skip(block.start) {
                    line += &format!("{:>width$} ", cell(self.labels + column));
                }
                writeln!(f, "{}", line.trim_end())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let mut table = TextTable::new(1, ["", "iid", "iid"]).header(["length", "512", "65,536"]);
        table.gap();
        table.row(["tra", "100.0", "100.0"]);
        table.gap();
        table.row(["rope", "85.0±7.1", "-"]);
        let expected = "            iid    iid\nlength      512 65,536\ntra       100.0  100.0\n\n\
                        rope   85.0±7.1      -\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn what_does_not_fit_goes_on_below_with_its_labels() {
        for columns in [1, 6, 7, 40] {
            let names = (0..columns).map(|n| format!("column-{n}"));
            let mut table = TextTable::new(1, [String::new()].into_iter().chain(names));
            table.row(std::iter::once("label".into()).chain((0..columns).map(|n| n.to_string())));
            let text = table.to_string();
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert_eq!(text.matches("column-").count(), columns);
            assert_eq!(text.matches("label").count(), text.split("\n\n").count());
        }
    }

    #[test]
    fn a_cell_wider_than_a_line_stands_alone() {
        let mut table = TextTable::new(1, ["a", "b", "c"]);
        table.row(["x", &"y".repeat(100), "z"]);
        assert_eq!(table.to_string().split("\n\n").count(), 2);
        assert_eq!(TextTable::new(1, [""; 0]).to_string(), "\n");
    }
}
