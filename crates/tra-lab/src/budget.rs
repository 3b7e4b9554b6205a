//! Lower bounds of the memory that work needs, and whether this machine has it.
//!
//! Every bound counts only what is certainly in memory at one moment. So nothing that could work is
//! refused, but work that is accepted may still need too much. Sums are computed in f64, where no
//! size that can be typed overflows.

use tra_kernels::memory;
use tra_nn::attention::{AnyAttentionConfig, AttentionConfig};
use tra_nn::{Block, DecoderConfig};
use tra_tasks::OpenTask;

use crate::bench::{Case, Workload};
use crate::config::{Lengths, RunConfig};
use crate::error::LabError;
use crate::optimizer::OptimizerKind;

/// Bytes per f32.
const FLOAT: f64 = 4.0;

/// Bytes per token of a sample: its number and whether it is scored.
const TOKEN: f64 = 5.0;

/// Number of parts of a batch in training. One or more of them are computed at a time.
const PARTS: usize = 4;

/// Numbers kept for the backward pass per token and layer, as a multiple of the width. They are the
/// queries, keys, values, inputs of both norms, and at least those of the feed-forward part.
const KEPT: f64 = 8.0;

/// Sequences longer than this are read through a cache.
const CACHED: u64 = 4096;

/// A lower bound of the memory that work needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    what: &'static str,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
struct Part {
    bytes: f64,
    of: String,
    /// Settings that would need less.
    advice: &'static str,
}

fn part(bytes: f64, of: impl Into<String>, advice: &'static str) -> Part {
    Part { bytes, of: of.into(), advice }
}

impl Need {
    /// Returns the bytes it needs at least.
    pub fn bytes(&self) -> u64 {
        // The conversion saturates at the largest u64.
        self.parts.iter().map(|part| part.bytes).sum::<f64>() as u64
    }

    /// Returns an error if this machine has less memory. Checks nothing where the total memory is
    /// unknown.
    pub fn check(&self) -> Result<(), LabError> {
        memory::total().map_or(Ok(()), |total| self.check_in(total))
    }

    /// Returns an error if it needs more than `total` bytes.
    pub fn check_in(&self, total: u64) -> Result<(), LabError> {
        let largest = self.parts.iter().max_by(|a, b| a.bytes.total_cmp(&b.bytes));
        match largest {
            Some(Part { bytes, of, advice }) if self.bytes() > total => Err(LabError::Memory {
                what: self.what,
                need: self.bytes(),
                part: *bytes as u64,
                of: of.clone(),
                total,
                advice,
            }),
            _ => Ok(()),
        }
    }
}

/// Formats a number of bytes with a fitting unit.
pub fn bytes(number: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let sized = |power: usize| number as f64 / 1024f64.powi(power as i32 + 1);
    let unit = (0..units.len()).rev().find(|power| sized(*power) >= 1.0);
    unit.map_or(format!("{number} B"), |power| format!("{:.1} {}", sized(power), units[power]))
}

/// Returns the need of training at its last and longest step.
pub fn training(config: &RunConfig, task: &OpenTask) -> Result<Need, LabError> {
    let decoder = config.decoder(task.vocab())?;
    let last = config.steps.saturating_sub(1);
    let (batch, lengths) = (config.batch_at(last), config.lengths_at(last));
    let shape = format!("batch {batch} x length {lengths}");
    let mut parts = step(&decoder, config.optimizer, batch, usual_tokens(task, lengths), &shape);
    parts.push(read(config, task));
    Ok(Need { what: "this run", parts })
}

/// Returns the need of the tokens of one training step, wherever the model is.
pub fn data(config: &RunConfig, task: &OpenTask) -> Need {
    Need { what: "this run", parts: vec![read(config, task)] }
}

