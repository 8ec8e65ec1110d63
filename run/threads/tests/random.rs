//! Random nested programs of forks, groups, loops, reductions, offers and waiting, compared with
//! the result of executing them in order. A difference is reported with the program and its seed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use margay_run_threads::{AnyClock, Config, Iterations, Pool, Worker, with_worker};

mod common;

use common::{SCHEDULES, rendezvous};

/// Programs for each size of pool.
const PROGRAMS: u64 = 1000;
/// Roughly the executions of leaves in one program.
const WORK: u64 = 4000;
/// A program that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A number for each `x`, which shows whether all bits of it are right.
fn mixed(x: u64) -> u64 {
    Rng::with_seed(x).u64(..)
}

/// A program as a tree. The value of a leaf depends on the path to it; combining values shows their
/// order and number.
#[derive(Debug)]
enum Program {
    Leaf(u64),
    Join(Box<Program>, Box<Program>),
    /// Tasks of a group; each also spawns the last one again, this many times.
    Group(Vec<Program>, u64),
    Loop(Iterations, Box<Program>),
    Reduce(u64, u64, Box<Program>),
    /// Parts of which none ends before all have begun.
    Rendezvous(u32, Box<Program>),
    /// Two tasks, of which the first waits for the second.
    Park(Box<Program>),
    /// A group that one of its tasks cancels: at most that many are executed.
    Cancel(u64, Box<Program>),
    /// A panic that is resumed where the work was forked.
    Panic(Box<Program>),
    Yield(Box<Program>),
    Enqueue(Box<Program>),
}

fn grow(random: &mut Rng, work: &mut u64, depth: u32, times: u64) -> Program {
    *work = work.saturating_sub(times);
    if depth == 0 || times * 4 > *work {
        return Program::Leaf(random.u64(..));
    }
    let kind = random.u64(..12);
    let depth = depth - 1;
    let mut inner = |random: &mut Rng, times| Box::new(grow(random, work, depth, times));
    match kind {
        0..=1 => Program::Join(inner(random, times), inner(random, times)),
        2..=3 => {
            let again = random.u64(..3);
            let count = 1 + random.u64(..6);
            let nodes = (0..count).map(|_| *inner(random, times * (1 + again)));
            Program::Group(nodes.collect(), again)
        }
        4..=5 => {
            let iterations = Iterations {
                count: random.u64(..40),
                schedule: SCHEDULES[random.u64(..5) as usize],
                min_chunk: random.u64(..5),
            };
            let times = times * iterations.count.max(1);
            Program::Loop(iterations, inner(random, times))
        }
        6 => {
            let count = random.u64(..40);
            let grain = random.u64(..6);
            Program::Reduce(count, grain, inner(random, times * count.max(1)))
        }
        7 => {
            let parts = 1 + random.u64(..6);
            Program::Rendezvous(parts as u32, inner(random, times * parts))
        }
        8 => Program::Park(inner(random, 2 * times)),
        9 => {
            let tasks = 1 + random.u64(..8);
            Program::Cancel(tasks, inner(random, times * tasks))
        }
        10 => Program::Panic(inner(random, times)),
        _ if random.u64(..2) == 0 => Program::Yield(inner(random, times)),
        _ => Program::Enqueue(inner(random, times)),
    }
}

/// Neighbours combined; neither commutative nor associative.
fn joined(a: u64, b: u64) -> u64 {
    mixed(a.rotate_left(7) ^ b.wrapping_mul(3))
}

fn part(path: u64, number: u64) -> u64 {
    mixed(path.wrapping_mul(0x1000_0000_01b3) ^ number)
}

fn reduced(begin: u64, end: u64, grain: u64, map: &dyn Fn(u64) -> u64) -> u64 {
    let left = end - begin;
    if left <= grain {
        return (begin..end).fold(1, |value, i| joined(value, map(i)));
    }
    let middle = begin + left.div_ceil(grain) / 2 * grain;
    joined(
        reduced(begin, middle, grain, map),
        reduced(middle, end, grain, map),
    )
}

