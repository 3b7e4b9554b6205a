//! Ends the program with one line when something breaks, in whichever thread.

use std::io::Write;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow, bail};
use serde_json::json;
use tra_kernels::simd::Isa;

use crate::terminal;

/// Exit code after a panic, which is a bug of ours. Any other error exits with 2.
const BUG: i32 = 101;

/// Set by the thread that ends the program.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Set in the worker of `tra bench`, which reports errors to its parent on standard output.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Reports errors as JSON on standard output from now on, for the parent process.
pub fn answer_to_asker() {
    ASKED.store(true, Ordering::SeqCst);
}

/// Installs a panic hook that prints one line and ends the program. A panic is a bug of ours, or a lack of memory. If
/// only its thread died, other threads would wait for it forever, or mistake its silence for the end of the data.
pub fn set_hook() {
    std::panic::set_hook(Box::new(|panic| {
        // hf-hub panics on some malformed answers; whoever waits for this thread says what is wrong.
        if std::thread::current().name() == Some("hub") {
            return;
        }
        let message = panic.payload_as_str().unwrap_or("no message").replace('\n', " ");
        if let Some(reason) = shortage(&message) {
            end(&reason, 2);
        }
        let place = panic.location().map(|l| format!(" ({}:{})", l.file(), l.line()));
        let place = place.unwrap_or_default();
        end(&format!("internal, please report it: {message}{place}"), BUG);
    }));
}

/// Returns the message for a panic that is not a bug: the system has too little memory or too few threads.
fn shortage(message: &str) -> Option<String> {
    let lower = message.to_lowercase();
    let signs =
        ["capacity overflow", "memory allocation", "out of memory", "layouterror", "to allocate"];
    if signs.iter().any(|sign| lower.contains(sign)) {
        return Some(format!("out of memory: {message}; try a smaller batch or length"));
    }
    lower
        .contains("threadpoolbuilderror")
        .then(|| format!("cannot start the threads; try RAYON_NUM_THREADS=1: {message}"))
}

/// Ends the program because `bytes` bytes cannot be allocated.
pub fn out_of_memory(bytes: usize) -> ! {
    let size = tra_lab::budget::bytes(bytes as u64);
    end(&format!("out of memory: cannot allocate {size} more; try a smaller batch or length"), 2)
}

fn end(message: &str, code: i32) -> ! {
    if ENDING.swap(true, Ordering::SeqCst) {
        // Another thread is ending the program, or this one failed while doing so.
        wait_for_the_end();
    }
    match ASKED.load(Ordering::SeqCst) {
        true => {
            let mut out = std::io::stdout();
            let _ = writeln!(out, "{}", json!({ "error": message })).and_then(|()| out.flush());
        }
        false => terminal::say(&format!("error: {message}")),
    }
    exit(code)
}

fn wait_for_the_end() -> ! {
    std::thread::sleep(std::time::Duration::from_secs(5));
    std::process::abort()
}

/// More threads than this make nothing faster and take long to start.
fn most_threads() -> usize {
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    at_once.saturating_mul(4).max(64)
}

/// Rejects more threads than the machine can use. `from` names the source of the number.
pub fn check_threads(from: &str, threads: usize) -> Result<()> {
    let most = most_threads();
    if threads > most {
        bail!("{from} {threads}: too many; this machine can use at most {most} threads");
    }
    Ok(())
}

/// Applies what the environment asks for, or rejects it where that cannot work.
pub fn check_environment() -> Result<()> {
    if let Some(name) = std::env::var_os("TRA_ISA") {
        let name = name.to_string_lossy();
        let isa: Result<Isa, _> = name.parse();
        isa.and_then(Isa::choose).map_err(|error| anyhow!("TRA_ISA={name:?}: {error}"))?;
    }
    let asked = std::env::var("RAYON_NUM_THREADS").ok();
    match asked.and_then(|text| text.parse().ok()) {
        Some(threads) => check_threads("RAYON_NUM_THREADS", threads),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_memory_is_told_from_a_bug() {
        for message in ["capacity overflow", "memory allocation of 99 bytes failed", "LayoutError"]
        {
            assert!(shortage(message).is_some_and(|text| text.contains("smaller batch")));
        }
        let threads = shortage("no pool: ThreadPoolBuildError { kind: IOError }");
        assert!(threads.is_some_and(|text| text.contains("RAYON_NUM_THREADS=1")));
        for message in ["index out of bounds", "the cache holds batch 1", "no message"] {
            assert_eq!(shortage(message), None);
        }
    }

    /// Runs one of these tests in a process of its own, in which it is told to break something.
    #[cfg(unix)]
    fn broken(test: &str) -> (Option<i32>, String) {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([&format!("crash::tests::{test}"), "--exact", "--nocapture"])
            .env(BREAK, "1")
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    const BREAK: &str = "TRA_TEST_BREAK";

    #[cfg(unix)]
    #[test]
    fn a_panic_in_any_thread_ends_the_program_with_one_line() {
        if std::env::var_os(BREAK).is_some() {
            set_hook();
            for _ in 0..4 {
                std::thread::spawn(|| panic!("boom\nand more"));
            }
            loop {
                std::thread::park();
            }
        }
        let (code, said) = broken("a_panic_in_any_thread_ends_the_program_with_one_line");
        assert_eq!(code, Some(BUG), "{said}");
        assert!(said.starts_with("error: internal, please report it: boom and more ("), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    #[cfg(unix)]
    #[test]
    fn a_size_beyond_memory_is_no_bug() {
        if std::env::var_os(BREAK).is_some() {
            set_hook();
            let count = std::hint::black_box(usize::MAX);
            std::thread::spawn(move || vec![1.0f32; count]).join().unwrap();
        }
        let (code, said) = broken("a_size_beyond_memory_is_no_bug");
        assert_eq!(code, Some(2), "{said}");
        assert!(said.starts_with("error: out of memory: capacity overflow"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    #[cfg(unix)]
    #[test]
    fn memory_that_cannot_be_had_ends_the_program_with_one_line() {
        if std::env::var_os(BREAK).is_some() {
            let bytes = std::hint::black_box(1usize << 50);
            std::hint::black_box(vec![1u8; bytes]);
        }
        let (code, said) = broken("memory_that_cannot_be_had_ends_the_program_with_one_line");
        assert_eq!(code, Some(2), "{said}");
        assert_eq!(
            said,
            "error: out of memory: cannot allocate 1.0 PiB more; try a smaller batch or length\n"
        );
    }

    #[test]
    fn as_many_threads_as_make_sense() {
        assert!(check_threads("--threads", 64).is_ok());
        let error = check_threads("--threads", 100_000).unwrap_err().to_string();
        assert!(error.contains("--threads 100000"), "{error}");
    }
}
