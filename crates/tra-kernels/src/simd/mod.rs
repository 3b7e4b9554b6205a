//! One interface to the vectors of every instruction set.
//!
//! Kernels are written once, generic over `Simd`, and compiled for each instruction set by the
//! `kernel!` macro, which also picks the version at run time. The choice can be
//! forced by the argument of type [`Isa`] that kernels take, or, where that is [`Isa::best`], by
//! [`Isa::choose`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;

/// An instruction set that kernels exist for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// 16 lanes, x86-64.
    Avx512,
    /// 8 lanes with fused multiply-add, x86-64.
    Avx2,
    /// 4 lanes, aarch64.
    Neon,
    /// Plain Rust, for every machine.
    Portable,
}

impl Isa {
    /// All of them, the fastest first.
    pub const ALL: [Isa; 4] = [Isa::Avx512, Isa::Avx2, Isa::Neon, Isa::Portable];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Neon => "neon",
            Isa::Portable => "portable",
        }
    }

    /// Returns whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("fma")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => true,
            Isa::Portable => true,
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// Lists those that this machine has, the fastest first.
    pub fn available() -> impl Iterator<Item = Isa> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// Returns the fastest that this machine has, or what the program [chose](Self::choose).
    pub fn best() -> Isa {
        *CHOSEN.get_or_init(|| Self::available().next().unwrap_or(Isa::Portable))
    }

    /// Makes [`best`](Self::best) return this one. A program calls it at its start, if its user asks
    /// for an instruction set; later, when kernels have run, it is too late.
    pub fn choose(self) -> Result<(), IsaError> {
        if !self.is_available() {
            return Err(IsaError::Unavailable(self.name().into()));
        }
        match *CHOSEN.get_or_init(|| self) {
            before if before == self => Ok(()),
            before => Err(IsaError::InUse(before)),
        }
    }
}

/// The one value of this workspace that belongs to the whole process. It describes the machine, as the
/// number of its cores does, and kernels are reached through Burn's operators, which could not pass
/// it on. A kernel that is called directly takes an [`Isa`] instead.
static CHOSEN: OnceLock<Isa> = OnceLock::new();

impl FromStr for Isa {
    type Err = IsaError;

    fn from_str(name: &str) -> Result<Self, IsaError> {
        let found = Self::available().find(|isa| isa.name() == name);
        found.ok_or_else(|| IsaError::Unavailable(name.into()))
    }
}

/// An instruction set that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IsaError {
    /// It does not exist, or this machine lacks it.
    Unavailable(String),
    /// Kernels use another one already.
    InUse(Isa),
}

impl fmt::Display for IsaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(name) => {
                let names: Vec<_> = Isa::available().map(Isa::name).collect();
                write!(f, "no instruction set {name:?}; this machine has {}", names.join(", "))
            }
            Self::InUse(isa) => write!(f, "kernels use {isa} already"),
        }
    }
}

