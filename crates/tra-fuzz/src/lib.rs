//! Tests every file reader of the workspace with broken files. Every run uses the same files.
//!
//! `cargo fuzz` needs a nightly compiler and never ends; this crate runs with the other tests. A
//! [`Target`] is a reader and a few small files. The reader is given the failing inputs found
//! earlier (`cases/TARGET/`), then the original files, then 10,000 random changes of them
//! ([`Mutator`]). For each input:
//!
//! - the reader does not panic
//! - an error is one line
//! - memory stays within [`MEMORY`] plus the size of the file ([`Counting`])
//! - reading does not take long
//!
//! `TRA_FUZZ_INPUTS=200000` runs a longer campaign, `TRA_FUZZ_SEED=2` a different one. A failing
//! input is saved in the temporary folder, and its path is printed. Once the bug is fixed, move the
//! input to `cases/TARGET/`.

mod memory;
mod mutate;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use memory::Counting;
pub use mutate::Mutator;

/// Number of random inputs per target, in addition to its files and the cases found earlier.
const INPUTS: u64 = 10_000;

/// Bytes a reader may allocate, in addition to the size of its input.
pub const MEMORY: usize = 64 << 20;

/// Time limit per input. It allows for a busy machine.
const LONGEST: Duration = Duration::from_secs(20);

/// Maximum number of failures to report. Failures are distinguished by their origin.
const MOST_FAILURES: usize = 20;

/// Runs one target at a time, because memory is counted for the whole process.
static TURN: Mutex<()> = Mutex::new(());

/// A reader and its inputs.
pub struct Target<'a> {
    /// Name of the target and of its folder of cases.
    pub name: &'a str,
    /// File name of the inputs. Readers may depend on it.
    pub file: &'a str,
    /// Files that are valid, or nearly so.
    pub corpus: Vec<Vec<u8>>,
    /// Words and numbers of the format.
    pub words: &'a [&'a str],
}

/// Runs a reader on every input of a target. The reader returns its error as text.
///
/// # Panics
/// If an input fails, with the paths of all failing inputs.
pub fn fuzz(target: &Target<'_>, mut read: impl FnMut(&Path) -> Result<(), String>) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = std::env::temp_dir().join(format!("tra-fuzz-{}", std::process::id()));
    let folder = folder.join(target.name);
    fs::create_dir_all(&folder).expect("a folder for temporary files");
    let path = folder.join(target.file);
    let (mut failures, mut summary) = (Failures::default(), Summary::default());
    let mut give = |input: &[u8]| {
        put(&path, input);
        memory::announce(&path);
        let measured = measure(|| read(&path));
        summary.add(&measured);
        if let Some(reason) = measured.failure(input.len()) {
            failures.add(reason, input, &folder);
        }
    };
    let cases = cases(target.name);
    cases.iter().chain(&target.corpus).for_each(|input| give(input));
    let mut mutator = Mutator::new(number("TRA_FUZZ_SEED", 1), target.words);
    let sources: Vec<&[u8]> = target.corpus.iter().map(Vec::as_slice).collect();
    for _ in 0..number("TRA_FUZZ_INPUTS", INPUTS) {
        give(&mutator.next(&sources));
    }
    println!("{}: {summary}", target.name);
    let _ = fs::remove_file(&path);
    failures.report(target.name);
    let _ = fs::remove_dir_all(&folder);
}

/// Overwrites a file in place. Creating it each time takes milliseconds on some file systems.
pub fn put(path: &Path, bytes: &[u8]) {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let mut file = file.expect("a folder for temporary files");
    file.write_all(bytes)
        .and_then(|()| file.set_len(bytes.len() as u64))
        .expect("room for temporary files");
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn cases(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases").join(target);
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a case that can be read")).collect()
}

/// Location and message of the latest panic of any thread.
static PANIC: Mutex<String> = Mutex::new(String::new());

fn last_panic() -> MutexGuard<'static, String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a reader handled an input.
struct Measured {
    /// Its result; `None` if it panicked.
    result: Option<Result<(), String>>,
    peak: usize,
    time: Duration,
}

fn measure(read: impl FnOnce() -> Result<(), String>) -> Measured {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|about| {
        let place = about.location().map(ToString::to_string).unwrap_or_default();
        *last_panic() = format!("{place}: {}", about.payload_as_str().unwrap_or_default());
    }));
    let (begin, before) = (Instant::now(), memory::start());
    let result = panic::catch_unwind(AssertUnwindSafe(read)).ok();
    let (peak, time) = (memory::peak().saturating_sub(before), begin.elapsed());
    panic::set_hook(hook);
    Measured { result, peak, time }
}

