//! OpenMP: programs that clang and flang build, on Margay's library.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use margay_tests::{command, program, run, scratch, stage, succeed};

/// Where the library is, under all its names.
fn libraries() -> PathBuf {
    stage().join("lib/gomp")
}

fn compiled_by(compiler: &str, name: &str, options: &[&str], folder: &Path) -> PathBuf {
    let executable = folder.join(name.replace('.', "_"));
    let mut compile = command(compiler, 120);
    compile
        .current_dir(folder)
        .args(["-O2", "-g", "-fopenmp"])
        .arg(program("openmp").join(name))
        .args(options);
    succeed(compile.arg("-o").arg(&executable));
    executable
}

fn by_clang(name: &str, folder: &Path) -> PathBuf {
    let compiler = if name.ends_with(".cpp") {
        "clang++-19"
    } else {
        "clang-19"
    };
    compiled_by(compiler, name, &["-fopenmp-version=51"], folder)
}

fn omp(executable: &Path) -> Command {
    let mut omp = command(stage().join("bin/margay"), 120);
    omp.arg("omp").arg(executable);
    omp
}

fn passes(run: &mut Command) {
    let report = succeed(run);
    assert!(report.contains("PASSED"), "{report}");
}

#[test]
fn regions_flat_and_nested() {
    let folder = scratch();
    let executable = by_clang("regions.c", folder.path());
    passes(&mut omp(&executable));
    passes(omp(&executable).envs([("OMP_SCHEDULE", "dynamic,4"), ("KMP_BLOCKTIME", "infinite")]));
    let mut on_one = command("taskset", 120);
    on_one.args(["-c", "0"]).arg(stage().join("bin/margay"));
    passes(on_one.arg("omp").arg(&executable));
}

#[test]
fn tasks() {
    let folder = scratch();
    let executable = by_clang("tasks.cpp", folder.path());
    passes(&mut omp(&executable));
    passes(omp(&executable).envs([("OMP_CANCELLATION", "true"), ("OMP_NUM_THREADS", "7")]));
}

#[test]
fn what_only_llvms_compilers_call() {
    let folder = scratch();
    let executable = by_clang("clang.c", folder.path());
    passes(&mut omp(&executable));
    passes(omp(&executable).env("OMP_NUM_THREADS", "5"));
    passes(omp(&executable).env("KMP_AFFINITY", "granularity=fine,compact"));
}

#[test]
fn variables_that_a_program_sets_before_its_first_region_count() {
    let folder = scratch();
    let executable = by_clang("late_environment.c", folder.path());
    passes(omp(&executable).env("OMP_NUM_THREADS", "2"));
}

#[test]
fn a_part_of_the_machine_limits_members_and_places() {
    let folder = scratch();
    let executable = by_clang("environment.c", folder.path());
    for (setting, expected) in [
        (("OMP_PLACES", "threads"), "threads 1,"),
        (("OMP_PLACES", "threads"), "places 1,"),
        (("OMP_WAIT_POLICY", "passive"), "places 1,"),
        (("OMP_NUM_THREADS", "3"), "threads 3,"),
    ] {
        let report = succeed(omp(&executable).envs([setting, ("KMP_HW_SUBSET", ":1t")]));
        assert!(report.contains(expected), "{setting:?}: {report}");
    }
    let output = run(omp(&executable).env("KMP_HW_SUBSET", "1s,9999c"));
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        report.contains("KMP_HW_SUBSET='1s,9999c' is ignored: it asks for 9999 cores"),
        "{report}"
    );
}

/// libomp prints members' lines among what the program prints, in a format of its own.
#[test]
fn members_show_their_affinity_as_with_libomp() {
    let folder = scratch();
    let executable = by_clang("affinity_text.c", folder.path());
    let mut run = omp(&executable);
    run.envs([("OMP_DISPLAY_AFFINITY", "true"), ("OMP_PLACES", "{0}")]);
    let shown = succeed(&mut run);
    let mut lines = shown.lines();
    let mut next = || lines.next().unwrap_or_else(|| panic!("{shown}"));
    let of_member = |line: &str, member: &str| {
        let rest = line.strip_prefix("OMP: pid ").unwrap_or_default();
        let words: Vec<&str> = rest.split(' ').collect();
        let (process, thread) = (words[0].parse::<u32>(), words[2].parse::<u32>());
        assert!(process.is_ok() && thread.is_ok(), "{shown}");
        let end = format!("thread {member} bound to OS proc set {{0}}");
        assert_eq!(words[3..].join(" "), end, "{shown}");
    };
    assert_eq!(next(), "first");
    of_member(next(), "0");
    assert_eq!(
        next(),
        "54 OMP: pid %P tid %i thread %n bound to OS proc set {%A}"
    );
    let mut members = [next(), next()];
    members.sort_unstable_by_key(|line| line.contains("thread 1"));
    of_member(members[0], "0");
    of_member(members[1], "1");
    let rest = ["member 0 in {0}", "1 member", "5 <000>", "PASSED"];
    assert_eq!(rest.map(|_| next()), rest, "{shown}");
}

