//! IML: every call from C, the paper's programs, Fortran, wrong arguments; also where there is one
//! core.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use margay_tests::{command, program, run, scratch, stage, succeed, unprivileged};

fn examples() -> PathBuf {
    stage().join("share/margay/examples/iml")
}

/// Compiles a program against the library in the tree, without a warning.
fn compile(source: &Path, folder: &Path) -> PathBuf {
    let executable = folder.join(source.file_stem().expect("a source has a name"));
    let is_fortran = source.extension().is_some_and(|e| e == "f90");
    let mut compiler = command(if is_fortran { "gfortran" } else { "cc" }, 120);
    if is_fortran {
        compiler
            .args(["-O1", "-fallow-argument-mismatch", "-J"])
            .arg(folder);
    } else {
        compiler
            .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread"])
            .args([
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-strict-prototypes",
                "-Wno-cast-function-type",
            ])
            .arg("-I")
            .arg(stage().join("include"));
    }
    succeed(
        compiler
            .arg(source)
            .arg("-L")
            .arg(stage().join("lib"))
            .arg(format!("-Wl,-rpath,{}", stage().join("lib").display()))
            .args(["-liml", "-o"])
            .arg(&executable),
    );
    executable
}

/// The program on all cores, and on one.
fn both_ways(executable: &Path) -> [String; 2] {
    let mut on_one = command("taskset", 60);
    on_one.args(["-c", "0"]).arg(executable);
    [succeed(&mut command(executable, 60)), succeed(&mut on_one)]
}

#[test]
fn every_call_keeps_its_promises() {
    let folder = scratch();
    let executable = compile(&program("iml").join("calls.c"), folder.path());
    assert_eq!(both_ways(&executable), ["ok\n", "ok\n"]);
}

#[test]
fn inner_levels_are_parallel() {
    let folder = scratch();
    let executable = compile(&program("iml").join("parallel.c"), folder.path());
    let [all, one] = both_ways(&executable);
    let has_cores = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    assert_eq!(
        all,
        if has_cores {
            "ok\n"
        } else {
            "skipped: one core\n"
        }
    );
    assert_eq!(one, "skipped: one core\n");
}

#[test]
fn tasks_run_in_order_and_dependent_iterations_too() {
    let folder = scratch();
    let executable = compile(&program("iml").join("order.c"), folder.path());
    assert_eq!(both_ways(&executable), ["ok\n", "ok\n"]);
}

#[test]
fn the_papers_programs() {
    let folder = scratch();
    for (name, said) in [
        ("a2_outer_loops.c", "c = 892534900\n"),
        ("a3_all_loops.c", "c = 892534900\n"),
        ("a4_cobegin.c", "c = 892534900\n"),
        ("a5_tasks.c", "c = 892534900\n"),
        ("a7_thread_id.c", "a = 4999950000\n"),
        ("a8_fewer_threads.c", "a = 4999950000\n"),
        (
            "nest.f90",
            "sections: c =    907535100.\ntasks: c =    907535100.\n",
        ),
    ] {
        let executable = compile(&examples().join(name), folder.path());
        assert_eq!(both_ways(&executable), [said, said], "{name}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    let folder = scratch();
    let executable = compile(&program("iml").join("wrong.c"), folder.path());
    for (what, message) in [
        ("schedule", "iml_DOALL: 9 is no schedule"),
        ("body", "iml_DOALL: the procedure is a null pointer"),
        ("params", "iml_EnQ: 17 parameters"),
        ("tasks", "iml_COBEGIN: -1 tasks"),
        ("threads", "iml_ReInitMultiThread: 0 threads"),
        (
            "group",
            "iml_Wait: the group has not been begun by iml_GroupBegin",
        ),
    ] {
        let output = run(command(&executable, 60).arg(what));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(message),
            "{what}: {said}"
        );
    }
}

/// What the header declares is what the library has, and nothing else is seen of it.
#[test]
fn the_library_has_what_the_header_says() {
    let header =
        std::fs::read_to_string(stage().join("include/iml.h")).expect("the header is in the tree");
    let names = |text: &str| -> Vec<String> {
        let mut names: Vec<String> = text
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| word.starts_with("iml_") || word.ends_with("_schedule"))
            .map(str::to_owned)
            .collect();
        names.sort();
        names.dedup();
        names
    };
    let declared: Vec<String> = names(&header)
        .into_iter()
        .filter(|name| name != "iml_group_t")
        .collect();
    let listed = succeed(
        Command::new("nm")
            .args(["-D", "--defined-only", "--format=just-symbols"])
            .arg(stage().join("lib/libiml.so.1")),
    );
    let (fortran, c): (Vec<String>, Vec<String>) = listed
        .lines()
        .filter(|line| !line.starts_with("IML"))
        .map(str::to_owned)
        .partition(|name| name.ends_with('_'));
    let c: Vec<String> = names(&c.join(" "));
    assert_eq!(c, declared);
    for name in [
        "iml_doall_",
        "iml_cobegin_",
        "iml_enq_",
        "iml_decandfetch_",
        "iml_reinitmultithread_",
        "iml_getthreadid_",
    ] {
        assert!(fortran.iter().any(|other| other == name), "{name}");
    }
}

#[test]
fn limits_of_threads_and_memory_are_reported_and_less_does() {
    use std::os::unix::fs::PermissionsExt;
    let folder = scratch();
    let executable = compile(&program("iml").join("limits.c"), folder.path());
    // Where another user finds both.
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("our folder");
    let library = folder.path().join("libiml.so.1");
    std::fs::copy(stage().join("lib/libiml.so.1"), library).expect("our folder");
    for limit in ["-u 1", "-v 100000", "-v 40000", "-v 20000"] {
        let mut limited = unprivileged(60);
        limited
            .args([
                "bash",
                "-c",
                &format!("ulimit {limit}; exec \"$1\""),
                "bash",
            ])
            .arg(&executable)
            .env("LD_LIBRARY_PATH", folder.path());
        let output = run(&mut limited);
        let report = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!report.contains("panicked"), "{limit}: {report}");
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 1)), "{limit}: {code:?} {report}");
        if limit == "-u 1" {
            assert_eq!(code, Some(0), "{report}");
            let cores = margay_sys_os::cpu::usable_cores();
            assert_eq!(
                report.contains("libiml: the system starts 0 of"),
                cores > 1,
                "{report}"
            );
        }
    }
}
