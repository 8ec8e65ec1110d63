//! Tests of claimed memory.

use super::*;

#[test]
fn owned_memory_is_read_and_written() {
    let m = Mem::from_vec((0..32).collect());
    let mut four = [0; 4];
    m.read(28, &mut four);
    assert_eq!(four, [28, 29, 30, 31]);
    let n = m.shifted(8);
    n.write(-8, &[9; 2]);
    m.with_bytes(0, 3, |b| assert_eq!(b, [9, 9, 2]));
}

#[test]
fn lengths_beyond_63_bits_are_not_covered() {
    let m = Mem::owned(8).shifted(4);
    assert!(m.covers(-4, 8) && m.covers(4, 0) && !m.covers(4, 1) && !m.covers(-5, 1));
    for len in [usize::MAX, usize::MAX - 3, 1 << 63, (1 << 63) + 1] {
        assert!(
            [-4, 0, 4, i64::MIN, i64::MAX]
                .iter()
                .all(|&at| !m.covers(at, len))
        );
    }
    // SAFETY: nothing is accessed.
    let all = unsafe { Mem::claim(std::ptr::null_mut(), i64::MIN, i64::MAX) };
    assert!(all.covers(i64::MIN, i64::MAX as usize) && !all.covers(i64::MIN, usize::MAX));
}

#[test]
#[should_panic(expected = "packed length")]
fn blocks_whose_lengths_together_overflow_are_refused() {
    let m = Mem::owned(8);
    m.gather(0, 1 << 32, 1 << 32, 0, &mut []);
}

#[test]
fn operands_are_apart_or_one_is_a_copy() {
    let m = Mem::from_vec((1..=6).collect());
    let add = |to: &mut [u8], from: &[u8]| to.iter_mut().zip(from).for_each(|(t, f)| *t += f);
    m.with_operands(0, &m, 3, 3, add);
    m.with_bytes(0, 6, |b| assert_eq!(b, [5, 7, 9, 4, 5, 6]));
    m.with_operands(1, &m, 0, 5, add);
    m.with_bytes(0, 6, |b| assert_eq!(b, [5, 12, 16, 13, 9, 11]));
    m.with_operands(0, &m, 0, 2, add);
    m.with_bytes(0, 2, |b| assert_eq!(b, [10, 24]));
    m.with_operands(2, &m, 2, 0, |to, from| {
        assert!(to.is_empty() && from.is_empty())
    });
}

#[test]
fn strided_copies_match_a_plain_loop() {
    for block in [1usize, 3, 4, 8, 16, 24] {
        let m = Mem::from_vec((0..=255).collect());
        let stride = block as i64 + 5;
        let count = 5;
        let mut packed = vec![0; block * count];
        m.gather(7, block, count, stride, &mut packed);
        for i in 0..count {
            for j in 0..block {
                let at = 7 + i * stride as usize + j;
                assert_eq!(packed[i * block + j] as usize, at);
            }
        }
        let back = Mem::owned(256);
        back.scatter(7, block, count, stride, &packed);
        let mut again = vec![0; block * count];
        back.gather(7, block, count, stride, &mut again);
        assert_eq!(again, packed);
    }
}

#[test]
fn words_are_gathered_and_scattered_by_index() {
    for size in [4, 8, 16] {
        let m = Mem::from_vec((0..=255).collect()).shifted(100);
        let offsets = [40, -91, 0, 39, -90, 3];
        let mut packed = vec![0; size * offsets.len()];
        m.gather_words(-9, size, &offsets, &mut packed);
        for (word, offset) in packed.chunks(size).zip(offsets) {
            let expected: Vec<u8> = (0..size).map(|j| (91 + offset) as u8 + j as u8).collect();
            assert_eq!(word, expected);
        }
        let back = Mem::owned(256).shifted(100);
        back.scatter_words(-9, size, &offsets[1..], &packed[size..]);
        let mut again = vec![0; size * 5];
        back.gather_words(-9, size, &offsets[1..], &mut again);
        assert_eq!(again[size * 4..], packed[size * 5..]);
        m.gather_words(0, size, &[], &mut []);
    }
}

#[test]
#[should_panic(expected = "outside of the claim")]
fn words_outside_of_the_claim_panic() {
    let m = Mem::owned(64).shifted(8);
    m.gather_words(-8, 8, &[0, 56, 57], &mut [0; 24]);
}

#[test]
fn negative_strides_stay_inside() {
    let m = Mem::from_vec((0..16).collect());
    let mut out = [0; 4];
    m.gather(12, 1, 4, -4, &mut out);
    assert_eq!(out, [12, 8, 4, 0]);
}

#[test]
fn claims_that_touch_are_joined() {
    let mut bytes = [0u8; 8];
    let base = bytes.as_mut_ptr().wrapping_add(2);
    // SAFETY: parts of an array that lives until the end of the test.
    let claim = |(lo, hi)| unsafe { Mem::claim(base, lo, hi) };
    let mut claims = [(0, 2), (2, 4), (4, 6)].map(claim);
    let both = claims[0].joined(&claims[1]).unwrap();
    assert!(both.covers(0, 4) && !both.covers(0, 5));
    assert!(claims[0].joined(&claims[2]).is_none());
    claims[2] = Mem::owned(1);
    assert!(both.joined(&claims[2]).is_none());
}

#[test]
fn pages_are_zero_and_copies_of_all_lengths_arrive() {
    let pages = Mem::pages(1 << 40).expect("address space");
    let source = Mem::from_vec((1..=40).collect());
    for len in 0..=33 {
        source.copy_to(3, &pages, 1 << 30, len);
        pages.with_bytes(1 << 30, 34, |b| {
            assert!((0..34).all(|i| b[i] == if i < len { i as u8 + 4 } else { 0 }));
        });
        pages.write(1 << 30, &[0; 34]);
    }
}

#[test]
#[should_panic(expected = "outside of the claimed")]
fn outside_of_the_claim_panics() {
    Mem::owned(8).write(4, &[0; 5]);
}

#[test]
fn what_is_not_covered_is_neither_put_nor_fetched() {
    let (sweep, mem) = (Sweep::new(), Mem::owned(8));
    let mut own = [7_u8; 4];
    // SAFETY: the array outlives the piece, and nothing else touches it meanwhile.
    let piece = unsafe { Piece::claim(own.as_mut_ptr(), own.len()) };
    for offset in [-1, 5, i64::MIN, i64::MAX] {
        assert!(!mem.put(offset, piece, &sweep) && !mem.get(offset, piece, &sweep));
    }
    mem.with_bytes(0, 8, |bytes| assert_eq!(bytes, [0; 8]));
    piece.with_bytes(|bytes| assert_eq!(bytes, [7; 4]));
    assert!(mem.put(4, piece, &sweep) && mem.get(2, piece, &sweep));
    mem.with_bytes(0, 8, |bytes| assert_eq!(bytes, [0, 0, 0, 0, 7, 7, 7, 7]));
    piece.with_bytes(|bytes| assert_eq!(bytes, [0, 0, 7, 7]));
}
