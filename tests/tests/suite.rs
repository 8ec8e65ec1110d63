//! The performance suite: its programs verify themselves on small sizes, through the real launcher,
//! and `margay bench` runs them from the installed tree.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use margay_tests::{command, run, scratch, stage, succeed};

/// One of the suite's programs, compiled once for all tests.
fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = scratch();
        let compilers: Vec<_> = [
            "livermore",
            "comtest",
            "stream",
            "ladder",
            "evm",
            "matmul",
            "linpack",
            "getrf",
            "files",
        ]
        .into_iter()
        .map(|name| {
            let mut compiler = command(stage().join("bin/mpicc"), 120);
            compiler
                .args([
                    "-std=gnu11",
                    "-O2",
                    "-march=native",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                ])
                .arg(stage().join(format!("share/margay/bench/{name}.c")))
                .arg("-o")
                .arg(folder.path().join(name))
                .args(["-lm", "-ldl"]);
            compiler.spawn().expect("mpicc starts")
        })
        .collect();
        for mut compiler in compilers {
            assert!(compiler.wait().expect("mpicc is a child").success());
        }
        folder
    });
    folder.path().join(name)
}

fn launch(name: &str, ranks: u32, arguments: &str) -> Command {
    let mut launcher = command(stage().join("bin/mpiexec"), 60);
    launcher
        .args(["-n", &ranks.to_string()])
        .arg(program(name))
        .args(arguments.split_whitespace());
    launcher
}

/// Runs a program that must pass all its checks, and gives the words of its lines.
fn verified(name: &str, ranks: u32, arguments: &str) -> Vec<Vec<String>> {
    let text = succeed(&mut launch(name, ranks, arguments));
    let lines: Vec<Vec<String>> = text
        .lines()
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect();
    assert!(count(&lines, "check") > 0, "{text}");
    for line in &lines {
        if line[0] == "check" {
            assert_eq!(
                line[2], "passed",
                "{name} on {ranks} ranks, {arguments}: {line:?}"
            );
        }
    }
    lines
}

fn count(lines: &[Vec<String>], kind: &str) -> usize {
    lines.iter().filter(|line| line[0] == kind).count()
}

fn figure(lines: &[Vec<String>], name: &str) -> f64 {
    let line = lines
        .iter()
        .find(|line| line[0] == "figure" && line[1] == name);
    line.unwrap_or_else(|| panic!("no figure {name}: {lines:?}"))[3]
        .parse()
        .expect("a number")
}

#[test]
fn livermore_loops_agree_with_their_plain_evaluation() {
    let lines = verified("livermore", 1, "-ms 2");
    assert_eq!(count(&lines, "check"), 24);
    let [harmonic, geometric, arithmetic] =
        ["harmonic-mean", "geometric-mean", "arithmetic-mean"].map(|name| figure(&lines, name));
    assert!(harmonic <= geometric && geometric <= arithmetic);
    assert!(figure(&lines, "minimum") <= harmonic && arithmetic <= figure(&lines, "maximum"));
}

#[test]
fn comtest_delivers_contents_between_all_pairs() {
    for ranks in [2, 5] {
        let lines = verified("comtest", ranks, "-bytes 65536 -batch-us 100");
        let half = figure(&lines, "n-half");
        assert!((0.0..=65536.0).contains(&half), "{half}");
        assert!(figure(&lines, "latency") > 0.0 && figure(&lines, "bandwidth") > 0.0);
    }
}

#[test]
fn kernels_of_memory_give_right_results() {
    for ranks in [1, 3] {
        assert_eq!(
            count(
                &verified("stream", ranks, "-bytes 1000000 -rounds 3"),
                "check"
            ),
            3
        );
        assert!(count(&verified("evm", ranks, "-bytes 1000000 -rounds 2"), "check") >= 2);
        let ladder = verified("ladder", ranks, "-ms 5 -memory 100000000");
        assert!(figure(&ladder, "level-1") > 0.0 && figure(&ladder, "memory") > 0.0);
    }
}

#[test]
fn matrices_are_multiplied_exactly_on_grids_of_any_size() {
    for ranks in [1, 2, 3, 4, 6] {
        let lines = verified("matmul", ranks, "-N 1,7,64,150 -NB 16 -ms 1");
        assert_eq!(count(&lines, "check"), 8);
    }
}

