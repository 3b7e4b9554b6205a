//! The plots of exact match against length.

use super::plot::{Axis, Line, Plot, Point, Stretch};
use super::scale::{Kind, length_ticks};
use super::series::{Place, Task};
use crate::text::{escape, lengths, list, percent};

/// Places of increasing length that make up one line.
struct Family<'a> {
    name: String,
    places: Vec<Place<'a>>,
}

pub fn section(task: &Task) -> String {
    let families = families(task.places());
    let Some((main, others)) = families.split_first() else {
        return "<p>No evaluation of the trained models was recorded.</p>\n".into();
    };
    let mut out = plot(task, main).figure(&caption(task, main));
    if !others.is_empty() {
        let panels: String = others.iter().map(|family| plot(task, family).panel()).collect();
        out += &format!("<div class=\"panels\">{panels}</div>\n");
    }
    out
}

/// Groups places into lines: first the split with the most lengths, then every other split with
/// several lengths. Splits that cover separate ranges of lengths form one line together.
fn families(places: Vec<Place>) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for place in places {
        match families.iter_mut().find(|family| family.name == place.split) {
            Some(family) => family.places.push(place),
            None => families.push(Family { name: place.split.into(), places: vec![place] }),
        }
    }
    let mut families = one_line(families);
    families.sort_by_key(|family| std::cmp::Reverse(family.places.len()));
    let several = families.iter().filter(|family| family.places.len() > 1).count();
    families.truncate(several.max(1));
    families
}

/// Merges the splits whose lengths do not overlap those of an earlier split.
///
/// If the longest length of a range was also tested alone, that test replaces the range.
fn one_line(families: Vec<Family>) -> Vec<Family> {
    let reach = |family: &Family| {
        let shortest = family.places.iter().map(|place| place.shortest).min();
        (shortest, family.places.iter().map(|place| place.length).max())
    };
    let mut taken = Vec::new();
    let (line, mut rest): (Vec<Family>, Vec<Family>) = families.into_iter().partition(|family| {
        let (from, to) = reach(family);
        let apart = taken.iter().all(|(shortest, longest)| to < *shortest || *longest < from);
        taken.extend(apart.then_some((from, to)));
        apart
    });
    if line.len() < 2 {
        return line.into_iter().chain(rest).collect();
    }
    let names: Vec<String> = line.iter().map(|family| family.name.clone()).collect();
    let name = if rest.is_empty() { "all splits".into() } else { list(&names) };
    let mut places: Vec<Place> = line.into_iter().flat_map(|family| family.places).collect();
    places.sort_by_key(|place| (place.length, std::cmp::Reverse(place.shortest)));
    places.dedup_by_key(|place| place.length);
    rest.insert(0, Family { name, places });
    rest
}

fn plot(task: &Task, family: &Family) -> Plot {
    let mut trained: Vec<(usize, usize)> = task.runs().map(|run| run.train_length).collect();
    trained.sort_unstable();
    trained.dedup();
    // Each stretch takes a row above the plot.
    trained.truncate(4);
    let marked = family.places.iter().map(|place| place.length).chain(trained.iter().map(|t| t.1));
    let (mut low, mut high) = marked
        .fold((usize::MAX, 1), |(low, high), length| (low.min(length.max(1)), high.max(length)));
    if low >= high {
        (low, high) = ((high / 2).max(1), high.saturating_mul(2));
    }
    // Leaves room to show that training covered a range.
    if trained.iter().any(|&(from, to)| from < to && from < low && to >= low) {
        low = (low / 2).max(1);
    }
    let (low, high) = (low as f64, high as f64);
    let stretch = |&(from, to): &(usize, usize)| Stretch {
        from: (from.max(1) as f64).max(low),
        to: to.max(1) as f64,
        label: format!("trained on {} {}", lengths(from, to), task.unit),
    };
    Plot {
        title: format!("{}: exact match against length", family.name),
        description: format!(
            "Share of sequences with every answer right, from {low} to {high} {}. The table of \
             splits has the numbers.",
            task.unit
        ),
        x: Axis {
            label: format!("Length ({}, log scale)", task.unit),
            kind: Kind::Log,
            low,
            high,
            ticks: length_ticks(low, high),
        },
        y: percent_axis(),
        lines: task
            .series
            .iter()
            .map(|series| {
                let point = |place: &Place| {
                    let spread = series.exact_match(*place)?;
                    Some(Point {
                        x: place.length as f64,
                        y: spread.mean,
                        low: spread.least,
                        high: spread.most,
                        tip: format!(
                            "{}, {} at {} {}: {} (seeds {} to {})",
                            series.label,
                            place.split,
                            lengths(place.shortest, place.length),
                            task.unit,
                            percent(spread.mean),
                            percent(spread.least),
                            percent(spread.most),
                        ),
                    })
                };
                let points: Vec<Point> = family.places.iter().filter_map(point).collect();
                Line {
                    mark: series.mark.clone(),
                    label: (!points.is_empty()).then(|| series.label.clone()),
                    points,
                    raw: Vec::new(),
                    dots: true,
                }
            })
            .collect(),
        stretches: trained.iter().map(stretch).collect(),
    }
}

