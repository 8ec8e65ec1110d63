//! Programs with `MPI_THREAD_MULTIPLE` that can never go on, and others that are only slow: what
//! the launcher says of them of its own accord. Each thread that waits is shown with its own call
//! and line.

use std::time::Instant;

use margay_tests::hangs::may_trace;
use margay_tests::jobs::{Built, Ended, Job, SOON, Words};
use margay_tests::{command, program, scratch, stage, succeed};

/// A program that can never go on, and what is said of it: `{listen}` is the line that has this
/// mark.
struct Stuck {
    word: &'static str,
    ranks: u32,
    said: &'static [&'static str],
}

const fn stuck(word: &'static str, ranks: u32, said: &'static [&'static str]) -> Stuck {
    Stuck { word, ranks, said }
}

const CIRCLE: &str = "deadlock: 0 → 1 → 0\n";
const EACH_OTHER: &str =
    "deadlock: ranks 0, 1 wait for each other, and none of them can continue\n";
const MAIN_RECEIVES: &str =
    "rank 0, another thread: waiting in MPI_Recv for rank 1, tag 1 at {receive} in receive()\n";

const STUCK: [Stuck; 25] = [
    stuck(
        "two-tags",
        2,
        &[
            CIRCLE,
            "rank 0: waiting in MPI_Recv for rank 1, tag 2 at {listen} in listen_to()\n",
            MAIN_RECEIVES,
            "rank 1: waiting in MPI_Recv for rank 0, tag 2 at {listen} in listen_to()\n",
            "rank 1, another thread: waiting in MPI_Recv for rank 0, tag 1 at {receive} in receive()\n",
        ],
    ),
    stuck(
        "ring",
        3,
        &[
            "deadlock: 0 → 1 → 2 → 0\n",
            "rank 2: waiting in MPI_Recv for rank 0, tag 2 at {listen} in listen_to()\n",
            "rank 2, another thread: waiting in MPI_Recv for rank 0, tag 1 at {receive} in receive()\n",
        ],
    ),
    stuck(
        "wrong-tag",
        2,
        &[
            CIRCLE,
            "rank 0 sends tag 8 to rank 1, which waits for tags 1, 7 from it\n",
            "rank 0: waiting in MPI_Ssend until rank 1 takes its message, tag 8 at {ssend} in hand_over()\n",
            MAIN_RECEIVES,
            "rank 1: waiting in MPI_Recv for rank 0, tag 7 at {listen} in listen_to()\n",
        ],
    ),
    stuck(
        "wildcards",
        2,
        &[
            EACH_OTHER,
            "ranks 0, 1: waiting in MPI_Recv for any rank, tag 2 at {any} in listen_to_all()\n",
            "ranks 0, 1, another thread of each: waiting in MPI_Recv for any rank, tag 1 at {receive} in receive()\n",
        ],
    ),
    stuck(
        "probes",
        2,
        &[
            CIRCLE,
            "rank 0: waiting in MPI_Probe for rank 1, tag 5 at {probe} in probe()\n",
            MAIN_RECEIVES,
        ],
    ),
    stuck(
        "waitany",
        2,
        &[
            EACH_OTHER,
            "rank 0: waiting in MPI_Waitany for one of several requests at {waitany} in wait_for_any()\n",
            MAIN_RECEIVES,
            "rank 1, another thread: waiting in MPI_Barrier for the other ranks, communicator 4 at {barrier-first} in meet_in_first()\n",
        ],
    ),
    stuck(
        "waitall",
        2,
        &[
            EACH_OTHER,
            "rank 0: waiting in MPI_Waitall for rank 1, tag 10",
            " at {waitall} in wait_for_all()\n",
            MAIN_RECEIVES,
            "rank 1, another thread: waiting in MPI_Barrier for the other ranks, communicator 4 at {barrier-first} in meet_in_first()\n",
        ],
    ),
    stuck(
        "persistent",
        2,
        &[
            CIRCLE,
            "rank 0: waiting in MPI_Wait for rank 1, tag 12",
            " at {wait} in wait_for_started()\n",
            MAIN_RECEIVES,
        ],
    ),
    stuck(
        "two-orders",
        2,
        &[
            EACH_OTHER,
            "rank 0: waiting in MPI_Barrier for the other ranks, communicator 4 at {barrier-first} in meet_in_first()\n",
            "rank 1: waiting in MPI_Barrier for the other ranks, communicator 6 at {barrier-second} in meet_in_second()\n",
        ],
    ),
    stuck(
        "two-operations",
        2,
        &[
            EACH_OTHER,
            "waiting in MPI_Barrier for the other ranks, communicator 4 at {barrier-first} in meet_in_first()\n",
            "waiting in MPI_Allreduce for the other ranks, communicator 6 at {allreduce} in sum_in_second()\n",
            "waiting in MPI_Recv for rank 1, tag 3 at {listen} in listen_to()\n",
            "waiting in MPI_Recv for rank 0, tag 3 at {listen} in listen_to()\n",
        ],
    ),
    stuck("mutex", 2, IN_RECEIVE_4),
    stuck("condition", 2, IN_RECEIVE_4),
    stuck("semaphore", 2, IN_RECEIVE_4),
    stuck("rwlock", 2, IN_RECEIVE_4),
    stuck(
        "thread-barrier",
        2,
        &[
            CIRCLE,
            "rank 1: waiting in MPI_Recv for rank 0, tag 6 at {listen} in listen_to()\n",
        ],
    ),
    stuck(
        "sender-ended",
        2,
        &[
            CIRCLE,
            "rank 0: waiting in MPI_Recv for rank 1, tag 1 at {receive} in receive()\n",
        ],
    ),
    // Not MPI_Iprobe, which another thread called later.
    stuck(
        "last-call",
        2,
        &[
            CIRCLE,
            "rank 0: waiting in MPI_Recv for rank 1, tag 9 at {listen} in listen_to()\n",
            "rank 1: waiting in MPI_Recv for rank 0, tag 9 at {listen} in listen_to()\n",
        ],
    ),
    stuck(
        "many",
        2,
        &[
            CIRCLE,
            "rank 0: waiting in MPI_Recv for rank 1, tag 7 at {listen} in listen_to()\n",
            "rank 0, 7 other threads: waiting in MPI_Recv for rank 1, tag 7 at {listen} in listen_to()\n",
        ],
    ),
    stuck(
        "openmp",
        2,
        &[
            CIRCLE,
            "rank 0: waiting in MPI_Recv for rank 1, tag 1 at {receive} in receive()\n",
        ],
    ),
    stuck(
        "openmp-members",
        2,
        &[
            CIRCLE,
            "waiting in MPI_Recv for rank 1, tag 0 at {omp} in openmp_members (parallel region)()\n",
            "waiting in MPI_Recv for rank 1, tag 1 at {omp} in openmp_members (parallel region)()\n",
        ],
    ),
    stuck(
        "fence",
        2,
        &[
            EACH_OTHER,
            "waiting in MPI_Win_fence for the other ranks, communicator 8 at {fence} in fence()\n",
            "waiting in MPI_Barrier for the other ranks, communicator 4 at {barrier-first} in meet_in_first()\n",
            "waiting in MPI_Recv for rank 1, tag 2 at {listen} in listen_to()\n",
        ],
    ),
    stuck(
        "lock",
        2,
        &[
            EACH_OTHER,
            "rank 0: waiting in MPI_Recv for rank 1, tag 3 at {listen} in listen_to()\n",
            MAIN_RECEIVES,
            "rank 1: waiting in MPI_Win_lock for the other ranks, communicator 8 at {lock} in lock_window()\n",
        ],
    ),
    stuck(
        "sends",
        2,
        &[
            CIRCLE,
            "rank 0 sends tag 8 to rank 1, which waits for tag 1 from it\n",
            "rank 0: waiting in MPI_Ssend until rank 1 takes its message, tag 8 at {ssend} in hand_over()\n",
            MAIN_RECEIVES,
        ],
    ),
    stuck(
        "sendrecv",
        3,
        &[
            "deadlock: 0 → 1 → 2 → 0\n",
            "rank 0: waiting in MPI_Sendrecv for rank 1, tag 21 at {sendrecv} in exchange()\n",
            MAIN_RECEIVES,
        ],
    ),
    stuck(
        "finished",
        2,
        &[
            EACH_OTHER,
            "rank 0: waiting in MPI_Recv for rank 1, tag 2 at {listen} in listen_to()\n",
            MAIN_RECEIVES,
            "rank 1: waiting in MPI_Finalize for the other ranks at {finalize} in main()\n",
        ],
    ),
];

const IN_RECEIVE_4: &[&str] = &[
    CIRCLE,
    "rank 0: waiting in MPI_Recv for rank 1, tag 4 at {receive} in receive()\n",
    "rank 1: waiting in MPI_Recv for rank 0, tag 4 at {receive} in receive()\n",
];

const SLOW: [&str; 16] = [
    "computing",
    "timed-condition",
    "timed-semaphore",
    "mutex-of-a-sleeper",
    "semaphore-of-two-processes",
    "child",
    "pipe",
    "timer",
    "signal",
    "probing",
    "testing",
    "openmp",
    "pipeline",
    "locked",
    "listener",
    "late-thread",
];

/// Jobs that run at a time: most of their time they wait.
const AT_A_TIME: usize = 4;

fn start(built: &Built, ranks: u32, word: &str) -> Job {
    let words = Words::default()
        .and(stage().join("bin/mpiexec"))
        .and_all(&format!("-timeout 100 -deadlock end -n {ranks}"))
        .and(built.path())
        .and_all(word);
    Job::start(&words, 110)
}

/// The text with lines in place of their marks.
fn with_lines(text: &str, marked: &str) -> String {
    let Some((before, (mark, after))) = text
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return text.to_owned();
    };
    let mark = format!("/* LINE {mark} */");
    let line = marked.lines().position(|line| line.contains(&mark));
    let line = line.unwrap_or_else(|| panic!("no line has {mark}")) + 1;
    format!("{before}threads.c:{line}{after}")
}