/// Residuals, and the generator against its stream, on grids of every kind: one, prime, wide, tall;
/// with more processes than blocks, blocks of one element and one block for all.
#[test]
fn linpack_solves_every_shape() {
    for (rows, columns) in [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
        (1, 3),
        (3, 1),
        (3, 2),
        (2, 3),
        (1, 5),
        (5, 1),
    ] {
        let arguments = format!(
            "-P {rows} -Q {columns} -gemm 0 -N 1,2,3,5,17,64,97,130,257 -NB 1,2,7,8,13,32,64,300"
        );
        let lines = verified("linpack", rows * columns, &arguments);
        assert_eq!(count(&lines, "check"), 9 * 8 * 5, "{rows} by {columns}");
    }
}

#[test]
fn linpack_leaves_ranks_beyond_its_grid_idle_and_reports_what_it_found() {
    let lines = verified(
        "linpack",
        3,
        "-P 1 -Q 2 -N 200,700 -NB 64 -gemm 200 -half -norms -repeat 2",
    );
    assert!(figure(&lines, "rmax") > 0.0 && figure(&lines, "dgemm-part") > 0.0);
    let half = figure(&lines, "n-half");
    assert!((100.0..=700.0).contains(&half), "{half}");
    assert!(lines.iter().any(|line| line.join(" ").contains("|A|oo")));
    // Chunks of columns that do not end with the blocks, and panels wider than these.
    verified("linpack", 2, "-P 2 -Q 1 -N 1300 -NB 96,600 -gemm 0");
    verified("getrf", 1, "-N 500 -threads 2");
}

#[test]
fn the_same_matrix_gives_the_same_norms_on_every_grid() {
    let norms = |ranks, grid: &str| {
        let lines = verified(
            "linpack",
            ranks,
            &format!("{grid} -N 150 -NB 20 -gemm 0 -norms"),
        );
        let line = lines
            .iter()
            .map(|line| line.join(" "))
            .find(|line| line.contains("|A|oo"));
        line.expect("a line of norms")
    };
    let one = norms(1, "-P 1 -Q 1");
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for (ranks, grid) in [(6, "-P 2 -Q 3"), (4, "-P 4 -Q 1")] {
        let other = norms(ranks, grid);
        for (a, b) in words(&one).iter().zip(words(&other)) {
            if let (Ok(a), Ok(b)) = (a.parse::<f64>(), b.parse::<f64>()) {
                assert!((a - b).abs() <= 1e-6 * a.abs(), "{one}\n{other}");
            } else {
                assert_eq!(*a, b);
            }
        }
    }
}

#[test]
fn wrong_options_of_programs_are_named() {
    for (name, arguments, message) in [
        (
            "linpack",
            "-NB 0",
            "linpack: -NB: '0' is not a number from 1 to 4096; -help lists the options",
        ),
        (
            "linpack",
            "-N 100,x",
            "-N: '100,x' is not a number from 1 to",
        ),
        (
            "linpack",
            "-P 2 -Q 2",
            "a grid of 2 by 2 needs more than 2 ranks",
        ),
        ("stream", "-rounds", "stream: -rounds: needs a value"),
        ("comtest", "-byte 8", "comtest: unknown option '-byte'"),
    ] {
        let output = run(&mut launch(name, 2, arguments));
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(message), "{errors}");
    }
    let help = succeed(&mut launch("linpack", 1, "-help"));
    for option in ["-N ", "-NB ", "-P ", "-Q "] {
        assert!(help.contains(option), "{help}");
    }
    let output = run(launch("linpack", 1, "-N 10").env("MARGAY_BLAS", "libnothing.so"));
    assert!(
        text(&output.stderr).contains("MARGAY_BLAS: libnothing.so"),
        "{output:?}"
    );
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn bench(folder: &Path, arguments: &str) -> Output {
    let mut margay = command(stage().join("bin/margay"), 120);
    margay
        .arg("bench")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder.join("cache"));
    run(&mut margay)
}

