//! Tables of perplexity: by split at the end of training, and by window.

use super::scores::{Scores, lowest};
use super::series::{Series, Spread, Task};
use super::table::{over_seeds, relation, sequences, table};
use super::windows::{Cut, Reading};
use crate::records::Protocol;
use crate::text::{escape, lengths, loss, whole};

/// Returns the table of splits; empty if the trained models were not evaluated.
pub fn section(task: &Task) -> String {
    let places = task.places();
    if places.is_empty() {
        return String::new();
    }
    let rows = places.iter().map(|&place| {
        let scores = |series: &Series| Scores::at_place(series, place);
        let below = |series: &Series, scores: &Scores| {
            let results = series.results(place);
            let scored: Vec<u64> = results.iter().map(|(_, result)| result.scored).collect();
            let mean = Spread::of(scores.0.iter().map(|score| score.loss));
            let loss = mean.map_or("–".into(), |spread| loss(spread.mean));
            vec![format!("loss {loss}"), sequences(&scored)]
        };
        format!(
            "<tr><th scope=\"row\">{}</th><td class=\"length\">{}<span class=\"more\">{}</span>\
             </td>{}</tr>\n",
            escape(place.split),
            lengths(place.shortest, place.length),
            relation(task, place.length),
            cells(task, scores, below),
        )
    });
    let held_out = if places.iter().any(|place| place.split == "train") {
        " The text of the split train was used for training; the other splits were held out."
    } else {
        ""
    };
    format!(
        "<p>Perplexity at the end of training{}. Below it: {}the loss in nats, of which perplexity \
         is the exponential, and the number of scored tokens. The best value in each row is \
         <b class=\"best\">highlighted</b>. Hover over a cell to see the 95% \
         intervals.{held_out}</p>\n{}",
        over_seeds(task),
        intervals(task, "the 95% interval").map(|words| words + ", ").unwrap_or_default(),
        table(task, "Perplexity by split", ["Split", "Length"], &rows.collect::<String>()),
    )
}

pub fn by_window(task: &Task, reading: &Reading, cuts: &[Cut]) -> String {
    let rows = cuts.iter().map(|&cut| {
        let scores = |series: &Series| reading.scores(series, cut);
        let stride = match cut.protocol {
            Protocol::Chunk => String::new(),
            Protocol::Sliding => format!("stride {}", whole(cut.stride as u64)),
        };
        format!(
            "<tr><th scope=\"row\">{}<span class=\"more\">{stride}</span></th>\
             <td class=\"length\">{}<span class=\"more\">{}</span></td>{}</tr>\n",
            cut.protocol.name(),
            whole(cut.window as u64),
            relation(task, cut.window),
            cells(task, scores, |_, _| Vec::new()),
        )
    });
    format!(
        "<p>Perplexity{}; lower is better.{} The best value in each row is \
         <b class=\"best\">highlighted</b>. Hover over a cell to see the loss, bits per byte and \
         the 95% intervals.</p>\n{}",
        over_seeds(task),
        intervals(task, " Below it: the 95% interval").map(|words| words + ".").unwrap_or_default(),
        table(task, "Perplexity by window", ["Protocol", "Window"], &rows.collect::<String>()),
    )
}

/// Completes `words` with which columns show an interval: those with one seed. `None` if there are
/// none.
fn intervals(task: &Task, words: &str) -> Option<String> {
    let alone = task.series.iter().filter(|series| series.runs.len() == 1).count();
    let some = if alone < task.series.len() { " (columns with one seed)" } else { "" };
    (alone > 0).then(|| format!("{words}{some}"))
}

/// Returns one cell per series, with the lines of `below` under its value.
fn cells(
    task: &Task,
    scores: impl Fn(&Series) -> Scores,
    below: impl Fn(&Series, &Scores) -> Vec<String>,
) -> String {
    let all: Vec<Scores> = task.series.iter().map(scores).collect();
    let cell = |((series, scores), best): ((&Series, &Scores), bool)| {
        let Some(value) = scores.value() else {
            return "<td class=\"none\">–</td>".to_string();
        };
        let mut lines: Vec<String> = match scores.0.as_slice() {
            [score] if score.perplexity.is_finite() => vec![score.interval()],
            _ => scores.left_out().into_iter().collect(),
        };
        lines.extend(below(series, scores));
        format!(
            "<td{} title=\"{}\">{value}<span class=\"more\">{}</span></td>",
            if best { " class=\"best\"" } else { "" },
            escape(&scores.words()),
            lines.join("<br>"),
        )
    };
    task.series.iter().zip(&all).zip(lowest(&all)).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, series, windows};
    use super::*;

    #[test]
    fn the_lowest_of_a_split_is_marked_and_perplexity_is_exp_of_loss() {
        let mut report = fixture::text();
        for (run, loss) in report.runs.iter_mut().zip([3.0, 2.0, 3.0, 2.0]) {
            run.results[0].loss = loss;
        }
        let html = section(&series::tasks(&report.runs)[0]);
        assert!(html.contains(">7.39 ± 0.00<span class=\"more\">loss 2.000<br>2 × 256</span>"));
        let best: Vec<&str> = html.split("<td class=\"best\"").skip(1).collect();
        assert_eq!(best.len(), 1, "{html}");
        assert!(best[0].contains(">7.39 ± 0.00<"), "tra is better: {html}");
        assert!(html.contains(">20.09 ± 0.00<"));
        assert!(!html.contains("used for training") && !html.contains("the 95% interval,"));
        report.runs[0].results[0].split = "train".into();
        assert!(section(&series::tasks(&report.runs)[0]).contains("used for training"));
    }

    #[test]
    fn one_seed_shows_its_interval_and_a_seed_that_is_not_finite_is_never_best() {
        let mut report = fixture::text();
        report.runs.truncate(2);
        let page = |report: &super::super::Report| {
            let tasks = series::tasks(&report.runs);
            let reading = windows::readings(&tasks[0])[0];
            by_window(&tasks[0], &reading, &reading.cuts(&tasks[0]))
        };
        let html = page(&report);
        assert!(html.contains(">20.00<span class=\"more\">19.00 to 21.00</span>"), "{html}");
        assert!(html.contains("Below it: the 95% interval. The best"), "{html}");
        // None is best at the training window, where both are equal.
        assert_eq!(html.matches("<td class=\"best\"").count(), 3);
        assert!(html.contains("4 × training") && html.contains("0.50 × training"));
        assert!(html.contains("stride 256"));
        for result in &mut report.runs[1].perplexity.as_mut().unwrap().results {
            result.perplexity = f64::INFINITY;
        }
        let html = page(&report);
        assert_eq!(html.matches("<td class=\"best\"").count(), 5);
        assert_eq!(html.matches(">not finite<").count(), 5);
        for best in html.split("<td class=\"best\"").skip(1) {
            assert!(!best.split("</td>").next().unwrap().contains("not finite"), "{html}");
        }
    }
}
