//! The table of splits.

use super::series::{Place, Series, Spread, Task};
use crate::text::{escape, lengths, percent, percent_spread, whole};

pub fn section(task: &Task) -> String {
    let places = task.places();
    if places.is_empty() {
        return "<p>No evaluation of the trained models was recorded.</p>\n".into();
    }
    let rows: String = places.iter().map(|&place| row(task, place)).collect();
    format!(
        "<p>Share of sequences with every answer right{}. Below it: the number of sequences, and \
         the share of wrong answer tokens. 100.0% means exactly all of them. The best value in \
         each row is <b class=\"best\">highlighted</b>. Hover over a cell to see the 95% \
         intervals.</p>\n{}",
        over_seeds(task),
        table(task, "Table of splits", ["Split", "Length"], &rows),
    )
}

/// Returns a table with two leading columns, the second of lengths, and one column per series.
pub fn table(task: &Task, name: &str, [first, second]: [&str; 2], rows: &str) -> String {
    let column = |series: &Series| {
        format!("<th scope=\"col\">{}{}</th>", series.mark.swatch(), escape(&series.label))
    };
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\">\
         <table><thead><tr><th scope=\"col\">{first}</th>\
         <th scope=\"col\" class=\"length\">{second} ({})</th>{}</tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n",
        escape(task.unit),
        task.series.iter().map(column).collect::<String>(),
    )
}

/// Says what the numbers of a table are if there are several seeds.
pub fn over_seeds(task: &Task) -> &'static str {
    let several = task.series.iter().any(|series| series.runs.len() > 1);
    if several { ", mean ± standard deviation over seeds" } else { "" }
}

fn row(task: &Task, place: Place) -> String {
    let spreads: Vec<Option<Spread>> =
        task.series.iter().map(|series| series.exact_match(place)).collect();
    let best = best(spreads.iter().flatten().map(|spread| spread.mean), f64::max);
    let cells: String = task
        .series
        .iter()
        .zip(&spreads)
        .map(|(series, spread)| cell(series, place, *spread, best))
        .collect();
    format!(
        "<tr><th scope=\"row\">{}</th><td class=\"length\">{}<span class=\"more\">{}</span></td>\
         {cells}</tr>\n",
        escape(place.split),
        lengths(place.shortest, place.length),
        relation(task, place.length),
    )
}

/// Returns the mean that `better` prefers; `None` if all are equal, so that nothing is highlighted.
pub fn best(means: impl Iterator<Item = f64> + Clone, better: fn(f64, f64) -> f64) -> Option<f64> {
    let (least, most) = (means.clone().reduce(f64::min)?, means.clone().reduce(f64::max)?);
    if least < most { means.reduce(better) } else { None }
}

fn cell(series: &Series, place: Place, spread: Option<Spread>, best: Option<f64>) -> String {
    let results = series.results(place);
    let Some(spread) = spread else {
        return "<td class=\"none\">–</td>".into();
    };
    let value = match spread.deviation {
        Some(deviation) => percent_spread(spread.mean, deviation),
        None => percent(spread.mean),
    };
    let intervals: Vec<String> = results
        .iter()
        .map(|(run, result)| {
            let [low, high] = result.exact_match_interval;
            format!("seed {}: {} to {}", run.seed, percent(low), percent(high))
        })
        .collect();
    let error = Spread::of(results.iter().map(|(_, result)| result.token_error));
    let error = error.map_or("–".into(), |error| percent(error.mean));
    format!(
        "<td{} title=\"95% interval, {}\">{value}<span class=\"more\">{} sequences<br>\
         token error {error}</span></td>",
        if best == Some(spread.mean) { " class=\"best\"" } else { "" },
        escape(&intervals.join("; ")),
        sequences(&results.iter().map(|(_, result)| result.sequences).collect::<Vec<_>>()),
    )
}

/// Formats counts as `3 × 256` if all seeds have the same count, otherwise as their sum.
pub fn sequences(counts: &[u64]) -> String {
    match counts {
        [one] => whole(*one),
        [first, rest @ ..] if rest.iter().all(|count| count == first) => {
            format!("{} × {}", counts.len(), whole(*first))
        }
        _ => whole(counts.iter().sum()),
    }
}

/// Says how `length` compares to the training lengths.
pub fn relation(task: &Task, length: usize) -> String {
    let mut trained = task.runs().map(|run| run.train_length);
    let Some((shortest, longest)) = trained.next() else { return String::new() };
    if trained.any(|other| other != (shortest, longest)) || longest == 0 {
        return String::new();
    }
    let ratio = length as f64 / longest as f64;
    match ratio {
        _ if length < shortest => format!("{ratio:.2} × training"),
        ..=1.0 => "as in training".into(),
        _ if ratio.fract() < 0.05 => format!("{ratio:.0} × training"),
        _ => format!("{ratio:.1} × training"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, series};
    use super::*;

    #[test]
    fn the_best_of_a_row_is_marked_unless_all_are_equal() {
        let of = |means: &[f64], better| best(means.iter().copied(), better);
        assert_eq!(of(&[0.5, 1.0], f64::max), Some(1.0));
        assert_eq!(of(&[0.5, 1.0], f64::min), Some(0.5));
        assert_eq!(of(&[1.0, 1.0], f64::max), None);
        assert_eq!(of(&[], f64::max), None);
    }

    #[test]
    fn nearly_all_is_not_all() {
        let mut report = fixture::report();
        for run in &mut report.runs {
            run.results[0].exact_match = 0.9997;
        }
        let html = section(&series::tasks(&report.runs)[0]);
        assert!(html.contains("99.97% ± 0.0"), "{html}");
        assert!(html.contains("2 × 256 sequences") && html.contains("4 × training"));
    }
}
