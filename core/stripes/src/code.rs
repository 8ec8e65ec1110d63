//! The codes: P is the exclusive or of the data units, Q is their sum in GF(256) with unit `i`
//! multiplied by the generator to the power `i` (the Reed-Solomon code of RAID 6). Any two units
//! of a row can be computed from the others.
//!
//! All loops run over words of eight bytes in pairs of slices, which the compiler turns into
//! vector instructions of the processor at hand without unsafe code.

/// The polynomial of the field, x^8 + x^4 + x^3 + x^2 + 1, without its highest term, eight times.
const POLYNOMIAL: u64 = 0x1d1d_1d1d_1d1d_1d1d;

const LOW_SEVEN: u64 = 0x7f7f_7f7f_7f7f_7f7f;
const ONES: u64 = 0x0101_0101_0101_0101;

/// Multiplies each of eight bytes by the generator.
fn twice(word: u64) -> u64 {
    let high = (word >> 7) & ONES;
    // All bits of the bytes whose highest bit goes: without a product, which vectors lack.
    let carried = (high << 8).wrapping_sub(high);
    ((word & LOW_SEVEN) << 1) ^ (carried & POLYNOMIAL)
}

/// Adds `from` to `to`, which may be longer.
fn add(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= *from;
    }
}

/// `to = 2 * to + from`; `from` may be shorter and is zero behind its end.
fn twice_and_add(to: &mut [u8], from: &[u8]) {
    let common = from.len().min(to.len()) / 8 * 8;
    let (head, tail) = to.split_at_mut(common);
    for (to, from) in head.chunks_exact_mut(8).zip(from.chunks_exact(8)) {
        let word = u64::from_le_bytes((&*to).try_into().expect("eight bytes"));
        let other = u64::from_le_bytes(from.try_into().expect("eight bytes"));
        to.copy_from_slice(&(twice(word) ^ other).to_le_bytes());
    }
    let rest = from.get(common..).unwrap_or_default();
    for (n, to) in tail.iter_mut().enumerate() {
        *to = twice(u64::from(*to)) as u8 ^ rest.get(n).copied().unwrap_or(0);
    }
}

/// Multiplies all bytes by a constant: one doubling for each of its bits.
fn scale(bytes: &mut [u8], by: u8) {
    let scaled = |mut word: u64| {
        let mut sum = 0;
        let mut bits = by;
        while bits != 0 {
            if bits & 1 != 0 {
                sum ^= word;
            }
            word = twice(word);
            bits >>= 1;
        }
        sum
    };
    let mut chunks = bytes.chunks_exact_mut(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes((&*chunk).try_into().expect("eight bytes"));
        chunk.copy_from_slice(&scaled(word).to_le_bytes());
    }
    for byte in chunks.into_remainder() {
        *byte = scaled(u64::from(*byte)) as u8;
    }
}

fn multiply(a: u8, b: u8) -> u8 {
    let mut one = [a];
    scale(&mut one, b);
    one[0]
}

/// The generator to the power `n`.
fn power(n: usize) -> u8 {
    (0..n % 255).fold(1, |value, _| multiply(value, 2))
}

/// The inverse of a value that is not zero: its power 254.
fn inverse(value: u8) -> u8 {
    (0..254).fold(1, |product, _| multiply(product, value))
}

/// Bytes of all units that are taken at a time: sums of this many stay in registers.
const STRIP: usize = 128;

/// The words of a strip.
type Strip = [u64; STRIP / 8];

/// The strip of a unit at `at`; zeros behind its end.
fn strip(unit: &[u8], at: usize) -> Strip {
    let mut padded = [0; STRIP];
    let bytes: &[u8] = if let Some(bytes) = unit.get(at..at + STRIP) {
        bytes
    } else {
        let rest = unit.get(at..).unwrap_or_default();
        padded[..rest.len()].copy_from_slice(rest);
        &padded
    };
    let mut words = [0; STRIP / 8];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    words
}

/// Writes a strip as far as the unit goes.
fn put_strip(unit: &mut [u8], at: usize, words: &Strip) {
    for (bytes, word) in unit[at..].chunks_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}

/// Computes all units of parity, which have the same length. Data units may be shorter; they are
/// zero behind their end. Every byte of data is read once.
pub fn encode(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    let len = parity.first().map_or(0, |p| p.len());
    for at in (0..len).step_by(STRIP) {
        let (mut p, mut q): (Strip, Strip) = ([0; STRIP / 8], [0; STRIP / 8]);
        if parity.len() == 1 {
            for unit in data {
                let words = strip(unit, at);
                for (p, word) in p.iter_mut().zip(words) {
                    *p ^= word;
                }
            }
        } else {
            for unit in data.iter().rev() {
                let words = strip(unit, at);
                for ((p, q), word) in p.iter_mut().zip(&mut q).zip(words) {
                    *p ^= word;
                    *q = twice(*q) ^ word;
                }
            }
        }
        for (unit, sum) in parity.iter_mut().zip([&p, &q]) {
            put_strip(unit, at, sum);
        }
    }
}

