//! Accumulating packed elements.

use margay_core_datatype::Basic;
use margay_core_reduce as reduce;
use margay_core_reduce::Op;
use margay_sys_os::cpu;

/// `inout[i] = inout[i] op input[i]` for packed elements. The operation has been checked against
/// the type.
#[inline]
pub(super) fn apply(op: Op, basic: Basic, inout: &mut [u8], input: &[u8]) {
    apply_by(cpu::Widest::FORWARDS, op, basic, inout, input);
}

/// As [`apply`], in a way of going through long operands. A single number, the case of counters,
/// takes no call.
#[inline(always)]
pub(super) fn apply_by(way: cpu::Widest<'_>, op: Op, basic: Basic, inout: &mut [u8], input: &[u8]) {
    if op != Op::NoOp && !reduce::apply_to_number(op, basic, inout, input) {
        apply_to_elements(way, op, basic, inout, input);
    }
}

/// Apart from single numbers, which the registers of all this would cost a quarter of their time.
#[inline(never)]
fn apply_to_elements(way: cpu::Widest<'_>, op: Op, basic: Basic, inout: &mut [u8], input: &[u8]) {
    if op == Op::Replace {
        inout.copy_from_slice(input);
        return;
    }
    if basic.size() == basic.extent() {
        way.apply(op, basic, inout, input)
            .expect("checked against the type");
        return;
    }
    // A pair with a hole: the reduction wants elements as they lie in C.
    let mut result = spread(basic, inout);
    let operand = spread(basic, input);
    cpu::Widest::FORWARDS
        .apply(op, basic, &mut result, &operand)
        .expect("checked against the type");
    for (packed, element) in elements(basic, inout.len()).zip(result.chunks(extent(basic))) {
        for (part, at, len) in parts(basic) {
            inout[packed + part..][..len].copy_from_slice(&element[at..at + len]);
        }
    }
}

/// Replaces the target by `new` if it equals `compare`.
pub(super) fn swap(target: &mut [u8], new: &[u8], compare: &[u8]) {
    if target == compare {
        target.copy_from_slice(new);
    }
}

fn extent(basic: Basic) -> usize {
    basic.extent() as usize
}

/// Returns where each of the packed elements starts.
fn elements(basic: Basic, bytes: usize) -> impl Iterator<Item = usize> {
    (0..bytes).step_by(basic.size() as usize)
}

/// Returns the parts of a pair: packed position, position in C, bytes.
fn parts(basic: Basic) -> [(usize, usize, usize); 2] {
    let (value, index) = basic.pair().expect("only pairs have holes");
    let (value, index) = (value.size() as usize, index.size() as usize);
    [
        (0, 0, value),
        (value, basic.index_displacement() as usize, index),
    ]
}

fn spread(basic: Basic, packed: &[u8]) -> Vec<u8> {
    let mut all = vec![0; packed.len() / basic.size() as usize * extent(basic)];
    for (at, element) in elements(basic, packed.len()).zip(all.chunks_mut(extent(basic))) {
        for (part, to, len) in parts(basic) {
            element[to..to + len].copy_from_slice(&packed[at + part..][..len]);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_with_holes_are_combined_whole() {
        let pair = |value: i16, index: i32| {
            let mut bytes = value.to_ne_bytes().to_vec();
            bytes.extend(index.to_ne_bytes());
            bytes
        };
        let mut target = [pair(5, 1), pair(7, 9)].concat();
        let input = [pair(6, 3), pair(7, 2)].concat();
        apply(Op::Maxloc, Basic::ShortInt, &mut target, &input);
        assert_eq!(target, [pair(6, 3), pair(7, 2)].concat());
    }

    #[test]
    fn replace_and_no_op() {
        let mut target = [1, 2];
        apply(Op::NoOp, Basic::Byte, &mut target, &[3, 4]);
        assert_eq!(target, [1, 2]);
        apply(Op::Replace, Basic::Byte, &mut target, &[3, 4]);
        assert_eq!(target, [3, 4]);
        swap(&mut target, &[9, 9], &[3, 5]);
        assert_eq!(target, [3, 4]);
        swap(&mut target, &[9, 9], &[3, 4]);
        assert_eq!(target, [9, 9]);
    }
}
