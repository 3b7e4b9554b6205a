//! Stopping in good order: Ctrl-C, and the signals with which Slurm, Kubernetes and a closed terminal end a job.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use crate::terminal;

/// What the program ends with when it was interrupted.
pub const STOPPED: u8 = 130;

/// Returns a flag that the first interrupt sets. The second ends the program at once; nothing half-written is
/// ever visible. `doing` is what is said to be finished first, and nothing is said without it.
pub fn on_interrupt(doing: Option<&'static str>) -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    // The flag may be set for other reasons too, which do not count.
    let mut before = false;
    listen(move || {
        if std::mem::replace(&mut before, true) {
            std::process::exit(STOPPED.into());
        }
        flag.store(true, Ordering::SeqCst);
        if let Some(doing) = doing {
            terminal::say(&format!("finishing {doing}; Ctrl-C again stops at once"));
        }
    })?;
    Ok(interrupted)
}

/// Calls `heard` on a thread of its own whenever the program is asked to stop.
#[cfg(unix)]
fn listen(mut heard: impl FnMut() + Send + 'static) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let asked = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = signal_hook::iterator::Signals::new(asked)?;
    std::thread::spawn(move || signals.forever().for_each(|_| heard()));
    Ok(())
}

/// Whether whoever started the program wants it to ignore a signal, as `nohup` does.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(not(unix))]
fn listen(heard: impl FnMut() + Send + 'static) -> Result<()> {
    Ok(ctrlc::set_handler(heard)?)
}
