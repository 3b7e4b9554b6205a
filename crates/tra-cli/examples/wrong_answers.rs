//! Shows what each head does where a model answers wrongly.
//!
//! Prints one right answer for comparison, then the first wrong answers of a run on fresh
//! sequences. For each answer it prints how many keys each head keeps, and the keys with the most
//! weight. Finally it prints how often answers are wrong, by how many of the tokens before them
//! also precede an earlier position.
//!
//! ```sh
//! cargo run --release --example wrong_answers -- runs/ff iid 4096 64   # split, length, sequences
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

use tra_lab::batch::Batch;
use tra_lab::eval::answers;
use tra_lab::run_dir::RunDir;
use tra_nn::{Decoder, LayerProbe, Pass, Probe};
use tra_tasks::{OpenTask, Sample};

/// Number of keys shown per head.
const SHOWN: usize = 3;
/// Number of wrong answers shown.
const DETAILED: usize = 20;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [run, split, length, sequences] = args.as_slice() else {
        return Err("give a run directory, a split, a length and a number of sequences".into());
    };
    let (length, sequences): (usize, u64) = (length.parse()?, sequences.parse()?);
    let run = RunDir::open(run.as_ref())?;
    let config = run.config()?;
    let task = config.task.open()?;
    let device = tra_nn::device::by_name("flex")?;
    let (_, decoder) = run.newest_model(&device, |warning| eprintln!("{warning}"))?;
    let (mut right, mut compared, mut detailed) = (0, false, 0);
    // All answers and wrong answers, by the result of `same_before`.
    let mut alike: BTreeMap<usize, [u64; 2]> = BTreeMap::new();
    for number in 0..sequences {
        let sample = task.draw(split, (length, length), config.seed, number)?;
        let scored = sample.scored.iter().enumerate().filter(|(_, scored)| **scored);
        let places: Vec<usize> = scored.map(|(place, _)| place).collect();
        let found = answers(&decoder, &Batch::new(vec![sample.clone()]));
        for (answer, &place) in found[0].iter().zip(&places) {
            let [all, wrong] = alike.entry(same_before(&sample.tokens, place)).or_default();
            *all += 1;
            *wrong += u64::from(!answer.right);
        }
        let (good, bad): (Vec<_>, Vec<_>) =
            found[0].iter().zip(places).partition(|(answer, _)| answer.right);
        right += u64::from(bad.is_empty());
        let one = good.get(good.len() / 2).filter(|_| !compared);
        compared |= one.is_some();
        let bad = &bad[..bad.len().min(DETAILED - detailed)];
        detailed += bad.len();
        let shown: Vec<usize> = one.into_iter().chain(bad).map(|(_, place)| *place).collect();
        if !shown.is_empty() {
            println!("sequence {number}");
            show(&decoder, &task, &sample, &shown)?;
        }
    }
    println!("{right} of {sequences} sequences of length {length} are right");
    println!("tokens before an answer that an earlier place has too, with another token behind:");
    println!("{:>8} {:>10} {:>10} {:>10}", "tokens", "answers", "wrong", "share");
    for (tokens, [all, wrong]) in alike {
        let share = 100.0 * wrong as f64 / all as f64;
        println!("{tokens:>8} {all:>10} {wrong:>10} {share:>9.2}%");
    }
    Ok(())
}

/// Returns the largest number of tokens before `place` that also precede an earlier position with a
/// different token.
fn same_before(tokens: &[u32], place: usize) -> usize {
    let before = |end: usize| tokens[..end].iter().rev();
    let others = (1..place).filter(|&other| tokens[other] != tokens[place]);
    let same = |other| before(other).zip(before(place)).take_while(|(a, b)| a == b).count();
    others.map(same).max().unwrap_or(0)
}

/// Prints the answers at `places`. Each answer is the output of the query before it.
fn show(
    decoder: &Decoder,
    task: &OpenTask,
    sample: &Sample,
    places: &[usize],
) -> Result<(), Box<dyn Error>> {
    let mut probe = Probe::new(decoder.config().layers, 0.0);
    let tokens = decoder.tokens(&[&sample.tokens])?;
    let logits = decoder.forward(tokens, Pass::eval().with_probe(&mut probe));
    let given = logits.argmax(2).into_data_as::<i64>();
    let given: Vec<i64> = given.iter::<i64>().collect();
    let name = |place: usize| task.token_name(sample.tokens[place]);
    for &place in places {
        let query = place - 1;
        let got = task.token_name(u32::try_from(given[query])?);
        let (right, cue) = (name(place), name(query));
        if got == right {
            println!("  {place}: {right}, rightly, after {cue}");
        } else {
            println!("  {place}: {got} in place of {right}, after {cue}");
        }
        for (layer, probe) in probe.layers.iter().enumerate() {
            for (head, line) in heads(probe, query, &name).into_iter().enumerate() {
                println!("    layer {layer} head {head}: {line}");
            }
        }
    }
    Ok(())
}

/// Describes what each head of a layer does at `query`.
fn heads(probe: &LayerProbe, query: usize, name: &impl Fn(usize) -> String) -> Vec<String> {
    let Some(weights) = &probe.weights else { return Vec::new() };
    let [_, heads, _, _] = weights.dims();
    let line = |head: usize| {
        let row = [0..1, head..head + 1, query..query + 1, 0..query + 1];
        let weights = weights.clone().slice(row.clone()).into_data_as::<f32>();
        let weights: Vec<f32> = weights.iter::<f32>().collect();
        let kept = probe.keep.as_ref().map_or(query + 1, |keep| {
            let kept = keep.clone().slice(row).into_data();
            kept.iter::<bool>().filter(|kept| *kept).count()
        });
        let mut keys: Vec<usize> = (0..=query).filter(|&key| weights[key] > 0.005).collect();
        keys.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
        let top = keys.iter().take(SHOWN);
        let top: Vec<String> =
            top.map(|&key| format!("{key} ({}) {:.2}", name(key), weights[key])).collect();
        let top = if top.is_empty() { "none".into() } else { top.join(", ") };
        format!("keeps {kept} of {}; most weight: {top}", query + 1)
    };
    (0..heads).map(line).collect()
}
