//! The places that wait: nothing else spins, sleeps or blocks.
//!
//! A place waits when its code, outside of tests, has one of the words of `words`: it lets time
//! pass, sleeps on a futex, a condition, a descriptor, a channel, a thread or a child. Locks around
//! short work are no such places, nor is code that asks one of these places to wait (`Rank::wait`).
//! What cannot be seen in words is a read of a pipe that blocks.
//!
//! The table is the list. `ARCHITECTURE.md` says the same under rule 6, for readers. A commit that
//! moves a file changes its path in both; one that needs a new place that waits says here why none
//! of the existing ones will do.

mod words;

use super::{File, Finding};
use words::waits;

/// Files that may wait, and on what or why.
const PLACES: &[(&str, &str)] = &[
    (
        "cli/src/fortran.rs",
        "compiles with two threads, of which one joins the other",
    ),
    (
        "cli/src/job_files.rs",
        "the launcher waits until the file system of the job is removed: descriptors and a child",
    ),
    (
        "cli/src/queue_system.rs",
        "a unit of systemd has been started: until its head can be asked, 30 seconds at most",
    ),
    (
        "cli/src/live.rs",
        "the live view of jobs pauses between two samples",
    ),
    (
        "core/registry/src/markers.rs",
        "a reader of a rank's notes under a sequence lock, while they are written",
    ),
    (
        "fs/stripes/src/array.rs",
        "several stripe directories are synced by a thread each, which are joined",
    ),
    (
        "fs/stripes/src/array/writing.rs",
        "a row is written to several stripe directories at the same time: disks that have begun",
    ),
    (
        "fs/stripes/src/leaving.rs",
        "who finds no space waits for files that have just been deleted",
    ),
    (
        "fs/stripes/src/mend.rs",
        "a rebuild pauses so that others have their share",
    ),
    (
        "fs/stripes/src/pace.rs",
        "who begins a row of a file lets others complete one that waits, for a short time",
    ),
    (
        "fs/stripes/src/watched.rs",
        "threads of a stripe directory wait for operations, and who asked for their end, in time",
    ),
    (
        "fs/stripes/src/writers.rs",
        "a write or read waits for writes of the same bytes of a file that began before",
    ),
    (
        "job/launch/src/guard.rs",
        "the guard waits for ranks, signals and the launcher: descriptors",
    ),
    (
        "job/launch/src/hosts/agent.rs",
        "the agent of a host waits for its ranks' output, its guard and the relay: descriptors",
    ),
    (
        "job/launch/src/hosts/branches.rs",
        "registers descriptors; agent.rs waits for them",
    ),
    (
        "job/launch/src/hosts/connection.rs",
        "a remote shell that has closed its output ends: half a second at most",
    ),
    (
        "job/launch/src/hosts/relay.rs",
        "the relay waits for the launcher and the agents: descriptors",
    ),
    (
        "job/launch/src/input.rs",
        "the launcher asks once whether a rank takes input",
    ),
    (
        "job/observe/src/elsewhere.rs",
        "who asks a launcher where ranks of other hosts are waits for the answers, for two seconds",
    ),
    (
        "job/observe/src/sample.rs",
        "the profiler of a running job pauses between two looks at its ranks' stacks",
    ),
    (
        "job/partitions/src/lib.rs",
        "a command that changes partitions waits for another one to end: 5 seconds at most",
    ),
    (
        "job/launch/src/turns.rs",
        "a launcher waits for its job's first turn in a partition: the keeper's socket",
    ),
    (
        "svc/part/src/attend.rs",
        "the keeper of an application waits for orders and for its launcher: descriptors",
    ),
    (
        "svc/part/src/leader.rs",
        "who looks after turns waits for keepers and the ends of quanta: descriptors",
    ),
    (
        "svc/part/src/lib.rs",
        "a command waits for a moment until another one looks after turns",
    ),
    (
        "svc/part/src/wire.rs",
        "a command waits for the answer of the service: descriptors, with a limit of time",
    ),
    (
        "job/launch/src/recorder.rs",
        "the program that records a job finishes its trace after the job",
    ),
    (
        "cli/trace/src/record.rs",
        "the program that records a job pauses between two looks at the rings",
    ),
    (
        "job/launch/src/run.rs",
        "the launcher waits for output, signals and the guard: descriptors",
    ),
    (
        "job/launch/src/run/keeper.rs",
        "the same, and sees how long it was stopped",
    ),
    (
        "net/hosts/src/wake_up.rs",
        "lets the rank's wait sleep on its sockets and its doorbell",
    ),
    (
        "net/seeded/src/lib.rs",
        "worlds of tests: a rank's thread waits for its turn",
    ),
    (
        "net/shm/src/wake_up.rs",
        "lets the rank's wait yield and sleep on the rank's word",
    ),
    (
        "net/wireup/src/pmi.rs",
        "a launcher that shall end all processes ends this one, too: 5 seconds at most",
    ),
    (
        "run/engine/src/callbacks.rs",
        "a thread for callbacks tells once that it has begun",
    ),
    (
        "run/engine/src/progress_thread.rs",
        "the progress thread parks while the rank is in a call, and is joined at the end",
    ),
    ("run/engine/src/rank/block.rs", "the wait of ranks, `block`"),
    ("run/engine/src/wait.rs", "the policy of that wait"),
    (
        "run/mlp/src/fork.rs",
        "MLP's processes and their guard at the start of a group: no rank, no engine",
    ),
    (
        "run/mlp/src/together.rs",
        "MLP's processes wait until all have left, or for a debugger",
    ),
    (
        "run/nx/src/control.rs",
        "NX's controlling process waits for its children, as the program asks",
    ),
    (
        "run/nx/src/cop.rs",
        "a thread for the coprocessor's handlers tells once that it has begun",
    ),
    (
        "run/openmp/src/scheduler.rs",
        "OpenMP's waits, as waits of a worker of `run/threads`",
    ),
    (
        "run/openmp/src/task.rs",
        "`taskyield`: the worker runs others",
    ),
    (
        "run/openmp/src/team/wait.rs",
        "the waits of a team member: spins, then parks its fiber by its worker",
    ),
    (
        "run/openmp/src/work.rs",
        "a team member that comes while another one opens the work share yields for a moment",
    ),
    (
        "run/threads/src/pool.rs",
        "the threads of a pool are joined at its end",
    ),
    (
        "run/threads/src/watcher.rs",
        "the watcher of workers that wait in the kernel pauses between two polls",
    ),
    (
        "run/threads/src/worker/interrupt.rs",
        "a fiber that was interrupted yields",
    ),
    (
        "run/threads/src/worker.rs",
        "waits until all enqueued jobs are done",
    ),
    (
        "run/threads/src/worker/idle.rs",
        "a worker without work: spins, then sleeps",
    ),
    (
        "run/threads/src/worker/wait.rs",
        "the wait of threads that nest: a fiber yields or parks",
    ),
    (
        "sys/mlp/src/robust.rs",
        "the wait of MLP's processes: lock and barrier any of whose holders may die",
    ),
    (
        "sys/os/src/cpu.rs",
        "the instructions and calls by which a spin pauses and yields",
    ),
    (
        "sys/os/src/crash.rs",
        "a thread that crashes while another one writes down that it has: 0.2 s",
    ),
    (
        "sys/os/src/crew.rs",
        "helpers wait for work, and who has work for those that are in it",
    ),
    (
        "sys/os/src/descriptor.rs",
        "the wait for descriptors, `PollSet`",
    ),
    (
        "sys/os/src/event_count.rs",
        "the futex word on which a rank, a worker or a process sleeps",
    ),
    (
        "sys/os/src/file.rs",
        "locks on ranges of files, which the kernel waits for",
    ),
    (
        "sys/os/src/lock.rs",
        "the lock around a rank's state where several threads use it",
    ),
    (
        "sys/os/src/port.rs",
        "a port's channel that is full, for 100 ms at a time",
    ),
    ("sys/os/src/process.rs", "a child that has ended"),
    (
        "sys/os/src/process/start.rs",
        "a child that could not become the program",
    ),
    (
        "sys/os/src/postgres.rs",
        "the answer of a database's server: 30 seconds without a word at most",
    ),
    (
        "sys/os/src/process/marked.rs",
        "a pause between two searches for what a killed process has left",
    ),
    (
        "sys/os/src/process/watch.rs",
        "ended children, and a pause between two searches for what is left of a family",
    ),
    (
        "sys/os/src/sync.rs",
        "the pause of a spin, which a model under loom replaces",
    ),
    (
        "sys/os/src/trace.rs",
        "threads of other processes that are asked to stop: a second at most",
    ),
    (
        "sys/shm/src/owner.rs",
        "the lock of the table of boards, whose holder may die",
    ),
    (
        "sys/threads/src/deque.rs",
        "the owner of a deque whose last entry a thief is looking at",
    ),
    (
        "sys/threads/src/tls_block.rs",
        "the thread of a TLS block, which sleeps until the block ends, and tells once that it has begun",
    ),
    (
        "sys/threads/src/outlined.rs",
        "a reader of two words under a sequence lock, while they are written",
    ),
    (
        "sys/threads/src/preempt.rs",
        "recognizes a program that waits in `sched_yield`; waits for nothing itself",
    ),
    (
        "sys/threads/src/preempt/yields.rs",
        "the program's own calls of `sched_yield`, where no other member has a turn",
    ),
    (
        "sys/threads/src/preempt/calls.rs",
        "a member that waits in the kernel rests between two turns while the others of its thread wait, too",
    ),
    (
        "sys/threads/src/sleepers.rs",
        "the sleep of a worker on its own futex word",
    ),
    (
        "svc/batch/src/api.rs",
        "the API waits for requests and signals: descriptors",
    ),
    (
        "svc/batch/src/api/events.rs",
        "one who follows events pauses between two looks at the queue",
    ),
    (
        "svc/batch/src/top.rs",
        "the live view of the queue pauses between two views, and hears keys",
    ),
    (
        "svc/batch/src/interactive/allocation.rs",
        "a command waits for its job: the attendant's call, the head, signals",
    ),
    (
        "svc/batch/src/interactive/attendant.rs",
        "the program of an interactive job passes output on: descriptors; what outlives its command has two seconds",
    ),
    (
        "svc/batch/src/interactive/session.rs",
        "the command's side of an interactive job: its socket and signals",
    ),
    (
        "svc/batch/src/slurm/srun.rs",
        "a step of a job waits for slots that other steps have",
    ),
    (
        "svc/pfs/src/direct.rs",
        "who lets programs past the kernel waits for them, and for a free descriptor",
    ),
    (
        "svc/pfs/src/hosts/attach.rs",
        "a mount of another host's service: its device, its connection, a descriptor that wakes it",
    ),
    (
        "svc/pfs/src/hosts/directory.rs",
        "a stripe directory of another host's service: its connection, threads that read and write, one that is in use",
    ),
    (
        "svc/pfs/src/hosts/disk.rs",
        "the service's end of that: its connection, and those who wait for an answer",
    ),
    ("svc/pfs/src/hosts/door.rs", "hosts that knock: descriptors"),
    (
        "svc/pfs/src/hosts/invite.rs",
        "a remote shell, and the threads that each ask a host",
    ),
    (
        "svc/pfs/src/hosts/program.rs",
        "what a remote shell has started waits for what it has started itself",
    ),
    (
        "svc/pfs/src/hosts/reach.rs",
        "a host that looks for the service at first",
    ),
    (
        "svc/pfs/src/hosts/share.rs",
        "the service's end of a mount: its connection, those who serve it, and their end",
    ),
    (
        "svc/pfs/src/hosts/wire.rs",
        "the last message of a connection is waited for, for a moment",
    ),
    (
        "svc/pfs/src/mounting.rs",
        "a command waits until something is unmounted",
    ),
    (
        "svc/pfs/src/job.rs",
        "the file system of a job waits for the launcher's end, and for the end of its service",
    ),
    (
        "svc/pfs/src/lib.rs",
        "a command waits for the first words of a service that may be stopped",
    ),
    (
        "svc/pfs/src/mounts.rs",
        "a command waits for the end of a mount whose service was killed",
    ),
    (
        "svc/pfs/src/serve.rs",
        "the service waits for commands and signals: descriptors; its timer syncs",
    ),
    (
        "svc/check/src/listen.rs",
        "threads of the checker wait for connections, records, signals and the end of the launcher: descriptors",
    ),
    (
        "svc/check/src/lib.rs",
        "the checker waits for what its threads have read",
    ),
    (
        "svc/check/src/ring.rs",
        "the reader of a rank's records in memory waits until that wakes it, or for a while: a descriptor",
    ),
    (
        "svc/check/src/places.rs",
        "the reader of debug information ends when its input does",
    ),
    (
        "svc/queue-wire/src/ask.rs",
        "a command that waits for jobs looks for the next head when one has gone: a minute at most",
    ),
    (
        "svc/queue/src/agent.rs",
        "the head of the queue, for a beat at most",
    ),
    (
        "svc/queue/src/agents.rs",
        "what other hosts say, in threads of the head",
    ),
    ("svc/queue/src/away.rs", "what another host says of a job"),
    (
        "svc/queue/src/claim.rs",
        "an earlier claim of the host: five seconds",
    ),
    (
        "svc/queue/src/groups.rs",
        "the end of what the kernel kills in a job's control group, two seconds at most",
    ),
    ("svc/queue/src/hearing.rs", "signals, output of a job"),
    ("svc/queue/src/hold.rs", "what a job starts on another host"),
    (
        "svc/queue/src/mail.rs",
        "what sends a letter waits for sendmail: 30 seconds at most",
    ),
    (
        "svc/queue/src/start.rs",
        "the lock of a head that was killed, which a process that it just started has: two seconds",
    ),
    (
        "svc/queue/src/serve.rs",
        "the head of the queue waits for commands, signals and supervisors: descriptors; a command waits for the end of \
         jobs; a thread looks after the connection to a database each second",
    ),
    (
        "svc/queue/src/store/session.rs",
        "the lock of a head that has just ended, two to twelve seconds",
    ),
    ("svc/queue/src/shell.rs", "the end of a remote shell"),
    (
        "svc/queue/src/supervise.rs",
        "what watches over a job waits for its end, the time limit and signals; a full disk is tried again",
    ),
    ("svc/queue/src/there.rs", "output and end of a job"),
    (
        "svc/queue/src/follow.rs",
        "the end of a job that another head has begun",
    ),
    (
        "svc/queue/src/passage.rs",
        "descriptors of commands of other hosts, for who waits",
    ),
    (
        "svc/queue/src/standby.rs",
        "the head's end, and its answers",
    ),
    ("svc/queue/src/wire.rs", "descriptors for who waits"),
    (
        "svc/queue/src/writer.rs",
        "what writes output with a user's rights, at the beginning and at the end of a job: 30 seconds at most",
    ),
    (
        "cli/src/load.rs",
        "hosts are asked for their loads: descriptors, ten seconds at most",
    ),
    (
        "cli/src/join.rs",
        "the launcher waits for hosts that join, and at its end for what has let them in",
    ),
    (
        "svc/join/src/agent.rs",
        "a host that joins looks for its launcher, and then passes on what there is: descriptors",
    ),
    (
        "svc/join/src/meet.rs",
        "what lets hosts in, and connects remote shells with them: descriptors",
    ),
    (
        "svc/join/src/pass.rs",
        "the remote shell for a host that has joined: descriptors",
    ),
    (
        "svc/system/src/ps.rs",
        "a command pauses between two looks at the jobs: a tenth of a second",
    ),
    (
        "svc/system/src/make.rs",
        "make's shell waits for its command",
    ),
    (
        "svc/system/src/remote.rs",
        "what runs a command on another host waits for it and for the end of the input: descriptors",
    ),
    (
        "svc/pfs/src/service.rs",
        "a command waits for the end of a rebuild and of a mount",
    ),
    ("svc/pfs/src/top.rs", "a view that samples, as that of jobs"),
];

