use super::*;
use crate::segment::tests::{roomy, small};
use std::mem::offset_of;

#[test]
fn the_inbox_is_as_drawn() {
    assert_eq!([1, 2, 33].map(cells_offset), [4096, 4096, 8192]);
    assert_eq!(blocks_offset(2), 4096 + 2 * 32_768);
    assert_eq!(all_bytes(2), 4096 + 2 * (32_768 + 65_536));
    let parts = [
        (size_of::<Desk>(), 128),
        (offset_of!(Desk, newest), 0),
        (offset_of!(Desk, returned), 64),
        (offset_of!(InboxCell, next), 0),
        (offset_of!(InboxCell, mark), 8),
        (offset_of!(InboxCell, words), 16),
        (size_of::<InboxCell>(), 128),
        (size_of::<Block>(), 4096),
    ];
    assert_eq!(parts.map(|(is, _)| is), parts.map(|(_, drawn)| drawn));
    assert_eq!(
        (CELLS, CELL_BYTES, BLOCKS, BLOCK_BYTES),
        (256, 96, 16, 4096)
    );
    assert_eq!(CELL_BYTES, 8 * (WORDS - PAYLOAD));
}

fn ends(segment: &Arc<Segment>, rank: u32) -> (Outbox, Inbox) {
    (
        Outbox::new(segment, rank).expect("the first one"),
        Inbox::new(segment, rank),
    )
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seed * 31 + i) as u8).collect()
}

#[test]
fn messages_of_all_lengths_arrive_in_order_and_cells_come_back() {
    let segment = Arc::new(small(3));
    let (mut zero, _) = ends(&segment, 0);
    let (mut one, _) = ends(&segment, 1);
    let (_, mut inbox) = ends(&segment, 2);
    for round in 0..200 {
        for (who, out) in [&mut zero, &mut one].into_iter().enumerate() {
            for k in 0..3 {
                let len = (round * 37 + k * 1031 + who) % (BLOCK_BYTES + 1);
                let sent = out.push(2, 7 | OWN, &bytes(round, len), |words| {
                    (words[0], words[1]) = (k as u64, len as u64);
                });
                assert!(sent);
            }
        }
        let mut next = [0, 0];
        while inbox.has_next() {
            let from = inbox.take(|letter| {
                assert_eq!(letter.top, 7, "nobody else marks what is the module's");
                assert!(letter.opened().is_none() && letter.closed().is_none());
                let [k, len, ..] = *letter.words();
                assert_eq!(k, next[letter.from as usize]);
                let payload = letter.payload(len as usize);
                payload.with(|got| assert_eq!(got, bytes(round, len as usize)));
                true
            });
            next[from.unwrap() as usize] += 1;
        }
        assert_eq!(next, [3, 3]);
    }
}

#[test]
fn a_sender_has_so_many_cells_and_those_of_the_dead_come_back() {
    let segment = Arc::new(small(3));
    let (mut out, _) = ends(&segment, 0);
    let (_, mut living) = ends(&segment, 1);
    let (_, mut dead) = ends(&segment, 2);
    for cell in 0..CELLS as u32 {
        assert!(out.push(1 + cell % 2, 0, &[], |words| words[0] = u64::from(cell)));
    }
    assert!(!out.push(1, 0, &[], |_| unreachable!()) && !out.has_room(0));
    // The one that dies has given a cell back, and read others that it has not.
    assert_eq!(dead.take(|_| true), Some(0));
    assert_eq!(dead.take(|_| false), None);
    out.forget(2);
    assert!(out.has_room(0), "what was given back is here");
    assert_eq!(out.free.len(), 1, "its process is there");
    segment.registry().set_exited(2, false);
    out.forget(2);
    assert_eq!(out.free.len(), CELLS / 2);
    let mut free = out.free.clone();
    free.sort_unstable();
    free.dedup();
    assert_eq!(free.len(), CELLS / 2, "no cell comes twice");
    while out.push(1, 0, &[], |words| words[0] = 1000) {}
    for expected in (0..CELLS as u64).step_by(2).chain(vec![1000; CELLS / 2]) {
        assert_eq!(living.take(|letter| letter.words()[0] == expected), Some(0));
    }
    assert!(!living.has_next());
}

#[test]
fn a_rank_has_one_sending_side() {
    let segment = Arc::new(small(2));
    let first = Outbox::new(&segment, 1);
    assert!(first.is_some() && Outbox::new(&segment, 1).is_none());
    assert!(Outbox::new(&segment, 0).is_some());
}

#[test]
fn a_message_that_is_not_read_stays_the_oldest() {
    let segment = Arc::new(small(2));
    let (mut out, mut inbox) = ends(&segment, 1);
    assert!(out.push(1, 0, &[1], |_| {}) && out.push(1, 0, &[2], |_| {}));
    for (read, byte) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let from = inbox.take(|letter| {
            letter.payload(1).with(|got| assert_eq!(got, [byte]));
            read
        });
        assert_eq!(from, read.then_some(1));
    }
}

