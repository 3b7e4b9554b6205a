//! A checksum that detects damage. It does not protect against somebody who forges a file.

use xxhash_rust::xxh3::Xxh3Default;

/// Computes a 64-bit checksum (XXH3) of bytes that arrive in any number of pieces.
#[derive(Clone, Default)]
pub struct Checksum(Xxh3Default);

impl Checksum {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds bytes with their number in front, so that `ab` `c` differs from `a` `bc`.
    pub fn field(&mut self, bytes: &[u8]) {
        self.update(&(bytes.len() as u64).to_le_bytes());
        self.update(bytes);
    }

    /// Returns the checksum.
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }

    /// Returns the checksum as 16 hexadecimal digits.
    pub fn hex(&self) -> String {
        format!("{:016x}", self.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_matter_and_fields_do() {
        let of = |fields: &[&[u8]], plain: &[&[u8]]| {
            let mut sum = Checksum::default();
            fields.iter().for_each(|bytes| sum.field(bytes));
            plain.iter().for_each(|bytes| sum.update(bytes));
            sum.hex()
        };
        assert_eq!(of(&[], &[b"ab", b"c"]), of(&[], &[b"a", b"bc"]));
        assert_ne!(of(&[b"ab", b"c"], &[]), of(&[b"a", b"bc"], &[]));
        // Published with XXH3: the checksum of nothing. It must never change: files carry it.
        assert_eq!(of(&[], &[]), "2d06800538d394c2");
    }
}
