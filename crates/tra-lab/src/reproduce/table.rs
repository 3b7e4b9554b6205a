//! The table of an experiment: a row for every model, a column for every split and length.

use super::TrialResult;
use crate::records::{EvalResult, is_lost};
use crate::report::{percent, plural, whole};
use crate::stats::Spread;

/// Columns that fit on a line of 80.
const COLUMNS: usize = 7;

type Column = (String, usize, usize);

/// What of a result is shown.
type Value = fn(&EvalResult) -> f64;

/// Share of sequences that are fully right, then of answers that are wrong, in percent: the mean over seeds,
/// and the deviation where they differ. A dash: not tested, as no sequence was right at a shorter length, or
/// as the model has no such positions. Where that is so of some seeds only, they count as having none right.
pub fn table(found: &[TrialResult]) -> String {
    let (mut rows, mut columns): (Vec<(&str, &str)>, Vec<Column>) = (Vec::new(), Vec::new());
    for run in found {
        let row = row_of(run);
        if !rows.contains(&row) {
            rows.push(row);
        }
        for column in run.results.iter().map(key) {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
    }
    // A task may be there with later seeds only; its rows stay together all the same.
    rows.sort_by_key(|(task, _)| found.iter().position(|run| run.task == *task));
    let seeds = seeds(found, &rows);
    let parts: [(&str, Value, Option<f64>); 2] = [
        ("sequences with every answer right", |r| r.exact_match, Some(0.0)),
        ("answers that are wrong", |r| r.token_error, None),
    ];
    let mut text = String::new();
    for (what, value, lost) in parts {
        text += &format!("{what}, %; {seeds}\n");
        for columns in columns.chunks(COLUMNS) {
            text += &block(&rows, columns, |row, column| {
                let runs: Vec<&TrialResult> =
                    found.iter().filter(|run| row_of(run) == *row).collect();
                values(&runs, column, value, lost)
            });
        }
        text.push('\n');
    }
    text
}

/// What the seeds of a row have in a column: of one that lost everything before, `lost`. Nothing where none was
/// tested, or where one cannot be told: a mean of the others would flatter or wrong the row.
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

fn block(
    rows: &[(&str, &str)],
    columns: &[Column],
    values: impl Fn(&(&str, &str), &Column) -> Vec<f64>,
) -> String {
    let several = rows.iter().any(|(task, _)| *task != rows[0].0);
    let label = |(task, model): &(&str, &str)| match several {
        true => format!("{task} {model}"),
        false => model.to_string(),
    };
    let widest = rows.iter().map(|row| label(row).len()).max().unwrap_or(0).max(6);
    let mut text = " ".repeat(widest);
    for (split, ..) in columns {
        text += &format!(" {split:>8}");
    }
    text += &format!("\n{:widest$}", "length");
    for (_, from, to) in columns {
        let lengths = match from == to {
            true => whole(*to as u64),
            false => format!("{from}-{to}"),
        };
        text += &format!(" {lengths:>8}");
    }
    text.push('\n');
    for (index, row) in rows.iter().enumerate() {
        if index > 0 && several && rows[index - 1].0 != row.0 {
            text.push('\n');
        }
        text += &format!("{:widest$}", label(row));
        for column in columns {
            text += &format!(" {:>8}", mean_and_deviation(&values(row, column)));
        }
        text.push('\n');
    }
    text
}

/// `99.8±0.4`, of shares; with fewer digits of the deviation where the mean needs more.
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

/// How much the first model was tested on every task, and how much of it was right.
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
    use crate::config::RunConfig;

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
        let (task, model, settings) = ("flipflop".into(), model.into(), RunConfig::default());
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
            iid      iid
length      512   65,536
tra       100.0    100.0
rope   85.0±7.1        -

answers that are wrong, %; mean of 2 seeds
            iid      iid
length      512   65,536
tra         0.0      0.0
rope    3.0±1.4        -

";
        assert_eq!(table(&found), expected);
        assert_eq!(
            summary(&found),
            "tra: 100.0% on every test and seed\n4,000 sequences with 20,000 answers, 0 of them \
             wrong, in 2 runs\n"
        );
        assert!(summary(&found[1..2]).contains("short of 100% in 1 of 1"));
        assert_eq!(summary(&[]), "");
    }

    /// A seed that lost all before does not leave the mean, or only the good ones would stay in it.
    #[test]
    fn seeds_that_lost_all_count() {
        let found = [
            run("rope", 1, vec![result("iid", 64, 0.0)]),
            run("rope", 2, vec![result("iid", 64, 0.5), result("iid", 128, 0.5)]),
            run("rope", 3, vec![result("iid", 64, 0.5), result("iid", 128, 0.25)]),
            run("tra", 1, vec![result("iid", 64, 1.0), result("sparse", 128, 1.0)]),
        ];
        let text = table(&found);
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
        let results = (0..9).map(|i| result("sparse", 1000 << i, 0.5 + f64::from(i) / 20.0));
        let results: Vec<_> = results.collect();
        let mut found =
            vec![run("tra-threshold", 1, results.clone()), run("tra-threshold", 2, results)];
        found[1].results.iter_mut().for_each(|r| r.exact_match *= 0.37);
        let text = table(&found);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.matches("tra-threshold").count(), 4);
    }

    #[test]
    fn all_and_nothing_are_said_only_where_they_are_true() {
        assert_eq!(mean_and_deviation(&[1.0, 0.9998]), "99.99");
        assert_eq!(mean_and_deviation(&[0.0, 0.00002]), "0.001");
        assert_eq!(mean_and_deviation(&[0.12, 0.6]), "36.0±34");
        assert_eq!(mean_and_deviation(&[0.99, 1.0]), "99.5±0.7");
    }
}
