//! Formats records as tables for a terminal.

use crate::records::{EvalResult, Perplexity, Protocol, TextTrialResult, TrialResult, is_lost};
use crate::stats::Spread;
use crate::text::{bytes, percent, plural, whole};
use crate::{Measure, TextTable};

/// Lists evaluations, one row per split and length.
pub fn evaluation(results: &[EvalResult], measure: Measure) -> String {
    let mut table = match measure {
        Measure::Perplexity => {
            TextTable::new(1, ["split", "window", "windows", "perplexity", "95% interval", "loss"])
        }
        Measure::ExactMatch => TextTable::new(
            1,
            ["split", "length", "sequences", "exact", "95% interval", "token error", "loss"],
        ),
    };
    for r in results {
        let length = match r.shortest == r.length {
            true => r.length.to_string(),
            false => format!("{}..{}", r.shortest, r.length),
        };
        let (place, loss) =
            ([r.split.clone(), length, r.sequences.to_string()], format!("{:.4}", r.loss));
        let values = match measure {
            Measure::Perplexity => {
                let [low, high] = r.loss_interval.map(f64::exp);
                vec![format!("{:.2}", r.loss.exp()), format!("{low:.2}..{high:.2}")]
            }
            Measure::ExactMatch => {
                let [low, high] = r.exact_match_interval.map(|x| 100.0 * x);
                let interval = format!("{low:.1}..{high:.1}%");
                vec![percent(r.exact_match), interval, percent(r.token_error)]
            }
        };
        table.row(place.into_iter().chain(values).chain([loss]));
    }
    table.to_string()
}

/// Lists the perplexities of a text, one row per protocol and window.
pub fn perplexity(found: &Perplexity) -> String {
    let header =
        ["protocol", "window", "stride", "perplexity", "95% interval", "change", "bits/byte"];
    let mut table = TextTable::new(1, header);
    for r in &found.results {
        let [low, high] = r.perplexity_interval;
        let change = r.change.as_ref().map_or(String::new(), |change| {
            let percent = |difference: f64| 100.0 * (difference.exp() - 1.0);
            let reach = (percent(change.loss_interval[1]) - percent(change.loss_interval[0])) / 2.0;
            format!("{:+.2}±{reach:.2}%", percent(change.loss))
        });
        table.row([
            r.protocol.name().into(),
            r.window.to_string(),
            r.stride.to_string(),
            format!("{:.2}", r.perplexity),
            format!("{low:.2}..{high:.2}"),
            change,
            format!("{:.4}", r.bits_per_byte),
        ]);
    }
    let (tokens, size) = (whole(found.tokens), bytes(found.bytes));
    format!("{}: {tokens} tokens scored, {size}\n{table}", found.text)
}

/// Compares models on text: one row per model, one column per window, means over seeds.
pub fn windows(found: &[TextTrialResult]) -> String {
    let models = distinct(found.iter().map(|run| run.model.as_str()));
    let all = found.iter().flat_map(|run| &run.perplexity.results);
    let mut windows = distinct(all.map(|result| result.window));
    windows.sort();
    let cell = |model: &str, protocol: Protocol, window: usize| {
        let runs = found.iter().filter(|run| run.model == model);
        let results = runs.flat_map(|run| &run.perplexity.results);
        let here = results.filter(|r| r.protocol == protocol && r.window == window);
        let mean = Spread::of(here.map(|result| result.perplexity));
        mean.map_or("-".into(), |spread| format!("{:.2}", spread.mean))
    };
    let mut text = String::new();
    for protocol in [Protocol::Chunk, Protocol::Sliding] {
        let header = windows.iter().map(usize::to_string);
        let mut table = TextTable::new(1, std::iter::once("window".into()).chain(header));
        for &model in &models {
            let cells = windows.iter().map(|window| cell(model, protocol, *window));
            table.row(std::iter::once(model.into()).chain(cells));
        }
        text += &format!("perplexity, {}\n{table}\n", protocol.name());
    }
    text
}

/// One run of a grid and the results of its last step.
#[derive(Clone, Debug)]
pub struct GridRow {
    /// The name of the task.
    pub task: String,
    /// How the task is judged.
    pub measure: Measure,
    /// The name of the mechanism.
    pub attention: String,
    /// The results of the last step.
    pub results: Vec<EvalResult>,
}

