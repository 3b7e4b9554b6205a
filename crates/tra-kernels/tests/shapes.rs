//! No safe caller can make a kernel leave its memory: every public entry refuses sizes that do not
//! fit, and says which.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tra_kernels::attention::{
    Bounds, Horizon, Inputs, Rows, Rule, Saved, Shape, backward, forward,
};
use tra_kernels::dropout::Dropout;
use tra_kernels::simd::Isa;
use tra_kernels::{adamw, entmax, linear, loss, muon, norm, rotate, swiglu};
use tra_random::Stream;

/// What a call that must panic says.
fn refused<R>(what: &str, call: impl FnOnce() -> R) -> String {
    let outcome = catch_unwind(AssertUnwindSafe(|| drop(call())));
    let panic = outcome.expect_err(&format!("{what}: not refused"));
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string())).unwrap_or_default()
}

fn says<R>(what: &str, expected: &str, call: impl FnOnce() -> R) {
    let said = refused(what, call);
    assert!(said.contains(expected), "{what}: {said:?} does not say {expected:?}");
}

const SHAPE: Shape = Shape { batch: 2, heads: 3, queries: 70, keys: 90, dim: 32 };
const QUERIES: [usize; 3] = [2, 3, 70];
const KEYS: [usize; 3] = [2, 3, 90];

/// Kept for good, so that a closure may put it into [`Inputs`].
fn numbers(sizes: [usize; 3], width: usize) -> &'static [f32] {
    vec![0.5; sizes.iter().product::<usize>() * width].leak()
}

