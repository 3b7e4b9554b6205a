//! Turns text files into tokens.
//!
//! - [`source`] finds files and reads their text piece by piece: plain, `.gz`, `.zst` (feature
//!   `zstd`), or the `text` column of parquet (feature `parquet`).
//! - [`Tokenizer`] is GPT-2's byte pairs (built in), bytes, or any `tokenizer.json` (feature
//!   `hf-tokenizers`).
//! - [`Corpus`] tokenises a text once. Its [`Tokens`] are kept in a file that is mapped into memory,
//!   so a corpus may be larger than memory.
//!
//! Nothing here knows of tasks or tensors. Where a feature is missing, the error names it.
//!
//! ```
//! use tra_text::{Corpus, Part, Tokenizer};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("a.txt"), "The history of the world")?;
//! let tokenizer = Tokenizer::open("gpt2")?;
//! let corpus = Corpus::find(&folder.path().join("a.txt"), Part::Train)?;
//! let tokens = corpus.tokens(&tokenizer, &folder.path().join("cache"), &mut |_| {})?;
//! assert_eq!(tokens.range(0..5), [464, 2106, 286, 262, 995]);
//! assert_eq!(tokenizer.decode(&tokens.range(0..5)), b"The history of the world");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod cache;
mod chunker;
mod error;
mod fingerprint;
#[cfg(any(feature = "hf-tokenizers", feature = "parquet"))]
mod guard;
pub mod source;
mod stream;
#[cfg(feature = "parquet")]
mod table;
#[cfg(not(feature = "parquet"))]
#[path = "table/without.rs"]
mod table;
mod tokenizer;
mod tokens;

pub use cache::{Corpus, Progress, default_cache};
pub use error::TextError;
pub use source::Part;
pub use stream::TextStream;
pub use tokenizer::Tokenizer;
pub use tokens::Tokens;