impl Measured {
    /// Returns the reason for a failure, if any.
    fn failure(&self, bytes: usize) -> Option<String> {
        match &self.result {
            None => Some(format!("panic at {}", last_panic().replace('\n', " "))),
            Some(Err(error)) if error.lines().count() != 1 => {
                Some(format!("an error that is not one line: {error:?}"))
            }
            _ if self.peak > MEMORY + bytes => {
                Some(format!("memory: {} MiB for {bytes} bytes", self.peak >> 20))
            }
            _ if self.time > LONGEST => Some(format!("time: {:?}", self.time)),
            _ => None,
        }
    }
}

/// Summary over all inputs.
#[derive(Default)]
struct Summary {
    inputs: u64,
    /// Number of inputs without an error. A target that refuses all inputs finds little.
    taken: u64,
    peak: usize,
    time: Duration,
    longest: Duration,
}

impl Summary {
    fn add(&mut self, measured: &Measured) {
        self.inputs += 1;
        self.taken += u64::from(matches!(measured.result, Some(Ok(()))));
        self.peak = self.peak.max(measured.peak);
        self.time += measured.time;
        self.longest = self.longest.max(measured.time);
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { inputs, taken, peak, time, longest } = self;
        let peak = *peak as f64 / f64::from(1 << 20);
        write!(f, "{inputs} inputs, {taken} without an error, {peak:.1} MiB at most, ")?;
        write!(f, "{time:.1?} in all, {longest:.1?} the longest")
    }
}

/// Failing inputs, one per kind of failure.
#[derive(Default)]
struct Failures(BTreeMap<String, PathBuf>);

impl Failures {
    fn add(&mut self, reason: String, input: &[u8], folder: &Path) {
        // The kind is the start of the reason without digits: where a panic occurred, but not the
        // numbers in its message.
        let kind: String = reason.chars().take(90).filter(|c| !c.is_ascii_digit()).collect();
        if self.0.keys().any(|known| known.starts_with(&kind)) || self.0.len() >= MOST_FAILURES {
            return;
        }
        let path = folder.join(format!("case-{}", self.0.len()));
        put(&path, input);
        self.0.insert(format!("{kind}\n    {reason}"), path);
    }

    fn report(&self, target: &str) {
        let lines: Vec<String> = self
            .0
            .iter()
            .map(|(reason, path)| {
                let reason = reason.split_once("\n    ").map_or("", |(_, reason)| reason);
                format!("{}: {reason}", path.display())
            })
            .collect();
        assert!(lines.is_empty(), "{target}: {} failures\n{}", lines.len(), lines.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static COUNTING: Counting = Counting;

    #[test]
    fn whatever_a_reader_does_wrong_is_found() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |read: fn() -> Result<(), String>| measure(read).failure(100).unwrap_or_default();
        assert_eq!(of(|| Ok(())), "");
        assert_eq!(of(|| Err("one line".into())), "");
        assert!(of(|| Err("two\nlines".into())).contains("not one line"));
        assert!(of(|| Err(String::new())).contains("not one line"));
        assert!(of(|| panic!("broken")).contains("lib.rs"));
        let hog = || {
            drop(std::hint::black_box(vec![1u8; 80 << 20]));
            Ok(())
        };
        // Other tests of this process also use a little memory.
        assert!(of(hog).starts_with("memory: 8"));
    }

    #[test]
    fn a_failing_input_is_kept_and_named() {
        let target =
            Target { name: "self", file: "a.txt", corpus: vec![b"aaaa".into()], words: &[] };
        let found = panic::catch_unwind(|| {
            fuzz(&target, |path| {
                assert!(fs::read(path).unwrap().starts_with(b"a"), "no a");
                Ok(())
            });
        });
        let message = found.unwrap_err().downcast::<String>().unwrap();
        let path = message.lines().nth(1).unwrap().split(": ").next().unwrap();
        assert!(!fs::read(path).unwrap().starts_with(b"a"), "{message}");
        fs::remove_dir_all(Path::new(path).parent().unwrap()).unwrap();
    }
}
