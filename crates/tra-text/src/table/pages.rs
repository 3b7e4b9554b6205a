//! Checks pages of a parquet file before their values are read.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

use super::header::unsigned;

/// Passes on pages whose counts fit their bytes: the library allocates what a count states.
pub(super) struct Checked {
    pub pages: Box<dyn PageReader>,
    /// Whether rows may be empty. Marks for these stand before the values.
    pub optional: bool,
}

impl Iterator for Checked {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Checked {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        match page.as_ref().map(|page| is_sound(page, self.optional)) {
            Some(None) => {
                Err(ParquetError::General("a page states more values than it holds".into()))
            }
            _ => Ok(page),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

fn is_sound(page: &Page, optional: bool) -> Option<()> {
    match page {
        // Every word has its length, four bytes, in front of it.
        Page::DictionaryPage { buf, num_values, .. } => {
            (*num_values as usize <= buf.len() / 4).then_some(())
        }
        Page::DataPage { buf, encoding, .. } => {
            let Some(lists) = lists(*encoding) else { return Some(()) };
            // Marks have their length in front of them as well.
            let values = match optional {
                true => {
                    let length = buf.first_chunk::<4>()?;
                    buf.get(4..)?.get(u32::from_le_bytes(*length) as usize..)?
                }
                false => buf,
            };
            deltas_are_sound(lists, values)
        }
        Page::DataPageV2 {
            buf,
            encoding,
            def_levels_byte_len: marks,
            rep_levels_byte_len: more,
            ..
        } => {
            let Some(lists) = lists(*encoding) else { return Some(()) };
            let marks = (*marks as usize).checked_add(*more as usize)?;
            deltas_are_sound(lists, buf.get(marks..)?)
        }
    }
}

/// Returns the number of lists of lengths before the values. A list begins with its count.
fn lists(encoding: Encoding) -> Option<usize> {
    match encoding {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => Some(1),
        Encoding::DELTA_BYTE_ARRAY => Some(2),
        _ => None,
    }
}

fn deltas_are_sound(lists: usize, values: &[u8]) -> Option<()> {
    let mut rest = values;
    for _ in 0..lists {
        rest = rest.get(end_of_deltas(rest)?..)?;
    }
    Some(())
}

/// Returns where a list of integers in DELTA_BINARY_PACKED ends.
fn end_of_deltas(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    let block = unsigned(bytes, &mut at)?;
    let parts = unsigned(bytes, &mut at)?;
    let count = unsigned(bytes, &mut at)?;
    let _first = unsigned(bytes, &mut at)?;
    // All writers make blocks of 128, and such a block has at least five bytes.
    if count > 32 * bytes.len() as u64 + 1 || parts == 0 || parts > bytes.len() as u64 {
        return None;
    }
    let part = block.checked_div(parts)?;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        let _least = unsigned(bytes, &mut at)?;
        let widths = bytes.get(at..at.checked_add(parts as usize)?)?;
        at += parts as usize;
        for width in widths {
            // Parts behind the last value take no bytes, whatever width they state.
            if left > 0 {
                let bits = u64::from(*width).checked_mul(part)?;
                at = at.checked_add(usize::try_from(bits / 8).ok()?)?;
                left = left.saturating_sub(part.max(1));
            }
        }
    }
    (at <= bytes.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_lengths_end_where_they_end() {
        // 128 values per block in 4 parts; 5 values from 3 on. The first part has 2 bits per value.
        let list = [0x80, 1, 4, 5, 6, 0, 2, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(end_of_deltas(&list), Some(list.len()));
        assert_eq!(end_of_deltas(&list[..17]), None);
        assert_eq!(end_of_deltas(&[0x80, 1, 4, 1, 6]), Some(5), "a single value has no block");
        // Four thousand million values in a few bytes.
        assert_eq!(
            end_of_deltas(&[0x80, 1, 4, 0xFF, 0xFF, 0xFF, 0xFF, 0xF, 6, 0, 0, 0, 0, 0]),
            None
        );
    }
}