#[test]
fn cancelled_regions_use_up_no_memory() {
    let folder = scratch();
    let executable = by_clang("cancelled.c", folder.path());
    passes(omp(&executable).env("OMP_CANCELLATION", "true"));
}

#[test]
fn fortran() {
    let folder = scratch();
    let executable = compiled_by("flang-new-19", "threadprivate.f90", &[], folder.path());
    passes(&mut omp(&executable));
    passes(omp(&executable).env("OMP_NUM_THREADS", "3"));
}

#[test]
fn code_of_gcc_and_clang_in_one_process_shares_the_threads() {
    let folder = scratch();
    let library = folder.path().join("libboth.so");
    let mut compile = command("gcc", 60);
    compile.args(["-O2", "-g", "-fopenmp", "-fPIC", "-shared"]);
    succeed(
        compile
            .arg(program("openmp").join("both_library.c"))
            .arg("-o")
            .arg(&library),
    );
    let library = library.to_str().expect("a plain path");
    let executable = compiled_by("clang-19", "both_main.c", &[library], folder.path());
    passes(&mut omp(&executable));
    passes(command(&executable, 60).env("LD_LIBRARY_PATH", libraries()));
    // The compilers' own libraries are loaded, and never called.
    let preloaded = libraries().join("libgomp.so.1");
    passes(command(&executable, 60).env("LD_PRELOAD", preloaded));
}

#[test]
fn all_names_are_one_file() {
    let real = fs::canonicalize(libraries().join("libgomp.so.1")).expect("the library");
    for name in ["libomp.so.5", "libomp.so", "libiomp5.so"] {
        let other = fs::canonicalize(libraries().join(name)).expect("a name of the library");
        assert_eq!(other, real, "{name}");
    }
}

/// The names that a library exports for LLVM's programs.
fn exported(library: &Path) -> BTreeSet<String> {
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
            let is_llvms = version.trim_start_matches('@') == "VERSION";
            (is_llvms && *place != "UND").then(|| name.to_owned())
        })
        .collect()
}

/// Names of LLVM's library that are not there: what only it calls itself or shows to debuggers, its
/// own functions for a tool that is not there and for its devices (`ompt_`), numbers of 80 bits,
/// and loops that no compiler leaves to it yet.
fn is_left_out(name: &str) -> bool {
    let others = [
        "__kmpc_calc_original_ivs_rectang",
        "__kmpc_for_collapsed_init",
        "__kmpc_process_loop_nest_rectang",
        "__kmpc_invoke_task_func",
        "__kmpc_task_get_depnode",
        "__kmpc_task_get_successors",
        "kmp_diag",
        "kmp_max_mem_alloc",
        "kmp_mutex_impl_info",
    ];
    others.contains(&name)
        || name.ends_with("_debug")
        || ["ompt_", "__kmp_", "___kmp_", "kmp_threadprivate_"]
            .iter()
            .any(|start| name.starts_with(start))
        || name.starts_with("__kmpc_atomic_float10_")
        || name.starts_with("__kmpc_atomic_cmplx10_")
}

#[test]
fn the_library_exports_its_list_which_is_that_of_llvm() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi/kmpc/symbols.txt");
    let list = fs::read_to_string(list).expect("the list is part of the tree");
    let listed: BTreeSet<String> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(' ').next().map(str::to_owned))
        .collect();
    let ours = exported(&libraries().join("libomp.so.5"));
    assert_eq!(ours, listed);
    let found = succeed(command("clang-19", 60).arg("-print-file-name=libomp.so.5"));
    let theirs = exported(Path::new(found.trim()));
    assert!(!theirs.is_empty());
    let missing: Vec<&String> = theirs
        .difference(&ours)
        .filter(|name| !is_left_out(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
