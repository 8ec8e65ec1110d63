//! MPL: every call from C, most from Fortran, through the real launcher and alone, also over pipes that only carry bytes.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use margay_tests::{command, program, run, scratch, stage, succeed};

/// Compiles a program of `programs/mpl` without a warning.
fn compile(folder: &Path, name: &str) -> PathBuf {
    let executable = folder.join(name);
    succeed(
        command(stage().join("bin/mpicc"), 120)
            .args(["-std=c11", "-O1", "-g"])
            .args(["-Wall", "-Wextra", "-Werror", "-pthread"])
            .arg(program("mpl").join(format!("{name}.c")))
            .args(["-lmpl", "-lnx", "-o"])
            .arg(&executable),
    );
    executable
}

fn mpiexec(ranks: u32) -> Command {
    let mut command = command(stage().join("bin/mpiexec"), 60);
    command.args(["-n", &ranks.to_string()]);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A program that says "ok" on 1, 2 and 4 tasks, with shared memory and without.
fn is_ok(name: &str) {
    let folder = scratch();
    let executable = compile(folder.path(), name);
    for ranks in [1, 2, 4] {
        for bytes_only in ["0", "1"] {
            let output = succeed(
                mpiexec(ranks)
                    .env("MARGAY_BYTES_ONLY", bytes_only)
                    .env("MP_INFOLEVEL", "0")
                    .arg(&executable),
            );
            assert_eq!(output, "ok\n", "{name} on {ranks} tasks");
        }
    }
    assert_eq!(succeed(&mut command(&executable, 60)), "ok\n");
}

#[test]
fn messages_and_wrong_arguments() {
    is_ok("messages");
}

#[test]
fn groups_and_collective_operations() {
    is_ok("groups");
}

#[test]
fn receive_and_call_under_load() {
    is_ok("calls");
}

#[test]
fn mpl_nx_and_mpi_in_one_program() {
    is_ok("mixed");
}

#[test]
fn errors_name_the_call_and_stopall_ends_the_job() {
    let folder = scratch();
    let executable = compile(folder.path(), "messages");
    let output = run(mpiexec(2).arg(&executable));
    assert_eq!(output.stdout, b"ok\n", "{}", said(&output));
    for text in [
        "mpc_bsend: there is no task 2; the job has the tasks 0 to 1, called by task",
        "mpc_wait: 12345 is not the id of a message under way",
        "mpc_brecv: a message of 9 bytes, type 5, from task",
    ] {
        assert!(said(&output).contains(text), "{text}: {}", said(&output));
    }
    let output = run(mpiexec(2).arg(&executable).arg("42"));
    assert_eq!(output.status.code(), Some(42), "{}", said(&output));
}

#[test]
fn the_environment_sets_limits_and_progress() {
    let folder = scratch();
    let executable = compile(folder.path(), "messages");
    for (name, value) in [("MP_EAGER_LIMIT", "4K"), ("MP_CSS_INTERRUPT", "yes")] {
        let output = succeed(
            mpiexec(2)
                .env(name, value)
                .env("MP_INFOLEVEL", "0")
                .arg(&executable),
        );
        assert_eq!(output, "ok\n", "{name}");
    }
    let output = run(mpiexec(1).env("MP_EAGER_LIMIT", "much").arg(&executable));
    let text = "MP_EAGER_LIMIT is 'much', which is no number of bytes";
    assert!(said(&output).contains(text), "{}", said(&output));
}

#[test]
fn fortran() {
    let folder = scratch();
    let executable = folder.path().join("classic");
    succeed(
        command(stage().join("bin/mpif77"), 120)
            .args(["-g", "-O2", "-w"])
            .arg(program("mpl").join("classic.f"))
            .args(["-lmpl", "-o"])
            .arg(&executable),
    );
    for ranks in [1, 2, 4] {
        assert_eq!(succeed(mpiexec(ranks).arg(&executable)), "ok\n");
    }
}

#[test]
fn the_header_compiles_without_a_warning_and_pkg_config_knows_the_library() {
    let folder = scratch();
    let source = folder.path().join("header.c");
    let text = "#include <mpl.h>\nint main(void) { int n, me; return mpc_environ(&n, &me); }\n";
    std::fs::write(&source, text).expect("a source file");
    for (compiler, language, standard) in [
        ("mpicc", "c", "c99"),
        ("mpicc", "c", "c11"),
        ("mpicxx", "c++", "c++17"),
    ] {
        succeed(
            command(stage().join("bin").join(compiler), 120)
                .args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
                .args(["-x", language])
                .arg(format!("-std={standard}"))
                .arg(&source),
        );
    }
    let flags = succeed(
        command("pkg-config", 60)
            .env("PKG_CONFIG_PATH", stage().join("lib/pkgconfig"))
            .args(["--cflags", "--libs", "mpl"]),
    );
    let executable = folder.path().join("header");
    succeed(
        command("cc", 120)
            .arg(&source)
            .args(flags.split_whitespace())
            .arg("-o")
            .arg(&executable),
    );
    succeed(&mut command(&executable, 60));
}
