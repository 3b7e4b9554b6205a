//! Small reports for tests: `rope` before `tra`, two seeds each.

use super::*;
use crate::records::{PerplexityResult, PositionLoss, Protocol};
use crate::stats::wilson;

pub fn report() -> Report {
    let runs = [("rope", 0), ("tra", 0), ("rope", 1), ("tra", 1)];
    Report {
        title: "Flip-flop <test>".into(),
        version: "0.1.0".into(),
        commands: vec!["tra train --task flip-flop && echo \"done\"".into()],
        runs: runs.map(|(attention, seed)| run(attention, seed)).into(),
        left_out: Vec::new(),
    }
}

/// Returns a report of runs on text, trained on windows of 128 tokens.
pub fn text() -> Report {
    let mut report = report();
    report.title = "Text".into();
    for run in &mut report.runs {
        run.task = "text".into();
        run.measure = Measure::Perplexity;
        run.train_length = (128, 128);
        run.results = vec![EvalResult { loss: 3.0, ..result("valid", 128, 0) }];
        run.evaluations[0].results = run.results.clone();
        run.perplexity = Some(perplexity(&run.attention, run.seed));
    }
    report
}

/// Returns perplexities that improve with the window for `tra` and degrade for `rope`.
fn perplexity(attention: &str, seed: u64) -> Perplexity {
    let cuts = [
        (Protocol::Chunk, 64, 64),
        (Protocol::Chunk, 128, 128),
        (Protocol::Chunk, 512, 512),
        (Protocol::Sliding, 128, 64),
        (Protocol::Sliding, 512, 256),
    ];
    let result = |(protocol, window, stride): (Protocol, usize, usize)| {
        let octaves = f64::from(window.ilog2()) - 7.0;
        let slope = if attention == "tra" { -1.0 } else { 3.0 };
        let base = if protocol == Protocol::Chunk { 22.0 } else { 21.0 };
        let perplexity = base + slope * octaves + seed as f64;
        let bin = |from: usize| PositionLoss {
            from,
            to: (4 * from).min(window) - 1,
            tokens: 3 * from as u64,
            loss: if attention == "tra" { 3.0 } else { 3.5 },
        };
        PerplexityResult {
            protocol,
            window,
            stride,
            loss: perplexity.ln(),
            loss_interval: [(perplexity - 1.0).ln(), (perplexity + 1.0).ln()],
            perplexity,
            perplexity_interval: [perplexity - 1.0, perplexity + 1.0],
            bits_per_byte: 1.0,
            change: None,
            by_position: [2, 8, 32, 128].into_iter().filter(|b| *b < window).map(bin).collect(),
        }
    };
    Perplexity {
        step: 20,
        text: "a<b>.txt".into(),
        content: String::new(),
        tokens: 10_000,
        bytes: 40_000,
        results: cuts.into_iter().map(result).collect(),
    }
}

fn run(attention: &str, seed: u64) -> Run {
    let steps = (1..=20).map(|step| StepRecord {
        step,
        loss: 2.0 / step as f64,
        lr: 1e-3,
        grad_norm: 1.0,
        tokens: step * 100,
    });
    let results =
        vec![result("iid", 16, 256), result("iid", 64, if attention == "tra" { 256 } else { 9 })];
    Run {
        name: format!("{attention}-{seed}"),
        attention: attention.into(),
        task: "flip-flop".into(),
        unit: "tokens".into(),
        measure: Measure::ExactMatch,
        seed,
        train_length: (16, 16),
        parameters: 1_000,
        settings: "note = \"a < b & c\"\n".into(),
        steps: steps.collect(),
        evaluations: vec![EvaluationRecord { step: 10, results: results.clone() }],
        results,
        perplexity: None,
        picture: Some(picture(5)),
    }
}

pub fn result(split: &str, length: usize, hits: u64) -> EvalResult {
    let (share, interval) = (hits as f64 / 256.0, wilson(hits, 256));
    EvalResult {
        split: split.into(),
        length,
        shortest: length,
        sequences: 256,
        exact_match: share,
        exact_match_interval: interval,
        scored: 256,
        token_error: 1.0 - share,
        token_error_interval: [1.0 - interval[1], 1.0 - interval[0]],
        loss: 0.1,
        loss_interval: [0.0, 0.2],
    }
}

pub fn picture(length: usize) -> Picture {
    let head = HeadPicture {
        keep: (0..length * length).map(|i| i % length <= i / length && i % 3 != 1).collect(),
        count: vec![1; length * length],
        weights: (0..length * length).map(|i| (i * 37 % 100) as f32 / 100.0).collect(),
    };
    Picture { tokens: vec!["<\"&".into(); length], layers: vec![vec![head; 4]; 4] }
}
