//! What a task is: its constants, its settings, and how a sample is drawn.

use tra_random::Stream;

use crate::symbols::{SPECIAL, Symbols, check_range};

/// Token 0 of every task: padding, never part of a sample.
pub const PAD: u32 = 0;

/// One sequence of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Whether each token is an answer: predicted from the tokens before it, and scored.
    pub scored: Vec<bool>,
}

/// A named distribution of samples: where a model is trained or tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// What users type. The first split of every task is called `train`.
    pub name: &'static str,
    /// What is special about it, in a few words.
    pub about: &'static str,
    /// Shortest length it is drawn at by default.
    pub from: usize,
    /// Longest length it is drawn at by default.
    pub to: usize,
}

/// What is the same for all settings of a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskInfo {
    /// What users type. It is also the key of the task's random numbers, so it must not change.
    pub name: &'static str,
    /// What is asked of a model, in one line.
    pub about: &'static str,
    /// What a length counts: `tokens`, or `symbols` of the input, or `digits`.
    pub unit: &'static str,
    /// The distributions that the task offers, `train` first.
    pub splits: &'static [Split],
    /// How the tokens before the first symbol read, from token 0 on.
    pub special: &'static [&'static str],
    /// The shortest length that has sequences.
    pub min_length: usize,
    /// Lengths are multiples of this number.
    pub length_step: usize,
    /// Number of tokens per unit of length.
    pub tokens_per_unit: u64,
    /// Number of tokens that every sequence has besides.
    pub extra_tokens: u64,
}

impl TaskInfo {
    /// The usual values, for `..TaskInfo::DEFAULT`. Name, purpose, unit and splits have none.
    pub const DEFAULT: Self = Self {
        name: "",
        about: "",
        unit: "symbols",
        splits: &[],
        special: SPECIAL,
        min_length: 1,
        length_step: 1,
        tokens_per_unit: 1,
        extra_tokens: 1,
    };
}

/// A task whose samples are computed. The type that implements it is its settings.
///
/// The vocabulary is the special tokens of [`INFO`](Self::INFO), then the symbols.
pub trait Task: Clone + Send + Sync + 'static {
    /// What is the same for all settings.
    const INFO: TaskInfo;

    /// Returns the number of symbols.
    fn symbol_count(&self) -> u32;

    /// Draws one sequence. It depends on the arguments alone. `split` is one of
    /// [`INFO`](Self::INFO), and `length` has passed [`check_length`](Self::check_length).
    fn sample(&self, split: &Split, length: usize, stream: Stream) -> Sample;

    /// Returns what is wrong with the settings, if anything is. By default, checks the number of
    /// symbols, which most tasks have as a setting called `alphabet`.
    fn validate(&self) -> Result<(), String> {
        check_range("alphabet", self.symbol_count(), 2)
    }

    /// Returns why the settings allow no sequence of that length, if they do not. Lengths that
    /// [`INFO`](Self::INFO) excludes never come here.
    fn check_length(&self, _length: usize) -> Result<(), String> {
        Ok(())
    }

    /// Returns bounds of how many tokens a sequence of that length has: `[fewest, most]`.
    fn token_bounds(&self, length: usize) -> [u64; 2] {
        Self::INFO.token_bounds(length)
    }

    /// Returns how symbol number `number` reads, as short as can be.
    fn symbol_name(&self, number: u32) -> String {
        self.symbols().name(number)
    }

    /// Returns the tokens of the symbols.
    fn symbols(&self) -> Symbols {
        Symbols { first: Self::INFO.special.len() as u32, count: self.symbol_count() }
    }
}

impl TaskInfo {
    pub(crate) fn token_bounds(&self, length: usize) -> [u64; 2] {
        let tokens = (length as u64).saturating_mul(self.tokens_per_unit);
        [tokens.saturating_add(self.extra_tokens); 2]
    }

    /// Returns why there is no sequence of that length whatever the settings, if there is none.
    pub(crate) fn check_length(&self, length: usize) -> Result<(), String> {
        let Self { min_length, length_step, .. } = self;
        if length >= *min_length && length.is_multiple_of(*length_step) {
            return Ok(());
        }
        let multiples = match length_step {
            1 => String::new(),
            2 => "even and ".into(),
            step => format!("multiples of {step} and "),
        };
        Err(format!("lengths are {multiples}at least {min_length}"))
    }
}

/// The text behind a task whose samples are read from files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextInfo<'a> {
    /// Everything it takes to make the tokenizer again, for the checkpoint.
    pub tokenizer: &'a str,
    /// Identifies the tokens: another text or another tokenizer has another fingerprint.
    pub fingerprint: String,
    /// Number of tokens to train on.
    pub train_tokens: usize,
    /// Number of tokens that are held out.
    pub valid_tokens: usize,
}
