//! Floating-point numbers that Rust has no type for: x87's 80-bit extended precision and IEEE 754
//! binary128.
//!
//! A number is unpacked to a sign, an exponent and a 127-bit significand, the operation is done
//! exactly or with a sticky last bit, and the result is rounded once, to nearest with ties to even.
//! The sticky bit ("jamming") is Hauser's, from his SoftFloat. Subnormals, infinities, signed zeros
//! and NaNs (kept, and made quiet) are those of the processor.
//!
//! The crate `rustc_apfloat` gives the same numbers and takes longer (64 KiB, AMD EPYC: sums 67 µs
//! here and 152 µs there, products 42 and 124, minima 15 and 23 for x87; 69 and 148, 42 and 119, 15
//! and 17 for binary128), so tests compare with it.

/// A 16-byte format.
pub trait Format: Copy {
    /// Bits of the significand, the leading one included.
    const PRECISION: u32;
    /// Exponent of the least normal number.
    const EMIN: i32;
    /// Exponent of the greatest number.
    const EMAX: i32;
    /// From the bytes of a number, the least significant first.
    fn decode(bits: u128) -> Unpacked;
    /// To the bytes of a number that [`Format::PRECISION`] bits hold.
    fn encode(value: Unpacked) -> u128;
}

/// x87 extended precision: 64 bits of significand with an explicit leading one, 15 of exponent,
/// sign; 6 bytes unused.
#[derive(Debug, Clone, Copy)]
pub struct F80;

/// IEEE 754 binary128.
#[derive(Debug, Clone, Copy)]
pub struct F128;

/// A number taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unpacked {
    /// With its payload, aligned like a significand, without the quiet bit.
    Nan {
        negative: bool,
        payload: u128,
    },
    Infinity {
        negative: bool,
    },
    Zero {
        negative: bool,
    },
    /// `significand * 2^(exponent - 126)` with bit 126 of the significand set.
    Finite {
        negative: bool,
        exponent: i32,
        significand: u128,
    },
}

use Unpacked::*;

/// Position of the leading one in an unpacked significand; the bit above takes a carry.
const LEAD: u32 = 126;

/// The bit below the leading one, which tells a quiet NaN.
const QUIET: u128 = 1 << (LEAD - 1);

/// What an invalid operation gives on x86: the "real indefinite".
const INDEFINITE: Unpacked = Nan {
    negative: true,
    payload: 0,
};

/// The sum, correctly rounded.
pub fn add<F: Format>(a: u128, b: u128) -> u128 {
    F::encode(add_unpacked::<F>(F::decode(a), F::decode(b)))
}

/// The difference, correctly rounded.
pub fn sub<F: Format>(a: u128, b: u128) -> u128 {
    let b = match F::decode(b) {
        Nan { negative, payload } => Nan { negative, payload },
        Infinity { negative } => Infinity {
            negative: !negative,
        },
        Zero { negative } => Zero {
            negative: !negative,
        },
        Finite {
            negative,
            exponent,
            significand,
        } => Finite {
            negative: !negative,
            exponent,
            significand,
        },
    };
    F::encode(add_unpacked::<F>(F::decode(a), b))
}

/// The product, correctly rounded.
pub fn mul<F: Format>(a: u128, b: u128) -> u128 {
    F::encode(mul_unpacked::<F>(F::decode(a), F::decode(b)))
}

/// `a < b`; false when either is a NaN.
pub fn less<F: Format>(a: u128, b: u128) -> bool {
    match (order(F::decode(a)), order(F::decode(b))) {
        (Some(a), Some(b)) => a < b,
        _ => false,
    }
}

