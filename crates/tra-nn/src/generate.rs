//! Continues a sequence, one token at a time.

use burn::module::Module;
use tra_random::Stream;

use crate::cache::Cache;
use crate::decoder::Decoder;
use crate::error::{Error, TokenError};
use crate::pass::Pass;
use crate::sampler::Sampling;
use crate::settings::settings;

settings! {
    /// How to continue a sequence.
    pub struct Generate {
        /// Number of tokens after which to stop.
        max_tokens: usize = 128, with_max_tokens;
        /// Tokens before which to stop.
        stop: Vec<u32> = Vec::new(), with_stop;
        /// How each token is chosen.
        sampling: Sampling = Sampling::PLAIN, with_sampling;
        /// The same seed returns the same continuation.
        seed: u64 = 0, with_seed;
    }
}

impl Decoder {
    /// Continues `prompt`, one token at a time, as an iterator.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use tra_nn::{DecoderConfig, Generate, Sampling, Size};
    ///
    /// let decoder = DecoderConfig::sized(Size::Tiny, 6).init(&Device::flex())?;
    /// let options = Generate::default().with_max_tokens(5).with_sampling(Sampling::GREEDY);
    /// let continuation: Vec<u32> = decoder.generate(&[1, 4, 3, 5, 2], options)?.collect();
    /// assert_eq!(continuation.len(), 5);
    /// # Ok::<(), tra_nn::Error>(())
    /// ```
    pub fn generate(&self, prompt: &[u32], options: Generate) -> Result<Continuation, Error> {
        options.sampling.validate()?;
        if prompt.is_empty() {
            return Err(TokenError::EmptyPrompt.into());
        }
        // The last token need not be read.
        let read = prompt.len().saturating_add(options.max_tokens.saturating_sub(1));
        self.config().check_length(read)?;
        let decoder = self.valid();
        let mut continuation = Continuation {
            cache: decoder.new_cache(),
            decoder,
            draws: Stream::new(options.seed).fork_name("generate"),
            options,
            logits: Vec::new(),
            given: 0,
        };
        continuation.decoder.tokens(&[prompt])?;
        // In pieces, so that memory grows with the length of the prompt and not with its square.
        let piece = continuation.decoder.chunk_len(1, prompt.len());
        for piece in prompt.chunks(piece) {
            continuation.read(piece)?;
        }
        Ok(continuation)
    }
}

/// The tokens that follow a prompt; made by [`Decoder::generate`].
#[derive(Debug)]
pub struct Continuation {
    decoder: Decoder,
    cache: Cache,
    options: Generate,
    draws: Stream,
    logits: Vec<f32>,
    given: usize,
}

impl Continuation {
    fn read(&mut self, tokens: &[u32]) -> Result<(), TokenError> {
        let batch = self.decoder.tokens(&[tokens])?;
        let hidden = self.decoder.hidden(batch, Pass::cached(&mut self.cache));
        let last = self.decoder.logits(hidden.narrow(1, tokens.len() - 1, 1));
        self.logits = last.into_data_as::<f32>().iter::<f32>().collect();
        Ok(())
    }
}

impl Iterator for Continuation {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.given == self.options.max_tokens {
            return None;
        }
        let draw = self.draws.uniform(self.given as u64);
        let token = self.options.sampling.choose(&self.logits, draw);
        if self.options.stop.contains(&token) {
            self.given = self.options.max_tokens;
            return None;
        }
        self.given += 1;
        if self.given < self.options.max_tokens {
            // A token chosen among the logits is in the vocabulary.
            self.read(&[token]).ok()?;
        }
        Some(token)
    }
}
