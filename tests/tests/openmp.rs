//! OpenMP: programs that gcc, g++ and gfortran build, on Margay's library, run by `margay omp`.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use margay_tests::{command, program, run, scratch, stage, succeed, unprivileged};

fn library() -> PathBuf {
    stage().join("lib/gomp/libgomp.so.1")
}

/// Compiles one of the programs as its users would.
fn compile(name: &str, options: &[&str], folder: &Path) -> PathBuf {
    let source = program("openmp").join(name);
    let executable = folder.join(name.replace('.', "_"));
    let compiler = match source.extension().and_then(|e| e.to_str()) {
        Some("cpp") => "g++",
        Some("f90") => "gfortran",
        _ => "gcc",
    };
    let mut compile = command(compiler, 120);
    compile
        .current_dir(folder)
        .args(["-O2", "-g"])
        .args(options);
    succeed(compile.arg(&source).arg("-o").arg(&executable));
    executable
}

/// `margay omp` with a program.
fn omp(executable: &Path, limit_s: u32) -> Command {
    let mut omp = command(stage().join("bin/margay"), limit_s);
    omp.arg("omp").arg(executable);
    omp
}

fn passes(executable: &Path, variables: &[(&str, &str)]) {
    let report = succeed(omp(executable, 120).envs(variables.iter().copied()));
    assert!(report.contains("PASSED"), "{report}");
}

#[test]
fn regions_flat_and_nested() {
    let folder = scratch();
    let executable = compile("regions.c", &["-fopenmp"], folder.path());
    passes(&executable, &[]);
    passes(
        &executable,
        &[("OMP_SCHEDULE", "dynamic,4"), ("OMP_WAIT_POLICY", "active")],
    );
}

#[test]
fn regions_on_one_core() {
    let folder = scratch();
    let executable = compile("regions.c", &["-fopenmp"], folder.path());
    let mut on_one = command("taskset", 120);
    on_one.args(["-c", "0"]).arg(stage().join("bin/margay"));
    let report = succeed(on_one.arg("omp").arg(&executable));
    assert!(report.contains("PASSED"), "{report}");
}

#[test]
fn members_run_in_their_places() {
    let folder = scratch();
    let executable = compile("places.c", &["-fopenmp"], folder.path());
    let settings = [
        [("OMP_PLACES", "threads"), ("OMP_DYNAMIC", "false")],
        [("OMP_PLACES", "threads"), ("OMP_PROC_BIND", "spread")],
        [("OMP_PLACES", "sockets"), ("OMP_WAIT_POLICY", "passive")],
        [("GOMP_CPU_AFFINITY", "0-63"), ("OMP_PROC_BIND", "close")],
    ];
    for setting in settings {
        passes(&executable, &setting);
    }
    let mut on_one = command("taskset", 120);
    on_one.args(["-c", "0"]).arg(stage().join("bin/margay"));
    let report = succeed(
        on_one
            .arg("omp")
            .arg(&executable)
            .env("OMP_PLACES", "cores"),
    );
    assert!(
        report.contains("1 places") && report.contains("PASSED"),
        "{report}"
    );
}

#[test]
fn a_member_that_spins_for_long_lets_one_go_on_that_another_thread_wakes() {
    let folder = scratch();
    let executable = compile("spin.c", &["-fopenmp"], folder.path());
    let mut on_one = command("taskset", 60);
    on_one.args(["-c", "0"]).arg(stage().join("bin/margay"));
    let report = succeed(on_one.arg("omp").arg(&executable));
    assert!(report.contains("PASSED"), "{report}");
}

/// Compiles the programs whose members wait for each other outside of OpenMP.
fn compile_blocking(folder: &Path) -> (PathBuf, PathBuf) {
    let library = folder.join("libspin_library.so");
    succeed(
        command("gcc", 60)
            .args(["-O2", "-g", "-fPIC", "-shared"])
            .arg(program("openmp").join("spin_library.c"))
            .arg("-o")
            .arg(&library),
    );
    let found_at_run = format!("-Wl,-rpath,{}", folder.display());
    let here = ["-fopenmp", "-Wl,--no-as-needed", &found_at_run];
    let with_library = [&here[..], &[library.to_str().expect("a plain path")]].concat();
    let in_c = compile("blocking.c", &with_library, folder);
    (in_c, compile("blocking.cpp", &["-fopenmp"], folder))
}

