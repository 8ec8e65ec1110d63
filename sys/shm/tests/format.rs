//! Reads a segment of version 9 that was put together byte by byte from `docs/segment.md`, with
//! nothing of the code that writes segments: a change of the layout shows here, and asks for a new
//! version.

#![cfg(not(loom))]

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use margay_core_registry::markers::{self, Row};
use margay_core_registry::{Phase, WaitKind, place};
use margay_sys_os::user::Mem;
use margay_sys_shm::board::Board;
use margay_sys_shm::inbox::Inbox;
use margay_sys_shm::ring::{CHUNK, Consumer};
use margay_sys_shm::segment::Segment;
use margay_sys_shm::transfer::{self, End};

const CELLS: u64 = 4096;
const CELL_BYTES: u64 = 768;
const INBOXES: u64 = 8192;
const INBOX_CELLS: u64 = INBOXES + 4096;
const INBOX_BLOCKS: u64 = INBOX_CELLS + RANKS * 32_768;
const HEAP: u64 = 208_896;
/// The table of boards comes first in the heap.
const TABLE_BYTES: u64 = 98_432;
const PIPE: u64 = 309_248;
const FLAGS: u64 = 327_680;
const CHUNKS: u64 = 331_776;
const TRANSFER: u64 = 897_024;
const BOARD: u64 = 913_408;
const NOTE: u64 = 1_507_200;
const HEAP_NEXT: u64 = 1_507_328;
const HEAP_END: u64 = 2 << 20;
const ARENA_BYTES: u64 = 2 << 20;
const RANKS: u64 = 2;

/// A file in memory that fields are written into.
struct Image(File);

impl Image {
    fn new() -> Image {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create(c"old", flags).unwrap());
        file.set_len(HEAP_END + RANKS * ARENA_BYTES).unwrap();
        Image(file)
    }

    fn bytes(&self, at: u64, bytes: &[u8]) {
        self.0.write_all_at(bytes, at).unwrap();
    }

    fn u32(&self, at: u64, value: u32) {
        self.bytes(at, &value.to_ne_bytes());
    }

    fn u64(&self, at: u64, value: u64) {
        self.bytes(at, &value.to_ne_bytes());
    }

    fn join(&self) -> Segment {
        Segment::join(OwnedFd::from(self.0.try_clone().unwrap())).unwrap()
    }
}

/// The header of version 9.
fn header() -> Image {
    let image = Image::new();
    image.bytes(0, b"MARGAY\0\x09");
    image.u32(8, RANKS as u32);
    image.u32(12, 16);
    image.u64(16, HEAP_END + RANKS * ARENA_BYTES);
    image.u64(24, CELLS);
    image.u64(32, INBOXES);
    image.u64(40, HEAP);
    image.u64(48, HEAP_END);
    image.u64(56, HEAP_END);
    image.u64(64, ARENA_BYTES);
    image.u64(72, 4711);
    image.u64(80, 123_456_789);
    image.u32(88, 4711);
    image.u32(92, 2);
    image.u32(96, -7i32 as u32);
    image.u32(100, 10);
    image.bytes(104, b"./a.out -x");
    image.u64(640, HEAP_NEXT);
    image
}

#[test]
fn the_header_is_read() {
    let segment = header().join();
    let facts = segment.registry().facts();
    assert_eq!(segment.ranks(), 2);
    assert_eq!(facts.cores, 16);
    assert_eq!(facts.job, 4711);
    assert_eq!(facts.started_ns, 123_456_789);
    assert_eq!(facts.launcher, 4711);
    assert_eq!(segment.registry().aborted(), Some((1, -7)));
    assert_eq!(facts.command, "./a.out -x");
    assert_eq!(segment.heap_used(), HEAP_NEXT - HEAP);
    assert_eq!(segment.heap_alloc(100), Some(HEAP_NEXT));
    assert_eq!(segment.arena_bytes(), ARENA_BYTES);
}

