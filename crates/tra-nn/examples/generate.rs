//! Trains a decoder on a cycle of tokens and continues the cycle: with [`Decoder::generate`], and by
//! hand with a cache, which reads each token once.

use std::time::Instant;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor};
use tra_nn::{Decoder, DecoderConfig, Error, Generate, Pass, Sampling};

/// The numbers from 1 to 5, over and over.
fn cycle(length: usize) -> Vec<u32> {
    (0..length as u32).map(|at| 1 + at % 5).collect()
}

fn trained(device: &Device) -> Result<Decoder, Error> {
    let mut decoder = DecoderConfig::new(6, 1, 32, 2).init_seeded(1, device)?;
    let mut optimizer = AdamWConfig::new().init();
    let loss = CrossEntropyLossConfig::new().init(device);
    for step in 0..100 {
        let tokens = decoder.tokens(&[cycle(33)])?;
        let answers: Tensor<1, Int> = tokens.clone().narrow(1, 1, 32).squeeze_dim(0);
        let logits = decoder.forward(tokens.narrow(1, 0, 32), Pass::train(1, step));
        let gradients = loss.forward(logits.squeeze_dim(0), answers).backward();
        let gradients = GradientsParams::from_grads(gradients, &decoder);
        decoder = optimizer.step(1e-2, decoder, gradients);
    }
    Ok(decoder)
}

fn main() -> Result<(), Error> {
    let decoder = trained(&Device::flex().autodiff())?;

    let options = Generate::default().with_max_tokens(20).with_sampling(Sampling::GREEDY);
    let continuation: Vec<u32> = decoder.generate(&cycle(7), options)?.collect();
    println!("{:?} goes on with {continuation:?}", cycle(7));

    // The same by hand: the cache holds what was read, so every pass reads one token.
    let mut cache = decoder.new_cache();
    let mut next = cycle(1000);
    let start = Instant::now();
    for _ in 0..500 {
        let logits = decoder.forward(decoder.tokens(&[&next])?, Pass::cached(&mut cache));
        let [_, length, _] = logits.dims();
        let best = logits.narrow(1, length - 1, 1).argmax(2).into_scalar::<i64>();
        next = vec![best as u32];
    }
    let each = start.elapsed().as_secs_f64() * 1e3 / 500.0;
    println!("after {} tokens comes {}; {each:.2} ms per token", cache.len(), next[0]);
    Ok(())
}
