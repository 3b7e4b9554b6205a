//! What was run and what came of it, in words.

use super::series::{Place, Series, Task};
use super::text::{escape, lengths, list, percent, plural, whole};

pub fn paragraphs(tasks: &[Task]) -> String {
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
        "<p>Task <b>{}</b>, {}: {}. {} ({seed_names}), trained on {} {}{}; {size} parameters \
         each.</p>\n",
        escape(task.name),
        if task.series.len() == 1 {
            "one mechanism".into()
        } else {
            plural(task.series.len(), "mechanism")
        },
        list(&labels),
        plural(seeds.len(), "seed"),
        distinct(trained.iter().map(|&(from, to)| lengths(from, to)).collect()),
        escape(task.unit),
        steps.map(|steps| format!(" for {} steps", whole(steps))).unwrap_or_default(),
    )
}

fn outcome(task: &Task) -> String {
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
            format!("all right at {right} of {right}, {}", plural(drawn as usize, "sequence"))
        }
        Some((place, mean)) => format!(
            "all right at {right} of {}; at worst {} on {} at {} {}",
            seen.len(),
            percent(mean),
            escape(place.split),
            lengths(place.shortest, place.length),
            escape(task.unit),
        ),
    };
    format!("<li>{}<b>{}</b>: {said}.</li>\n", series.mark.swatch(), escape(&series.label))
}

/// Whether every seed is right on every sequence, there being any.
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
}
