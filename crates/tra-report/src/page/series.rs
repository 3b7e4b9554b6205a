//! Groups runs by task, then by mechanism, so that seeds can be averaged.

use super::Run;
use super::marks::{self, Mark};
use crate::Measure;
use crate::records::{EvalResult, is_lost};
pub use crate::stats::Spread;

/// The runs of one task.
pub struct Task<'a> {
    pub name: &'a str,
    pub unit: &'a str,
    pub measure: Measure,
    pub series: Vec<Series<'a>>,
}

/// Runs that differ only in the seed: one line of a plot, one column of a table.
pub struct Series<'a> {
    pub label: String,
    pub mark: Mark,
    pub runs: Vec<&'a Run>,
}

/// A split at one length or range of lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place<'a> {
    pub split: &'a str,
    pub shortest: usize,
    pub length: usize,
}

impl<'a> Place<'a> {
    pub fn of(result: &'a EvalResult) -> Self {
        Self { split: &result.split, shortest: result.shortest, length: result.length }
    }
}

impl<'a> Series<'a> {
    /// Returns the final results at `place`, each with its run.
    pub fn results(&self, place: Place) -> Vec<(&'a Run, &'a EvalResult)> {
        self.runs.iter().filter_map(|run| Some((*run, at(run, place)?))).collect()
    }

    /// Summarizes exact match at `place` over the seeds.
    ///
    /// A seed that was not tested there because it got no sequence right at a shorter length
    /// counts as 0.
    pub fn exact_match(&self, place: Place) -> Option<Spread> {
        if self.results(place).is_empty() {
            return None;
        }
        Spread::of(self.runs.iter().filter_map(|run| match at(run, place) {
            Some(result) => Some(result.exact_match),
            None => is_lost(&run.results, place.split, place.shortest).then_some(0.0),
        }))
    }
}

/// Returns the final result of a run at `place`.
fn at<'a>(run: &'a Run, place: Place) -> Option<&'a EvalResult> {
    run.results.iter().rfind(|&result| Place::of(result) == place)
}

impl<'a> Task<'a> {
    pub fn runs(&self) -> impl Iterator<Item = &'a Run> + '_ {
        self.series.iter().flat_map(|series| series.runs.iter().copied())
    }

    /// Returns where the trained models were evaluated: splits with short lengths first, then in
    /// order of appearance; lengths ascending.
    pub fn places(&self) -> Vec<Place<'a>> {
        places(self.runs().flat_map(|run| &run.results))
    }
}

/// Returns the distinct places of `results`, grouped by split.
pub fn places<'a>(results: impl Iterator<Item = &'a EvalResult>) -> Vec<Place<'a>> {
    let mut places: Vec<Place> = Vec::new();
    let mut splits: Vec<&str> = Vec::new();
    for place in results.map(Place::of) {
        if !places.contains(&place) {
            places.push(place);
        }
        if !splits.contains(&place.split) {
            splits.push(place.split);
        }
    }
    let shortest = |split: &str| {
        places.iter().filter(|place| place.split == split).map(|place| place.shortest).min()
    };
    splits.sort_by_key(|split| shortest(split));
    let rank = |split| splits.iter().position(|&other| other == split);
    places.sort_by_key(|place| (rank(place.split), place.length, place.shortest));
    places
}

/// Returns the tasks in order of appearance, each with its series in order of mechanism.
pub fn tasks(runs: &[Run]) -> Vec<Task<'_>> {
    let mut tasks: Vec<Task> = Vec::new();
    for run in runs {
        if !tasks.iter().any(|task| task.name == run.task) {
            let series = series(runs.iter().filter(|other| other.task == run.task).collect());
            tasks.push(Task { name: &run.task, unit: &run.unit, measure: run.measure, series });
        }
    }
    tasks
}

