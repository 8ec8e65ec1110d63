//! NX: every call from C, most from Fortran, through the real launcher and alone, also over pipes
//! that only carry bytes.
#![forbid(unsafe_code)]

use margay_tests::voices::{Voice, mpiexec, said};
use margay_tests::{command, program, run, scratch, stage, succeed};

const NX: Voice = Voice {
    name: "nx",
    libraries: &["-lnx"],
    environment: &[],
};

/// A program that says "ok" on several nodes.
fn is_ok(name: &str, arguments: &[&str]) {
    NX.is_ok(name, arguments);
}

#[test]
fn messages() {
    is_ok("messages", &[]);
}

#[test]
fn global_operations() {
    is_ok("global", &[]);
}

#[test]
fn handlers_run_while_the_program_only_computes() {
    is_ok("handlers", &[]);
}

#[test]
fn nx_and_mpi_in_one_program() {
    is_ok("mixed", &[]);
    is_ok("mixed", &["MPI first"]);
}

#[test]
fn routines_on_the_second_processor() {
    is_ok("cop", &[]);
}

#[test]
fn twins_return_errors_and_plain_calls_end_the_job() {
    let folder = scratch();
    let executable = NX.compile(folder.path(), "errors");
    let output = run(mpiexec(2).arg(&executable));
    assert_eq!(output.stdout, b"ok\n", "{}", said(&output));
    let report = "the last word: the nodes have 16 bytes together, and the buffer 4";
    assert!(said(&output).contains(report), "{}", said(&output));
    for (call, text) in [
        ("csend", "csend: -5 is not a message type; they are 0 to"),
        ("too long", "crecv: a message of 8 bytes, type 1, from node"),
        (
            "too long for a handler",
            "hrecv: a message of 8 bytes, type 1, from node",
        ),
        (
            "nx_mkpart",
            "nx_mkpart: there is no partition '.compute.no'",
        ),
    ] {
        let output = run(mpiexec(2).arg(&executable).arg(call));
        assert_eq!(output.status.code(), Some(1), "{call}: {}", said(&output));
        assert!(said(&output).contains(text), "{call}: {}", said(&output));
    }
}

#[test]
fn plain_calls_name_themselves() {
    let folder = scratch();
    let executable = NX.compile(folder.path(), "errors");
    for call in [
        "csend",
        "isend",
        "csendrecv",
        "isendrecv",
        "crecv",
        "crecvx",
        "irecv",
        "irecvx",
        "cprobe",
        "cprobex",
        "iprobe",
        "iprobex",
        "msgwait",
        "msgdone",
        "msgignore",
        "msgcancel",
        "msgmerge",
        "flushmsg",
        "gsendx",
        "hsend",
        "hsendx",
        "hrecv",
        "hrecvx",
        "hsendrecv",
        "masktrap",
        "gopf",
        "gdsum",
        "gisum",
        "gssum",
        "gcolx",
        "setptype",
        "ginv",
        "led",
        "nx_pri",
        "nx_app_nodes",
        "killproc",
        "nx_mkpart",
        "nx_mkpart_rect",
        "nx_mkpart_map",
        "nx_mkpart_attr",
        "nx_rmpart",
        "nx_chpart_epl",
        "nx_chpart_mod",
        "nx_chpart_name",
        "nx_chpart_owner",
        "nx_chpart_rq",
        "nx_chpart_sched",
        "nx_pspart",
        "nx_waitall",
        "nx_load",
        "load",
        "cop",
        "hwclock",
        "nx_initve",
        "nx_initve_rect",
        "gcol",
    ] {
        let output = run(mpiexec(1).arg(&executable).arg(call));
        assert_eq!(output.status.code(), Some(1), "{call}: {}", said(&output));
        let text = format!("{call}: ");
        assert!(
            said(&output).starts_with(&text),
            "{call}: {}",
            said(&output)
        );
    }
}

#[test]
fn a_program_may_end_without_saying_so() {
    let folder = scratch();
    let executable = NX.compile(folder.path(), "errors");
    // One that exits with another code does not end the others, and what it has sent arrives.
    let output = run(mpiexec(3).arg(&executable).arg("exit"));
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let text =
        "exited with code 3; its last call was csend at errors.c:96; the other ranks continue";
    assert!(said(&output).contains(text), "{}", said(&output));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "received\nreceived\n"
    );
    let output = run(mpiexec(2).arg(&executable).arg("kill all"));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let output = run(mpiexec(2).arg(&executable).arg("kill one"));
    assert_eq!(output.status.code(), Some(128 + 9), "{}", said(&output));
}

#[test]
fn every_exit_with_code_0_is_a_normal_end() {
    let folder = scratch();
    let executable = NX.compile(folder.path(), "ends");
    for way in [
        "return",
        "_exit",
        "quick_exit",
        "handler",
        "handlers",
        "thread",
        "waiting",
        "after MPI",
    ] {
        for (ranks, bytes_only) in [(1, "0"), (4, "0"), (4, "1")] {
            for progress in ["0", "1"] {
                let output = run(mpiexec(ranks)
                    .env("MARGAY_BYTES_ONLY", bytes_only)
                    .env("MARGAY_PROGRESS_THREAD", progress)
                    .arg(&executable)
                    .arg(way));
                let ended = (output.status.code(), said(&output));
                assert_eq!(ended, (Some(0), String::new()), "{way} on {ranks} ranks");
            }
        }
    }
    let executable = NX.compile_fortran(folder.path(), "stops");
    assert_eq!(succeed(mpiexec(4).arg(&executable)), "");
}