fn read(config: &RunConfig, task: &OpenTask) -> Part {
    let last = config.steps.saturating_sub(1);
    let (batch, lengths) = (config.batch_at(last), config.lengths_at(last));
    let sequences = batch as f64 * config.accumulate as f64;
    let accumulate = config.accumulate;
    let of = format!("the tokens of accumulate {accumulate} x batch {batch} x length {lengths}");
    let tokens = usual_tokens(task, lengths);
    part(TOKEN * sequences * tokens, of, "a smaller --accumulate, --batch or --length")
}

/// Returns the memory of one training step: of the model, and of what is kept for the backward
/// pass.
fn step(
    decoder: &DecoderConfig,
    kind: OptimizerKind,
    batch: usize,
    tokens: f64,
    shape: &str,
) -> Vec<Part> {
    let [vocab, layers, width, heads] =
        [decoder.vocab, decoder.layers, decoder.width, decoder.heads].map(|n| n as f64);
    let Parameters { all, matrices, own } = parameters(decoder);
    // A weight, its gradient and two moments. Muon has only one moment per matrix of a block.
    let numbers = if kind == OptimizerKind::Muon { 4.0 * all - matrices } else { 4.0 * all };
    let state = FLOAT * numbers + layers * size_of::<Block>() as f64;
    let sequences = batch.div_ceil(PARTS) as f64;
    let read = sequences * tokens;
    let pairs = match decoder.attention.has_kernel() {
        true => 0.0,
        false => sequences * layers * heads * tokens * tokens,
    };
    let model = match own > all / 2.0 {
        true => "fewer model.attention.count, .npos or .buckets",
        false => "a smaller --width, --layers or vocabulary",
    };
    let smaller = "a smaller --batch, --length, --width or --layers";
    let activations = FLOAT * read * layers * width * KEPT;
    let of = |what: &str| format!("{what} of {shape}");
    vec![
        part(state, format!("training {all:.1e} parameters"), model),
        part(activations, of("activations"), smaller),
        part(FLOAT * pairs, of("the attention weights"), "a smaller --length or --batch"),
        part(FLOAT * read * vocab, of("logits"), "a smaller --batch, --length or vocabulary"),
    ]
}

struct Parameters {
    all: f64,
    /// Parameters in the matrices of the blocks.
    matrices: f64,
    /// Parameters in tables of the mechanism.
    own: f64,
}

fn parameters(decoder: &DecoderConfig) -> Parameters {
    let [vocab, layers, width, heads] =
        [decoder.vocab, decoder.layers, decoder.width, decoder.heads].map(|n| n as f64);
    let tables = if decoder.tied { 1.0 } else { 2.0 };
    // 4 for queries, keys, values and output, 4 and 2 for the feed-forward part.
    let matrices = layers * 10.0 * width * width;
    // Only the tables of mechanisms that a setting can make large.
    let own = match &decoder.attention {
        AnyAttentionConfig::Cope(cope) => layers * cope.npos as f64 * decoder.head_dim() as f64,
        AnyAttentionConfig::T5(t5) => layers * t5.buckets as f64 * heads,
        AnyAttentionConfig::Learned(learned) => learned.count as f64 * width,
        _ => 0.0,
    };
    Parameters { all: tables * vocab * width + matrices + own, matrices, own }
}

/// Returns the tokens of a sequence of middle length. Half of the drawn sequences are longer, and
/// many are drawn.
fn usual_tokens(task: &OpenTask, lengths: Lengths) -> f64 {
    let tokens = [lengths.from, lengths.to].map(|length| task.token_bounds(length)[0] as f64);
    (tokens[0] + tokens[1]) / 2.0
}

