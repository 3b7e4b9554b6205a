//! A line plot as SVG: axes, grid, lines with bands, and their names at the line ends.

use super::marks::Mark;
use super::scale::{Kind, Scale, Tick, decade_ticks, linear_ticks, number};
use crate::text::{escape, shorten};

/// Width of a letter: slightly more than the average of common system fonts at 13 px.
const LETTER: f64 = 7.2;
const LINE_HEIGHT: f64 = 16.0;
/// Distance of the data from the frame, so that lines at 0% and 100% stay whole.
const INSET: f64 = 8.0;

/// Largest ratio of values that a linear axis shows well. Beyond it, the axis is logarithmic.
const FAR: f64 = 4.0;
/// With more lines than this, the bands and raw values under them are drawn fainter.
const CROWD: usize = 9;

/// The width a plot is drawn for. Each width has its own drawing, so that text keeps its size.
#[derive(Clone, Copy, PartialEq)]
pub enum Size {
    /// Full width of the page.
    Wide,
    /// Full width of a phone.
    Narrow,
    /// One of several plots side by side.
    Panel,
}

pub struct Axis {
    pub label: String,
    pub kind: Kind,
    pub low: f64,
    pub high: f64,
    pub ticks: Vec<Tick>,
}

pub struct Point {
    pub x: f64,
    pub y: f64,
    /// Smallest and largest value over seeds; equal if there is one seed.
    pub low: f64,
    pub high: f64,
    /// Tooltip.
    pub tip: String,
}

pub struct Line {
    pub mark: Mark,
    /// Name at the end of the line; `None` for further lines of the same name.
    pub label: Option<String>,
    pub points: Vec<Point>,
    /// The raw values behind smoothed `points`, drawn faintly.
    pub raw: Vec<(f64, f64)>,
    /// Whether every point has a marker; otherwise only the last one has.
    pub dots: bool,
}

/// A marked stretch of the x axis.
pub struct Stretch {
    pub from: f64,
    pub to: f64,
    pub label: String,
}

pub struct Plot {
    pub title: String,
    pub description: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    pub stretches: Vec<Stretch>,
}

/// Where a line with a name ends.
struct End<'a> {
    line: &'a Line,
    label: &'a str,
    x: f64,
    y: f64,
}

struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: Scale,
    y: Scale,
}

impl Axis {
    /// Returns a linear axis that fits the finite values; `None` if there are none.
    pub fn linear(label: &str, values: impl Iterator<Item = f64>) -> Option<Self> {
        let (low, high) = ends(values)?;
        let room = if high > low { 0.05 * (high - low) } else { 0.1 * high.abs().max(1e-3) };
        // The values shown are never negative, so the margin does not extend below zero.
        let (low, high) = ((low - room).max(low.min(0.0)), high + room);
        let ticks = linear_ticks(low, high, 5);
        Some(Self { label: label.into(), kind: Kind::Linear, low, high, ticks })
    }

    /// Returns a linear axis if that shows all values well, otherwise a logarithmic one.
    pub fn fitted(label: &str, values: impl Iterator<Item = f64>) -> Option<Self> {
        let (low, high) = ends(values)?;
        if low <= 0.0 || high <= FAR * low {
            return Self::linear(label, [low, high].into_iter());
        }
        let ticks = decade_ticks(low, high);
        Some(Self { label: format!("{label} (log scale)"), kind: Kind::Log, low, high, ticks })
    }
}

/// Returns the smallest and the largest finite value.
fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.filter(|value| value.is_finite()).map(|value| (value, value));
    finite.reduce(|(low, high), (value, _)| (low.min(value), high.max(value)))
}

impl Point {
    pub fn plain(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y, tip: String::new() }
    }
}

impl Size {
    fn dimensions(self) -> (f64, f64) {
        match self {
            Self::Wide => (860.0, 400.0),
            Self::Narrow => (360.0, 300.0),
            Self::Panel => (350.0, 230.0),
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
            Self::Panel => "panel",
        }
    }

    fn longest_label(self) -> usize {
        if self == Self::Wide { 30 } else { 13 }
    }
}

impl Plot {
    /// Draws the plot at full width, with a second drawing for phones.
    pub fn figure(&self, caption: &str) -> String {
        format!(
            "<figure>\n{}\n{}\n<figcaption>{caption}</figcaption></figure>\n",
            self.svg(Size::Wide),
            self.svg(Size::Narrow)
        )
    }

    /// Draws the plot as one of several side by side.
    pub fn panel(&self) -> String {
        format!(
            "<figure><p class=\"over\">{}</p>\n{}</figure>\n",
            escape(&self.title),
            self.svg(Size::Panel)
        )
    }