#[test]
fn other_ends_are_reported() {
    let folder = scratch();
    let executable = NX.compile(folder.path(), "ends");
    for (way, code, text) in [
        // What a copy of the process does is no end of the rank.
        (
            "child",
            3,
            "exited with code 3; its last call was csend at ends.c:54; the other ranks continue",
        ),
        (
            "in MPI",
            1,
            "exited with code 0 without MPI_Finalize; its last call was csend at ends.c:54; the job has been ended",
        ),
    ] {
        let output = run(mpiexec(4).arg(&executable).arg(way));
        assert_eq!(output.status.code(), Some(code), "{way}: {}", said(&output));
        assert!(said(&output).contains(text), "{way}: {}", said(&output));
    }
}

#[test]
fn programs_of_several_types_share_nodes() {
    let folder = scratch();
    let executable = NX.compile(folder.path(), "ptypes");
    for bytes_only in ["0", "1"] {
        let output = succeed(
            mpiexec(2)
                .env("MARGAY_BYTES_ONLY", bytes_only)
                .args(["-output", "ordered"])
                .arg(&executable)
                .args([":", "-n", "2", "-pt", "1"])
                .arg(&executable),
        );
        assert_eq!(output, "ok 0\nok 1\n");
    }
}

#[test]
fn a_controlling_process_forks_and_loads() {
    let folder = scratch();
    let executable = NX.compile(folder.path(), "control");
    for (arguments, expected) in [
        (&["fork"][..], "forked\nwaited\n"),
        (&["fork", "-sz", "2x2"], "forked\nwaited\n"),
        (&["load"], "loaded\nwaited\n"),
        (&["rectangle"], "2x2\nforked\nwaited\n"),
        (&["attributes"], "2x2\nforked\nwaited\n"),
    ] {
        let output = succeed(command(&executable, 60).args(arguments));
        assert_eq!(output, expected, "{arguments:?}");
    }
    let output = run(command(&executable, 60).arg("fail"));
    assert_eq!(output.status.code(), Some(1));
    let text = "nx_waitall: the process on node 1 was killed by SIGABRT";
    assert!(said(&output).contains(text), "{}", said(&output));
    // Under the launcher all processes are there already, and each takes itself for a copy.
    let output = succeed(mpiexec(3).arg(&executable).arg("again"));
    assert_eq!(output, "forked\n");
}

