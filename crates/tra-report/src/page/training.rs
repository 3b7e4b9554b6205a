//! The plots of loss, and of exact match or perplexity, against training steps.

use super::Run;
use super::accuracy::percent_axis;
use super::plot::{Axis, Line, Plot, Point};
use super::scale::{Kind, decade_ticks, linear_ticks};
use super::series::{Place, Series, Spread, Task, places};
use crate::Measure;
use crate::records::{EvalResult, StepRecord};
use crate::text::{lengths, percent, perplexity, plural, whole};

/// Number of points that a plot can resolve.
const BINS: usize = 300;
/// Smallest loss shown, as a share of the largest. Smaller losses are drawn at the lower end of the
/// axis, because a log axis cannot show zero.
const DEEPEST: f64 = 1e-9;

pub fn section(task: &Task) -> String {
    let mut out = match loss_plot(task) {
        Some(plot) => plot.figure(&loss_caption(task)),
        None => "<p>No training steps were recorded.</p>\n".into(),
    };
    let evaluated = places(evaluation_results(task));
    if !evaluated.is_empty() {
        let panels = evaluated.iter().filter_map(|&place| evaluation_plot(task, place));
        out += &format!(
            "<p>{}</p>\n<div class=\"panels\">{}</div>\n",
            evaluations_caption(task),
            panels.map(|plot| plot.panel()).collect::<String>()
        );
    }
    out
}

fn evaluation_results<'a>(task: &Task<'a>) -> impl Iterator<Item = &'a EvalResult> {
    task.runs().flat_map(|run| &run.evaluations).flat_map(|evaluation| &evaluation.results)
}

/// Returns the value by which the task is judged.
fn measured(measure: Measure, result: &EvalResult) -> f64 {
    match measure {
        Measure::ExactMatch => result.exact_match,
        Measure::Perplexity => result.loss.exp(),
    }
}

fn evaluations_caption(task: &Task) -> String {
    let mut out = String::from(match task.measure {
        Measure::ExactMatch => "Exact match in evaluations during training.",
        Measure::Perplexity => {
            "Perplexity, the exponential of the mean loss, in evaluations during training."
        }
    });
    let bad = |result: &&EvalResult| !measured(task.measure, result).is_finite();
    let left_out = evaluation_results(task).filter(bad).count();
    if left_out > 0 {
        out += &format!(" Omitted: {} not finite.", plural(left_out, "result"));
    }
    out
}

fn loss_plot(task: &Task) -> Option<Plot> {
    let losses = || task.runs().flat_map(|run| &run.steps).filter(|step| step.loss.is_finite());
    let high = losses().map(|step| step.loss).reduce(f64::max).filter(|&high| high > 0.0)?;
    let floor = high * DEEPEST;
    let low = losses().map(|step| step.loss.max(floor)).reduce(f64::min)?;
    // A constant loss still needs an axis of some height.
    let (low, high) = if high > low * 1.01 { (low, high) } else { (low / 2.0, high * 2.0) };
    Some(Plot {
        title: format!("{}: training loss", task.name),
        description: "Mean cross-entropy of every training step, one line per run.".into(),
        x: step_axis(losses().map(|step| step.step)),
        y: match task.measure {
            Measure::ExactMatch => Axis {
                label: "Loss (nats, log scale)".into(),
                kind: Kind::Log,
                low,
                high,
                ticks: decade_ticks(low, high),
            },
            // Text cannot be predicted exactly, so its loss stays far from zero.
            Measure::Perplexity => Axis::linear("Loss (nats)", [low, high].into_iter())?,
        },
        lines: task.series.iter().flat_map(|series| loss_lines(series, low)).collect(),
        stretches: Vec::new(),
    })
}

fn loss_lines(series: &Series, low: f64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for run in &series.runs {
        let losses: Vec<(f64, f64)> = run
            .steps
            .iter()
            .filter(|step| step.loss.is_finite())
            .map(|step| (step.step as f64, step.loss.max(low)))
            .collect();
        if losses.is_empty() {
            continue;
        }
        let mut points: Vec<Point> =
            smooth(&losses).into_iter().map(|(x, y)| Point::plain(x, y)).collect();
        if let Some(last) = points.last_mut() {
            last.tip = format!("{}: smoothed loss {:.3e} at the end", run.name, last.y);
        }
        let label = lines.is_empty().then(|| series.label.clone());
        lines.push(Line {
            mark: series.mark.clone(),
            label,
            points,
            raw: coarse(&losses),
            dots: false,
        });
    }
    lines
}

fn loss_caption(task: &Task) -> String {
    let bad = |step: &&StepRecord| !step.loss.is_finite();
    let left_out = task.runs().flat_map(|run| &run.steps).filter(bad).count();
    let mut out = String::from(
        "Training loss, one line per run. Faint lines are the recorded values; strong lines are \
         running means over a twentieth of the run.",
    );
    if left_out > 0 {
        out += &format!(" Omitted: {} whose loss is not finite.", plural(left_out, "step"));
    }
    out
}

/// Returns the running mean over a twentieth of the values, at about `BINS` points.
fn smooth(values: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let reach = values.len() / 40;
    let every = values.len().div_ceil(BINS).max(1);
    let last = values.len().saturating_sub(1);
    let at = |i: usize| {
        let around = &values[i.saturating_sub(reach)..(i + reach + 1).min(values.len())];
        (values[i].0, around.iter().map(|value| value.1).sum::<f64>() / around.len() as f64)
    };
    let mut out: Vec<(f64, f64)> = (0..last).step_by(every).map(at).collect();
    if !values.is_empty() {
        out.push(at(last));
    }
    out
}

