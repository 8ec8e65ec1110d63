//! Worlds of ranks as threads of one process: random programs against the rules of matching, over
//! the seeded transport (every protocol with bytes alone) and over shared memory (all of them).

#![forbid(unsafe_code)]

use std::sync::Arc;

use fastrand::Rng;
use margay_core_datatype::{Basic, Datatype};
use margay_core_registry::Facts;
use margay_net_seeded::{Conditions, world};
use margay_net_shm::platform;
use margay_net_transport::Thresholds;
use margay_run_engine::{Data, Envelope, Limits, Mode, Pattern, Policy, Rank, ReqId};
use margay_sys_os::user::Mem;
use margay_sys_shm::layout::Sizes;
use margay_sys_shm::segment::Segment;

/// One message of a random program.
#[derive(Clone, Copy, Debug)]
struct Message {
    from: u32,
    to: u32,
    context: u32,
    tag: u32,
    size: u64,
    mode: Mode,
    strided: bool,
}

/// Contexts 0..3 ask for sources and tags exactly, by tag only, and for anything.
const CONTEXTS: u64 = 3;

fn program(seed: u64, ranks: u32, longest: u64) -> Vec<Message> {
    let mut random = Rng::with_seed(seed);
    let n = 1 + random.u64(..60);
    (0..n)
        .map(|_| {
            let size = match random.u64(..6) {
                0 => 0,
                1..=3 => random.u64(..41),
                4 => random.u64(..5000),
                _ => random.u64(..longest),
            };
            Message {
                from: random.u64(..u64::from(ranks)) as u32,
                to: random.u64(..u64::from(ranks)) as u32,
                context: random.u64(..CONTEXTS) as u32,
                tag: random.u64(..3) as u32,
                size: size / 4 * 4,
                mode: match random.u64(..4) {
                    0 => Mode::Synchronous,
                    _ => Mode::Standard,
                },
                strided: random.u64(..3) == 0,
            }
        })
        .collect()
}

fn contents(number: usize, size: u64) -> Vec<u8> {
    let step = 2 * number as u64 + 1;
    let mut bytes: Vec<u8> = (0..size).map(|i| ((i * step) >> 3) as u8).collect();
    // The number of the message, so that a receive that could take several knows which it got.
    for (place, byte) in bytes.iter_mut().zip((number as u32).to_ne_bytes()) {
        *place = byte;
    }
    bytes
}

/// Returns every second 4-byte element, or all of them.
fn layout(strided: bool) -> (Arc<Datatype>, usize) {
    let int = Arc::new(Datatype::basic(Basic::Int32));
    if strided {
        let spread = Datatype::resized(0, 8, &int).expect("a stretched integer");
        (Arc::new(spread), 2)
    } else {
        (int, 1)
    }
}

fn filled(bytes: &[u8], strided: bool) -> (Mem, Data) {
    let (datatype, stretch) = layout(strided);
    let mut spaced = vec![0; bytes.len() * stretch];
    for (i, four) in bytes.chunks(4).enumerate() {
        spaced[i * 4 * stretch..i * 4 * stretch + 4].copy_from_slice(four);
    }
    let mem = Mem::from_vec(spaced);
    let data = Data::typed(mem.clone(), bytes.len() as u64 / 4, &datatype);
    (mem, data)
}

fn read_back(mem: &Mem, size: u64, strided: bool) -> Vec<u8> {
    let (_, stretch) = layout(strided);
    let mut bytes = vec![0; size as usize];
    for (i, four) in bytes.chunks_mut(4).enumerate() {
        mem.read((i * 4 * stretch) as i64, four);
    }
    bytes
}

