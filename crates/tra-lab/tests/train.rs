//! Training is repeatable, resumes to the bit, and stops with a clear error.

mod common;

use burn::tensor::Device;
use common::{FINAL, Stop, check_same, config, go, go_until, read};
use tra_lab::records::Metric;
use tra_lab::run_dir::RunDir;
use tra_lab::train::End;

/// Muon, and a curriculum whose batches shrink.
const MUON: &str = "optimizer=muon\ncurriculum.from=6\ncurriculum.until=0.7\ncurriculum.widen=3";

#[test]
fn a_run_repeats_to_the_bit_with_one_thread_or_two() {
    for settings in ["model.attention.name=tra", "model.attention.name=rope", MUON] {
        let config = config(&format!("{settings}\naccumulate=2"));
        let folders = [1, 2, 2].map(|threads| {
            let folder = tempfile::tempdir().unwrap();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| go(folder.path(), &config)).unwrap();
            folder
        });
        for name in FINAL {
            let first = read(folders[0].path(), name);
            assert!(folders.iter().all(|f| read(f.path(), name) == first), "{settings}: {name}");
        }
    }
}

/// A run stopped after any step, or during an evaluation, and resumed once or several times leaves
/// the same bytes and the same checkpoints.
#[test]
fn a_resumed_run_is_the_run_that_was_never_interrupted() {
    let mut stops: Vec<Vec<Stop>> = (1..=12).map(|step| vec![Stop::At(step)]).collect();
    stops.push(vec![Stop::At(2), Stop::At(3), Stop::At(7), Stop::At(10)]);
    stops.push(vec![Stop::InEvaluation(6)]);
    stops.push(vec![Stop::InEvaluation(6), Stop::InEvaluation(6), Stop::InEvaluation(12)]);
    check_resumed("", &stops);
    check_resumed("save_every=0\nkeep=1", &stops);
    check_resumed(MUON, &stops[11..]);
}

fn check_resumed(settings: &str, stops: &[Vec<Stop>]) {
    let config = config(settings);
    let whole = tempfile::tempdir().unwrap();
    go(whole.path(), &config).unwrap();
    for stops in stops {
        let cut = tempfile::tempdir().unwrap();
        for stop in stops {
            let outcome = go_until(cut.path(), &config, *stop).unwrap();
            let (Stop::At(at) | Stop::InEvaluation(at)) = stop else { unreachable!() };
            assert_eq!((outcome.end, outcome.position.step), (End::Interrupted, *at));
            let saved = RunDir::open(cut.path()).unwrap().steps().unwrap();
            assert!(saved.contains(at), "{stops:?}: {saved:?}");
        }
        assert_eq!(go(cut.path(), &config).unwrap().end, End::Finished);
        check_same(cut.path(), whole.path(), &format!("{stops:?}"));
    }
}

/// Any change to data, weights, dropout, loss or optimizer fails this test. If the change is
/// intended, copy the new numbers from the failing test.
#[test]
fn losses_of_the_first_ten_steps_are_pinned() {
    for (attention, pinned) in [("tra", PINNED_TRA), ("rope", PINNED_ROPE)] {
        let config = config(&format!("model.attention.name={attention}\nsteps=10\neval.every=0"));
        let folder = tempfile::tempdir().unwrap();
        go(folder.path(), &config).unwrap();
        let metrics = RunDir::open(folder.path()).unwrap().metrics().unwrap();
        let losses: Vec<f64> = metrics
            .iter()
            .filter_map(|m| if let Metric::Step(s) = m { Some(s.loss) } else { None })
            .collect();
        let close = losses.iter().zip(pinned).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(close && losses.len() == 10, "{attention}: {losses:.5?}");
    }
}

const PINNED_TRA: [f64; 10] =
    [1.79589, 1.79900, 1.73667, 1.72765, 1.69561, 1.68766, 1.66653, 1.65747, 1.65270, 1.66498];
const PINNED_ROPE: [f64; 10] =
    [1.80434, 1.80332, 1.74100, 1.72581, 1.68978, 1.68649, 1.66668, 1.65890, 1.65452, 1.65996];

