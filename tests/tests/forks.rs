//! Children that a rank makes by fork: the rank is not theirs.
#![forbid(unsafe_code)]

use margay_tests::jobs::{Built, Words, text};
use margay_tests::voices::{Voice, mpiexec};
use margay_tests::{run, scratch};

#[test]
fn a_forked_child_takes_no_message_and_ends_no_rank() {
    let built = Built::mpi("mpi/forked.c");
    let line = |call: &str| {
        format!(
            "a child process made by fork of rank 0 called {call}; only the process that called MPI_Init may\n"
        )
    };
    for (argument, ends) in [("", 1), ("atexit", 2)] {
        let words = Words::mpiexec(30, 2, &built.path(), argument);
        let output = run(&mut words.command(60));
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{err}");
        for (call, times) in [
            ("MPI_Recv", 1),
            ("MPI_Finalize", ends),
            ("MPI_Session_init", 1),
        ] {
            assert_eq!(err.matches(&line(call)).count(), times, "{call}: {err}");
        }
        assert_eq!(err.lines().count(), ends + 2, "{err}");
    }
}

#[test]
fn a_forked_child_of_a_node_and_of_a_task_is_refused() {
    for (name, libraries, call) in [
        ("nx", &["-lnx"][..], "gsync"),
        ("mpl", &["-lmpl", "-lnx"], "mpc_sync"),
    ] {
        let voice = Voice {
            name,
            libraries,
            environment: &[],
        };
        let folder = scratch();
        let output = run(mpiexec(2).arg(voice.compile(folder.path(), "forked")));
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}", text(&output));
        let line = format!(
            "a child process made by fork of rank 0 called {call}; only the process that joined the job may\n"
        );
        assert_eq!(err, line);
    }
}
