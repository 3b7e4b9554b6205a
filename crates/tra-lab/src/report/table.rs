//! The table of splits.

use super::series::{Place, Series, Spread, Task};
use super::text::{escape, lengths, percent, percent_spread, whole};

pub fn section(task: &Task) -> String {
    let places = task.places();
    if places.is_empty() {
        return "<p>No evaluation of the trained models was recorded.</p>\n".into();
    }
    let columns: String = task
        .series
        .iter()
        .map(|series| {
            format!("<th scope=\"col\">{}{}</th>", series.mark.swatch(), escape(&series.label))
        })
        .collect();
    let rows: String = places.iter().map(|&place| row(task, place)).collect();
    let seeds = task.series.iter().any(|series| series.runs.len() > 1);
    format!(
        "<p>Share of sequences with every answer right{}. Below it, the sequences drawn and the \
         share of answer tokens that are wrong. 100.0% means all of them; the best of a row is \
         <b class=\"best\">marked</b>. Resting on a cell shows the 95% intervals.</p>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of splits\">\
         <table><thead><tr><th scope=\"col\">Split</th>\
         <th scope=\"col\" class=\"length\">Length ({})</th>{columns}</tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n",
        if seeds { ", mean ± standard deviation over seeds" } else { "" },
        escape(task.unit),
    )
}

fn row(task: &Task, place: Place) -> String {
    let spreads: Vec<Option<Spread>> =
        task.series.iter().map(|series| series.exact_match(place)).collect();
    let best = best(&spreads);
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

/// The best mean, unless all are equal: then there is nothing to mark.
fn best(spreads: &[Option<Spread>]) -> Option<f64> {
    let means = || spreads.iter().flatten().map(|spread| spread.mean);
    let (least, most) = (means().reduce(f64::min)?, means().reduce(f64::max)?);
    (least < most).then_some(most)
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

/// `3 × 256` where every seed saw as many, else their sum.
fn sequences(counts: &[u64]) -> String {
    match counts {
        [one] => whole(*one),
        [first, rest @ ..] if rest.iter().all(|count| count == first) => {
            format!("{} × {}", counts.len(), whole(*first))
        }
        _ => whole(counts.iter().sum()),
    }
}

/// How `length` compares to the longest in training.
fn relation(task: &Task, length: usize) -> String {
    let mut trained = task.runs().map(|run| run.train_length.1);
    let Some(first) = trained.next() else { return String::new() };
    if trained.any(|other| other != first) || first == 0 {
        return String::new();
    }
    let ratio = length as f64 / first as f64;
    match ratio {
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
        let spread = |mean| Spread::of([mean]);
        assert_eq!(best(&[spread(0.5), None, spread(1.0)]), Some(1.0));
        assert_eq!(best(&[spread(1.0), spread(1.0)]), None);
        assert_eq!(best(&[None]), None);
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
