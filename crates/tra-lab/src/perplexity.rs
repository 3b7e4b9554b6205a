//! Perplexity of a text, read in windows of any length.
//!
//! A window of W tokens reads W tokens and predicts the next token after each of them. So every
//! token except the first is scored exactly once, whatever the protocol and window. Results at
//! different windows are about the same tokens.

use std::f64::consts::LN_2;
use std::ops::Range;
use std::path::Path;

use burn::module::Module;
use rayon::prelude::*;
use tra_nn::Decoder;
use tra_report::text::whole;
use tra_tasks::Sample;
use tra_text::{Corpus, Part, default_cache};

use crate::batch::Batch;
use crate::budget;
use crate::error::LabError;
use crate::eval::{read, score};
use crate::language::LanguageModel;
use crate::observer::{Observer, counting};
use crate::records::{Change, Perplexity, PerplexityResult, PositionLoss, Protocol};
use crate::session::tokenising;
use crate::stats::reach_of_mean;

/// Tokens per forward pass, over all its windows.
const TOKENS: usize = 4096;

/// Tokens per block. Blocks are treated as independent for the confidence interval. A block is at
/// most 1/32 of the text.
const BLOCK: usize = 1024;

/// How a text is split into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The protocol.
    pub protocol: Protocol,
    /// Tokens per window.
    pub window: usize,
    /// Tokens by which the window moves. It equals the window where windows do not overlap.
    pub stride: usize,
}

/// One window: the range of tokens it reads, and the number of positions at its start that are not
/// scored.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    reads: Range<usize>,
    skip: usize,
}

impl Windows {
    /// Creates windows of `window` tokens that move by `stride`, by default half the window.
    ///
    /// Windows that do not overlap always move by the whole window.
    pub fn new(protocol: Protocol, window: usize, stride: Option<usize>) -> Result<Self, LabError> {
        let wrong = |text: String| Err(LabError::Setting(text));
        if window == 0 {
            return wrong("a window must have at least 1 token; choose a larger one".into());
        }
        let stride = match protocol {
            Protocol::Chunk => window,
            Protocol::Sliding => stride.unwrap_or(window.div_ceil(2)),
        };
        if stride == 0 || stride > window {
            return wrong(format!(
                "a stride of {stride} does not fit windows of {window} tokens; use 1 to {window}"
            ));
        }
        Ok(Self { protocol, window, stride })
    }

    /// Returns the windows over a text of `tokens` tokens. The last token is only predicted.
    fn over(&self, tokens: usize) -> Vec<Window> {
        let all = tokens.saturating_sub(1);
        let (mut windows, mut start, mut scored) = (Vec::new(), 0, 0);
        while scored < all {
            let end = (start + self.window).min(all);
            windows.push(Window { reads: start..end, skip: scored - start });
            scored = end;
            start += self.stride;
        }
        windows
    }
}

