//! The decoder as published, with any mechanism.

use burn::module::Module;
use burn::nn::{Embedding, Linear};
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::attention::AttentionConfig;
use crate::block::Block;
use crate::cache::Cache;
use crate::config::DecoderConfig;
use crate::dropout::drop;
use crate::error::{Error, TokenError};
use crate::fused;
use crate::init::WeightInit;
use crate::norm::RmsNorm;
use crate::ops::{linear, product};
use crate::pass::{LayerPass, Pass};
use crate::positions::PositionEmbedding;

/// Tokens in one pass over all sequences, if long sequences are read in pieces.
const PIECE: usize = 4096;

/// Query-key pairs over all heads and sequences in one pass, if attention has no kernel: 4M are 16 MB
/// per intermediate matrix.
const PAIRS: usize = 1 << 22;

/// A decoder-only language model. Field names are those of a reference checkpoint.
#[derive(Module, Debug)]
pub struct Decoder {
    /// Tokens to vectors.
    pub embedding: Embedding,
    /// The vectors added at every position, for mechanisms that use them.
    pub position: Option<PositionEmbedding>,
    /// The blocks.
    pub layers: Vec<Block>,
    /// The last norm.
    pub outln: RmsNorm,
    /// Vectors to logits; none if the output is [tied](DecoderConfig::tied) to the embedding.
    pub out: Option<Linear>,
    #[module(skip)]
    config: DecoderConfig,
}

impl Decoder {
    pub(crate) fn new(config: DecoderConfig, init: &WeightInit) -> Result<Self, Error> {
        let DecoderConfig { vocab, layers, width, norm_eps, tied, research, .. } = config;
        let blocks = init.scope("layers");
        let weight = || init.scope("out").normal("weight", [width, vocab], 0.02);
        Ok(Self {
            embedding: init.embedding("embedding", vocab, width, research.embedding_bound),
            position: (config.attention.positions())
                .map(|p| PositionEmbedding::new(p, width, research.embedding_bound, init)),
            layers: (0..layers)
                .map(|layer| Block::new(&config, layer, &blocks.scope(&layer.to_string())))
                .collect::<Result<_, _>>()?,
            outln: RmsNorm::new(width, norm_eps, &init.scope("outln")),
            out: (!tied).then(|| Linear { weight: weight(), bias: None }),
            config,
        })
    }

    /// Returns the settings.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Returns the device of the weights.
    pub fn device(&self) -> Device {
        self.embedding.weight.lazy_device()
    }

    /// Returns whether attention runs on a fused kernel: the memory of a pass then grows with the
    /// length, not with its square.
    pub fn has_kernel(&self) -> bool {
        self.config.attention.has_kernel() && fused::usable(&self.outln.weight.val())
    }

    /// Returns how many tokens of each of `sequences` sequences to read at once through a cache, so
    /// that the memory of a pass stays bounded; `length` is the length of the sequences in the end.
    pub fn chunk_len(&self, sequences: usize, length: usize) -> usize {
        let sequences = sequences.max(1);
        match self.has_kernel() {
            true => (PIECE / sequences).max(1),
            false => (PAIRS / (length * self.config.heads * sequences).max(1)).clamp(16, PIECE),
        }
    }

    /// Returns an empty cache for [`Pass::cached`].
    pub fn new_cache(&self) -> Cache {
        Cache::new(self.layers.len())
    }

    /// Returns the logits of the token that follows each position, `[batch, length, vocab]`.
    ///
    /// `tokens` is `[batch, length]`; [`tokens`](Self::tokens) makes it and checks it. The
    /// length has no limit but [that of `learned`](DecoderConfig::check_length). Length 0 returns an
    /// empty result.
    ///
    /// ```
    /// use burn::tensor::{Device, Tolerance};
    /// use tra_nn::{DecoderConfig, Pass, Size};
    ///
    /// let decoder = DecoderConfig::sized(Size::Tiny, 6).init(&Device::flex())?;
    /// let sequence = [1, 4, 3, 5, 2, 4, 3, 5];
    ///
    /// // All at once …
    /// let all = decoder.forward(decoder.tokens(&[&sequence])?, Pass::eval());
    /// assert_eq!(all.dims(), [1, 8, 6]);
    ///
    /// // … or in pieces, through a cache: the same logits.
    /// let mut cache = decoder.new_cache();
    /// decoder.forward(decoder.tokens(&[&sequence[..5]])?, Pass::cached(&mut cache));
    /// let rest = decoder.forward(decoder.tokens(&[&sequence[5..]])?, Pass::cached(&mut cache));
    /// rest.into_data().assert_approx_eq::<f32>(
    ///     &all.narrow(1, 5, 3).into_data(),
    ///     Tolerance::absolute(1e-5),
    /// );
    /// # Ok::<(), tra_nn::Error>(())
    /// ```
    pub fn forward(&self, tokens: Tensor<2, Int>, pass: Pass<'_>) -> Tensor<3> {
        self.logits(self.hidden(tokens, pass))
    }