/// One batch of six equals two batches of three, except for rounding.
#[test]
fn accumulation_is_a_larger_batch() {
    let losses = |extra: &str| {
        let config = config(&format!("model.dropout=0.0\nsteps=5\n{extra}"));
        let folder = tempfile::tempdir().unwrap();
        go(folder.path(), &config).unwrap();
        let metrics = RunDir::open(folder.path()).unwrap().metrics().unwrap();
        let records = metrics.into_iter().filter_map(|m| match m {
            Metric::Step(s) => Some((s.loss, s.grad_norm, s.tokens)),
            Metric::Evaluation(_) => None,
        });
        records.collect::<Vec<_>>()
    };
    let (whole, parts) = (losses("batch=6"), losses("batch=3\naccumulate=2"));
    for (a, b) in whole.iter().zip(&parts) {
        assert!((a.0 - b.0).abs() < 1e-4 && (a.1 / b.1 - 1.0).abs() < 1e-3, "{a:?} {b:?}");
        assert_eq!(a.2, b.2);
    }
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        config("lr=1e30\nclip=0.0\nsave_every=1\nwarmup=0.1\nsteps=50\neval.every=0\nkeep=9");
    let text = go(folder.path(), &config).unwrap_err().to_string();
    for part in ["diverged", "at step", "good checkpoint", "likely cause", "lower --lr"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(text.lines().count(), 1);
    // The failed weights are set aside, so that a resumed run does not start with them.
    let run = RunDir::open(folder.path()).unwrap();
    let last = run.metrics().unwrap().last().unwrap().step();
    assert!(!run.steps().unwrap().contains(&last), "{text}");
    assert!(folder.path().join(format!("checkpoints/diverged-{last:08}")).exists());
}

#[test]
fn perfect_runs_stop_early_only_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let config = config("eval.until_perfect=1\neval.every=2\nsteps=4");
    let outcome = go(folder.path(), &config).unwrap();
    assert_eq!((outcome.end, outcome.position.step), (End::Finished, 4), "an untrained model");
}

#[test]
fn only_the_newest_and_the_best_checkpoints_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let config = config("save_every=1\nkeep=2\neval.every=0");
    go(folder.path(), &config).unwrap();
    assert_eq!(RunDir::open(folder.path()).unwrap().steps().unwrap(), [11, 12]);
}

#[test]
fn damage_is_named_and_the_older_checkpoint_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let config = config("");
    go(folder.path(), &config).unwrap();
    let run = RunDir::open(folder.path()).unwrap();
    let steps = run.steps().unwrap();
    assert!(steps.len() >= 2, "{steps:?}");
    for file in ["model.safetensors", "training.safetensors"] {
        let path = folder.path().join("checkpoints/step-00000012").join(file);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let mut warnings = Vec::new();
        let device = Device::flex().autodiff();
        let checkpoint =
            run.newest(config.optimizer(), &device, |w| warnings.push(w)).unwrap().unwrap();
        assert_eq!(checkpoint.position.step, steps[steps.len() - 2]);
        assert!(warnings[0].contains("checkpoint 12 is damaged"), "{warnings:?}");
        std::fs::write(&path, whole).unwrap();
    }
}

#[test]
fn run_directories_that_cannot_be_used_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let config = config("steps=1\neval.every=0");
    let text = RunDir::open(&path).unwrap_err().to_string();
    assert!(text.contains("not a run directory"), "{text}");
    go(&path, &config).unwrap();
    let text = RunDir::check_unused(&path).unwrap_err().to_string();
    assert!(text.contains("--resume"), "{text}");
    let run = RunDir::open(&path).unwrap();
    let _held = RunDir::lock(&path).unwrap();
    let text = RunDir::lock(&path).unwrap_err().to_string();
    assert!(text.contains("another process"), "{text}");

    let file = path.join("config.toml");
    let original = std::fs::read_to_string(&file).unwrap();
    for (from, to, part) in [
        ("version = 1", "version = 7", "version 7"),
        ("version = 1\n", "", "no version"),
        ("steps = 1", "stepz = 1", "stepz"),
        ("steps = 1", "steps = = 1", "config.toml"),
    ] {
        std::fs::write(&file, original.replace(from, to)).unwrap();
        let text = run.config().unwrap_err().to_string();
        assert!(text.contains(part) && text.lines().count() == 1, "{text}");
    }
}