/// Compares the runs of a grid: one row per task, split and length, one column per mechanism.
///
/// Shows the mean and deviation over seeds: of exact match, or of perplexity for text.
pub fn grid(rows: &[GridRow]) -> String {
    let mechanisms = distinct(rows.iter().map(|row| row.attention.as_str()));
    let places = |row: &GridRow| {
        let (task, measure) = (row.task.clone(), row.measure);
        let of = move |r: &EvalResult| (task.clone(), measure, r.split.clone(), r.length);
        row.results.iter().map(of).collect::<Vec<_>>()
    };
    let lines = distinct(rows.iter().flat_map(places));
    // A label, as every block repeats it, and yet a number: aligned right.
    let digits = lines.iter().map(|(.., length)| length.to_string().len());
    let widest = digits.max().unwrap_or(0).max("length".len());
    let header = ["task", "split", "length"].into_iter();
    let mut table = TextTable::new(3, header.chain(mechanisms.iter().copied()));
    for (task, measure, split, length) in &lines {
        let cell = |mechanism: &&str| {
            let of = rows.iter().filter(|row| row.task == *task && row.attention == **mechanism);
            let results = of.flat_map(|row| &row.results);
            let results = results.filter(|r| r.split == *split && r.length == *length);
            let values = results.map(|r| match measure {
                Measure::ExactMatch => r.exact_match,
                Measure::Perplexity => r.loss.exp(),
            });
            over_seeds(&values.collect::<Vec<f64>>(), *measure)
        };
        let place = [task.clone(), split.clone(), format!("{length:>widest$}")];
        table.row(place.into_iter().chain(mechanisms.iter().map(cell)));
    }
    table.to_string()
}

fn over_seeds(values: &[f64], measure: Measure) -> String {
    // A mean over the other seeds would hide the one that diverged.
    if values.iter().any(|value| !value.is_finite()) {
        return "not finite".into();
    }
    let Some(Spread { mean, deviation, .. }) = Spread::of(values.iter().copied()) else {
        return "-".into();
    };
    let (scale, shown) = match measure {
        Measure::ExactMatch => (100.0, percent(mean)),
        Measure::Perplexity => (1.0, format!("{mean:.2}")),
    };
    deviation.map_or(shown.clone(), |deviation| format!("{shown} ± {:.1}", scale * deviation))
}

/// Returns the distinct items, in order of first occurrence.
fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

/// A split with the shortest and longest length of a test.
type Column = (String, usize, usize);

/// Selects the value of a result to show.
type Value = fn(&EvalResult) -> f64;

/// Compares the models of an experiment: one row per model, one column per split and length.
///
/// The first part shows the percentage of sequences with every answer right, the second the
/// percentage of wrong answers. Values are means over seeds, with the deviation if seeds differ. A
/// dash means not tested: no sequence was right at a shorter length, or the model has no such
/// positions. A seed that got no sequence right at a shorter length counts as 0%.
pub fn experiment(found: &[TrialResult]) -> String {
    let mut rows = distinct(found.iter().map(row_of));
    let columns = distinct(found.iter().flat_map(|run| run.results.iter().map(key)));
    // Keeps the rows of a task together, even if the task first occurs with a later seed.
    rows.sort_by_key(|(task, _)| found.iter().position(|run| run.task == *task));
    let parts: [(&str, Value, Option<f64>); 2] = [
        ("sequences with every answer right", |r| r.exact_match, Some(0.0)),
        ("answers that are wrong", |r| r.token_error, None),
    ];
    let seeds = seeds(found, &rows);
    let part = |(what, value, lost)| {
        let table = experiment_part(found, &rows, &columns, value, lost);
        format!("{what}, %; {seeds}\n{table}\n")
    };
    parts.into_iter().map(part).collect()
}

fn experiment_part(
    found: &[TrialResult],
    rows: &[(&str, &str)],
    columns: &[Column],
    value: Value,
    lost: Option<f64>,
) -> TextTable {
    let several = rows.iter().any(|(task, _)| *task != rows[0].0);
    let lengths = columns.iter().map(|(_, from, to)| match from == to {
        true => whole(*to as u64),
        false => format!("{from}-{to}"),
    });
    let splits = columns.iter().map(|(split, ..)| split.clone());
    let mut table = TextTable::new(1, std::iter::once(String::new()).chain(splits))
        .header(std::iter::once("length".into()).chain(lengths));
    let mut before = None;
    for &(task, model) in rows {
        if several && before.replace(task) != Some(task) {
            table.gap();
        }
        let label = if several { format!("{task} {model}") } else { model.into() };
        let runs: Vec<&TrialResult> =
            found.iter().filter(|run| row_of(run) == (task, model)).collect();
        let cell = |column| mean_and_deviation(&values(&runs, column, value, lost));
        table.row(std::iter::once(label).chain(columns.iter().map(cell)));
    }
    table
}

