//! Predict every token of a text from those before it, as in `The [history] [of] [the]`.
//!
//! A sample of length 128 is a window of 129 consecutive tokens from anywhere in the text: 128 to
//! read, and one more to predict after the last of them. Length counts the tokens that are read.
//!
//! Tokens are kept in [`tra_text::default_cache`], which reads the environment. The folder is not a
//! setting: a config file holds on every machine, and this folder does not.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tra_random::Stream;
use tra_text::{Corpus, Part, Progress, TextError, Tokenizer, Tokens, default_cache};

use crate::open::Drawn;
use crate::registry::Settings;
use crate::{OpenTask, Sample, Split, TaskError, TaskInfo, TextInfo};

/// Which text, and how it is tokenised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Text {
    /// A file or a folder.
    pub text: String,
    /// A file or a folder with held-out text. By default, the files of the folder that have names
    /// like `wiki.valid.tokens`, or else the end of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<String>,
    /// `gpt2`, `bytes`, or the path of a `tokenizer.json`.
    pub tokenizer: String,
    /// Share of the text, at its end, that is held out if no other text is.
    pub holdout: f64,
}

impl Default for Text {
    fn default() -> Self {
        Self { text: String::new(), valid: None, tokenizer: "gpt2".into(), holdout: 0.05 }
    }
}

const INFO: TaskInfo = TaskInfo {
    name: "text",
    about: "say the next token of a text (--text FILE)",
    unit: "tokens",
    splits: &[
        Split { name: "train", about: "the text", from: 128, to: 128 },
        Split { name: "valid", about: "held-out text", from: 128, to: 128 },
    ],
    special: &[],
    // The last token is only predicted.
    extra_tokens: 1,
    ..TaskInfo::DEFAULT
};

impl From<TextError> for TaskError {
    fn from(error: TextError) -> Self {
        TaskError::Text(error.to_string())
    }
}

/// Returns the tokens of a path, or `None` if they would have to be made first.
type Read<'a> = dyn FnMut(&Tokenizer, &Path, Part) -> Result<Option<Tokens>, TextError> + 'a;

impl Settings for Text {
    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn vocab(&self) -> Option<usize> {
        None
    }

    fn validate(&self) -> Result<(), String> {
        if self.text.is_empty() {
            return Err("no text: give a file or a folder with --text".into());
        }
        if !(self.holdout > 0.0 && self.holdout <= 0.5) {
            return Err(format!("holdout must be above 0 and at most 0.5, not {}", self.holdout));
        }
        Ok(())
    }

    fn open(&self, progress: &mut crate::registry::Progress<'_>) -> Result<OpenTask, TaskError> {
        let cache = default_cache()?;
        let opened = self.open_with(&mut |tokenizer, path, part| {
            let corpus = Corpus::find(path, part)?;
            let mut told = |Progress { read, of }| progress(path, read, of);
            Ok(Some(corpus.tokens(tokenizer, &cache, &mut told)?))
        })?;
        opened.ok_or_else(|| TaskError::Text(format!("{}: the text has no tokens", self.text)))
    }

    fn open_prepared(&self) -> Result<Option<OpenTask>, TaskError> {
        let cache = default_cache()?;
        self.open_with(&mut |tokenizer, path, part| {
            Corpus::find(path, part)?.cached(tokenizer, &cache)
        })
    }
}

impl Text {
    fn open_with(&self, read: &mut Read<'_>) -> Result<Option<OpenTask>, TaskError> {
        let tokenizer = Tokenizer::open(&self.tokenizer)?;
        let text = Path::new(&self.text);
        let held_out = match &self.valid {
            Some(valid) => Some(Path::new(valid)),
            None => (text.is_dir() && has_valid(text)).then_some(text),
        };
        let Some(train) = read(&tokenizer, text, Part::Train)? else { return Ok(None) };
        let valid = match held_out {
            None => None,
            Some(path) => match read(&tokenizer, path, Part::Valid)? {
                None => return Ok(None),
                tokens => tokens,
            },
        };
        let all = train.len();
        let held = (self.holdout * all as f64).ceil() as usize;
        let first = if valid.is_some() { all } else { all.saturating_sub(held) };
        let rest = valid.as_ref().map_or(first..all, |valid| 0..valid.len());
        let text = OpenText { tokenizer, train, valid, ranges: [0..first, rest] };
        Ok(Some(OpenTask::from_drawn(text)))
    }
}

fn has_valid(folder: &Path) -> bool {
    match (Corpus::find(folder, Part::Train), Corpus::find(folder, Part::Valid)) {
        (Ok(train), Ok(valid)) => train != valid,
        _ => false,
    }
}

/// A text ready to be sampled from.
#[derive(Debug)]
struct OpenText {
    tokenizer: Tokenizer,
    train: Tokens,
    valid: Option<Tokens>,
    /// The tokens to train on, and those that are held out.
    ranges: [Range<usize>; 2],
}

impl OpenText {
    fn part(&self, split: &Split) -> (&Tokens, Range<usize>) {
        let held_out = split.name != INFO.splits[0].name;
        let tokens = self.valid.as_ref().filter(|_| held_out).unwrap_or(&self.train);
        (tokens, self.ranges[usize::from(held_out)].clone())
    }
}

impl Drawn for OpenText {
    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn vocab(&self) -> usize {
        self.tokenizer.vocab()
    }

    fn token_bounds(&self, length: usize) -> [u64; 2] {
        INFO.token_bounds(length)
    }