impl Program {
    /// What executing one thing after another gives.
    fn expected(&self, path: u64) -> u64 {
        match self {
            Program::Leaf(value) => mixed(value ^ path),
            Program::Join(a, b) => joined(a.expected(part(path, 0)), b.expected(part(path, 1))),
            Program::Group(nodes, again) => {
                let mut sum = 0_u64;
                for (at, node) in nodes.iter().enumerate() {
                    for round in 0..=*again {
                        sum = sum.wrapping_add(node.expected(part(path, at as u64 * 8 + round)));
                    }
                }
                sum
            }
            Program::Loop(iterations, body) => (0..iterations.count)
                .fold(0, |sum, i| sum.wrapping_add(body.expected(part(path, i)))),
            Program::Reduce(0, _, _) => 7,
            Program::Reduce(count, grain, body) => reduced(0, *count, (*grain).max(1), &|i| {
                body.expected(part(path, i))
            }),
            Program::Rendezvous(parts, body) => (0..u64::from(*parts))
                .fold(0, |sum, i| sum.wrapping_add(body.expected(part(path, i)))),
            Program::Park(body) => {
                joined(body.expected(part(path, 0)), body.expected(part(path, 1)))
            }
            Program::Cancel(..) => 3,
            Program::Panic(body) => joined(body.expected(path), 5),
            Program::Yield(body) => body.expected(path),
            Program::Enqueue(body) => body.expected(path),
        }
    }
}

fn run(node: &Program, worker: &Worker, path: u64) -> u64 {
    match node {
        Program::Leaf(value) => {
            if path.is_multiple_of(61) {
                std::thread::yield_now();
            }
            mixed(value ^ path)
        }
        Program::Join(a, b) => {
            let (a, b) = worker.join(
                |worker| run(a, worker, part(path, 0)),
                |worker| run(b, worker, part(path, 1)),
            );
            joined(a, b)
        }
        Program::Group(nodes, again) => run_group(nodes, *again, worker, path),
        Program::Loop(iterations, body) => {
            let sum = AtomicU64::new(0);
            let seen: Vec<AtomicBool> = (0..iterations.count)
                .map(|_| AtomicBool::new(false))
                .collect();
            worker.for_each(*iterations, &|worker: &Worker, begin, count| {
                for i in begin..begin + count {
                    assert!(!seen[i as usize].swap(true, Ordering::Relaxed));
                    sum.fetch_add(run(body, worker, part(path, i)), Ordering::Relaxed);
                }
            });
            assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed)));
            sum.into_inner()
        }
        Program::Reduce(count, grain, body) => worker.reduce(
            *count,
            *grain,
            7,
            &|worker: &Worker, begin, count| {
                (begin..begin + count).fold(1, |value, i| {
                    joined(value, run(body, worker, part(path, i)))
                })
            },
            &joined,
        ),
        Program::Rendezvous(parts, body) => {
            let ended = rendezvous(worker, *parts);
            assert_eq!(ended, (0..u64::from(*parts)).collect::<Vec<_>>());
            ended.iter().fold(0, |sum: u64, i| {
                sum.wrapping_add(run(body, worker, part(path, *i)))
            })
        }
        Program::Park(body) => run_park(body, worker, path),
        Program::Cancel(tasks, body) => run_cancel(*tasks, body, worker, path),
        Program::Panic(body) => {
            let value = AtomicU64::new(0);
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                worker.join(
                    |worker| value.store(run(body, worker, path), Ordering::Relaxed),
                    |_| std::panic::resume_unwind(Box::new(path)),
                );
            }));
            let payload = caught.expect_err("the panic comes out where the fork was");
            assert_eq!(payload.downcast_ref::<u64>(), Some(&path));
            joined(value.into_inner(), 5)
        }
        Program::Yield(body) => {
            worker.yield_now();
            let value = run(body, worker, path);
            worker.yield_now();
            value
        }
        Program::Enqueue(body) => {
            let done = Arc::new(AtomicBool::new(false));
            let other = Arc::clone(&done);
            worker.enqueue(move |worker| {
                other.store(true, Ordering::SeqCst);
                worker.unpark_all(Arc::as_ptr(&other).addr());
            });
            let value = run(body, worker, path);
            worker.wait_until(Arc::as_ptr(&done).addr(), || done.load(Ordering::SeqCst));
            value
        }
    }
}

