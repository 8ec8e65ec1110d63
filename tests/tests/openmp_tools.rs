//! OpenMP's tools interface (OMPT): a tool that checks what is reported to it, over programs of gcc
//! and of clang.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use margay_tests::{command, program, run, scratch, stage, succeed};

const COMPILERS: [&str; 2] = ["gcc", "clang-19"];

fn compile(compiler: &str, sources: &[&str], options: &[&str], to: &Path) {
    let compiler = match (compiler, sources[0].ends_with(".cpp")) {
        ("gcc", true) => "g++",
        (_, true) => "clang++-19",
        (other, false) => other,
    };
    let mut compile = command(compiler, 120);
    // A call that a function ends with leaves no address in it to return to.
    compile.args(["-O2", "-g", "-fno-optimize-sibling-calls"]);
    compile.args(sources.iter().map(|name| program("openmp").join(name)));
    succeed(compile.args(options).arg("-o").arg(to));
}

/// The tool as a library.
fn tool(folder: &Path) -> PathBuf {
    let library = folder.join("libtool.so");
    compile("gcc", &["tool.c"], &["-shared", "-fPIC"], &library);
    library
}

fn compiled_by(compiler: &str, name: &str, folder: &Path) -> PathBuf {
    let executable = folder.join(format!("{compiler}_{}", name.replace('.', "_")));
    let mut options = vec!["-fopenmp"];
    if compiler != "gcc" {
        options.push("-fopenmp-version=51");
    }
    compile(compiler, &[name], &options, &executable);
    executable
}

fn omp(executable: &Path) -> Command {
    let mut omp = command(stage().join("bin/margay"), 120);
    omp.arg("omp")
        .arg(executable)
        .env("OMP_CANCELLATION", "true");
    omp
}

/// Runs a program, which passes; returns what it and the tool said.
fn report(run_it: &mut Command) -> (String, String) {
    let output = run(run_it);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && out.contains("PASSED"),
        "{run_it:?}: {}\n{out}\n{err}",
        output.status
    );
    (out, err)
}

/// The same with the tool, which finds nothing wrong.
fn checked(run_it: &mut Command) -> String {
    let (_, err) = report(run_it);
    assert!(err.contains("tool: PASSED"), "{run_it:?}\n{err}");
    err
}

/// How often the tool was called for a callback.
fn count(report: &str, callback: u32) -> u32 {
    let start = format!("tool: saw {callback}: ");
    let of_it = |line: &str| line.strip_prefix(&start)?.trim().parse().ok();
    report.lines().find_map(of_it).unwrap_or(0)
}

/// Callbacks of what both compilers call the library for, and of what only clang does: masked,
/// control, flush, reduction.
const OF_BOTH: [u32; 19] = [
    1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 23, 24, 25, 26, 27, 28, 32,
];
const OF_CLANG: [u32; 4] = [11, 21, 29, 31];

#[test]
fn constructs_of_all_kinds_are_reported_in_pairs() {
    let folder = scratch();
    let tool = tool(folder.path());
    for compiler in COMPILERS {
        let executable = compiled_by(compiler, "reported.c", folder.path());
        for threads in ["1", "4", "9"] {
            let report = checked(
                omp(&executable)
                    .env("OMP_TOOL_LIBRARIES", &tool)
                    .env("OMP_NUM_THREADS", threads),
            );
            let is_clang = compiler != "gcc";
            let expected = OF_BOTH.iter().chain(OF_CLANG.iter().filter(|_| is_clang));
            for &callback in expected {
                assert!(
                    count(&report, callback) > 0,
                    "{compiler}: {callback}\n{report}"
                );
            }
            // Fourteen regions and the ten of each of three members, of which one is not nested.
            assert_eq!(count(&report, 3), count(&report, 4), "{report}");
            // Each created task begins and ends once.
            assert!(count(&report, 6) >= 2 * 400, "{report}");
        }
    }
}

#[test]
fn other_programs_are_reported_too() {
    let folder = scratch();
    let tool = tool(folder.path());
    for (compiler, name) in COMPILERS
        .iter()
        .flat_map(|&compiler| [(compiler, "regions.c"), (compiler, "tasks.cpp")])
    {
        let executable = compiled_by(compiler, name, folder.path());
        for places in ["", "cores"] {
            let mut omp = omp(&executable);
            omp.env("OMP_TOOL_LIBRARIES", &tool);
            if !places.is_empty() {
                omp.env("OMP_PLACES", places);
            }
            checked(&mut omp);
        }
    }
}

#[test]
fn a_tool_is_found_in_the_program_and_in_preloaded_libraries() {
    let folder = scratch();
    let library = tool(folder.path());
    for compiler in COMPILERS {
        let own = folder.path().join(format!("{compiler}_own"));
        let options = ["-fopenmp", "-rdynamic"];
        compile(compiler, &["reported.c", "tool.c"], &options, &own);
        checked(&mut omp(&own));
        let executable = compiled_by(compiler, "reported.c", folder.path());
        checked(omp(&executable).env("LD_PRELOAD", &library));
        // The first that is one is taken.
        let list = std::env::join_paths([Path::new("/nowhere/libtool.so"), &library]).unwrap();
        let report = checked(
            omp(&executable)
                .env("OMP_TOOL_LIBRARIES", list)
                .env("OMP_TOOL_VERBOSE_INIT", "stderr"),
        );
        assert!(report.contains("/nowhere/libtool.so"), "{report}");
        assert!(report.contains("the tool was started"), "{report}");
    }
}

#[test]
fn a_tool_may_be_absent_disabled_silent_or_refuse() {
    let folder = scratch();
    let tool = tool(folder.path());
    let executable = compiled_by("clang-19", "reported.c", folder.path());
    let with = |name: &str, value: &str| {
        report(
            omp(&executable)
                .env("OMP_TOOL_LIBRARIES", &tool)
                .env(name, value),
        )
    };
    let (out, err) = report(&mut omp(&executable));
    assert!(out.contains("control -2") && err.is_empty(), "{out}{err}");
    let (out, err) = with("OMP_TOOL", "disabled");
    assert!(out.contains("control -2") && err.is_empty(), "{out}{err}");
    let (out, err) = with("TOOL_IS_ABSENT", "1");
    assert!(out.contains("control -2") && err.is_empty(), "{out}{err}");
    let (out, err) = with("TOOL_REFUSES", "1");
    assert!(out.contains("control -2") && err.is_empty(), "{out}{err}");
    let (out, err) = with("TOOL_IS_SILENT", "1");
    assert!(out.contains("control -1"), "{out}");
    assert!(err.contains("tool: PASSED") && count(&err, 3) == 0, "{err}");
    let (out, _) = with("OMP_TOOL", "enabled");
    assert!(out.contains("control 37"), "{out}");
}