impl std::error::Error for IsaError {}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The operations kernels are made of.
///
/// # Safety
/// Every method may be called only if the CPU has the instruction set, which [`kernel!`] ensures, and
/// pointers must be valid for `LANES` numbers. They need not be aligned.
#[allow(clippy::missing_safety_doc)]
pub(crate) trait Simd: Copy {
    /// `LANES` numbers.
    type V: Copy;
    /// `LANES` truth values.
    type M: Copy;
    /// `LANES` unsigned integers of 32 bits.
    type I: Copy;
    const LANES: usize;
    /// Rows of the matrix-product tile: with two vectors per row its sums fill the registers.
    const ROWS: usize;

    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(p: *const f32) -> Self::V;
    unsafe fn store(p: *mut f32, v: Self::V);
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sqrt(a: Self::V) -> Self::V;
    /// `a * b + c`.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` where either is NaN.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn abs(a: Self::V) -> Self::V;
    /// To the nearest integer.
    unsafe fn round(a: Self::V) -> Self::V;
    /// `2^n` for integers `n` of `-126..=127`.
    unsafe fn pow2(n: Self::V) -> Self::V;
    /// False where either is NaN, as are all comparisons.
    unsafe fn gt(a: Self::V, b: Self::V) -> Self::M;
    unsafe fn ge(a: Self::V, b: Self::V) -> Self::M;
    unsafe fn and(a: Self::M, b: Self::M) -> Self::M;
    /// `a` where true, `b` elsewhere.
    unsafe fn select(m: Self::M, a: Self::V, b: Self::V) -> Self::V;
    /// One bit per lane, the first lane lowest.
    unsafe fn bits(m: Self::M) -> u32;
    /// All lanes added up.
    unsafe fn sum(a: Self::V) -> f32;
    unsafe fn largest(a: Self::V) -> f32;
    unsafe fn isplat(x: u32) -> Self::I;
    unsafe fn iload(p: *const u32) -> Self::I;
    unsafe fn ixor(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn imul(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn ishr<const N: u32>(a: Self::I) -> Self::I;
    /// Unsigned `a < b`.
    unsafe fn ilt(a: Self::I, b: Self::I) -> Self::M;

    /// Returns `e^x` within two units in the last place, and 0 below -80: there products with `e^x` come
    /// close to denormal numbers, which take a hundred times as long. `x` must not be above 88.
    #[inline(always)]
    unsafe fn exp(x: Self::V) -> Self::V {
        unsafe {
            let smallest = Self::splat(-80.0);
            // In this order a NaN stays NaN, here and in the maximum.
            let vanishes = Self::gt(smallest, x);
            let x = Self::max(smallest, x);
            // x = n ln 2 + r, |r| <= ln(2)/2; ln 2 in two parts, of which the first has so few
            // digits that its product with n is exact.
            let n = Self::round(Self::mul(x, Self::splat(std::f32::consts::LOG2_E)));
            let r = Self::fma(n, Self::splat(-0.693_359_4), x);
            let r = Self::fma(n, Self::splat(2.121_944_4e-4), r);
            // Minimax polynomial of (e^r - 1 - r) / r^2 (Cephes).
            let mut p = Self::splat(1.987_569_1e-4);
            for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
                p = Self::fma(p, r, Self::splat(c));
            }
            let p = Self::fma(p, Self::mul(r, r), Self::add(r, Self::splat(1.0)));
            Self::select(vanishes, Self::splat(0.0), Self::mul(p, Self::pow2(n)))
        }
    }

    /// The dropout hash of one column for `LANES` rows; see [`crate::dropout`].
    #[inline(always)]
    unsafe fn dropped(keys: Self::I, column: u32, threshold: u32) -> Self::M {
        unsafe {
            let x = Self::ixor(Self::isplat(column.wrapping_mul(0x9E37_79B9)), keys);
            let x = Self::imul(Self::ixor(x, Self::ishr::<16>(x)), Self::isplat(0x7FEB_352D));
            let x = Self::imul(Self::ixor(x, Self::ishr::<15>(x)), Self::isplat(0x846C_A68B));
            Self::ilt(Self::ixor(x, Self::ishr::<16>(x)), Self::isplat(threshold))
        }
    }
}

/// Makes `fn $name(isa, …)` out of a generic `unsafe fn $generic<S: Simd>(…)`: compiled for every
/// instruction set, chosen by `isa`.
macro_rules! kernel {
    ($(#[$doc:meta])* $vis:vis unsafe fn $name:ident = $generic:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $out:ty)?) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis unsafe fn $name(isa: $crate::simd::Isa, $($arg: $ty),*) $(-> $out)? {
            use $crate::simd::Isa;
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => {
                    #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
                    #[allow(clippy::too_many_arguments)]
                    unsafe fn run($($arg: $ty),*) $(-> $out)? {
                        unsafe { $generic::<$crate::simd::Avx512>($($arg),*) }
                    }
                    debug_assert!(isa.is_available());
                    unsafe { run($($arg),*) }
                }
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => {
                    #[target_feature(enable = "avx2,fma")]
                    #[allow(clippy::too_many_arguments)]
                    unsafe fn run($($arg: $ty),*) $(-> $out)? {
                        unsafe { $generic::<$crate::simd::Avx2>($($arg),*) }
                    }
                    debug_assert!(isa.is_available());
                    unsafe { run($($arg),*) }
                }
                #[cfg(target_arch = "aarch64")]
                Isa::Neon => unsafe { $generic::<$crate::simd::Neon>($($arg),*) },
                _ => unsafe { $generic::<$crate::simd::Portable>($($arg),*) },
            }
        }
    };
}
pub(crate) use kernel;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_an_error_that_names_those_there_are() {
        assert_eq!("portable".parse(), Ok(Isa::Portable));
        for wrong in ["foo", "", "AVX2", "two\nlines"] {
            let line = wrong.parse::<Isa>().unwrap_err().to_string();
            assert!(line.starts_with(&format!("no instruction set {wrong:?}; ")), "{line}");
            assert!(line.contains("portable") && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn kernels_keep_what_they_began_with() {
        let best = Isa::best();
        assert_eq!(best.choose(), Ok(()));
        let other = Isa::ALL.into_iter().find(|isa| *isa != best).unwrap();
        assert!(other.choose().is_err());
        assert_eq!(Isa::best(), best);
    }

    #[inline(always)]
    unsafe fn exps<S: Simd>(x: &[f32], out: &mut [f32]) {
        for at in (0..x.len()).step_by(S::LANES) {
            // SAFETY: the test's slices are multiples of every LANES.
            unsafe { S::store(out[at..].as_mut_ptr(), S::exp(S::load(x[at..].as_ptr()))) };
        }
    }
    kernel!(unsafe fn run_exps = exps(x: &[f32], out: &mut [f32]));

    #[test]
    fn exp_is_accurate_on_every_instruction_set() {
        let x: Vec<f32> = (0..16 * 4000).map(|i| 1.0 - i as f32 * (80.9 / 64000.0)).collect();
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; x.len()];
            // SAFETY: the instruction set is available.
            unsafe { run_exps(isa, &x, &mut out) };
            for (x, y) in x.iter().zip(&out) {
                let exact = f64::from(*x).exp();
                let ulp = exact * 2f64.powi(-23);
                assert!((f64::from(*y) - exact).abs() <= 2.0 * ulp, "{isa}: exp({x}) = {y}");
            }
            let far = [-80.01, -100.0, -1e30, f32::NEG_INFINITY].repeat(4);
            let mut out = vec![f32::NAN; 16];
            // SAFETY: as above.
            unsafe { run_exps(isa, &far, &mut out) };
            assert_eq!(out, [0.0; 16], "{isa}");
            // SAFETY: as above.
            unsafe { run_exps(isa, &[f32::NAN; 16], &mut out) };
            assert!(out.iter().all(|x| x.is_nan()), "{isa}");
        }
    }

    #[inline(always)]
    unsafe fn hashes<S: Simd>(keys: &[u32], columns: u32, threshold: u32, out: &mut Vec<u32>) {
        for column in 0..columns {
            for at in (0..keys.len()).step_by(S::LANES) {
                // SAFETY: as above.
                let m = unsafe { S::dropped(S::iload(keys[at..].as_ptr()), column, threshold) };
                // SAFETY: as above.
                let bits = unsafe { S::bits(m) };
                out.extend((0..S::LANES).map(|lane| bits >> lane & 1));
            }
        }
    }
    kernel!(unsafe fn run_hashes = hashes(keys: &[u32], columns: u32, threshold: u32, out: &mut Vec<u32>));

    #[test]
    fn every_instruction_set_drops_the_same_elements() {
        use crate::dropout::Dropout;
        use tra_random::Stream;
        let dropout = Dropout::new(Stream::new(3), 0.3);
        let keys: Vec<u32> = (0..32).map(|row| dropout.row(row).key()).collect();
        let mut expected = Vec::new();
        for column in 0..50 {
            expected.extend((0..32).map(|r| u32::from(dropout.row(r).factor(column) == 0.0)));
        }
        for isa in Isa::available() {
            let mut out = Vec::new();
            // SAFETY: the instruction set is available.
            unsafe { run_hashes(isa, &keys, 50, dropout.threshold(), &mut out) };
            assert_eq!(out, expected, "{isa}");
        }
    }
}