/// Folders whose sources are looked at.
const FOLDERS: [&str; 9] = [
    "abi/", "cli/", "core/", "fs/", "job/", "net/", "run/", "svc/", "sys/",
];

/// Where `ARCHITECTURE.md` has the list.
const DOCUMENT: &str = "ARCHITECTURE.md";

/// Checks all sources against the table, and the table against the sources and the document.
pub fn check(files: &[File]) -> Vec<Finding> {
    check_by(files, PLACES)
}

fn check_by(files: &[File], places: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| is_looked_at(&file.path)) {
        let waits = waits(file.text.as_deref().unwrap_or(""));
        let is_listed = places.iter().any(|(path, _)| *path == file.path);
        match (waits.first(), is_listed) {
            (Some((line, word)), false) => findings.push(Finding::new(
                &file.path,
                *line,
                format!(
                    "waits by `{word}`; leave that to a place that waits already (rule 6), or enter this one, with its \
                     reason, in xtask/src/tidy/waits.rs and {DOCUMENT}"
                ),
            )),
            (None, true) => findings.push(Finding::new(
                &file.path,
                0,
                "waits no more; take it out of xtask/src/tidy/waits.rs and ARCHITECTURE.md",
            )),
            _ => {}
        }
    }
    let document = files.iter().find(|file| file.path == DOCUMENT);
    let document = document.and_then(|file| file.text.as_deref()).unwrap_or("");
    for (path, _) in places {
        if !files.iter().any(|file| file.path == *path) {
            findings.push(Finding::new(
                path,
                0,
                "is listed as a place that waits and is not there; correct xtask/src/tidy/waits.rs and ARCHITECTURE.md",
            ));
        }
        if !document.contains(&format!("`{path}`")) {
            findings.push(Finding::new(
                DOCUMENT,
                0,
                format!("does not name `{path}` among the places that wait (rule 6)"),
            ));
        }
    }
    findings
}

