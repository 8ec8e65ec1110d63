//! IEEE 754 binary16 by way of binary32, which has enough bits that rounding twice is rounding once (for one addition
//! or multiplication: Figueroa, "When is double rounding innocuous?", 1995).

/// The value of a binary16 bit pattern.
pub(crate) fn to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let exponent = u32::from(bits >> 10) & 0x1f;
    let fraction = u32::from(bits) & 0x3ff;
    match exponent {
        // Zero and subnormal: exact in binary32.
        0 => f32::from_bits((fraction as f32 * f32::from_bits(0x3380_0000)).to_bits() | sign),
        0x1f => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// The binary16 bit pattern nearest to `value`, ties to even.
pub(crate) fn from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00 | (magnitude >> 13) as u16 & 0x3ff;
    }
    // 65520, the middle between the largest number and what would be the next.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    // Below 2^-14: the spacing is 2^-24; adding 0.5 (whose last bit is 2^-24) rounds to it.
    if magnitude < 0x3880_0000 {
        let rounded = f32::from_bits(magnitude) + 0.5;
        return sign | (rounded.to_bits() - 0.5f32.to_bits()) as u16;
    }
    let odd = magnitude >> 13 & 1;
    sign | ((magnitude - (112 << 23) + 0xfff + odd) >> 13) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_survives_the_round_trip() {
        for bits in 0..=u16::MAX {
            let value = to_f32(bits);
            if value.is_nan() {
                assert!(bits & 0x7c00 == 0x7c00 && from_f32(value) & 0x7e00 == 0x7e00);
            } else {
                assert_eq!(from_f32(value), bits, "{value}");
            }
        }
        assert_eq!(to_f32(0x3c00), 1.0);
        assert_eq!(to_f32(0x7bff), 65504.0);
        assert_eq!(to_f32(0x8001), -(2f32.powi(-24)));
    }

    #[test]
    fn rounding_is_to_the_nearest_and_to_even_on_ties() {
        // Between every two neighbours: just below the middle, the middle, just above.
        for bits in 0..0x7bff_u16 {
            let (low, high) = (to_f32(bits), to_f32(bits + 1));
            let middle = (low + high) / 2.0;
            assert_eq!(from_f32(middle), bits + (bits & 1));
            assert_eq!(from_f32(middle.next_down()), bits);
            assert_eq!(from_f32(middle.next_up()), bits + 1);
            assert_eq!(from_f32(-middle.next_up()), 0x8000 | (bits + 1));
        }
        assert_eq!(from_f32(65519.996), 0x7bff);
        assert_eq!(from_f32(65520.0), 0x7c00);
        assert_eq!(from_f32(f32::MAX), 0x7c00);
    }
}
