//! What holds for every task, and what the tests of each have in common.

use std::collections::HashSet;
use std::ops::Range;

use tra_random::Stream;

use super::*;

/// The first samples of a split at one length.
pub(crate) fn samples(task: &impl Task, split: &str, length: usize, count: u64) -> Vec<Sample> {
    samples_of(&OpenTask::new(task.clone()), split, length, count)
}

fn samples_of(task: &OpenTask, split: &str, length: usize, count: u64) -> Vec<Sample> {
    (0..count).map(|i| task.draw(split, (length, length), 1, i).unwrap()).collect()
}

/// Draws one sample of a task.
pub(crate) fn draw(
    task: &impl Task,
    split: &str,
    lengths: (usize, usize),
    seed: u64,
    index: u64,
) -> Result<Sample, TaskError> {
    OpenTask::new(task.clone()).draw(split, lengths, seed, index)
}

/// Compares every token of `count` samples per split with a solver that sees the tokens before it
/// and says what follows, or that nothing is asked there.
pub(crate) fn check_answers(task: &impl Task, count: u64, solve: impl Fn(&[u32]) -> Option<u32>) {
    let task = OpenTask::new(task.clone());
    for split in task.splits() {
        for index in 0..count {
            let Sample { tokens, scored } =
                task.draw(split.name, (split.from, split.to), 3, index).unwrap();
            assert_eq!(scored.last(), Some(&true));
            for at in 0..tokens.len() {
                let expected = scored[at].then_some(tokens[at]);
                assert_eq!(solve(&tokens[..at]), expected, "{} {at}: {tokens:?}", split.name);
            }
        }
    }
}

/// Checks that a string and its transcription take 43 tokens at length 20, and that all symbols are
/// equally likely in the tokens `string`.
pub(crate) fn check_even<T: Task>(task: impl Fn(u32) -> T, string: Range<usize>) {
    for alphabet in [2, 10] {
        let mut seen = vec![0; alphabet as usize];
        for sample in samples(&task(alphabet), "train", 20, 1000) {
            assert_eq!(sample.tokens.len(), 43);
            sample.tokens[string.clone()].iter().for_each(|t| seen[*t as usize - 4] += 1);
        }
        let share = 20_000 / alphabet as i32;
        assert!(seen.iter().all(|n| (n - share).abs() < share / 10), "{seen:?}");
    }
}

fn all_tasks() -> impl Iterator<Item = OpenTask> {
    TaskSpec::all().filter(|spec| spec.vocab().is_some()).map(|spec| spec.open().unwrap())
}

#[test]
fn every_sample_of_every_task_is_well_formed() {
    for task in all_tasks() {
        let name = task.name();
        assert_eq!(task.splits()[0].name, "train");
        assert!(task.splits().len() <= open::SPLITS as usize, "draw numbers splits below it");
        let names: HashSet<_> = (1..task.vocab() as u32).map(|t| task.token_name(t)).collect();
        assert_eq!(names.len(), task.vocab() - 1, "{name}: two tokens read the same");
        for split in task.splits() {
            for index in [0, 1, 2, 77, 1_000_000] {
                let one = || task.draw(split.name, (split.from, split.to), 5, index);
                let sample = one().unwrap();
                assert_eq!(Ok(&sample), one().as_ref());
                assert_eq!(sample.tokens.len(), sample.scored.len());
                assert!(sample.tokens.iter().all(|t| *t != PAD && (*t as usize) < task.vocab()));
                assert!(sample.scored.contains(&true) && !sample.scored[0]);
            }
        }
    }
}

/// Short strings come up again by chance; at this length only a shared stream would do it.
#[test]
fn no_test_sample_is_a_training_sample() {
    for task in all_tasks() {
        let drawn = |split: &Split| {
            let samples = samples_of(&task, split.name, 128, 500);
            samples.into_iter().map(|sample| sample.tokens).collect::<HashSet<_>>()
        };
        let train = drawn(&task.splits()[0]);
        assert_eq!(train.len(), 500);
        for split in &task.splits()[1..] {
            assert!(train.is_disjoint(&drawn(split)), "{} {}", task.name(), split.name);
        }
    }
}

