//! MLP: every call from C and Fortran, in real processes; a process that dies at any point;
//! placement in the inherited set of CPUs and on a described machine; beside MPI.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use margay_sys_os::cpu;
use margay_tests::{command, program, run, scratch, stage, succeed};

/// The words that compile and link with the library alone, as pkg-config prints them.
fn flags() -> Vec<String> {
    let flags = succeed(
        command("pkg-config", 60)
            .env("PKG_CONFIG_PATH", stage().join("lib/pkgconfig"))
            .args(["--cflags", "--libs", "mlp"]),
    );
    assert!(!flags.contains("mpi"), "{flags}");
    flags.split_whitespace().map(str::to_owned).collect()
}

/// Compiles a program of `programs/mlp` without a warning and without MPI.
fn compile(folder: &Path, name: &str) -> PathBuf {
    compile_file(folder, name, &program("mlp").join(format!("{name}.c")))
}

fn compile_file(folder: &Path, name: &str, source: &Path) -> PathBuf {
    let executable = folder.join(name);
    succeed(
        command("cc", 120)
            .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g"])
            .args(["-Wall", "-Wextra", "-Werror", "-pthread", "-fopenmp"])
            .arg(source)
            .args(flags())
            .args(["-lm", "-o"])
            .arg(&executable),
    );
    executable
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A command in which OpenMP's threads do not spin: programs have more of them than CPUs here.
fn quiet(executable: &Path) -> Command {
    let mut command = command(executable, 60);
    command.env("OMP_WAIT_POLICY", "passive");
    command
}

/// No process of this executable is left.
fn nothing_is_left(executable: &Path) {
    for pid in margay_sys_os::process::all_processes() {
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        assert!(
            !program.is_ok_and(|program| program == executable),
            "process {pid} is left"
        );
    }
}

#[test]
fn names_in_the_arena() {
    let folder = scratch();
    let executable = compile(folder.path(), "arena");
    for processes in ["1", "2", "5", "40"] {
        assert_eq!(
            succeed(command(&executable, 60).arg(processes)),
            "ok\n",
            "{processes}"
        );
    }
    let output = run(command(&executable, 60).args(["2", "large"]));
    assert_eq!(output.status.code(), Some(1));
    let text = said(&output);
    assert!(
        text.starts_with("mlp_arena: an arena of 1048576.0 TiB is more than the "),
        "{text}"
    );
    nothing_is_left(&executable);
}

#[test]
fn the_arenas_size_comes_from_the_environment() {
    let folder = scratch();
    let executable = compile(folder.path(), "together");
    let with = |size: &str| run(command(&executable, 60).env("MARGAY_MLP_ARENA", size));
    assert_eq!(printed(&with("64K")), "ok\n");
    // Arenas are whole pages.
    assert_eq!(printed(&with("1K")), "ok\n");
    for (size, text) in [
        ("many", "mlp_alloc: MARGAY_MLP_ARENA is 'many'"),
        ("9000T", "mlp_alloc: an arena of 9000.0 TiB is more than"),
        ("0", "mlp_alloc: an arena of 0 bytes is asked for"),
    ] {
        let output = with(size);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).starts_with(text), "{}", said(&output));
    }
}

#[test]
fn barriers_and_locks_also_with_more_processes_than_cpus() {
    let folder = scratch();
    let executable = compile(folder.path(), "together");
    for processes in ["1", "2", "3", "16", "64"] {
        assert_eq!(
            succeed(command(&executable, 60).arg(processes)),
            "ok\n",
            "{processes}"
        );
    }
    let core = cpu::affinity()[0].to_string();
    let one = succeed(command("taskset", 60).args(["-c", &core]).arg(&executable));
    assert_eq!(one, "ok\n");
    nothing_is_left(&executable);
}

#[test]
fn wrong_arguments_of_forkit_are_reported() {
    let folder = scratch();
    let executable = compile(folder.path(), "pinned");
    for (arguments, text) in [
        (
            &[][..],
            "forkit: 0 processes are asked for; a group has 1 to 511, called by process 1",
        ),
        (
            &["1", "0"],
            "forkit: 0 threads are asked for process 2; it has at least one",
        ),
        (
            &["1", "9000"],
            "forkit: 9000 threads are asked for process 2",
        ),
    ] {
        let output = run(command(&executable, 60).args(arguments));
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).starts_with(text), "{}", said(&output));
    }
    let output = run(command(&executable, 60)
        .arg("1")
        .env("MARGAY_MLP_BIND", "loosely"));
    let text = "forkit: MARGAY_MLP_BIND is 'loosely'; it is none, cpu or memory";
    assert!(said(&output).starts_with(text), "{}", said(&output));
}

