//! The definition against tensors recorded from the published PyTorch code.

use safetensors::SafeTensors;
use tra_kernels::tra::naive::{Head, Inputs, backward, forward};

fn floats(file: &SafeTensors<'_>, name: &str) -> Vec<f64> {
    let view = file.tensor(name).unwrap();
    view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect()
}

fn largest_difference(ours: &[f64], recorded: &[f64]) -> f64 {
    assert_eq!(ours.len(), recorded.len());
    ours.iter().zip(recorded).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn the_definition_agrees_with_every_recorded_attention() {
    for name in ["t1", "t7", "t64", "t130_zero_row"] {
        let path = format!(
            "{}/../../tests/golden/attention_{name}.safetensors",
            env!("CARGO_MANIFEST_DIR")
        );
        let bytes = std::fs::read(&path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let [batch, heads, length, dim] = file.tensor("q").unwrap().shape().try_into().unwrap();
        let [q, k, v, gate, grad_out] =
            ["q", "k", "v", "gate", "grad_out"].map(|name| floats(&file, name));
        let [keep, count, weights, out] = ["keep", "count", "weights", "out"].map(|name| {
            if name == "keep" {
                file.tensor(name).unwrap().data().iter().map(|k| f64::from(*k)).collect()
            } else {
                floats(&file, name)
            }
        });
        let grads = ["grad_q", "grad_k", "grad_v", "grad_gate"].map(|name| floats(&file, name));

        for h in 0..batch * heads {
            let rows = |x: &[f64], row: usize| x[h * length * row..][..length * row].to_vec();
            let (q, k, v) = (rows(&q, dim), rows(&k, dim), rows(&v, dim));
            let gate = rows(&gate, 1);
            let inputs = Inputs { q: &q, k: &k, v: &v, gate: &gate };
            let f = forward(Head::new(length, dim), inputs);
            let g = backward(Head::new(length, dim), inputs, &f, &rows(&grad_out, dim));

            let ours: Vec<f64> = f.keep.iter().map(|k| f64::from(u8::from(*k))).collect();
            assert_eq!(ours, rows(&keep, length), "{name}: keep");
            let ours: Vec<f64> = f.count.iter().map(|c| f64::from(*c)).collect();
            assert_eq!(ours, rows(&count, length), "{name}: count");
            assert!(largest_difference(&f.weights, &rows(&weights, length)) < 2e-6, "{name}");
            assert!(largest_difference(&f.out, &rows(&out, dim)) < 5e-6, "{name}: out");
            for (ours, (recorded, width)) in
                [&g.q, &g.k, &g.v, &g.gate].into_iter().zip(grads.iter().zip([dim, dim, dim, 1]))
            {
                assert!(largest_difference(ours, &rows(recorded, width)) < 1e-5, "{name}: grad");
            }
        }
    }
}
