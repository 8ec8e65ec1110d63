//! The loops of reductions, compiled for the vector instructions of this processor.
//!
//! What a reduction costs that does not fit the first cache is the way of the lines from the second
//! one, and a load from two lines at once takes both of them there. One of two operands mostly lies
//! so, wherever a loop begins: `malloc` gives memory that begins 16 bytes behind the start of a
//! line, a window's memory begins with a line. So a loop here begins where a line of the operand
//! begins that is changed, loads whole lines of the other one as well, and joins the halves that
//! belong together in registers. 64 KiB of doubles that lie as described, on an AMD Zen 5: 0.69 µs,
//! as long as it takes to load their lines; 0.76 with loads across lines, 0.83 with these and
//! vectors of 32 bytes. 16 KiB: 0.10, 0.11, 0.17 µs.
//!
//! So for vectors of 64 bytes only: in those of 32 the compiler makes a line of products of bytes,
//! of complex numbers, or of minima half as slow again as in loops over all of them.

use std::arch::x86_64::*;

use margay_core_reduce::each;

use crate::sweep::from_the_end;

/// Operands of fewer bytes are done before it is known how they lie.
pub(crate) const SHORT: usize = 2048;

/// Bytes of a line of the caches.
const LINE: usize = 64;

/// Which bytes a loop of lines takes.
struct Lines {
    /// Where the first line of the operand that is changed begins.
    start: usize,
    /// The number of bytes before that at which a line of the other one begins.
    shift: usize,
    /// How many lines of the operand that is changed; of the other one there is one more.
    count: usize,
}

impl Lines {
    /// None at all where elements of `N` bytes lie across the ends of lines, or other bytes do than
    /// whole words of 32 bits.
    #[inline]
    fn of<const N: usize>(inout: &[u8], input: &[u8]) -> Lines {
        let len = inout.len().min(input.len());
        let mut start = (inout.as_ptr() as usize).wrapping_neg() % LINE;
        let shift = (input.as_ptr() as usize).wrapping_add(start) % LINE;
        if len < 3 * LINE || !start.is_multiple_of(N) || !shift.is_multiple_of(4) {
            return Lines {
                start: 0,
                shift: 0,
                count: 0,
            };
        }
        if start < shift {
            start += LINE;
        }
        let count = (len - start + shift) / LINE - 1;
        Lines {
            start,
            shift,
            count,
        }
    }

    /// The lines of both operands.
    #[inline]
    fn take<'a>(
        &self,
        inout: &'a mut [u8],
        input: &'a [u8],
    ) -> (&'a mut [[u8; LINE]], &'a [[u8; LINE]]) {
        let blocks = &mut inout[self.start..][..self.count * LINE];
        let lines = &input[self.start - self.shift..][..(self.count + 1) * LINE];
        (blocks.as_chunks_mut().0, lines.as_chunks().0)
    }

    /// The bytes before and behind the lines.
    fn rest(&self, len: usize) -> [std::ops::Range<usize>; 2] {
        let end = self.start + self.count * LINE;
        [0..self.start, end..len]
    }
}