fn run_group(nodes: &[Program], again: u64, worker: &Worker, path: u64) -> u64 {
    let sum = AtomicU64::new(0);
    worker.group(|worker, group| {
        for (at, node) in nodes.iter().enumerate() {
            let (sum, at) = (&sum, at as u64);
            group.spawn(worker, move |worker, group| {
                for round in 1..=again {
                    group.spawn(worker, move |worker, _| {
                        let value = run(node, worker, part(path, at * 8 + round));
                        sum.fetch_add(value, Ordering::Relaxed);
                    });
                }
                sum.fetch_add(run(node, worker, part(path, at * 8)), Ordering::Relaxed);
            });
        }
    });
    sum.into_inner()
}

fn run_park(body: &Program, worker: &Worker, path: u64) -> u64 {
    let (done, second) = (AtomicBool::new(false), AtomicU64::new(0));
    let (first, is_stored) = (AtomicU64::new(0), AtomicBool::new(false));
    worker.group(|worker, group| {
        let (done, first, second, is_stored) = (&done, &first, &second, &is_stored);
        group.spawn(worker, move |worker, _| {
            worker.wait_until(std::ptr::from_ref(done).addr(), || {
                done.load(Ordering::SeqCst)
            });
            assert!(is_stored.load(Ordering::Relaxed));
            first.store(run(body, worker, part(path, 0)), Ordering::Relaxed);
        });
        group.spawn(worker, move |worker, _| {
            second.store(run(body, worker, part(path, 1)), Ordering::Relaxed);
            is_stored.store(true, Ordering::Relaxed);
            done.store(true, Ordering::SeqCst);
            worker.unpark_one(std::ptr::from_ref(done).addr(), |_, more| assert!(!more));
        });
    });
    joined(first.into_inner(), second.into_inner())
}

fn run_cancel(tasks: u64, body: &Program, worker: &Worker, path: u64) -> u64 {
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    worker.group(|worker, group| {
        for task in 0..tasks {
            let (begun, ended) = (&begun, &ended);
            group.spawn(worker, move |worker, group| {
                begun.fetch_add(1, Ordering::Relaxed);
                if task % 3 == 1 {
                    group.cancel();
                }
                run(body, worker, part(path, task));
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    let (begun, ended) = (begun.into_inner(), ended.into_inner());
    assert_eq!(begun, ended, "tasks of a cancelled group that had begun");
    assert!(begun <= tasks && (tasks > 1 || begun == 1));
    3
}

/// Ends the test run when a program hangs, and says which.
struct Watch {
    running: Arc<Mutex<Option<(u64, Instant)>>>,
}

impl Watch {
    fn new(what: &'static str) -> Watch {
        let running = Arc::new(Mutex::new(None::<(u64, Instant)>));
        let watched = Arc::downgrade(&running);
        std::thread::spawn(move || {
            while let Some(running) = watched.upgrade() {
                if let Some((seed, began)) = *running.lock().expect("no panic under it")
                    && began.elapsed() > LIMIT
                {
                    eprintln!("{what}: the program of seed {seed} hangs");
                    std::process::abort();
                }
                drop(running);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Watch { running }
    }

    fn check(&self, worker: &Worker, seed: u64) {
        let mut work = WORK;
        let program = grow(&mut Rng::with_seed(seed), &mut work, 9, 1);
        *self.running.lock().expect("no panic under it") = Some((seed, Instant::now()));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert_eq!(run(&program, worker, seed), program.expected(seed));
        }));
        *self.running.lock().expect("no panic under it") = None;
        if let Err(panic) = result {
            eprintln!("seed {seed}: {program:#?}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn on_pool_of(workers: usize) {
    let watch = Watch::new("one thread in the pool");
    let pool = common::pool_of(workers);
    for seed in (0..PROGRAMS).map(|program| workers as u64 * 1_000_000 + program) {
        pool.enter(|worker| watch.check(worker, seed));
    }
}

#[test]
fn random_programs_on_one_worker() {
    on_pool_of(1);
}

#[test]
fn random_programs_on_two_workers() {
    on_pool_of(2);
}

#[test]
fn random_programs_on_three_workers() {
    on_pool_of(3);
}

#[test]
fn random_programs_on_eight_workers() {
    on_pool_of(8);
}

#[test]
fn random_programs_of_several_threads_at_the_same_time() {
    let pool = &Pool::new(Config::default(), AnyClock::System);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let watch = Watch::new("several threads");
                for seed in (0..PROGRAMS / 4).map(|program| thread * 10_000_000 + program) {
                    with_worker(|| pool, |worker| watch.check(worker, seed));
                }
            });
        }
    });
}
