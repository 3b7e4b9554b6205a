//! A counter-based random number generator: every draw is a pure function of a key and an index.
//!
//! With a sequential generator, results depend on the order of draws, and so on threads, batching and
//! where a run was resumed. Here the n-th number of a stream is computed without those before it, in
//! any order and on any machine.

/// A stream of random numbers, addressed by index.
///
/// ```
/// use tra_random::Stream;
///
/// let weights = Stream::new(42).fork_name("layers.0.attn.tokeys.weight");
/// assert_eq!(weights.bits(7), weights.bits(7));
/// assert_ne!(weights.bits(7), weights.bits(8));
/// assert!((0.0..1.0).contains(&weights.uniform(7)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(u64);

/// The odd integer nearest to 2^64 divided by the golden ratio: the step of SplitMix64.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Stream {
    /// Returns the stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x7472_615F_7365_6564)) // "tra_seed", so that seed 0 is no special key
    }

    /// Returns an independent stream for a numbered purpose.
    pub const fn fork(self, tag: u64) -> Self {
        Self(mix(self.0.rotate_left(32) ^ mix(tag.wrapping_add(STEP))))
    }

    /// Returns an independent stream for a named purpose.
    pub fn fork_name(self, name: &str) -> Self {
        let named = self.fork(u64::MAX - name.len() as u64); // nobody forks by so large a number
        name.bytes().fold(named, |s, byte| s.fork(u64::from(byte)))
    }

    /// Returns 64 random bits.
    pub const fn bits(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_mul(STEP)))
    }

    /// Returns a number uniform in `[0, 1)`, with 53 random bits.
    pub fn uniform(self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an integer uniform in `0..n`, without the bias of a remainder.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(self, index: u64, n: u64) -> u64 {
        assert!(n > 0, "there is no number below 0");
        // Lemire's multiply-and-shift. A draw from the short last interval is repeated.
        let reject_under = n.wrapping_neg() % n;
        let mut stream = self;
        loop {
            let wide = u128::from(stream.bits(index)) * u128::from(n);
            if wide as u64 >= reject_under {
                return (wide >> 64) as u64;
            }
            stream = stream.fork(n);
        }
    }

    /// Returns a standard normal number (Box-Muller).
    pub fn normal(self, index: u64) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform(2 * index)).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform(2 * index + 1)).cos()
    }
}

/// Applies the finaliser of SplitMix64 (Stafford's variant 13): a bijection in which every input bit moves
/// every output bit.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checkpoints, tasks and dropout of every user depend on these draws: they must never change.
    #[test]
    fn draws_are_pinned() {
        let s = Stream::new(1).fork(2).fork_name("three");
        let bits: Vec<u64> = (0..3).map(|i| s.bits(i)).collect();
        assert_eq!(bits, PINNED);
    }
    const PINNED: [u64; 3] = [13706988702926244743, 8868557472014960720, 9207756239725903556];

    #[test]
    fn uniform_and_normal_have_the_right_moments() {
        let s = Stream::new(9);
        let n = 200_000;
        let mean = |f: &dyn Fn(u64) -> f64| (0..n).map(f).sum::<f64>() / n as f64;
        assert!((mean(&|i| s.uniform(i)) - 0.5).abs() < 3e-3);
        assert!(mean(&|i| s.normal(i)).abs() < 1e-2);
        assert!((mean(&|i| s.normal(i).powi(2)) - 1.0).abs() < 2e-2);
        assert!((mean(&|i| s.normal(i).powi(4)) - 3.0).abs() < 0.15);
    }

    #[test]
    fn below_is_even_and_in_range() {
        let s = Stream::new(5);
        let mut seen = [0u32; 7];
        for i in 0..70_000 {
            seen[s.below(i, 7) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
        assert_eq!(s.below(0, 1), 0);
    }

    #[test]
    fn forks_differ_from_each_other_and_from_their_parent() {
        let s = Stream::new(0);
        let streams =
            [s, s.fork(0), s.fork(1), s.fork_name(""), s.fork_name("a"), s.fork(0).fork(0)];
        for (i, a) in streams.iter().enumerate() {
            for b in &streams[i + 1..] {
                assert_ne!(a, b);
            }
        }
    }
}
