//! The paper's timing table: what TRA's training step costs beside RoPE's.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::json;
use tra_lab::bench::{Case, Peak, Workload};
use tra_lab::reproduce::Scale;
use tra_lab::stats::median;

use crate::bench::in_turns;
use crate::terminal;

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Timing {
    title: String,
    models: [String; 2],
    sizes: Vec<String>,
    steps: u64,
    quick: Work,
    paper: Work,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    batch: usize,
    length: usize,
    vocab: usize,
    repeat: usize,
}

/// One line of the table: seconds of a step, all that were measured.
struct Line {
    size: String,
    seconds: [Vec<f64>; 2],
}

impl Line {
    fn medians(&self) -> [f64; 2] {
        self.seconds.each_ref().map(|all| median(all))
    }
}

pub fn run(text: &str, scale: Scale, out: &Path, dry_run: bool) -> Result<()> {
    let file: Timing = toml::from_str(text).context("crates/tra-cli/experiments/timing.toml")?;
    let work = if scale == Scale::Quick { file.quick } else { file.paper };
    let Work { batch, length, vocab, repeat } = work;
    let mut groups: Vec<(&String, Vec<Case>)> = Vec::new();
    for size in &file.sizes {
        let parsed = size.parse().map_err(|e| anyhow::anyhow!("{e}"))?;
        let case = |model: &String| Case {
            vocab,
            ..Case::new(Workload::TrainStep, model, parsed, batch, length)
        };
        groups.push((size, file.models.iter().map(case).collect()));
    }
    // At half the speed of a plain product, warming up included.
    let flops: f64 = groups.iter().flat_map(|(_, cases)| cases).map(Case::flops).sum();
    let begin = Instant::now();
    let peak = Peak::new().run() / begin.elapsed().as_secs_f64();
    let seconds = flops * (repeat + 4) as f64 / (0.5 * peak);
    terminal::say(&format!(
        "{}, {} scale: batch {batch}, {vocab} tokens, {repeat} steps of each in turns: about {}",
        file.title,
        scale.name(),
        terminal::duration(seconds)
    ));
    if dry_run {
        return Ok(());
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut lines = Vec::new();
    for (size, cases) in groups {
        let mut seconds = in_turns(cases, repeat, threads, size)?.into_iter();
        let mut next = || seconds.next().context("one time for every model");
        lines.push(Line { size: size.clone(), seconds: [next()?, next()?] });
    }
    let text = table(&file, work, scale, threads, &lines);
    let raw = json!({
        "title": file.title, "scale": scale.name(), "models": file.models, "threads": threads,
        "batch": batch, "length": length, "vocab": vocab,
        "sizes": lines.iter().map(|line| json!({ "size": line.size, "seconds": line.seconds }))
            .collect::<Vec<_>>(),
    });
    super::write(out, "table.txt", &text)?;
    super::write(out, "results.json", &format!("{raw:#}\n"))?;
    terminal::print(&format!("{text}\n{}\n", out.join("results.json").display()))
}

fn table(file: &Timing, work: Work, scale: Scale, threads: usize, lines: &[Line]) -> String {
    let [a, b] = &file.models;
    let steps = terminal::thousands(file.steps);
    let mut text = format!(
        "{}, {} scale\nbatch {}, vocabulary {}, {threads} threads, medians of {} steps in turns\n\n",
        file.title,
        scale.name(),
        work.batch,
        terminal::thousands(work.vocab as u64),
        work.repeat
    );
    text += &format!(
        "{:<8} {:>10} {:>10} {:>9}   {steps} steps: {:>9} {:>9}\n",
        "size",
        format!("{a} ms"),
        format!("{b} ms"),
        format!("{b} costs"),
        format!("{a} min"),
        format!("{b} min")
    );
    let line = |size: &str, [a, b]: [f64; 2], label: &str| {
        let cost = 100.0 * (b / a - 1.0);
        let minutes = [a, b].map(|seconds| seconds * file.steps as f64 / 60.0);
        format!(
            "{size:<8} {:>10.1} {:>10.1} {:>9}   {label:>12}  {:>9.2} {:>9.2}\n",
            1000.0 * a,
            1000.0 * b,
            format!("{cost:+.1}%"),
            minutes[0],
            minutes[1]
        )
    };
    for of in lines {
        text += &line(&of.size, of.medians(), "");
    }
    text += "the paper, on one A40 with batch 64\n";
    // Minutes for 20,000 steps, as published.
    for (size, minutes) in [("tiny", [58.73, 65.88]), ("medium", [156.34, 178.19])] {
        text += &line(size, minutes.map(|m: f64| m * 60.0 / 20_000.0), "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_lines_are_its_own() {
        let file = toml::from_str(super::super::TIMING).unwrap();
        let lines =
            [Line { size: "tiny".into(), seconds: [vec![0.010, 0.5, 0.01], vec![0.009; 3]] }];
        let work = Work { batch: 8, length: 256, vocab: 4096, repeat: 3 };
        let text = table(&file, work, Scale::Quick, 2, &lines);
        assert!(text.contains("58.73") && text.contains("178.19"), "{text}");
        assert!(text.contains("+12.2%") && text.contains("+14.0%"), "{text}");
        assert!(text.contains("-10.0%"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
