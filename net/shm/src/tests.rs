//! Transports of several ranks in one process.

use std::sync::Mutex;

use margay_net_transport::numbered::{self, Checked, contents};
use margay_net_transport::{Destination, Packet, SHORT};
use margay_sys_os::user::Mem;
use margay_sys_shm::inbox::Outbox;
use margay_sys_shm::layout::Sizes;
use margay_sys_shm::ring::{LINE_BYTES, LineWords, Producer};

use crate::line::Form;

use super::*;

const LEN: usize = SHORT + LINE_BYTES;

fn segment(ranks: u32) -> Arc<Segment> {
    let sizes = Sizes {
        ranks,
        heap_bytes: 1 << 22,
        arena_bytes: 1 << 21,
    };
    Arc::new(Segment::create(sizes).unwrap())
}

fn rank(segment: &Arc<Segment>, me: u32, most_rings: usize) -> Shm {
    Shm::with_rings(segment, me, Arc::new(Thresholds::measured()), most_rings)
}

/// Knows where packets go; `exclusive` tells whether another sender's may go there too.
struct Place {
    mem: Mem,
    exclusive: bool,
    landed: bool,
}

impl Sink for Place {
    fn packet(&mut self, _: u32, packet: Packet<'_>) {
        self.mem.write(0, packet.payload);
    }

    fn destination(&mut self, _: u32, _: &Head, _: usize) -> Option<Destination> {
        Some(Destination {
            mem: self.mem.clone(),
            offset: 0,
            exclusive: self.exclusive,
        })
    }

    fn landed(&mut self, _: u32, _: &Head, _: usize) {
        self.landed = true;
    }
}

/// A place that another sender's packet may take first is not written before all bytes are here.
#[test]
fn a_part_of_a_packet_goes_to_exclusive_places_only() {
    for (exclusive, part) in [(true, 7), (false, 0)] {
        let segment = segment(2);
        let mut shm = rank(&segment, 0, 1);
        let mut producer = Producer::create(&segment).unwrap();
        assert!(Outbox::new(&segment, 1).unwrap().push_opened(0, &producer));
        let head = Head {
            kind: 1,
            ..Head::default()
        };
        let payload = [7; LEN];
        let mut place = Place {
            mem: Mem::owned(LEN),
            exclusive,
            landed: false,
        };
        let first = |words: &mut LineWords| line::whole(words, head, &payload);
        assert!(producer.push(line::top(1, Form::Whole, LEN), first));
        shm.poll(&mut place, 1);
        assert!(!place.landed);
        place.mem.with_bytes(0, LEN, |b| assert_eq!(b[0], part));
        assert!(producer.push(0, |words| *words = [0x0707_0707_0707_0707; 7]));
        shm.poll(&mut place, 1);
        assert!(place.landed);
        place.mem.with_bytes(0, LEN, |b| assert_eq!(b, payload));
    }
}

/// The next packet of a sender, of any length and form. Returns whether it went.
fn send(shm: &mut Shm, to: u32, number: u32, random: &mut fastrand::Rng) -> bool {
    let form = match random.u32(..20) {
        0 => (random.usize(..=WHOLE), false),
        1 => (random.usize(1..=pool::CHUNK), true),
        2..5 => (random.usize(..200), false),
        _ => (random.usize(..=SHORT), false),
    };
    numbered::send(shm, to, number, form)
}

/// Every rank sends to all others, to some of them more at a time and to others at another time,
/// with fewer rings than partners: rings change hands all the time.
#[test]
fn packets_keep_their_order_while_rings_change_hands() {
    const RANKS: u32 = 6;
    let each: u32 = if cfg!(miri) { 20 } else { 3000 };
    for most_rings in [0, 1, 2, 5] {
        let segment = segment(RANKS);
        let done = Mutex::new(0);
        std::thread::scope(|scope| {
            for me in 0..RANKS {
                let (segment, done) = (&segment, &done);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(u64::from(me) + 10);
                    let mut shm = rank(segment, me, most_rings);
                    let mut sink = Checked {
                        next: vec![0; RANKS as usize],
                    };
                    let mut sent = [0; RANKS as usize];
                    let mut favourite = 0;
                    sent[me as usize] = each;
                    while sent.iter().any(|&n| n < each) {
                        if random.u32(..400) == 0 {
                            favourite = random.u32(..RANKS);
                        }
                        let to = match random.u32(..10) {
                            0 => random.u32(..RANKS),
                            _ => favourite,
                        };
                        let number = sent[to as usize];
                        if number == each {
                            favourite = (favourite + 1) % RANKS;
                        } else if send(&mut shm, to, number, &mut random) {
                            sent[to as usize] += 1;
                        } else {
                            std::thread::yield_now();
                        }
                        if random.u32(..8) == 0 {
                            shm.poll(&mut sink, 1);
                        }
                    }
                    *done.lock().unwrap() += 1;
                    sink.next[me as usize] = each;
                    while sink.next.iter().any(|&n| n < each) || *done.lock().unwrap() < RANKS {
                        if !shm.poll(&mut sink, 1) {
                            std::thread::yield_now();
                        }
                    }
                    assert!(!shm.poll(&mut sink, 1));
                    assert!(shm.outgoing.rings() <= most_rings);
                });
            }
        });
    }
}

