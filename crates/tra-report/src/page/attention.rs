//! Pictures of the keys that each head keeps, and how much it attends to them.

use super::scale::number;
use super::series::Task;
use super::{HeadPicture, Picture, Run};
use crate::text::{escape, percent, plural, shorten};

/// Longer sequences are merged into this many rows and columns.
const MOST_CELLS: usize = 64;
const LONGEST_TOKEN: usize = 7;
/// Smallest weight of each class after the first. The scale is the same in every picture, so that
/// heads can be compared.
const CLASSES: [f32; 7] = [0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.75];

/// Returns the section on attention; empty if no run has a picture.
pub fn section(tasks: &[Task]) -> String {
    if tasks.iter().flat_map(Task::runs).all(|run| run.picture.is_none()) {
        return String::new();
    }
    let mut out = String::from(
        "<p>Attention on one sequence. Rows are queries and columns are keys. A blank square below \
         the diagonal is a key that the query does not keep. The palest tint is a kept key with \
         almost no weight. Layers and heads are numbered from 0, as in the checkpoint.</p>\n",
    );
    out += &legend();
    for series in tasks.iter().flat_map(|task| &task.series) {
        let pictured = series.runs.iter().filter_map(|run| Some((run, run.picture.as_ref()?)));
        for (i, (run, picture)) in pictured.enumerate() {
            out += &run_pictures(run, picture, i == 0);
        }
    }
    out
}

fn legend() -> String {
    let from = CLASSES.iter().map(|weight| format!("from {weight}"));
    let items: String = std::iter::once(format!("kept, under {}", CLASSES[0]))
        .chain(from)
        .enumerate()
        .map(|(class, text)| {
            format!(
                "<li><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\">\
                 <path class=\"w{class}\" d=\"M0 0h12v12h-12z\"/></svg>{text}</li>"
            )
        })
        .collect();
    format!("<ul class=\"weights\" aria-label=\"Attention weight\">{items}</ul>\n")
}

/// Shows the heads of one run. Only the first run of a mechanism starts open, because seeds tend
/// to look alike.
fn run_pictures(run: &Run, picture: &Picture, open: bool) -> String {
    let length = picture.tokens.len();
    let mut heads = String::new();
    let mut wrong = 0;
    for (layer, row) in picture.layers.iter().enumerate() {
        for (head, pairs) in row.iter().enumerate() {
            match Triangle::new(pairs, length) {
                Some(triangle) => {
                    let name = format!("Layer {layer}, head {head}");
                    heads += &figure(&name, run, picture, pairs, &triangle);
                }
                None => wrong += 1,
            }
        }
    }
    let block = length.div_ceil(MOST_CELLS).max(1);
    let merged = if block > 1 {
        format!(
            "<p>The sequence has {length} tokens. Each square stands for {block} × {block} pairs \
             and shows their largest weight. It is blank if none of them is kept.</p>\n"
        )
    } else {
        String::new()
    };
    let note = if wrong > 0 {
        format!(
            "<p>{} left out: the size does not match the sequence.</p>\n",
            plural(wrong, "head")
        )
    } else {
        String::new()
    };
    format!(
        "<details class=\"run\"{}><summary>{} <span class=\"more\">{}, seed {}</span></summary>\n\
         {merged}{note}<div class=\"heads\">{heads}</div></details>\n",
        if open { " open" } else { "" },
        escape(&run.name),
        escape(&run.attention),
        run.seed,
    )
}

fn figure(
    name: &str,
    run: &Run,
    picture: &Picture,
    head: &HeadPicture,
    cells: &Triangle,
) -> String {
    let n = cells.size;
    let cell = (416.0 / n as f64).clamp(6.0, 22.0);
    let tokens: Vec<String> = if picture.tokens.len() <= MOST_CELLS {
        picture.tokens.iter().map(|t| read(t)).collect()
    } else {
        Vec::new()
    };
    let letters = tokens.iter().map(|token| token.chars().count()).max().unwrap_or(0);
    let size = (cell * 0.86).min(11.0);
    let margin = 20.0 + letters as f64 * size * 0.62;
    let side = n as f64 * cell;
    let (width, height) = (margin + side + 2.0, side + margin + 2.0);
    format!(
        "<figure><p class=\"over\">{name}</p>\n<svg class=\"head\" viewBox=\"0 0 {w} {h}\" role=\"img\" \
         style=\"max-width:{mw}px\"><title>{title}</title><desc>{stats}</desc>\n\
         <g transform=\"translate({m} 1)\"><g transform=\"scale({cell:.3})\" \
         shape-rendering=\"crispEdges\">{paths}</g>\
         <path class=\"edge\" d=\"{edge}\"/>{labels}\
         <text class=\"name\" x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">key</text>\
         <text class=\"name\" transform=\"translate({before} {middle}) rotate(-90)\" \
         text-anchor=\"middle\">query</text></g></svg>\n\
         <figcaption>{stats}</figcaption></figure>\n",
        w = number(width),
        h = number(height),
        mw = number(width * 1.2),
        title = escape(&format!("{}: {name}", run.name)),
        m = number(margin),
        paths = cells.paths(),
        edge = edge(n, cell),
        labels = token_labels(&tokens, cell, size),
        middle = number(side / 2.0),
        below = number(side + margin - 4.0),
        before = number(9.0 - margin),
        stats = Stats::of(head, picture.tokens.len()).words(),
    )
}

/// Returns the label of a token on an axis.
fn read(token: &str) -> String {
    if token.trim().is_empty() { "␣".into() } else { shorten(token, LONGEST_TOKEN) }
}

