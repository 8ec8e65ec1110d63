//! The cache line of a packet, drawn in `docs/segment.md`.
//!
//! ```text
//! word 0   sequence (low 32)  kind 8 | form 8 | length 16 (high 32)
//! word 1   context (high)     tag (low)
//! word 2   source (high)      word (low)
//! whole:   words 3..8         the first 40 bytes of the payload; the rest in the lines behind
//! chunk:   words 3, 4 args    word 5: heap offset of the bytes, word 6: of the flag
//! ```

use margay_net_transport::{Head, SHORT};
use margay_sys_shm::ring::{self, LineWords, fill_words};

/// Smallest fragment of a longer payload, in bytes.
pub(crate) const LEAST_CHUNK: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole = 0,
    Chunk = 1,
}

#[inline]
pub(crate) fn top(kind: u8, form: Form, len: usize) -> u32 {
    u32::from(kind) | (form as u32) << 8 | (len as u32) << 16
}

#[inline]
pub(crate) fn form_and_len(top: u32) -> (Form, usize) {
    let form = match top >> 8 & 0xff {
        0 => Form::Whole,
        _ => Form::Chunk,
    };
    (form, (top >> 16) as usize)
}

#[inline]
pub(crate) fn head(top: u32, words: &LineWords) -> Head {
    Head {
        kind: top as u8,
        context: (words[0] >> 32) as u32,
        tag: words[0] as u32,
        source: (words[1] >> 32) as u32,
        word: words[1] as u32,
    }
}

/// Writes the words behind word 0 of a packet in one piece; of the payload only the first [`SHORT`]
/// bytes.
#[inline]
pub(crate) fn whole(words: &mut LineWords, head: Head, payload: &[u8]) {
    [words[0], words[1]] = envelope(head);
    fill_words(&mut words[2..], &payload[..payload.len().min(SHORT)]);
}

#[inline]
pub(crate) fn in_chunk(head: Head, args: [u64; 2]) -> LineWords {
    let [a, b] = envelope(head);
    [a, b, args[0], args[1], 0, 0, 0]
}

// The ring marks lines that tell of chunks, and knows no others.
const _: () = assert!(ring::CHUNK == (Form::Chunk as u32) << 8);

#[inline]
pub(crate) fn envelope(head: Head) -> [u64; 2] {
    [
        u64::from(head.context) << 32 | u64::from(head.tag),
        u64::from(head.source) << 32 | u64::from(head.word),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_as_drawn() {
        let h = Head {
            kind: 0x11,
            context: 0x2222_2222,
            source: 0x3333_3333,
            tag: 0x4444_4444,
            word: 0x5555_5555,
        };
        let mut words = [0; 7];
        whole(&mut words, h, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(words[0], 0x2222_2222_4444_4444);
        assert_eq!(words[1], 0x3333_3333_5555_5555);
        assert_eq!(words[2], u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(words[3], 9);
        let t = top(0x11, Form::Chunk, 0x1234);
        assert_eq!(t, 0x1234_0111);
        assert_eq!(form_and_len(t), (Form::Chunk, 0x1234));
        assert_eq!(head(t, &words), h);
    }
}