#[test]
fn threads_that_can_never_go_on_are_reported_with_their_own_calls() {
    if !may_trace() {
        return;
    }
    let built = Built::mpi_with("why/threads.c", &["-fopenmp"]);
    let source = std::fs::read_to_string(program("why/threads.c")).unwrap();
    for some in STUCK.chunks(AT_A_TIME) {
        let jobs = some.iter().map(|of| (of, start(&built, of.ranks, of.word)));
        let jobs: Vec<_> = jobs.collect();
        for (of, job) in jobs {
            let Ended { status, err, .. } = job.ended();
            let word = of.word;
            assert_eq!(status.code(), Some(1), "{word}: {err}");
            for said in of.said {
                let said = with_lines(said, &source);
                assert!(err.contains(&said), "{word} lacks {said:?}: {err}");
            }
            assert_eq!(err.matches("deadlock: ").count(), 1, "{word}: {err}");
        }
    }
}

/// Threads of C++, of OpenMP in Fortran and of Python.
#[test]
fn threads_of_other_languages_are_reported_with_their_own_lines() {
    if !may_trace() {
        return;
    }
    let folder = scratch();
    let jobs = [
        ("mpicxx", "cpp", "Listener::operator()()", "listen()"),
        (
            "mpifort",
            "f90",
            "main program (parallel region)()",
            "listen()",
        ),
        ("python3", "py", "first()", "second()"),
    ];
    let jobs = jobs.map(|(by, kind, first, second)| {
        let name = format!("languages.{kind}");
        let source = program("why").join(&name);
        let marked = std::fs::read_to_string(&source).unwrap();
        let line = |mark: &str| {
            let is_it = |line: &str| line.ends_with(&format!(" LINE {mark}"));
            format!("{name}:{}", marked.lines().position(is_it).unwrap() + 1)
        };
        let places = [("first", first), ("second", second)];
        let places = places.map(|(mark, of)| format!("{} in {of}", line(mark)));
        let words = Words::default()
            .and(stage().join("bin/mpiexec"))
            .and_all("-timeout 100 -deadlock end -n 2");
        let words = if by == "python3" {
            let words = words.and(by).and(&source);
            words.and(stage().join("lib/libmpi_abi.so.1"))
        } else {
            let built = folder.path().join(kind);
            let mut compiler = command(stage().join("bin").join(by), 100);
            let compiler = compiler.args(["-O2", "-g", "-fopenmp"]).arg(&source);
            succeed(compiler.arg("-o").arg(&built));
            words.and(built)
        };
        (name, places, Job::start(&words, 110))
    });
    for (name, [first, second], job) in jobs {
        let Ended { status, err, .. } = job.ended();
        assert_eq!(status.code(), Some(1), "{name}: {err}");
        for rank in 0..2 {
            let other = 1 - rank;
            for (tag, place) in [(5, &first), (6, &second)] {
                let said = format!("waiting in MPI_Recv for rank {other}, tag {tag} at {place}\n");
                let of = |line: &str| line.contains(&format!("rank {rank}"));
                let is_said = err
                    .split_inclusive('\n')
                    .any(|l| of(l) && l.ends_with(&said));
                assert!(is_said, "{name}: rank {rank} lacks {said:?}: {err}");
            }
        }
    }
}

