//! The core is checked in binary64, where the processor knows the answer; the two formats by
//! numbers that gcc computed (x87 instructions and libgcc's binary128), and by another
//! implementation.

use fastrand::Rng;
use rustc_apfloat::Float;
use rustc_apfloat::ieee::{Quad, X87DoubleExtended};

use super::*;

mod known;

/// binary64 in the software core.
#[derive(Clone, Copy)]
struct F64;

impl Format for F64 {
    const PRECISION: u32 = 53;
    const EMIN: i32 = -1022;
    const EMAX: i32 = 1023;

    fn decode(bits: u128) -> Unpacked {
        let fraction = bits & ((1 << 52) - 1);
        let negative = bits >> 63 != 0;
        match ((bits >> 52 & 0x7ff) as i32, fraction) {
            (0, 0) => Zero { negative },
            (0, _) => normalised(negative, Self::EMIN, fraction, 52),
            (0x7ff, 0) => Infinity { negative },
            (0x7ff, _) => Nan {
                negative,
                payload: fraction << (LEAD - 52) & !QUIET,
            },
            (field, _) => normalised(negative, field - 1023, fraction | 1 << 52, 52),
        }
    }

    fn encode(value: Unpacked) -> u128 {
        let fraction = |significand: u128| significand >> (LEAD - 52) & ((1 << 52) - 1);
        let (negative, field, fraction) = match value {
            Nan { negative, payload } => (negative, 0x7ff, fraction(payload | QUIET)),
            Infinity { negative } => (negative, 0x7ff, 0),
            Zero { negative } => (negative, 0, 0),
            Finite {
                negative,
                exponent,
                significand,
            } if exponent < Self::EMIN => (
                negative,
                0,
                significand >> (LEAD - 52) >> (Self::EMIN - exponent),
            ),
            Finite {
                negative,
                exponent,
                significand,
            } => (negative, (exponent + 1023) as u128, fraction(significand)),
        };
        u128::from(negative) << 63 | field << 52 | fraction
    }
}

fn check(a: f64, b: f64) {
    let (x, y) = (u128::from(a.to_bits()), u128::from(b.to_bits()));
    let agree = |name: &str, soft: u128, hard: f64| {
        let soft = f64::from_bits(soft as u64);
        assert!(
            soft.to_bits() == hard.to_bits() || (soft.is_nan() && hard.is_nan()),
            "{a:e} {name} {b:e}: {soft:e}, not {hard:e}"
        );
    };
    agree("+", add::<F64>(x, y), a + b);
    agree("-", sub::<F64>(x, y), a - b);
    agree("*", mul::<F64>(x, y), a * b);
    assert_eq!(less::<F64>(x, y), a < b, "{a:e} < {b:e}");
    assert_eq!(equal::<F64>(x, y), a == b, "{a:e} == {b:e}");
}

#[test]
fn the_core_agrees_with_the_processor_in_binary64() {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.0 + f64::EPSILON,
        1.0 - f64::EPSILON / 2.0,
        f64::EPSILON / 2.0,
        f64::MIN_POSITIVE,
        -f64::MIN_POSITIVE.next_down(),
        5e-324,
        -5e-324,
        f64::MAX,
        -f64::MAX,
        f64::MAX / 2.0,
        2f64.powi(970),
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    for a in special {
        for b in special {
            check(a, b);
        }
    }
    let mut random = Rng::with_seed(1);
    let mut next = || random.u64(..);
    for round in 0..if cfg!(miri) { 100 } else { 400_000 } {
        let a = next();
        // Every second time the exponents are near each other, so that the significands meet.
        let mut b = next();
        if round % 2 == 0 {
            b = (b & !(0x7ff << 52)) | (a.wrapping_add((next() % 120) << 52) & (0x7ff << 52));
        }
        // Long runs of equal bits make ties and carries.
        let a = if round % 3 == 0 {
            a & !(u64::MAX >> (12 + next() % 52))
        } else {
            a
        };
        let b = if round % 5 == 0 {
            b | u64::MAX >> (12 + next() % 52)
        } else {
            b
        };
        check(f64::from_bits(a), f64::from_bits(b));
    }
}

/// Only ten bytes of an 80-bit number have a meaning.
const TEN_BYTES: u128 = (1 << 80) - 1;

#[test]
fn extended_precision_agrees_with_the_x87() {
    for [a, b, sum, product] in known::EXTENDED {
        assert_eq!(add::<F80>(a, b) & TEN_BYTES, sum, "{a:#x} + {b:#x}");
        assert_eq!(mul::<F80>(a, b) & TEN_BYTES, product, "{a:#x} * {b:#x}");
    }
}

#[test]
fn quadruple_precision_agrees_with_libgcc() {
    for [a, b, sum, product] in known::QUADRUPLE {
        assert_eq!(add::<F128>(a, b), sum, "{a:#x} + {b:#x}");
        assert_eq!(mul::<F128>(a, b), product, "{a:#x} * {b:#x}");
    }
}