const BLOCKING_IN_C: [&str; 23] = [
    "mutex_flat",
    "mutex_nested",
    "mutex_recursive",
    "mutex_and_critical",
    "barrier",
    "condition",
    "condition_in_time",
    "semaphore",
    "spinning",
    "spinning_with_yield",
    "spinning_in_library",
    "spinning_in_library_with_yield",
    "turns_in_library",
    "sleeping",
    "pipes",
    "pipes_with_poll",
    "pipes_with_poll_in_time",
    "poll_in_time",
    "select_in_time",
    "long_write",
    "children",
    "error_numbers",
    "identities",
];

const BLOCKING_IN_CPP: [&str; 5] = [
    "static_initialisers",
    "condition_variable",
    "mutex_and_exceptions",
    "call_once",
    "sleep_for",
];

/// Runs each of the blocking programs with these numbers of members, on the processors of this
/// list.
fn blocking_programs_end(members: &[u32], processors: &str) {
    let folder = scratch();
    let (in_c, in_cpp) = compile_blocking(folder.path());
    let in_c = BLOCKING_IN_C.iter().map(|case| (&in_c, *case));
    let in_cpp = BLOCKING_IN_CPP.iter().map(|case| (&in_cpp, *case));
    for (executable, case) in in_c.chain(in_cpp) {
        for &members in members {
            let mut bound = command("taskset", 120);
            bound.args(["-c", processors]);
            bound
                .arg(stage().join("bin/margay"))
                .arg("omp")
                .arg(executable);
            let report = succeed(bound.arg(case).arg(members.to_string()));
            assert!(
                report.contains("PASSED"),
                "{case} with {members} members: {report}"
            );
        }
    }
}

#[test]
fn members_that_wait_outside_of_openmp_go_on_on_one_core() {
    blocking_programs_end(&[2, 3, 4, 8], "0");
}

#[test]
fn members_that_wait_outside_of_openmp_go_on_on_two_cores() {
    blocking_programs_end(&[2, 3, 4, 8], "0,1");
}

#[test]
fn many_members_that_wait_outside_of_openmp_go_on_on_one_core() {
    blocking_programs_end(&[64], "0");
}

#[test]
fn many_members_that_wait_outside_of_openmp_go_on_on_two_cores() {
    blocking_programs_end(&[64], "0,1");
}

#[test]
fn tasks() {
    let folder = scratch();
    let executable = compile("tasks.cpp", &["-fopenmp"], folder.path());
    passes(&executable, &[]);
    passes(
        &executable,
        &[("OMP_CANCELLATION", "true"), ("OMP_NUM_THREADS", "7")],
    );
}

#[test]
fn taskloops_of_tiny_tasks() {
    let folder = scratch();
    let executable = compile("taskloops.c", &["-fopenmp"], folder.path());
    for members in ["1", "2", "7"] {
        passes(&executable, &[("OMP_NUM_THREADS", members)]);
    }
}

#[test]
fn cancelled_regions_use_up_no_memory() {
    let folder = scratch();
    let executable = compile("cancelled.c", &["-fopenmp"], folder.path());
    passes(&executable, &[("OMP_CANCELLATION", "true")]);
}

#[test]
fn fortran() {
    let folder = scratch();
    passes(&compile("fortran.f90", &["-fopenmp"], folder.path()), &[]);
}

#[test]
fn loops_that_the_compiler_makes_parallel() {
    let folder = scratch();
    let executable = compile(
        "automatic.c",
        &["-ftree-parallelize-loops=4"],
        folder.path(),
    );
    passes(&executable, &[]);
}

