//! Compiler wrappers, pkg-config and CMake, as projects use them; also from a tree that was moved.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use margay_tests::{command, program, run, scratch, stage, succeed};

const SUM: &str = "sum of ranks 3\n";

fn runs(prefix: &Path, executable: &Path) {
    let output = succeed(
        command(prefix.join("bin/mpiexec"), 60)
            .args(["-n", "3"])
            .arg(executable),
    );
    assert_eq!(output, SUM);
}

fn wrapper(prefix: &Path, name: &str) -> Command {
    command(prefix.join("bin").join(name), 60)
}

/// A copy of the stage tree at a path with a blank.
fn moved_tree(folder: &Path) -> PathBuf {
    let moved = folder.join("moved tree");
    succeed(command("cp", 60).arg("-a").arg(stage()).arg(&moved));
    moved
}

#[test]
fn every_name_compiles_and_links_a_program_that_runs() {
    let folder = scratch();
    for (name, source) in [
        ("mpicc", "hello.c"),
        ("mpicxx", "hello.cc"),
        ("mpic++", "hello.cc"),
    ] {
        let executable = folder.path().join(name);
        succeed(
            wrapper(&stage(), name)
                .arg(program("project").join(source))
                .arg("-o")
                .arg(&executable),
        );
        runs(&stage(), &executable);
    }
}

#[test]
fn a_moved_tree_works_where_it_stands() {
    let folder = scratch();
    let moved = moved_tree(folder.path());
    let executable = folder.path().join("hello");
    succeed(
        wrapper(&moved, "mpicc")
            .arg(program("project/hello.c"))
            .arg("-o")
            .arg(&executable),
    );
    runs(&moved, &executable);
    let needed = succeed(command("ldd", 60).arg(&executable));
    assert!(
        needed.contains("moved tree/lib/libmpi_abi.so.1"),
        "{needed}"
    );
}

#[test]
fn a_link_to_a_wrapper_from_elsewhere_finds_the_tree() {
    let folder = scratch();
    let link = folder.path().join("my-mpicxx");
    std::os::unix::fs::symlink(stage().join("bin/mpicxx"), &link).unwrap();
    let shown = succeed(command(&link, 60).args(["-show", "a.cc"]));
    assert!(shown.starts_with("c++ a.cc "), "{shown}");
    assert!(
        shown.contains(stage().join("include").to_str().unwrap()),
        "{shown}"
    );
}

#[test]
fn what_show_prints_runs_as_a_shell_command() {
    let folder = scratch();
    let moved = moved_tree(folder.path());
    let source = folder.path().join("it's a $HOME \"program\".c");
    std::fs::copy(program("project/hello.c"), &source).unwrap();
    let executable = folder.path().join("hello");
    let shown = succeed(
        wrapper(&moved, "mpicc")
            .args(["-show", "-DQUOTED=\"a b\\\"c\""])
            .arg(&source)
            .arg("-o")
            .arg(&executable),
    );
    succeed(command("sh", 60).args(["-c", &shown]));
    runs(&moved, &executable);
}

#[test]
fn only_linking_gets_the_library() {
    let shown =
        |arguments: &[&str]| succeed(wrapper(&stage(), "mpicc").arg("-show").args(arguments));
    for arguments in [["-c", "a.c"], ["-E", "a.c"], ["-S", "a.c"], ["-M", "a.c"]] {
        assert!(!shown(&arguments).contains("-lmpi_abi"), "{arguments:?}");
    }
    for arguments in [
        vec!["a.c"],
        vec!["a.o", "-o", "a"],
        vec!["-shared", "a.o"],
        vec![],
    ] {
        assert!(shown(&arguments).contains("-lmpi_abi"), "{arguments:?}");
    }
    assert!(!shown(&["-norpath", "a.o"]).contains("rpath"));
    let version = succeed(wrapper(&stage(), "mpicc").arg("--version"));
    assert!(!version.is_empty());
}

#[test]
fn flags_are_shown_in_the_words_of_the_peers() {
    let ask = |name: &str, question: &str| {
        succeed(wrapper(&stage(), name).arg(question))
            .trim()
            .to_owned()
    };
    let (include, lib) = (stage().join("include"), stage().join("lib"));
    assert_eq!(
        ask("mpicc", "-showme:compile"),
        format!("-I{}", include.display())
    );
    assert_eq!(ask("mpicc", "--showme:incdirs"), include.to_str().unwrap());
    assert_eq!(ask("mpicxx", "-showme:libdirs"), lib.to_str().unwrap());
    assert!(ask("mpicc", "-showme:link").ends_with("-lmpi_abi"));
    assert_eq!(
        ask("mpicc", "-compile-info"),
        format!("cc -I{}", include.display())
    );
    assert!(ask("mpicxx", "-link_info").starts_with("c++ -I"));
}