/// Runs one rank's part: posts all sends and receives in an order of its own, waits in another.
fn run(rank: &Rank, messages: &[Message], seed: u64) {
    let me = rank.world_rank();
    let mut random = Rng::with_seed(seed ^ (u64::from(me) << 32) ^ 0xabcd);
    let mut to_send: Vec<usize> = (0..messages.len())
        .filter(|&m| messages[m].from == me)
        .rev()
        .collect();
    let mut to_receive: Vec<usize> = (0..messages.len())
        .filter(|&m| messages[m].to == me)
        .rev()
        .collect();
    let longest = messages.iter().map(|m| m.size).max().unwrap_or(0);
    let mut sends: Vec<ReqId> = Vec::new();
    let mut receives: Vec<(ReqId, Pattern, Mem, bool)> = Vec::new();
    while !to_send.is_empty() || !to_receive.is_empty() {
        let sends_next = to_receive.is_empty() || (!to_send.is_empty() && random.u64(..2) == 0);
        if sends_next {
            if let Some(number) = to_send.pop() {
                let m = messages[number];
                let (_, data) = filled(&contents(number, m.size), m.strided);
                let envelope = Envelope {
                    context: m.context,
                    source: me,
                    tag: m.tag,
                };
                sends.push(rank.isend(m.mode, data, m.to, envelope));
            }
        } else if let Some(number) = to_receive.pop() {
            let m = messages[number];
            let pattern = Pattern::new(
                m.context,
                (m.context == 0).then_some(m.from),
                (m.context <= 1).then_some(m.tag),
            );
            let strided = random.u64(..3) == 0;
            let (mem, data) = filled(&vec![0; longest as usize / 4 * 4 + 4], strided);
            let from = pattern.source();
            receives.push((rank.irecv(data, pattern, from), pattern, mem, strided));
        }
        if random.u64(..3) == 0 {
            rank.progress();
        }
    }
    let mut taken: Vec<(Pattern, usize)> = Vec::new();
    for (id, pattern, mem, strided) in receives {
        let outcome = rank.wait(id);
        assert_eq!(outcome.truncated, None, "seed {seed}");
        // Which message was it? Messages without room for a number are distinguished by size alone.
        let got = read_back(&mem, outcome.bytes, strided);
        let number = match got.first_chunk::<4>() {
            Some(number) => u32::from_ne_bytes(*number) as usize,
            None => continue,
        };
        let m = messages[number];
        assert_eq!(
            (m.to, m.from, m.tag, m.context, m.size),
            (
                me,
                outcome.source,
                outcome.tag,
                pattern.context,
                outcome.bytes
            ),
            "seed {seed}"
        );
        assert_eq!(
            got,
            contents(number, m.size),
            "seed {seed} message {number}"
        );
        // Messages of one sender with one tag are not overtaken among equal receives.
        for &(earlier, before) in &taken {
            let b = messages[before];
            assert!(
                earlier != pattern || b.from != m.from || b.tag != m.tag || before < number,
                "seed {seed}: message {number} overtook {before}"
            );
        }
        taken.push((pattern, number));
    }
    rank.wait_all(&sends);
    for id in sends {
        assert!(rank.test(id).is_some());
    }
    rank.drain();
}

fn in_threads(ranks: Vec<Rank>, messages: &[Message], seed: u64) {
    std::thread::scope(|scope| {
        for rank in ranks {
            scope.spawn(move || run(&rank, messages, seed));
        }
    });
}

#[test]
fn seeded_worlds_keep_the_rules() {
    for seed in 0..2000 {
        let mut random = Rng::with_seed(seed);
        let size = 1 + random.u64(..5) as u32;
        let messages = program(seed, size, 8_000);
        let limits = Limits {
            eager: random.u64(..9000),
            credits: 1 + random.u64(..6) as u32,
            credit_bytes: 1 + random.u64(..9000),
            send_buffer: random.u64(..3) * 2000,
        };
        let ranks = world(size, seed, Conditions::of(seed))
            .into_iter()
            .map(|end| Rank::over(end, limits, Policy::new(2, 1)))
            .collect();
        in_threads(ranks, &messages, seed);
    }
}

#[test]
fn shared_memory_keeps_the_rules() {
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let size = 1 + random.u64(..4) as u32;
        let messages = program(seed, size, 700_000);
        let segment = segment(size);
        let ranks = (0..size).map(|me| in_segment(&segment, me)).collect();
        in_threads(ranks, &messages, seed);
    }
}

#[test]
fn a_seed_replays() {
    // The order of arrival at a wildcard receive is the network's choice; the seed fixes it.
    let history = |seed| {
        let mut ranks: Vec<Rank> = world(3, seed, Conditions::of(seed))
            .into_iter()
            .map(|end| Rank::over(end, Limits::default(), Policy::new(2, 1)))
            .collect();
        let mut order = Vec::new();
        std::thread::scope(|scope| {
            for rank in ranks.drain(1..) {
                scope.spawn(move || {
                    for i in 0..10u8 {
                        let envelope = Envelope {
                            context: 0,
                            source: rank.world_rank(),
                            tag: 0,
                        };
                        let data = Data::bytes(Mem::from_vec(vec![i; 8]), 8);
                        rank.send(Mode::Standard, &data, 0, envelope);
                    }
                    rank.drain();
                });
            }
            let first = ranks.pop().expect("rank 0");
            for _ in 0..20 {
                let pattern = Pattern::new(0, None, None);
                order.push(
                    first
                        .recv(Data::bytes(Mem::owned(8), 8), pattern, None)
                        .source,
                );
            }
        });
        order
    };
    assert_eq!(history(5), history(5));
    assert!((0..20).any(|seed| history(seed) != history(5)));
}