/// Returns the need of evaluating `sequences` sequences of `tokens` tokens. Each thread reads one
/// at a time, through a cache if it is long.
pub fn evaluation(decoder: &DecoderConfig, tokens: u64, sequences: u64) -> Need {
    let at_once = sequences.min(rayon::current_num_threads() as u64) as f64;
    let [layers, width] = [decoder.layers, decoder.width].map(|n| n as f64);
    let cached = if tokens > CACHED { tokens as f64 } else { 0.0 };
    let of = |what: &str| format!("{what} of {at_once} sequences of {tokens} tokens");
    let keys = FLOAT * 2.0 * layers * width * cached * at_once;
    Need {
        what: "this test",
        parts: vec![
            weights(decoder),
            part(keys, of("the keys and values"), "a shorter length, or RAYON_NUM_THREADS=1"),
            part(TOKEN * tokens as f64 * at_once, of("the tokens"), "a shorter length"),
            // The loss of every sequence is kept.
            part(8.0 * sequences as f64, format!("{sequences} results"), "fewer sequences"),
        ],
    }
}

/// Returns the need of evaluating `sequences` sequences of a task.
pub fn test(decoder: &DecoderConfig, task: &OpenTask, lengths: Lengths, sequences: u64) -> Need {
    evaluation(decoder, usual_tokens(task, lengths) as u64, sequences)
}

fn weights(decoder: &DecoderConfig) -> Part {
    let all = parameters(decoder).all;
    part(FLOAT * all, format!("{all:.1e} parameters"), "a smaller model")
}

/// Returns the need of one sequence of a task.
pub fn sample(task: &OpenTask, lengths: Lengths) -> Need {
    let bytes = TOKEN * usual_tokens(task, lengths);
    let parts = vec![part(bytes, format!("one of length {lengths}"), "a shorter --length")];
    Need { what: "this sequence", parts }
}

/// Returns the need of the attention picture of a sequence of `tokens` tokens: for every pair of
/// every head, whether it is kept, its count and its weight.
pub fn picture(decoder: &DecoderConfig, tokens: u64) -> Need {
    let [layers, heads, tokens] = [decoder.layers as f64, decoder.heads as f64, tokens as f64];
    let pairs = layers * heads * tokens * tokens;
    let of = format!("{tokens:.0} x {tokens:.0} pairs of every head");
    Need { what: "this picture", parts: vec![part(9.0 * pairs, of, "a shorter --length")] }
}

