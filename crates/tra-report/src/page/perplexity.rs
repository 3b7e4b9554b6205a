//! The plots of perplexity against window, and of loss against position in the window.

use super::losses;
use super::plot::{Axis, Line, Plot, Point, Stretch};
use super::scale::{Kind, Tick, length_ticks};
use super::series::{Series, Spread, Task};
use super::windows::{Cut, Reading, one_a_window, readings, trained};
use crate::records::{PositionLoss, Protocol};
use crate::text::{escape, lengths, loss, perplexity, plural, whole};

/// Returns the section on perplexity; empty if it was not measured.
pub fn section(task: &Task) -> String {
    let readings = readings(task);
    let part = |reading: &Reading| {
        let heading = format!(
            "<h4>{}: {} tokens, {} bytes</h4>\n",
            escape(reading.text),
            whole(reading.tokens),
            whole(reading.bytes)
        );
        let heading = if readings.len() > 1 { heading } else { String::new() };
        heading + &read(task, reading)
    };
    readings.iter().map(part).collect()
}

fn read(task: &Task, reading: &Reading) -> String {
    let cuts = reading.cuts(task);
    let mut out = String::new();
    for same in cuts.chunk_by(|a, b| a.protocol == b.protocol) {
        let shown = one_a_window(same);
        let points = task.series.iter().map(|series| window_points(reading, series, &shown));
        let title = match same[0].protocol {
            Protocol::Chunk => "Perplexity against window: chunk protocol",
            Protocol::Sliding => "Perplexity against window: sliding protocol",
        };
        let plot = window_plot(task, title, &shown, points.collect());
        out += &figure(plot, title, &window_caption(task, reading, same));
    }
    out += &losses::by_window(task, reading, &cuts);
    if let Some(cut) = widest_with_positions(task, reading, &cuts) {
        let title = format!("Loss by position in the window, {} tokens", whole(cut.window as u64));
        let points = task.series.iter().map(|series| position_points(reading, series, cut));
        let plot = position_plot(task, &title, points.collect());
        out += &figure(plot, &title, &position_caption(reading, cut));
    }
    out
}

fn figure(plot: Option<Plot>, title: &str, caption: &str) -> String {
    match plot {
        Some(plot) => format!("<p class=\"over\">{title}</p>\n{}", plot.figure(caption)),
        None => format!("<p class=\"over\">{title}</p>\n<p>No result is finite.</p>\n"),
    }
}

fn window_points(reading: &Reading, series: &Series, cuts: &[Cut]) -> Vec<Point> {
    let point = |cut: &Cut| {
        let scores = reading.scores(series, *cut);
        let spread = scores.spread()?;
        let window = whole(cut.window as u64);
        Some(Point {
            x: cut.window.max(1) as f64,
            y: spread.mean,
            low: spread.least,
            high: spread.most,
            tip: format!(
                "{}, window {window}: perplexity {}; {}",
                series.label,
                perplexity(spread.mean),
                scores.words()
            ),
        })
    };
    cuts.iter().filter_map(point).collect()
}

fn window_plot(task: &Task, title: &str, cuts: &[Cut], points: Vec<Vec<Point>>) -> Option<Plot> {
    let ticks = cuts.iter().map(|cut| (cut.window.max(1) as f64, whole(cut.window as u64)));
    let x = Axis {
        label: format!("Window ({}, log scale)", task.unit),
        ticks: ticks.collect(),
        ..token_axis(task, &points)
    };
    let y = Axis::fitted("Perplexity", heights(&points))?;
    let description = "Perplexity of the text against the window, the number of tokens read at \
                       once. The table below has the numbers.";
    Some(plot(task, title, description, (x, y), points))
}

