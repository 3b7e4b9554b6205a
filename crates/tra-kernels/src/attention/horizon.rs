//! The horizon: when the keys not yet read no longer matter.
//!
//! Keys are read from the newest to the oldest. Let a query have read the keys down to some point,
//! and let, all exponentials taken relative to the same shift,
//!
//! - `l` be the sum of the exponentials read, `a_t` the sums of exponential times value;
//! - `T` an upper bound of the sum of the exponentials *not* read;
//! - `w` the largest absolute value of any value of the head.
//!
//! The row stops when `T <= 2^-25 l` and `T w <= 2^-25 max_t |a_t|`. Then
//!
//! - exactly, `out_t = (a_t + x) / (l + y)` with `|x| <= T w <= 2^-25 max_t |a_t|` and
//!   `0 <= y <= T <= 2^-25 l`;
//! - the kernel returns `a_t / l`. The difference is at most `|x| / l + |a_t| y / l^2 <=
//!   2 * 2^-25 max_t |a_t| / l = 2^-24 max_t |out_t|` (up to a factor `1 + 2^-24`).
//!
//! So every element of the output is off by at most half a unit in the last place of the row's
//! largest element: what one rounding to f32 does. The second condition keeps a huge value of a far
//! key from being forgotten; without it only the weights would be exact, not the output.
//!
//! **Gradients.** The backward pass reads the same keys. The weights left out sum to at most
//! `2^-24` per row, so `dv` misses at most `2^-24 |g_i|` per row `i`; and
//! `da_ij = p_ij (g_i . v_j - g_i . o_i)` misses terms of at most `p_ij |g_i| e w` whose sum over `j` is
//! bounded by `2^-25 e |g_i| max_t |out_t|`, the size of the rounding of `g_i . v_j - g_i . o_i` itself.
//! FoX's gates have sums of these as gradients, and so the same errors row by row.
//!
//! **The gradient of TRA's gate** is `sum_j da_ij c_ij`, in which a far key counts as often as keys are
//! kept up to it. Where a backward pass may follow ([`Horizon::Rounding`]) the bound of the unread
//! exponentials is therefore that of the exponentials times their counts: with `r = e^d_i`, and `c`
//! counted so far, `sum_{m>=1} (c + m) r^(m-1) = (c + 1 / (1 - r)) / (1 - r)`, and for `n` keys it is
//! at most `(c + n) n`. So `T` is multiplied by `c + min(n, 1 / (1 - r))`, in both conditions. Then
//!
//! - what is unread contributes at most `T (|g_i| w + |g_i . o_i|) / l`, summed over the elements of
//!   `g_i`, which is `2^-25 |g_i| max_t |out_t|`, twice: less than the rounding of `g_i . o_i`, which
//!   every term contains, the nearest with a count of 1;
//! - the weights of the keys read are off by `2^-25` of themselves, and their terms with them: half a
//!   unit in the last place of every term;
//! - `g_i . o_i` is off by what the output is: what one rounding does to it.
//!
//! A pass without gradients needs none of this and stops sooner ([`Horizon::Output`]).
//!
//! **The bound `T` for TRA.** A score is at most `B_i = |q_i| max_j |k_j| / sqrt(e)` (Cauchy and
//! Schwarz), which is `sqrt(e)` after the norm. With `c` keys kept so far the next kept one has
//! count `c + 1`, the one after it `c + 2`, …, so with `d_i < 0` and `n` keys unread
//!
//! `T = sum_{m=1..n} e^(B_i + d_i (c + m)) <= e^(B_i + d_i (c + 1)) min(n, 1 / (1 - e^d_i))`.
//!
//! Gates near 0 make `1 / (1 - e^d)` large and the decay slow: such rows read everything and stay
//! exact. A row with `B_i = 0` can keep no key at all.
//!
//! **For dense attention with a bias that falls with distance** (FoX, ALiBi) the keys unread have a
//! bias of at most that of the newest among them, `x`, so `T = n e^(B_i + x)`.
//!
//! **With dropout on the logits** the kept logits are scaled by `f = 1 / (1 - rate)`, and so are
//! `B_i`, `d_i` and `x` in `T`; the dropped ones are 0 wherever they are and do not decay. Those
//! are looked up one by one past the horizon (`dropped_tail.rs`). Training may also scale the logits down
//! ([`Dropout::times`](crate::dropout::Dropout::times)). Where `f < 1`, `1 / (1 - e^(f d)) <= 1 / (f (1 - e^d))` takes
//! the place of the series, because `1 - e^(d x)` is concave in `x` and 0 at 0.

use rayon::prelude::*;

use super::Inputs;

/// Whether to stop where no older key can change an f32 result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Horizon {
    /// Stop where neither the output nor any gradient changes by more than rounding does.
    #[default]
    Rounding,
    /// Stop where the output does not: sooner, for a pass without gradients.
    Output,
    /// Read every key.
    Exact,
}

/// A row stops when the unread part is below this share of the part that was read.
pub(super) const SHARE: f32 = 1.0 / (1u64 << 25) as f32;

/// Covers the rounding of a bound that was itself computed in f32.
pub(super) const ROUND_UP: f32 = 1.000_01;

/// Bounds of the keys and values of one head.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Largest norm of a key.
    pub key_norm: f32,
    /// Largest absolute value of a value.
    pub value: f32,
}

impl Bounds {
    /// Extends the bounds by a key.
    pub fn add_key(&mut self, k: &[f32]) {
        // In 16 sums, which compilers turn into vectors.
        let mut squares = [0.0f32; 16];
        for k in k.chunks(16) {
            squares.iter_mut().zip(k).for_each(|(sum, x)| *sum += x * x);
        }
        let norm = squares.iter().sum::<f32>().sqrt() * ROUND_UP;
        // A NaN must not be lost: it makes the bound useless, and the horizon is never reached.
        self.key_norm = if norm.is_nan() { f32::INFINITY } else { self.key_norm.max(norm) };
    }

    /// Extends the bounds by a value.
    pub fn add_value(&mut self, v: &[f32]) {
        for v in v {
            let v = v.abs();
            self.value = if v > self.value || v.is_nan() { v } else { self.value };
        }
    }

    pub(super) fn of_heads(inputs: &Inputs<'_>) -> Vec<Self> {
        if let Some(bounds) = inputs.bounds {
            return bounds.to_vec();
        }
        let heads = inputs.shape.heads;
        let of = |head: usize| {
            let at = [head / heads, head % heads];
            let mut bounds = Self::default();
            for key in 0..inputs.shape.keys {
                bounds.add_key(inputs.k.row(at, key));
                bounds.add_value(inputs.v.row(at, key));
            }
            bounds
        };
        (0..inputs.shape.batch * heads).into_par_iter().map(of).collect()
    }
}