/// Returns the values of a row's seeds in a column.
///
/// A seed that got no sequence right at a shorter length counts as `lost`. The result is empty if
/// no seed was tested, or if the value of any seed is unknown: a mean over the others would
/// mislead.
fn values(runs: &[&TrialResult], column: &Column, value: Value, lost: Option<f64>) -> Vec<f64> {
    let tested = |run: &TrialResult| run.results.iter().find(|r| key(r) == *column).map(value);
    if !runs.iter().any(|run| tested(run).is_some()) {
        return Vec::new();
    }
    let untested = |run: &TrialResult| lost.filter(|_| is_lost(&run.results, &column.0, column.1));
    let all: Option<Vec<f64>> =
        runs.iter().map(|run| tested(run).or_else(|| untested(run))).collect();
    all.unwrap_or_default()
}

fn seeds(found: &[TrialResult], rows: &[(&str, &str)]) -> String {
    let of = |row: &(&str, &str)| found.iter().filter(|run| row_of(run) == *row).count();
    let (fewest, most) = (rows.iter().map(of).min(), rows.iter().map(of).max());
    match (fewest.unwrap_or(0), most.unwrap_or(0)) {
        (_, 1) if found.iter().all(|run| run.seed == found[0].seed) => {
            format!("seed {}", found[0].seed)
        }
        (fewest, most) if fewest == most => format!("mean of {}", plural(most, "seed")),
        (fewest, most) => format!("mean of {fewest} to {most} seeds"),
    }
}

fn row_of(run: &TrialResult) -> (&str, &str) {
    (&run.task, &run.model)
}

fn key(result: &EvalResult) -> Column {
    (result.split.clone(), result.shortest, result.length)
}

/// Formats shares as `99.8±0.4`. The deviation has fewer digits if the mean needs more.
fn mean_and_deviation(shares: &[f64]) -> String {
    let Some(Spread { mean, deviation, .. }) = Spread::of(shares.iter().copied()) else {
        return "-".into();
    };
    let text = percent(mean).trim_end_matches('%').to_string();
    match 100.0 * deviation.unwrap_or(0.0) {
        deviation if deviation < 0.05 || text.len() > 5 => text,
        deviation if deviation < 10.0 && text.len() < 5 => format!("{text}±{deviation:.1}"),
        deviation => format!("{text}±{deviation:.0}"),
    }
}

/// Summarizes, for each task, how much the first model was tested and how much of it was right.
pub fn summary(found: &[TrialResult]) -> String {
    let mut tasks: Vec<&str> = Vec::new();
    for run in found {
        if !tasks.contains(&run.task.as_str()) {
            tasks.push(&run.task);
        }
    }
    let of = |task: &&str| {
        let of_task = |run: &&TrialResult| run.model == found[0].model && run.task == *task;
        let runs: Vec<&TrialResult> = found.iter().filter(of_task).collect();
        let name = match tasks.len() {
            1 => found[0].model.clone(),
            _ => format!("{task} {}", found[0].model),
        };
        (!runs.is_empty()).then(|| verdict(&name, &runs))
    };
    tasks.iter().filter_map(of).collect()
}