#[test]
fn a_flood_is_bounded_and_delivered_in_order() {
    let segment = segment(2);
    let limits = Limits {
        send_buffer: 1 << 16,
        ..Limits::default()
    };
    let [receiver, sender] = [1, 0].map(|me| in_segment_within(&segment, me, limits));
    // Beyond the credits each message is offered: the one whose send waits, and those that are
    // kept, which count 256 bytes and more.
    let most = limits.credits as usize + 1 + (limits.send_buffer / 256) as usize;
    let n = 20_000u32;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..n {
                let data = Data::bytes(Mem::from_vec(i.to_ne_bytes().to_vec()), 4);
                let envelope = Envelope {
                    context: 0,
                    source: 0,
                    tag: 0,
                };
                sender.send(Mode::Standard, &data, 1, envelope);
            }
            sender.drain();
        });
        for _ in 0..20_000 {
            // The receiver is busy with something else: it makes progress, but does not receive.
            receiver.progress();
            let (_, waiting) = receiver.lock().lock().outstanding();
            assert!(waiting <= most, "{waiting} unmatched");
        }
        for i in 0..n {
            let mem = Mem::owned(4);
            let pattern = Pattern::new(0, Some(0), None);
            receiver.recv(Data::bytes(mem.clone(), 4), pattern, Some(0));
            assert_eq!(read_back(&mem, 4, false), i.to_ne_bytes());
        }
    });
}

#[test]
fn nothing_is_under_way_after_a_message_in_fragments() {
    // Longer than a packet, shorter than what is offered first.
    const SIZE: u64 = 40_000;
    for seed in 0..20 {
        let mut ranks: Vec<Rank> = world(2, seed, Conditions::of(seed))
            .into_iter()
            .map(|end| Rank::over(end, Limits::default(), Policy::new(2, 1)))
            .collect();
        let receiver = ranks.pop().expect("rank 1");
        let sender = ranks.pop().expect("rank 0");
        let bytes = contents(seed as usize, SIZE);
        let envelope = Envelope {
            context: 0,
            source: 0,
            tag: 0,
        };
        let data = Data::bytes(Mem::from_vec(bytes.clone()), SIZE);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                sender.send(Mode::Standard, &data, 1, envelope);
                sender.send(Mode::Standard, &data, 1, envelope);
                sender.drain();
            });
            for _ in 0..2 {
                let mem = Mem::owned(SIZE as usize);
                let pattern = Pattern::new(0, Some(0), Some(0));
                receiver.recv(Data::bytes(mem.clone(), SIZE), pattern, Some(0));
                assert_eq!(read_back(&mem, SIZE, false), bytes);
            }
        });
        assert!(receiver.lock().lock().is_quiet(0), "seed {seed}");
    }
}

#[test]
fn unmatched_receives_and_queued_sends_can_be_cancelled() {
    let mut ends = world(1, 3, Conditions::of(3));
    let end = ends.pop().expect("one rank");
    assert_eq!(end.transport.size(), 1);
    let rank = Rank::over(end, Limits::default(), Policy::new(1, 1));
    let pattern = Pattern::new(9, None, Some(4));
    let id = rank.irecv(Data::bytes(Mem::owned(4), 4), pattern, None);
    rank.cancel(id);
    assert!(rank.wait(id).cancelled);
    // A receive that has been matched is not cancelled any more.
    let envelope = Envelope {
        context: 9,
        source: 0,
        tag: 4,
    };
    let id = rank.irecv(Data::bytes(Mem::owned(4), 4), pattern, None);
    rank.send(Mode::Standard, &Data::bytes(Mem::owned(8), 8), 0, envelope);
    while !rank.is_done(id) {
        rank.progress();
    }
    rank.cancel(id);
    let outcome = rank.wait(id);
    assert!(!outcome.cancelled);
    assert_eq!((outcome.bytes, outcome.truncated), (4, Some(8)));
}

