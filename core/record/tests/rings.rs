//! What a recorder writes is what a reader reads, also in the middle of it and from damaged words.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_core_record::{
    Damaged, Kind, Message, NO_PEER, NameCell, Origin, Reader, Record, Recorder, Shape, Timer,
    moment,
};
use margay_core_registry::{CallName, call_name};

thread_local!(static NOW: Cell<u64> = const { Cell::new(0) });

/// A clock that each test moves by hand, in nanoseconds; 3 ticks each.
struct Hand;

impl Timer for Hand {
    type Name = Name;

    fn ticks() -> u64 {
        3 * NOW.get()
    }

    fn now_ns() -> u64 {
        NOW.get()
    }

    fn module_of(address: u64) -> Option<(u64, Vec<u8>)> {
        (address >= 0x1000).then(|| (0x1000, b"/bin/program".to_vec()))
    }
}

/// A test has no need of a word.
#[derive(Default)]
struct Name(Mutex<Option<&'static CallName>>);

impl NameCell for Name {
    fn set(&self, call: Option<&'static CallName>) {
        *self.0.lock().unwrap() = call;
    }

    fn get(&self) -> Option<&'static CallName> {
        *self.0.lock().unwrap()
    }
}

fn pass(ns: u64) {
    NOW.set(NOW.get() + ns);
}

static SEND: CallName = call_name("MPI_Send");
static WAIT: CallName = call_name("MPI_Waitall");

fn at(call: &'static CallName, from: u64) -> Origin {
    Origin { call, from }
}

fn message(kind: Kind, peer: u32, bytes: u64, request: u32) -> Message {
    Message {
        kind,
        peer,
        tag: 7,
        context: 2,
        bytes,
        request,
    }
}

type Words = Box<[AtomicU64]>;
type Hands<'a> = Recorder<&'a [AtomicU64], Hand>;

fn words(shape: Shape) -> Words {
    (0..shape.words()).map(|_| AtomicU64::new(0)).collect()
}

fn started(words: &Words, shape: Shape) -> Hands<'_> {
    pass(1_000_000);
    let recorder = Recorder::new(&words[..], shape).unwrap();
    assert_eq!(recorder.take_lane(77), Some(0));
    pass(1_000_000);
    recorder
}

fn read(words: &[AtomicU64]) -> (Vec<Record>, u64) {
    let mut into = Vec::new();
    let lost = Reader::of(words).unwrap().records(0, 0, &mut into);
    (into.into_iter().map(|(_, record)| record).collect(), lost)
}

fn call(recorder: &Hands<'_>, origin: Origin, of: &[Message], ns: u64) {
    let call = recorder.begin(0, origin);
    for &message in of {
        recorder.message(0, message);
    }
    pass(ns);
    recorder.end(call);
}

#[test]
fn calls_have_their_site_and_their_messages() {
    let shape = Shape::with_records(64);
    let words = words(shape);
    let recorder = started(&words, shape);
    call(
        &recorder,
        at(&SEND, 0x1234),
        &[message(Kind::Send, 3, 8, 0)],
        5000,
    );
    let both = [
        message(Kind::Receive, 1, 4, 9),
        message(Kind::Receive, 2, 4, 10),
    ];
    call(&recorder, at(&WAIT, 0x1300), &both, 5000);
    let open = recorder.begin(0, at(&SEND, 0x1234));
    let (records, lost) = read(&words);
    assert_eq!(lost, 0);
    let kinds: Vec<_> = records.iter().map(|r| (r.kind, r.peer, r.ticks)).collect();
    assert_eq!(
        kinds,
        [
            (Kind::Send, Some(3), Some(15_000)),
            (Kind::Receive, Some(1), Some(15_000)),
            (Kind::Received, Some(2), Some(0)),
            (Kind::Call, None, None),
        ]
    );
    assert_eq!(records[0].site, records[3].site);
    let reader = Reader::of(&words).unwrap();
    let site = reader.site(records[0].site).unwrap();
    assert_eq!(
        (site.call.as_str(), site.address, site.offset),
        ("MPI_Send", 0x1234, 0x234)
    );
    assert_eq!(site.module, "/bin/program");
    assert_eq!(reader.sites(), 2);
    assert_eq!(reader.lanes().next().unwrap().1.thread, 77);
    recorder.end(open);
}

