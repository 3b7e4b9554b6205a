//! Text from a language model: streamed, and stopped before given texts.

use std::time::Instant;

use tra_nn::Generate;
use tra_text::TextStream;

use crate::error::LabError;
use crate::language::LanguageModel;

/// The continuation of one prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Continuation {
    /// The prompt.
    pub prompt: String,
    /// The text after it.
    pub text: String,
    /// Number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// Number of generated tokens.
    pub tokens: usize,
    /// Seconds to read the prompt.
    pub prompt_seconds: f64,
    /// Seconds to generate.
    pub seconds: f64,
}

impl LanguageModel {
    /// Continues a prompt with text, up to `stops`. Passes text to `say` as soon as no stop text can
    /// begin in it; an error of `say` ends the generation.
    ///
    /// ```no_run
    /// use tra_lab::LabError;
    /// use tra_lab::language::{CheckpointSelector, LanguageModel};
    /// use tra_nn::Generate;
    ///
    /// let device = tra_nn::device::Device::flex();
    /// let newest = CheckpointSelector::Newest;
    /// let model = LanguageModel::open("runs/wiki".as_ref(), newest, None, &device, |_| {})?;
    /// let options = Generate::default().with_max_tokens(50);
    /// model.generate("The history of", options, &[], &mut |text| {
    ///     print!("{text}");
    ///     Ok::<(), LabError>(())
    /// })?;
    /// # Ok::<(), LabError>(())
    /// ```
    pub fn generate<E: From<LabError>>(
        &self,
        prompt: &str,
        options: Generate,
        stops: &[String],
        say: &mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Result<Continuation, E> {
        let tokenizer = &self.tokenizer;
        let mut tokens = tokenizer.encode(prompt).map_err(LabError::from)?;
        if tokens.is_empty() {
            // An empty prompt begins a new text.
            match tokenizer.end_of_text() {
                Some(token) => tokens.push(token),
                None => {
                    let reason = "the prompt is empty, and this tokenizer has no start token; give --prompt TEXT";
                    return Err(LabError::Setting(reason.into()).into());
                }
            }
        }
        let begin = Instant::now();
        let continuation = self.decoder.generate(&tokens, options).map_err(LabError::from)?;
        let prompt_seconds = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let mut stream = TextStream::new(tokenizer);
        let (mut text, mut said, mut count) = (String::new(), 0, 0);
        let mut stopped = false;
        for token in continuation {
            count += 1;
            text += &stream.push(token);
            let sure = match stop_at(&text, said, stops) {
                Stop::At(place) => {
                    text.truncate(place);
                    stopped = true;
                    place
                }
                Stop::MayBegin(place) => place,
            };
            if sure > said {
                say(&text[said..sure])?;
                said = sure;
            }
            if stopped {
                break;
            }
        }
        if !stopped {
            text += &stream.finish();
            if let Stop::At(place) = stop_at(&text, said, stops) {
                text.truncate(place);
            }
            if text.len() > said {
                say(&text[said..])?;
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        let prompt_tokens = tokens.len();
        let prompt = prompt.to_string();
        Ok(Continuation { prompt, text, prompt_tokens, tokens: count, prompt_seconds, seconds })
    }
}

/// Where a stop text begins, or may begin once more text arrives.
#[derive(Debug, PartialEq)]
enum Stop {
    At(usize),
    MayBegin(usize),
}

fn stop_at(text: &str, from: usize, stops: &[String]) -> Stop {
    let found = stops.iter().filter_map(|stop| text[from..].find(stop.as_str()));
    if let Some(place) = found.min() {
        return Stop::At(from + place);
    }
    let may_begin = text[from..]
        .char_indices()
        .map(|(at, _)| from + at)
        .find(|at| stops.iter().any(|stop| stop.as_bytes().starts_with(&text.as_bytes()[*at..])));
    Stop::MayBegin(may_begin.unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_waits_while_a_stop_may_be_beginning() {
        let stops = ["END".to_string(), "\n\n".into()];
        assert_eq!(stop_at("one E", 0, &stops), Stop::MayBegin(4));
        assert_eq!(stop_at("one Ex", 0, &stops), Stop::MayBegin(6));
        assert_eq!(stop_at("one END two\n\n", 0, &stops), Stop::At(4));
        assert_eq!(stop_at("é\n", 2, &stops), Stop::MayBegin(2));
        assert_eq!(stop_at("é\n\nx", 2, &stops), Stop::At(2));
        assert_eq!(stop_at("EEN", 0, &stops), Stop::MayBegin(1));
        assert_eq!(stop_at("", 0, &stops), Stop::MayBegin(0));
        assert_eq!(stop_at("plain", 0, &[]), Stop::MayBegin(5));
    }
}