#[test]
fn seeds_give_different_samples() {
    for task in all_tasks() {
        let one = |seed| task.draw("train", (64, 64), seed, 0).unwrap();
        assert_ne!(one(0), one(1), "{}", task.name());
    }
}

#[test]
fn token_bounds_hold_and_the_shortest_length_is_the_shortest() {
    for task in all_tasks() {
        let (least, step) = (task.info().min_length, task.info().length_step);
        assert!(task.check_length(least).is_ok(), "{}", task.name());
        assert!((0..least).all(|length| task.check_length(length).is_err()));
        for length in [least, least + step, 10, 40, 128] {
            let [fewest, most] = task.token_bounds(length);
            for split in task.splits() {
                for sample in samples_of(&task, split.name, length, 40) {
                    let tokens = sample.tokens.len() as u64;
                    assert!((fewest..=most).contains(&tokens), "{} {length}", task.name());
                }
            }
            assert!(fewest >= length as u64 && most - fewest <= length as u64 + 2);
        }
        let [fewest, most] = task.token_bounds(usize::MAX);
        assert!(fewest <= most, "{} overflows", task.name());
    }
}

#[test]
fn a_range_begins_and_ends_at_lengths_there_are() {
    let flipflop = OpenTask::new(flipflop::FlipFlop::default());
    let unique = OpenTask::new(copy_unique::CopyUnique { alphabet: 26 });
    let copy = OpenTask::new(copy::Copy::default());
    let instruct = OpenTask::new(instruct::Instruct::default());
    let recall = OpenTask::new(recall::Recall::default());
    let huge = 1_000_000_000_000;
    for (task, range, part) in [
        (&flipflop, (0, 5), "length 0, where 0..5 begins: lengths are even"),
        (&flipflop, (2, 50), "at least 4"),
        (&flipflop, (3, 50), "at least 4"),
        (&flipflop, (5, 5), "even"),
        (&copy, (0, 50), "at least 1"),
        (&copy, (0, 0), "has no sequence of length 0: lengths are at least 1"),
        (&unique, (1, 27), "length 27, where 1..27 ends: there are only 26"),
        (&unique, (1, huge), "only 26"),
        (&unique, (30, 40), "only 26"),
        (&recall, (0, 9), "at least 1"),
    ] {
        let error = task.draw("train", range, 1, 0).unwrap_err().to_string();
        assert!(error.contains(part) && error.lines().count() == 1, "{range:?}: {error}");
        assert_eq!(task.check_lengths(range).unwrap_err().to_string(), error);
    }
    for (task, range) in [
        (&flipflop, (4, 5)),
        (&flipflop, (5, 51)),
        (&flipflop, (4, usize::MAX)),
        (&copy, (1, huge)),
        (&instruct, (0, 50)),
        (&unique, (1, 26)),
    ] {
        assert_eq!(task.check_lengths(range), Ok(()));
        let lengths = (0..50).map(|i| task.draw_length(range, Stream::new(i)).unwrap());
        assert!(lengths.clone().all(|length| {
            (range.0..=range.1).contains(&length) && task.check_length(length).is_ok()
        }));
        assert!(range == (4, 5) || lengths.collect::<HashSet<_>>().len() > 10);
    }
}

#[test]
fn the_longest_length_there_is_is_found_at_once() {
    let flipflop = OpenTask::new(flipflop::FlipFlop::default());
    let unique = OpenTask::new(copy_unique::CopyUnique { alphabet: 26 });
    for (task, length, found) in [
        (&flipflop, 48, Some(48)),
        (&flipflop, 49, Some(48)),
        (&flipflop, 3, None),
        (&flipflop, usize::MAX, Some(usize::MAX - 1)),
        (&unique, 48, Some(26)),
        (&unique, 26, Some(26)),
        (&unique, 7, Some(7)),
        (&unique, 0, None),
        (&unique, usize::MAX, Some(26)),
    ] {
        assert_eq!(task.longest_up_to(length), found, "{} {length}", task.name());
    }
}