/// Returns the smallest and the largest value of every bin, so that spikes survive.
fn coarse(values: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if values.len() <= 2 * BINS {
        return values.to_vec();
    }
    let by_loss = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let ends = |bin: &[(f64, f64)]| {
        let mut ends = [bin.iter().min_by(by_loss).copied(), bin.iter().max_by(by_loss).copied()];
        ends.sort_by(|a, b| {
            a.map(|p| p.0).partial_cmp(&b.map(|p| p.0)).unwrap_or(std::cmp::Ordering::Equal)
        });
        ends
    };
    values.chunks(values.len().div_ceil(BINS)).flat_map(ends).flatten().collect()
}

/// Returns the plot of a place; `None` if no value is finite.
fn evaluation_plot(task: &Task, place: Place) -> Option<Plot> {
    let name =
        format!("{} at {} {}", place.split, lengths(place.shortest, place.length), task.unit);
    let steps = task.runs().flat_map(|run| &run.evaluations).map(|evaluation| evaluation.step);
    let line = |series: &Series| {
        let points = evaluation_points(task.measure, series, place);
        Line {
            mark: series.mark.clone(),
            label: (!points.is_empty()).then(|| series.label.clone()),
            dots: points.len() <= 12,
            points,
            raw: Vec::new(),
        }
    };
    let (what, y) = match task.measure {
        Measure::ExactMatch => ("Exact match", percent_axis()),
        // All places share one axis, so that they can be compared.
        Measure::Perplexity => {
            let values = evaluation_results(task).map(|result| result.loss.exp());
            ("Perplexity", Axis::fitted("Perplexity", values)?)
        }
    };
    Some(Plot {
        description: format!("{what} on {name} during training."),
        title: name,
        x: step_axis(steps),
        y,
        lines: task.series.iter().map(line).collect(),
        stretches: Vec::new(),
    })
}

fn evaluation_points(measure: Measure, series: &Series, place: Place) -> Vec<Point> {
    let mut steps: Vec<u64> =
        series.runs.iter().flat_map(|run| &run.evaluations).map(|e| e.step).collect();
    steps.sort_unstable();
    steps.dedup();
    let point = |step: u64| {
        let results = series.runs.iter().filter_map(|run| at_step(run, step, place));
        let spread = Spread::of(results.map(|result| measured(measure, result)))?;
        let mean = match measure {
            Measure::ExactMatch => percent(spread.mean),
            Measure::Perplexity => format!("perplexity {}", perplexity(spread.mean)),
        };
        Some(Point {
            x: step as f64,
            y: spread.mean,
            low: spread.least,
            high: spread.most,
            tip: format!("{}, step {}: {mean}", series.label, whole(step)),
        })
    };
    steps.into_iter().filter_map(point).collect()
}

fn at_step<'a>(run: &'a Run, step: u64, place: Place) -> Option<&'a EvalResult> {
    let evaluation = run.evaluations.iter().rfind(|evaluation| evaluation.step == step)?;
    evaluation.results.iter().find(|&result| Place::of(result) == place)
}

fn step_axis(steps: impl Iterator<Item = u64>) -> Axis {
    let high = steps.max().unwrap_or(1).max(1) as f64;
    Axis {
        label: "Training step".into(),
        kind: Kind::Linear,
        low: 0.0,
        high,
        // Only whole steps get a tick.
        ticks: linear_ticks(0.0, high, 6).into_iter().filter(|(at, _)| at.fract() == 0.0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Report, fixture, series};
    use super::*;

    #[test]
    fn long_runs_are_thinned_and_keep_their_ends_and_spikes() {
        let mut values: Vec<(f64, f64)> = (0..10_000).map(|i| (f64::from(i), 1.0)).collect();
        values[5_001].1 = 50.0;
        let (smooth, coarse) = (smooth(&values), coarse(&values));
        assert!(smooth.len() <= BINS + 2 && coarse.len() <= 2 * BINS);
        assert_eq!((smooth[0].0, smooth[smooth.len() - 1].0), (0.0, 9_999.0));
        assert!(coarse.contains(&(5_001.0, 50.0)));
        assert!(coarse.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }

    #[test]
    fn text_is_judged_by_perplexity() {
        let mut report = fixture::text();
        let page = |report: &Report| section(&series::tasks(&report.runs)[0]);
        let html = page(&report);
        assert!(!html.contains("Exact match") && !html.contains("log scale"), "{html}");
        assert!(html.contains("tra, step 10: perplexity 20.09</title>"), "{html}");
        report.runs[0].evaluations[0].results[0].loss = f64::NAN;
        assert!(page(&report).contains("Omitted: 1 result not finite."));
        for run in &mut report.runs {
            run.evaluations[0].results[0].loss = 1e6;
        }
        assert!(page(&report).contains("Omitted: 4 results not finite."));
    }

    #[test]
    fn one_value_is_its_own_mean() {
        assert_eq!(smooth(&[(1.0, 2.0)]), [(1.0, 2.0)]);
        assert!(smooth(&[]).is_empty());
    }
}