/// Returns the need of a measurement of `tra bench`.
pub fn bench(case: &Case) -> Result<Need, LabError> {
    let [batch, length, width, vocab] =
        [case.batch, case.length, case.width, case.vocab].map(|n| n as f64);
    let shape = format!("batch {} x length {}", case.batch, case.length);
    let tokens = batch * length;
    let part = |bytes, of| part(bytes, of, "");
    let of = |what: &str| format!("{what} of {shape}");
    let mut parts = match case.name {
        // Queries, keys, values, the output and its gradient.
        Workload::Op | Workload::OpForward => {
            vec![part(5.0 * FLOAT * tokens * width, of("queries, keys and values"))]
        }
        Workload::TrainStep => {
            step(&case.decoder_config()?, OptimizerKind::AdamW, case.batch, length, &shape)
        }
        Workload::Prefill => {
            let logits = FLOAT * tokens * vocab;
            vec![weights(&case.decoder_config()?), part(logits, of("logits"))]
        }
        Workload::Decode => {
            let keys = FLOAT * 2.0 * case.layers as f64 * width * tokens;
            vec![weights(&case.decoder_config()?), part(keys, of("keys and values"))]
        }
    };
    if !matches!(case.name, Workload::Op | Workload::OpForward) {
        parts.push(part(FLOAT * tokens, of("the tokens")));
    }
    parts
        .iter_mut()
        .for_each(|part| part.advice = "a smaller --length, --batch, --size or --vocab");
    Ok(Need { what: "this measurement", parts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tra_nn::Size;

    fn config(set: &[&str]) -> RunConfig {
        let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
        RunConfig::from_table(toml::Table::new(), Vec::new(), &set, None).unwrap()
    }

    fn need(set: &[&str]) -> u64 {
        let config = config(set);
        training(&config, &config.task.open().unwrap()).unwrap().bytes()
    }

    #[test]
    fn bytes_read_in_the_unit_that_suits_them() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    /// Every setting that needs memory is counted, and nothing that may need none.
    #[test]
    fn all_that_takes_memory_counts() {
        let least = need(&["model.size=tiny"]);
        for more in [
            "batch=64",
            "length=1024",
            "accumulate=9",
            "model.layers=3",
            "model.width=256",
            "task.values=999",
            "model.attention.name=cope",
        ] {
            assert!(need(&["model.size=tiny", more]) > least, "{more}");
        }
        assert!(need(&["model.size=tiny", "optimizer=muon"]) < least);
        assert!(need(&["model.size=tiny", "model.tied=true"]) < least);
        assert!(need(&["model.size=tiny", "length=4..512"]) < least);
        for (name, small, large) in [
            ("learned", "count=600", "count=6000"),
            ("cope", "npos=64", "npos=6400"),
            ("t5", "buckets=32", "buckets=100"),
        ] {
            let name = format!("model.attention.name={name}");
            let with = |own: &str| need(&[&name, &format!("model.attention.{own}")]);
            assert!(with(small) < with(large), "{name}");
        }
    }

    /// The bounds stay below the peaks that `tra train --dry-run` measured with two threads.
    #[test]
    fn what_works_is_not_refused() {
        let tiny = "model.size=tiny";
        for (set, peak_mib) in [
            (vec![], 374),
            (vec![tiny, "length=2048", "batch=4"], 106),
            (vec![tiny, "length=256", "batch=4", "model.attention.name=cope"], 51),
            (vec![tiny, "task.name=copy", "task.alphabet=20000", "batch=8", "optimizer=muon"], 230),
            (vec!["model.size=small", "batch=1", "accumulate=4", "length=256"], 248),
        ] {
            assert!(need(&set) < peak_mib << 20, "{set:?}: {}", bytes(need(&set)));
        }
        let far = DecoderConfig::sized(Size::Mini, 6);
        assert!(evaluation(&far, 1 << 16, 64).bytes() < 2 << 30);
        assert!(picture(&far, 48).bytes() < 1 << 20);
    }

    #[test]
    fn sizes_that_overflow_are_refused_with_the_largest_part_and_a_way_out() {
        let huge = "999999999999";
        let total = 1 << 40;
        for (setting, part, advice) in [
            ("batch", "activations of batch 999999999999 x length 512", "--batch"),
            ("accumulate", "accumulate 999999999999", "--accumulate"),
            ("length", "length 999999999998", "--length"),
            ("model.layers", "activations", "--layers"),
            ("model.width", "parameters", "--width"),
        ] {
            let value = if setting == "length" { "999999999998" } else { huge };
            let heads = "model.heads=1".to_string();
            let config = config(&[&format!("{setting}={value}"), &heads]);
            let task = config.task.open().unwrap();
            let need = training(&config, &task).unwrap();
            let error = need.check_in(total).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(advice), "{error}");
            assert!(error.contains("1.0 TiB") && error.lines().count() == 1, "{error}");
            assert!(need.check_in(u64::MAX).is_ok(), "exactly enough is accepted");
        }
        let config = DecoderConfig::sized(Size::Mini, 6);
        for need in [
            evaluation(&config, u64::MAX, 1),
            evaluation(&config, 8, u64::MAX),
            picture(&config, u64::MAX),
        ] {
            assert!(need.check_in(total).is_err(), "{need:?}");
        }
    }

    #[test]
    fn every_measurement_has_a_bound() {
        for name in Workload::ALL {
            let need = |length| bench(&Case::new(name, "tra", Size::Tiny, 1, length)).unwrap();
            assert!(need(64).bytes() > 0 && need(64).bytes() < 32 << 20, "{name:?}");
            assert!(need(usize::MAX).check_in(1 << 40).is_err(), "{name:?}");
        }
    }
}
