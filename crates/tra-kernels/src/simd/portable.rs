//! Plain Rust, eight lanes that compilers turn into whatever vectors there are.

use super::Simd;

#[derive(Clone, Copy)]
pub(crate) struct Portable;

const N: usize = 8;

#[inline(always)]
fn map<T: Copy, U, R>(a: [T; N], b: [U; N], f: impl Fn(T, U) -> R) -> [R; N]
where
    U: Copy,
{
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Portable {
    type V = [f32; N];
    type M = [bool; N];
    type I = [u32; N];
    const LANES: usize = N;
    const ROWS: usize = 2;

    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; N] {
        [x; N]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> [f32; N] {
        // SAFETY: the trait's contract.
        unsafe { p.cast::<[f32; N]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: [f32; N]) {
        // SAFETY: the trait's contract.
        unsafe { p.cast::<[f32; N]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn add(a: [f32; N], b: [f32; N]) -> [f32; N] {
        map(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(a: [f32; N], b: [f32; N]) -> [f32; N] {
        map(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; N], b: [f32; N]) -> [f32; N] {
        map(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(a: [f32; N], b: [f32; N]) -> [f32; N] {
        map(a, b, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn sqrt(a: [f32; N]) -> [f32; N] {
        a.map(f32::sqrt)
    }
    /// Two roundings: `f32::mul_add` is a slow function call without the instruction.
    #[inline(always)]
    unsafe fn fma(a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn max(a: [f32; N], b: [f32; N]) -> [f32; N] {
        map(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn abs(a: [f32; N]) -> [f32; N] {
        a.map(f32::abs)
    }
    /// Adding and taking away 1.5 * 2^23 rounds numbers of up to 2^22.
    #[inline(always)]
    unsafe fn round(a: [f32; N]) -> [f32; N] {
        a.map(|x| (x + 12_582_912.0) - 12_582_912.0)
    }
    #[inline(always)]
    unsafe fn pow2(n: [f32; N]) -> [f32; N] {
        n.map(|n| f32::from_bits(((n as i32).wrapping_add(127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn gt(a: [f32; N], b: [f32; N]) -> [bool; N] {
        map(a, b, |a, b| a > b)
    }
    #[inline(always)]
    unsafe fn ge(a: [f32; N], b: [f32; N]) -> [bool; N] {
        map(a, b, |a, b| a >= b)
    }
    #[inline(always)]
    unsafe fn and(a: [bool; N], b: [bool; N]) -> [bool; N] {
        map(a, b, |a, b| a & b)
    }
    #[inline(always)]
    unsafe fn select(m: [bool; N], a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| if m[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn bits(m: [bool; N]) -> u32 {
        (0..N).map(|i| u32::from(m[i]) << i).sum()
    }
    #[inline(always)]
    unsafe fn sum(a: [f32; N]) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    unsafe fn largest(a: [f32; N]) -> f32 {
        a.into_iter().fold(a[0], |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn isplat(x: u32) -> [u32; N] {
        [x; N]
    }
    #[inline(always)]
    unsafe fn iload(p: *const u32) -> [u32; N] {
        // SAFETY: the trait's contract.
        unsafe { p.cast::<[u32; N]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn ixor(a: [u32; N], b: [u32; N]) -> [u32; N] {
        map(a, b, |a, b| a ^ b)
    }
    #[inline(always)]
    unsafe fn imul(a: [u32; N], b: [u32; N]) -> [u32; N] {
        map(a, b, u32::wrapping_mul)
    }
    #[inline(always)]
    unsafe fn ishr<const S: u32>(a: [u32; N]) -> [u32; N] {
        a.map(|a| a >> S)
    }
    #[inline(always)]
    unsafe fn ilt(a: [u32; N], b: [u32; N]) -> [bool; N] {
        map(a, b, |a, b| a < b)
    }
}