#[test]
fn numbers_that_x87_rejects_become_nan_and_special_values_stay() {
    let one = 0x3fff_8000_0000_0000_0000u128;
    let infinity = 0x7fff_8000_0000_0000_0000u128;
    let indefinite = 0xffff_c000_0000_0000_0000u128;
    let unnormal = 0x3fff_4000_0000_0000_0000u128;
    assert_eq!(add::<F80>(one, unnormal), indefinite);
    assert_eq!(sub::<F80>(infinity, infinity), indefinite);
    assert_eq!(mul::<F80>(infinity, 0), indefinite);
    assert_eq!(add::<F80>(infinity, one), infinity);
    // A signalling NaN is made quiet and keeps its payload.
    assert_eq!(
        add::<F80>(0x7fff_8000_0000_0000_0123, one),
        0x7fff_c000_0000_0000_0123
    );
    assert!(!less::<F80>(one, indefinite) && !less::<F80>(indefinite, one));
    assert!(less::<F80>(1 << 79 | one, one) && !equal::<F80>(indefinite, indefinite));
    // What lies in the six unused bytes has no influence.
    assert_eq!(
        add::<F80>(one | 0xabcd << 80, one),
        0x4000_8000_0000_0000_0000
    );
}

/// A number with a fraction of `bits` bits, and `explicit` leading ones before it (1 or 0). Many
/// are special, subnormal, near 1, or have long runs of equal bits, which make ties and carries.
fn number(random: &mut Rng, bits: u32, explicit: u32, special: &[u128]) -> u128 {
    let ones = |n: u32| (1u128 << n) - 1;
    let sign = u128::from(random.bool()) << (bits + explicit + 15);
    let lead = u128::from(explicit) << bits;
    let mut fraction = random.u128(..) & ones(bits);
    match random.u8(0..4) {
        0 => fraction &= !ones(random.u32(0..bits)),
        1 => fraction |= ones(random.u32(0..bits)),
        _ => {}
    }
    let at = bits + explicit;
    sign | match random.u8(0..10) {
        0 => special[random.usize(0..special.len())],
        1 => fraction >> random.u32(0..bits),
        2..6 => random.u128(0x3fff - 75..0x3fff + 75) << at | lead | fraction,
        _ => random.u128(1..0x7fff) << at | lead | fraction,
    }
}

/// Compares with `A`, but for the bits of a NaN: of two NaNs either may be the result, and who
/// makes one chooses its sign.
fn agree<F: Format, A: Float>(bits: u32, explicit: u32) {
    let one = 0x3fff << (bits + explicit) | u128::from(explicit) << bits;
    let power = |n: u32| one - (u128::from(n) << (bits + explicit));
    let infinity = 0x7fff << (bits + explicit) | u128::from(explicit) << bits;
    let quiet = infinity | 1 << (bits - 1);
    let least_normal = 1 << (bits + explicit) | u128::from(explicit) << bits;
    let greatest = (infinity - (1 << (bits + explicit))) | ((1 << bits) - 1);
    let special = [
        0,
        1,
        (1 << bits) - 1,
        least_normal,
        least_normal + 1,
        greatest,
        infinity,
        quiet,
        quiet | 0x123,
        infinity | 1,
        one,
        one + 1,
        power(bits),
        power(bits) + 1,
        power(bits + 1),
        power(bits + 1) + 1,
    ];
    let meaning = (1u128 << (bits + explicit + 15) << 1).wrapping_sub(1);
    let mut random = Rng::with_seed(u64::from(bits));
    for _ in 0..if cfg!(miri) { 20 } else { 400_000 } {
        let a = number(&mut random, bits, explicit, &special);
        let b = number(&mut random, bits, explicit, &special);
        let (x, y) = (A::from_bits(a), A::from_bits(b));
        let same = |name: &str, ours: u128, other: A| {
            let ours = ours & meaning;
            let both_nan = A::from_bits(ours).is_nan() && other.is_nan();
            assert!(
                ours == other.to_bits() || both_nan,
                "{a:#x} {name} {b:#x}: {ours:#x}, not {:#x}",
                other.to_bits()
            );
        };
        same("+", add::<F>(a, b), (x + y).value);
        same("-", sub::<F>(a, b), (x - y).value);
        same("*", mul::<F>(a, b), (x * y).value);
        assert_eq!(less::<F>(a, b), x < y, "{a:#x} < {b:#x}");
        assert_eq!(equal::<F>(a, b), x == y, "{a:#x} == {b:#x}");
    }
}

#[test]
fn both_formats_agree_with_another_implementation() {
    agree::<F80, X87DoubleExtended>(63, 1);
    agree::<F128, Quad>(112, 0);
}