/// The partner to which most is sent has a ring, although others came first.
#[test]
fn a_busy_partner_gets_the_ring_of_a_quiet_one() {
    const RANKS: u32 = 5;
    let segment = segment(RANKS);
    let mut ranks: Vec<Shm> = (0..RANKS).map(|me| rank(&segment, me, 2)).collect();
    let mut sinks: Vec<Checked> = (0..RANKS).map(|_| Checked { next: vec![0] }).collect();
    let mut sent = [0; RANKS as usize];
    let mut random = fastrand::Rng::with_seed(3);
    let mut go = |ranks: &mut Vec<Shm>, to: u32| {
        assert!(send(&mut ranks[0], to, sent[to as usize], &mut random));
        sent[to as usize] += 1;
        while ranks[to as usize].poll(&mut sinks[to as usize], 1) {}
    };
    for to in 1..RANKS {
        go(&mut ranks, to);
    }
    let has = |ranks: &[Shm]| -> Vec<u32> {
        (1..RANKS)
            .filter(|&to| ranks[0].outgoing.has_ring(to))
            .collect()
    };
    assert_eq!(has(&ranks), [1, 2]);
    for _ in 0..300 {
        go(&mut ranks, 4);
        go(&mut ranks, 1);
        // The one that loses its ring is notified, and leaves it.
        while ranks[2].poll(&mut Checked { next: vec![1] }, 1) {}
    }
    assert_eq!(has(&ranks), [1, 4]);
    // Partners that are equally busy do not take rings from each other all the time.
    let mut changes = 0;
    let mut before = has(&ranks);
    for _ in 0..2000 {
        for to in [1, 3, 4] {
            go(&mut ranks, to);
        }
        let now = has(&ranks);
        changes += usize::from(now != before);
        before = now;
    }
    assert_eq!((changes, before), (0, vec![1, 4]));
}

/// What a dead rank had comes back, and the others go on: its ring goes to another one, and no cell
/// is lost.
#[test]
fn what_a_dead_rank_had_comes_back() {
    let segment = segment(4);
    let mut ranks: Vec<Shm> = (0..4).map(|me| rank(&segment, me, 1)).collect();
    let mut sent = [0; 4];
    let mut short = |shm: &mut Shm, to: u32| {
        let number = sent[to as usize];
        let head = Head {
            kind: 9,
            context: 0,
            source: !0,
            tag: number,
            word: 5,
        };
        let went = shm.send(to, head, &contents(0, number, 5));
        sent[to as usize] += u32::from(went);
        went
    };
    // Rank 1 has the ring, rank 2 all cells; neither reads anything.
    while short(&mut ranks[0], 1) {}
    while short(&mut ranks[0], 2) {}
    assert!(ranks[0].outgoing.has_ring(1));
    assert!(!short(&mut ranks[0], 3), "no cell is left");
    for dead in [1, 2] {
        ranks[0].forget(dead);
        assert_eq!(short(&mut ranks[0], 3), dead == 2, "it may still read");
        segment.registry().set_exited(dead, false);
        ranks[0].forget(dead);
        assert!(!ranks[0].outgoing.has_ring(dead));
        // The one cell that rank 1 had tells rank 3 of the ring.
        assert!(short(&mut ranks[0], 3));
    }
    let first = sent[3];
    let mut random = fastrand::Rng::with_seed(5);
    let mut sink = Checked { next: vec![0; 4] };
    for number in first..2000 {
        while !send(&mut ranks[0], 3, number, &mut random) {
            assert!(ranks[3].poll(&mut sink, 1), "it has what it did not read");
        }
    }
    while ranks[3].poll(&mut sink, 1) {}
    assert_eq!(sink.next[0], 2000);
    assert!(ranks[0].outgoing.has_ring(3));
}

/// However many partners a rank has, it takes a bounded amount of memory.
#[test]
fn memory_does_not_grow_with_partners() {
    const RANKS: u32 = 80;
    let sizes = Sizes {
        ranks: RANKS,
        heap_bytes: 256 << 20,
        arena_bytes: 0,
    };
    let segment = Arc::new(Segment::create(sizes).unwrap());
    let mut ranks: Vec<Shm> = (0..RANKS)
        .map(|me| Shm::new(&segment, me, Arc::new(Thresholds::measured())))
        .collect();
    let mut random = fastrand::Rng::with_seed(6);
    let mut sinks: Vec<Checked> = (0..RANKS)
        .map(|_| Checked {
            next: vec![0; RANKS as usize],
        })
        .collect();
    for number in 0..20 {
        for from in 0..RANKS as usize {
            for to in 0..RANKS as usize {
                while from != to && !send(&mut ranks[from], to as u32, number, &mut random) {
                    assert!(ranks[to].poll(&mut sinks[to], 1));
                }
            }
        }
        for to in 0..RANKS as usize {
            while ranks[to].poll(&mut sinks[to], 1) {}
        }
    }
    let used = segment.memory_bytes() / u64::from(RANKS);
    assert!(used < 1_000_000, "{used} bytes a rank");
}
