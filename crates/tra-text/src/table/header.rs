//! Reads the headers of parquet pages before the library allocates what they state.
//!
//! They are structs in Thrift's compact protocol. Only a few numbers and the end of the header are
//! needed.

/// Depth of nested structs that is accepted; parquet's are three deep.
const DEEPEST: usize = 16;

/// What a page states about itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PageHeader {
    /// Bytes of the header itself.
    pub length: usize,
    /// Bytes of the page, decompressed.
    pub unpacked: i64,
    /// Bytes of the page in the file.
    pub packed: i64,
    /// Number of words in a dictionary.
    pub words: i64,
}

impl PageHeader {
    /// Reads the header at the beginning of `bytes`. Returns `None` if it is broken or incomplete.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut header = Self::default();
        let mut walk = Walk { bytes, at: 0 };
        walk.fields(&mut Vec::new(), &mut |fields, value| match fields {
            [2] => header.unpacked = value,
            [3] => header.packed = value,
            [7, 1] => header.words = value,
            _ => {}
        })?;
        header.length = walk.at;
        Some(header)
    }
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

type Visit<'a> = dyn FnMut(&[i64], i64) + 'a;

impl Walk<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        self.at = self.at.checked_add(usize::try_from(count).ok()?)?;
        (self.at <= self.bytes.len()).then_some(())
    }

    fn unsigned(&mut self) -> Option<u64> {
        unsigned(self.bytes, &mut self.at)
    }

    fn signed(&mut self) -> Option<i64> {
        self.unsigned().map(|n| (n >> 1) as i64 ^ -((n & 1) as i64))
    }

    /// Reads the fields of a struct up to its end. `visit` is told every integer and the path of
    /// fields that leads to it.
    fn fields(&mut self, path: &mut Vec<i64>, visit: &mut Visit<'_>) -> Option<()> {
        let mut field = 0;
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                return Some(());
            }
            field = match byte >> 4 {
                0 => self.signed()?,
                more => field + i64::from(more),
            };
            path.push(field);
            self.value(byte & 0xF, false, path, visit)?;
            path.pop();
        }
    }

    fn value(
        &mut self,
        kind: u8,
        in_list: bool,
        path: &mut Vec<i64>,
        visit: &mut Visit<'_>,
    ) -> Option<()> {
        if path.len() > DEEPEST {
            return None;
        }
        match kind {
            // A boolean is part of the type in a struct, and a byte in a list.
            1 | 2 => self.skip(u64::from(in_list)),
            3 => self.skip(1),
            4..=6 => self.signed().map(|value| visit(path, value)),
            7 => self.skip(8),
            8 => self.unsigned().and_then(|length| self.skip(length)),
            9 | 10 => self.list(path, visit),
            12 => self.fields(path, visit),
            // A page header has no maps.
            _ => None,
        }
    }

    fn list(&mut self, path: &mut Vec<i64>, visit: &mut Visit<'_>) -> Option<()> {
        let byte = self.byte()?;
        let count = if byte >> 4 == 15 { self.unsigned()? } else { u64::from(byte >> 4) };
        path.push(0);
        for _ in 0..count {
            self.value(byte & 0xF, true, path, visit)?;
        }
        path.pop();
        Some(())
    }
}

/// Reads a number in groups of seven bits.
pub(super) fn unsigned(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_states_its_sizes_and_where_it_ends() {
        // type 2, unpacked 50, packed 300, and a dictionary of 3 words that is not sorted.
        let bytes = [0x15, 4, 0x15, 100, 0x15, 0xD8, 4, 0x4C, 0x15, 6, 0x15, 0, 0x12, 0, 0, 99];
        let read = PageHeader::read(&bytes).unwrap();
        assert_eq!(read, PageHeader { length: 15, unpacked: 50, packed: 300, words: 3 });
        for length in 0..15 {
            assert_eq!(PageHeader::read(&bytes[..length]), None, "{length}");
        }
        assert_eq!(PageHeader::read(&[0x1C; 1000]), None, "structs without end");
        // A list that states more elements than there are.
        assert_eq!(PageHeader::read(&[0x19, 0xF5, 0xFF, 0xFF, 0xFF, 0x0F, 2, 2]), None);
    }
}