/// Returns an axis of exact match, from 0% to 100%.
pub fn percent_axis() -> Axis {
    Axis {
        label: "Exact match (%)".into(),
        kind: Kind::Linear,
        low: 0.0,
        high: 1.0,
        ticks: (0..=4).map(|i| (f64::from(i) / 4.0, (25 * i).to_string())).collect(),
    }
}

fn caption(task: &Task, family: &Family) -> String {
    let seeds = match family.places.len() {
        _ if task.series.iter().all(|series| series.runs.len() == 1) => "",
        1 => " Points are means over seeds; whiskers span from the worst seed to the best.",
        _ => " Lines are means over seeds; bands span from the worst seed to the best.",
    };
    let buckets = family.places.iter().any(|place| place.shortest < place.length);
    format!(
        "Exact match against length on <b>{}</b>: the share of sequences with every answer \
         right.{seeds}{}",
        escape(&family.name),
        if buckets { " A range of lengths is plotted at its longest length." } else { "" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(split: &str, shortest: usize, length: usize) -> Place<'_> {
        Place { split, shortest, length }
    }

    #[test]
    fn the_split_with_most_lengths_comes_first_and_single_ones_are_left_out() {
        let places = vec![
            place("sparse", 8, 8),
            place("dense", 8, 8),
            place("dense", 16, 16),
            place("iid", 8, 8),
            place("iid", 16, 16),
            place("iid", 32, 32),
        ];
        let names: Vec<String> =
            families(places).iter().map(|family| family.name.clone()).collect();
        assert_eq!(names, ["iid", "dense"]);
    }

    #[test]
    fn buckets_of_different_names_make_one_line() {
        let found = families(vec![place("far", 41, 100), place("near", 1, 40)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].places, [place("near", 1, 40), place("far", 41, 100)]);
    }

    #[test]
    fn a_split_that_lies_within_a_bucket_is_left_out_of_the_line() {
        let found =
            families(vec![place("near", 1, 40), place("far", 41, 100), place("copy", 41, 100)]);
        assert_eq!((found.len(), found[0].name.as_str()), (1, "near and far"));
        assert_eq!(found[0].places, [place("near", 1, 40), place("far", 41, 100)]);
    }

    #[test]
    fn a_bucket_and_its_longest_length_make_one_point() {
        let found =
            families(vec![place("iid", 1, 50), place("far", 51, 100), place("far", 100, 100)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].places, [place("iid", 1, 50), place("far", 100, 100)]);
        let found =
            families(vec![place("iid", 1, 50), place("far", 40, 100), place("far", 100, 100)]);
        assert_eq!((found.len(), found[0].name.as_str()), (1, "far"));
    }

    #[test]
    fn splits_of_one_common_length_give_a_single_point() {
        let found = families(vec![place("iid", 8, 8), place("dense", 8, 8)]);
        assert_eq!((found.len(), found[0].name.as_str(), found[0].places.len()), (1, "iid", 1));
    }
}