/// Returns a point per position bin. The bins are those of the first seed that has any, because
/// every model reads the same windows.
fn position_points(reading: &Reading, series: &Series, cut: Cut) -> Vec<Point> {
    let results = reading.at(series, cut);
    let Some((_, first)) = results.iter().find(|(_, result)| !result.by_position.is_empty()) else {
        return Vec::new();
    };
    let point = |bin: &PositionLoss| {
        let same = |other: &&PositionLoss| (other.from, other.to) == (bin.from, bin.to);
        let in_bin = results.iter().filter_map(|(_, result)| result.by_position.iter().find(same));
        // The last bin may extend beyond the window, where there are no tokens.
        let to = bin.to.min(cut.window);
        let spread = Spread::of(in_bin.filter(|bin| bin.tokens > 0).map(|bin| bin.loss))?;
        Some(Point {
            // The middle of the bin on a log axis.
            x: (bin.from.max(1) as f64 * to.max(1) as f64).sqrt(),
            y: spread.mean,
            low: spread.least,
            high: spread.most,
            tip: format!(
                "{}, after {} tokens: loss {} ({} scored)",
                series.label,
                lengths(bin.from, to),
                loss(spread.mean),
                whole(bin.tokens),
            ),
        })
    };
    let mut points: Vec<Point> = first.by_position.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

fn position_plot(task: &Task, title: &str, points: Vec<Vec<Point>>) -> Option<Plot> {
    let x = token_axis(task, &points);
    let x = Axis { label: "Preceding tokens in the window (log scale)".into(), ..x };
    let y = Axis::linear("Loss (nats)", heights(&points))?;
    let description = "Mean loss per token against the number of preceding tokens in its window.";
    Some(plot(task, title, description, (x, y), points))
}

fn widest_with_positions(task: &Task, reading: &Reading, cuts: &[Cut]) -> Option<Cut> {
    let known = |cut: &&Cut| {
        let mut results = task.series.iter().flat_map(|series| reading.at(series, **cut));
        cut.protocol == Protocol::Chunk && results.any(|(_, r)| !r.by_position.is_empty())
    };
    cuts.iter().filter(known).max_by_key(|cut| cut.window).copied()
}

fn plot(
    task: &Task,
    title: &str,
    description: &str,
    (x, y): (Axis, Axis),
    points: Vec<Vec<Point>>,
) -> Plot {
    let line = |(series, points): (&Series, Vec<Point>)| Line {
        mark: series.mark.clone(),
        label: (!points.is_empty()).then(|| series.label.clone()),
        points,
        raw: Vec::new(),
        dots: true,
    };
    // Training on a window also trains all shorter ones, so the shading starts left of the plot.
    let stretch = |window: usize| Stretch {
        from: 0.0,
        to: window as f64,
        label: format!("training window: {}", whole(window as u64)),
    };
    Plot {
        title: format!("{}: {title}", task.name),
        description: description.into(),
        x,
        y,
        lines: task.series.iter().zip(points).map(line).collect(),
        stretches: marked(task).into_iter().map(stretch).collect(),
    }
}

/// Returns the training windows to mark. Each mark takes a row above the plot, so there are at
/// most four.
fn marked(task: &Task) -> Vec<usize> {
    trained(task).into_iter().take(4).collect()
}

/// Returns an axis that covers all points and the marked training windows.
fn token_axis(task: &Task, points: &[Vec<Point>]) -> Axis {
    let windows = marked(task).into_iter().map(|window| window as f64);
    let values = points.iter().flatten().map(|point| point.x).chain(windows);
    let (low, high) =
        values.fold((f64::MAX, 1.0), |(low, high), value| (value.min(low), value.max(high)));
    let (low, high) = if low < high { (low, high) } else { (high / 2.0, high * 2.0) };
    let ticks: Vec<Tick> = length_ticks(low, high);
    Axis { label: String::new(), kind: Kind::Log, low, high, ticks }
}

fn heights(points: &[Vec<Point>]) -> impl Iterator<Item = f64> {
    points.iter().flatten().flat_map(|point| [point.low, point.high])
}

fn window_caption(task: &Task, reading: &Reading, cuts: &[Cut]) -> String {
    let how = match cuts[0].protocol {
        Protocol::Chunk => {
            "The windows do not overlap, so the first tokens of each window have little context."
        }
        Protocol::Sliding => "The windows overlap, and only the new tokens of each are scored.",
    };
    let mut out = format!(
        "Perplexity against window on <b>{}</b>, {} tokens scored. {how}",
        escape(reading.text),
        whole(reading.tokens),
    );
    if task.series.iter().any(|series| series.runs.len() > 1) {
        out += " Lines are means over seeds; bands span from the best seed to the worst.";
    }
    let scores = cuts.iter().flat_map(|&cut| task.series.iter().map(move |s| (s, cut)));
    let bad: usize = scores.map(|(series, cut)| reading.scores(series, cut).not_finite()).sum();
    if bad > 0 {
        out += &format!(" Omitted: {} not finite.", plural(bad, "result"));
    }
    out
}

fn position_caption(reading: &Reading, cut: Cut) -> String {
    format!(
        "Mean loss per token of <b>{}</b> against the number of preceding tokens in its window; \
         {} tokens scored. The windows of {} tokens do not overlap.",
        escape(reading.text),
        whole(reading.tokens),
        whole(cut.window as u64),
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Report, Run, fixture, series};
    use super::*;

    fn page(report: &Report) -> String {
        section(&series::tasks(&report.runs)[0])
    }

    fn changed(change: impl Fn(&mut Run)) -> String {
        let mut report = fixture::text();
        report.runs.iter_mut().for_each(change);
        page(&report)
    }

    #[test]
    fn both_protocols_and_the_positions_of_the_widest_window_are_shown() {
        let html = page(&fixture::text());
        let chunk = html.find("chunk protocol").unwrap();
        assert!(chunk < html.find("sliding protocol").unwrap());
        assert!(html.contains("Loss by position in the window, 512 tokens"));
        assert_eq!(html.matches("<figure>").count(), 3);
        assert!(html.contains("training window: 128"));
        assert!(html.contains("tra, window 512: perplexity 20.50; seed 0: 20.00 (95% interval 19"));
        assert!(html.contains("rope, after 128–511 tokens: loss 3.500 (384 scored)"));
        assert_eq!(html.matches("10,000 tokens scored").count(), 3);
    }

    #[test]
    fn a_bin_ends_with_the_window() {
        let html = changed(|run| {
            let result = &mut run.perplexity.as_mut().unwrap().results[2];
            result.by_position.push(PositionLoss { from: 512, to: 1023, tokens: 9, loss: 3.0 });
        });
        assert!(html.contains("tra, after 512 tokens: loss 3.000 (9 scored)"), "{html}");
    }

    #[test]
    fn a_protocol_that_was_not_used_has_no_plot() {
        let only = |protocol| {
            changed(|run| {
                run.perplexity.as_mut().unwrap().results.retain(|r| r.protocol == protocol)
            })
        };
        let html = only(Protocol::Sliding);
        assert!(!html.contains("chunk") && !html.contains("by position"));
        assert!(!only(Protocol::Chunk).contains("sliding"));
        assert_eq!(changed(|run| run.perplexity = None), "");
        assert_eq!(changed(|run| run.perplexity.as_mut().unwrap().results.clear()), "");
    }

    #[test]
    fn far_values_stand_on_a_log_axis() {
        assert!(page(&fixture::text()).contains(">Perplexity</text>"));
        let html = changed(|run| {
            let results = &mut run.perplexity.as_mut().unwrap().results;
            results.iter_mut().for_each(|r| r.perplexity = r.window as f64);
        });
        assert!(html.contains(">Perplexity (log scale)</text>"));
    }

    #[test]
    fn the_text_is_escaped_and_several_texts_stand_apart() {
        let mut report = fixture::text();
        assert!(page(&report).contains("<b>a&lt;b&gt;.txt</b>"));
        report.runs[0].perplexity.as_mut().unwrap().text = "c<d>".into();
        let html = page(&report);
        assert!(!html.contains("<d>") && html.contains("<h4>c&lt;d&gt;: 10,000 tokens"));
        assert_eq!(html.matches("<table>").count(), 2);
    }

    #[test]
    fn what_is_not_finite_is_left_out_and_counted() {
        let html = changed(|run| {
            if run.attention == "rope" {
                let results = &mut run.perplexity.as_mut().unwrap().results;
                results[2].perplexity = f64::INFINITY;
                results[2].perplexity_interval = [f64::NAN, f64::INFINITY];
                results[2].by_position[0].loss = f64::NAN;
            }
        });
        assert!(html.contains("Omitted: 2 results not finite."));
        assert!(!html.contains("NaN") && !html.contains("inf"));
        let html = changed(|run| {
            let results = &mut run.perplexity.as_mut().unwrap().results;
            results.iter_mut().for_each(|result| result.perplexity = f64::NAN);
        });
        assert!(html.contains("No result is finite."));
    }
}