#[test]
fn a_receive_that_is_posted_and_comes_in_one_call_is_one_record() {
    let shape = Shape::with_records(64);
    let words = words(shape);
    let recorder = started(&words, shape);
    let of = [
        message(Kind::Post, NO_PEER, 0, 5),
        message(Kind::Receive, 4, 80, 5),
    ];
    call(&recorder, at(&SEND, 0x1234), &of, 5000);
    let (records, _) = read(&words);
    assert_eq!(records.len(), 1);
    assert_eq!(
        (records[0].kind, records[0].peer, records[0].bytes),
        (Kind::Receive, Some(4), 80)
    );
}

#[test]
fn the_last_records_are_kept_and_a_long_call_may_lose_its_own() {
    let shape = Shape::with_records(64);
    let words = words(shape);
    let recorder = started(&words, shape);
    for bytes in 0..1000 {
        call(
            &recorder,
            at(&SEND, 0x1234),
            &[message(Kind::Send, 3, bytes, 0)],
            9000,
        );
    }
    let (records, lost) = read(&words);
    assert_eq!(records.last().unwrap().bytes, 999);
    assert!(records.len() >= 40 && records.len() as u64 + lost == 1000);
    let long = recorder.begin(0, at(&WAIT, 0x1300));
    for request in 0..200 {
        pass(9000);
        recorder.message(0, message(Kind::Receive, 1, 4, request));
    }
    recorder.end(long);
    assert!(read(&words).0.iter().all(|r| r.kind == Kind::Received));
}

#[test]
fn calls_in_quick_succession_are_counted_until_one_waits() {
    let shape = Shape::with_records(256);
    let words = words(shape);
    let recorder = started(&words, shape);
    let many = 100_000;
    for _ in 0..many {
        call(
            &recorder,
            at(&SEND, 0x1234),
            &[message(Kind::Send, 3, 8, 0)],
            100,
        );
    }
    let quick = recorder.begin(0, at(&WAIT, 0x1300));
    pass(500_000);
    recorder.waits(0, 500_000);
    recorder.message(0, message(Kind::Receive, 1, 4, 1));
    recorder.end(quick);
    call(&recorder, at(&SEND, 0x1234), &[], 5000);
    let (records, lost) = read(&words);
    assert_eq!(lost, 0);
    let sum: u64 = records
        .iter()
        .map(|r| match r.kind {
            Kind::Total => u64::from(r.tag),
            Kind::Send => 1,
            _ => 0,
        })
        .sum();
    assert_eq!(sum, many);
    let bytes: u64 = records
        .iter()
        .filter(|r| r.peer == Some(3))
        .map(|r| r.bytes)
        .sum();
    assert_eq!(bytes, 8 * many);
    let [.., waited, last] = &records[..] else {
        panic!()
    };
    assert_eq!((waited.kind, last.kind), (Kind::Receive, Kind::Call));
    assert!(waited.ticks.unwrap().abs_diff(1_500_000) < 30, "{waited:?}");
}

#[test]
fn calls_that_are_counted_have_their_time_by_site() {
    let shape = Shape::with_records(1024);
    let words = words(shape);
    let recorder = started(&words, shape);
    let many = 50_000;
    for _ in 0..many {
        call(
            &recorder,
            at(&SEND, 0x1234),
            &[message(Kind::Send, 3, 8, 0)],
            200,
        );
        call(&recorder, at(&WAIT, 0x1300), &[], 600);
    }
    recorder.settle(0);
    let (records, _) = read(&words);
    let spent = |site: u16| {
        let of = records
            .iter()
            .filter(|r| r.site == site && r.kind == Kind::Spent);
        of.map(|r| r.ticks.unwrap()).sum::<u64>()
    };
    let site = |call: u64| records.iter().find(|r| r.calls() > call).unwrap().site;
    let send = site(1);
    let wait = records.iter().map(|r| r.site).find(|&site| site != send);
    // Three ticks a nanosecond.
    for (spent, ns) in [(spent(send), 200), (spent(wait.unwrap()), 600)] {
        let all = 3 * ns * many;
        assert!(spent.abs_diff(all) < all / 20, "{spent} of {all}");
    }
}