#[test]
fn the_environment_is_read_and_mistakes_are_reported() {
    let folder = scratch();
    let executable = compile("environment.c", &["-fopenmp"], folder.path());
    let variables = [
        ("OMP_NUM_THREADS", "3,2"),
        ("OMP_SCHEDULE", "guided,5"),
        ("OMP_THREAD_LIMIT", "50"),
        ("OMP_PLACES", "{0}"),
        ("OMP_PROC_BIND", "close"),
    ];
    let report = succeed(omp(&executable, 60).envs(variables));
    assert!(
        report.contains("threads 3, schedule 3,5, levels 255, limit 50, places 1, bind 3"),
        "{report}"
    );
    assert!(report.contains("x/003 level 1"), "{report}");
    let output =
        run(omp(&executable, 60)
            .envs([("OMP_NUM_THREADS", "many"), ("OMP_DISPLAY_ENV", "verbose")]));
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        report.contains("OMP_NUM_THREADS='many' is ignored"),
        "{report}"
    );
    assert!(
        report.contains("OPENMP DISPLAY ENVIRONMENT BEGIN\n  _OPENMP = '201511'\n"),
        "{report}"
    );
    assert!(report.contains("  GOMP_SPINCOUNT = "), "{report}");
}

#[test]
fn variables_that_a_program_sets_before_its_first_region_count() {
    let folder = scratch();
    let executable = compile("late_environment.c", &["-fopenmp"], folder.path());
    passes(&executable, &[("OMP_NUM_THREADS", "2")]);
}

#[test]
fn members_show_their_affinity_when_it_is_another() {
    let folder = scratch();
    let executable = compile("shown.c", &["-fopenmp"], folder.path());
    let output = run(omp(&executable, 60).env("OMP_DISPLAY_AFFINITY", "true"));
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut shown: Vec<&str> = report.lines().collect();
    shown.sort_unstable();
    let region = |level: u32, members: u32| {
        (0..members).map(move |member| format!("level {level} member {member} of {members}"))
    };
    let mut expected: Vec<String> = [(1, 8), (1, 3), (1, 8), (1, 2), (2, 2), (2, 2), (1, 1)]
        .into_iter()
        .flat_map(|(level, members)| region(level, members))
        .chain((0..2).map(|member| format!("2 members, this is {member}")))
        .collect();
    expected.sort_unstable();
    assert_eq!(shown, expected);
}

#[test]
fn programs_that_cannot_be_helped_are_reported() {
    let folder = scratch();
    let source = folder.path().join("plain.c");
    std::fs::write(&source, "int main(void) { return 3; }\n").expect("a folder to write to");
    let executable = folder.path().join("plain");
    succeed(command("gcc", 60).arg(&source).arg("-o").arg(&executable));
    let output = run(&mut omp(&executable, 60));
    assert_eq!(
        output.status.code(),
        Some(3),
        "the program runs all the same"
    );
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        report.contains("itself is not linked with libgomp or libomp"),
        "{report}"
    );
    let output = run(&mut omp(Path::new("no-such-program"), 60));
    assert_eq!(output.status.code(), Some(127), "as of a shell");
}

/// What debuggers read.
const DESCRIPTION: &str = "margay_threads_description";

/// What a library exports: name and version, and whether it is the one that programs linked now
/// get.
fn exported(library: &Path) -> BTreeSet<(String, String, bool)> {
    let table = succeed(
        command("readelf", 60)
            .args(["--wide", "--dyn-syms"])
            .arg(library),
    );
    table
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (place, name) = (words.get(6)?, words.get(7)?);
            let (name, version) = name.split_once('@')?;
            let current = version.strip_prefix('@');
            let is_ours =
                name.starts_with("GOMP_") || name.starts_with("omp_") || name == DESCRIPTION;
            // LLVM's names for the same are in a list of their own.
            let is_ours = is_ours && current.unwrap_or(version) != "VERSION";
            let is_wanted = is_ours && *place != "UND" && !name.starts_with("GOMP_PLUGIN");
            is_wanted.then(|| {
                (
                    name.to_owned(),
                    current.unwrap_or(version).to_owned(),
                    current.is_some(),
                )
            })
        })
        .collect()
}

