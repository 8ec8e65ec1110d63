//! Forks, loops and tasks in any nesting, on pools of any size.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use margay_run_threads::{AnyClock, Config, Group, Iterations, Pool, Refusal, Worker, with_worker};

mod common;

use common::{SCHEDULES, rendezvous};

fn on_pools(body: impl Fn(&Worker)) {
    for workers in [1, 2, 3, 8] {
        let pool = common::pool_of(workers);
        pool.enter(|worker| body(worker));
    }
}

fn fib(worker: &Worker, n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (a, b) = worker.join(|w| fib(w, n - 1), |w| fib(w, n - 2));
    a + b
}

fn fib_by_tasks(worker: &Worker, n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (mut a, mut b) = (0, 0);
    worker.group(|worker, group| {
        group.spawn(worker, |worker, _| a = fib_by_tasks(worker, n - 1));
        b = fib_by_tasks(worker, n - 2);
    });
    a + b
}

#[test]
fn forks_and_tasks_return_what_they_computed() {
    on_pools(|worker| {
        for _ in 0..20 {
            assert_eq!(fib(worker, 18), 2584);
            assert_eq!(fib_by_tasks(worker, 16), 987);
        }
    });
}

#[test]
fn a_loop_runs_each_iteration_once_whatever_its_schedule_and_nesting() {
    on_pools(|worker| {
        for outer in SCHEDULES {
            for inner in SCHEDULES {
                let seen: Vec<AtomicU32> = (0..37 * 53).map(|_| AtomicU32::new(0)).collect();
                let iterations = |count, schedule, min_chunk| Iterations {
                    count,
                    schedule,
                    min_chunk,
                };
                worker.for_each(
                    iterations(37, outer, 1),
                    &|worker: &Worker, begin, count| {
                        for i in begin..begin + count {
                            worker.for_each(
                                iterations(53, inner, 3),
                                &|_: &Worker, begin, count| {
                                    for j in begin..begin + count {
                                        seen[(i * 53 + j) as usize].fetch_add(1, Ordering::Relaxed);
                                    }
                                },
                            );
                        }
                    },
                );
                assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed) == 1));
            }
        }
    });
}

#[test]
fn a_reduction_does_not_depend_on_which_worker_computed_what() {
    let sum = |worker: &Worker| {
        worker.reduce(
            10_000,
            7,
            0.0_f64,
            &|_: &Worker, begin, count| (begin..begin + count).map(|i| 1.0 / (i + 1) as f64).sum(),
            &|a, b| a + b,
        )
    };
    let one = Pool::new(
        Config {
            workers: 1,
            ..Config::default()
        },
        AnyClock::System,
    )
    .enter(sum);
    on_pools(|worker| assert_eq!(sum(worker).to_bits(), one.to_bits()));
}

#[test]
fn the_worker_of_a_blocked_fiber_runs_others() {
    // Each task waits for the one that is forked after it: with fewer workers than tasks most are
    // suspended.
    on_pools(|worker| {
        const TASKS: usize = 100;
        let flags: Arc<Vec<AtomicBool>> =
            Arc::new((0..=TASKS).map(|_| AtomicBool::new(false)).collect());
        worker.group(|worker, group| {
            for task in 0..TASKS {
                let flags = Arc::clone(&flags);
                group.spawn(worker, move |worker, _| {
                    let next = &flags[task + 1];
                    worker.wait_until(std::ptr::from_ref(next).addr(), || {
                        next.load(Ordering::SeqCst)
                    });
                    let own = &flags[task];
                    own.store(true, Ordering::SeqCst);
                    worker.unpark_all(std::ptr::from_ref(own).addr());
                });
            }
            let flags = Arc::clone(&flags);
            group.spawn(worker, move |worker, _| {
                flags[TASKS].store(true, Ordering::SeqCst);
                worker.unpark_all(std::ptr::from_ref(&flags[TASKS]).addr());
            });
        });
        assert!(flags[0].load(Ordering::SeqCst));
    });
}

#[test]
fn parts_of_an_offer_rendezvous_whatever_the_number_of_workers_and_the_nesting() {
    on_pools(|worker| {
        for parts in [1, 2, 5, 16] {
            for _ in 0..50 {
                rendezvous(worker, parts);
            }
            worker.for_each(Iterations::with_grain(40, 1), &|worker: &Worker, _, _| {
                rendezvous(worker, parts);
            });
        }
    });
}

#[test]
fn a_panic_is_resumed_at_the_fork_and_the_other_half_has_run() {
    on_pools(|worker| {
        let ran = AtomicBool::new(false);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            worker.group(|worker, group: &Group<'_, Worker>| {
                group.spawn(worker, |_, _| panic!("as planned"));
                group.spawn(worker, |_, _| ran.store(true, Ordering::SeqCst));
            });
        }));
        let text = caught.expect_err("the panic is resumed");
        assert_eq!(text.downcast_ref::<&str>(), Some(&"as planned"));
        assert!(ran.load(Ordering::SeqCst));
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            worker.join(|_| (), |_| panic!("as planned"));
        }));
        assert!(caught.is_err());
    });
}

#[test]
fn a_cancelled_group_begins_nothing_more() {
    on_pools(|worker| {
        let ran = AtomicU64::new(0);
        worker.group(|worker, group| {
            group.cancel();
            for _ in 0..10 {
                group.spawn(worker, |_, _| {
                    ran.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(ran.into_inner(), 0);
    });
}

#[test]
fn several_program_threads_share_the_workers() {
    let pool = Pool::new(Config::default(), AnyClock::System);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(with_worker(|| &pool, |worker| fib(worker, 15)), 610);
                    with_worker(|| &pool, |worker| rendezvous(worker, 4));
                }
            });
        }
    });
}

#[test]
fn enqueued_work_runs_once() {
    on_pools(|worker| {
        let ran = Arc::new(AtomicU64::new(0));
        for _ in 0..1000 {
            let ran = Arc::clone(&ran);
            worker.enqueue(move |_| {
                ran.fetch_add(1, Ordering::SeqCst);
            });
        }
        worker.wait_enqueued();
        assert_eq!(ran.load(Ordering::SeqCst), 1000);
    });
}

#[test]
fn stacks_that_the_system_refuses_become_smaller_ones() {
    static WARNINGS: AtomicU32 = AtomicU32::new(0);
    let config = Config {
        workers: 2,
        // More than any address space has.
        stack_bytes: 1 << 50,
        refusal: Refusal {
            warn: |text| {
                assert!(
                    text.contains("1048576 GiB") && text.contains("8 MiB now"),
                    "{text}"
                );
                WARNINGS.fetch_add(1, Ordering::SeqCst);
            },
            ..Refusal::default()
        },
        ..Config::default()
    };
    let pool = Pool::new(config, AnyClock::System);
    assert_eq!(pool.enter(|worker| fib_by_tasks(worker, 16)), 987);
    let warnings = WARNINGS.load(Ordering::SeqCst);
    assert!(warnings <= 2, "once for each worker at most: {warnings}");
}

#[test]
fn a_pool_whose_workers_have_ended_leaves_the_work_to_the_threads_that_call() {
    let pool = Pool::new(
        Config {
            workers: 3,
            ..Config::default()
        },
        AnyClock::System,
    );
    assert_eq!(pool.enter(|worker| fib(worker, 16)), 987);
    pool.end_with_last_thread();
    assert_eq!(pool.enter(|worker| fib_by_tasks(worker, 16)), 987);
    pool.main_thread_has_ended();
    assert_eq!(pool.enter(|worker| fib_by_tasks(worker, 16)), 987);
}