#[test]
fn the_cell_of_a_rank_is_read() {
    let image = header();
    let cell = CELLS + CELL_BYTES;
    image.u32(cell + 4, 1);
    image.u32(cell + 64, 1234);
    image.u32(cell + 68, 3);
    image.u32(cell + 72, 1);
    image.u32(cell + 76, 5);
    image.u32(cell + 80, 1);
    image.bytes(cell + 88, b"MPI_Recv");
    // The third of eight waits is one; one thread more waits without an entry.
    let wait = cell + 192 + 2 * 64;
    image.u32(wait, 6);
    image.u32(wait + 4, 1240);
    image.u32(wait + 8, 1);
    image.u32(wait + 12, 0);
    image.u32(wait + 16, 42);
    image.u32(wait + 20, 1);
    image.u32(wait + 24, 8);
    image.u64(wait + 32, 99);
    image.u32(cell + 192 + 8 * 64, 1);
    let segment = image.join();
    let registry = segment.registry();
    assert!(registry.event_count(1).has_sleepers());
    assert!(!registry.event_count(0).has_sleepers());
    let identity = registry.identity(1);
    assert_eq!(
        (identity.pid, identity.core, identity.program),
        (1234, Some(2), 5)
    );
    assert_eq!(registry.phase(1), Phase::Running);
    assert!(registry.has_exited(1));
    assert_eq!(registry.call(1), "MPI_Recv");
    let waits = registry.waits(1);
    assert_eq!((waits.listed.len(), waits.unlisted), (1, 1));
    let waiting = waits.first().unwrap();
    assert_eq!((waiting.thread, waiting.kind), (1240, WaitKind::Receive));
    assert_eq!((waiting.peer, waiting.tag), (Some(0), Some(42)));
    assert_eq!((waiting.context, waiting.since_ns), (8, 99));
    assert_eq!(registry.waits(0).listed, []);
    image.u32(CELLS + CELL_BYTES + 72, 3);
    assert_eq!(registry.phase(1), Phase::Joined);
}

#[test]
fn the_place_of_a_process_is_read() {
    let image = header();
    let slot = CELLS + CELL_BYTES + 120;
    image.u32(slot, u32::from_be_bytes(*b"NXpl"));
    image.u32(slot + 4, 2);
    image.u64(slot + 8, NOTE);
    image.u64(NOTE, 8 << 32 | 5);
    image.u64(NOTE + 8, 9);
    let segment = Arc::new(image.join());
    let note = segment.note(1, place::KEY).unwrap();
    assert_eq!(place::started_as(Some(&note), 1), (4, 8));
    assert_eq!(place::process_type(Some(&note)), 9);
    assert!(segment.note(0, place::KEY).is_none());
}

#[test]
fn a_row_of_markers_is_read() {
    let image = header();
    // The second note of the rank.
    let slot = CELLS + CELL_BYTES + 120 + 16;
    image.u32(slot, u32::from_be_bytes(*b"MPLm"));
    image.u32(slot + 4, 16);
    image.u64(slot + 8, NOTE);
    image.u64(NOTE, 6);
    image.u32(NOTE + 8, 4);
    image.u32(NOTE + 12, 11);
    image.bytes(NOTE + 16, &[0, 1, 99, 4, 5]);
    image.bytes(NOTE + 48, b"iteration 7 and what was there before");
    let segment = Arc::new(image.join());
    assert!(segment.note(0, markers::KEY).is_none());
    let note = segment.note(1, markers::KEY).unwrap();
    let shown = Row::of(&note).unwrap().read();
    assert_eq!(shown.lights, [0, 1, 99, 4]);
    assert_eq!(shown.text, "iteration 7");
}

/// Where the cell of rank 0 with that number lies.
fn inbox_cell(index: u64) -> u64 {
    INBOX_CELLS + 128 * index
}

/// Rank 0 has made a ring to rank 1, announced by its cell 3, the only one in the inbox of rank 1.
fn begun(image: &Image) {
    image.u64(INBOXES + 128, 1 + 3);
    image.u64(inbox_cell(3) + 8, 1 << 41);
    image.u64(inbox_cell(3) + 16, PIPE);
    image.u64(inbox_cell(3) + 24, 0);
    image.u32(PIPE + 8, 1);
}

/// The ring of which the oldest message in the inbox of rank 1 tells.
fn opened(segment: &Arc<Segment>) -> Consumer {
    let mut ring = None;
    let from = Inbox::new(segment, 1).take(|letter| {
        ring = letter.opened();
        true
    });
    assert_eq!(from, Some(0));
    ring.expect("a ring that begins")
}

