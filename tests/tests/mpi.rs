//! MPI as a C program sees it: the header, the symbols, and programs for every chapter of the
//! standard.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use margay_tests::{command, program, run, scratch, stage, succeed};

/// Compiles a program of `programs/mpi` without a warning.
fn compile(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let executable = folder.join(name);
    succeed(
        command(stage().join("bin/mpicc"), 120)
            .args([
                "-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread",
            ])
            .args(flags)
            .arg(program("mpi").join(format!("{name}.c")))
            .arg("-o")
            .arg(&executable),
    );
    executable
}

fn mpiexec(ranks: u32) -> std::process::Command {
    mpiexec_within(120, ranks)
}

fn mpiexec_within(limit_s: u32, ranks: u32) -> std::process::Command {
    let mut command = command(stage().join("bin/mpiexec"), limit_s);
    command.args(["-n", &ranks.to_string()]);
    command
}

/// A program that says "ok" on each of these numbers of ranks.
fn is_ok(name: &str, ranks: &[u32]) {
    let folder = scratch();
    let executable = compile(folder.path(), name, &[]);
    for &n in ranks {
        assert_eq!(
            succeed(mpiexec(n).arg(&executable)),
            "ok\n",
            "{name} on {n} ranks"
        );
    }
}

#[test]
fn point_to_point() {
    is_ok("point", &[2, 3]);
}

#[test]
fn requests_of_receives() {
    let folder = scratch();
    let executable = compile(folder.path(), "receives", &[]);
    assert_eq!(succeed(mpiexec(2).arg(&executable)), "ok\n");
    assert_eq!(succeed(mpiexec(2).arg(&executable).arg("threads")), "ok\n");
}

#[test]
fn waits_for_generalized_requests_sleep() {
    is_ok("grequest", &[1, 2]);
}

#[test]
fn datatypes() {
    is_ok("datatypes", &[1, 2]);
}

#[test]
fn counts_beyond_31_bits() {
    is_ok("large", &[1]);
    // Three buffers of 2 GiB at a time, and what else runs.
    const NEEDED_KIB: u64 = 10 << 20;
    let memory = std::fs::read_to_string("/proc/meminfo").expect("the kernel tells about memory");
    let available = memory.lines().find_map(|line| {
        let kib = line.strip_prefix("MemAvailable:")?.trim();
        kib.trim_end_matches(" kB").parse::<u64>().ok()
    });
    if available.is_none_or(|kib| kib < NEEDED_KIB) {
        eprintln!(
            "not tested with real memory: {available:?} KiB are available, {NEEDED_KIB} needed"
        );
        return;
    }
    let folder = scratch();
    let executable = compile(folder.path(), "large", &[]);
    for bytes_only in ["0", "1"] {
        let report = succeed(
            // Both cores are busy for 12 s with clearing pages, so beside twenty others it takes
            // two minutes.
            mpiexec_within(900, 2)
                .args(["-x", &format!("MARGAY_BYTES_ONLY={bytes_only}")])
                .args([executable.as_os_str(), "real".as_ref()]),
        );
        assert_eq!(report, "ok\n", "MARGAY_BYTES_ONLY={bytes_only}");
    }
}

#[test]
fn collectives() {
    is_ok("collectives", &[1, 4, 7]);
}

#[test]
fn many_nonblocking_collectives_are_under_way_at_once() {
    is_ok("outstanding", &[1, 2, 3, 8]);
}

#[test]
fn communicators() {
    is_ok("communicators", &[2, 5]);
}

#[test]
fn topologies() {
    is_ok("topology", &[1, 2, 6]);
}

#[test]
fn files() {
    let folder = scratch();
    let executable = compile(folder.path(), "files", &[]);
    for n in [1, 2, 5] {
        let file = folder.path().join("data");
        let output = succeed(mpiexec(n).arg(&executable).arg(&file));
        assert_eq!(output, "ok\n", "files on {n} ranks");
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .filter(|name| name != "files")
            .collect();
        assert!(left.is_empty(), "left beside the program: {left:?}");
    }
}

#[test]
fn environment() {
    is_ok("environment", &[1, 3]);
}

#[test]
fn errors_have_their_class_and_say_what_and_where() {
    is_ok("errors", &[2]);
}

#[test]
fn a_program_may_put_its_own_function_in_front() {
    let folder = scratch();
    let executable = compile(folder.path(), "profiled", &["-DOWN"]);
    assert_eq!(succeed(mpiexec(2).arg(&executable)), "ok\n");
}

#[test]
fn a_preloaded_tool_sees_the_calls_of_the_program_only() {
    let folder = scratch();
    let executable = compile(folder.path(), "profiled", &[]);
    let tool = compile(folder.path(), "tool", &["-shared", "-fPIC"]);
    let output = succeed(mpiexec(2).env("LD_PRELOAD", &tool).arg(&executable));
    assert!(output.contains("10 sends\n"), "{output}");
}

#[test]
fn calls_at_the_wrong_time_say_so() {
    let folder = scratch();
    let executable = compile(folder.path(), "outside", &[]);
    for (when, text) in [
        ("before", "MPI_Comm_rank: called before MPI_Init"),
        ("after", "MPI_Barrier: called after MPI_Finalize"),
        ("twice", "MPI_Init: MPI was initialized before"),
    ] {
        let output = run(command(&executable, 60).arg(when));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{when}");
        assert!(said.contains(text), "{when}: {said}");
    }
}