/// Runs both passes with one thing changed.
fn attend(change: impl FnOnce(&mut Inputs<'static>)) {
    let (q, k, gate) = (numbers(QUERIES, 32), numbers(KEYS, 32), numbers(QUERIES, 1));
    let mut inputs = Inputs {
        shape: SHAPE,
        q: Rows::contiguous(q, QUERIES, 32),
        k: Rows::contiguous(k, KEYS, 32),
        v: Rows::contiguous(k, KEYS, 32),
        rule: Rule::Tra { gate: Rows::contiguous(gate, QUERIES, 1), leak: 0.0 },
        dropout: None,
        horizon: Horizon::Exact,
        bounds: None,
        isa: Isa::best(),
    };
    change(&mut inputs);
    let mut out = vec![0.0; q.len()];
    let saved = forward(&inputs, &mut out);
    backward(&inputs, &saved, &out, Rows::contiguous(q, QUERIES, 32));
}

/// A view that is smaller than the shape says, in each place.
#[test]
fn attention_refuses_views_of_another_size() {
    attend(|_| {});
    let narrow = numbers(KEYS, 16);
    let few = numbers([2, 3, 60], 32);
    let rows = |width| Rows::contiguous(narrow, KEYS, width);
    says("narrow values", "values", || attend(|x| x.v = rows(16)));
    says("narrow keys", "keys", || attend(|x| x.k = rows(16)));
    says("narrow queries", "queries", || attend(|x| x.q = Rows::contiguous(narrow, QUERIES, 16)));
    says("wide values", "values", || {
        let wide = numbers(KEYS, 64);
        attend(|x| x.v = Rows::contiguous(wide, KEYS, 64));
    });
    says("few values", "values", || attend(|x| x.v = Rows::contiguous(few, [2, 3, 60], 32)));
    says("few keys", "keys", || attend(|x| x.k = Rows::contiguous(few, [2, 3, 60], 32)));
    says("few queries", "queries", || attend(|x| x.q = Rows::contiguous(few, [2, 3, 60], 32)));
    says("few gates", "gate", || {
        let rule = Rule::Tra { gate: Rows::contiguous(few, [2, 3, 60], 1), leak: 0.0 };
        attend(|x| x.rule = rule);
    });
    says("no gate", "gate", || {
        let rule = Rule::Tra { gate: Rows::contiguous(&[], QUERIES, 0), leak: 0.0 };
        attend(|x| x.rule = rule);
    });
    says("few slopes", "slopes", || {
        attend(|x| x.rule = Rule::Slope(Rows::contiguous(few, [1, 2, 1], 1)));
    });
    says("few steps", "step", || {
        attend(|x| x.rule = Rule::Steps(Rows::contiguous(few, [2, 3, 1], 89)));
    });
    says("few bounds", "bounds", || attend(|x| x.bounds = Some(vec![Bounds::default(); 5].leak())));
    says("more queries than keys", "more queries than keys", || {
        attend(|x| x.shape.keys = 60);
    });
}

/// Sizes whose product wraps around, which views of stride 0 would otherwise allow.
#[test]
fn attention_refuses_sizes_that_overflow() {
    let one = [1.0; 8];
    let huge = usize::MAX / 2 + 2;
    let shape = Shape { batch: huge, heads: 2, queries: 1, keys: 1, dim: 8 };
    says("overflow", "overflow", || {
        let rows = Rows::new(&one, 0, [huge, 2, 1], [0; 3], 8);
        let mut out = vec![0.0; 16];
        let rule = Rule::Dense;
        let isa = Isa::Portable;
        let (dropout, bounds, horizon) = (None, None, Horizon::Exact);
        let (q, k, v) = (rows, rows, rows);
        forward(&Inputs { shape, q, k, v, rule, dropout, horizon, bounds, isa }, &mut out);
    });
    says("a row outside", "outside", || Rows::new(&one, 0, [huge, 3, 1], [2, 0, 0], 8));
}

#[test]
fn attention_refuses_what_another_pass_saved() {
    let (q, k, gate) = (numbers(QUERIES, 32), numbers(KEYS, 32), numbers(QUERIES, 1));
    let inputs = Inputs {
        shape: SHAPE,
        q: Rows::contiguous(q, QUERIES, 32),
        k: Rows::contiguous(k, KEYS, 32),
        v: Rows::contiguous(k, KEYS, 32),
        rule: Rule::Tra { gate: Rows::contiguous(gate, QUERIES, 1), leak: 0.0 },
        dropout: None,
        horizon: Horizon::Exact,
        bounds: None,
        isa: Isa::best(),
    };
    says("a short output", "output", || forward(&inputs, &mut vec![0.0; q.len() - 1]));
    let mut out = vec![0.0; q.len()];
    let good = forward(&inputs, &mut out);
    let grad = Rows::contiguous(q, QUERIES, 32);
    let with = |change: fn(&mut Saved)| {
        let mut saved = good.clone();
        change(&mut saved);
        let out = out.clone();
        move || backward(&inputs, &saved, &out, grad)
    };
    says("few shifts", "saved", with(|s| s.shift.truncate(1)));
    says("few sums", "saved", with(|s| s.inverse_sum.truncate(1)));
    says("few stops", "saved", with(|s| s.stop.truncate(1)));
    says("a stop behind the keys", "stop", with(|s| s.stop[0] = 91));
    says("a short output", "output", || backward(&inputs, &good, &out[1..], grad));
    let narrow = numbers(QUERIES, 16);
    says("a narrow gradient", "gradient", || {
        backward(&inputs, &good, &out, Rows::contiguous(narrow, QUERIES, 16));
    });
}

#[test]
fn the_other_kernels_refuse_sizes_that_do_not_fit() {
    let isa = Isa::best();
    let x = vec![1.0; 64];
    // Norm.
    says("norm", "whole rows", || norm::forward(isa, &x, None, 1e-6, 7));
    says("norm", "width", || norm::forward(isa, &x, None, 1e-6, 0));
    says("norm", "weight", || norm::forward(isa, &x, Some(&x[..7]), 1e-6, 8));
    says("norm", "row", || norm::backward(isa, &x, None, &x[..7], &x, 8));
    says("norm", "gradient", || norm::backward(isa, &x, None, &x[..8], &x[1..], 8));
    // The gated unit.
    says("swiglu", "whole rows", || swiglu::forward(isa, &x, 7, None));
    says("swiglu", "whole rows", || swiglu::forward(isa, &x, 0, None));
    says("swiglu", "gradient", || swiglu::backward(isa, &x, 8, None, &x));
    // Linear.
    let sizes = linear::Sizes { rows: 8, input: 8, output: 8 };
    says("linear", "x has", || linear::forward(sizes, &x[1..], &x, None));
    says("linear", "W has", || linear::forward(sizes, &x, &x[1..], None));
    says("linear", "bias", || linear::forward(sizes, &x, &x, Some(&x)));
    says("linear", "W has", || linear::backward_x(sizes, &x[1..], &x));
    says("linear", "dy has", || linear::backward_x(sizes, &x, &x[1..]));
    says("linear", "x has", || linear::backward_w(sizes, &x[1..], &x));
    says("linear", "dy has", || linear::backward_w(sizes, &x, &x[1..]));
    says("linear", "dy has", || linear::backward_b(sizes, &x[1..]));
    // rows * input is 2^64 + 2048: the same number as that of what is there, if it wraps.
    let sizes = linear::Sizes { rows: (1 << 53) + 1, input: 2048, output: 2048 };
    let (x2, w) = (vec![1.0; 2048], vec![1.0; 2048 * 2048]);
    says("linear", "overflow", || linear::forward(sizes, &x2, &w, None));
    // Rotation.
    says("rotate", "angle", || {
        rotate::rotate(&mut x.clone(), [4, 2, 8], &x[..15], &x[..16], false)
    });
    says("rotate", "whole", || {
        rotate::rotate(&mut x.clone(), [3, 2, 8], &x[..12], &x[..12], false)
    });
    says("rotate", "whole", || rotate::rotate(&mut x.clone(), [0, 2, 8], &[], &[], false));
    // Entmax.
    says("entmax", "whole rows", || entmax::forward(&mut x.clone(), 7));
    says("entmax", "whole rows", || entmax::forward(&mut x.clone(), 0));
    says("entmax", "whole rows", || entmax::backward(&x, &mut x.clone(), 7));
    says("entmax", "gradient", || entmax::backward(&x, &mut x[1..].to_vec(), 8));
    // Loss.
    says("loss", "target", || loss::forward_in_place(isa, &mut x.clone(), 8, &[1; 7]));
    says("loss", "outside", || loss::forward_in_place(isa, &mut x.clone(), 8, &[8; 8]));
    says("loss", "target", || loss::score(isa, &x, 8, &[1; 7]));
    says("loss", "outside", || loss::score(isa, &x, 8, &[8; 8]));
    says("loss", "overflow", || loss::score(isa, &[], usize::MAX / 2 + 1, &[1; 2]));
    // Optimizers.
    let step = adamw::Step {
        betas: [0.9, 0.99],
        scale: 1.0,
        decay: 1.0,
        rate: 0.1,
        second: 1.0,
        eps: 1e-8,
    };
    for short in 0..4 {
        let of = |i: usize| vec![1.0; if i == short { 63 } else { 64 }];
        says("adamw", "sizes differ", || {
            adamw::step(isa, step, &mut of(0), &mut of(1), &mut of(2), &of(3));
        });
    }
    let step = muon::Step { scale: 1.0, decay: 1.0, lr: 0.1 };
    for short in 0..3 {
        let of = |i: usize| vec![1.0; if i == short { 63 } else { 64 }];
        says("muon", "sizes differ", || muon::step([8, 8], step, &mut of(0), &mut of(1), &of(2)));
    }
    says("muon", "overflow", || muon::orthogonal([1 << 32, 1 << 32], Vec::new()));
    says("muon", "sizes differ", || muon::orthogonal([8, 8], vec![1.0; 63]));
    // Dropout.
    let dropout = Dropout::new(Stream::new(1), 0.5);
    says("dropout", "columns", || dropout.apply(isa, &mut x.clone(), 0, 0));
    says("dropout", "columns", || dropout.fill(&mut x.clone(), 0, 0));
}

/// An instruction set that this machine lacks.
#[test]
fn every_kernel_refuses_instructions_that_are_not_there() {
    let Some(isa) = Isa::ALL.into_iter().find(|isa| !isa.is_available()) else { return };
    let x = vec![1.0; 64];
    says("attention", "no", || attend(|inputs| inputs.isa = isa));
    says("norm", "this machine", || norm::forward(isa, &x, None, 1e-6, 8));
    says("swiglu", "this machine", || swiglu::forward(isa, &x, 8, None));
    says("loss", "this machine", || loss::score(isa, &x, 8, &[0; 8]));
    let dropout = Dropout::new(Stream::new(1), 0.5);
    says("dropout", "this machine", || dropout.apply(isa, &mut x.clone(), 0, 8));
}