#[test]
fn the_library_exports_its_list_and_nothing_else() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi/gomp/symbols.txt");
    let list = std::fs::read_to_string(list).expect("the list is part of the tree");
    let listed: BTreeSet<(String, String, bool)> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0].to_owned(), words[1].to_owned(), words.len() == 2)
        })
        .collect();
    assert_eq!(listed.len(), 323);
    assert_eq!(exported(&library()), listed);
    let all = succeed(
        command("readelf", 60)
            .args(["--wide", "--dyn-syms"])
            .arg(library()),
    );
    let strangers: Vec<&str> = all
        .lines()
        .filter(|line| !line.contains(" UND ") && line.contains(" FUNC "))
        .filter(|line| !line.contains(" GOMP_") && !line.contains(" omp_"))
        .filter(|line| !line.contains("@VERSION") && !line.contains("@@VERSION"))
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
}

#[test]
fn the_list_is_that_of_the_installed_compiler() {
    let found = succeed(command("gcc", 60).arg("-print-file-name=libgomp.so.1"));
    let version = succeed(command("gcc", 60).arg("-dumpversion"));
    let theirs = exported(Path::new(found.trim()));
    let ours = exported(&library());
    let missing: Vec<_> = theirs.difference(&ours).collect();
    // A newer compiler than that of the list has names that are not there yet; an older one has
    // fewer.
    if version.trim() == "12" {
        assert!(missing.is_empty(), "{missing:?}");
    } else {
        println!("gcc {} has {} names more", version.trim(), missing.len());
    }
}

/// A shell that sets a limit and becomes the program, with Margay's library found by the loader.
fn limited(limit: &str, executable: &Path) -> Command {
    let mut shell = command("sh", 120);
    shell
        .args(["-c", &format!("ulimit {limit}; exec \"$1\""), "sh"])
        .arg(executable)
        .env("LD_LIBRARY_PATH", stage().join("lib/gomp"));
    shell
}

/// Exit code and standard output of a program that must neither panic nor die.
fn ends_in_words(command: &mut Command) -> (i32, String, String) {
    let output = run(command);
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = output.status.code().unwrap_or(-1);
    assert!(!report.contains("panicked"), "{report}");
    assert!((0..124).contains(&code) || code == 127, "{code}: {report}");
    (code, printed, report)
}

#[test]
fn limits_of_memory_and_threads_leave_fewer_members_or_end_the_program_in_words() {
    let folder = scratch();
    let executable = compile("limits.c", &["-fopenmp"], folder.path());
    let with = |variables: &[(&str, &str)]| {
        ends_in_words(omp(&executable, 120).envs(variables.iter().copied()))
    };
    let (code, printed, _) = with(&[("OMP_STACKSIZE", "100G"), ("OMP_NUM_THREADS", "8")]);
    assert_eq!((code, printed.as_str()), (0, "8 members PASSED\n"));
    // More than any address space has.
    let (code, printed, report) = with(&[("OMP_STACKSIZE", "1000000G"), ("OMP_NUM_THREADS", "8")]);
    assert_eq!((code, printed.as_str()), (0, "8 members PASSED\n"));
    assert!(
        report.contains("no memory for another stack") && report.contains("ulimit -v"),
        "{report}"
    );
    let (code, printed, report) = with(&[("OMP_NUM_THREADS", "100000")]);
    assert!(code == 0 && printed.contains("PASSED"), "{code}: {report}");
    if !printed.starts_with("100000 ") {
        assert!(report.contains("vm.max_map_count"), "{report}");
    }
    let limit = [("OMP_NUM_THREADS", "100000"), ("OMP_THREAD_LIMIT", "3")];
    assert_eq!(with(&limit).1, "3 members PASSED\n");

    let (code, printed, report) =
        ends_in_words(limited("-v 200000", &executable).env("OMP_NUM_THREADS", "64"));
    assert!(code == 0 && printed.contains("PASSED"), "{code}: {report}");
    assert!(report.contains("ulimit -v"), "{report}");
    // From too little for the loader to enough.
    for kilobytes in (4..=20).map(|n| n * n * 400) {
        let limit = format!("-v {kilobytes}");
        for members in ["2", "9"] {
            let mut limited = limited(&limit, &executable);
            let (code, _, report) = ends_in_words(limited.env("OMP_NUM_THREADS", members));
            assert!(code == 0 || !report.is_empty(), "{kilobytes} KiB: {code}");
        }
    }
}

