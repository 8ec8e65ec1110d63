//! MPL: every call from C, most from Fortran, through the real launcher and alone, also over pipes
//! that only carry bytes.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::process::Stdio;

use margay_tests::voices::{Voice, launcher, mpiexec, said};
use margay_tests::{command, program, run, scratch, stage, succeed};

const MPL: Voice = Voice {
    name: "mpl",
    libraries: &["-lmpl", "-lnx"],
    environment: &[("MP_INFOLEVEL", "0")],
};

/// A program that says "ok" on several tasks.
fn is_ok(name: &str) {
    MPL.is_ok(name, &[]);
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
fn tasks_end_while_routines_are_called() {
    let folder = scratch();
    let executable = MPL.compile(folder.path(), "ends");
    for interrupt in ["no", "yes"] {
        for (way, code) in [("return", 0), ("_exit", 0), ("wrong", 3)] {
            let output = run(mpiexec(4)
                .env("MP_CSS_INTERRUPT", interrupt)
                .arg(&executable)
                .arg(way));
            assert_eq!(output.status.code(), Some(code), "{way}: {}", said(&output));
        }
    }
}

#[test]
fn mpl_nx_and_mpi_in_one_program() {
    is_ok("mixed");
}

#[test]
fn errors_name_the_call_and_stopall_ends_the_job() {
    let folder = scratch();
    let executable = MPL.compile(folder.path(), "messages");
    let output = run(mpiexec(2).arg(&executable));
    assert_eq!(output.stdout, b"ok\n", "{}", said(&output));
    for text in [
        "mpc_bsend: there is no task 2; the job has the tasks 0 to 1, called by task",
        "mpc_wait: 12345 is not the id of a message under way",
        "mpc_brecv: a message of 9 bytes, type 5, from task",
    ] {
        assert!(said(&output).contains(text), "{text}: {}", said(&output));
    }
    // Every call that the program makes with wrong arguments.
    let source = std::fs::read_to_string(program("mpl/messages.c")).expect("the program");
    let wrong = source.split("FAILS(").skip(2);
    let names: Vec<&str> = wrong.filter_map(|rest| rest.split('(').next()).collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        let text = format!("{name}: ");
        assert!(said(&output).contains(&text), "{name}: {}", said(&output));
    }
    let output = run(mpiexec(2).arg(&executable).arg("42"));
    assert_eq!(output.status.code(), Some(42), "{}", said(&output));
}

#[test]
fn the_environment_sets_limits_and_progress() {
    let folder = scratch();
    let executable = MPL.compile(folder.path(), "messages");
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
    let text = "MP_EAGER_LIMIT is 'much', which is not a number of bytes";
    assert!(said(&output).contains(text), "{}", said(&output));
}

#[test]
fn utility_calls() {
    is_ok("utility");
}

#[test]
fn markers_are_shown_while_the_program_runs() {
    let folder = scratch();
    let executable = MPL.compile(folder.path(), "utility");
    let mut job = launcher(
        "poe",
        ["-procs", "3", "-pmlights", "4", "-stdinmode", "all"],
    )
    .arg(&executable)
    .arg("busy")
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .spawn()
    .expect("a job");
    let mut out = job.stdout.take().expect("a pipe");
    let mut ready = [0; 5];
    out.read_exact(&mut ready).expect("task 0 says so");
    let shown = succeed(command(stage().join("bin/margay"), 60).args(["markers", "--json"]));
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let ours = executable.to_str().expect("text");
    let jobs = shown["jobs"].as_array().expect("a list");
    let of_ours = |job: &&serde_json::Value| job["command"].as_str().unwrap_or("").contains(ours);
    let found = jobs.iter().find(of_ours).expect("our job");
    assert_eq!(
        found["task"],
        serde_json::json!([
            { "task": 0, "lights": [10, 0, 0, 99], "text": "first" },
            { "task": 1, "lights": [0, 11, 0, 0], "text": "task 1 is busy" },
            { "task": 2, "lights": [0, 0, 12, 0], "text": "task 2 is busy" },
        ])
    );
    let id = found["job"].to_string();
    let table = succeed(command(stage().join("bin/margay"), 60).args(["markers", "--job", &id]));
    assert!(
        table.contains("    1   . 11  .  .  task 1 is busy\n"),
        "{table}"
    );
    let mut input = job.stdin.take().expect("a pipe");
    input.write_all(b"x").expect("tasks read");
    drop(input);
    assert!(job.wait().expect("it ends").success());
}