    fn svg(&self, size: Size) -> String {
        let (width, height) = size.dimensions();
        let frame = self.frame(size);
        let mut out = format!(
            "<svg class=\"plot {}{}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\
             <title>{}</title><desc>{}</desc>\n",
            size.class(),
            if self.lines.len() > CROWD { " crowded" } else { "" },
            escape(&self.title),
            escape(&self.description),
        );
        out += &self.axes(&frame, height);
        out += &self.stretches(&frame, width);
        out += &self.lines.iter().map(|line| frame.under(line)).collect::<String>();
        out += &self.lines.iter().map(|line| frame.over(line)).collect::<String>();
        out += &self.labels(&frame, size);
        out + "</svg>"
    }

    fn frame(&self, size: Size) -> Frame {
        let (width, height) = size.dimensions();
        let letters = |texts: &mut dyn Iterator<Item = &String>| {
            texts.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let ticks = letters(&mut self.y.ticks.iter().map(|(_, text)| text));
        let names = letters(&mut self.lines.iter().filter_map(|line| line.label.as_ref()));
        let left = 30.0 + ticks as f64 * LETTER;
        let right = width - 22.0 - names.min(size.longest_label()) as f64 * LETTER;
        let top = 12.0 + self.stretches.len() as f64 * LINE_HEIGHT;
        let bottom = height - 44.0;
        let scale = |axis: &Axis, start, end| Scale {
            kind: axis.kind,
            low: axis.low,
            high: axis.high,
            start,
            end,
        };
        Frame {
            left,
            right,
            top,
            bottom,
            x: scale(&self.x, left + INSET, right - INSET),
            y: scale(&self.y, bottom - INSET, top + INSET),
        }
    }

    fn axes(&self, frame: &Frame, height: f64) -> String {
        let Frame { left, right, top, bottom, x, y } = frame;
        let (mut grid, mut texts) = (String::new(), String::new());
        for (value, text) in x.thin(self.x.ticks.clone(), LETTER) {
            let at = number(x.at(value));
            grid += &format!("M{at} {}V{}", number(*top), number(*bottom));
            texts += &format!(
                "<text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                number(bottom + 17.0)
            );
        }
        for (value, text) in y.thin(self.y.ticks.clone(), 1.0) {
            let at = y.at(value);
            grid += &format!("M{} {}H{}", number(*left), number(at), number(*right));
            texts += &format!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{text}</text>",
                number(left - 7.0),
                number(at + 4.5)
            );
        }
        format!(
            "<path class=\"grid\" d=\"{grid}\"/><path class=\"axis\" d=\"M{l} {t}V{b}H{r}\"/>\
             <g class=\"ticks\">{texts}</g>\
             <text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text class=\"name\" transform=\"translate(14 {}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>\n",
            number((left + right) / 2.0),
            number(height - 7.0),
            escape(&self.x.label),
            number((top + bottom) / 2.0),
            escape(&self.y.label),
            l = number(*left),
            t = number(*top),
            b = number(*bottom),
            r = number(*right),
        )
    }

    fn stretches(&self, frame: &Frame, width: f64) -> String {
        let mut out = String::new();
        for (row, stretch) in self.stretches.iter().enumerate() {
            let to = frame.x.at(stretch.to);
            // A stretch that starts left of the plot is shaded up to the edge.
            let beyond = stretch.from < stretch.to && stretch.from <= self.x.low;
            let from = if beyond { frame.left } else { frame.x.at(stretch.from) };
            let text_y = 11.0 + row as f64 * LINE_HEIGHT;
            let long = stretch.label.chars().count() as f64 * LETTER;
            // The label starts or ends at the line, whichever keeps it on the page.
            let (anchor, x) =
                if to + long + 6.0 < width { ("start", to + 5.0) } else { ("end", to - 5.0) };
            out += &format!(
                "<path class=\"stretch\" d=\"M{} {}H{}V{}H{}z\"/>\
                 <path class=\"mark\" d=\"M{t} {}V{}\"/>\
                 <text class=\"mark\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>\n",
                number(from),
                number(frame.top),
                number(to),
                number(frame.bottom),
                number(from),
                number(text_y - 10.0),
                number(frame.bottom),
                number(x),
                number(text_y),
                escape(&stretch.label),
                t = number(to),
            );
        }
        out
    }

    /// Draws names at the line ends, moved apart if they would overlap.
    fn labels(&self, frame: &Frame, size: Size) -> String {
        let mut ends: Vec<End> = self.lines.iter().filter_map(|line| frame.end(line)).collect();
        ends.sort_by(|a, b| a.x.total_cmp(&b.x));
        let mut out = String::new();
        for column in ends.chunk_by(|a, b| a.x == b.x) {
            let wished: Vec<f64> = column.iter().map(|end| end.y).collect();
            let placed = apart(&wished, LINE_HEIGHT, frame.top + 4.0, frame.bottom - 4.0);
            for (end, y) in column.iter().zip(placed) {
                // A line that ends early has its name beside its last point. A leader across the
                // plot would look like part of the line.
                let x = if end.x >= frame.x.end - 1.0 { frame.right + 9.0 } else { end.x + 15.0 };
                out += &format!(
                    "<g class=\"{}\"><path class=\"leader\" d=\"M{} {}L{} {}\"/>\
                     <text class=\"label\" x=\"{}\" y=\"{}\">{}</text></g>\n",
                    end.line.mark.class,
                    number(end.x + 6.0),
                    number(end.y),
                    number(x),
                    number(y),
                    number(x + 4.0),
                    number(y + 4.5),
                    escape(&shorten(end.label, size.longest_label())),
                );
            }
        }
        out
    }
}

