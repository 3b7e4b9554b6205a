//! Scheduling of an experiment's runs: training, tests, and waiting for other processes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use burn::tensor::Device;
use tra_report::text::plural;

use super::{Plan, text, trial};
use crate::error::LabError;
use crate::observer::Observer;
use crate::run_dir::RunDir;
use crate::sweep::{Done, Failures, run_cell};

impl Plan {
    /// Trains and tests every run. Returns `false` if it was interrupted.
    ///
    /// Waits for runs that another process is training, and continues them if that process does not
    /// finish them. A run that fails is noted, and the others continue. With `among_others`, other
    /// workers of this experiment share the runs, so a run that another worker finished is not
    /// reported.
    pub(super) fn make(
        &self,
        among_others: bool,
        device: &Device,
        interrupted: &AtomicBool,
        failures: &mut Failures,
        observer: &mut dyn Observer,
    ) -> Result<bool, LabError> {
        let mut left: Vec<usize> = (0..self.trials.len()).collect();
        while !left.is_empty() {
            let mut elsewhere = Vec::new();
            for index in left {
                let cell = &self.trials[index].cell;
                let number = format!("{}/{}", index + 1, self.trials.len());
                // The lock is held during the tests too, so that no other process repeats them.
                let one = run_cell(cell, &number, device, interrupted, observer);
                let Some((done, lock)) = failures.note(cell, one, observer) else { continue };
                if !among_others {
                    done.note(cell, &number, observer);
                }
                if done == Done::Interrupted {
                    return Ok(false);
                }
                let Some(_lock) = lock else {
                    elsewhere.push(index);
                    continue;
                };
                let whole = self.test(index, device, interrupted, observer);
                if failures.note(cell, whole, observer) == Some(false) {
                    return Ok(false);
                }
            }
            left = elsewhere;
            if !self.wait(&left, interrupted, observer)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn test(
        &self,
        index: usize,
        device: &Device,
        interrupted: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<bool, LabError> {
        let trial = &self.trials[index];
        match &self.text {
            Some((settings, folder)) => text::test(trial, settings, folder, device, observer),
            None => trial::test(trial, device, interrupted, observer),
        }
    }

    /// Waits until one of these runs is free. Returns `false` if it was interrupted.
    fn wait(
        &self,
        left: &[usize],
        interrupted: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<bool, LabError> {
        let one_is_free = || -> Result<bool, LabError> {
            for index in left {
                if RunDir::claim(&self.trials[*index].cell.path)?.is_some() {
                    return Ok(true);
                }
            }
            Ok(left.is_empty())
        };
        // Another process may have finished since this one reached its run. Then there is nothing
        // to wait for.
        let mut free = one_is_free()?;
        if !free {
            let runs = plural(left.len(), "run");
            observer.note(format!("waiting for another process to finish {runs}"));
        }
        while !free && !interrupted.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(200));
            free = one_is_free()?;
        }
        Ok(free)
    }
}