#[test]
fn what_was_counted_is_there_at_the_end_with_the_last_calls() {
    let shape = Shape::with_records(1024);
    let words = words(shape);
    let recorder = started(&words, shape);
    let sent = [message(Kind::Send, 3, 8, 0)];
    for _ in 0..1000 {
        call(&recorder, at(&SEND, 0x1234), &sent, 100);
    }
    // One that waits after its message has been counted is one call all the same.
    let quick = recorder.begin(0, at(&SEND, 0x1234));
    recorder.message(0, sent[0]);
    pass(500_000);
    recorder.waits(0, 500_000);
    recorder.end(quick);
    for _ in 0..1000 {
        call(&recorder, at(&SEND, 0x1234), &sent, 100);
    }
    recorder.settle(0);
    call(&recorder, at(&WAIT, 0x1300), &[], 100);
    let (records, _) = read(&words);
    assert_eq!(records.iter().map(Record::calls).sum::<u64>(), 2002);
    assert_eq!(records.iter().map(Record::sent).sum::<u64>(), 2001);
    assert_eq!(records.last().map(|r| r.kind), Some(Kind::Call));
    // A thread that has ended leaves nothing that is only counted.
    for _ in 0..1000 {
        call(&recorder, at(&SEND, 0x1234), &sent, 100);
    }
    recorder.leave_lane(0);
    let (records, _) = read(&words);
    assert_eq!(records.iter().map(Record::calls).sum::<u64>(), 3002);
}

#[test]
fn a_counted_call_with_several_messages_is_one_call() {
    let shape = Shape::with_records(1024);
    let words = words(shape);
    let recorder = started(&words, shape);
    let both = [
        message(Kind::Post, 3, 0, 1),
        message(Kind::Send, 3, 8, 0),
        message(Kind::Receive, 3, 8, 1),
    ];
    // Until calls are counted.
    for _ in 0..200 {
        call(&recorder, at(&WAIT, 0x1234), &both[..1], 100);
    }
    for _ in 0..1000 {
        call(&recorder, at(&WAIT, 0x1234), &both, 100);
    }
    recorder.settle(0);
    let (records, _) = read(&words);
    assert_eq!(records.iter().map(Record::calls).sum::<u64>(), 1200);
    assert_eq!(records.iter().map(Record::sent).sum::<u64>(), 1000);
    // Each kind has a sum of its own, also with the same rank: few records are written.
    assert!(records.len() < 300, "{}", records.len());
    // One that waits after two of its messages has a record, and is counted no more.
    for _ in 0..200 {
        call(&recorder, at(&WAIT, 0x1234), &both[..1], 100);
    }
    let waits = recorder.begin(0, at(&WAIT, 0x1234));
    recorder.message(0, both[0]);
    recorder.message(0, both[1]);
    pass(500_000);
    recorder.waits(0, 500_000);
    recorder.message(0, both[2]);
    recorder.end(waits);
    let (records, _) = read(&words);
    assert_eq!(records.iter().map(Record::calls).sum::<u64>(), 1401);
    assert_eq!(records.iter().map(Record::sent).sum::<u64>(), 1001);
}

#[test]
fn calls_of_several_records_each_are_counted_as_well() {
    for records in 1..5 {
        let shape = Shape::with_records(256);
        let words = words(shape);
        let recorder = started(&words, shape);
        // The first makes the call's own record, the others stand behind it.
        let messages: Vec<Message> = (0..records).map(|n| message(Kind::Send, n, 8, 0)).collect();
        for _ in 0..10_000 {
            call(&recorder, at(&SEND, 0x1234), &messages, 100);
        }
        recorder.settle(0);
        let (read, lost) = read(&words);
        assert_eq!(lost, 0, "{records} records each");
        let calls: u64 = read.iter().map(Record::calls).sum();
        assert_eq!(calls, 10_000, "{records} records each");
    }
}