#[test]
fn a_limit_of_processes_leaves_the_threads_that_there_are() {
    use std::os::unix::fs::PermissionsExt;
    let folder = scratch();
    let executable = compile("limits.c", &["-fopenmp"], folder.path());
    // Where another user finds both.
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("our folder");
    std::fs::copy(library(), folder.path().join("libgomp.so.1")).expect("our folder");
    for members in ["2", "7"] {
        let mut limited = unprivileged(60);
        limited
            .args(["bash", "-c", "ulimit -u 1; exec \"$1\"", "bash"])
            .arg(&executable)
            .env("LD_LIBRARY_PATH", folder.path())
            .env("OMP_NUM_THREADS", members);
        let (code, printed, report) = ends_in_words(&mut limited);
        assert_eq!((code, printed), (0, format!("{members} members PASSED\n")));
        let cores = margay_sys_os::cpu::usable_cores();
        assert_eq!(report.contains("ulimit -u"), cores > 1, "{report}");
        // A line for the workers, and one for the members' thread-local variables.
        assert!(report.lines().count() <= 2, "{report}");
    }
}

#[test]
fn a_main_thread_that_ends_first_leaves_no_threads_and_values_are_destroyed() {
    let folder = scratch();
    let executable = compile("main_ends.cpp", &["-fopenmp"], folder.path());
    let counts = |how: &[&str]| {
        let printed = succeed(omp(&executable, 60).args(how));
        let count = |word: &str| printed.lines().filter(|line| *line == word).count();
        (count("key"), count("object"), count("region"))
    };
    // Those of the main thread alone: threads of a pool live to the end, as with libgomp.
    assert_eq!(counts(&[]), (0, 1, 0));
    if cfg!(target_arch = "x86_64") {
        // The C library destroys main's object only when no other thread is left by then.
        let (keys, objects, regions) = counts(&["exit"]);
        assert_eq!((keys, regions), (4, 0));
        assert!(objects == 3 || objects == 4, "{objects}");
        assert_eq!(counts(&["thread"]), (3, 3, 1));
    }
}

/// A folder as a wheel makes it: a module, and beside it a copy of the compiler's libgomp under
/// another name, with which the module was linked.
fn wheel(folder: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let source = |name: &str| program("openmp/wheel").join(name);
    let theirs = succeed(command("gcc", 60).arg("-print-file-name=libgomp.so.1"));
    let mut bytes = std::fs::read(theirs.trim()).expect("gcc has a libgomp");
    // As long as the library's own name, which is replaced in its table of strings.
    let (name, other) = (b"\0libgomp.so.1\0", b"\0libgomp-a.so\0");
    let found: Vec<usize> = (0..bytes.len() - name.len())
        .filter(|&at| bytes[at..].starts_with(name))
        .collect();
    assert!(!found.is_empty(), "a library has its name");
    for at in found {
        bytes[at..at + other.len()].copy_from_slice(other);
    }
    let libraries = folder.join("kernel.libs");
    std::fs::create_dir_all(&libraries).expect("our folder");
    let copy = libraries.join("libgomp-a.so");
    std::fs::write(&copy, bytes).expect("our folder");
    let (object, module) = (folder.join("kernel.o"), folder.join("kernel.so"));
    let mut compile = command("gcc", 60);
    compile.args(["-O2", "-fPIC", "-fopenmp", "-c"]);
    succeed(compile.arg(source("kernel.c")).arg("-o").arg(&object));
    let mut link = command("gcc", 60);
    link.args(["-shared", "-Wl,-rpath,$ORIGIN/kernel.libs"]);
    succeed(link.arg(&object).arg(&copy).arg("-o").arg(&module));
    let executable = folder.join("program");
    let mut compile = command("gcc", 60);
    compile.arg(source("program.c")).arg("-o").arg(&executable);
    succeed(compile.arg("-ldl"));
    (executable, module, copy)
}