#[test]
fn the_command_compiles_runs_reports_and_compares() {
    let folder = scratch();
    let output = bench(
        folder.path(),
        "--quick --only comtest,livermore --output first",
    );
    let message = text(&output.stdout);
    assert!(output.status.success(), "{message}{}", text(&output.stderr));
    for part in [
        "latency",
        "n-half",
        "arithmetic-mean",
        "verifications passed",
        "written: first/",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("failed:"), "{message}");
    let file = |kind: &str| {
        let files = std::fs::read_dir(folder.path().join("first")).expect("the report's folder");
        let mut paths = files.map(|entry| entry.expect("an entry").path());
        let path = paths.find(|path| path.extension().is_some_and(|e| e == kind));
        path.unwrap_or_else(|| panic!("no {kind} file"))
    };
    assert!(
        std::fs::read_to_string(file("svg"))
            .expect("the picture")
            .contains("Livermore loops")
    );
    assert!(
        std::fs::read_to_string(file("md"))
            .expect("the page")
            .contains("kernel-24")
    );

    // Against figures that no machine has, all is slower; and JSON on standard output is only that.
    let mut old: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file("json")).expect("the figures"))
            .expect("JSON");
    for run in old["runs"].as_array_mut().expect("runs") {
        for figure in run["figures"].as_array_mut().expect("figures") {
            if figure["unit"] == "MFLOPS" {
                figure["value"] = (figure["value"].as_f64().expect("a number") * 1e6).into();
            }
        }
    }
    std::fs::write(folder.path().join("old.json"), old.to_string()).expect("a file");
    let output = bench(
        folder.path(),
        "--quick --only livermore --json --compare old.json",
    );
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("only JSON");
    assert_eq!(json["runs"][0]["program"], "livermore");
    let errors = text(&output.stderr);
    assert!(
        errors.contains("slower by") && errors.contains("livermore kernel-24"),
        "{errors}"
    );
}

const THREAD_KERNELS: [&str; 8] = [
    "fork",
    "fib",
    "loops",
    "mandelbrot",
    "cholesky",
    "sparselu",
    "uts",
    "scanlines",
];

/// Those that OpenMP alone has.
const OPENMP_KERNELS: [&str; 10] = [
    "timesteps",
    "imbalance",
    "barriers",
    "dependences",
    "taskloop",
    "levels",
    "histogram",
    "blas",
    "nested",
    "particles",
];

