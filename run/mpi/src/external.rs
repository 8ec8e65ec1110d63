//! The representation "external32" (MPI 5.0, section 14.5.2): big-endian, IEEE, with sizes that are
//! the same everywhere.

use margay_core_datatype::{Basic, Class, Combiner, Datatype, Repr};

/// One number: its bytes here, its bytes outside, and how it is stored here.
struct Number {
    native: usize,
    external: usize,
    repr: Repr,
}

/// Returns the bytes of `count` elements in external32; `None` beyond 2^64.
#[must_use]
pub fn size(datatype: &Datatype, count: u64) -> Option<u64> {
    let mut bytes = 0;
    visit(datatype, &mut |number| bytes += number.external as u64);
    count.checked_mul(bytes)
}

/// Turns `count` packed elements into external32.
#[must_use]
pub fn from_native(datatype: &Datatype, count: u64, mut packed: &[u8]) -> Vec<u8> {
    let mut external = Vec::new();
    for _ in 0..count {
        visit(datatype, &mut |number| {
            let (bytes, rest) = packed.split_at(number.native);
            packed = rest;
            if number.repr == Repr::F80 {
                let value = u128::from_ne_bytes(bytes.try_into().expect("sixteen bytes"));
                external.extend(widen(value).to_be_bytes());
            } else {
                // The low bytes, in the other order.
                external.extend(
                    little(bytes)
                        .take(number.external)
                        .collect::<Vec<_>>()
                        .iter()
                        .rev(),
                );
            }
        });
    }
    external
}

/// The reverse of [`from_native`]; `external` has [`size`] bytes.
#[must_use]
pub fn to_native(datatype: &Datatype, count: u64, mut external: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    for _ in 0..count {
        visit(datatype, &mut |number| {
            let (bytes, rest) = external.split_at(number.external);
            external = rest;
            if number.repr == Repr::F80 {
                let value = u128::from_be_bytes(bytes.try_into().expect("sixteen bytes"));
                packed.extend(narrow(value).to_ne_bytes());
                return;
            }
            let negative = bytes[0] & 0x80 != 0 && number.repr == Repr::I64;
            let fill = if negative { 0xff } else { 0 };
            let mut little: Vec<u8> = bytes.iter().rev().copied().collect();
            little.resize(number.native, fill);
            if cfg!(target_endian = "big") {
                little.reverse();
            }
            packed.extend(little);
        });
    }
    packed
}

/// Returns the bytes here of the numbers that are complete in the first `external` bytes of an
/// element.
#[must_use]
pub fn native_prefix(datatype: &Datatype, external: u64) -> u64 {
    let (mut left, mut native, mut open) = (external, 0, true);
    visit(datatype, &mut |number| {
        open &= left >= number.external as u64;
        if open {
            left -= number.external as u64;
            native += number.native as u64;
        }
    });
    native
}

/// Returns the bytes from the least significant one on.
fn little(bytes: &[u8]) -> Box<dyn Iterator<Item = u8> + '_> {
    if cfg!(target_endian = "big") {
        Box::new(bytes.iter().rev().copied())
    } else {
        Box::new(bytes.iter().copied())
    }
}

/// Calls `f` with every number of one element, in the order of packed data.
fn visit(datatype: &Datatype, f: &mut impl FnMut(&Number)) {
    if let Some((basic, n)) = datatype.uniform() {
        for _ in 0..n {
            numbers(basic, f);
        }
        return;
    }
    match datatype.combiner() {
        Combiner::Struct {
            blocklengths,
            types,
            ..
        } => {
            for (&blocklength, child) in blocklengths.iter().zip(types) {
                for _ in 0..blocklength {
                    visit(child, f);
                }
            }
        }
        other => {
            // Those that repeat nothing are uniform.
            let Some(old) = other.repeated() else { return };
            for _ in 0..datatype.size().checked_div(old.size()).unwrap_or(0) {
                visit(old, f);
            }
        }
    }
}

/// The numbers of a predefined type: two of a pair and of a complex type.
fn numbers(basic: Basic, f: &mut impl FnMut(&Number)) {
    if let Some((value, index)) = basic.pair() {
        numbers(value, f);
        numbers(index, f);
        return;
    }
    let parts = if basic.class() == Class::Complex {
        2
    } else {
        1
    };
    let native = basic.size() as usize / parts;
    let external = match basic {
        Basic::Long | Basic::UnsignedLong => 4,
        Basic::Wchar => 2,
        _ => native,
    };
    for _ in 0..parts {
        f(&Number {
            native,
            external,
            repr: basic.repr(),
        });
    }
}

/// From the x87 format to binary128: the same exponent, 49 more bits of fraction, no explicit one.
fn widen(x87: u128) -> u128 {
    let sign_exponent = (x87 >> 64) & 0xffff;
    let fraction = x87 & ((1 << 63) - 1);
    sign_exponent << 112 | fraction << 49
}

/// The reverse of [`widen`], rounded to nearest, ties to even.
fn narrow(binary: u128) -> u128 {
    let exponent = (binary >> 112) & 0x7fff;
    let fraction = binary & ((1 << 112) - 1);
    let kept = fraction >> 49;
    let rest = fraction & ((1 << 49) - 1);
    let half = 1u128 << 48;
    let up = exponent != 0x7fff && (rest > half || (rest == half && kept & 1 == 1));
    let one = if exponent == 0 { 0 } else { 1u128 << 63 };
    let mantissa = one + kept + u128::from(up);
    let (mantissa, exponent) = if mantissa >> 64 == 1 {
        // Rounded up to the next power of two.
        (mantissa >> 1, exponent + 1)
    } else {
        (mantissa, exponent)
    };
    ((binary >> 127) << 15 | exponent) << 64 | mantissa
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn numbers_are_big_endian_and_come_back() {
        let int = Arc::new(Datatype::basic(Basic::Int));
        let long = Arc::new(Datatype::basic(Basic::Long));
        let mixed = Datatype::structure(&[2, 1], &[0, 8], &[int, long]).unwrap();
        let mut packed = Vec::new();
        packed.extend(1i32.to_ne_bytes());
        packed.extend((-2i32).to_ne_bytes());
        packed.extend((-3i64).to_ne_bytes());
        assert_eq!(size(&mixed, 1), Some(12));
        let external = from_native(&mixed, 1, &packed);
        assert_eq!(
            external,
            [0, 0, 0, 1, 255, 255, 255, 254, 255, 255, 255, 253]
        );
        assert_eq!(to_native(&mixed, 1, &external), packed);
    }

    #[test]
    fn long_doubles_become_binary128() {
        // 1.5 and -0.75 in the x87 format.
        for (x87, quad) in [
            (0x3fff_c000_0000_0000_0000u128, 0x3fff_8000u128 << 96),
            (0xbffe_c000_0000_0000_0000, 0xbffe_8000 << 96),
            (0, 0),
        ] {
            assert_eq!(widen(x87), quad);
            assert_eq!(narrow(quad), x87);
        }
        // Just below 2: rounds up to it.
        assert_eq!(
            narrow(0x3fff_ffff_ffff_ffff_ffff_ffff_ffff_ffff),
            0x4000_8000_0000_0000_0000
        );
    }
}