#[test]
fn rings_begin_and_end_in_the_order_of_the_messages() {
    let segment = Arc::new(roomy());
    let (mut out, _) = ends(&segment, 0);
    let (_, mut inbox) = ends(&segment, 1);
    let mut tx = Producer::create(&segment).unwrap();
    for round in 0..3 {
        assert!(out.push_opened(1, &tx));
        assert!(tx.push(0, |words| words[0] = round));
        assert!(out.push_closed(1, &tx));
        assert!(!tx.restart());
        let mut rx = None;
        inbox.take(|letter| {
            rx = letter.opened();
            assert!(letter.is_of_ring() && letter.opened().is_none(), "once");
            true
        });
        let mut rx = rx.expect("a ring");
        let mut end = None;
        inbox.take(|letter| {
            end = letter.closed();
            true
        });
        assert_eq!(rx.peek().unwrap().1[0], round);
        rx.release(1);
        assert_eq!(end, Some(rx.position()));
        rx.leave();
        assert!(tx.restart());
    }
}

#[test]
fn a_chunk_is_lent_once_and_by_no_other_message() {
    let segment = Arc::new(roomy());
    let (mut out, _) = ends(&segment, 0);
    let (_, mut inbox) = ends(&segment, 1);
    let mut pool = Pool::create(&segment).unwrap();
    assert!(out.push(1, OWN, &[], |words| *words =
        [segment.layout.heap_offset; WORDS]));
    assert_eq!(inbox.drain(8, |_| unreachable!()), None);
    inbox.take(|_| true);
    let chunk = pool.take().unwrap();
    pool.fill(&chunk, 5, |to| to.copy_from_slice(b"bytes"));
    assert!(out.push_chunk(1, 3, [9; 7], &mut pool, chunk));
    let mut seen = Vec::new();
    assert_eq!(inbox.drain(5, |got| seen.extend_from_slice(got)), Some(0));
    assert_eq!(seen, b"bytes");
    assert_eq!(inbox.drain(5, |_| unreachable!()), None);
}

#[test]
fn what_a_peer_has_overwritten_leads_nowhere() {
    let segment = Arc::new(small(2));
    let (mut out, mut inbox) = ends(&segment, 0);
    let shared = Home::Segment(segment.clone());
    let newest = &shared.desk(0).newest;
    newest.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(inbox.take(|_| true), None);
    // A circle of one.
    assert!(out.push(0, 0, &[], |_| {}));
    let cell = newest.load(Ordering::Relaxed);
    shared
        .cell(cell as usize - 1)
        .next
        .store(cell, Ordering::Relaxed);
    let mut read = 0;
    while inbox.take(|_| true).is_some() {
        read += 1;
    }
    assert_eq!(read, 2 * CELLS);
    shared.desk(0).returned.0[1].store(u64::MAX, Ordering::Relaxed);
    out.reclaim();
    assert_eq!(
        out.free.len(),
        CELLS,
        "a cell that was here is not here twice"
    );
}

#[test]
fn many_senders_overtake_each_other_but_not_themselves() {
    let segment = Arc::new(small(4));
    let n: u64 = if cfg!(miri) { 20 } else { 50_000 };
    std::thread::scope(|scope| {
        for rank in 1..4 {
            let mut out = Outbox::new(&segment, rank).unwrap();
            scope.spawn(move || {
                let mut sent = 0;
                while sent < n {
                    let payload = bytes(sent as usize, sent as usize % 200);
                    if out.push(0, 0, &payload, |words| (words[0], words[1]) = (sent, !sent)) {
                        sent += 1;
                    } else {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut inbox = Inbox::new(&segment, 0);
        let mut next = [n, 0, 0, 0];
        while next != [n; 4] {
            let read = inbox.take(|letter| {
                let sent = next[letter.from as usize];
                assert_eq!(letter.words()[..2], [sent, !sent]);
                let expected = bytes(sent as usize, sent as usize % 200);
                letter
                    .payload(expected.len())
                    .with(|got| assert_eq!(got, expected));
                true
            });
            match read {
                Some(from) => next[from as usize] += 1,
                None => std::thread::yield_now(),
            }
        }
    });
}

/// However many ranks there are: rings, pool, cells and blocks, transfer cells, slots and lanes of
/// the world's board.
#[test]
fn what_a_rank_takes_is_less_than_a_mebibyte() {
    let rings = ring::MOST * (ring::size_bytes() + 128);
    let pool = (pool::CHUNKS * (pool::CHUNK + 128)) as u64;
    let own = all_bytes(1000).div_ceil(1000);
    let (transfer_cells, slots, lanes) = (64 * 128, 4 * 4096, 2 * 4096);
    let all = rings + pool + own + transfer_cells + slots + lanes;
    assert!(all < 1 << 20, "{all} bytes");
}