/// Measures the perplexity of a text, or of its first `limit` tokens, at each of the windows `all`.
///
/// `text` is a file or a folder. It is tokenised once, with the model's tokenizer.
///
/// ```no_run
/// use tra_lab::language::{CheckpointSelector, LanguageModel};
/// use tra_lab::observer::Silent;
/// use tra_lab::perplexity::{Windows, measure};
/// use tra_lab::records::Protocol;
///
/// let device = tra_nn::device::Device::flex();
/// let newest = CheckpointSelector::Newest;
/// let model = LanguageModel::open("runs/wiki".as_ref(), newest, None, &device, |_| {})?;
/// let windows = [Windows::new(Protocol::Chunk, 4096, None)?];
/// let found = measure(&model, "wiki.test.tokens".as_ref(), &windows, None, &mut Silent)?;
/// println!("{}", found.results[0].perplexity);
/// # Ok::<(), tra_lab::LabError>(())
/// ```
pub fn measure(
    model: &LanguageModel,
    text: &Path,
    all: &[Windows],
    limit: Option<usize>,
    observer: &mut dyn Observer,
) -> Result<Perplexity, LabError> {
    let corpus = Corpus::find(text, Part::Test)?;
    let progress = &mut |done: tra_text::Progress| tokenising(text, done.read, done.of, observer);
    let tokens = corpus.tokens(&model.tokenizer, &default_cache()?, progress)?;
    let count = tokens.len().min(limit.unwrap_or(usize::MAX));
    let name = text.display();
    if count < 2 {
        return Err(LabError::Setting(format!(
            "{name}: too few tokens: at least 2 are needed; use a longer text or a larger --limit"
        )));
    }
    let scored = count as u64 - 1;
    let longest = all.iter().map(|windows| windows.window).max().unwrap_or(0);
    if longest as u64 > scored {
        let scored = whole(scored);
        observer.warn(format!(
            "{name} has only {scored} tokens to score; longer windows read the whole text"
        ));
    }
    // Decoding is lossy for some tokenizers (`[UNK]`, lower case). Their byte count is estimated
    // from the size of the text.
    let share = tokens.text_bytes() as f64 * scored as f64 / tokens.len() as f64;
    let content = tokens.key().to_string();
    let tokens = tokens.range(0..count);
    let bytes = match model.tokenizer.is_lossless() {
        true => model.tokenizer.decode(&tokens[1..]).len() as u64,
        false => share.round() as u64,
    };
    let mut results = Vec::new();
    // Losses at the first window of the current protocol.
    let mut first: Option<(Windows, Vec<(f64, usize)>)> = None;
    for &windows in all {
        let what = format!("{} at {}", windows.protocol.name(), windows.window);
        let mut progress = counting(what, scored, observer);
        let losses = losses(&model.decoder, &tokens, windows, |done| progress(done as u64))?;
        let mut result = summarise(&losses, windows, bytes);
        match &first {
            Some((other, before)) if other.protocol == windows.protocol => {
                result.change = Some(change(&losses, before, other.window));
            }
            _ => first = Some((windows, losses)),
        }
        results.push(result);
    }
    let text = text.display().to_string();
    Ok(Perplexity { step: model.step, text, content, tokens: scored, bytes, results })
}

/// Returns the loss of every token except the first, and how many tokens of its window precede it.
///
/// `progress` receives the number of tokens done.
pub fn losses(
    decoder: &Decoder,
    tokens: &[u32],
    windows: Windows,
    mut progress: impl FnMut(usize),
) -> Result<Vec<(f64, usize)>, LabError> {
    let window = windows.window.min(tokens.len());
    decoder.config().check_length(window).map_err(tra_nn::Error::from)?;
    let count = tokens.len().div_ceil(window.max(1));
    budget::evaluation(decoder.config(), window as u64, count as u64).check()?;
    let decoder = decoder.valid();
    let all = windows.over(tokens.len());
    let mut found = Vec::with_capacity(tokens.len());
    // Windows of equal length share a batch. Only the last window is shorter.
    let together = (TOKENS / windows.window).max(1);
    let mut batches: Vec<&[Window]> = Vec::new();
    for part in all.chunk_by(|a, b| a.reads.len() == b.reads.len()) {
        batches.extend(part.chunks(together));
    }
    for group in batches.chunks(rayon::current_num_threads()) {
        let computed: Vec<_> =
            group.par_iter().map(|batch| of_batch(&decoder, tokens, batch)).collect();
        found.extend(computed.into_iter().flatten());
        progress(found.len());
    }
    Ok(found)
}