fn series(runs: Vec<&Run>) -> Vec<Series<'_>> {
    let mut names: Vec<&str> = Vec::new();
    for run in &runs {
        if !names.contains(&run.attention.as_str()) {
            names.push(&run.attention);
        }
    }
    names.sort_by_key(|name| marks::rank(name));
    let mut all = Vec::new();
    for (i, &name) in names.iter().enumerate() {
        let same = runs.iter().copied().filter(|run| run.attention == name).collect();
        // Each known mechanism has its own rank, so this only numbers unknown mechanisms.
        let stranger =
            names[..i].iter().filter(|other| marks::rank(other) == marks::rank(name)).count();
        for (variant, (label, runs)) in variants(name, same).into_iter().enumerate() {
            all.push(Series { label, mark: Mark::new(name, stranger, variant), runs });
        }
    }
    all
}

/// Groups the runs of a mechanism that differ only in the seed.
///
/// A mean over runs that differ in more than the seed would mislead. If a seed occurs twice, or the
/// model sizes or training lengths differ, each run forms its own group.
fn variants<'a>(name: &str, mut runs: Vec<&'a Run>) -> Vec<(String, Vec<&'a Run>)> {
    runs.sort_by_key(|run| run.seed);
    let only_seeds_differ = runs.windows(2).all(|pair| {
        pair[0].seed != pair[1].seed
            && pair[0].parameters == pair[1].parameters
            && pair[0].train_length == pair[1].train_length
    });
    if only_seeds_differ {
        return vec![(name.into(), runs)];
    }
    runs.into_iter().map(|run| (format!("{name} · {}", run.name), vec![run])).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn seeds_go_together_and_tra_comes_first() {
        let report = fixture::report();
        let tasks = tasks(&report.runs);
        let labels: Vec<_> =
            tasks[0].series.iter().map(|s| (s.label.as_str(), s.runs.len())).collect();
        assert_eq!(labels, [("tra", 2), ("rope", 2)]);
    }

    #[test]
    fn runs_that_differ_in_more_than_the_seed_are_not_averaged() {
        let mut report = fixture::report();
        report.runs[0].parameters += 1;
        let tasks = tasks(&report.runs);
        assert!(tasks[0].series.iter().all(|s| s.label != "rope"));
        assert_eq!(tasks[0].series.len(), 3);
    }

    #[test]
    fn short_splits_come_first_whatever_was_tested_first() {
        let at = |split: &str, shortest, length| EvalResult {
            split: split.into(),
            shortest,
            length,
            ..Default::default()
        };
        let results = [at("far", 300, 300), at("far", 201, 300), at("near", 51, 100)];
        let found = places(results.iter());
        let found: Vec<_> = found.iter().map(|place| (place.split, place.shortest)).collect();
        assert_eq!(found, [("near", 51), ("far", 201), ("far", 300)]);
        let results = [at("iid", 8, 8), at("iid", 64, 64), at("dense", 8, 8)];
        let found = places(results.iter());
        assert_eq!(
            found.iter().map(|place| place.split).collect::<Vec<_>>(),
            ["iid", "iid", "dense"]
        );
    }

    /// One of two seeds was not tested further. The mean still includes it.
    #[test]
    fn a_seed_that_lost_everything_counts() {
        let mut report = fixture::report();
        let place = report.runs.iter_mut().filter(|run| run.attention == "rope").map(|run| {
            run.results.retain(|result| result.split == "iid");
            run.results.sort_by_key(|result| result.length);
            let far = run.results.last().unwrap().clone();
            run.results.iter_mut().for_each(|result| result.exact_match = 0.5);
            far
        });
        let far = place.last().unwrap();
        let first = report.runs.iter_mut().find(|run| run.attention == "rope").unwrap();
        first.results.retain(|result| result.length < far.shortest);
        first.results.last_mut().unwrap().exact_match = 0.0;
        let tasks = tasks(&report.runs);
        let rope = tasks[0].series.iter().find(|series| series.label == "rope").unwrap();
        let spread = rope.exact_match(Place::of(&far)).unwrap();
        assert_eq!((spread.mean, spread.least, spread.most), (0.25, 0.0, 0.5));
    }
}
