//! What a fork costs that nobody takes, and Fibonacci numbers by forks: Margay's threads, chili and
//! rayon in turn in one run.
//!
//! `cargo run --release -p margay-bench-peers --bin fork`
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::num::NonZero;
use std::time::Instant;

use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use margay_bench_common::statistics::median;
use margay_run_threads::{AnyClock, Iterations, Pool, Schedule, Worker};
use rayon::prelude::*;

/// Measure what forks cost in Rust: Margay's threads, chili and rayon.
#[derive(Parser)]
#[command(name = "fork")]
struct Options {
    /// The Fibonacci number.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=45))]
    n: u32,
    /// Repetitions, in which the crates take turns.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
}

/// How often in a row for one time, and tasks of one group.
const TIMES: u64 = 1_000_000;
const TASKS: u64 = 1000;

/// What is measured.
const FIGURES: [&str; 5] = [
    "fib, a call, all cores",
    "fib, a call, one thread",
    "fork of two, one thread",
    "loop of two, one thread",
    "spawned task, one thread",
];

/// A crate with its two pools, of all usable cores and of one thread.
trait Way {
    fn name(&self) -> &'static str;
    /// Fibonacci numbers by forks, on all cores or on one thread.
    fn fib(&self, n: u32, alone: bool) -> u64;
    /// Forks of next to nothing in a row, on one thread.
    fn forks(&self) -> Option<()>;
    /// Parallel loops of two iterations in a row, on one thread.
    fn loops(&self) -> Option<()>;
    /// Tasks in groups, on one thread.
    fn tasks(&self) -> Option<()>;
}

struct Sequential;

// A compiler that sees through all of it would unroll the recursion, which it cannot do to the
// others.
#[inline(never)]
fn sequential(n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    sequential(black_box(n - 1)) + sequential(black_box(n - 2))
}

impl Way for Sequential {
    fn name(&self) -> &'static str {
        "sequential"
    }

    fn fib(&self, n: u32, _: bool) -> u64 {
        sequential(n)
    }

    fn forks(&self) -> Option<()> {
        None
    }

    fn loops(&self) -> Option<()> {
        None
    }

    fn tasks(&self) -> Option<()> {
        None
    }
}

struct Margay {
    all: Pool,
    one: Pool,
}

impl Margay {
    fn new() -> Self {
        let alone = margay_run_threads::Config {
            workers: 1,
            ..margay_run_threads::Config::default()
        };
        Self {
            all: Pool::new(margay_run_threads::Config::default(), AnyClock::System),
            one: Pool::new(alone, AnyClock::System),
        }
    }
}

fn by_margay(worker: &Worker, n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (a, b) = worker.join(
        |worker| by_margay(worker, n - 1),
        |worker| by_margay(worker, n - 2),
    );
    a + b
}

impl Way for Margay {
    fn name(&self) -> &'static str {
        "margay"
    }

    fn fib(&self, n: u32, alone: bool) -> u64 {
        let pool = if alone { &self.one } else { &self.all };
        pool.enter(|worker| by_margay(worker, n))
    }

    fn forks(&self) -> Option<()> {
        self.one.enter(|worker| {
            for n in 0..TIMES {
                black_box(worker.join(|_| black_box(n), |_| black_box(n)));
            }
        });
        Some(())
    }

    fn loops(&self) -> Option<()> {
        let two = Iterations {
            count: 2,
            schedule: Schedule::Simple,
            min_chunk: 1,
        };
        self.one.enter(|worker| {
            for _ in 0..TIMES {
                worker.for_each(black_box(two), &|_, start, _| {
                    black_box(start);
                });
            }
        });
        Some(())
    }

    fn tasks(&self) -> Option<()> {
        self.one.enter(|worker| {
            for _ in 0..TIMES / TASKS {
                worker.group(|worker, group| {
                    for n in 0..TASKS {
                        group.spawn(worker, move |_, _| {
                            black_box(n);
                        });
                    }
                });
            }
        });
        Some(())
    }
}

struct Chili {
    all: chili::ThreadPool,
    one: chili::ThreadPool,
}

impl Chili {
    fn new() -> Self {
        let alone = chili::Config {
            thread_count: NonZero::new(1),
            ..chili::Config::default()
        };
        Self {
            all: chili::ThreadPool::new(),
            one: chili::ThreadPool::with_config(alone),
        }
    }
}