#[test]
fn a_controlling_process_passes_messages() {
    let folder = scratch();
    let executable = NX.compile(folder.path(), "host");
    for (argument, expected) in [
        ("fork", "waited\n"),
        ("mpi", "waited\n"),
        ("cube", "cube\n"),
        ("dies", "noticed\n"),
    ] {
        let output = run(command(&executable, 60).arg(argument));
        assert!(output.status.success(), "{argument}: {}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}

#[test]
fn a_program_that_is_started_alone_starts_itself_on_its_nodes() {
    let folder = scratch();
    let source = folder.path().join("where.c");
    let text = "#include <nx.h>\n#include <stdio.h>\nint main(int argc, char **argv) {\n\
                long rows, cols; mypart(&rows, &cols);\n\
                if (mynode() == numnodes() - 1) printf(\"%ld %ldx%ld %ld %d %s\\n\", numnodes(), rows, cols, myptype(), argc, argv[argc - 1]);\n}\n";
    std::fs::write(&source, text).expect("a source file");
    let executable = folder.path().join("where");
    succeed(
        command(stage().join("bin/mpicc"), 120)
            .arg(&source)
            .args(["-lnx", "-o"])
            .arg(&executable),
    );
    for (arguments, expected) in [
        (&["-sz", "3", "last"][..], "3 1x3 0 2 last"),
        (&["-sz", "3x2", "last"], "6 3x2 0 2 last"),
        (
            &["a", "-pt", "5", "-sz", "2", "-mbf", "9", "b"],
            "2 1x2 5 3 b",
        ),
        (&["-on", "0..2", "last"], "3 1x3 0 2 last"),
        (&["-pn", ".compute", "-sz", "2", "last"], "2 1x2 0 2 last"),
        (&["last"], "1 1x1 0 2 last"),
    ] {
        let output = succeed(command(&executable, 60).args(arguments));
        assert_eq!(output.trim_end(), expected, "{arguments:?}");
    }
    for (size, expected) in [("3", "3 1x3 0 2 last"), ("2x2", "4 2x2 0 2 last")] {
        let mut command = command(&executable, 60);
        let output = succeed(command.args(["-pt", "0", "last"]).env("NX_DFLT_SIZE", size));
        assert_eq!(output.trim_end(), expected);
    }
    for (name, value, text) in [
        (
            "NX_DFLT_SIZE",
            "many",
            "libnx: NX_DFLT_SIZE=many: it is a number of nodes",
        ),
        (
            "NX_DFLT_PART",
            "mine",
            "there is no partition '.compute.mine'",
        ),
    ] {
        let mut command = command(&executable, 60);
        let output = run(command.args(["-pt", "0", "-pn", ""]).env(name, value));
        assert!(!output.status.success());
        assert!(said(&output).contains(text), "{}", said(&output));
    }
    for (arguments, text) in [
        (
            &["-sz", "none"][..],
            "libnx: -sz none: it is a number of nodes",
        ),
        (&["-pn", "mine"], "there is no partition '.compute.mine'"),
    ] {
        let output = run(command(&executable, 60).args(arguments));
        assert!(!output.status.success());
        assert!(said(&output).contains(text), "{}", said(&output));
    }
}

#[test]
fn programs_without_prototypes() {
    let folder = scratch();
    let executable = folder.path().join("classic");
    succeed(
        command(stage().join("bin/mpicc"), 120)
            .args(["-std=gnu89", "-w", "-O1"])
            .arg(program("nx/classic.c"))
            .args(["-lnx", "-o"])
            .arg(&executable),
    );
    for ranks in [1, 2, 4] {
        assert_eq!(succeed(mpiexec(ranks).arg(&executable)), "ok\n");
    }
}

/// On the Paragon `int` and `long` had the same length.
#[test]
fn arrays_of_int_are_refused_by_the_compiler() {
    let folder = scratch();
    let source = folder.path().join("short.c");
    let text = "#include <nx.h>\nint main(void) { int x[2] = {1, 2}, work[2]; gisum(x, 2, work); return x[0]; }\n";
    std::fs::write(&source, text).expect("a source file");
    let mut mpicc = command(stage().join("bin/mpicc"), 120);
    let output = run(mpicc.arg("-c").arg(&source).current_dir(folder.path()));
    assert!(!output.status.success());
    assert!(
        said(&output).contains("incompatible pointer type"),
        "{}",
        said(&output)
    );
}

#[test]
fn handlers_in_cpp() {
    let folder = scratch();
    let source = folder.path().join("handlers.cc");
    let text = "#include <nx.h>\n#include <atomic>\n#include <iostream>\n\
                static std::atomic<long> got{-1};\n\
                static void handler(long type, long, long, long) { got = type; }\n\
                static long larger(void *x, void *work) { if (*(long *)work > *(long *)x) *(long *)x = *(long *)work; return 0; }\n\
                int main() { long in, work, x = mynode(); hrecv(7, &in, sizeof in, handler); csend(7, &x, sizeof x, x, 0);\n\
                while (got != 7) flick();\n\
                gopf(&x, sizeof x, &work, larger); if (mynode() == 0) std::cout << x << '\\n'; }\n";
    std::fs::write(&source, text).expect("a source file");
    let executable = folder.path().join("handlers");
    succeed(
        command(stage().join("bin/mpicxx"), 120)
            .args(["-Wall", "-Wextra", "-Werror"])
            .arg(&source)
            .args(["-lnx", "-o"])
            .arg(&executable),
    );
    assert_eq!(succeed(mpiexec(3).arg(&executable)), "2\n");
}

#[test]
fn fortran() {
    let folder = scratch();
    let executable = NX.compile_fortran(folder.path(), "classic");
    for ranks in [1, 2, 4] {
        assert_eq!(succeed(mpiexec(ranks).arg(&executable)), "ok\n");
    }
    let alone = succeed(command(&executable, 60).args(["-sz", "2"]));
    assert_eq!(alone, "ok\n");
}

#[test]
fn files_in_the_six_modes_agree_with_a_model() {
    let folder = scratch();
    let executable = NX.compile(folder.path(), "files");
    let data = folder.path().join("data");
    for (ranks, seed) in [(1, "1"), (2, "2"), (4, "3"), (5, "4")] {
        let mut job = mpiexec(ranks);
        let said = succeed(job.arg(&executable).arg(&data).args([seed, "40"]));
        assert_eq!(said, format!("all right on {ranks} nodes\n"));
    }
}

#[test]
fn files_in_fortran() {
    let folder = scratch();
    let executable = NX.compile_fortran(folder.path(), "files");
    let said = succeed(mpiexec(3).arg(&executable).current_dir(folder.path()));
    assert_eq!(said.trim(), "all right");
}

#[test]
fn programs_make_change_and_remove_partitions() {
    let folder = scratch();
    let executable = NX.compile(folder.path(), "partitions");
    let state = folder.path().join("state");
    let own = |command: &mut std::process::Command| {
        let common = folder.path().join("common");
        succeed(
            command
                .env("XDG_STATE_HOME", &state)
                .env("MARGAY_PARTITIONS", common),
        )
    };
    assert_eq!(own(mpiexec(1).arg(&executable)), "all right\n");
    assert_eq!(own(&mut command(&executable, 60)), "all right\n");
}

#[test]
fn the_header_compiles_without_a_warning_and_pkg_config_knows_the_library() {
    NX.header_is_clean("#include <nx.h>\nint main(void) { return (int)mynode(); }\n");
}