#[test]
fn counted_calls_of_more_sites_than_are_cached_are_all_there() {
    let shape = Shape::with_records(1 << 16);
    let words = words(shape);
    let recorder = started(&words, shape);
    for round in 0..20 {
        for site in 0..1000 {
            call(&recorder, at(&SEND, 0x1000 + 8 * site), &[], 100);
        }
        call(&recorder, at(&WAIT, 0x1000), &[], 100 * round);
    }
    recorder.settle(0);
    let (read, lost) = read(&words);
    assert_eq!(lost, 0);
    assert_eq!(read.iter().map(Record::calls).sum::<u64>(), 20_020);
}

#[test]
fn a_call_has_its_message_also_after_calls_within_it() {
    let shape = Shape::with_records(256);
    let words = words(shape);
    let recorder = started(&words, shape);
    let outer = recorder.begin(0, at(&WAIT, 0x1300));
    pass(5000);
    // By a callback of the program.
    call(&recorder, at(&SEND, 0x1234), &[], 5000);
    recorder.message(0, message(Kind::Collective, NO_PEER, 0, 0));
    pass(5000);
    recorder.end(outer);
    let (records, _) = read(&words);
    let kinds: Vec<Kind> = records.iter().map(|r| r.kind).collect();
    assert_eq!(kinds, [Kind::Collective, Kind::Call]);
    assert_eq!(records[0].ticks, Some(45_000));
}

#[test]
fn slow_calls_are_recorded_again() {
    let shape = Shape::with_records(256);
    let words = words(shape);
    let recorder = started(&words, shape);
    for _ in 0..1000 {
        call(&recorder, at(&SEND, 0x1234), &[], 100);
    }
    for _ in 0..100 {
        call(&recorder, at(&WAIT, 0x1300), &[], 100_000);
    }
    let (records, _) = read(&words);
    let slow = records.iter().filter(|r| r.ticks == Some(300_000)).count();
    // Those that came before the next look at the rate were counted.
    assert!(slow > 60, "{slow}");
    let counted: u32 = records
        .iter()
        .filter(|r| r.kind == Kind::Total)
        .map(|r| r.tag)
        .sum();
    assert_eq!(
        records.iter().filter(|r| r.kind == Kind::Call).count() + counted as usize,
        1100
    );
}

#[test]
fn any_words_are_read_without_harm() {
    let shape = Shape::with_records(64);
    let words = words(shape);
    let recorder = started(&words, shape);
    call(&recorder, at(&SEND, 0x1234), &[], 5000);
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 20
    };
    for _ in 0..if cfg!(miri) { 5 } else { 500 } {
        for _ in 0..50 {
            let at = random() as usize % words.len();
            words[at].store(random() << (random() % 40), Ordering::Relaxed);
        }
        words[(random() % 8) as usize].store(random() << 30, Ordering::Relaxed);
        if random() % 2 == 0 {
            let [first, second] = [1 | 8 << 32, 64 | 1024 << 32 | 16 << 48];
            words[0].store(first, Ordering::Relaxed);
            words[1].store(second, Ordering::Relaxed);
        }
        if let Ok(reader) = Reader::of(&words) {
            let mut into = Vec::new();
            let lanes: Vec<usize> = reader.lanes().map(|(index, _)| index).collect();
            for index in lanes {
                reader.records(index, 0, &mut into);
            }
            assert!(into.len() <= 8 * 64);
            (0..=u16::MAX)
                .step_by(97)
                .for_each(|site| drop(reader.site(site)));
        }
    }
    for word in &words {
        word.store(u64::MAX, Ordering::Relaxed);
    }
    assert_eq!(Reader::of(&words).err(), Some(Damaged::Header));
    assert_eq!(Reader::of(&words[..3]).err(), Some(Damaged::Header));
    words[0].store(2, Ordering::Relaxed);
    let error = Reader::of(&words).err().unwrap();
    assert_eq!(error, Damaged::Version(2));
    assert!(error.to_string().contains("version 2"));
}

#[test]
fn a_moment_is_that_of_the_try_that_was_shortest() {
    let tries = Cell::new(0);
    // The thread loses its core for 50 us between the clock and the counter, except once.
    let ticks = || {
        tries.set(tries.get() + 1);
        pass(if tries.get() == 3 { 10 } else { 50_000 });
        Hand::ticks()
    };
    let (ticks, ns) = moment(ticks, Hand::now_ns);
    assert_eq!(ticks, 3 * (ns + 5));
}