/// Rank 0 sends and cancels as the random say; rank 1 receives what comes, and in the end exactly
/// what was not cancelled.
fn cancel_and_receive(ranks: [Rank; 2], seed: u64) -> usize {
    const MESSAGES: u32 = 40;
    let envelope = |tag| Envelope {
        context: 0,
        source: 0,
        tag,
    };
    let [sender, receiver] = ranks;
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let mut random = Rng::with_seed(seed ^ 0x5e4d);
            let mut sends = Vec::new();
            for number in 0..MESSAGES {
                let size = 4 * (1 + random.u64(..2000));
                let mode = match random.u64(..3) {
                    0 => Mode::Synchronous,
                    _ => Mode::Standard,
                };
                let (_, data) = filled(&contents(number as usize, size), random.u64(..2) == 0);
                sends.push(sender.isend(mode, data, 1, envelope(0)));
                if random.u64(..2) == 0 {
                    sender.cancel(sends[random.u64(..sends.len() as u64) as usize]);
                }
            }
            let alive: Vec<u8> = sends
                .into_iter()
                .map(|id| u8::from(!sender.wait(id).cancelled))
                .collect();
            let report = Data::bytes(Mem::from_vec(alive.clone()), alive.len() as u64);
            sender.send(Mode::Standard, &report, 1, envelope(1));
            sender.drain();
            alive
        });
        let mut random = Rng::with_seed(seed ^ 0x4ece);
        let (data, end) = (0, 1);
        let pattern = |tag| Pattern::new(0, Some(0), Some(tag));
        let mut got = vec![0; MESSAGES as usize];
        // A message that is only looked for may be gone when it is received.
        let mut receive = || {
            let Some((message, _)) = receiver.improbe(pattern(data)) else {
                return false;
            };
            let mem = Mem::owned(8000);
            let id = receiver.imrecv(message, Data::bytes(mem.clone(), 8000));
            let outcome = receiver.wait(id);
            let bytes = read_back(&mem, outcome.bytes, false);
            let number = u32::from_ne_bytes(bytes[..4].try_into().expect("four bytes"));
            assert_eq!(
                bytes,
                contents(number as usize, outcome.bytes),
                "seed {seed}"
            );
            got[number as usize] += 1;
            true
        };
        while receiver.iprobe(pattern(end)).is_none() {
            if random.u64(..8) == 0 {
                receive();
            }
        }
        while receive() {}
        let report = Data::bytes(Mem::owned(MESSAGES as usize), u64::from(MESSAGES));
        receiver.recv(report, pattern(end), Some(0));
        receiver.drain();
        // A rank that is there has its turns in the seeded world.
        drop(receiver);
        let alive = sending.join().expect("no panic");
        assert_eq!(got, alive, "seed {seed}");
        alive.iter().filter(|&&alive| alive == 0).count()
    })
}

#[test]
fn a_message_is_received_or_cancelled() {
    let mut cancelled = 0;
    for seed in 0..400 {
        let mut random = Rng::with_seed(seed);
        let limits = Limits {
            eager: random.u64(..9000),
            credits: 1 + random.u64(..30) as u32,
            credit_bytes: 1 + random.u64(..60_000),
            send_buffer: random.u64(..3) * 10_000,
        };
        let mut ends = world(2, seed, Conditions::of(seed))
            .into_iter()
            .map(|end| Rank::over(end, limits, Policy::new(2, 1)));
        let ranks = std::array::from_fn(|_| ends.next().expect("two ranks"));
        cancelled += cancel_and_receive(ranks, seed);
    }
    for seed in 0..20 {
        let segment = segment(2);
        let ranks = [0, 1].map(|me| in_segment(&segment, me));
        cancelled += cancel_and_receive(ranks, seed);
    }
    // Both happen, or it was no test.
    assert!((420..420 * 39).contains(&cancelled), "{cancelled}");
}

fn in_segment(segment: &Arc<Segment>, me: u32) -> Rank {
    in_segment_within(segment, me, Limits::default())
}

fn in_segment_within(segment: &Arc<Segment>, me: u32, limits: Limits) -> Rank {
    let policy = Policy::new(segment.ranks(), 2);
    let thresholds = Arc::new(Thresholds::measured());
    let platform = platform(segment, me, thresholds, true);
    Rank::over(platform, limits, policy)
}

fn segment(ranks: u32) -> Arc<Segment> {
    let segment = Segment::create(Sizes::for_job(ranks)).expect("a segment");
    segment.registry().describe(&Facts {
        job: 1,
        cores: 2,
        command: "worlds".into(),
        ..Facts::default()
    });
    for me in 0..ranks {
        segment.registry().set_pid(me, std::process::id());
    }
    Arc::new(segment)
}
