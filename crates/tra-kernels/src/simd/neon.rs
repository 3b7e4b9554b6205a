//! NEON, which every aarch64 has.

use std::arch::aarch64::*;

use super::Simd;

#[derive(Clone, Copy)]
pub(crate) struct Neon;

// SAFETY (of every block): the trait's contract; each method is the instruction it is named after.
impl Simd for Neon {
    type V = float32x4_t;
    type M = uint32x4_t;
    type I = uint32x4_t;
    const LANES: usize = 4;
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> float32x4_t {
        unsafe { vdupq_n_f32(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> float32x4_t {
        unsafe { vld1q_f32(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: float32x4_t) {
        unsafe { vst1q_f32(p, v) }
    }
    #[inline(always)]
    unsafe fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vaddq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vsubq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vmulq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vdivq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn sqrt(a: float32x4_t) -> float32x4_t {
        unsafe { vsqrtq_f32(a) }
    }
    #[inline(always)]
    unsafe fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        unsafe { vfmaq_f32(c, a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) }
    }
    #[inline(always)]
    unsafe fn abs(a: float32x4_t) -> float32x4_t {
        unsafe { vabsq_f32(a) }
    }
    #[inline(always)]
    unsafe fn round(a: float32x4_t) -> float32x4_t {
        unsafe { vrndnq_f32(a) }
    }
    #[inline(always)]
    unsafe fn pow2(n: float32x4_t) -> float32x4_t {
        unsafe {
            let n = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(n))
        }
    }
    #[inline(always)]
    unsafe fn gt(a: float32x4_t, b: float32x4_t) -> uint32x4_t {
        unsafe { vcgtq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn ge(a: float32x4_t, b: float32x4_t) -> uint32x4_t {
        unsafe { vcgeq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn and(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        unsafe { vandq_u32(a, b) }
    }
    #[inline(always)]
    unsafe fn select(m: uint32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vbslq_f32(m, a, b) }
    }
    #[inline(always)]
    unsafe fn bits(m: uint32x4_t) -> u32 {
        unsafe {
            let weights: [u32; 4] = [1, 2, 4, 8];
            vaddvq_u32(vandq_u32(m, vld1q_u32(weights.as_ptr())))
        }
    }
    #[inline(always)]
    unsafe fn sum(a: float32x4_t) -> f32 {
        unsafe { vaddvq_f32(a) }
    }
    #[inline(always)]
    unsafe fn largest(a: float32x4_t) -> f32 {
        unsafe { vmaxvq_f32(a) }
    }
    #[inline(always)]
    unsafe fn isplat(x: u32) -> uint32x4_t {
        unsafe { vdupq_n_u32(x) }
    }
    #[inline(always)]
    unsafe fn iload(p: *const u32) -> uint32x4_t {
        unsafe { vld1q_u32(p) }
    }
    #[inline(always)]
    unsafe fn ixor(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        unsafe { veorq_u32(a, b) }
    }
    #[inline(always)]
    unsafe fn imul(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        unsafe { vmulq_u32(a, b) }
    }
    #[inline(always)]
    unsafe fn ishr<const N: u32>(a: uint32x4_t) -> uint32x4_t {
        unsafe { vshlq_u32(a, vdupq_n_s32(-N.cast_signed())) }
    }
    #[inline(always)]
    unsafe fn ilt(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        unsafe { vcltq_u32(a, b) }
    }
}