#[test]
fn sequences_are_numbered_as_far_as_they_differ() {
    let copy = OpenTask::new(copy::Copy::default());
    assert!(copy.draw("train", (9, 9), 1, LAST_INDEX).is_ok());
    let error = copy.draw("train", (9, 9), 1, u64::MAX).unwrap_err().to_string();
    assert!(error.contains(&u64::MAX.to_string()), "{error}");
}

/// The worked example of ARCHITECTURE.md, compiled and tested as if it stood beside the other tasks.
#[path = "../tests/architecture/largest.rs"]
mod largest;

#[test]
fn the_example_in_architecture_md_is_the_code_that_is_tested() {
    let page = include_str!("../../../ARCHITECTURE.md");
    let code = include_str!("../tests/architecture/largest.rs");
    let lines = page.lines().skip_while(|line| *line != "## How to add a task");
    let lines = lines.skip_while(|line| *line != "   ```rust").skip(1);
    let shown: String =
        lines.take_while(|line| *line != "   ```").map(|line| format!("{line}\n")).collect();
    let indented = |line: &str| if line.is_empty() { "\n".into() } else { format!("   {line}\n") };
    assert_eq!(shown, code.lines().map(indented).collect::<String>());
}

/// Every published result depends on these draws: they may never change.
#[test]
fn draws_are_pinned() {
    let tokens = |task: &OpenTask, lengths| task.draw("train", lengths, 1, 0).unwrap().tokens;
    let found: Vec<_> = all_tasks()
        .map(|task| {
            let train = task.splits()[0];
            let drawn = tokens(&task, (train.from, train.to)).len();
            (task.name(), drawn, tokens(&task, (6, 6)))
        })
        .collect();
    let pinned = PINNED.map(|(name, drawn, tokens)| (name, drawn, tokens.to_vec()));
    assert_eq!(found, pinned, "{found:?}");
}

/// Task, tokens of the first training sample, and the tokens of one of length 6.
const PINNED: [(&str, usize, &[u32]); 11] = [
    ("flipflop", 512, &[1, 5, 3, 4, 2, 5]),
    ("copy", 51, &[1, 24, 187, 85, 78, 39, 24, 2, 24, 187, 85, 78, 39, 24, 3]),
    ("copy-unique", 15, &[1, 94, 308, 134, 39, 207, 224, 2, 94, 308, 134, 39, 207, 224, 3]),
    ("induct", 50, &[1, 83, 11, 245, 18, 64, 212, 2, 83, 11]),
    ("instruct", 90, &[1, 4, 206, 133, 169, 52, 85, 242, 2, 206, 133, 169, 52, 85, 242, 3]),
    ("reverse", 15, &[1, 130, 252, 110, 103, 42, 36, 2, 36, 42, 103, 110, 252, 130, 3]),
    ("sort", 51, &[1, 13, 69, 59, 93, 28, 141, 2, 13, 28, 59, 69, 93, 141, 3]),
    ("parity", 7, &[1, 5, 5, 5, 5, 4, 4, 2, 4]),
    (
        "addition",
        32,
        &[1, 7, 7, 14, 9, 11, 7, 4, 9, 10, 5, 10, 8, 12, 2, 11, 12, 14, 14, 14, 14, 5, 3],
    ),
    (
        "recall",
        44,
        &[
            1, 22, 221, 37, 202, 40, 196, 85, 169, 117, 244, 115, 237, 2, 115, 237, 117, 244, 40,
            196, 85, 169,
        ],
    ),
    ("needle", 182, &[1, 86, 119, 143, 4, 218, 259, 2, 4, 218]),
];