#[test]
fn poe_sets_what_programs_see() {
    let folder = scratch();
    let executable = MPL.compile(folder.path(), "messages");
    let options = [
        "-infolevel",
        "0",
        "-eager_limit",
        "4K",
        "-css_interrupt",
        "yes",
    ];
    let output = run(launcher("poe", ["-procs", "2"])
        .arg(&executable)
        .args(options));
    assert_eq!(output.stdout, b"ok\n", "{}", said(&output));
    assert_eq!(said(&output), "", "level 0: no word about wrong arguments");
    let output = run(launcher("poe", ["-procs", "2"]).arg(&executable).arg("42"));
    assert_eq!(output.status.code(), Some(42), "{}", said(&output));
}

#[test]
fn a_program_that_is_started_alone_starts_itself_through_poe() {
    let folder = scratch();
    let source = folder.path().join("where.c");
    let text = "#include <mpl.h>\n#include <stdio.h>\nint main(int argc, char **argv) {\n\
                int n, me; mpc_environ(&n, &me); printf(\"%d of %d: %d %s\\n\", me, n, argc, argv[argc - 1]);\n\
                return 0; }\n";
    std::fs::write(&source, text).expect("a source file");
    let executable = folder.path().join("where");
    succeed(
        command(stage().join("bin/mpicc"), 120)
            .arg(&source)
            .args(["-lmpl", "-o"])
            .arg(&executable),
    );
    let alone = |variables: &[(&str, &str)], arguments: &[&str]| {
        succeed(
            command(&executable, 60)
                .envs(variables.iter().copied())
                .args(arguments),
        )
    };
    let ordered = ("MP_STDOUTMODE", "ordered");
    assert_eq!(alone(&[], &["x"]), "0 of 1: 2 x\n");
    assert_eq!(
        alone(&[("MP_PROCS", "2"), ordered], &["x"]),
        "0 of 2: 2 x\n1 of 2: 2 x\n"
    );
    assert_eq!(
        alone(
            &[("MP_PROCS", "7"), ordered],
            &["x", "-procs", "2", "-labelio", "yes"]
        ),
        "[0] 0 of 2: 2 x\n[1] 1 of 2: 2 x\n",
        "options win over the environment and are not the program's"
    );
    assert_eq!(
        alone(&[("MP_STDOUTMODE", "1")], &["-procs", "2"]),
        format!("1 of 2: 1 {}\n", executable.display())
    );
    assert_eq!(
        alone(&[("MP_NOARGLIST", "yes")], &["-procs", "2"]),
        "0 of 1: 3 2\n"
    );
    let under_another = succeed(
        launcher("mpiexec", ["-n", "1"])
            .env("MP_PROCS", "3")
            .arg(&executable)
            .arg("x"),
    );
    assert_eq!(under_another, "0 of 1: 2 x\n");
    let output = run(command(&executable, 60).env("MP_PROCS", "many"));
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("MP_PROCS"), "{}", said(&output));
}

#[test]
fn the_compilers_of_the_sp2() {
    let folder = scratch();
    let classic = program("mpl/classic.f");
    let source = folder.path().join("old.c");
    let text = "#include <mpproto.h>\n#include <pm_util.h>\n#include <stdio.h>\nint main(void) {\n\
                int n, me, x, y, type = 1, bytes; mpc_environ(&n, &me); x = me;\n\
                mpc_bsendrecv(&x, 4, me, 1, &y, 4, &me, &bytes);\n\
                if (mpc_probe(&me, &type, &bytes) == 0 && bytes == -1 && y == me) puts(\"ok\");\n return 0; }\n";
    std::fs::write(&source, text).expect("a source file");
    let executable = folder.path().join("program");
    for (compiler, file, options) in [
        ("mpcc", &source, &["-Wall", "-Werror"][..]),
        ("mpCC", &source, &["-x", "c++", "-Wall", "-Werror"]),
        ("mpxlf", &classic, &["-w"]),
    ] {
        succeed(
            command(stage().join("bin").join(compiler), 120)
                .args(options)
                .arg(file)
                .arg("-o")
                .arg(&executable),
        );
        let alone = succeed(launcher("poe", ["-procs", "1"]).arg(&executable));
        assert_eq!(alone, "ok\n", "{compiler}");
    }
}

#[test]
fn fortran() {
    let folder = scratch();
    let executable = MPL.compile_fortran(folder.path(), "classic");
    for ranks in [1, 2, 4] {
        assert_eq!(succeed(mpiexec(ranks).arg(&executable)), "ok\n");
    }
}

#[test]
fn the_header_compiles_without_a_warning_and_pkg_config_knows_the_library() {
    MPL.header_is_clean(
        "#include <mpl.h>\nint main(void) { int n, me; return mpc_environ(&n, &me); }\n",
    );
}
