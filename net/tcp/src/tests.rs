//! Ranks of one process that talk over the loopback interface.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use margay_net_transport::numbered::{self, Checked, contents};
use margay_sys_os::clock::SystemClock;

use super::*;

/// The ranks and error numbers that were reported as lost.
type Lost = Arc<Mutex<Vec<(u32, i32)>>>;

/// The transports of a job, and the losses that they report.
fn job(ranks: u32, secret: impl Fn(u32) -> Secret) -> (Vec<Tcp>, Lost) {
    job_with(ranks, secret, false)
}

fn job_with(ranks: u32, secret: impl Fn(u32) -> Secret, encrypts: bool) -> (Vec<Tcp>, Lost) {
    job_at(ranks, secret, encrypts, Arc::new(SystemClock))
}

fn job_at(
    ranks: u32,
    secret: impl Fn(u32) -> Secret,
    encrypts: bool,
    clock: Arc<dyn Clock>,
) -> (Vec<Tcp>, Lost) {
    let listeners: Vec<TcpListener> = (0..ranks).map(|_| sockets::listen(None).unwrap()).collect();
    let here: Arc<[IpAddr]> = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)].into();
    let ports: Vec<u16> = (listeners.iter().map(|l| l.local_addr().unwrap().port())).collect();
    let lost = Arc::new(Mutex::new(Vec::new()));
    let tcp = |(me, listener): (u32, TcpListener)| {
        let wiring = Wiring {
            me,
            job: 9,
            secret: secret(me),
            addresses: ports.iter().map(|&port| (here.clone(), port)).collect(),
            listener,
            encrypts,
            says_goodbye: false,
        };
        let lost = lost.clone();
        let on_lost = Box::new(move |rank, errno| lost.lock().unwrap().push((rank, errno)));
        Tcp::new(wiring, clock.clone(), on_lost).unwrap()
    };
    ((0..).zip(listeners).map(tcp).collect(), lost)
}

/// Sends the next packet, of any length and form. Returns whether it went.
fn send(tcp: &mut Tcp, to: u32, number: u32, random: &mut fastrand::Rng) -> bool {
    let form = match random.u32(..20) {
        0 => (random.usize(..=WHOLE), false),
        1 => (random.usize(1..=MOST_FRAGMENT), true),
        _ => (random.usize(..100), false),
    };
    numbered::send(tcp, to, number, form)
}

/// All ranks send to all others at the same time, so that many pairs connect from both sides at
/// once, and more than the system takes.
#[test]
fn packets_come_whole_and_in_order_whoever_connects_first() {
    const RANKS: u32 = 5;
    const EACH: u32 = 300;
    for seed in 0..6 {
        let (ranks, lost) = job_with(RANKS, |_| [5; 32], seed % 2 == 1);
        let done = Mutex::new(0);
        std::thread::scope(|scope| {
            for mut tcp in ranks {
                let done = &done;
                scope.spawn(move || {
                    let me = tcp.me();
                    let mut random = fastrand::Rng::with_seed(u64::from(me) * 100 + seed);
                    let mut sink = Checked {
                        next: vec![0; RANKS as usize],
                    };
                    let mut sent = [0; RANKS as usize];
                    sent[me as usize] = EACH;
                    sink.next[me as usize] = EACH;
                    while sent.iter().any(|&n| n < EACH) {
                        let to = random.u32(..RANKS);
                        let number = sent[to as usize];
                        if number < EACH && send(&mut tcp, to, number, &mut random) {
                            sent[to as usize] += 1;
                        }
                        if random.u32(..8) == 0 {
                            tcp.poll(&mut sink, 1);
                        }
                    }
                    while sink.next.iter().any(|&n| n < EACH) || !tcp.is_flushed() {
                        if !tcp.poll(&mut sink, 1) {
                            std::thread::yield_now();
                        }
                    }
                    *done.lock().unwrap() += 1;
                    while *done.lock().unwrap() < RANKS {
                        tcp.poll(&mut sink, 1);
                        std::thread::yield_now();
                    }
                });
            }
        });
        assert!(lost.lock().unwrap().is_empty());
    }
}

/// Until `done`, polls all ranks.
fn turn(ranks: &mut [Tcp], sinks: &mut [Checked], mut done: impl FnMut(&[Checked]) -> bool) {
    while !done(sinks) {
        for (tcp, sink) in ranks.iter_mut().zip(sinks.iter_mut()) {
            tcp.poll(sink, 1);
        }
        std::thread::yield_now();
    }
}

fn sinks(ranks: usize) -> Vec<Checked> {
    let sink = || Checked {
        next: vec![0; ranks],
    };
    (0..ranks).map(|_| sink()).collect()
}

