//! Sums against those that are taken the slow way, of random records.

use margay_core_record::{Kind, Record};
use margay_core_sums::{CLASSES, Counts, Grid, Series, Window, add_block, crc32, records};

const RANKS: u32 = 600;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// Calls of a rank, one after the other.
fn calls(random: &mut Random, rank: u32) -> Vec<Record> {
    let kinds = [
        Kind::Call,
        Kind::Send,
        Kind::Receive,
        Kind::Collective,
        Kind::Write,
        Kind::Sent,
    ];
    let mut time = 0;
    (0..40)
        .map(|_| {
            let kind = kinds[random.below(kinds.len() as u64) as usize];
            let start = time + random.below(2000);
            let ns = random.below(3000);
            time = start + ns;
            Record {
                kind,
                start,
                ticks: Some(ns),
                site: kind as u16,
                peer: Some((rank + 1) % RANKS),
                tag: random.below(2) as u32,
                context: 1,
                bytes: random.below(100),
                request: 0,
            }
        })
        .collect()
}

fn bytes(records: &[Record]) -> Vec<u8> {
    let words = records.iter().flat_map(Record::pack);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Of all records, time in calls that lies in a window.
fn slow(all: &[(u32, Vec<Record>)], window: Window) -> (u64, u64) {
    let records = all.iter().filter(|(rank, _)| window.has(*rank));
    let calls = records
        .flat_map(|(_, of)| of)
        .filter(|r| !r.kind.is_further());
    calls.fold((0, 0), |(count, ns), call| {
        let end = call.start + call.ticks.unwrap_or(0);
        match call.start < window.to && end >= window.from {
            true => (
                count + 1,
                ns + end.min(window.to) - call.start.max(window.from),
            ),
            false => (count, ns),
        }
    })
}

fn check(grid: &Grid, expected: (u64, u64)) {
    let cells: u64 = grid.cells.iter().flatten().sum();
    assert_eq!((grid.calls, cells), expected);
    assert_eq!(grid.busy.iter().sum::<u64>(), expected.1);
    assert_eq!(grid.sites.iter().map(|s| s.ns).sum::<u64>(), expected.1);
    assert_eq!(grid.sites.iter().map(|s| s.calls).sum::<u64>(), expected.0);
    let matrix: u64 = grid.matrix.iter().map(|[messages, _]| messages).sum();
    let sent: u64 = grid.messages.iter().map(|[sent, _]| sent).sum();
    assert!(matrix <= sent);
    assert_eq!(grid.shares().len(), grid.cells.len() * CLASSES);
}

#[test]
fn sums_are_those_of_the_records_whatever_end_is_guessed_and_who_adds_them() {
    let mut random = Random(7);
    let all: Vec<(u32, Vec<Record>)> = (0..RANKS)
        .map(|rank| (rank, calls(&mut random, rank)))
        .collect();
    let ends = all.iter().flat_map(|(_, of)| of.last());
    let end = ends.map(|r| r.start + r.ticks.unwrap_or(0)).max().unwrap();
    let all_of_it = Window {
        from: 0,
        to: end,
        first: 0,
        last: RANKS,
    };
    for guess in [0, 1, 77, end / 3, end, 1000 * end, u64::MAX] {
        let mut grids = [Grid::whole(RANKS, guess), Grid::whole(RANKS, guess)];
        for (rank, of) in &all {
            let (mut counts, mut open) = (Counts::default(), Vec::new());
            let grid = &mut grids[*rank as usize % 2];
            let span = add_block(&bytes(of), (*rank, 9), grid, &mut counts, &mut open);
            assert_eq!((span.records, open.len()), (of.len(), 0));
            let sent = of.iter().filter(|r| r.sent() > 0).count() as u32;
            let is_sent = |series: &Series| matches!(series, Series::Sent(_));
            let counted = counts.iter().filter(|(series, _)| is_sent(series));
            assert_eq!(counted.map(|(_, count)| count).sum::<u32>(), sent);
        }
        let [mut one, two] = grids;
        one.merge(two);
        one.close(end);
        check(&one, slow(&all, all_of_it));
        let sent = all
            .iter()
            .flat_map(|(_, of)| of)
            .map(Record::sent)
            .sum::<u64>();
        assert_eq!(one.messages.iter().map(|[sent, _]| sent).sum::<u64>(), sent);
    }
    for _ in 0..300 {
        let from = random.below(end);
        let first = random.below(u64::from(RANKS)) as u32;
        let window = Window {
            from,
            to: from + 1 + random.below(end - from),
            first,
            last: first + 1 + random.below(u64::from(RANKS - first)) as u32,
        };
        let mut grid = Grid::of(window, 1 + random.below(300) as usize);
        for (rank, of) in all.iter().filter(|(rank, _)| window.has(*rank)) {
            grid.add(*rank, records(&bytes(of)), &mut Vec::new());
        }
        check(&grid, slow(&all, window));
    }
}

#[test]
fn a_call_is_spread_over_the_columns_that_it_is_in() {
    let window = Window {
        from: 100,
        to: 200,
        first: 3,
        last: 5,
    };
    let mut grid = Grid::of(window, 10);
    let call = Record {
        kind: Kind::Receive,
        start: 95,
        ticks: Some(30),
        site: 1,
        peer: Some(3),
        tag: 0,
        context: 0,
        bytes: 0,
        request: 0,
    };
    let open = Record {
        ticks: None,
        start: 190,
        ..call
    };
    let mut opens = Vec::new();
    grid.add(4, [call, open].into_iter(), &mut opens);
    assert_eq!(opens, [open]);
    grid.add_one(4, &open, 500, 500);
    let received: Vec<u64> = grid.cells[10..].iter().map(|cell| cell[2]).collect();
    assert_eq!(received, [10, 10, 5, 0, 0, 0, 0, 0, 0, 10]);
    assert!(grid.cells[..10].iter().flatten().all(|ns| *ns == 0));
    assert_eq!(grid.messages[2], [0, 1]);
    assert_eq!(grid.longest, (310, 4, 190));
}

#[test]
fn the_checksum_is_that_of_the_standard() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}