/// Compiles kernels of threads for one interface into `folder`.
fn thread_programs(folder: &Path, compiler: &str, interface: &str, names: &[&str], flags: &[&str]) {
    let sources = stage().join("share/margay/bench/threads");
    let kind = if compiler == "g++" { "cpp" } else { "c" };
    let compilers: Vec<_> = names
        .iter()
        .map(|name| {
            let mut command = command(compiler, 120);
            command
                .args(["-O2", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"])
                .arg(sources.join(format!("{interface}/{name}.{kind}")))
                .arg("-o")
                .arg(folder.join(name))
                .args(flags)
                .args(["-lm", "-ldl"]);
            command.spawn().expect("the compiler starts")
        })
        .collect();
    for mut compiler in compilers {
        assert!(compiler.wait().expect("a child").success(), "{interface}");
    }
}

/// Runs each of them with teams of some sizes: all rounds are right, and no median is longer than
/// the longest round.
fn thread_programs_are_right(folder: &Path, names: &[&str]) {
    for name in names {
        for threads in ["1", "2", "5"] {
            let mut program = command(folder.join(name), 60);
            program
                .args(["-threads", threads, "-ms", "1"])
                .env("OMP_MAX_ACTIVE_LEVELS", "2")
                // On a busy machine members of gcc's library would spin for time slices in each
                // barrier.
                .env("OMP_WAIT_POLICY", "passive");
            let output = run(&mut program);
            let message = text(&output.stdout);
            assert!(
                output.status.success(),
                "{name}, {threads} threads: {message}"
            );
            let lines: Vec<Vec<String>> = message
                .lines()
                .map(|line| line.split_whitespace().map(str::to_owned).collect())
                .collect();
            let medians: Vec<&Vec<String>> = lines
                .iter()
                .filter(|line| line[0] == "figure" && !line[1].contains('.'))
                .collect();
            assert!(!medians.is_empty() && count(&lines, "check") >= medians.len());
            for median in medians {
                let longest = figure(&lines, &format!("{}.max", median[1]));
                assert!(figure(&lines, &median[1]) <= longest, "{message}");
                assert!(figure(&lines, &format!("{}.cpu-wall", median[1])) >= 0.0);
            }
        }
    }
}

#[test]
fn kernels_of_threads_are_right_by_openmp() {
    let folder = scratch();
    let names = [&THREAD_KERNELS[..], &OPENMP_KERNELS[..]].concat();
    thread_programs(folder.path(), "gcc", "openmp", &names, &["-fopenmp"]);
    thread_programs_are_right(folder.path(), &names);

    // What is not nested is not reported as if it were.
    let mut program = command(folder.path().join("fork"), 60);
    program
        .args(["-threads", "2", "-ms", "1"])
        .env("OMP_MAX_ACTIVE_LEVELS", "1");
    let output = run(&mut program);
    let message = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("check members-nested failed"), "{message}");
    assert!(
        message.contains("figure flat ") && !message.contains("figure nested"),
        "{message}"
    );
}

#[test]
fn kernels_of_threads_are_right_by_tbb() {
    let folder = scratch();
    let flags = ["-std=c++17", "-ltbb"];
    thread_programs(folder.path(), "g++", "tbb", &THREAD_KERNELS, &flags);
    thread_programs_are_right(folder.path(), &THREAD_KERNELS);
}

#[test]
fn kernels_of_threads_are_right_by_iml() {
    let folder = scratch();
    let flag = |start: &str, place: &str| format!("{start}{}", stage().join(place).display());
    let (include, library, path) = (
        flag("-I", "include"),
        flag("-L", "lib"),
        flag("-Wl,-rpath,", "lib"),
    );
    let flags = ["-std=gnu11", &include, &library, &path, "-liml"];
    thread_programs(folder.path(), "gcc", "iml", &THREAD_KERNELS, &flags);
    thread_programs_are_right(folder.path(), &THREAD_KERNELS);
}

#[test]
fn the_command_measures_threading_runtimes_with_background_load() {
    let folder = scratch();
    let output = bench(
        folder.path(),
        "threads --quick --only fib,uts --with iml,libgomp,sequential --threads 1,2 --output first",
    );
    let message = text(&output.stdout);
    assert!(output.status.success(), "{message}{}", text(&output.stderr));
    for part in [
        "Median of the rounds",
        "Longest round",
        "2 contended",
        "iml/ideal",
        "sequential",
        "written: first/",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let saved = std::fs::read_dir(folder.path().join("first")).expect("the report's folder");
    let saved: Vec<PathBuf> = saved.map(|entry| entry.expect("an entry").path()).collect();
    let file = |kind: &str| {
        let path = saved
            .iter()
            .find(|path| path.extension().is_some_and(|e| e == kind));
        let path = path.unwrap_or_else(|| panic!("no {kind} file"));
        std::fs::read_to_string(path).expect("a file")
    };
    assert!(file("svg").contains("uts node"));
    assert!(file("md").starts_with("# Threading runtimes"));
    let json: serde_json::Value = serde_json::from_str(&file("json")).expect("JSON");
    let runs = json["runs"].as_array().expect("runs");
    let contended = |run: &&serde_json::Value| run["contended"] == true;
    assert_eq!(
        runs.iter().filter(contended).count(),
        4,
        "each kernel with the larger team: {runs:?}"
    );
    assert!(
        runs.iter()
            .all(|run| run["implementation"] != "sequential" || run["threads"] == 1)
    );

    let output = bench(
        folder.path(),
        "threads kernels --only barriers --with margay,libgomp-passive,sequential --threads 1,2 --busy 0,1 --repetitions 2 \
         --output second",
    );
    let message = text(&output.stdout);
    assert!(output.status.success(), "{message}{}", text(&output.stderr));
    for part in ["2, 1 busy", "margay/best", "written: second/"] {
        assert!(message.contains(part), "{part}: {message}");
    }

    let output = bench(folder.path(), "threads --only barriers");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("no kernel of this chapter"), "{errors}");

    let output = bench(folder.path(), "threads --with nothing");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("nothing") && errors.lines().count() == 1,
        "{errors}"
    );
}