/// `a == b`; false when either is a NaN, true for zeros of different signs.
pub fn equal<F: Format>(a: u128, b: u128) -> bool {
    match (order(F::decode(a)), order(F::decode(b))) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// A key that sorts as the numbers do; `None` for a NaN.
fn order(value: Unpacked) -> Option<(i32, i128)> {
    let (negative, exponent, significand) = match value {
        Nan { .. } => return None,
        Zero { .. } => return Some((0, 0)),
        Infinity { negative } => (negative, 1 << 20, 0),
        // Shifted to be positive whatever the exponent.
        Finite {
            negative,
            exponent,
            significand,
        } => (negative, exponent + (1 << 19), significand as i128),
    };
    Some(if negative {
        (-exponent, -significand)
    } else {
        (exponent, significand)
    })
}

fn add_unpacked<F: Format>(a: Unpacked, b: Unpacked) -> Unpacked {
    match (a, b) {
        (Nan { .. }, _) => a,
        (_, Nan { .. }) => b,
        (Infinity { negative: x }, Infinity { negative: y }) if x != y => INDEFINITE,
        (Infinity { .. }, _) => a,
        (_, Infinity { .. }) => b,
        (Zero { negative: x }, Zero { negative: y }) => Zero { negative: x && y },
        (Zero { .. }, _) => b,
        (_, Zero { .. }) => a,
        (
            Finite {
                negative: an,
                exponent: ae,
                significand: am,
            },
            Finite {
                negative: bn,
                exponent: be,
                significand: bm,
            },
        ) => {
            let ((negative, exponent, big), (other, smaller, small)) = if (ae, am) >= (be, bm) {
                ((an, ae, am), (bn, be, bm))
            } else {
                ((bn, be, bm), (an, ae, am))
            };
            let small = shift_right_sticky(small, (exponent - smaller) as u32);
            match if negative == other {
                big + small
            } else {
                big - small
            } {
                0 => Zero { negative: false },
                sum => round::<F>(negative, exponent, sum),
            }
        }
    }
}

fn mul_unpacked<F: Format>(a: Unpacked, b: Unpacked) -> Unpacked {
    let sign = |x: Unpacked| match x {
        Nan { negative, .. }
        | Infinity { negative }
        | Zero { negative }
        | Finite { negative, .. } => negative,
    };
    let negative = sign(a) != sign(b);
    match (a, b) {
        (Nan { .. }, _) => a,
        (_, Nan { .. }) => b,
        (Infinity { .. }, Zero { .. }) | (Zero { .. }, Infinity { .. }) => INDEFINITE,
        (Infinity { .. }, _) | (_, Infinity { .. }) => Infinity { negative },
        (Zero { .. }, _) | (_, Zero { .. }) => Zero { negative },
        (
            Finite {
                exponent: ae,
                significand: am,
                ..
            },
            Finite {
                exponent: be,
                significand: bm,
                ..
            },
        ) => {
            // Bit 252 or 253 leads the product; its upper half leads at bit 124 or 125.
            let (high, low) = wide_mul(am, bm);
            round::<F>(negative, ae + be + 2, high | u128::from(low != 0))
        }
    }
}

/// The number `significand * 2^(exponent - 126)`, not zero and not normalised, with a sticky last
/// bit, in the format's precision and range.
fn round<F: Format>(negative: bool, exponent: i32, significand: u128) -> Unpacked {
    let zeros = significand.leading_zeros() as i32;
    let mut exponent = exponent + 1 - zeros;
    let mut significand = if zeros == 0 {
        shift_right_sticky(significand, 1)
    } else {
        significand << (zeros - 1)
    };
    // Subnormals have fewer bits: those that stay above 2^(EMIN - PRECISION + 1).
    let lost = (F::EMIN - exponent).max(0) as u32;
    significand = shift_right_sticky(significand, lost);
    exponent += lost as i32;
    let unit = 1u128 << (LEAD + 1 - F::PRECISION);
    let rest = significand & (unit - 1);
    significand -= rest;
    if rest > unit / 2 || (rest == unit / 2 && significand & unit != 0) {
        significand += unit;
    }
    if significand == 0 {
        return Zero { negative };
    }
    let zeros = significand.leading_zeros() as i32;
    exponent += 1 - zeros;
    significand = if zeros == 0 {
        significand >> 1
    } else {
        significand << (zeros - 1)
    };
    if exponent > F::EMAX {
        Infinity { negative }
    } else {
        Finite {
            negative,
            exponent,
            significand,
        }
    }
}

/// `value >> n`, with the last bit set when any bit that fell off was.
fn shift_right_sticky(value: u128, n: u32) -> u128 {
    match n {
        0 => value,
        1..128 => value >> n | u128::from(value << (128 - n) != 0),
        _ => u128::from(value != 0),
    }
}

/// The 256-bit product as (high, low).
fn wide_mul(a: u128, b: u128) -> (u128, u128) {
    const HALF: u128 = u64::MAX as u128;
    let (a1, a0, b1, b0) = (a >> 64, a & HALF, b >> 64, b & HALF);
    let low = a0 * b0;
    let middle = a1 * b0 + (low >> 64);
    let other = a0 * b1 + (middle & HALF);
    (
        a1 * b1 + (middle >> 64) + (other >> 64),
        other << 64 | low & HALF,
    )
}

/// A number whose significand is `fraction` (not zero) with its unit at 2^(exponent - bits),
/// normalised.
fn normalised(negative: bool, exponent: i32, fraction: u128, bits: u32) -> Unpacked {
    let zeros = fraction.leading_zeros();
    let exponent = exponent + 127 - zeros as i32 - bits as i32;
    Finite {
        negative,
        exponent,
        significand: fraction << zeros >> 1,
    }
}

const EXPONENT_MASK: u128 = 0x7fff;
const BIAS: i32 = 16383;

impl Format for F80 {
    const PRECISION: u32 = 64;
    const EMIN: i32 = 1 - BIAS;
    const EMAX: i32 = BIAS;

    fn decode(bits: u128) -> Unpacked {
        let significand = bits as u64;
        let field = (bits >> 64 & EXPONENT_MASK) as i32;
        let negative = bits >> 79 & 1 != 0;
        let fraction = u128::from(significand << 1 >> 1) << (LEAD - 63);
        match (field, significand) {
            (0, 0) => Zero { negative },
            (0, _) => normalised(negative, Self::EMIN, u128::from(significand), 63),
            (0x7fff, 0x8000_0000_0000_0000) => Infinity { negative },
            (0x7fff, _) => Nan {
                negative,
                payload: fraction & !QUIET,
            },
            // Without its leading one it is no number to the processor either.
            (_, _) if significand >> 63 == 0 => INDEFINITE,
            (_, _) => normalised(negative, field - BIAS, u128::from(significand), 63),
        }
    }

    fn encode(value: Unpacked) -> u128 {
        let (negative, field, significand) = match value {
            Nan { negative, payload } => (
                negative,
                EXPONENT_MASK,
                (payload | QUIET | 1 << LEAD) >> (LEAD - 63),
            ),
            Infinity { negative } => (negative, EXPONENT_MASK, 1 << 63),
            Zero { negative } => (negative, 0, 0),
            Finite {
                negative,
                exponent,
                significand,
            } if exponent < Self::EMIN => (
                negative,
                0,
                significand >> (LEAD - 63) >> (Self::EMIN - exponent),
            ),
            Finite {
                negative,
                exponent,
                significand,
            } => (
                negative,
                (exponent + BIAS) as u128,
                significand >> (LEAD - 63),
            ),
        };
        u128::from(negative) << 79 | field << 64 | significand
    }
}

impl Format for F128 {
    const PRECISION: u32 = 113;
    const EMIN: i32 = 1 - BIAS;
    const EMAX: i32 = BIAS;

    fn decode(bits: u128) -> Unpacked {
        let fraction = bits & ((1 << 112) - 1);
        let field = (bits >> 112 & EXPONENT_MASK) as i32;
        let negative = bits >> 127 != 0;
        match (field, fraction) {
            (0, 0) => Zero { negative },
            (0, _) => normalised(negative, Self::EMIN, fraction, 112),
            (0x7fff, 0) => Infinity { negative },
            (0x7fff, _) => Nan {
                negative,
                payload: fraction << (LEAD - 112) & !QUIET,
            },
            (_, _) => normalised(negative, field - BIAS, fraction | 1 << 112, 112),
        }
    }

    fn encode(value: Unpacked) -> u128 {
        let fraction = |significand: u128| significand >> (LEAD - 112) & ((1 << 112) - 1);
        let (negative, field, fraction) = match value {
            Nan { negative, payload } => (negative, EXPONENT_MASK, fraction(payload | QUIET)),
            Infinity { negative } => (negative, EXPONENT_MASK, 0),
            Zero { negative } => (negative, 0, 0),
            Finite {
                negative,
                exponent,
                significand,
            } if exponent < Self::EMIN => (
                negative,
                0,
                significand >> (LEAD - 112) >> (Self::EMIN - exponent),
            ),
            Finite {
                negative,
                exponent,
                significand,
            } => (negative, (exponent + BIAS) as u128, fraction(significand)),
        };
        u128::from(negative) << 127 | field << 112 | fraction
    }
}

#[cfg(test)]
mod tests;