    fn check_length(&self, length: usize) -> Result<(), String> {
        for (range, name) in self.ranges.iter().zip(["training", "held-out"]) {
            if range.len() <= length {
                let tokens = range.len();
                return Err(format!("the {name} text has only {tokens} tokens"));
            }
        }
        Ok(())
    }

    fn sample(&self, split: &Split, length: usize, stream: Stream) -> Sample {
        let (tokens, range) = self.part(split);
        let first = range.start + stream.below(0, (range.len() - length) as u64) as usize;
        let tokens = tokens.range(first..first + length + 1);
        let scored = (0..tokens.len()).map(|at| at > 0).collect();
        Sample { tokens, scored }
    }

    fn token_name(&self, token: u32) -> String {
        if Some(token) == self.tokenizer.end_of_text() {
            return "<end of text>".into();
        }
        let bytes = self.tokenizer.decode(&[token]);
        match std::str::from_utf8(&bytes) {
            Ok(text) => text.escape_debug().to_string().replace("\\'", "'").replace("\\\"", "\""),
            Err(_) => bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect(),
        }
    }

    fn text(&self) -> Option<TextInfo<'_>> {
        let valid = self.valid.as_ref().map_or("", Tokens::key);
        Some(TextInfo {
            tokenizer: self.tokenizer.record(),
            fingerprint: format!("{}{valid}", self.train.key()),
            train_tokens: self.ranges[0].len(),
            valid_tokens: self.ranges[1].len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskSpec;

    fn open(text: &Text) -> Result<OpenTask, String> {
        TaskSpec::Text(text.clone()).open().map_err(|e| e.to_string())
    }

    fn sizes(task: &OpenTask) -> (usize, usize) {
        let text = task.text().unwrap();
        (text.train_tokens, text.valid_tokens)
    }

    fn bytes(path: &Path) -> Text {
        let text = path.to_str().unwrap().to_string();
        Text { text, tokenizer: "bytes".into(), ..Text::default() }
    }

    fn digits(count: usize) -> String {
        (0..count).map(|i| char::from(b'0' + (i % 10) as u8)).collect()
    }

    #[test]
    fn windows_come_from_their_own_part_and_every_place_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, digits(95) + "abcde").unwrap();
        let text = open(&bytes(&path)).unwrap();
        assert_eq!(sizes(&text), (95, 5));
        let mut firsts = std::collections::HashSet::new();
        for index in 0..2000 {
            let sample = text.draw("train", (4, 4), 1, index).unwrap();
            assert_eq!(sample.tokens.len(), 5);
            assert!(!sample.scored[0] && sample.scored[1..].iter().all(|s| *s));
            firsts.insert(sample.tokens.iter().map(|t| *t as u8 as char).collect::<String>());
            let held = text.draw("valid", (2, 2), 1, index).unwrap();
            assert!(held.tokens.iter().all(|t| (97..102).contains(t)), "{held:?}");
        }
        let all = digits(95);
        let every = (0..=90).map(|at| all[at..at + 5].to_string()).collect();
        assert_eq!(firsts, every, "nothing but what stands there, and all of it");
        assert!(text.check_length(4).is_ok());
        assert!(text.check_length(5).unwrap_err().to_string().contains("held-out text has only 5"));
        assert!(text.check_length(0).is_err());
    }

    #[test]
    fn held_out_text_may_be_a_file_or_stand_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("x.train.tokens"), digits(50)).unwrap();
        std::fs::write(at("x.valid.tokens"), "abcdefgh").unwrap();
        let text = open(&bytes(folder.path())).unwrap();
        assert_eq!(sizes(&text), (50, 8));
        std::fs::write(at("other"), "xyz").unwrap();
        let other = at("other").to_str().unwrap().to_string();
        let given = Text { valid: Some(other), ..bytes(&at("x.train.tokens")) };
        assert_eq!(sizes(&open(&given).unwrap()).1, 3);
        let fingerprint = |task: &OpenTask| task.text().unwrap().fingerprint;
        assert_ne!(fingerprint(&open(&given).unwrap()), fingerprint(&text));
    }

    #[test]
    fn tokens_have_names_one_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, digits(100)).unwrap();
        let text = open(&Text { tokenizer: "gpt2".into(), ..bytes(&path) }).unwrap();
        assert_eq!(text.token_name(262), " the");
        assert_eq!(text.token_name(198), "\\n");
        assert_eq!(text.token_name(6), "'");
        assert_eq!(text.token_name(447), "\\xe2\\x80");
        assert_eq!(text.token_name(50_256), "<end of text>");
    }

    #[test]
    fn wrong_settings_are_named() {
        let missing = Text::default().validate().unwrap_err();
        assert!(missing.contains("--text"), "{missing}");
        let wrong = Text { text: "x".into(), holdout: 0.9, ..Text::default() };
        assert!(wrong.validate().unwrap_err().contains("holdout"));
        let gone = Text { text: "/no/such".into(), ..Text::default() };
        assert!(open(&gone).unwrap_err().contains("/no/such"));
        let tokenizer = Text { tokenizer: "gpt9".into(), ..gone };
        assert!(open(&tokenizer).unwrap_err().contains("gpt9"));
        let tokenizer = Text { tokenizer: "/no/tokenizer.json".into(), ..tokenizer };
        let error = open(&tokenizer).unwrap_err();
        assert!(error.contains("/no/tokenizer.json is missing"), "{error}");
    }
}