fn is_looked_at(path: &str) -> bool {
    let is_test = ["/tests/", "/examples/", "/benches/"];
    path.ends_with(".rs")
        && FOLDERS.iter().any(|folder| path.starts_with(folder))
        && !is_test.iter().any(|folder| path.contains(folder))
        && !path.ends_with("/tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    fn words(source: &str) -> Vec<String> {
        waits(source).into_iter().map(|(_, word)| word).collect()
    }

    #[test]
    fn what_waits_is_found() {
        for (source, expected) in [
            ("fn f() { std::thread::sleep(PAUSE) }", "sleep"),
            (
                "fn f(event_count: &WakeUp) { event_count.sleep(5, || false) }",
                "sleep",
            ),
            ("fn f() { loop { std::hint::spin_loop() } }", "spin_loop"),
            ("fn f() { cpu::yield_now() }", "yield_now"),
            ("fn f(t: JoinHandle<()>) { t.join().unwrap() }", "join"),
            ("fn f(c: Receiver<u8>) { c.recv().unwrap() }", "recv"),
            ("fn f(mut c: Child) { c.wait().unwrap() }", "wait"),
            ("struct S { changed: Condvar }", "Condvar"),
            (
                "fn f() { call(SYS_futex, w, libc::FUTEX_WAIT) }",
                "FUTEX_WAIT",
            ),
            (
                "fn f() { again(|| unsafe { libc::waitpid(p, s, 0) }) }",
                "waitpid",
            ),
            ("fn f(t: JoinHandle<()>) { g(); let _ = t.join(); }", "join"),
            (
                "fn f() -> Option<u8> { Some(Both { c: report.recv().ok()? }) }",
                "recv",
            ),
            ("#[cfg(not(test))] fn f() { park() }", "park"),
            ("#[cfg(all(unix, not(loom)))] fn f() { park() }", "park"),
        ] {
            assert_eq!(words(source), [expected], "{source}");
        }
    }

    #[test]
    fn what_only_looks_so_is_not() {
        for source in [
            "fn f() { rank.wait(id); parts.join(\", \"); socket.recv(&mut bytes); }",
            "// thread::sleep(PAUSE)\nconst A: &str = \"spin_loop\";",
            "#[cfg(test)] mod tests { fn f() { std::thread::yield_now() } }",
            "#[cfg(all(test, not(loom)))] mod tests { fn f() { park() } }",
            "#[cfg(any(test, loom))] fn model() { park() }",
            "#[test] fn f() { thread.join().unwrap() }",
            "#[cfg(test)] use std::sync::Condvar;",
            "fn sleep_state() { is_asleep.sleep }",
            "fn f(mpi: &Mpi) { mpi.join(); team.join(); host::wait(); }",
            "fn sleep(&self) { self.wait() }",
        ] {
            assert!(waits(source).is_empty(), "{source}");
        }
        assert_eq!(words("#[cfg(test)] use a::b; fn f() { park() }"), ["park"]);
    }

    #[test]
    fn a_place_that_is_not_listed_is_found_with_its_line() {
        let files = [
            file("run/engine/src/rank.rs", "fn f() {}\nfn g() { park() }"),
            file("run/engine/tests/worlds.rs", "fn g() { park() }"),
            file("xtask/src/main.rs", "fn g() { park() }"),
        ];
        let findings = check_by(&files, &[]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(
            (&*findings[0].path, findings[0].line),
            ("run/engine/src/rank.rs", 2)
        );
        assert!(findings[0].what.contains("waits by `park`"));
    }

    #[test]
    fn the_table_and_the_document_name_what_waits_and_nothing_else() {
        let files = [
            file("run/a.rs", "fn g() { park() }"),
            file("run/b.rs", "fn g() {}"),
            file(DOCUMENT, "`run/a.rs`, `run/b.rs`, `run/c.rs`"),
        ];
        assert!(check_by(&files, &[("run/a.rs", "the wait")]).is_empty());
        let stale = check_by(&files, &[("run/a.rs", "the wait"), ("run/b.rs", "")]);
        assert_eq!(stale.len(), 1, "{stale:?}");
        assert!(stale[0].what.contains("waits no more"));
        let moved = check_by(&files, &[("run/a.rs", "the wait"), ("run/c.rs", "")]);
        assert_eq!(moved.len(), 1, "{moved:?}");
        assert!(moved[0].what.contains("is not there"));
        let unnamed = check_by(&files[..2], &[("run/a.rs", "the wait")]);
        assert_eq!(unnamed.len(), 1, "{unnamed:?}");
        assert!(unnamed[0].what.contains("does not name `run/a.rs`"));
    }

    #[test]
    fn each_place_has_a_reason_and_stands_once() {
        for (n, (path, reason)) in PLACES.iter().enumerate() {
            assert!(!reason.is_empty(), "{path}");
            assert!(PLACES[..n].iter().all(|(other, _)| other != path), "{path}");
        }
    }
}