#[test]
fn an_inbox_is_read_and_its_cells_are_given_back() {
    let image = header();
    // From the oldest to the newest: cell 200 of rank 1 with a message in the cell, cell 7 of rank
    // 0 with one in block 2, cell 70 of rank 0 with the end of a ring.
    let one = INBOX_CELLS + 32_768 + 128 * 200;
    image.u64(INBOXES + 128, 1 + 70);
    image.u64(inbox_cell(70), 1 + 7);
    image.u64(inbox_cell(70) + 8, 1 << 42);
    image.u64(inbox_cell(70) + 24, 99);
    image.u64(inbox_cell(7), 1 + 256 + 200);
    image.u64(inbox_cell(7) + 8, 0x0100_0007 << 32 | 3);
    image.bytes(INBOX_BLOCKS + 2 * 4096, &[5; 256]);
    image.u64(one + 8, 0x0005_0009 << 32);
    image.u64(one + 16, 11);
    image.bytes(one + 32, b"short");
    let segment = Arc::new(image.join());
    let mut inbox = Inbox::new(&segment, 1);
    let mut taken = 0;
    let mut check = |from, top, payload: &[u8], end| {
        let taken_from = inbox.take(|letter| {
            assert_eq!((letter.top, letter.closed()), (top, end));
            letter
                .payload(payload.len())
                .with(|got| assert_eq!(got, payload));
            taken += 1;
            true
        });
        assert_eq!(taken_from, Some(from));
    };
    check(1, 0x0005_0009, b"short", None);
    check(0, 0x0100_0007, &[5; 256], None);
    check(0, 0, &[], Some(99));
    assert!(!inbox.has_next());
    let returned = |rank: u64, word: u64| {
        let mut bytes = [0; 8];
        let at = INBOXES + 128 * rank + 64 + 8 * word;
        image.0.read_exact_at(&mut bytes, at).unwrap();
        u64::from_ne_bytes(bytes)
    };
    assert_eq!(
        [0, 1].map(|word| returned(0, word)),
        [1 << 7, 1 << (70 - 64)]
    );
    assert_eq!(returned(1, 3), 1 << (200 - 192));
}

#[test]
fn a_pipe_and_its_runs_of_lines_are_read() {
    let image = header();
    begun(&image);
    // A message of one line, then one of three; the caller's word is in the high half.
    let line = |position: u64| PIPE + 128 + 64 * position;
    image.u64(line(0), 7 << 32 | 1);
    image.bytes(line(0) + 8, &[1; 56]);
    image.u64(line(1), 9 << 32 | 2);
    image.u64(line(2), 3);
    image.bytes(line(2) + 8, &[2; 56]);
    image.u64(line(3), 4);
    image.bytes(line(3) + 8, &[3; 4]);
    let segment = Arc::new(image.join());
    let mut pipe = opened(&segment);
    assert_eq!(pipe.peek(), Some((7, [0x0101_0101_0101_0101; 7])));
    pipe.release(1);
    assert_eq!(pipe.peek().unwrap().0, 9);
    let mut rest = [0; 60];
    assert_eq!(pipe.copy_run(&mut rest, 0), 60);
    assert_eq!(rest[..56], [2; 56]);
    assert_eq!(rest[56..], [3; 4]);
    pipe.release(3);
    assert_eq!(pipe.peek(), None);
}

#[test]
fn a_chunk_of_a_pool_is_read_and_given_back() {
    let image = header();
    let (flag, bytes) = (FLAGS + 2 * 128, CHUNKS + 2 * 32_768);
    image.u32(flag, 1);
    image.bytes(bytes, b"a fragment");
    begun(&image);
    let line = PIPE + 128;
    image.u64(line, 0x000a_0107 << 32 | 1);
    image.u64(line + 40, bytes);
    image.u64(line + 48, flag);
    let segment = Arc::new(image.join());
    let mut pipe = opened(&segment);
    assert_eq!(pipe.peek().unwrap().0, 0x000a_0007 | CHUNK);
    let mut seen = Vec::new();
    assert!(pipe.drain(10, |b| seen.extend_from_slice(b)));
    assert_eq!(seen, b"a fragment");
    let mut given_back = [9; 4];
    image.0.read_exact_at(&mut given_back, flag).unwrap();
    assert_eq!(given_back, [0; 4]);
}

#[test]
fn a_transfer_cell_is_read() {
    let image = header();
    let cell = TRANSFER + 3 * 128;
    image.u32(cell, 2);
    image.u64(cell + 8, 1000);
    image.u64(cell + 16, 400);
    image.u32(cell + 24, 77);
    image.u64(cell + 32, 0x7000);
    image.u64(cell + 40, 2);
    image.u64(cell + 48, 400);
    image.u64(cell + 56, 401);
    let segment = image.join();
    assert!(transfer::at(&segment, 1, cell).is_none());
    image.u64(CELLS + CELL_BYTES + 184, TRANSFER);
    let cell = transfer::at(&segment, 1, cell).unwrap();
    let target = cell.target().unwrap();
    assert_eq!(
        (target.pid, target.address, target.bytes),
        (77, 0x7000, 1000)
    );
    assert_eq!(cell.claim(End::Front), Some((800, 200)));
    assert_eq!(cell.take_back(), Some((400, 400)));
    assert!(!cell.is_complete());
    cell.finish(600);
    assert!(cell.is_complete());
}