#[test]
fn the_survivors_of_a_death_go_on() {
    let folder = scratch();
    let executable = compile(folder.path(), "death");
    for phase in [
        "start",
        "computing",
        "barrier",
        "inside barrier",
        "holding",
        "waiting",
        "names",
        "exit code",
        "_exit",
        "in order",
        "crash",
        "guard",
    ] {
        let times = if phase == "names" { 10 } else { 1 };
        for _ in 0..times {
            let output = run(command(&executable, 60).args([phase, "go on"]));
            assert_eq!(printed(&output), "ok\n", "{phase}: {}", said(&output));
            assert_eq!(output.status.code(), Some(0), "{phase}: {}", said(&output));
        }
    }
    // When the first process dies the others go on too, but a command that waits for it does not
    // wait for them; so ask them.
    for phase in ["first", "first exit code"] {
        let output = run(command("sh", 60)
            .args(["-c", "\"$1\" \"$2\" 'go on' | cat", "sh"])
            .arg(&executable)
            .arg(phase));
        assert_eq!(printed(&output), "ok\n", "{phase}: {}", said(&output));
    }
    nothing_is_left(&executable);
}

#[test]
fn a_death_ends_the_group_and_is_reported() {
    let folder = scratch();
    let executable = compile(folder.path(), "death");
    for (phase, how) in [
        ("start", "was killed by SIGKILL (killed)"),
        ("computing", "was killed by SIGKILL (killed)"),
        ("barrier", "was killed by SIGKILL (killed)"),
        (
            "crash",
            "was killed by SIGABRT (abort() or a failed assertion)",
        ),
        ("exit code", "exited with code 3"),
    ] {
        let output = run(command(&executable, 60).arg(phase));
        let text = said(&output);
        assert!(
            text.starts_with("mlp: process 3 of 4 (pid ")
                && text.ends_with(&format!(") {how}; the group is ended\n")),
            "{phase}: {text}"
        );
        // By the signal that ends the group, or because it was exiting already.
        assert_ne!(output.status.code(), Some(0), "{phase}");
    }
    for (phase, how) in [
        ("first", "was killed by SIGKILL (killed)"),
        ("first exit code", "exited with code 3"),
    ] {
        let output = run(command("sh", 60)
            .args(["-c", "\"$1\" \"$2\" 2>&1 | cat", "sh"])
            .arg(&executable)
            .arg(phase));
        let text = printed(&output);
        let wanted = format!(") {how}; the group is ended\n");
        assert!(
            text.starts_with("mlp: process 1 of 4 (pid ") && text.ends_with(&wanted),
            "{phase}: {text}"
        );
    }
    // One that ends in order is no failure, but a barrier without it is.
    let output = run(command(&executable, 60).arg("in order"));
    let text = said(&output);
    assert!(
        text.contains("mlp_barrier: process 3 has ended in order, and a barrier waits for all"),
        "{text}"
    );
    assert_ne!(output.status.code(), Some(0));
    nothing_is_left(&executable);
}

/// The lines of the program `pinned` and its report.
fn pinned(command: &mut Command, threads: &[&str]) -> (Vec<String>, String) {
    let output = succeed(command.args(threads));
    let (lines, report) = output.split_at(output.find("MLP:").expect("a report"));
    (
        lines.lines().map(str::to_owned).collect(),
        report.to_owned(),
    )
}

