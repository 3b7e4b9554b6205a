//! The paper's timing table: the cost of a TRA training step compared with RoPE.

use std::time::Instant;

use serde::Deserialize;
use serde_json::json;
use tra_report::TextTable;
use tra_report::text::{duration, whole};

use super::{Finished, Options, Scale, WorkerCommand};
use crate::bench::{Case, Peak, Workload, in_turns};
use crate::error::LabError;
use crate::observer::Observer;
use crate::report::save;
use crate::stats::median;

/// An experiment that times training steps, as read from its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    title: String,
    models: [String; 2],
    sizes: Vec<String>,
    steps: u64,
    quick: Work,
    paper: Work,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    batch: usize,
    length: usize,
    vocab: usize,
    repeat: usize,
}

/// One line of the table: all measured seconds per step.
struct Line {
    size: String,
    seconds: [Vec<f64>; 2],
}

impl Line {
    fn medians(&self) -> [f64; 2] {
        self.seconds.each_ref().map(|all| median(all))
    }
}

impl Timing {
    fn work(&self, scale: Scale) -> Work {
        if scale == Scale::Quick { self.quick } else { self.paper }
    }

    /// Returns the cases to measure, by size.
    fn groups(&self, scale: Scale) -> Result<Vec<(&String, Vec<Case>)>, LabError> {
        let Work { batch, length, vocab, .. } = self.work(scale);
        let group = |size: &String| -> Result<Vec<Case>, LabError> {
            let parsed = size.parse().map_err(|e| LabError::Setting(format!("{e}")))?;
            let case = |model: &String| Case {
                vocab,
                ..Case::new(Workload::TrainStep, model, parsed, batch, length)
            };
            Ok(self.models.iter().map(case).collect())
        };
        self.sizes.iter().map(|size| Ok((size, group(size)?))).collect()
    }

    /// Reports what will be measured and how long it will take.
    pub(super) fn forecast(
        &self,
        scale: Scale,
        observer: &mut dyn Observer,
    ) -> Result<(), LabError> {
        let Work { batch, vocab, repeat, .. } = self.work(scale);
        // Assumes half the speed of a plain matrix product, including the warm-up.
        let groups = self.groups(scale)?;
        let flops: f64 = groups.iter().flat_map(|(_, cases)| cases).map(Case::flops).sum();
        let begin = Instant::now();
        let peak = Peak::new().run() / begin.elapsed().as_secs_f64();
        let time = duration(flops * (repeat + 4) as f64 / (0.5 * peak));
        observer.note(format!(
            "{}, {} scale: batch {batch}, {vocab} tokens, {repeat} steps of each \
             in turns: about {time}",
            self.title,
            scale.name(),
        ));
        Ok(())
    }

    pub(super) fn run(
        &self,
        options: &Options,
        worker: Option<&WorkerCommand>,
        observer: &mut dyn Observer,
    ) -> Result<Finished, LabError> {
        let Options { scale, out, .. } = options;
        self.forecast(*scale, observer)?;
        let Some(worker) = worker else {
            return Err(LabError::Setting(
                "timing needs a worker process per model; set a worker command".into(),
            ));
        };
        let Work { batch, length, vocab, repeat } = self.work(*scale);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut lines = Vec::new();
        for (size, cases) in self.groups(*scale)? {
            let program = worker.program();
            let seconds = in_turns(cases, repeat, threads, size, program, observer)?;
            let Ok(seconds) = <[Vec<f64>; 2]>::try_from(seconds) else {
                unreachable!("two models have two lists of times")
            };
            lines.push(Line { size: size.clone(), seconds });
        }
        let table = self.table(*scale, threads, &lines);
        let sizes: Vec<_> = lines
            .iter()
            .map(|line| json!({ "size": line.size, "seconds": line.seconds }))
            .collect();
        let raw = json!({
            "title": self.title, "scale": scale.name(), "models": self.models, "threads": threads,
            "batch": batch, "length": length, "vocab": vocab, "sizes": sizes,
        });
        let files = vec![out.join("table.txt"), out.join("results.json")];
        save(&files[0], &table)?;
        save(&files[1], &format!("{raw:#}\n"))?;
        Ok(Finished { table, files })
    }

    fn table(&self, scale: Scale, threads: usize, lines: &[Line]) -> String {
        let ([a, b], work) = (&self.models, self.work(scale));
        let header = [
            "size".into(),
            format!("{a} ms"),
            format!("{b} ms"),
            format!("{b} costs"),
            format!("{a} min"),
            format!("{b} min"),
        ];
        let line = |size: &str, [a, b]: [f64; 2]| {
            let minutes = |seconds: f64| format!("{:.2}", seconds * self.steps as f64 / 60.0);
            let ms = |seconds: f64| format!("{:.1}", 1000.0 * seconds);
            let cost = format!("{:+.1}%", 100.0 * (b / a - 1.0));
            [size.into(), ms(a), ms(b), cost, minutes(a), minutes(b)]
        };
        let mut table = TextTable::new(1, header);
        lines.iter().for_each(|of| table.row(line(&of.size, of.medians())));
        table.gap();
        // Minutes for 20,000 steps, as published.
        for (size, minutes) in [("tiny", [58.73, 65.88]), ("medium", [156.34, 178.19])] {
            let label = format!("{size} (paper)");
            table.row(line(&label, minutes.map(|m: f64| m * 60.0 / 20_000.0)));
        }
        format!(
            "{}, {} scale\nbatch {}, vocabulary {}, {threads} threads, medians of {} steps in turns\n\
             minutes for {} steps; the paper's on one A40 with batch 64\n\n{table}",
            self.title,
            scale.name(),
            work.batch,
            whole(work.vocab as u64),
            work.repeat,
            whole(self.steps),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;
    use super::*;

    #[test]
    fn the_paper_s_lines_are_its_own() {
        let Experiment::Timing(file) = Experiment::open("timing").unwrap() else { panic!() };
        let lines =
            [Line { size: "tiny".into(), seconds: [vec![0.010, 0.5, 0.01], vec![0.009; 3]] }];
        let text = file.table(Scale::Quick, 2, &lines);
        assert!(text.contains("58.73") && text.contains("178.19"), "{text}");
        assert!(text.contains("+12.2%") && text.contains("+14.0%"), "{text}");
        assert!(text.contains("-10.0%"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