#[test]
fn any_compiler_can_be_chosen() {
    let shown = |command: &mut Command| succeed(command.args(["-show", "a.c"]));
    assert!(shown(wrapper(&stage(), "mpicc").arg("-cc=my-cc")).starts_with("my-cc a.c "));
    assert!(
        shown(wrapper(&stage(), "mpicc").env("MPICC_CC", "ccache gcc"))
            .starts_with("ccache gcc a.c ")
    );
    assert!(
        shown(wrapper(&stage(), "mpicxx").env("MPICXX_CXX", "g++-99")).starts_with("g++-99 a.c ")
    );
    assert!(
        shown(
            wrapper(&stage(), "mpicxx")
                .env("MPICXX_CXX", "a")
                .arg("-cxx=b")
        )
        .starts_with("b a.c ")
    );
}

#[test]
fn a_missing_compiler_is_reported_with_the_remedy() {
    let output = run(wrapper(&stage(), "mpicc").args(["-cc=no-such-compiler", "a.c"]));
    assert_eq!(output.status.code(), Some(127));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("'no-such-compiler' was not found") && errors.contains("MPICC_CC"),
        "{errors}"
    );
    assert_eq!(
        run(wrapper(&stage(), "mpicc").arg("-showme:nothing"))
            .status
            .code(),
        Some(2)
    );
}

/// Flang would print tens of thousands of errors about the bytes of a module of gfortran.
#[test]
fn modules_of_another_compiler_are_refused_before_it_reads_them() {
    let output = run(wrapper(&stage(), "mpifort")
        .args(["-fc=flang-that-is-not-there", "-c"])
        .arg(program("fortran/modern.f90")));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    for part in ["are gfortran's", "margay fortran --fc='flang-that"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn pkg_config_builds_a_program_that_runs() {
    let folder = scratch();
    for package in ["mpi", "mpi-c", "margay-mpi"] {
        let flags = succeed(
            command("pkg-config", 60)
                .args(["--cflags", "--libs", package])
                .env("PKG_CONFIG_PATH", stage().join("lib/pkgconfig")),
        );
        let executable = folder.path().join(package);
        let source = program("project/hello.c");
        let mut cc = command("cc", 60);
        succeed(
            cc.arg(source)
                .arg("-o")
                .arg(&executable)
                .args(flags.split_whitespace()),
        );
        runs(&stage(), &executable);
    }
}

/// Configures, builds and tests the project in `tests/programs/project` with CMake.
fn cmake_project(build: &Path, configure: impl FnOnce(&mut Command)) -> String {
    let mut cmake = command("cmake", 120);
    cmake.arg("-S").arg(program("project")).arg("-B").arg(build);
    configure(&mut cmake);
    let report = succeed(&mut cmake);
    succeed(command("cmake", 120).arg("--build").arg(build));
    let tested = succeed(command("ctest", 120).arg("--test-dir").arg(build));
    assert!(
        tested.contains("100% tests passed, 0 tests failed out of 2"),
        "{tested}"
    );
    report
}

fn path_with(folder: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&path)))
        .unwrap()
}

#[test]
fn cmake_finds_mpi_by_the_path() {
    let folder = scratch();
    let report = cmake_project(folder.path(), |cmake| {
        cmake.env("PATH", path_with(&stage().join("bin")));
    });
    assert!(
        report.contains(stage().join("lib/libmpi_abi.so").to_str().unwrap()),
        "{report}"
    );
}

#[test]
fn cmake_finds_mpi_by_mpi_home_in_a_moved_tree() {
    let folder = scratch();
    let moved = moved_tree(folder.path());
    let report = cmake_project(&folder.path().join("build"), |cmake| {
        cmake.env("MPI_HOME", &moved);
    });
    assert!(report.contains("moved tree/lib/libmpi_abi.so"), "{report}");
}

#[test]
fn cmake_finds_mpi_by_its_own_package_file() {
    let folder = scratch();
    cmake_project(folder.path(), |cmake| {
        cmake.arg("-DCMAKE_FIND_PACKAGE_PREFER_CONFIG=ON");
        cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", stage().display()));
    });
    let cache = std::fs::read_to_string(folder.path().join("CMakeCache.txt")).unwrap();
    let found = stage().join("lib/cmake/MPI");
    assert!(
        cache.contains(&format!("MPI_DIR:PATH={}", found.display())),
        "{cache}"
    );
}