    /// Returns the output of the last norm, `[batch, length, width]`, of which [`logits`](Self::logits)
    /// makes logits. Over a large vocabulary logits take far more memory: select the positions at
    /// which you need them first.
    pub fn hidden(&self, tokens: Tensor<2, Int>, pass: Pass<'_>) -> Tensor<3> {
        let [batch, length] = tokens.dims();
        let DecoderConfig { width, dropout, research, .. } = self.config;
        if batch == 0 || length == 0 {
            return Tensor::zeros([batch, length, width], &self.device());
        }
        let stream = pass.training;
        let past = pass.cache.as_ref().map_or(0, |cache| cache.len());
        let caches = each(pass.cache.map(|cache| cache.layers.iter_mut()));
        let probes = each(pass.probe.map(|probe| probe.layers.iter_mut()));
        let x = match &self.position {
            Some(position) => position.add(self.embed(tokens), past),
            None => self.embed(tokens),
        };
        let rate = research.embedding_dropout.unwrap_or(dropout);
        let x = drop(x, rate, stream.map(|s| s.fork_name("embedding")));
        let x = (0..).zip(&self.layers).zip(caches.zip(probes)).fold(
            x,
            |x, ((index, layer), (cache, probe))| {
                let training = stream.map(|s| s.fork(index));
                layer.forward(x, LayerPass { cache, training, probe })
            },
        );
        self.outln.forward(x)
    }

    /// Returns the logits `[batch, length, vocab]` of [`hidden`](Self::hidden) states.
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        let [batch, length, _] = hidden.dims();
        if batch == 0 || length == 0 {
            return Tensor::zeros([batch, length, self.config.vocab], &hidden.device());
        }
        match &self.out {
            Some(out) => linear(out, hidden),
            None => product(hidden, self.embedding.weight.val().transpose(), None),
        }
    }

    /// Returns a batch of token sequences of one length, checked against the vocabulary.
    pub fn tokens(&self, sequences: &[impl AsRef<[u32]>]) -> Result<Tensor<2, Int>, TokenError> {
        let vocab = self.config.vocab;
        let expected = sequences.first().map_or(0, |first| first.as_ref().len());
        let mut all = Vec::with_capacity(sequences.len() * expected);
        for (sequence, tokens) in sequences.iter().map(AsRef::as_ref).enumerate() {
            if tokens.len() != expected {
                return Err(TokenError::Ragged { sequence, found: tokens.len(), expected });
            }
            for (position, token) in tokens.iter().enumerate() {
                if *token as usize >= vocab {
                    let token = i64::from(*token);
                    return Err(TokenError::OutsideVocab { token, sequence, position, vocab });
                }
                all.push(i64::from(*token));
            }
        }
        let data = TensorData::new(all, [sequences.len(), expected]);
        Ok(Tensor::from_data(data, &self.device()))
    }

    /// Looks up embeddings. The padding token has one like any other, but it is never trained.
    fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let x = self.embedding.forward(tokens.clone());
        let Some(pad) = self.config.pad_index.filter(|_| x.is_tracked()) else { return x };
        let [batch, length, width] = x.dims();
        let padding = tokens.equal_elem(pad as i64).unsqueeze_dim::<3>(2);
        x.clone().mask_where(padding.expand([batch, length, width]), x.detach())
    }
}

/// Returns one item per layer, or none for every layer.
fn each<T>(items: Option<impl Iterator<Item = T>>) -> impl Iterator<Item = Option<T>> {
    let missing = items.is_none();
    items
        .into_iter()
        .flatten()
        .map(Some)
        .chain(std::iter::repeat_with(|| None).take_while(move |_| missing))
}