/// Computes `len` bytes of the unit `wanted` from those that are there; `units` has all units of
/// the row, the data units first, none for those that are lost. Units may be shorter than `len`;
/// they are zero behind their end. Returns none when too many are lost.
#[must_use]
pub fn recover(data: usize, units: &[Option<&[u8]>], wanted: usize, len: usize) -> Option<Vec<u8>> {
    if let Some(unit) = units.get(wanted).copied().flatten() {
        let mut whole = vec![0; len];
        add(&mut whole, unit);
        return Some(whole);
    }
    let lost: Vec<usize> = (0..data).filter(|n| units[*n].is_none()).collect();
    if wanted >= data {
        return recover_parity(data, units, &lost, wanted - data, len);
    }
    let p = units.get(data).copied().flatten();
    let q = units.get(data + 1).copied().flatten();
    match (lost.as_slice(), p, q) {
        ([_], Some(p), _) => {
            let mut sum = vec![0; len];
            add(&mut sum, p);
            units[..data]
                .iter()
                .flatten()
                .for_each(|u| add(&mut sum, u));
            Some(sum)
        }
        ([x], None, Some(q)) => {
            let mut sum = weighted(&units[..data], len);
            add(&mut sum, q);
            scale(&mut sum, inverse(power(*x)));
            Some(sum)
        }
        ([x, y], Some(p), Some(q)) => {
            // With the known units taken away: x + y = p and g^x x + g^y y = q.
            let mut p_rest = vec![0; len];
            add(&mut p_rest, p);
            units[..data]
                .iter()
                .flatten()
                .for_each(|u| add(&mut p_rest, u));
            let mut q_rest = weighted(&units[..data], len);
            add(&mut q_rest, q);
            let mut first = p_rest.clone();
            scale(&mut first, power(*y));
            add(&mut first, &q_rest);
            scale(&mut first, inverse(power(*x) ^ power(*y)));
            if wanted == *y {
                add(&mut first, &p_rest);
            }
            Some(first)
        }
        _ => None,
    }
}

/// The sum of the units that are there, each multiplied by its power of the generator.
fn weighted(units: &[Option<&[u8]>], len: usize) -> Vec<u8> {
    let mut sum = vec![0; len];
    for unit in units.iter().rev() {
        twice_and_add(&mut sum, unit.unwrap_or_default());
    }
    sum
}

fn recover_parity(
    data: usize,
    units: &[Option<&[u8]>],
    lost: &[usize],
    which: usize,
    len: usize,
) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    for n in lost {
        found.push((*n, recover(data, units, *n, len)?));
    }
    let whole: Vec<&[u8]> = (0..data)
        .map(|n| {
            let computed = found.iter().find(|(lost, _)| *lost == n);
            units[n].unwrap_or_else(|| computed.map_or(&[], |(_, unit)| unit))
        })
        .collect();
    let mut p = vec![0; len];
    if which == 0 {
        encode(&whole, &mut [&mut p]);
        return Some(p);
    }
    let mut q = vec![0; len];
    encode(&whole, &mut [&mut p, &mut q]);
    Some(q)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(seed: &mut u64, len: usize) -> Vec<u8> {
        (0..len)
            .map(|_| {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (*seed >> 56) as u8
            })
            .collect()
    }

    #[test]
    fn the_field_has_inverses_and_distinct_powers() {
        let mut seen = std::collections::BTreeSet::new();
        let every = if cfg!(miri) { 50 } else { 1 };
        for n in (0..255).step_by(every) {
            assert!(seen.insert(power(n)));
        }
        for value in (1..=255).step_by(every) {
            assert_eq!(multiply(value, inverse(value)), 1);
        }
    }

    /// Every set of at most `parity` lost units of rows of all shapes, short units included.
    #[test]
    fn any_units_up_to_the_parity_are_recovered() {
        let mut seed = 1;
        let shapes: &[(usize, usize)] = match cfg!(miri) {
            true => &[(3, 1), (2, 2)],
            false => &[(1, 1), (3, 1), (1, 2), (2, 2), (5, 2), (9, 2)],
        };
        for &(data, parity) in shapes {
            let len = 72;
            let units: Vec<Vec<u8>> = (0..data)
                .map(|n| bytes(&mut seed, if n + 1 == data { 43 } else { len }))
                .collect();
            let mut coded = vec![vec![0; len]; parity];
            encode(
                &units.iter().map(Vec::as_slice).collect::<Vec<_>>(),
                &mut coded.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(),
            );
            let all: Vec<&[u8]> = units.iter().chain(&coded).map(Vec::as_slice).collect();
            for a in 0..data + parity {
                for b in 0..data + parity {
                    if parity == 1 && a != b {
                        continue;
                    }
                    let left: Vec<Option<&[u8]>> = (0..data + parity)
                        .map(|n| (n != a && n != b).then_some(all[n]))
                        .collect();
                    for lost in [a, b] {
                        let mut right = all[lost].to_vec();
                        right.resize(len, 0);
                        let got = recover(data, &left, lost, len);
                        assert_eq!(got, Some(right), "{data}+{parity} without {a}, {b}");
                    }
                }
            }
        }
    }

    #[test]
    fn too_many_lost_units_are_not_invented() {
        let unit: &[u8] = &[1; 16];
        assert_eq!(recover(2, &[None, None, Some(unit)], 0, 16), None);
        assert_eq!(recover(2, &[None, Some(unit), None], 0, 16), None);
        assert_eq!(recover(2, &[None, None, Some(unit), None], 1, 16), None);
        assert_eq!(recover(1, &[None], 0, 16), None);
    }
}