#[test]
fn copies_that_wheels_bring_are_replaced_and_named() {
    let folder = scratch();
    let (executable, module, copy) = wheel(folder.path());
    let alone = succeed(command(&executable, 60).arg(&module));
    assert!(
        alone.starts_with("5050 by ") && alone.contains("libgomp-a.so"),
        "{alone}"
    );
    let margay = stage().join("bin/margay");
    let mut verbose = command(&margay, 60);
    verbose.args(["omp", "-v"]).arg(&executable).arg(&module);
    let output = run(&mut verbose);
    let (printed, report) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(
        printed,
        format!("5050 by {}\n", library().display()),
        "{report}"
    );
    let replaced = format!("takes the place of {}", copy.display());
    assert_eq!(report.matches(&replaced).count(), 1, "{report}");
    let output = run(omp(&executable, 60).arg(&module));
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!report.contains("takes the place of"), "{report}");

    // A copy of LLVM's library is replaced in the same way, since the library has its calls, too.
    let other = folder.path().join("libomp-5f2a.so");
    std::fs::write(
        folder.path().join("other.c"),
        "int sum_to(int n) { return n; }\nconst char *runtime(void) { return \"other\"; }\n",
    )
    .expect("our folder");
    let mut compile = command("gcc", 60);
    compile
        .args(["-shared", "-fPIC"])
        .arg(folder.path().join("other.c"));
    succeed(compile.arg("-o").arg(&other));
    let mut verbose = command(&margay, 60);
    verbose.args(["omp", "-v"]).arg(&executable).arg(&other);
    let output = run(&mut verbose);
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    let replaced = format!("takes the place of {}", other.display());
    assert!(report.contains(&replaced), "{report}");
}

#[test]
fn programs_with_the_rights_of_others_are_refused() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let folder = scratch();
    let executable = compile("limits.c", &["-fopenmp"], folder.path());
    if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        println!("only root gives files to others");
        return;
    }
    std::os::unix::fs::chown(&executable, Some(65534), None).expect("root may");
    std::fs::set_permissions(&executable, PermissionsExt::from_mode(0o4755)).expect("root may");
    let output = run(&mut omp(&executable, 60));
    assert_eq!(output.status.code(), Some(1));
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(report.contains("rights of another user"), "{report}");
}

#[test]
fn what_is_displayed_has_the_values_of_the_compilers_library() {
    let folder = scratch();
    let version = succeed(command("gcc", 60).arg("-dumpversion"));
    if version.trim() != "12" {
        println!(
            "gcc {}: values are compared with those of 12",
            version.trim()
        );
        return;
    }
    let executable = compile("limits.c", &["-fopenmp"], folder.path());
    let shown = |command: &mut Command| {
        let output = run(command.env("OMP_DISPLAY_ENV", "verbose"));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for setting in [
        ("OMP_NUM_THREADS", "4,3,2"),
        ("OMP_SCHEDULE", "monotonic:dynamic,7"),
        ("OMP_SCHEDULE", "nonmonotonic:static"),
        ("OMP_STACKSIZE", "3M"),
        ("OMP_WAIT_POLICY", "active"),
        ("OMP_WAIT_POLICY", "passive"),
        ("GOMP_SPINCOUNT", "55k"),
        ("OMP_PLACES", "{0}"),
        ("OMP_PROC_BIND", "spread,master"),
        ("GOMP_CPU_AFFINITY", "0"),
        ("OMP_MAX_ACTIVE_LEVELS", "300"),
        ("OMP_NESTED", "true"),
        ("OMP_NUM_TEAMS", "3"),
        ("OMP_TARGET_OFFLOAD", "disabled"),
        ("OMP_AFFINITY_FORMAT", "%0.3n at %P"),
    ] {
        let theirs = shown(command(&executable, 60).env(setting.0, setting.1));
        let ours = shown(omp(&executable, 60).env(setting.0, setting.1));
        assert_eq!(ours, theirs, "{setting:?}");
    }
}