/// All ranks wait for each other for 5 s, and something frees them that is no wait of theirs.
#[test]
fn threads_that_are_only_slow_are_left_alone() {
    let built = Built::mpi_with("why/slow.c", &["-fopenmp"]);
    for some in SLOW.chunks(AT_A_TIME) {
        let jobs = some.iter().map(|word| (word, start(&built, 2, word)));
        let jobs: Vec<_> = jobs.collect();
        for (word, job) in jobs {
            let Ended { status, out, err } = job.ended();
            assert!(status.success(), "{word}: {err}");
            assert_eq!((out.matches("done").count(), &*err), (2, ""), "{word}");
        }
    }
}

/// A call that a thread of a rank makes later is not the one in which another thread waits, and
/// `margay why` has a line for each.
#[test]
fn why_shows_each_thread_with_its_call() {
    if !may_trace() {
        return;
    }
    let built = Built::mpi_with("why/threads.c", &["-fopenmp"]);
    let words = Words::mpiexec(60, 2, &built.path(), "wrong-tag");
    let mut job = Job::start(&words, 70);
    job.until("ready", 2);
    let pid = job.pid().to_string();
    let why = |options: &str| {
        let words = Words::default().and(stage().join("bin/margay"));
        words.and_all(&format!("why {options} {pid}")).succeed(30)
    };
    let source = std::fs::read_to_string(program("why/threads.c")).unwrap();
    let expected = [
        "rank 0 waits in MPI_Ssend until rank 1 takes its message, tag 8 at {ssend}, for ",
        "    another thread waits in MPI_Recv for rank 1, tag 1 at {receive}, for ",
        "rank 1 waits in MPI_Recv for rank 0, tag 7 at {listen}, for ",
        "    another thread waits in MPI_Recv for rank 0, tag 1 at {receive}, for ",
    ];
    let expected = expected.map(|said| with_lines(said, &source));
    let began = Instant::now();
    let mut text = why("");
    while !expected.iter().all(|said| text.contains(said)) {
        assert!(began.elapsed() < SOON, "not all of {expected:?}: {text}");
        text = why("");
    }
    let json: serde_json::Value = serde_json::from_str(&why("--json")).unwrap();
    drop(job);
    let further = &json["jobs"][0]["classes"][0]["further"][0];
    assert_eq!(further["threads"], 1, "{json}");
    assert_eq!(further["stack"][0]["function"], "receive()", "{json}");
}