impl Frame {
    fn end<'a>(&self, line: &'a Line) -> Option<End<'a>> {
        let (label, point) = (line.label.as_ref()?, line.points.last()?);
        Some(End { line, label, x: self.x.at(point.x), y: self.y.at(point.y) })
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut out = String::new();
        for (x, y) in points.filter(|(x, y)| x.is_finite() && y.is_finite()) {
            out.push(if out.is_empty() { 'M' } else { 'L' });
            out += &format!("{} {}", number(self.x.at(x)), number(self.y.at(y)));
        }
        out
    }

    /// Draws what lies under all lines: the band over seeds and the raw values.
    fn under(&self, line: &Line) -> String {
        let mut out = format!("<g class=\"{}\">", line.mark.class);
        let spread = line.points.iter().any(|point| point.low < point.high);
        if let ([point], true) = (line.points.as_slice(), spread) {
            let whisker = self.path([(point.x, point.low), (point.x, point.high)].into_iter());
            out += &format!("<path class=\"whisker\" d=\"{whisker}\"/>");
        } else if spread {
            let upper = line.points.iter().map(|point| (point.x, point.high));
            let lower = line.points.iter().rev().map(|point| (point.x, point.low));
            out += &format!("<path class=\"band\" d=\"{}z\"/>", self.path(upper.chain(lower)));
        }
        if line.raw.len() > 1 {
            let raw = self.path(line.raw.iter().copied());
            out += &format!("<path class=\"raw\" d=\"{raw}\"/>");
        }
        out + "</g>\n"
    }

    fn over(&self, line: &Line) -> String {
        let mut out = format!("<g class=\"{}\">", line.mark.class);
        if line.points.len() > 1 {
            out += &format!(
                "<path class=\"line\" d=\"{}\"{}/>",
                self.path(line.points.iter().map(|point| (point.x, point.y))),
                line.mark.dash_attribute()
            );
        }
        let skipped = if line.dots { 0 } else { line.points.len().saturating_sub(1) };
        for point in line.points.iter().skip(skipped) {
            let shape = line.mark.shape(self.x.at(point.x), self.y.at(point.y));
            out += &format!(
                "<path class=\"dot\" d=\"{shape}\"><title>{}</title></path>",
                escape(&point.tip)
            );
        }
        out + "</g>\n"
    }
}

/// Returns the heights nearest to `wished`, in the same order, at least `gap` apart if there is
/// room.
fn apart(wished: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wished.len()).collect();
    order.sort_by(|&a, &b| wished[a].total_cmp(&wished[b]));
    let gap = gap.min((bottom - top) / (wished.len().max(2) - 1) as f64);
    let mut placed = wished.to_vec();
    let mut least = top;
    for &i in &order {
        placed[i] = placed[i].max(least);
        least = placed[i] + gap;
    }
    let mut most = bottom;
    for &i in order.iter().rev() {
        placed[i] = placed[i].min(most);
        most = placed[i] - gap;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_covers_its_finite_values_and_bends_where_they_are_far_apart() {
        let fitted = |values: &[f64]| Axis::fitted("y", values.iter().copied());
        let near = fitted(&[10.0, f64::NAN, 20.0, f64::INFINITY]).unwrap();
        assert_eq!((near.kind, near.low, near.high), (Kind::Linear, 9.5, 20.5));
        let far = fitted(&[10.0, 50.0]).unwrap();
        assert_eq!((far.kind, far.label.as_str()), (Kind::Log, "y (log scale)"));
        let flat = fitted(&[0.0]).unwrap();
        assert!(flat.low < flat.high && flat.ticks.len() > 1);
        assert!(fitted(&[f64::NAN]).is_none());
    }

    #[test]
    fn labels_do_not_overlap_and_keep_their_order() {
        assert_eq!(apart(&[10.0, 12.0, 90.0], 16.0, 4.0, 96.0), [10.0, 26.0, 90.0]);
        assert_eq!(apart(&[95.0, 96.0, 94.0], 16.0, 4.0, 96.0), [80.0, 96.0, 64.0]);
        let many = apart(&[50.0; 20], 16.0, 0.0, 95.0);
        assert!(many.windows(2).all(|pair| (pair[1] - pair[0] - 5.0).abs() < 1e-9), "{many:?}");
        assert!(apart(&[], 16.0, 0.0, 1.0).is_empty());
    }
}
