//! The summary at the top of the page: what was run, and the results in words.

use super::scores::{Scores, lowest};
use super::series::{Place, Series, Task};
use super::windows::{Cut, Reading, one_a_window, readings, trained};
use crate::Measure;
use crate::text::{escape, lengths, list, percent, plural, whole};

pub fn paragraphs(tasks: &[Task]) -> String {
    if tasks.is_empty() {
        return "<p>There are no runs.</p>\n".into();
    }
    tasks.iter().map(|task| setup(task) + &outcome(task)).collect()
}

fn setup(task: &Task) -> String {
    let labels: Vec<String> =
        task.series.iter().map(|series| format!("<b>{}</b>", escape(&series.label))).collect();
    let distinct = |mut values: Vec<String>| {
        values.dedup();
        list(&values)
    };
    let mut seeds: Vec<u64> = task.runs().map(|run| run.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let mut trained: Vec<(usize, usize)> = task.runs().map(|run| run.train_length).collect();
    trained.sort_unstable();
    let mut sizes: Vec<u64> = task.runs().map(|run| run.parameters as u64).collect();
    sizes.sort_unstable();
    let size = match (sizes.first(), sizes.last()) {
        (Some(least), Some(most)) if least < most => format!("{}–{}", whole(*least), whole(*most)),
        (Some(only), _) => whole(*only),
        _ => String::new(),
    };
    let steps = task.runs().filter_map(|run| run.steps.last()).map(|step| step.step).max();
    let seed_names = list(&seeds.iter().map(u64::to_string).collect::<Vec<_>>());
    format!(
        "<p>Task <b>{}</b>, {}: {}. {} ({seed_names}), trained on {}{} {}{}. {size} parameters per \
         model.</p>\n",
        escape(task.name),
        if task.series.len() == 1 {
            "one mechanism".into()
        } else {
            plural(task.series.len(), "mechanism")
        },
        list(&labels),
        plural(seeds.len(), "seed"),
        match task.measure {
            Measure::ExactMatch => "",
            Measure::Perplexity => "windows of ",
        },
        distinct(trained.iter().map(|&(from, to)| lengths(from, to)).collect()),
        escape(task.unit),
        steps.map(|steps| format!(" for {} steps", whole(steps))).unwrap_or_default(),
    )
}

fn outcome(task: &Task) -> String {
    match task.measure {
        Measure::ExactMatch => accuracy(task),
        Measure::Perplexity => perplexity(task),
    }
}

fn accuracy(task: &Task) -> String {
    let places = task.places();
    if places.is_empty() {
        return String::new();
    }
    let perfect: Vec<String> = task
        .series
        .iter()
        .filter(|series| places.iter().all(|&place| all_right(series, place)))
        .map(|series| escape(&series.label))
        .collect();
    let headline = match perfect.len() {
        0 => "No mechanism is right on every sequence of every split.".to_string(),
        n if n == task.series.len() && n > 1 => {
            "Every mechanism is right on every sequence of every split.".to_string()
        }
        1 => format!("{} is right on every sequence of every split.", perfect[0]),
        _ => format!("{} are right on every sequence of every split.", list(&perfect)),
    };
    let items: String = task.series.iter().map(|series| item(task, series, &places)).collect();
    format!(
        "<p class=\"headline\">{headline}</p>\n<p>Evaluated at {}:</p>\n\
         <ul class=\"outcome\">\n{items}</ul>\n",
        plural(places.len(), "combination") + " of split and length",
    )
}

fn item(task: &Task, series: &Series, places: &[Place]) -> String {
    let seen: Vec<Place> =
        places.iter().copied().filter(|&place| series.exact_match(place).is_some()).collect();
    let right = seen.iter().filter(|&&place| all_right(series, place)).count();
    let worst = seen
        .iter()
        .filter_map(|&place| Some((place, series.exact_match(place)?.mean)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    let drawn: u64 =
        seen.iter().flat_map(|&place| series.results(place)).map(|(_, r)| r.sequences).sum();
    let said = match worst {
        None => "not evaluated".into(),
        Some(_) if right == seen.len() => {
            format!("all right in {right} of {right}, {}", plural(drawn as usize, "sequence"))
        }
        Some((place, mean)) => format!(
            "all right in {right} of {}; worst: {} on {} at {} {}",
            seen.len(),
            percent(mean),
            escape(place.split),
            lengths(place.shortest, place.length),
            escape(task.unit),
        ),
    };
    format!("<li>{}<b>{}</b>: {said}.</li>\n", series.mark.swatch(), escape(&series.label))
}

fn perplexity(task: &Task) -> String {
    let place = telling_place(task);
    let items: String = task
        .series
        .iter()
        .map(|series| {
            let end = at_end(series, place).into_iter();
            let said: Vec<String> = end.chain(at_windows(task, series)).collect();
            let said = if said.is_empty() { "not evaluated".into() } else { said.join("; ") };
            format!("<li>{}<b>{}</b>: {said}.</li>\n", series.mark.swatch(), escape(&series.label))
        })
        .collect();
    let headline = place.and_then(|place| headline(task, place)).unwrap_or_default();
    format!("{headline}{}<ul class=\"outcome\">\n{items}</ul>\n", measured(task, place))
}

/// Returns the place to report. Prefers held-out text over training text, and then the training
/// length over other lengths.
fn telling_place<'a>(task: &Task<'a>) -> Option<Place<'a>> {
    let known = trained(task);
    let rank = |place: &Place| (place.split == "train", !known.contains(&place.length));
    task.places().into_iter().min_by_key(rank)
}

/// Returns the perplexity at the end of training.
fn at_end(series: &Series, place: Option<Place>) -> Option<String> {
    Some(said(&Scores::at_place(series, place?))? + " at the end of training")
}

fn on(task: &Task, place: Place) -> String {
    let length = lengths(place.shortest, place.length);
    format!("on {} at {length} {}", escape(place.split), escape(task.unit))
}

/// Formats a perplexity, with the number of seeds it leaves out.
fn said(scores: &Scores) -> Option<String> {
    let left_out = scores.left_out().map(|left_out| format!(" ({left_out})")).unwrap_or_default();
    Some(scores.value()? + &left_out)
}

/// Returns, for each text, the perplexity at the training window and at the largest window.
fn at_windows(task: &Task, series: &Series) -> Vec<String> {
    let in_training = series.runs.iter().map(|run| run.train_length.1).max().unwrap_or(0);
    let readings = readings(task);
    let several = readings.len() > 1;
    let words = |reading: &Reading| {
        let cuts = telling_cuts(task, reading);
        let scored: Vec<(usize, String)> = cuts
            .iter()
            .filter_map(|&cut| Some((cut.window, said(&reading.scores(series, cut))?)))
            .collect();
        let known = scored.iter().find(|(window, _)| *window == in_training);
        let known = known.map(|(window, value)| {
            format!("{value} at the training window ({})", whole(*window as u64))
        });
        let largest = scored.last().filter(|(window, _)| *window != in_training);
        let largest = largest.map(|(window, value)| {
            format!("{value} at the largest window ({})", whole(*window as u64))
        });
        let both: Vec<String> = [known, largest].into_iter().flatten().collect();
        let text = if several { format!("on {} ", escape(reading.text)) } else { String::new() };
        (!both.is_empty()).then(|| text + &list(&both))
    };
    readings.iter().filter_map(words).collect()
}

/// Returns the cuts of one protocol, so that each window has one number.
fn telling_cuts(task: &Task, reading: &Reading) -> Vec<Cut> {
    let mut cuts = one_a_window(&reading.cuts(task));
    if let Some(first) = cuts.first().copied() {
        cuts.retain(|cut| cut.protocol == first.protocol);
    }
    cuts
}

/// Says what the numbers of the list are.
fn measured(task: &Task, place: Option<Place>) -> String {
    let place = place.map(|place| on(task, place) + " at the end of training");
    let window = |reading: &Reading| {
        let protocol = telling_cuts(task, reading).first()?.protocol.name();
        Some(format!("on {} in windows ({protocol} protocol)", escape(reading.text)))
    };
    let windows = readings(task).into_iter().filter_map(|reading| window(&reading));
    let all: Vec<String> = place.into_iter().chain(windows).collect();
    if all.is_empty() { String::new() } else { format!("<p>Perplexity {}:</p>\n", list(&all)) }
}

/// Names the mechanism with the lowest perplexity; `None` if all are equal.
fn headline(task: &Task, place: Place) -> Option<String> {
    let all: Vec<Scores> =
        task.series.iter().map(|series| Scores::at_place(series, place)).collect();
    let best = || (0..all.len()).zip(lowest(&all)).filter(|(_, best)| *best).map(|(i, _)| i);
    let names: Vec<String> = best().map(|i| escape(&task.series[i].label)).collect();
    let least = crate::text::perplexity(all[best().next()?].comparable()?);
    Some(format!(
        "<p class=\"headline\">{} {} the lowest {}{}perplexity: {least} {}.</p>\n",
        list(&names),
        if names.len() == 1 { "has" } else { "have" },
        if all.iter().any(|scores| scores.0.len() > 1) { "mean " } else { "" },
        if place.split == "train" { "" } else { "held-out " },
        on(task, place),
    ))
}

/// Returns whether every seed is right on every sequence, and there is at least one.
fn all_right(series: &Series, place: Place) -> bool {
    let results = series.results(place);
    !results.is_empty()
        && results.iter().all(|(_, result)| result.exact_match == 1.0 && result.sequences > 0)
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, series};
    use super::*;

    #[test]
    fn the_headline_names_who_is_always_right() {
        let mut report = fixture::report();
        let html = paragraphs(&series::tasks(&report.runs));
        assert!(html.contains("tra is right on every sequence of every split"), "{html}");
        report.runs[1].results[0].exact_match = 0.9999;
        let html = paragraphs(&series::tasks(&report.runs));
        assert!(html.contains("No mechanism is right"), "{html}");
    }

    #[test]
    fn text_is_summed_up_by_perplexity() {
        let mut report = fixture::text();
        for (run, loss) in report.runs.iter_mut().zip([3.0, 2.0, 3.0, 2.0]) {
            run.results[0].loss = loss;
        }
        let html = paragraphs(&series::tasks(&report.runs));
        assert!(!html.contains("right on every sequence"), "{html}");
        assert!(html.contains("trained on windows of 128 tokens"), "{html}");
        let headline = "tra has the lowest mean held-out perplexity: 7.39 on valid at 128 tokens.";
        assert!(html.contains(headline), "{html}");
        let about = "Perplexity on valid at 128 tokens at the end of training and on \
                     a&lt;b&gt;.txt in windows (chunk protocol):";
        assert!(html.contains(about), "{html}");
        let item = "7.39 ± 0.00 at the end of training; 22.50 ± 0.71 at the training window (128) \
                    and 20.50 ± 0.71 at the largest window (512).";
        assert!(html.contains(item), "{html}");
        for run in &mut report.runs {
            run.results.clear();
            run.perplexity = None;
        }
        let html = paragraphs(&series::tasks(&report.runs));
        assert_eq!(html.matches("not evaluated").count(), 2, "{html}");
        assert!(!html.contains("headline"), "{html}");
    }
}