fn verdict(name: &str, runs: &[&TrialResult]) -> String {
    let all: Vec<&EvalResult> = runs.iter().flat_map(|run| &run.results).collect();
    let sequences: u64 = all.iter().map(|r| r.sequences).sum();
    let answers: u64 = all.iter().map(|r| r.scored).sum();
    let wrong: f64 = all.iter().map(|r| r.token_error * r.scored as f64).sum();
    let verdict = match all.iter().filter(|r| r.exact_match < 1.0).count() {
        0 => "100.0% on every test and seed".to_string(),
        n => format!("short of 100% in {n} of {} results", all.len()),
    };
    format!(
        "{name}: {verdict}\n{} sequences with {} answers, {} of them wrong, in {}\n",
        whole(sequences),
        whole(answers),
        whole(wrong.round() as u64),
        plural(runs.len(), "run")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(split: &str, length: usize, exact_match: f64) -> EvalResult {
        EvalResult {
            split: split.into(),
            length,
            shortest: length,
            sequences: 1000,
            exact_match,
            scored: 5000,
            token_error: (1.0 - exact_match) / 5.0,
            ..Default::default()
        }
    }

    fn run(model: &str, seed: u64, results: Vec<EvalResult>) -> TrialResult {
        let (task, model, settings) = ("flipflop".into(), model.into(), serde_json::Value::Null);
        TrialResult { task, model, seed, settings, step: 100, results }
    }

    #[test]
    fn a_table_reads_as_it_should() {
        let found = [
            run("tra", 1, vec![result("iid", 512, 1.0), result("iid", 65_536, 1.0)]),
            run("rope", 1, vec![result("iid", 512, 0.9)]),
            run("tra", 2, vec![result("iid", 512, 1.0), result("iid", 65_536, 1.0)]),
            run("rope", 2, vec![result("iid", 512, 0.8)]),
        ];
        let expected = "\
sequences with every answer right, %; mean of 2 seeds
            iid    iid
length      512 65,536
tra       100.0  100.0
rope   85.0±7.1      -

answers that are wrong, %; mean of 2 seeds
           iid    iid
length     512 65,536
tra        0.0    0.0
rope   3.0±1.4      -

";
        assert_eq!(experiment(&found), expected);
        assert_eq!(
            summary(&found),
            "tra: 100.0% on every test and seed\n4,000 sequences with 20,000 answers, 0 of them \
             wrong, in 2 runs\n"
        );
        assert!(summary(&found[1..2]).contains("short of 100% in 1 of 1"));
        assert_eq!(summary(&[]), "");
    }

    /// A seed that got nothing right at a shorter length stays in the mean. Otherwise only the
    /// good seeds would count.
    #[test]
    fn seeds_that_lost_all_count() {
        let found = [
            run("rope", 1, vec![result("iid", 64, 0.0)]),
            run("rope", 2, vec![result("iid", 64, 0.5), result("iid", 128, 0.5)]),
            run("rope", 3, vec![result("iid", 64, 0.5), result("iid", 128, 0.25)]),
            run("tra", 1, vec![result("iid", 64, 1.0), result("sparse", 128, 1.0)]),
        ];
        let text = experiment(&found);
        let row = |n: usize| text.lines().filter(|line| line.starts_with("rope")).nth(n).unwrap();
        assert!(text.starts_with("sequences with every answer right, %; mean of 1 to 3 seeds\n"));
        assert_eq!(
            row(0).split_whitespace().collect::<Vec<_>>(),
            ["rope", "33.3±29", "25.0±25", "-"]
        );
        assert_eq!(row(1).split_whitespace().nth(2), Some("-"), "{text}");
    }

    #[test]
    fn many_columns_are_broken_and_nothing_is_wider_than_80() {
        let results = (0..12).map(|i| result("sparse", 1000 << i, 0.5 + f64::from(i) / 30.0));
        let results: Vec<_> = results.collect();
        let mut found =
            vec![run("tra-threshold", 1, results.clone()), run("tra-threshold", 2, results)];
        found[1].results.iter_mut().for_each(|r| r.exact_match *= 0.37);
        let text = experiment(&found);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.matches("tra-threshold").count() >= 4, "{text}");
    }

    #[test]
    fn many_mechanisms_stand_below_each_other() {
        let names = ["tra", "rope", "stickbreaking", "tra-threshold", "fox"];
        let far = EvalResult { exact_match: 0.9999, ..result("201-300", 65_536, 0.0) };
        let other = EvalResult { exact_match: 0.1, ..far.clone() };
        let row = |name: &str, result: &EvalResult| GridRow {
            task: "copy-unique".into(),
            measure: Measure::ExactMatch,
            attention: name.into(),
            results: vec![result.clone()],
        };
        let rows: Vec<_> =
            names.iter().flat_map(|name| [row(name, &far), row(name, &other)]).collect();
        let text = grid(&rows);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.matches("201-300").count(), 2);
        assert!(names.iter().all(|name| text.contains(name)), "{text}");
    }

    #[test]
    fn all_and_nothing_are_said_only_where_they_are_true() {
        assert_eq!(mean_and_deviation(&[1.0, 0.9998]), "99.99");
        assert_eq!(mean_and_deviation(&[0.0, 0.00002]), "0.001");
        assert_eq!(mean_and_deviation(&[0.12, 0.6]), "36.0±34");
        assert_eq!(mean_and_deviation(&[0.99, 1.0]), "99.5±0.7");
    }
}
