//! What tasks have in common that answer a string of symbols, which may repeat, with another string.

/// The task, given its name, what is asked of a model, and the answer to a string.
macro_rules! transcription {
    ($task:ident, $name:literal, $about:literal, $answer:expr) => {
        const SPLITS: &[$crate::Split] = &$crate::symbols::string_splits(1);

        /// See the [module](self).
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $task {
            /// How many symbols there are.
            pub alphabet: u32,
        }

        impl Default for $task {
            fn default() -> Self {
                Self { alphabet: 256 }
            }
        }

        impl $task {
            pub(crate) fn validate(&self) -> Result<(), String> {
                $crate::symbols::check_range("alphabet", self.alphabet, 2)
            }

            fn symbols(&self) -> $crate::symbols::Symbols {
                $crate::symbols::Symbols { first: $crate::symbols::FREE, count: self.alphabet }
            }
        }

        impl $crate::Task for $task {
            fn name(&self) -> &'static str {
                $name
            }

            fn about(&self) -> &'static str {
                $about
            }

            fn unit(&self) -> &'static str {
                "symbols"
            }

            fn vocab(&self) -> usize {
                self.symbols().end() as usize
            }

            fn splits(&self) -> &'static [$crate::Split] {
                SPLITS
            }

            fn check_length(&self, length: usize) -> Result<(), String> {
                $crate::symbols::check_least(length, 1)
            }

            fn token_bounds(&self, length: usize) -> [u64; 2] {
                $crate::symbols::as_long(length, 2, 3)
            }

            fn sample(
                &self,
                _: &$crate::Split,
                length: usize,
                stream: tra_random::Stream,
            ) -> $crate::Sample {
                let input = self.symbols().string(stream, length);
                let answer: Vec<u32> = $answer(&input);
                $crate::symbols::transcription(&input, &answer)
            }

            fn token_name(&self, token: u32) -> String {
                self.symbols().name(token)
            }
        }
    };
}

pub(crate) use transcription;