fn by_chili(scope: &mut chili::Scope<'_>, n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (a, b) = scope.join(
        |scope| by_chili(scope, n - 1),
        |scope| by_chili(scope, n - 2),
    );
    a + b
}

impl Way for Chili {
    fn name(&self) -> &'static str {
        "chili"
    }

    fn fib(&self, n: u32, alone: bool) -> u64 {
        let pool = if alone { &self.one } else { &self.all };
        by_chili(&mut pool.scope(), n)
    }

    fn forks(&self) -> Option<()> {
        let mut scope = self.one.scope();
        for n in 0..TIMES {
            black_box(scope.join(|_| black_box(n), |_| black_box(n)));
        }
        Some(())
    }

    fn loops(&self) -> Option<()> {
        None
    }

    fn tasks(&self) -> Option<()> {
        None
    }
}

struct Rayon {
    all: rayon::ThreadPool,
    one: rayon::ThreadPool,
}

impl Rayon {
    fn new() -> Self {
        let pool = |threads| {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
            builder.build().expect("threads can be started")
        };
        Self {
            all: pool(0),
            one: pool(1),
        }
    }
}

fn by_rayon(n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (a, b) = rayon::join(|| by_rayon(n - 1), || by_rayon(n - 2));
    a + b
}

impl Way for Rayon {
    fn name(&self) -> &'static str {
        "rayon"
    }

    fn fib(&self, n: u32, alone: bool) -> u64 {
        let pool = if alone { &self.one } else { &self.all };
        pool.install(|| by_rayon(n))
    }

    fn forks(&self) -> Option<()> {
        self.one.install(|| {
            for n in 0..TIMES {
                black_box(rayon::join(|| black_box(n), || black_box(n)));
            }
        });
        Some(())
    }

    fn loops(&self) -> Option<()> {
        self.one.install(|| {
            for _ in 0..TIMES {
                black_box(0..2_u32)
                    .into_par_iter()
                    .with_max_len(1)
                    .for_each(|n| {
                        black_box(n);
                    });
            }
        });
        Some(())
    }

    fn tasks(&self) -> Option<()> {
        self.one.install(|| {
            for _ in 0..TIMES / TASKS {
                rayon::scope(|scope| {
                    for n in 0..TASKS {
                        scope.spawn(move |_| {
                            black_box(n);
                        });
                    }
                });
            }
        });
        Some(())
    }
}

/// Nanoseconds of `body` divided by `times`; `None` when it measured nothing.
fn timed(times: u64, body: impl FnOnce() -> Option<()>) -> Option<f64> {
    let start = Instant::now();
    body()?;
    Some(start.elapsed().as_secs_f64() * 1e9 / times as f64)
}

fn main() {
    let options = Options::parse();
    let expected = sequential(options.n);
    let calls = 2 * sequential(options.n + 1) - 1;
    let ways: [&dyn Way; 4] = [&Sequential, &Margay::new(), &Chili::new(), &Rayon::new()];
    let mut values = vec![vec![Vec::new(); ways.len()]; FIGURES.len()];
    // The first time touches memory that is used again and does not count.
    for repetition in 0..=options.repetitions {
        for (column, way) in ways.iter().enumerate() {
            let fib = |alone| {
                timed(calls, || {
                    let found = way.fib(black_box(options.n), alone);
                    assert_eq!(found, expected, "{} computes a wrong number", way.name());
                    Some(())
                })
            };
            let taken = [
                fib(false),
                fib(true),
                timed(TIMES, || way.forks()),
                timed(TIMES, || way.loops()),
                timed(TIMES, || way.tasks()),
            ];
            for (row, value) in taken.into_iter().enumerate() {
                values[row][column].extend(value.filter(|_| repetition > 0));
            }
        }
    }

    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    let mut head = vec!["ns, median (longest)"];
    head.extend(ways.iter().map(|way| way.name()));
    table.set_header(head);
    for (figure, values) in FIGURES.iter().zip(&values) {
        let mut cells = vec![(*figure).to_owned()];
        cells.extend(values.iter().map(|values| shown(values)));
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{table}\nfib({}), {cores} cores, {} repetitions",
        options.n, options.repetitions
    );
}

/// Median and maximum.
fn shown(values: &[f64]) -> String {
    let longest = values.iter().copied().reduce(f64::max);
    longest.map_or("-".into(), |longest| {
        format!("{:.2} ({longest:.2})", median(values))
    })
}