#[test]
fn threads_are_pinned_in_the_inherited_set() {
    let folder = scratch();
    let executable = compile(folder.path(), "pinned");
    let usable = cpu::affinity();
    let cpu = |n: usize| usable[n % usable.len()];
    let (lines, report) = pinned(&mut quiet(&executable), &["1", "2", "1"]);
    // On a machine with several CPUs a core, the first ones of all cores are counted first.
    if margay_tests::one_cpu_a_core() {
        let wanted = [("1.0", 0), ("2.0", 1), ("2.1", 2), ("3.0", 3)];
        let wanted = wanted.map(|(thread, n)| format!("{thread}: {}", cpu(n)));
        assert_eq!(lines, wanted);
    }
    assert!(
        report.starts_with("MLP: 3 processes, 4 threads; usable CPUs "),
        "{report}"
    );
    assert_eq!(report.matches(" is bound\n").count(), 4, "{report}");
    let shared = format!("more threads than CPUs: 4 threads share {}\n", usable.len());
    assert_eq!(report.contains(&shared), usable.len() < 4, "{report}");
    assert!(report.contains("lines"), "{report}");

    // Spinning threads that share CPUs take a thousand times as long; the user is warned once.
    let threads = (usable.len() + 1).to_string();
    let output = run(command(&executable, 60).args(["1", &threads]));
    let message = format!(
        "forkit: {} threads share {} CPUs, and those of OpenMP spin while they wait; set OMP_WAIT_POLICY=passive",
        usable.len() + 2,
        usable.len()
    );
    assert_eq!(
        said(&output).matches(&message).count(),
        1,
        "{}",
        said(&output)
    );
    let output = run(quiet(&executable).args(["1", &threads]));
    assert_eq!(said(&output), "");

    let last = usable[usable.len() - 1];
    let mut restricted = command("taskset", 60);
    restricted
        .env("OMP_WAIT_POLICY", "passive")
        .args(["-c", &last.to_string()])
        .arg(&executable);
    let (lines, report) = pinned(&mut restricted, &["1", "2"]);
    let wanted = ["1.0", "2.0", "2.1"].map(|thread| format!("{thread}: {last}"));
    assert_eq!(lines, wanted);
    let head = format!("MLP: 2 processes, 3 threads; usable CPUs {last}\n");
    assert!(report.starts_with(&head), "{report}");

    let mut free = quiet(&executable);
    free.env("MARGAY_MLP_BIND", "none");
    let (lines, report) = pinned(&mut free, &["1", "2"]);
    let all: Vec<String> = usable.iter().map(ToString::to_string).collect();
    assert_eq!(lines[2], format!("2.1: {}", all.join(" ")));
    assert!(
        report.contains("nothing is bound (MARGAY_MLP_BIND)"),
        "{report}"
    );
}

/// Runtimes that may be here beside the compiler's: the name, and the variable by which a program
/// built by gcc gets it.
fn other_runtimes() -> Vec<(&'static str, &'static str, PathBuf)> {
    let ours = ("Margay's", "LD_LIBRARY_PATH", stage().join("lib/gomp"));
    let named = std::env::var_os("MARGAY_TEST_LIBOMP").map(PathBuf::from);
    let installed = (11..30)
        .rev()
        .map(|version| PathBuf::from(format!("/usr/lib/llvm-{version}/lib/libomp.so.5")));
    let libomp = named
        .into_iter()
        .chain(installed)
        .find(|path| path.exists());
    if libomp.is_none() {
        println!("no libomp is here (MARGAY_TEST_LIBOMP names one)");
    }
    let libomp = libomp.map(|path| ("LLVM's", "LD_PRELOAD", path));
    std::iter::once(ours).chain(libomp).collect()
}

#[test]
fn every_runtimes_threads_are_pinned() {
    let folder = scratch();
    let executable = compile(folder.path(), "pinned");
    let usable = cpu::affinity();
    let cpu = |n: usize| usable[n % usable.len()];
    for (name, variable, value) in other_runtimes() {
        let with = |threads: &[&str]| pinned(quiet(&executable).env(variable, &value), threads);
        let (lines, report) = with(&["1", "2", "1"]);
        if margay_tests::one_cpu_a_core() {
            let wanted = [("1.0", 0), ("2.0", 1), ("2.1", 2), ("3.0", 3)];
            let wanted = wanted.map(|(thread, n)| format!("{thread}: {}", cpu(n)));
            assert_eq!(lines, wanted, "{name}");
        }
        let is_bound = report.matches(" is bound\n").count();
        let is_moved = report
            .matches(" is bound to it when it runs this member\n")
            .count();
        assert_eq!(is_bound + is_moved, 4, "{name}: {report}");
        if usable.len() > 1 {
            assert_eq!(is_moved, 0, "{name}: {report}");
        }
        // More members than CPUs: each on its own, whichever thread runs it.
        let (lines, report) = with(&["5"]);
        if margay_tests::one_cpu_a_core() {
            let wanted: Vec<String> = (0..5).map(|n| format!("1.{n}: {}", cpu(n))).collect();
            assert_eq!(lines, wanted, "{name}");
        }
        assert!(!report.contains("not bound"), "{name}: {report}");
    }
}

