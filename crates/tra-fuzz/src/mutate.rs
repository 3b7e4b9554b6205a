//! Changes files at random, in a reproducible way.

use tra_random::Stream;

/// Numbers at the limits of integer fields.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// Numbers at the limits of fields, as text.
const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "1000000",
    "4294967295",
    "4294967296",
    "1000000000000",
    "9223372036854775807",
    "18446744073709551615",
    "-9223372036854775808",
    "1e308",
    "1e-320",
    "nan",
    "0.5",
];

/// Largest size of an input, in bytes.
const LARGEST: usize = 1 << 18;

/// Makes new inputs from given ones.
pub struct Mutator<'a> {
    stream: Stream,
    drawn: u64,
    words: &'a [&'a str],
}

impl<'a> Mutator<'a> {
    /// Creates a mutator. The same seed makes the same inputs.
    pub fn new(seed: u64, words: &'a [&'a str]) -> Self {
        Self { stream: Stream::new(seed), drawn: 0, words }
    }

    /// Returns one of `sources`, changed in a few places.
    pub fn next(&mut self, sources: &[&[u8]]) -> Vec<u8> {
        let Some(source) = self.one_of(sources) else { return Vec::new() };
        let mut input = source.to_vec();
        // Mostly one or two changes. With more, an input rarely passes the first check of a reader.
        let changes = 1 + self.below(3) * self.below(2) + self.below(2);
        for _ in 0..changes {
            self.change(&mut input, sources);
        }
        input.truncate(LARGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, sources: &[&[u8]]) {
        match self.below(13) {
            0 => self.flip(input),
            1 => self.set(input),
            2 => input.truncate(self.below(input.len() + 1)),
            3 => self.repeat(input),
            4 => self.remove(input),
            5 => self.splice(input, sources),
            6 => self.insert_word(input),
            7 => self.replace_run(input, u8::is_ascii_alphanumeric),
            8 | 9 => self.replace_run(input, u8::is_ascii_digit),
            10 => self.edge(input),
            11 => self.lie(input),
            _ => self.append(input),
        }
    }

    fn flip(&mut self, input: &mut [u8]) {
        let bit = 1 << self.below(8);
        if let Some(byte) = self.byte(input) {
            *byte ^= bit;
        }
    }

    fn set(&mut self, input: &mut [u8]) {
        let value = match self.below(3) {
            0 => [0x00, 0xFF, 0x7F, 0x80, b'\n', b'"'][self.below(6)],
            _ => self.draw() as u8,
        };
        if let Some(byte) = self.byte(input) {
            *byte = value;
        }
    }

    fn repeat(&mut self, input: &mut Vec<u8>) {
        let (from, to) = self.part(input);
        let part = input[from..to].to_vec();
        let times = [1, 1, 2, 50][self.below(4)];
        let part = part.repeat(if input.len() + times * part.len() > LARGEST { 1 } else { times });
        input.splice(to..to, part);
    }

    fn remove(&mut self, input: &mut Vec<u8>) {
        let (from, to) = self.part(input);
        input.drain(from..to);
    }

    fn splice(&mut self, input: &mut Vec<u8>, sources: &[&[u8]]) {
        let Some(other) = self.one_of(sources) else { return };
        let (from, to) = self.part(other);
        let at = self.below(input.len() + 1);
        let end = if self.below(2) == 0 { at } else { (at + to - from).min(input.len()) };
        input.splice(at..end, other[from..to].iter().copied());
    }

    fn insert_word(&mut self, input: &mut Vec<u8>) {
        let Some(word) = self.one_of(self.words) else { return };
        let at = self.below(input.len() + 1);
        input.splice(at..at, word.bytes());
    }

    /// Replaces a number or word in the text by another one.
    fn replace_run(&mut self, input: &mut Vec<u8>, is: fn(&u8) -> bool) {
        let start = self.below(input.len().max(1));
        let Some(from) = input.iter().skip(start).position(is).map(|at| at + start) else { return };
        let from = input[..from].iter().rposition(|byte| !is(byte)).map_or(0, |at| at + 1);
        let to = input[from..].iter().position(|byte| !is(byte)).map_or(input.len(), |n| from + n);
        let known = self.below(3) > 0 || self.words.is_empty();
        let new = if known { NUMBERS[self.below(NUMBERS.len())] } else { self.word() };
        input.splice(from..to, new.bytes());
    }

    fn word(&mut self) -> &'a str {
        self.one_of(self.words).unwrap_or_default()
    }

    /// Stores a number at the limits of its field.
    fn edge(&mut self, input: &mut [u8]) {
        let width = [1, 2, 4, 8][self.below(4)];
        let value = EDGES[self.below(EDGES.len())];
        self.store(input, width, value);
    }

    /// Falsifies a number that may be a length.
    fn lie(&mut self, input: &mut [u8]) {
        let width = [1, 2, 4, 8][self.below(4)];
        // Lengths and offsets are small numbers, so this searches for one.
        for _ in 0..64 {
            let at = self.below(input.len().max(1));
            let Some(bytes) = input.get_mut(at..at + width) else { continue };
            let mut value = [0; 8];
            value[..width].copy_from_slice(bytes);
            let found = u64::from_le_bytes(value);
            if found == 0 || found > LARGEST as u64 {
                continue;
            }
            let lie = match self.below(6) {
                0 => found + 1,
                1 => found - 1,
                2 => found * 2,
                3 => found * 1000,
                4 => found.wrapping_neg(),
                _ => u64::MAX - found,
            };
            bytes.copy_from_slice(&lie.to_le_bytes()[..width]);
            return;
        }
    }

    fn append(&mut self, input: &mut Vec<u8>) {
        let count = [1, 8, 1000][self.below(3)];
        let noise: Vec<u8> = (0..count).map(|_| self.draw() as u8).collect();
        input.extend(noise);
    }

    fn store(&mut self, input: &mut [u8], width: usize, value: u64) {
        let at = self.below(input.len().max(1));
        let bytes = if self.below(4) > 0 {
            value.to_le_bytes()[..width].to_vec()
        } else {
            value.to_be_bytes()[8 - width..].to_vec()
        };
        if let Some(place) = input.get_mut(at..at + width) {
            place.copy_from_slice(&bytes);
        }
    }

    fn byte<'b>(&mut self, input: &'b mut [u8]) -> Option<&'b mut u8> {
        let at = self.below(input.len().max(1));
        input.get_mut(at)
    }

    /// Chooses a range of bytes, rarely a long one.
    fn part(&mut self, input: &[u8]) -> (usize, usize) {
        let from = self.below(input.len() + 1);
        let most = [4, 32, input.len()][self.below(3)].min(input.len() - from);
        (from, from + self.below(most + 1))
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len().max(1))).copied()
    }

    fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.stream.bits(self.drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_differ_and_are_the_same_every_time() {
        let sources: [&[u8]; 2] = [b"width = 12\n", b"\x08\0\0\0\0\0\0\0{}      "];
        let make = |seed| {
            let mut mutator = Mutator::new(seed, &["heads"]);
            (0..5000).map(|_| mutator.next(&sources)).collect::<Vec<_>>()
        };
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        let distinct: std::collections::HashSet<_> = make(1).into_iter().collect();
        assert!(distinct.len() > 2500, "{}", distinct.len());
        let has = |part: &[u8]| distinct.iter().any(|i| i.windows(part.len()).any(|w| w == part));
        assert!(has(b"width = 18446744073709551615") && has(b"heads"));
        assert!(has(&[0xFF; 8]) && distinct.contains(&b""[..]));
    }
}