fn token_labels(tokens: &[String], cell: f64, size: f64) -> String {
    let mut out = format!("<g class=\"tokens\" font-size=\"{}\">", number(size));
    let side = tokens.len() as f64 * cell;
    let upright = tokens.iter().all(|token| token.chars().count() < 2);
    for (i, token) in tokens.iter().enumerate() {
        let at = (i as f64 + 0.5) * cell;
        let (baseline, token) = (number(at + size * 0.34), escape(token));
        out += &format!("<text x=\"-3\" y=\"{baseline}\" text-anchor=\"end\">{token}</text>");
        out += &if upright {
            let (x, y) = (number(at), number(side + size));
            format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{token}</text>")
        } else {
            let y = number(side + 4.0);
            format!(
                "<text transform=\"translate({baseline} {y}) rotate(-90)\" \
                 text-anchor=\"end\">{token}</text>"
            )
        };
    }
    out + "</g>"
}

/// Returns the outline of the visible pairs, with one step per token.
fn edge(n: usize, cell: f64) -> String {
    let mut out = String::from("M0 0");
    for i in 1..=n {
        out += &format!("H{}V{}", number(i as f64 * cell), number(i as f64 * cell));
    }
    out + "H0z"
}

/// The class of each visible pair or block of pairs; `None` if no key is kept.
struct Triangle {
    size: usize,
    /// Shape `[size, size]`.
    classes: Vec<Option<usize>>,
}

impl Triangle {
    /// Classifies the pairs; `None` if the matrices are not `[length, length]`.
    fn new(head: &HeadPicture, length: usize) -> Option<Self> {
        let pairs = length.checked_mul(length)?;
        let fits = [head.keep.len(), head.count.len(), head.weights.len()] == [pairs; 3];
        if length == 0 || !fits {
            return None;
        }
        let block = length.div_ceil(MOST_CELLS);
        let size = length.div_ceil(block);
        let mut classes = vec![None; size * size];
        for query in 0..length {
            for key in (0..=query).filter(|key| head.keep[query * length + key]) {
                let weight = head.weights[query * length + key];
                // NaN counts as no weight.
                let class = CLASSES.iter().filter(|&&from| weight >= from).count();
                let cell = &mut classes[query / block * size + key / block];
                *cell = (*cell).max(Some(class));
            }
        }
        Some(Self { size, classes })
    }

    /// Returns one path per class, with neighbours in a row merged. One rectangle per pair would
    /// make the page ten times larger.
    fn paths(&self) -> String {
        let mut paths = vec![String::new(); CLASSES.len() + 1];
        for (y, row) in self.classes.chunks(self.size).enumerate() {
            let mut x = 0;
            for run in row.chunk_by(|a, b| a == b) {
                if let Some(class) = run[0] {
                    paths[class] += &format!("M{x} {y}h{n}v1h-{n}z", n = run.len());
                }
                x += run.len();
            }
        }
        let drawn = paths.iter().enumerate().filter(|(_, path)| !path.is_empty());
        drawn.map(|(class, path)| format!("<path class=\"w{class}\" d=\"{path}\"/>")).collect()
    }
}

/// Sums over the visible pairs of one head.
struct Stats {
    length: usize,
    kept: usize,
    weight: f64,
    weighted_count: f64,
    counts: bool,
}

impl Stats {
    fn of(head: &HeadPicture, length: usize) -> Self {
        let mut stats = Self { length, kept: 0, weight: 0.0, weighted_count: 0.0, counts: false };
        for query in 0..length {
            for pair in (query * length..=query * length + query).filter(|&pair| head.keep[pair]) {
                stats.kept += 1;
                stats.counts |= head.count[pair] > 0;
                let weight = f64::from(head.weights[pair]);
                if weight.is_finite() {
                    stats.weight += weight;
                    stats.weighted_count += weight * f64::from(head.count[pair]);
                }
            }
        }
        stats
    }

    fn words(&self) -> String {
        let visible = self.length * (self.length + 1) / 2;
        let mut out = format!(
            "{:.1} keys kept per query ({} of the visible keys)",
            self.kept as f64 / self.length as f64,
            percent(self.kept as f64 / visible as f64),
        );
        if self.counts && self.weight > 0.0 {
            out += &format!(
                "; mean count of the attended key {:.1}",
                self.weighted_count / self.weight
            );
        }
        out + "."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(length: usize) -> HeadPicture {
        HeadPicture {
            keep: vec![true; length * length],
            count: vec![2; length * length],
            weights: vec![0.5; length * length],
        }
    }

    #[test]
    fn only_kept_and_visible_pairs_are_drawn_and_neighbours_are_merged() {
        let mut head = head(3);
        head.keep[6] = false;
        head.weights[0] = f32::NAN;
        let triangle = Triangle::new(&head, 3).unwrap();
        assert_eq!(
            triangle.paths(),
            "<path class=\"w0\" d=\"M0 0h1v1h-1z\"/>\
             <path class=\"w6\" d=\"M0 1h2v1h-2zM1 2h2v1h-2z\"/>"
        );
        let words = Stats::of(&head, 3).words();
        assert_eq!(
            words,
            "1.7 keys kept per query (83.3% of the visible keys); \
             mean count of the attended key 2.0."
        );
    }

    #[test]
    fn wrong_sizes_are_refused() {
        assert!(Triangle::new(&head(3), 4).is_none());
        assert!(Triangle::new(&head(0), 0).is_none());
        let short = HeadPicture { count: vec![0; 8], ..head(3) };
        assert!(Triangle::new(&short, 3).is_none());
    }

    #[test]
    fn long_sequences_are_merged() {
        let triangle = Triangle::new(&head(200), 200).unwrap();
        assert_eq!(triangle.size, 50);
    }
}