#[test]
fn cpus_change_hands_with_every_runtime() {
    let folder = scratch();
    let executable = compile(folder.path(), "lend");
    for (name, variable, value) in other_runtimes() {
        let output = run(command("sh", 60)
            .env("OMP_WAIT_POLICY", "passive")
            .env(variable, value)
            .args(["-c", "\"$1\" | cat", "sh"])
            .arg(&executable));
        assert_eq!(printed(&output), "ok\n", "{name}: {}", said(&output));
    }
    nothing_is_left(&executable);
}

/// A folder as `/sys`, in which each usable CPU has a node of its own: from the last node down.
fn described_machine(folder: &Path) -> PathBuf {
    let usable = cpu::affinity();
    let nodes = folder.join("sys/devices/system/node");
    let put = |path: PathBuf, text: String| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let last = usable.len() - 1;
    put(nodes.join("online"), format!("0-{}\n", last.max(1)));
    for (n, cpu) in usable.iter().enumerate() {
        let node = last - n;
        put(
            nodes.join(format!("node{node}/cpulist")),
            format!("{cpu}\n"),
        );
        put(nodes.join(format!("node{node}/distance")), "10 20\n".into());
    }
    folder.join("sys")
}

#[test]
fn a_described_machine_decides_the_order_of_cpus() {
    let folder = scratch();
    let executable = compile(folder.path(), "pinned");
    let machine = described_machine(folder.path());
    let usable = cpu::affinity();
    if usable.len() < 2 {
        println!("one CPU: there is no order to check");
        return;
    }
    let mut command = quiet(&executable);
    command.env("MARGAY_TOPOLOGY", &machine);
    let (lines, report) = pinned(&mut command, &["1", "1"]);
    // The first node has the last CPU here.
    let (last, before) = (usable[usable.len() - 1], usable[usable.len() - 2]);
    assert_eq!(lines, [format!("1.0: {last}"), format!("2.0: {before}")]);
    let head = format!("memory: nodes 0-{}, that of each thread", usable.len() - 1);
    assert!(report.contains(&head), "{report}");
    // Where the real machine does not have the nodes, binding memory to them is refused, and the
    // report does not hide it.
    let real = std::fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
    if real.trim() == "0" {
        assert!(
            report.contains("      2 its memory is not bound: Invalid argument"),
            "{report}"
        );
    }
    assert!(report.contains("node 0: "), "{report}");
    command = quiet(&executable);
    command
        .env("MARGAY_TOPOLOGY", &machine)
        .env("MARGAY_MLP_BIND", "cpu");
    let (_, report) = pinned(&mut command, &["1", "1"]);
    assert!(report.contains("not bound (MARGAY_MLP_BIND)"), "{report}");
    assert!(!report.contains("its memory is not bound"), "{report}");
}

#[test]
fn cpus_change_hands() {
    let folder = scratch();
    let executable = compile(folder.path(), "lend");
    let output = run(command("sh", 60)
        .env("OMP_WAIT_POLICY", "passive")
        .args(["-c", "\"$1\" | cat", "sh"])
        .arg(&executable));
    assert_eq!(printed(&output), "ok\n", "{}", said(&output));
    nothing_is_left(&executable);
}

