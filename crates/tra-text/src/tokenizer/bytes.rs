//! One token per byte of UTF-8, and one for the end of a document.

pub(super) const VOCAB: usize = 257;
pub(super) const END_OF_TEXT: u32 = 256;