/// A packet that `send` sends.
fn short(tcp: &mut Tcp, to: u32, number: u32) -> bool {
    let from = tcp.me();
    let head = Head {
        kind: 9,
        context: from,
        source: !from,
        tag: number,
        word: 3,
    };
    tcp.send_first(to, head, &contents(from, number, 3))
}

/// Strangers that say anything or nothing change nothing, however many they are.
#[test]
fn strangers_are_sent_away_and_the_ranks_find_each_other() {
    let (mut ranks, lost) = job(2, |_| [5; 32]);
    let port = ranks[1].listener.local_addr().unwrap().port();
    let mut random = fastrand::Rng::with_seed(8);
    let strangers: Vec<TcpStream> = (0..3 * MOST_VISITORS)
        .map(|_| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let len = random.usize(..200);
            let garbage: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
            let _ = stream.write_all(&garbage);
            ranks[1].poll(&mut sinks(1)[0], 1);
            stream
        })
        .collect();
    let mut sinks = sinks(2);
    assert!(short(&mut ranks[0], 1, 0));
    turn(&mut ranks, &mut sinks, |sinks| sinks[1].next[0] == 1);
    assert!(ranks[1].visitors.len() <= MOST_VISITORS);
    assert!(lost.lock().unwrap().is_empty());
    drop(strangers);
}

/// Who knows the protocol but not the secret gets no packet in and none out.
#[test]
fn without_the_secret_nobody_gets_in() {
    let (mut ranks, _) = job(2, |rank| [rank as u8; 32]);
    assert!(short(&mut ranks[0], 1, 0));
    let mut sinks = sinks(2);
    let mut polls = 0;
    turn(&mut ranks, &mut sinks, |_| {
        polls += 1;
        polls == 2000
    });
    assert_eq!((sinks[1].next[0], ranks[0].up.len()), (0, 0));
}

/// A peer that has proved itself and then sends nonsense is lost, and nothing of it is handed over.
#[test]
fn nonsense_behind_a_proof_ends_the_link() {
    let (mut ranks, lost) = job(2, |_| [5; 32]);
    let mut sinks = sinks(2);
    assert!(short(&mut ranks[0], 1, 0));
    turn(&mut ranks, &mut sinks, |sinks| sinks[1].next[0] == 1);
    let State::Up(link) = &mut ranks[0].peers[1].state else {
        panic!("it is up");
    };
    link.stream.write_all(&[0xff; 100]).unwrap();
    turn(&mut ranks, &mut sinks, |_| !lost.lock().unwrap().is_empty());
    assert_eq!(*lost.lock().unwrap(), [(0, 71)]);
    assert!(short(&mut ranks[1], 0, 0), "dropped, not kept for ever");
}

/// A peer that goes away after its last packets: these still arrive, and what is sent to it later
/// goes nowhere.
#[test]
fn the_last_packets_of_a_rank_that_ends_arrive() {
    let (mut ranks, lost) = job(2, |_| [5; 32]);
    let mut sinks = sinks(2);
    assert!(short(&mut ranks[1], 0, 0));
    turn(&mut ranks, &mut sinks, |sinks| sinks[0].next[1] == 1);
    for number in 0..100 {
        assert!(short(&mut ranks[0], 1, number));
        // Never read: the process ends with unread bytes.
        assert!(short(&mut ranks[1], 0, number + 1));
    }
    while !ranks[0].is_flushed() {
        std::thread::yield_now();
    }
    drop(ranks.remove(0));
    let mut sink = sinks.remove(1);
    while sink.next[0] < 100 {
        ranks[0].poll(&mut sink, 1);
    }
    while !ranks[0].up.is_empty() {
        ranks[0].poll(&mut sink, 1);
    }
    assert!(short(&mut ranks[0], 0, 101));
    assert!(ranks[0].is_flushed());
    assert_eq!(*lost.lock().unwrap(), [(0, 0)], "closed, not cut off");
}

/// A rank at which nobody listens is tried again, and reached when it is there.
#[test]
fn a_rank_that_comes_late_is_reached() {
    let (mut ranks, lost) = job(3, |_| [5; 32]);
    let late = ranks.remove(1);
    let (me, port) = (late.me, late.listener.local_addr().unwrap().port());
    drop(late);
    assert!(short(&mut ranks[0], me, 0));
    let is_pausing = |tcp: &Tcp| matches!(tcp.peers[1].state, State::Pausing(_));
    while !is_pausing(&ranks[0]) {
        ranks[0].poll(&mut sinks(3)[0], 1);
    }
    let wiring = Wiring {
        me,
        job: 9,
        secret: [5; 32],
        addresses: ranks[0]
            .peers
            .iter()
            .map(|p| (p.addresses.clone(), p.port))
            .collect(),
        listener: sockets::listen(Some((port, port))).unwrap(),
        encrypts: false,
        says_goodbye: false,
    };
    let again = Tcp::new(wiring, Arc::new(SystemClock), Box::new(|_, _| {})).unwrap();
    ranks.insert(1, again);
    turn(&mut ranks, &mut sinks(3), |sinks| sinks[1].next[0] == 1);
    assert!(lost.lock().unwrap().is_empty());
}