#[test]
fn ranks_of_mpi_have_groups_of_their_own() {
    let folder = scratch();
    let executable = folder.path().join("mixed");
    succeed(
        command(stage().join("bin/mpicc"), 120)
            .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g"])
            .args(["-Wall", "-Wextra", "-Werror"])
            .arg(program("mlp").join("mixed.c"))
            .args(["-lmlp", "-o"])
            .arg(&executable),
    );
    let mpiexec = |ranks: &str| {
        let mut command = command(stage().join("bin/mpiexec"), 60);
        command.args(["-n", ranks]).arg(&executable);
        command
    };
    for ranks in ["1", "2", "4"] {
        assert_eq!(succeed(&mut mpiexec(ranks)), "ok\n", "{ranks}");
    }
    let output = run(mpiexec("2").arg("die"));
    let text = said(&output);
    assert!(
        text.contains("mlp: process 2 of 3 (pid ")
            && text.contains(
                "was killed by SIGABRT (abort() or a failed assertion); the group is ended"
            ),
        "{text}"
    );
    assert_ne!(output.status.code(), Some(0));
    nothing_is_left(&executable);
}

#[test]
fn processes_that_cannot_be_made_are_reported_and_none_is_left() {
    let folder = scratch();
    let executable = compile(folder.path(), "together");
    // The limit is of a user's processes, and does not hold for root.
    let output = run(command("sh", 60)
        .args(["-c", "ulimit -n 20; exec \"$1\" 64", "sh"])
        .arg(&executable));
    assert_eq!(output.status.code(), Some(1));
    let text = "forkit: the system makes no 64 processes: Too many open files";
    assert!(said(&output).starts_with(text), "{}", said(&output));
    nothing_is_left(&executable);
}

#[test]
fn a_process_with_threads_is_not_copied() {
    let folder = scratch();
    let source = folder.path().join("threads.c");
    std::fs::write(
        &source,
        "#include <mlp.h>\n#include <pthread.h>\n#include <unistd.h>\n\
         static void *wait_(void *p) { pause(); return p; }\n\
         int main(void) { int n[2] = {1, 1}, now; pthread_t t; pthread_create(&t, 0, wait_, 0); return forkit(n, 2, &now); }\n",
    )
    .unwrap();
    let executable = compile_file(folder.path(), "threads", &source);
    let output = run(&mut command(&executable, 60));
    assert_eq!(output.status.code(), Some(1));
    let text = "forkit: the process cannot be copied; forkit comes before the first parallel region and before threads are \
                made: the process has several threads";
    assert!(said(&output).starts_with(text), "{}", said(&output));
}

#[test]
fn fortran() {
    let folder = scratch();
    let executable = folder.path().join("classic");
    succeed(
        command("gfortran", 120)
            .args(["-g", "-O2", "-Wall", "-Werror", "-fcray-pointer"])
            .arg(program("mlp").join("classic.f"))
            .args(flags())
            .arg("-o")
            .arg(&executable),
    );
    let output = succeed(&mut command(&executable, 60));
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["before the fork, once", "ok 1", "ok 2", "ok 3"]);
}

#[test]
fn the_examples_agree() {
    let folder = scratch();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let c = compile_file(folder.path(), "zones", &examples.join("zones.c"));
    let fortran = folder.path().join("zones_f");
    succeed(
        command("gfortran", 120)
            .args(["-O2", "-Wall", "-Werror", "-fopenmp"])
            .arg(examples.join("zones.f90"))
            .args(flags())
            .arg("-o")
            .arg(&fortran),
    );
    let wanted = "2 zones, 500 steps: mean 9.024328836737\n";
    assert_eq!(succeed(&mut quiet(&c)), wanted);
    assert_eq!(succeed(quiet(&c).args(["2", "3"])), wanted);
    assert_eq!(succeed(&mut quiet(&fortran)), wanted);
    assert!(succeed(quiet(&c).args(["8", "2", "100"])).starts_with("8 zones, 100 steps: mean "));
}

#[test]
fn the_header_compiles_without_a_warning() {
    let folder = scratch();
    let source = folder.path().join("header.c");
    std::fs::write(
        &source,
        "#include <mlp.h>\nint main(void) { return mlp_process() - 1; }\n",
    )
    .unwrap();
    for (compiler, language, standard) in [
        ("cc", "c", "c99"),
        ("cc", "c", "c11"),
        ("c++", "c++", "c++17"),
    ] {
        let executable = folder.path().join(standard);
        succeed(
            command(compiler, 120)
                .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-x", language])
                .arg(format!("-std={standard}"))
                .arg(&source)
                .args(["-x", "none"])
                .args(flags())
                .arg("-o")
                .arg(&executable),
        );
        succeed(&mut command(&executable, 60));
    }
}
