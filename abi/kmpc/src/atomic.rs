//! Atomic constructs as functions. Today's compilers emit instructions, or calls of the C library's
//! atomic functions; older ones of Intel's call these.
//!
//! What has at most eight bytes is changed by atomic instructions, all else under the lock of all
//! atomic constructs. There is nothing for numbers of 80 bits, which Rust does not have.

use std::ffi::{c_int, c_void};
use std::ops::{Add, Div, Mul, Sub};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use margay_abi_omp::runtime::runtime;
use margay_run_openmp::lock;
use margay_sys_threads::border::{inside, outside};

use crate::Ident;

/// A type whose values can be replaced atomically.
trait Replaceable: Copy {
    /// Replaces a value by what `f` makes of it. Returns both.
    ///
    /// # Safety
    /// The value is aligned, and all who use it at the same time do so by these functions or by
    /// atomic instructions.
    unsafe fn replace(at: *mut Self, f: impl Fn(Self) -> Self) -> (Self, Self);
}

macro_rules! replaceable {
    ($($of:ty, $atomic:ty, $into:expr, $from:expr;)*) => {$(
        impl Replaceable for $of {
            #[inline]
            unsafe fn replace(at: *mut Self, f: impl Fn(Self) -> Self) -> (Self, Self) {
                // SAFETY: by the caller's promise.
                let place = unsafe { <$atomic>::from_ptr(at.cast()) };
                let mut old = place.load(Ordering::Relaxed);
                loop {
                    let new = f($from(old));
                    match place.compare_exchange_weak(old, $into(new), Ordering::AcqRel, Ordering::Relaxed) {
                        Ok(_) => return ($from(old), new),
                        Err(seen) => old = seen,
                    }
                }
            }
        }
    )*};
}

replaceable! {
    i8, AtomicU8, |x: i8| x as u8, |x: u8| x as i8;
    u8, AtomicU8, |x: u8| x, |x: u8| x;
    i16, AtomicU16, |x: i16| x as u16, |x: u16| x as i16;
    u16, AtomicU16, |x: u16| x, |x: u16| x;
    i32, AtomicU32, |x: i32| x as u32, |x: u32| x as i32;
    u32, AtomicU32, |x: u32| x, |x: u32| x;
    i64, AtomicU64, |x: i64| x as u64, |x: u64| x as i64;
    u64, AtomicU64, |x: u64| x, |x: u64| x;
    f32, AtomicU32, f32::to_bits, f32::from_bits;
    f64, AtomicU64, f64::to_bits, f64::from_bits;
}

/// A complex number, as C passes it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Complex<T> {
    real: T,
    imaginary: T,
}

macro_rules! complex {
    ($($of:ty)*) => {$(
        impl Add for Complex<$of> {
            type Output = Self;
            fn add(self, y: Self) -> Self {
                Complex { real: self.real + y.real, imaginary: self.imaginary + y.imaginary }
            }
        }

        impl Sub for Complex<$of> {
            type Output = Self;
            fn sub(self, y: Self) -> Self {
                Complex { real: self.real - y.real, imaginary: self.imaginary - y.imaginary }
            }
        }

        impl Mul for Complex<$of> {
            type Output = Self;
            fn mul(self, y: Self) -> Self {
                Complex {
                    real: self.real * y.real - self.imaginary * y.imaginary,
                    imaginary: self.real * y.imaginary + self.imaginary * y.real,
                }
            }
        }

        impl Div for Complex<$of> {
            type Output = Self;
            fn div(self, y: Self) -> Self {
                let scale = y.real * y.real + y.imaginary * y.imaginary;
                Complex {
                    real: (self.real * y.real + self.imaginary * y.imaginary) / scale,
                    imaginary: (self.imaginary * y.real - self.real * y.imaginary) / scale,
                }
            }
        }

        impl Replaceable for Complex<$of> {
            unsafe fn replace(at: *mut Self, f: impl Fn(Self) -> Self) -> (Self, Self) {
                inside(|| {
                    lock::set(&runtime().atomic, runtime, 0);
                    // SAFETY: by the caller's promise, all use it under this lock.
                    let both = unsafe {
                        let old = at.read();
                        let new = f(old);
                        at.write(new);
                        (old, new)
                    };
                    lock::unset(&runtime().atomic, runtime);
                    both
                })
            }
        }
    )*};
}