#[test]
fn a_board_is_found_in_the_table_and_read() {
    let image = header();
    let key = 0xfeed;
    image.u32(HEAP + 4, 1);
    image.u64(HEAP + 8, key);
    image.u64(HEAP + 8 + 8, BOARD);
    image.u32(HEAP + 8 + 16, 2);
    const { assert!(HEAP + TABLE_BYTES <= PIPE) };
    // Rank 0 has a board and has put its part of operations 1 to 6: eight bytes in the last, and it
    // has staged some more and arrived. Rank 1 has left no trace but the result of operation 5.
    // Four operations have places of their own: operation 6 has the third, 5 the second.
    let slots = BOARD + 25_216;
    let rank_1 = slots + 4 * 4096;
    let stages = slots + 8 * 4096;
    let staged = 1 << 63;
    assert!(
        stages + 4 * 131_072 <= HEAP_NEXT,
        "the image has room for the board"
    );
    image.u64(BOARD, 1);
    for n in 3..=5 {
        image.u64(slots + n % 4 * 4096, n);
    }
    image.u64(slots + 2 * 4096, 6 | staged);
    image.bytes(slots + 2 * 4096 + 8, b"rank 0's");
    image.bytes(stages + 2 * 131_072, b"staged");
    image.u64(rank_1 + 4096, 5);
    let gate = BOARD + 20_480 + 2 * 128;
    image.u32(gate, 1);
    image.u64(gate + 8, 6);
    image.u64(BOARD + 4096 + 4096, 5);
    image.bytes(BOARD + 4096 + 4096 + 8, b"result 5");
    let segment = Arc::new(image.join());
    assert!(Board::open(&segment, key, 2, 0).is_none(), "claimed");
    let board = Board::open(&segment, key, 2, 1).unwrap();
    for _ in 1..5 {
        drop(board.begin().unwrap());
    }
    let fifth = board.begin().unwrap();
    assert_eq!(fifth.number(), 5);
    assert!(fifth.has_put(0) && fifth.has_put(1) && fifth.is_released());
    assert_eq!(fifth.result(8), b"result 5");
    assert!(fifth.staged_result(8).is_none());
    drop(fifth);
    let sixth = board.begin().unwrap();
    assert!(sixth.has_put(0) && !sixth.has_put(1) && !sixth.is_released());
    assert_eq!(sixth.read(0, 8), b"rank 0's");
    assert_eq!(sixth.staged(0, 6), Some(&b"staged"[..]));
    // Rank 1 has put nothing in operation 3, so it may not put in this one.
    assert!(!sixth.may_put());
}

#[test]
fn an_arena_is_read() {
    let image = header();
    image.bytes(HEAP_END + ARENA_BYTES + 5000, b"shared");
    let to = Mem::owned(6);
    assert!(margay_sys_shm::arena::read(
        &image.join(),
        1,
        5000,
        &to,
        0,
        6
    ));
    to.with_bytes(0, 6, |bytes| assert_eq!(bytes, b"shared"));
}

#[test]
fn other_versions_are_refused_by_name() {
    for version in [0, 4, 255] {
        let image = header();
        image.bytes(7, &[version]);
        let error = Segment::join(OwnedFd::from(image.0)).unwrap_err();
        let report = format!("its format has version {version}, this one reads version 9");
        assert!(error.to_string().contains(&report), "{error}");
        assert!(error.to_string().contains("the same Margay"), "{error}");
    }
    let mut image = Image::new();
    image.0.write_all(b"\x7fELF\x02\x01\x01\0").unwrap();
    let error = Segment::join(OwnedFd::from(image.0)).unwrap_err();
    assert!(error.to_string().contains("does not begin with"), "{error}");
}

#[test]
fn a_header_that_contradicts_its_file_is_refused() {
    for (offset, value) in [
        (8, u64::from(u32::MAX)),
        (24, 1),
        (40, 0),
        (64, u64::MAX << 12),
    ] {
        let image = header();
        image.u64(offset, value);
        let error = Segment::join(OwnedFd::from(image.0)).unwrap_err();
        assert!(error.to_string().contains("contradicts"), "{error}");
    }
}
