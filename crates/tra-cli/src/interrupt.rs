//! Orderly stops: Ctrl-C, and the signals with which Slurm, Kubernetes and a closed terminal end a job.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use crate::terminal;

/// Exit code of an interrupted program.
pub const STOPPED: u8 = 130;

/// Returns a flag that the first interrupt sets. The second interrupt ends the program at once; no file is ever
/// visible half-written. `doing` completes the message "finishing …"; `None` prints nothing.
pub fn on_interrupt(doing: Option<&'static str>) -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    // Not the flag: others may set it too.
    let mut before = false;
    listen(move || {
        if std::mem::replace(&mut before, true) {
            std::process::exit(STOPPED.into());
        }
        flag.store(true, Ordering::SeqCst);
        if let Some(doing) = doing {
            terminal::say(&format!("finishing {doing}; press Ctrl-C again to stop at once"));
        }
    })?;
    Ok(interrupted)
}

/// Calls `heard` on a separate thread whenever the program is asked to stop.
#[cfg(unix)]
fn listen(mut heard: impl FnMut() + Send + 'static) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let asked = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = signal_hook::iterator::Signals::new(asked)?;
    std::thread::spawn(move || signals.forever().for_each(|_| heard()));
    Ok(())
}

/// Returns whether the parent process wants a signal ignored, as `nohup` does.
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
