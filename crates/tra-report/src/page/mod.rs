//! The report of a set of runs: one self-contained HTML page.
//!
//! The page needs no network and no script. The SVG plots are generated here, without a plotting
//! library, so that their colours follow the style sheet in light and dark mode.

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
    /// Commands that repeat the runs, one per line.
    pub commands: Vec<String>,
    /// The runs, in any order.
    pub runs: Vec<Run>,
    /// What is missing from the page, and why, one line each.
    pub left_out: Vec<String>,
}

/// A trained model and its records.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name of the run directory.
    pub name: String,
    /// The attention mechanism: `tra`, `rope`, …
    pub attention: String,
    /// The training task.
    pub task: String,
    /// Unit of lengths: `tokens`, `symbols`.
    pub unit: String,
    /// How the models of the task are judged.
    pub measure: Measure,
    /// Seed of weights and data.
    pub seed: u64,
    /// Shortest and longest length in training.
    pub train_length: (usize, usize),
    /// Number of trainable parameters.
    pub parameters: usize,
    /// The settings as TOML.
    pub settings: String,
    /// Training steps.
    pub steps: Vec<StepRecord>,
    /// Evaluations during training.
    pub evaluations: Vec<EvaluationRecord>,
    /// Evaluation of the trained model.
    pub results: Vec<EvalResult>,
    /// Perplexity at several windows, if `tra perplexity` was run.
    pub perplexity: Option<Perplexity>,
    /// Attention on one sequence.
    pub picture: Option<Picture>,
}

/// Attention of every head on one sequence.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Text of each token.
    pub tokens: Vec<String>,
    /// `[layer][head]`.
    pub layers: Vec<Vec<HeadPicture>>,
}

/// Attention of one head: three row-major matrices of shape `[length, length]`, one row per query.
#[derive(Clone, Debug)]
pub struct HeadPicture {
    /// Whether the query keeps the key.
    pub keep: Vec<bool>,
    /// Distance in kept keys. 0 for a key that is not kept; 0 everywhere for mechanisms without
    /// counts.
    pub count: Vec<u32>,
    /// Attention weights after the softmax.
    pub weights: Vec<f32>,
}

/// Returns the page.
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

/// Joins the parts of the tasks that `meant` selects. If there are several tasks, each part gets
/// its task's name as a heading.
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
            format!("<p>Missing from this page:</p>\n<ul class=\"left-out\">\n{lines}</ul>\n")
        }
    }
}

fn settings(report: &Report) -> String {
    let mut out = String::new();
    if !report.commands.is_empty() {
        let commands = escape(&report.commands.join("\n"));
        out += &format!("<p>To repeat the runs:</p>\n<pre><code>{commands}</code></pre>\n");
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