/// `inout[i] = f(input[i], inout[i])` in vectors of 64 bytes, blocks of about that many bytes from
/// the last one on.
#[target_feature(enable = "avx,avx2,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn map_avx512<const N: usize>(
    inout: &mut [u8],
    input: &[u8],
    block: usize,
    f: impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    const { assert!(LINE.is_multiple_of(N)) }
    let range = Lines::of::<N>(inout, input);
    if range.count > 0 {
        let (changed, lines) = range.take(inout, input);
        let numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let words = _mm512_add_epi32(numbers, _mm512_set1_epi32((range.shift / 4) as i32));
        // SAFETY: the line is readable and begins at a multiple of its length.
        let load = |line: &[u8; LINE]| unsafe { _mm512_load_si512(line.as_ptr().cast()) };
        for part in from_the_end(range.count, block / LINE) {
            let lines = &lines[part.start..=part.end];
            let mut line = load(&lines[0]);
            for (changed, next) in changed[part].iter_mut().zip(&lines[1..]) {
                let next = load(next);
                let joined = _mm512_permutex2var_epi32(line, words, next);
                // SAFETY: as many bytes, which may have any value.
                let joined: [u8; LINE] = unsafe { std::mem::transmute(joined) };
                each(changed, &joined, &f);
                line = next;
            }
        }
    }
    for rest in range.rest(inout.len()) {
        let (blocks, last) = inout[rest.clone()].as_chunks_mut::<LINE>();
        let (lines, last_input) = input[rest].as_chunks::<LINE>();
        // Of a length that the compiler knows: most memory begins and ends so that a whole line is
        // left on either side.
        for (block, line) in blocks.iter_mut().zip(lines) {
            each(block, line, &f);
        }
        each(last, last_input, &f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way for two operands to lie, with lengths that end anywhere.
    fn is_as_each<const N: usize>(map: impl Fn(&mut [u8], &[u8])) {
        let room: Vec<u8> = (0..2048u32)
            .map(|n| (n * 7 + (n >> 8) * 13) as u8)
            .collect();
        let input: Vec<u8> = room.iter().map(|b| b.rotate_left(3) ^ 0x5a).collect();
        for at in 0..70 {
            for from in 0..70 {
                for len in [0, 1, 5, 63, 64, 130, 200, 517, 1024].map(|elements| elements / N * N) {
                    let (mut found, mut expected) = (room.clone(), room.clone());
                    map(&mut found[at..][..len], &input[from..][..len]);
                    each(&mut expected[at..][..len], &input[from..][..len], mix::<N>);
                    assert!(
                        found == expected,
                        "{len} bytes at {at} with those at {from}"
                    );
                }
            }
        }
    }

    fn mix<const N: usize>(a: [u8; N], b: [u8; N]) -> [u8; N] {
        std::array::from_fn(|n| a[n].wrapping_mul(3) ^ b[N - 1 - n])
    }

    #[test]
    fn vectors_of_64_bytes_give_what_single_elements_give() {
        if !crate::cpu::has_avx512() {
            return eprintln!("not tested: this processor has not the instructions");
        }
        // SAFETY: it has them.
        is_as_each::<1>(|inout, input| unsafe { map_avx512(inout, input, 256, mix::<1>) });
        // SAFETY: as above.
        is_as_each::<8>(|inout, input| unsafe { map_avx512(inout, input, inout.len(), mix::<8>) });
        // SAFETY: as above.
        is_as_each::<16>(|inout, input| unsafe { map_avx512(inout, input, 256, mix::<16>) });
    }

    /// All reductions, of operands that are long enough for lines, which begin at different places
    /// in them.
    #[test]
    fn reductions_are_the_same_with_any_instructions() {
        use crate::cpu::Widest;
        use margay_core_reduce::{Basic, Op, apply, is_valid};

        // Bytes that make no NaN: of two, either may be the result.
        let room: Vec<u8> = (0..8192u32)
            .map(|n| (n * 7 + (n >> 8) * 13) as u8 & 0x3f)
            .collect();
        let input: Vec<u8> = room.iter().rev().map(|b| b ^ 0x15).collect();
        let pairs = Basic::ALL
            .iter()
            .flat_map(|basic| Op::ALL.iter().map(move |op| (*basic, *op)));
        for (basic, op) in pairs.filter(|(basic, op)| is_valid(*op, *basic)) {
            for (at, from) in [(0, 16), (16, 0), (3, 5), (16, 16), (64, 4)] {
                let len = 5000 / basic.extent() as usize * basic.extent() as usize;
                let (mut found, mut expected) = (room.clone(), room.clone());
                let input = &input[from..][..len];
                (Widest::FORWARDS.apply(op, basic, &mut found[at..][..len], input)).unwrap();
                apply(op, basic, &mut expected[at..][..len], input).unwrap();
                assert!(
                    found == expected,
                    "{op} of {basic} at {at} with those at {from}"
                );
            }
        }
    }
}