/// A clock that is set by hand.
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn ticks(&self) -> u64 {
        self.now_ns()
    }
}

/// A rank that does not call the library answers nobody, for minutes perhaps: it is waited for, and
/// the rank that waits may be away for as long itself.
#[test]
fn ranks_that_compute_for_long_are_not_lost() {
    for away in [[false, true], [true, false], [true, true]] {
        let clock = Arc::new(Hand(AtomicU64::new(1)));
        let (mut ranks, lost) = job_at(2, |_| [5; 32], false, clock.clone());
        let mut sinks = sinks(2);
        assert!(short(&mut ranks[0], 1, 0));
        for _ in 0..3000 {
            clock.0.fetch_add(20_000_000, Ordering::Relaxed);
            for (rank, is_away) in away.iter().enumerate() {
                if !is_away {
                    ranks[rank].poll(&mut sinks[rank], 1);
                }
            }
        }
        turn(&mut ranks, &mut sinks, |sinks| {
            clock.0.fetch_add(1_000_000, Ordering::Relaxed);
            sinks[1].next[0] == 1
        });
        assert!(lost.lock().unwrap().is_empty(), "{away:?}");
    }
}

/// What takes connections and never answers is reported as long as it does so, and not before: it
/// may be the rank, which computes. A rank that was away itself says nothing of the others.
#[test]
fn what_never_answers_is_reported() {
    let clock = Arc::new(Hand(AtomicU64::new(1)));
    let (mut ranks, lost) = job_at(2, |_| [5; 32], false, clock.clone());
    let reports = Arc::new(Mutex::new(Vec::new()));
    let (own, at) = (reports.clone(), clock.clone());
    ranks[0].report_unanswered(Box::new(move |rank| {
        own.lock()
            .unwrap()
            .push((rank, at.now_ns() / 1_000_000_000));
    }));
    let mut sinks = sinks(2);
    assert!(short(&mut ranks[0], 1, 0));
    let mut pass = |ranks: &mut [Tcp], seconds: u32| {
        for _ in 0..50 * seconds {
            clock.0.fetch_add(20_000_000, Ordering::Relaxed);
            ranks[0].poll(&mut sinks[0], 1);
        }
    };
    pass(&mut ranks, 7);
    assert!(reports.lock().unwrap().is_empty());
    clock.0.fetch_add(3_600_000_000_000, Ordering::Relaxed);
    pass(&mut ranks, 4);
    let all = std::mem::take(&mut *reports.lock().unwrap());
    assert_eq!(all.len(), 3, "once a second: {all:?}");
    assert!(all.iter().all(|&(rank, _)| rank == 1));
    turn(&mut ranks, &mut self::sinks(2), |sinks| {
        sinks[1].next[0] == 1
    });
    pass(&mut ranks, 20);
    assert!(reports.lock().unwrap().is_empty() && lost.lock().unwrap().is_empty());
}

/// Two addresses of which one leads to another rank's port, as where every host has a bridge of the
/// same address: the proof finds the right one.
#[test]
fn a_wrong_address_does_no_harm() {
    let (mut ranks, _) = job(3, |_| [5; 32]);
    let silent = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap();
    // The same port on another address: somebody who never answers.
    let port = ranks[1].listener.local_addr().unwrap().port();
    let stranger = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), port));
    ranks[0].peers[1].addresses = vec![
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
        IpAddr::V4(Ipv4Addr::LOCALHOST),
    ]
    .into();
    assert!(short(&mut ranks[0], 1, 0));
    turn(&mut ranks, &mut sinks(3), |sinks| sinks[1].next[0] == 1);
    drop((silent, stranger));
}

/// A sleeper on the set of sockets is woken by a packet.
#[test]
fn a_packet_makes_the_set_readable() {
    let (mut ranks, _) = job(2, |_| [5; 32]);
    let mut all = sinks(2);
    assert!(short(&mut ranks[0], 1, 0));
    turn(&mut ranks, &mut all, |sinks| sinks[1].next[0] == 1);
    let woken = AtomicBool::new(false);
    let epoll = ranks[1].epoll();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut events = Vec::new();
            while events.is_empty() {
                epoll.wait(&mut events, Duration::from_secs(20)).unwrap();
            }
            woken.store(true, Ordering::Relaxed);
        });
        assert!(short(&mut ranks[0], 1, 1));
        sleeper.join().unwrap();
    });
    assert!(woken.load(Ordering::Relaxed));
    let mut byte = [0];
    let State::Up(link) = &ranks[1].peers[0].state else {
        panic!("it is up");
    };
    assert_eq!((&link.stream).read(&mut byte).unwrap(), 1);
}
