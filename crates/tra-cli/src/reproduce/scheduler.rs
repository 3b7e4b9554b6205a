//! Making the runs of an experiment: training, tests, and what other processes are at.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use tra_lab::eval::EvalSpec;
use tra_lab::report::plural;
use tra_lab::reproduce::{TextPart, Trial, test};
use tra_lab::run_dir::RunDir;
use tra_lab::sweep::Done;
use tra_nn::device::Device;

use super::wikitext;
use crate::sweep::Failures;
use crate::{sweep, terminal};

/// Trains and tests every run; whether it came to the end. Waits for those another process is at, and goes on with them
/// if that process does not finish them. A run that fails is noted, and the others go on. `among_others` of ours it does
/// not say of every run that they made it.
pub fn make(
    trials: &[Trial],
    text: Option<&(TextPart, PathBuf)>,
    among_others: bool,
    device: &Device,
    interrupted: &AtomicBool,
    failures: &mut Failures,
) -> Result<bool> {
    let mut left: Vec<usize> = (0..trials.len()).collect();
    while !left.is_empty() {
        let mut elsewhere = Vec::new();
        for index in left {
            let (trial, number) = (&trials[index], format!("{}/{}", index + 1, trials.len()));
            // The lock is held through the tests as well, which two processes must not make twice.
            let one = sweep::one(&trial.cell, &number, device, interrupted);
            let Some((done, lock)) = failures.note(&trial.cell, one) else { continue };
            if !among_others {
                sweep::say(&trial.cell, &number, done);
            }
            if done == Done::Interrupted {
                return Ok(false);
            }
            let Some(_lock) = lock else {
                elsewhere.push(index);
                continue;
            };
            let whole = match text {
                Some((part, folder)) => wikitext::test(trial, part, folder, device).map(|()| true),
                None => tested(trial, &number, device, interrupted),
            };
            if failures.note(&trial.cell, whole) == Some(false) {
                return Ok(false);
            }
        }
        left = elsewhere;
        if !wait(&left, trials, interrupted)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits until nobody is at one of these runs; whether it came to that.
fn wait(left: &[usize], trials: &[Trial], interrupted: &AtomicBool) -> Result<bool> {
    if left.is_empty() {
        return Ok(true);
    }
    let one_is_free = || -> Result<bool> {
        for index in left {
            if RunDir::claim(&trials[*index].cell.path)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    // Others may have finished since this process came to their runs: then there is nothing to wait for.
    if one_is_free()? {
        return Ok(true);
    }
    let runs = plural(left.len(), "run");
    terminal::say(&format!("waiting for another process to finish {runs}"));
    let spinner = terminal::spinner("waiting".into());
    let mut free = false;
    while !free && !interrupted.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(200));
        free = one_is_free()?;
    }
    spinner.finish_and_clear();
    Ok(free)
}

/// Tests one run under a spinner; where there is no terminal, with a line for each test.
fn tested(trial: &Trial, number: &str, device: &Device, interrupted: &AtomicBool) -> Result<bool> {
    let spinner = terminal::spinner(format!("{number} testing"));
    let terminal = std::io::stderr().is_terminal();
    let name = terminal::file_name(&trial.cell.path);
    let mut at = None;
    let tell = |spec: &EvalSpec, done: u64| {
        let (split, lengths, of) = (&spec.split, spec.lengths, spec.sequences);
        let text = format!("{number} {name}: testing {split} at {lengths}");
        spinner.set_message(format!("{text}: {done}/{of}"));
        if !terminal && at.replace((split.clone(), lengths)) != Some((split.clone(), lengths)) {
            terminal::say(&text);
        }
    };
    let whole = test(trial, device, interrupted, tell, terminal::warn);
    spinner.finish_and_clear();
    Ok(whole?)
}
