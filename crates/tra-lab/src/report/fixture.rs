//! A small report for tests: `rope` before `tra`, two seeds each.

use super::*;
use crate::records::wilson;

pub fn report() -> Report {
    let runs = [("rope", 0), ("tra", 0), ("rope", 1), ("tra", 1)];
    Report {
        title: "Flip-flop <test>".into(),
        version: "0.1.0".into(),
        commands: vec!["tra train --task flip-flop && echo \"done\"".into()],
        runs: runs.map(|(attention, seed)| run(attention, seed)).into(),
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
        seed,
        train_length: (16, 16),
        parameters: 1_000,
        settings: "note = \"a < b & c\"\n".into(),
        steps: steps.collect(),
        evaluations: vec![EvaluationRecord { step: 10, results: results.clone() }],
        results,
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