fn of_batch(decoder: &Decoder, tokens: &[u32], windows: &[Window]) -> Vec<(f64, usize)> {
    let samples = windows.iter().map(|window| {
        let tokens = tokens[window.reads.clone()].to_vec();
        Sample { scored: vec![false; tokens.len()], tokens }
    });
    let batch = Batch::new(samples.collect());
    let mut found = vec![Vec::new(); windows.len()];
    read(decoder, &batch, &mut |from, hidden| {
        let count = hidden.dims()[1];
        let (mut rows, mut targets, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        for (owner, window) in windows.iter().enumerate() {
            for at in window.skip.max(from)..from + count {
                rows.push(owner * count + at - from);
                targets.push(tokens[window.reads.start + at + 1]);
                owners.push((owner, at + 1));
            }
        }
        for ((owner, before), answer) in owners.iter().zip(score(decoder, hidden, &rows, &targets))
        {
            found[*owner].push((answer.loss, *before));
        }
    });
    found.into_iter().flatten().collect()
}

/// Summarises losses. `bytes` is the size of the text of the scored tokens.
pub fn summarise(losses: &[(f64, usize)], windows: Windows, bytes: u64) -> PerplexityResult {
    let Windows { protocol, window, stride } = windows;
    let sum: f64 = losses.iter().map(|(loss, _)| loss).sum();
    let (loss, interval) = mean(&losses.iter().map(|(loss, _)| *loss).collect::<Vec<_>>());
    PerplexityResult {
        protocol,
        window,
        stride,
        loss,
        loss_interval: interval,
        perplexity: loss.exp(),
        perplexity_interval: interval.map(f64::exp),
        bits_per_byte: sum / LN_2 / bytes.max(1) as f64,
        change: None,
        by_position: by_position(losses),
    }
}

/// Returns the mean difference between losses and those of the same tokens at window `against`.
pub fn change(losses: &[(f64, usize)], before: &[(f64, usize)], against: usize) -> Change {
    let differences = losses.iter().zip(before).map(|((new, _), (old, _))| new - old);
    let (loss, loss_interval) = mean(&differences.collect::<Vec<_>>());
    Change { against, loss, loss_interval }
}

/// Returns the mean and its 95% interval.
///
/// Nearby tokens have similar losses, so the interval is computed from the means of blocks.
fn mean(values: &[f64]) -> (f64, [f64; 2]) {
    let all = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let block = BLOCK.min(values.len() / 32).max(1);
    let parts = values.chunks_exact(block).map(|part| part.iter().sum::<f64>() / block as f64);
    let means: Vec<f64> = parts.collect();
    if means.len() < 2 {
        return (all, [f64::NEG_INFINITY, f64::INFINITY]);
    }
    let reach = reach_of_mean(&means);
    (all, [all - reach, all + reach])
}

/// Returns the mean loss by number of preceding tokens, in ranges that double: 1, 2, 3-4, 5-8, and
/// so on. So a window whose length is a power of two ends with a full range.
fn by_position(losses: &[(f64, usize)]) -> Vec<PositionLoss> {
    let mut sums: Vec<(u64, f64)> = Vec::new();
    for (loss, before) in losses {
        let step = before.next_power_of_two().ilog2() as usize;
        if sums.len() <= step {
            sums.resize(step + 1, (0, 0.0));
        }
        sums[step].0 += 1;
        sums[step].1 += loss;
    }
    let numbered = sums.into_iter().enumerate().filter(|(_, (tokens, _))| *tokens > 0);
    numbered
        .map(|(step, (tokens, sum))| PositionLoss {
            from: (1usize << step) / 2 + 1,
            to: 1 << step,
            tokens,
            loss: sum / tokens as f64,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use tra_nn::attention::mechanisms;
    use tra_nn::{DecoderConfig, Pass};
    use tra_random::Stream;

    const VOCAB: usize = 13;

    fn tokens(count: u64) -> Vec<u32> {
        (0..count).map(|i| Stream::new(3).below(i, VOCAB as u64) as u32).collect()
    }

    fn windows(protocol: Protocol, window: usize, stride: usize) -> Windows {
        Windows::new(protocol, window, Some(stride)).unwrap()
    }

    fn all() -> [Windows; 5] {
        [
            windows(Protocol::Chunk, 7, 1),
            windows(Protocol::Sliding, 8, 3),
            windows(Protocol::Sliding, 1, 1),
            windows(Protocol::Sliding, 5, 5),
            windows(Protocol::Chunk, 1000, 1),
        ]
    }

    /// Computes the losses of each window separately, token by token through the cache.
    fn token_by_token(decoder: &Decoder, tokens: &[u32], windows: Windows) -> Vec<(f64, usize)> {
        let mut found = Vec::new();
        for Window { reads, skip } in windows.over(tokens.len()) {
            let mut cache = decoder.new_cache();
            for (before, at) in reads.enumerate() {
                let token = decoder.tokens(&[[tokens[at]]]).unwrap();
                let logits = decoder.forward(token, Pass::cached(&mut cache));
                let logits: Vec<f64> =
                    logits.into_data_as::<f32>().iter::<f32>().map(f64::from).collect();
                if before >= skip {
                    let sum: f64 = logits.iter().map(|l| l.exp()).sum();
                    found.push((sum.ln() - logits[tokens[at + 1] as usize], before + 1));
                }
            }
        }
        found
    }

    #[test]
    fn one_pass_equals_token_by_token_for_every_mechanism_and_protocol() {
        let device = Device::flex();
        let tokens = tokens(61);
        for mechanism in mechanisms() {
            let (name, attention) = (mechanism.name, mechanism.config());
            let config = DecoderConfig::new(VOCAB, 2, 16, 2).with_attention(attention);
            let decoder = config.without_padding().init_seeded(5, &device).unwrap();
            for windows in all() {
                let fast = losses(&decoder, &tokens, windows, |_| {}).unwrap();
                let slow = token_by_token(&decoder, &tokens, windows);
                assert_eq!(fast.len(), 60);
                for ((a, before), (b, expected)) in fast.iter().zip(&slow) {
                    assert_eq!(before, expected);
                    assert!((a - b).abs() < 1e-4, "{name} {windows:?}: {a} {b}");
                }
                let mean = |l: &[(f64, usize)]| summarise(l, windows, 60).perplexity;
                assert!((mean(&fast) - mean(&slow)).abs() < 1e-4, "{name} {windows:?}");
            }
        }
    }

    #[test]
    fn every_token_is_scored_once_with_the_context_it_is_owed() {
        for windows in all() {
            for count in [2, 3, 8, 9, 40] {
                let mut next = 0;
                for Window { reads, skip } in windows.over(count) {
                    assert_eq!(reads.start + skip, next, "{windows:?}");
                    assert!(reads.len() <= windows.window);
                    if reads.start > 0 {
                        assert!(skip >= windows.window - windows.stride);
                    }
                    next = reads.end;
                }
                assert_eq!(next, count - 1);
            }
        }
        assert!(all()[0].over(1).is_empty() && all()[0].over(0).is_empty());
    }

    /// Windows longer than one pass go through the cache in pieces.
    #[test]
    fn a_window_longer_than_a_pass_is_read_in_pieces() {
        let device = Device::flex();
        let tokens = tokens(9000);
        let decoder = DecoderConfig::new(VOCAB, 1, 8, 1).init_seeded(5, &device).unwrap();
        let found = losses(&decoder, &tokens, windows(Protocol::Chunk, 9000, 1), |_| {}).unwrap();
        let whole = decoder.tokens(&[&tokens[..8999]]).unwrap();
        let logits = decoder.forward(whole, Pass::eval()).into_data_as::<f32>();
        let logits: Vec<f32> = logits.iter::<f32>().collect();
        for at in [0, 4095, 4096, 8998] {
            let row = &logits[at * VOCAB..][..VOCAB];
            let sum: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
            let expected = sum.ln() - f64::from(row[tokens[at + 1] as usize]);
            assert!((found[at].0 - expected).abs() < 1e-4, "{at}");
            assert_eq!(found[at].1, at + 1);
        }
    }

    #[test]
    fn the_summary_is_that_of_the_numbers() {
        let losses: Vec<(f64, usize)> =
            (0..64).map(|i| (if i % 2 == 0 { 1.0 } else { 3.0 }, i % 8 + 1)).collect();
        let result = summarise(&losses, windows(Protocol::Chunk, 8, 8), 128);
        assert!((result.loss - 2.0).abs() < 1e-12 && (result.perplexity - 2f64.exp()).abs() < 1e-9);
        assert!((result.bits_per_byte - 128.0 / LN_2 / 128.0).abs() < 1e-12);
        let found: Vec<_> = result.by_position.iter().map(|p| (p.from, p.to, p.tokens)).collect();
        assert_eq!(found, [(1, 1, 8), (2, 2, 8), (3, 4, 16), (5, 8, 32)]);
        assert_eq!(result.by_position[0].loss, 1.0);
        // 32 equal blocks of two tokens have no spread. Blocks of one token do.
        assert_eq!(result.loss_interval, [2.0, 2.0]);
        let shifted: Vec<(f64, usize)> = losses.iter().map(|(l, b)| (l - 0.25, *b)).collect();
        let change = change(&shifted, &losses, 4);
        assert_eq!((change.against, change.loss), (4, -0.25));
        assert_eq!(change.loss_interval, [-0.25, -0.25], "a constant change has no spread");
        let spread = summarise(&losses[..31], windows(Protocol::Chunk, 8, 8), 1);
        assert!(spread.loss_interval[1] - spread.loss > 0.3);
    }

    #[test]
    fn windows_that_make_no_sense_are_refused() {
        for (window, stride, part) in [(0, None, "at least 1"), (4, Some(5), "stride of 5")] {
            let error = Windows::new(Protocol::Sliding, window, stride).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(Windows::new(Protocol::Sliding, 5, None).unwrap().stride, 3);
        assert_eq!(Windows::new(Protocol::Chunk, 5, Some(2)).unwrap().stride, 5);
    }
}
