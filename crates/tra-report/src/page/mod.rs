//! The report of a set of runs: one self-contained HTML page.
//!
//! The page needs no network and no script. Plots are SVG written by hand because their colours
//! follow the page's style sheet, in light and in dark.

mod accuracy;
mod attention;
mod losses;
mod marks;
mod perplexity;
mod plot;
mod scale;
mod scores;
mod series;
mod summary;
mod table;
mod training;
mod windows;

use crate::Measure;
use crate::records::{EvalResult, EvaluationRecord, Perplexity, StepRecord};
use crate::text::escape;
use series::Task;

const PAPER: &str = "https://arxiv.org/abs/2503.23174";

/// Everything the page shows.
#[derive(Clone, Debug)]
pub struct Report {
    /// Heading of the page.
    pub title: String,
    /// Version of the program that made the runs.
    pub version: String,
    /// Commands that repeat the runs, one a line.
    pub commands: Vec<String>,
    /// The runs, in any order.
    pub runs: Vec<Run>,
    /// What the page is without, and why, one line each.
    pub left_out: Vec<String>,
}

/// One trained model and what is known about it.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name of its folder.
    pub name: String,
    /// The attention mechanism: `tra`, `rope`, …
    pub attention: String,
    /// The task it was trained on.
    pub task: String,
    /// What a length counts: `tokens`, `symbols`.
    pub unit: String,
    /// By what a model of the task is judged.
    pub measure: Measure,
    /// Seed of weights and data.
    pub seed: u64,
    /// Shortest and longest length in training.
    pub train_length: (usize, usize),
    /// How many numbers the model learns.
    pub parameters: usize,
    /// The settings as TOML.
    pub settings: String,
    /// Training steps.
    pub steps: Vec<StepRecord>,
    /// Evaluations during training.
    pub evaluations: Vec<EvaluationRecord>,
    /// Evaluation of the trained model.
    pub results: Vec<EvalResult>,
    /// Perplexity at several windows, where `tra perplexity` was run.
    pub perplexity: Option<Perplexity>,
    /// Attention on one sequence.
    pub picture: Option<Picture>,
}

/// Attention of every head on one sequence.
#[derive(Clone, Debug)]
pub struct Picture {
    /// How each token reads.
    pub tokens: Vec<String>,
    /// `[layer][head]`.
    pub layers: Vec<Vec<HeadPicture>>,
}

/// Attention of one head: three matrices of shape `[length, length]`, row-major, a row a query.
#[derive(Clone, Debug)]
pub struct HeadPicture {
    /// Whether the query keeps the key.
    pub keep: Vec<bool>,
    /// Distance in kept keys; 0 where not kept, 0 everywhere for mechanisms without counts.
    pub count: Vec<u32>,
    /// Attention weights after the softmax.
    pub weights: Vec<f32>,
}

/// The page.
pub fn html(report: &Report) -> String {
    let tasks = series::tasks(&report.runs);
    let title = escape(&report.title);
    let exact = |task: &Task| task.measure == Measure::ExactMatch;
    let text = |task: &Task| task.measure == Measure::Perplexity;
    let any = |_: &Task| true;
    let mut sections = vec![
        ("accuracy", "Accuracy against length", by_task(&tasks, exact, accuracy::section)),
        ("splits", "Splits", by_task(&tasks, exact, table::section)),
        ("losses", "Loss and perplexity", by_task(&tasks, text, losses::section)),
        ("perplexity", "Perplexity against window", by_task(&tasks, any, perplexity::section)),
        ("training", "Training", by_task(&tasks, any, training::section)),
        ("attention", "Attention", attention::section(&tasks)),
        ("settings", "Settings", settings(report)),
    ];
    sections.retain(|(_, _, html)| !html.is_empty());

    let contents: String = sections
        .iter()
        .map(|(id, name, _)| format!("<li><a href=\"#{id}\">{name}</a></li>"))
        .collect();
    let body: String = sections
        .iter()
        .map(|(id, name, html)| format!("<section id=\"{id}\"><h2>{name}</h2>\n{html}</section>\n"))
        .collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title>\n<style>\n{css}</style></head>\n<body>\n\
         <header><h1>{title}</h1>\n{summary}{left_out}\
         <nav aria-label=\"Sections\"><ul>{contents}</ul></nav></header>\n\
         <main>\n{body}</main>\n\
         <footer><p>Made by TRA {version}. Threshold Relative Attention is described in \
         <a href=\"{PAPER}\">arXiv:2503.23174</a>.</p></footer>\n</body></html>\n",
        css = include_str!("report.css"),
        summary = summary::paragraphs(&tasks),
        left_out = left_out(report),
        version = escape(&report.version),
    )
}

/// The parts of the tasks that are `meant` and have something to show. The task's name stands over
/// its part only where there is more than one task.
fn by_task(tasks: &[Task], meant: fn(&Task) -> bool, part: fn(&Task) -> String) -> String {
    let named = |task: &Task| match part(task) {
        html if html.is_empty() || tasks.len() == 1 => html,
        html => format!("<h3>{}</h3>\n{html}", escape(task.name)),
    };
    tasks.iter().filter(|task| meant(task)).map(named).collect()
}

fn left_out(report: &Report) -> String {
    let lines = report.left_out.iter().map(|text| format!("<li>{}</li>\n", escape(text)));
    match report.left_out.is_empty() {
        true => String::new(),
        false => {
            let lines: String = lines.collect();
            format!("<p>Left out of this page:</p>\n<ul class=\"left-out\">\n{lines}</ul>\n")
        }
    }
}

fn settings(report: &Report) -> String {
    let mut out = String::new();
    if !report.commands.is_empty() {
        let commands = escape(&report.commands.join("\n"));
        out += &format!("<p>To repeat it:</p>\n<pre><code>{commands}</code></pre>\n");
    }
    for run in &report.runs {
        out += &format!(
            "<details><summary>{}</summary><pre><code>{}</code></pre></details>\n",
            escape(&run.name),
            escape(run.settings.trim_end()),
        );
    }
    out
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
