use super::*;
use crate::layout::Sizes;
use std::mem::offset_of;

#[test]
fn the_pipe_is_as_drawn() {
    assert_eq!((size_bytes(), align_of::<Shared>()), (16_512, 128));
    assert_eq!(offset_of!(Shared, heads), 0);
    assert_eq!(offset_of!(Heads, lines), 0);
    assert_eq!(offset_of!(Heads, producer), 8);
    assert_eq!(offset_of!(Heads, consumer), 12);
    assert_eq!(offset_of!(Shared, lines), 128);
    assert_eq!(size_of::<Line>(), 64);
    assert_eq!(offset_of!(Line, mark), 0);
    assert_eq!(offset_of!(Line, words), 8);
    assert_eq!((LINES, MAX_LINES, LINE_BYTES), (256, 128, 56));
}

fn pattern(i: u64, len: usize) -> Vec<u8> {
    (0..len).map(|j| (i as usize * 31 + j) as u8).collect()
}

#[test]
fn a_million_messages_arrive_whole_and_in_order() {
    let (mut tx, mut rx) = in_private_memory();
    let n: u64 = if cfg!(miri) { 300 } else { 300_000 };
    let length = |i: u64| (i * 37 % (LINE_BYTES as u64 * 90)) as usize;
    std::thread::scope(|s| {
        s.spawn(move || {
            let mut i = 0u64;
            while i < n {
                let sent = if i.is_multiple_of(3) {
                    tx.push_run(1, |words| *words = [i; 7], &pattern(i, length(i)))
                } else {
                    tx.push(0, |words| *words = [i, i ^ 0x5555, 3, 4, 5, 6, !i])
                };
                if sent {
                    i += 1;
                } else {
                    std::thread::yield_now();
                }
            }
        });
        for i in 0..n {
            let (top, words) = loop {
                match rx.peek() {
                    Some(line) => break line,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(words[0], i);
            if top == 1 {
                let mut bytes = vec![0; length(i)];
                let mut done = 0;
                while done < bytes.len() {
                    done = rx.copy_run(&mut bytes, done);
                }
                assert_eq!(bytes, pattern(i, length(i)), "message {i}");
                rx.release(1 + bytes.len().div_ceil(LINE_BYTES) as u64);
            } else {
                assert_eq!((words[1], words[6]), (i ^ 0x5555, !i));
                rx.release(1);
            }
        }
    });
}

#[test]
fn a_full_ring_says_so_and_goes_on() {
    let (mut tx, mut rx) = in_private_memory();
    let mut pushed = 0;
    while tx.push(0, |words| *words = [pushed; 7]) {
        pushed += 1;
    }
    assert_eq!(pushed, LINES);
    assert!(!tx.push_run(0, |words| *words = [0; 7], &[1; 100]));
    for i in 0..LINES {
        assert_eq!(rx.peek().unwrap().1[0], i);
        rx.release(1);
    }
    assert!(rx.peek().is_none());
    assert!(tx.push(0, |words| *words = [7; 7]));
    assert_eq!(rx.peek().unwrap().1[0], 7);
}

#[test]
fn the_longest_message_always_finds_room_in_an_empty_ring() {
    let (mut tx, mut rx) = in_private_memory();
    let most = (MAX_LINES as usize - 1) * LINE_BYTES;
    for step in 1..2000usize {
        for len in [step * 131 % most, most] {
            assert!(
                tx.push_run(0, |words| *words = [0; 7], &vec![0; len]),
                "{len} bytes"
            );
            rx.release(1 + len.div_ceil(LINE_BYTES) as u64);
        }
    }
}

#[test]
fn a_ring_has_one_producer_and_one_consumer() {
    let segment = Arc::new(
        Segment::create(Sizes {
            ranks: 2,
            heap_bytes: 1 << 20,
            arena_bytes: 1 << 21,
        })
        .unwrap(),
    );
    let mut tx = Producer::create(&segment).unwrap();
    let place = tx.place().unwrap();
    let rx = Consumer::open(&segment, place, 0).unwrap();
    assert!(Consumer::open(&segment, place, 0).is_none());
    let elsewhere = RingPlace {
        offset: place.offset + 8,
        ..place
    };
    assert!(Consumer::open(&segment, elsewhere, 0).is_none());
    assert!(tx.push(9, |words| *words = [1; 7]));
    assert_eq!(rx.peek().unwrap().0, 9);
}

#[test]
fn a_ring_goes_on_with_another_consumer() {
    let segment = Arc::new(crate::segment::tests::roomy());
    let mut tx = Producer::create(&segment).unwrap();
    let place = tx.place().unwrap();
    let mut expected = 0;
    for life in 0..5 {
        assert!(!tx.restart(), "nobody has left");
        let mut rx = Consumer::open(&segment, place, tx.position()).unwrap();
        for _ in 0..LINES + 10 * life {
            assert!(tx.push(0, |words| words[0] = expected));
            assert_eq!(rx.peek().unwrap().1[0], expected);
            rx.release(1);
            expected += 1;
        }
        assert!(!tx.restart(), "it may still read");
        assert_eq!(rx.position(), tx.position());
        rx.leave();
        assert!(Consumer::open(&segment, place, 0).is_none());
        assert!(tx.restart());
    }
    let _killed = Consumer::open(&segment, place, tx.position()).unwrap();
    assert!(!tx.restart_without(1), "its process is there");
    segment.registry().set_exited(1, false);
    assert!(tx.restart_without(1));
}