#[test]
fn a_fatal_error_ends_the_job_with_one_message() {
    let folder = scratch();
    let executable = compile(folder.path(), "outside", &[]);
    let output = run(mpiexec(2).arg(&executable).arg("fatal"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "MPI_ERR_RANK: {said}");
    let message = "MPI_Send: rank 77 is not in communicator 'MPI_COMM_WORLD' (2 ranks), tag 3, called by rank 1";
    assert_eq!(said.matches(message).count(), 1, "{said}");
}

#[test]
fn abort_gives_its_code_to_the_launcher() {
    let folder = scratch();
    let executable = compile(folder.path(), "outside", &[]);
    let output = run(mpiexec(3).arg(&executable).arg("abort"));
    assert_eq!(output.status.code(), Some(42));
}

#[test]
fn finalize_deletes_the_attributes_of_the_own_communicator_last_first() {
    let folder = scratch();
    let executable = compile(folder.path(), "outside", &[]);
    let output = succeed(command(&executable, 60).arg("attribute"));
    assert_eq!(output, "deleted second\ndeleted first\n");
}

#[test]
fn the_header_compiles_without_a_warning() {
    for (compiler, name, standard) in [
        ("mpicc", "header.c", "c99"),
        ("mpicc", "header.c", "c11"),
        ("mpicxx", "header.c", "c++17"),
    ] {
        succeed(
            command(stage().join("bin").join(compiler), 120)
                .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"])
                .arg(format!("-std={standard}"))
                .args(if compiler == "mpicxx" {
                    ["-x", "c++"]
                } else {
                    ["-x", "c"]
                })
                .arg(program("mpi").join(name)),
        );
    }
}

/// The values of the ABI are facts that are kept apart from the tables which the header is printed
/// from.
#[test]
fn constants_have_the_values_of_the_standard() {
    let facts = include_str!("../facts/mpi_abi.txt");
    let facts: Vec<(&str, i64)> = facts
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(' ').expect("name and value"))
        .map(|(name, value)| (name, value.parse().expect("a number")))
        .collect();
    assert!(facts.len() > 350, "{} facts", facts.len());
    let folder = scratch();
    let mut source = String::from(
        "#include <mpi.h>\n#include <stdio.h>\nstatic const struct { const char *name; long long value; } all[] = {\n",
    );
    for (name, _) in &facts {
        source += &format!("{{\"{name}\", (long long)(intptr_t)({name})}},\n");
    }
    source += "};\nint main(void) { for (unsigned i = 0; i < sizeof all / sizeof *all; i++)\n\
               printf(\"%s %lld\\n\", all[i].name, all[i].value);\n\
               printf(\"sizeof %zu %zu %zu %zu\\n\", sizeof(MPI_Status), sizeof(MPI_Aint), sizeof(MPI_Count), sizeof(MPI_Comm));\n}\n";
    let file = folder.path().join("constants.c");
    std::fs::write(&file, source).expect("a source file");
    let executable = folder.path().join("constants");
    succeed(
        command(stage().join("bin/mpicc"), 120)
            .arg(&file)
            .arg("-o")
            .arg(&executable),
    );
    let output = succeed(&mut command(&executable, 60));
    let mut lines = output.lines();
    for (name, value) in &facts {
        assert_eq!(lines.next(), Some(format!("{name} {value}").as_str()));
    }
    assert_eq!(lines.next(), Some("sizeof 32 8 8 8"));
}

#[test]
fn the_library_exports_what_the_list_says() {
    let listed: BTreeSet<&str> = include_str!("../../abi/mpi/symbols.txt").lines().collect();
    let library = stage().join("lib/libmpi_abi.so.1");
    let output = succeed(
        command("nm", 60)
            .args(["-D", "--defined-only"])
            .arg(&library),
    );
    let exported: BTreeSet<&str> = output
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    let missing: Vec<_> = listed.difference(&exported).collect();
    let surplus: Vec<_> = exported.difference(&listed).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "missing {missing:?}, surplus {surplus:?}"
    );
    // The functions of libraries beside MPI have names of Margay's own.
    let own = |name: &&&str| name.starts_with("margay_");
    for name in listed.iter().filter(|n| !n.starts_with('P') && !own(n)) {
        assert!(listed.contains(format!("P{name}").as_str()), "P{name}");
    }
    let standard: BTreeSet<&str> = include_str!("../facts/mpi_functions.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(standard.len(), 664);
    let removed: BTreeSet<&str> = include_str!("../facts/mpi_removed.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(removed.len(), 10);
    let expected: BTreeSet<&str> = standard.union(&removed).copied().collect();
    let missing: Vec<_> = expected.difference(&listed).collect();
    let foreign: Vec<_> = listed
        .difference(&expected)
        .filter(|name| !name.starts_with('P') && !name.starts_with("MPIX_") && !own(name))
        .collect();
    assert!(
        missing.is_empty() && foreign.is_empty(),
        "not there {missing:?}, not of the standard {foreign:?}"
    );
    let dynamic = succeed(command("readelf", 60).arg("-d").arg(&library));
    assert!(dynamic.contains("Library soname: [libmpi_abi.so.1]"));
}