complex! { f32 f64 }

impl Complex<f32> {
    fn wide(self) -> Complex<f64> {
        Complex {
            real: f64::from(self.real),
            imaginary: f64::from(self.imaginary),
        }
    }
}

impl Complex<f64> {
    fn narrow(self) -> Complex<f32> {
        Complex {
            real: self.real as f32,
            imaginary: self.imaginary as f32,
        }
    }
}

/// An operation, and the same that returns the value before or, with `is_new`, after it.
macro_rules! operations {
    ($($of:ty: $name:ident $capture:ident, |$x:ident, $y:ident| $result:expr;)*) => {$(
        /// # Safety
        /// As of [`Replaceable::replace`].
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(_: *const Ident, _: c_int, at: *mut $of, $y: $of) {
            // SAFETY: by the caller's promise.
            unsafe { Replaceable::replace(at, |$x: $of| -> $of { $result }) };
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $capture(
            _: *const Ident, _: c_int, at: *mut $of, $y: $of, is_new: c_int,
        ) -> $of {
            // SAFETY: by the caller's promise.
            let (old, new) = unsafe { Replaceable::replace(at, |$x: $of| -> $of { $result }) };
            if is_new != 0 { new } else { old }
        }
    )*};
}

operations! {
    // i8
    i8: __kmpc_atomic_fixed1_add __kmpc_atomic_fixed1_add_cpt, |x, y| x.wrapping_add(y);
    i8: __kmpc_atomic_fixed1_sub __kmpc_atomic_fixed1_sub_cpt, |x, y| x.wrapping_sub(y);
    i8: __kmpc_atomic_fixed1_sub_rev __kmpc_atomic_fixed1_sub_cpt_rev, |x, y| y.wrapping_sub(x);
    i8: __kmpc_atomic_fixed1_mul __kmpc_atomic_fixed1_mul_cpt, |x, y| x.wrapping_mul(y);
    i8: __kmpc_atomic_fixed1_div __kmpc_atomic_fixed1_div_cpt, |x, y| x.wrapping_div(y);
    i8: __kmpc_atomic_fixed1_div_rev __kmpc_atomic_fixed1_div_cpt_rev, |x, y| y.wrapping_div(x);
    i8: __kmpc_atomic_fixed1_andb __kmpc_atomic_fixed1_andb_cpt, |x, y| x & y;
    i8: __kmpc_atomic_fixed1_orb __kmpc_atomic_fixed1_orb_cpt, |x, y| x | y;
    i8: __kmpc_atomic_fixed1_xor __kmpc_atomic_fixed1_xor_cpt, |x, y| x ^ y;
    i8: __kmpc_atomic_fixed1_shl __kmpc_atomic_fixed1_shl_cpt, |x, y| x.wrapping_shl(y as u32);
    i8: __kmpc_atomic_fixed1_shl_rev __kmpc_atomic_fixed1_shl_cpt_rev, |x, y| y.wrapping_shl(x as u32);
    i8: __kmpc_atomic_fixed1_shr __kmpc_atomic_fixed1_shr_cpt, |x, y| x.wrapping_shr(y as u32);
    i8: __kmpc_atomic_fixed1_shr_rev __kmpc_atomic_fixed1_shr_cpt_rev, |x, y| y.wrapping_shr(x as u32);
    i8: __kmpc_atomic_fixed1_andl __kmpc_atomic_fixed1_andl_cpt, |x, y| (x != 0 && y != 0).into();
    i8: __kmpc_atomic_fixed1_orl __kmpc_atomic_fixed1_orl_cpt, |x, y| (x != 0 || y != 0).into();
    i8: __kmpc_atomic_fixed1_eqv __kmpc_atomic_fixed1_eqv_cpt, |x, y| !(x ^ y);
    i8: __kmpc_atomic_fixed1_neqv __kmpc_atomic_fixed1_neqv_cpt, |x, y| x ^ y;
    i8: __kmpc_atomic_fixed1_max __kmpc_atomic_fixed1_max_cpt, |x, y| x.max(y);
    i8: __kmpc_atomic_fixed1_min __kmpc_atomic_fixed1_min_cpt, |x, y| x.min(y);
    u8: __kmpc_atomic_fixed1u_div __kmpc_atomic_fixed1u_div_cpt, |x, y| x.wrapping_div(y);
    u8: __kmpc_atomic_fixed1u_div_rev __kmpc_atomic_fixed1u_div_cpt_rev, |x, y| y.wrapping_div(x);
    u8: __kmpc_atomic_fixed1u_shr __kmpc_atomic_fixed1u_shr_cpt, |x, y| x.wrapping_shr(y as u32);
    u8: __kmpc_atomic_fixed1u_shr_rev __kmpc_atomic_fixed1u_shr_cpt_rev, |x, y| y.wrapping_shr(x as u32);
    // i16
    i16: __kmpc_atomic_fixed2_add __kmpc_atomic_fixed2_add_cpt, |x, y| x.wrapping_add(y);
    i16: __kmpc_atomic_fixed2_sub __kmpc_atomic_fixed2_sub_cpt, |x, y| x.wrapping_sub(y);
    i16: __kmpc_atomic_fixed2_sub_rev __kmpc_atomic_fixed2_sub_cpt_rev, |x, y| y.wrapping_sub(x);
    i16: __kmpc_atomic_fixed2_mul __kmpc_atomic_fixed2_mul_cpt, |x, y| x.wrapping_mul(y);
    i16: __kmpc_atomic_fixed2_div __kmpc_atomic_fixed2_div_cpt, |x, y| x.wrapping_div(y);
    i16: __kmpc_atomic_fixed2_div_rev __kmpc_atomic_fixed2_div_cpt_rev, |x, y| y.wrapping_div(x);
    i16: __kmpc_atomic_fixed2_andb __kmpc_atomic_fixed2_andb_cpt, |x, y| x & y;
    i16: __kmpc_atomic_fixed2_orb __kmpc_atomic_fixed2_orb_cpt, |x, y| x | y;
    i16: __kmpc_atomic_fixed2_xor __kmpc_atomic_fixed2_xor_cpt, |x, y| x ^ y;
    i16: __kmpc_atomic_fixed2_shl __kmpc_atomic_fixed2_shl_cpt, |x, y| x.wrapping_shl(y as u32);
    i16: __kmpc_atomic_fixed2_shl_rev __kmpc_atomic_fixed2_shl_cpt_rev, |x, y| y.wrapping_shl(x as u32);
    i16: __kmpc_atomic_fixed2_shr __kmpc_atomic_fixed2_shr_cpt, |x, y| x.wrapping_shr(y as u32);
    i16: __kmpc_atomic_fixed2_shr_rev __kmpc_atomic_fixed2_shr_cpt_rev, |x, y| y.wrapping_shr(x as u32);
    i16: __kmpc_atomic_fixed2_andl __kmpc_atomic_fixed2_andl_cpt, |x, y| (x != 0 && y != 0).into();
    i16: __kmpc_atomic_fixed2_orl __kmpc_atomic_fixed2_orl_cpt, |x, y| (x != 0 || y != 0).into();
    i16: __kmpc_atomic_fixed2_eqv __kmpc_atomic_fixed2_eqv_cpt, |x, y| !(x ^ y);
    i16: __kmpc_atomic_fixed2_neqv __kmpc_atomic_fixed2_neqv_cpt, |x, y| x ^ y;
    i16: __kmpc_atomic_fixed2_max __kmpc_atomic_fixed2_max_cpt, |x, y| x.max(y);
    i16: __kmpc_atomic_fixed2_min __kmpc_atomic_fixed2_min_cpt, |x, y| x.min(y);
    u16: __kmpc_atomic_fixed2u_div __kmpc_atomic_fixed2u_div_cpt, |x, y| x.wrapping_div(y);
    u16: __kmpc_atomic_fixed2u_div_rev __kmpc_atomic_fixed2u_div_cpt_rev, |x, y| y.wrapping_div(x);
    u16: __kmpc_atomic_fixed2u_shr __kmpc_atomic_fixed2u_shr_cpt, |x, y| x.wrapping_shr(y as u32);
    u16: __kmpc_atomic_fixed2u_shr_rev __kmpc_atomic_fixed2u_shr_cpt_rev, |x, y| y.wrapping_shr(x as u32);
    // i32
    i32: __kmpc_atomic_fixed4_add __kmpc_atomic_fixed4_add_cpt, |x, y| x.wrapping_add(y);
    i32: __kmpc_atomic_fixed4_sub __kmpc_atomic_fixed4_sub_cpt, |x, y| x.wrapping_sub(y);
    i32: __kmpc_atomic_fixed4_sub_rev __kmpc_atomic_fixed4_sub_cpt_rev, |x, y| y.wrapping_sub(x);
    i32: __kmpc_atomic_fixed4_mul __kmpc_atomic_fixed4_mul_cpt, |x, y| x.wrapping_mul(y);
    i32: __kmpc_atomic_fixed4_div __kmpc_atomic_fixed4_div_cpt, |x, y| x.wrapping_div(y);
    i32: __kmpc_atomic_fixed4_div_rev __kmpc_atomic_fixed4_div_cpt_rev, |x, y| y.wrapping_div(x);
    i32: __kmpc_atomic_fixed4_andb __kmpc_atomic_fixed4_andb_cpt, |x, y| x & y;
    i32: __kmpc_atomic_fixed4_orb __kmpc_atomic_fixed4_orb_cpt, |x, y| x | y;
    i32: __kmpc_atomic_fixed4_xor __kmpc_atomic_fixed4_xor_cpt, |x, y| x ^ y;
    i32: __kmpc_atomic_fixed4_shl __kmpc_atomic_fixed4_shl_cpt, |x, y| x.wrapping_shl(y as u32);
    i32: __kmpc_atomic_fixed4_shl_rev __kmpc_atomic_fixed4_shl_cpt_rev, |x, y| y.wrapping_shl(x as u32);
    i32: __kmpc_atomic_fixed4_shr __kmpc_atomic_fixed4_shr_cpt, |x, y| x.wrapping_shr(y as u32);
    i32: __kmpc_atomic_fixed4_shr_rev __kmpc_atomic_fixed4_shr_cpt_rev, |x, y| y.wrapping_shr(x as u32);
    i32: __kmpc_atomic_fixed4_andl __kmpc_atomic_fixed4_andl_cpt, |x, y| (x != 0 && y != 0).into();
    i32: __kmpc_atomic_fixed4_orl __kmpc_atomic_fixed4_orl_cpt, |x, y| (x != 0 || y != 0).into();
    i32: __kmpc_atomic_fixed4_eqv __kmpc_atomic_fixed4_eqv_cpt, |x, y| !(x ^ y);
    i32: __kmpc_atomic_fixed4_neqv __kmpc_atomic_fixed4_neqv_cpt, |x, y| x ^ y;
    i32: __kmpc_atomic_fixed4_max __kmpc_atomic_fixed4_max_cpt, |x, y| x.max(y);
    i32: __kmpc_atomic_fixed4_min __kmpc_atomic_fixed4_min_cpt, |x, y| x.min(y);
    u32: __kmpc_atomic_fixed4u_div __kmpc_atomic_fixed4u_div_cpt, |x, y| x.wrapping_div(y);
    u32: __kmpc_atomic_fixed4u_div_rev __kmpc_atomic_fixed4u_div_cpt_rev, |x, y| y.wrapping_div(x);
    u32: __kmpc_atomic_fixed4u_shr __kmpc_atomic_fixed4u_shr_cpt, |x, y| x.wrapping_shr(y as u32);
    u32: __kmpc_atomic_fixed4u_shr_rev __kmpc_atomic_fixed4u_shr_cpt_rev, |x, y| y.wrapping_shr(x as u32);
    // i64
    i64: __kmpc_atomic_fixed8_add __kmpc_atomic_fixed8_add_cpt, |x, y| x.wrapping_add(y);
    i64: __kmpc_atomic_fixed8_sub __kmpc_atomic_fixed8_sub_cpt, |x, y| x.wrapping_sub(y);
    i64: __kmpc_atomic_fixed8_sub_rev __kmpc_atomic_fixed8_sub_cpt_rev, |x, y| y.wrapping_sub(x);
    i64: __kmpc_atomic_fixed8_mul __kmpc_atomic_fixed8_mul_cpt, |x, y| x.wrapping_mul(y);
    i64: __kmpc_atomic_fixed8_div __kmpc_atomic_fixed8_div_cpt, |x, y| x.wrapping_div(y);
    i64: __kmpc_atomic_fixed8_div_rev __kmpc_atomic_fixed8_div_cpt_rev, |x, y| y.wrapping_div(x);
    i64: __kmpc_atomic_fixed8_andb __kmpc_atomic_fixed8_andb_cpt, |x, y| x & y;
    i64: __kmpc_atomic_fixed8_orb __kmpc_atomic_fixed8_orb_cpt, |x, y| x | y;
    i64: __kmpc_atomic_fixed8_xor __kmpc_atomic_fixed8_xor_cpt, |x, y| x ^ y;
    i64: __kmpc_atomic_fixed8_shl __kmpc_atomic_fixed8_shl_cpt, |x, y| x.wrapping_shl(y as u32);
    i64: __kmpc_atomic_fixed8_shl_rev __kmpc_atomic_fixed8_shl_cpt_rev, |x, y| y.wrapping_shl(x as u32);
    i64: __kmpc_atomic_fixed8_shr __kmpc_atomic_fixed8_shr_cpt, |x, y| x.wrapping_shr(y as u32);
    i64: __kmpc_atomic_fixed8_shr_rev __kmpc_atomic_fixed8_shr_cpt_rev, |x, y| y.wrapping_shr(x as u32);
    i64: __kmpc_atomic_fixed8_andl __kmpc_atomic_fixed8_andl_cpt, |x, y| (x != 0 && y != 0).into();
    i64: __kmpc_atomic_fixed8_orl __kmpc_atomic_fixed8_orl_cpt, |x, y| (x != 0 || y != 0).into();
    i64: __kmpc_atomic_fixed8_eqv __kmpc_atomic_fixed8_eqv_cpt, |x, y| !(x ^ y);
    i64: __kmpc_atomic_fixed8_neqv __kmpc_atomic_fixed8_neqv_cpt, |x, y| x ^ y;
    i64: __kmpc_atomic_fixed8_max __kmpc_atomic_fixed8_max_cpt, |x, y| x.max(y);
    i64: __kmpc_atomic_fixed8_min __kmpc_atomic_fixed8_min_cpt, |x, y| x.min(y);
    u64: __kmpc_atomic_fixed8u_div __kmpc_atomic_fixed8u_div_cpt, |x, y| x.wrapping_div(y);
    u64: __kmpc_atomic_fixed8u_div_rev __kmpc_atomic_fixed8u_div_cpt_rev, |x, y| y.wrapping_div(x);
    u64: __kmpc_atomic_fixed8u_shr __kmpc_atomic_fixed8u_shr_cpt, |x, y| x.wrapping_shr(y as u32);
    u64: __kmpc_atomic_fixed8u_shr_rev __kmpc_atomic_fixed8u_shr_cpt_rev, |x, y| y.wrapping_shr(x as u32);
    // f32
    f32: __kmpc_atomic_float4_add __kmpc_atomic_float4_add_cpt, |x, y| x + y;
    f32: __kmpc_atomic_float4_sub __kmpc_atomic_float4_sub_cpt, |x, y| x - y;
    f32: __kmpc_atomic_float4_sub_rev __kmpc_atomic_float4_sub_cpt_rev, |x, y| y - x;
    f32: __kmpc_atomic_float4_mul __kmpc_atomic_float4_mul_cpt, |x, y| x * y;
    f32: __kmpc_atomic_float4_div __kmpc_atomic_float4_div_cpt, |x, y| x / y;
    f32: __kmpc_atomic_float4_div_rev __kmpc_atomic_float4_div_cpt_rev, |x, y| y / x;
    f32: __kmpc_atomic_float4_max __kmpc_atomic_float4_max_cpt, |x, y| if y > x { y } else { x };
    f32: __kmpc_atomic_float4_min __kmpc_atomic_float4_min_cpt, |x, y| if y < x { y } else { x };
    // f64
    f64: __kmpc_atomic_float8_add __kmpc_atomic_float8_add_cpt, |x, y| x + y;
    f64: __kmpc_atomic_float8_sub __kmpc_atomic_float8_sub_cpt, |x, y| x - y;
    f64: __kmpc_atomic_float8_sub_rev __kmpc_atomic_float8_sub_cpt_rev, |x, y| y - x;
    f64: __kmpc_atomic_float8_mul __kmpc_atomic_float8_mul_cpt, |x, y| x * y;
    f64: __kmpc_atomic_float8_div __kmpc_atomic_float8_div_cpt, |x, y| x / y;
    f64: __kmpc_atomic_float8_div_rev __kmpc_atomic_float8_div_cpt_rev, |x, y| y / x;
    f64: __kmpc_atomic_float8_max __kmpc_atomic_float8_max_cpt, |x, y| if y > x { y } else { x };
    f64: __kmpc_atomic_float8_min __kmpc_atomic_float8_min_cpt, |x, y| if y < x { y } else { x };
    // Complex<f32>
    Complex<f32>: __kmpc_atomic_cmplx4_add __kmpc_atomic_cmplx4_add_cpt, |x, y| x + y;
    Complex<f32>: __kmpc_atomic_cmplx4_sub __kmpc_atomic_cmplx4_sub_cpt, |x, y| x - y;
    Complex<f32>: __kmpc_atomic_cmplx4_sub_rev __kmpc_atomic_cmplx4_sub_cpt_rev, |x, y| y - x;
    Complex<f32>: __kmpc_atomic_cmplx4_mul __kmpc_atomic_cmplx4_mul_cpt, |x, y| x * y;
    Complex<f32>: __kmpc_atomic_cmplx4_div __kmpc_atomic_cmplx4_div_cpt, |x, y| x / y;
    Complex<f32>: __kmpc_atomic_cmplx4_div_rev __kmpc_atomic_cmplx4_div_cpt_rev, |x, y| y / x;
    // Complex<f64>
    Complex<f64>: __kmpc_atomic_cmplx8_add __kmpc_atomic_cmplx8_add_cpt, |x, y| x + y;
    Complex<f64>: __kmpc_atomic_cmplx8_sub __kmpc_atomic_cmplx8_sub_cpt, |x, y| x - y;
    Complex<f64>: __kmpc_atomic_cmplx8_sub_rev __kmpc_atomic_cmplx8_sub_cpt_rev, |x, y| y - x;
    Complex<f64>: __kmpc_atomic_cmplx8_mul __kmpc_atomic_cmplx8_mul_cpt, |x, y| x * y;
    Complex<f64>: __kmpc_atomic_cmplx8_div __kmpc_atomic_cmplx8_div_cpt, |x, y| x / y;
    Complex<f64>: __kmpc_atomic_cmplx8_div_rev __kmpc_atomic_cmplx8_div_cpt_rev, |x, y| y / x;
}

/// Operations whose second operand is of another type.
macro_rules! mixed {
    ($($of:ty, $other:ty: $name:ident, |$x:ident, $y:ident| $result:expr;)*) => {$(
        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(_: *const Ident, _: c_int, at: *mut $of, $y: $other) {
            // SAFETY: by the caller's promise.
            unsafe { Replaceable::replace(at, |$x: $of| -> $of { $result }) };
        }
    )*};
}

mixed! {
    i8, f64: __kmpc_atomic_fixed1_mul_float8, |x, y| (x as f64 * y) as i8;
    i8, f64: __kmpc_atomic_fixed1_div_float8, |x, y| (x as f64 / y) as i8;
    i16, f64: __kmpc_atomic_fixed2_mul_float8, |x, y| (x as f64 * y) as i16;
    i16, f64: __kmpc_atomic_fixed2_div_float8, |x, y| (x as f64 / y) as i16;
    i32, f64: __kmpc_atomic_fixed4_mul_float8, |x, y| (x as f64 * y) as i32;
    i32, f64: __kmpc_atomic_fixed4_div_float8, |x, y| (x as f64 / y) as i32;
    i64, f64: __kmpc_atomic_fixed8_mul_float8, |x, y| (x as f64 * y) as i64;
    i64, f64: __kmpc_atomic_fixed8_div_float8, |x, y| (x as f64 / y) as i64;
    f32, f64: __kmpc_atomic_float4_add_float8, |x, y| (f64::from(x) + y) as f32;
    f32, f64: __kmpc_atomic_float4_sub_float8, |x, y| (f64::from(x) - y) as f32;
    f32, f64: __kmpc_atomic_float4_mul_float8, |x, y| (f64::from(x) * y) as f32;
    f32, f64: __kmpc_atomic_float4_div_float8, |x, y| (f64::from(x) / y) as f32;
    Complex<f32>, Complex<f64>: __kmpc_atomic_cmplx4_add_cmplx8, |x, y| (x.wide() + y).narrow();
    Complex<f32>, Complex<f64>: __kmpc_atomic_cmplx4_sub_cmplx8, |x, y| (x.wide() - y).narrow();
    Complex<f32>, Complex<f64>: __kmpc_atomic_cmplx4_mul_cmplx8, |x, y| (x.wide() * y).narrow();
    Complex<f32>, Complex<f64>: __kmpc_atomic_cmplx4_div_cmplx8, |x, y| (x.wide() / y).narrow();
}

/// Reading, writing, exchanging.
macro_rules! moves {
    ($($of:ty: $read:ident $write:ident $swap:ident;)*) => {$(
        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $read(_: *const Ident, _: c_int, at: *mut $of) -> $of {
            // SAFETY: by the caller's promise.
            unsafe { Replaceable::replace(at, |x: $of| x) }.0
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $write(_: *const Ident, _: c_int, at: *mut $of, y: $of) {
            // SAFETY: by the caller's promise.
            unsafe { Replaceable::replace(at, |_: $of| y) };
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $swap(_: *const Ident, _: c_int, at: *mut $of, y: $of) -> $of {
            // SAFETY: by the caller's promise.
            unsafe { Replaceable::replace(at, |_: $of| y) }.0
        }
    )*};
}

moves! {
    i8: __kmpc_atomic_fixed1_rd __kmpc_atomic_fixed1_wr __kmpc_atomic_fixed1_swp;
    i16: __kmpc_atomic_fixed2_rd __kmpc_atomic_fixed2_wr __kmpc_atomic_fixed2_swp;
    i32: __kmpc_atomic_fixed4_rd __kmpc_atomic_fixed4_wr __kmpc_atomic_fixed4_swp;
    i64: __kmpc_atomic_fixed8_rd __kmpc_atomic_fixed8_wr __kmpc_atomic_fixed8_swp;
    f32: __kmpc_atomic_float4_rd __kmpc_atomic_float4_wr __kmpc_atomic_float4_swp;
    f64: __kmpc_atomic_float8_rd __kmpc_atomic_float8_wr __kmpc_atomic_float8_swp;
    Complex<f32>: __kmpc_atomic_cmplx4_rd __kmpc_atomic_cmplx4_wr __kmpc_atomic_cmplx4_swp;
    Complex<f64>: __kmpc_atomic_cmplx8_rd __kmpc_atomic_cmplx8_wr __kmpc_atomic_cmplx8_swp;
}

/// Comparing, and writing where the value is the expected one: returning whether it was, or the
/// value before; and with a place that gets a value, too.
macro_rules! compare {
    ($($of:ty: $bool:ident $bool_capture:ident $value:ident $value_capture:ident;)*) => {$(
        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $value(
            _: *const Ident, _: c_int, at: *mut $of, expected: $of, wanted: $of,
        ) -> $of {
            let choose = |x: $of| if x == expected { wanted } else { x };
            // SAFETY: by the caller's promise.
            unsafe { Replaceable::replace(at, choose) }.0
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $bool(
            loc: *const Ident, gtid: c_int, at: *mut $of, expected: $of, wanted: $of,
        ) -> bool {
            // SAFETY: by the caller's promise.
            unsafe { $value(loc, gtid, at, expected, wanted) == expected }
        }

        /// # Safety
        /// As above; `seen` can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $bool_capture(
            loc: *const Ident, gtid: c_int, at: *mut $of, expected: $of, wanted: $of, seen: *mut $of,
        ) -> bool {
            // SAFETY: by the caller's promise.
            unsafe {
                let old = $value(loc, gtid, at, expected, wanted);
                if old != expected {
                    seen.write(old);
                }
                old == expected
            }
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $value_capture(
            loc: *const Ident, gtid: c_int, at: *mut $of, expected: $of, wanted: $of, seen: *mut $of,
        ) -> $of {
            // SAFETY: by the caller's promise.
            unsafe {
                let old = $value(loc, gtid, at, expected, wanted);
                seen.write(if old == expected { wanted } else { old });
                old
            }
        }
    )*};
}

compare! {
    i8: __kmpc_atomic_bool_1_cas __kmpc_atomic_bool_1_cas_cpt __kmpc_atomic_val_1_cas __kmpc_atomic_val_1_cas_cpt;
    i16: __kmpc_atomic_bool_2_cas __kmpc_atomic_bool_2_cas_cpt __kmpc_atomic_val_2_cas __kmpc_atomic_val_2_cas_cpt;
    i32: __kmpc_atomic_bool_4_cas __kmpc_atomic_bool_4_cas_cpt __kmpc_atomic_val_4_cas __kmpc_atomic_val_4_cas_cpt;
    i64: __kmpc_atomic_bool_8_cas __kmpc_atomic_bool_8_cas_cpt __kmpc_atomic_val_8_cas __kmpc_atomic_val_8_cas_cpt;
}

/// What changes a value: `(new value, old value, operand)`.
type Change = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void);

/// Values of any type, by a function of the program.
macro_rules! by_function {
    ($($name:ident)*) => {$(
        /// # Safety
        /// All who use the value at the same time do so by this function; `change` may be called.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            _: *const Ident, _: c_int, at: *mut c_void, operand: *mut c_void, change: Change,
        ) {
            inside(|| {
                lock::set(&runtime().atomic, runtime, 0);
                // SAFETY: by the caller's promise.
                outside(|| unsafe { change(at, at, operand) });
                lock::unset(&runtime().atomic, runtime);
            });
        }
    )*};
}

by_function! {
    __kmpc_atomic_1
    __kmpc_atomic_2
    __kmpc_atomic_4
    __kmpc_atomic_8
    __kmpc_atomic_10
    __kmpc_atomic_16
    __kmpc_atomic_20
    __kmpc_atomic_32
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_atomic_start() {
    lock::set(&runtime().atomic, runtime, 0);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_atomic_end() {
    lock::unset(&runtime().atomic, runtime);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_replaced_and_captured() {
        let none = std::ptr::null();
        let (mut int, mut float) = (5_i32, 8.0_f64);
        // SAFETY: nobody else uses the variables.
        unsafe {
            assert_eq!(
                __kmpc_atomic_fixed4_sub_cpt_rev(none, 0, &raw mut int, 7, 1),
                2
            );
            assert_eq!(__kmpc_atomic_fixed4_shl_cpt(none, 0, &raw mut int, 3, 0), 2);
            assert_eq!(__kmpc_atomic_val_4_cas(none, 0, &raw mut int, 16, 3), 16);
            assert!(!__kmpc_atomic_bool_4_cas(none, 0, &raw mut int, 16, 4));
            __kmpc_atomic_fixed4_mul_float8(none, 0, &raw mut int, 2.5);
            assert_eq!(__kmpc_atomic_fixed4_rd(none, 0, &raw mut int), 7);
            __kmpc_atomic_float8_div_rev(none, 0, &raw mut float, 2.0);
            assert_eq!(__kmpc_atomic_float8_swp(none, 0, &raw mut float, 1.0), 0.25);
        }
    }

    #[test]
    fn complex_numbers_divide_as_they_multiply() {
        let (x, y) = (
            Complex {
                real: 3.0_f64,
                imaginary: -1.0,
            },
            Complex {
                real: 0.5,
                imaginary: 2.0,
            },
        );
        let back = x * y / y;
        assert!((back.real - 3.0).abs() < 1e-12 && (back.imaginary + 1.0).abs() < 1e-12);
    }
}
