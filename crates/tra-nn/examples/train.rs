//! Trains a small decoder with Burn's AdamW to say the last value it was told, on short sequences,
//! and tests it on long ones.

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};
use tra_nn::{Decoder, DecoderConfig, Error, Pass};

const BATCH: usize = 16;

/// Draws sequences of the values 2 and 3 and of 1, which says nothing. Returns the tokens, and the
/// answer at every position: the last value.
fn draw(
    decoder: &Decoder,
    seed: u64,
    length: usize,
) -> Result<(Tensor<2, Int>, Tensor<1, Int>), Error> {
    let (mut state, mut last, mut answers) = (seed, 2, Vec::new());
    let token = |at: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let draw = (state >> 33) % 10;
        let first = at.is_multiple_of(length);
        let token = if !first && draw < 8 { 1 } else { 2 + (draw % 2) as u32 };
        last = if token == 1 { last } else { token };
        answers.push(i64::from(last));
        token
    };
    let tokens: Vec<u32> = (0..BATCH * length).map(token).collect();
    let tokens = decoder.tokens(&tokens.chunks(length).collect::<Vec<_>>())?;
    let answers = TensorData::new(answers, [BATCH * length]);
    Ok((tokens, Tensor::from_data(answers, &decoder.device())))
}

fn main() -> Result<(), Error> {
    let device = Device::flex().autodiff();
    let mut decoder = DecoderConfig::new(4, 2, 64, 2).init_seeded(1, &device)?;
    let mut optimizer = AdamWConfig::new().init();
    let loss = CrossEntropyLossConfig::new().init(&device);
    for step in 0..=400 {
        let (tokens, answers) = draw(&decoder, 1000 + step, 24)?;
        let logits = decoder.forward(tokens, Pass::train(1, step));
        let loss = loss.forward(logits.flatten(0, 1), answers);
        let gradients = GradientsParams::from_grads(loss.backward(), &decoder);
        decoder = optimizer.step(3e-3, decoder, gradients);
        if step % 200 == 0 {
            println!("step {step}: loss {:.4}", loss.into_scalar::<f32>());
        }
    }
    let decoder = decoder.valid();
    for length in [24, 1000] {
        let (tokens, answers) = draw(&decoder, 7, length)?;
        let logits: Tensor<2> = decoder.forward(tokens, Pass::eval()).flatten(0, 1);
        let right = logits.argmax(1).squeeze_dim(1).equal(answers).float().mean();
        println!("length {length}: {:.1}% right", 100.0 * right.into_scalar::<f32>());
    }
    Ok(())
}