#[test]
fn wrong_options_of_the_command_are_named() {
    let folder = scratch();
    for (arguments, status, message) in [
        ("--only tetris", 2, "tetris"),
        ("--ranks 0", 2, "--ranks"),
        ("--compare nothing.json", 1, "nothing.json: cannot be read"),
        (
            "--with-mpi nowhere",
            1,
            "--with-mpi: nowhere cannot be read",
        ),
        (
            "--with-mpi .",
            1,
            "has no bin/mpicc; name the folder above an MPI's bin",
        ),
    ] {
        let output = bench(folder.path(), arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{errors}");
        assert!(
            errors.contains(message) && errors.lines().count() == 1,
            "{errors}"
        );
    }
}

/// Every mode of NX and every way of MPI-IO, with records of any length; the files are gone then.
#[test]
fn files_are_written_and_read_in_all_modes() {
    let folder = scratch();
    let nx = files_by_nx(folder.path());
    let place = folder.path().join("place");
    std::fs::create_dir(&place).expect("a folder");
    for ranks in ["1", "3"] {
        for program in [&nx, &program("files")] {
            let mut launcher = command(stage().join("bin/mpiexec"), 60);
            launcher
                .args(["-n", ranks])
                .arg(program)
                .args(["-modes", "0,1,2,3,4,5", "-records", "1001,65536,3000000"])
                .args(["-ms", "1", "-rounds", "2"])
                .current_dir(&place);
            let text = succeed(&mut launcher);
            assert_eq!(text.matches("figure ").count(), 36, "{text}");
            assert_eq!(text.matches(" passed 0 0").count(), 12, "{text}");
        }
    }
    let left: Vec<_> = std::fs::read_dir(&place).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

fn files_by_nx(folder: &Path) -> PathBuf {
    let executable = folder.join("files-nx");
    let mut compiler = command(stage().join("bin/mpicc"), 120);
    compiler
        .args([
            "-std=gnu11",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-DFILES_NX",
        ])
        .arg(stage().join("share/margay/bench/files.c"))
        .arg("-o")
        .arg(&executable)
        .args(["-lnx", "-lm"]);
    succeed(&mut compiler);
    executable
}

/// A byte that a file system loses is found, and what was wrong has no figure.
#[test]
fn wrong_contents_of_files_are_found() {
    let folder = scratch();
    let nx = files_by_nx(folder.path());
    let (source, library) = (folder.path().join("lose.c"), folder.path().join("lose.so"));
    let text = r#"
        #include <dlfcn.h>
        #include <string.h>
        #include <unistd.h>
        ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at) {
            static char copy[1 << 20];
            memcpy(copy, from, bytes);
            if (at == 65536 * 5) copy[777] ^= 1;
            return ((ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite"))(fd, copy, bytes, at);
        }"#;
    std::fs::write(&source, text).expect("a file");
    succeed(
        command("gcc", 60)
            .args(["-D_GNU_SOURCE", "-shared", "-fPIC", "-o"])
            .args([&library, &source]),
    );
    let mut launcher = command(stage().join("bin/mpiexec"), 60);
    launcher
        .args([
            "-n",
            "2",
            "env",
            &format!("LD_PRELOAD={}", library.display()),
        ])
        .arg(nx)
        .args(["-modes", "3", "-rounds", "1"])
        .current_dir(folder.path());
    let output = run(&mut launcher);
    let message = text_of(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for part in [
        "note M_RECORD-write-65536-1: 8 bytes are wrong",
        "check contents-M_RECORD-write failed 8 0",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains("figure M_RECORD-write"), "{message}");
}

fn text_of(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn the_command_evaluates_files() {
    let folder = scratch();
    let place = folder.path().join("place");
    std::fs::create_dir(&place).expect("a folder");
    let output = bench(
        folder.path(),
        "files place --quick --nodes 1,3 --records 8000,65536 --sizes 1 --modes M_LOG,M_RECORD,M_GLOBAL,collective \
         --output first",
    );
    let message = text_of(&output);
    assert!(output.status.success(), "{message}");
    for part in [
        "NX: 16 combinations",
        "MPI-IO: 8 combinations",
        "predicted best, place",
        "16 of 16 verifications passed",
        "-files-place-quick.svg",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let left: Vec<_> = std::fs::read_dir(&place).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
    for entry in std::fs::read_dir(folder.path().join("first")).expect("the report's folder") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a file");
        match path.extension().and_then(|kind| kind.to_str()) {
            Some("json") => assert!(text.contains("M_GLOBAL-read-8000-1")),
            Some("svg") => assert!(text.contains("MPI-IO: mode in the buckets")),
            _ => assert!(text.starts_with("# Files of place, ")),
        }
    }
    for (arguments, status, part) in [
        ("files nowhere", 1, "nowhere: cannot be used"),
        ("files first/none", 1, "first/none: cannot be used"),
        (
            "files /proc/self",
            1,
            "/proc/self: no file can be made here",
        ),
        ("files place --modes M_FAST", 2, "M_FAST"),
        ("files place --records 1", 2, "--records"),
        ("files", 2, "DIRECTORY"),
    ] {
        let output = bench(folder.path(), arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{errors}");
        assert!(
            errors.contains(part) && errors.lines().count() == 1,
            "{errors}"
        );
    }
}
