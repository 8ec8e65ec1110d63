//! Fortran: `mpif.h`, `use mpi` and `use mpi_f08` through the wrappers and the launcher, together
//! with C, under tools, with CMake and pkg-config, and modules for a compiler of the user's choice.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use margay_tests::{command, program, run, scratch, stage, succeed};

fn wrapper(name: &str) -> Command {
    command(stage().join("bin").join(name), 120)
}

/// Compiles sources of `programs/fortran` with a wrapper to the program `name`.
fn compiled(folder: &Path, wrapper_name: &str, sources: &[&str], name: &str) -> PathBuf {
    let executable = folder.join(name);
    let mut mpifort = wrapper(wrapper_name);
    mpifort.current_dir(folder).args(["-g", "-O2", "-w"]);
    for source in sources {
        mpifort.arg(program("fortran").join(source));
    }
    succeed(mpifort.arg("-o").arg(&executable));
    executable
}

/// Returns what a program prints on this many ranks.
fn printed(executable: &Path, ranks: u32) -> String {
    succeed(
        command(stage().join("bin/mpiexec"), 60)
            .args(["-n", &ranks.to_string()])
            .arg(executable),
    )
}

fn works(wrapper_name: &str, sources: &[&str]) {
    let folder = scratch();
    let executable = compiled(folder.path(), wrapper_name, sources, "program");
    for ranks in [1, 3] {
        assert_eq!(printed(&executable, ranks), "ok\n", "{ranks} ranks");
    }
}

#[test]
fn mpif_h_in_fixed_form() {
    works("mpif77", &["classic.f"]);
}

#[test]
fn use_mpi() {
    works("mpif90", &["module.f90"]);
}

#[test]
fn use_mpi_f08() {
    works("mpifort", &["modern.f90"]);
}

#[test]
fn counts_of_partitions_are_wide() {
    works("mpifort", &["partitioned.f90"]);
}

#[test]
fn sections_of_arrays_are_buffers() {
    works("mpifort", &["sections.f90"]);
}

#[test]
fn windows_files_and_started_processes() {
    let folder = scratch();
    let executable = compiled(folder.path(), "mpifort", &["storage.f90"], "storage");
    for ranks in ["1", "3"] {
        let printed = succeed(
            command(stage().join("bin/mpiexec"), 60)
                .args(["-n", ranks])
                .arg(&executable)
                .arg(folder.path().join("data")),
        );
        assert_eq!(printed, "ok\n", "{ranks} ranks");
    }
}

#[test]
fn c_and_fortran_share_handles_statuses_and_attributes() {
    let folder = scratch();
    let object = folder.path().join("mixed_c.o");
    succeed(
        wrapper("mpicc")
            .args(["-Wall", "-Werror", "-c"])
            .arg(program("fortran/mixed.c"))
            .arg("-o")
            .arg(&object),
    );
    let object = object.to_str().unwrap().to_owned();
    let executable = compiled(folder.path(), "mpifort", &["mixed.f90", &object], "mixed");
    assert_eq!(printed(&executable, 2), "ok\n");
}

#[test]
fn tools_stand_in_front_in_either_language() {
    let folder = scratch();
    let with_c = compiled(
        folder.path(),
        "mpifort",
        &["sender.f90", "profile_c.c"],
        "c",
    );
    assert_eq!(printed(&with_c, 1), "1 sends in C\n");
    let with_f = compiled(
        folder.path(),
        "mpifort",
        &["sender.f90", "profile_f.f90"],
        "f",
    );
    assert_eq!(printed(&with_f, 1), "sending 1 in Fortran\n");
}

#[test]
fn wrappers_tell_what_they_do_and_take_other_compilers() {
    let shown = succeed(wrapper("mpifort").args(["-show", "a.f90", "-o", "a"]));
    assert!(shown.starts_with("gfortran a.f90 -o a"), "{shown}");
    assert!(
        shown.trim_end().ends_with("-lmargay_mpifort -lmpi_abi"),
        "{shown}"
    );
    let compile_only = succeed(wrapper("mpif90").args(["-show", "-c", "a.f90"]));
    assert!(!compile_only.contains("-lmpi_abi"), "{compile_only}");
    for shown in [
        succeed(wrapper("mpif77").args(["-fc=my-fortran", "-show", "a.f"])),
        succeed(
            wrapper("mpif77")
                .env("MPIFORT_FC", "my-fortran")
                .args(["-show", "a.f"]),
        ),
    ] {
        assert!(shown.starts_with("my-fortran a.f "), "{shown}");
        assert!(!shown.contains("mismatch"), "{shown}");
    }
}

/// The compiler under another name stands for another compiler.
#[test]
fn modules_for_another_compiler_are_built_by_one_command() {
    let folder = scratch();
    let compiler = folder.path().join("other-fortran");
    std::fs::write(&compiler, "#!/bin/sh\nexec gfortran \"$@\"\n").unwrap();
    succeed(command("chmod", 5).arg("+x").arg(&compiler));
    let prefix = folder.path().join("other prefix");
    succeed(
        command(stage().join("bin/margay"), 400)
            .arg("fortran")
            .arg("--fc")
            .arg(&compiler)
            .arg(&prefix),
    );
    let executable = folder.path().join("modern");
    succeed(
        wrapper("mpifort")
            .env("MPIFORT_FC", &compiler)
            .env("MPIFORT_PREFIX", &prefix)
            .current_dir(folder.path())
            .arg(program("fortran/modern.f90"))
            .arg("-o")
            .arg(&executable),
    );
    let needed = succeed(command("ldd", 60).arg(&executable));
    assert!(
        needed.contains("other prefix/lib/libmargay_mpifort.so.1"),
        "{needed}"
    );
    assert_eq!(printed(&executable, 2), "ok\n");
    let nowhere = run(wrapper("mpifort")
        .env("MPIFORT_PREFIX", folder.path())
        .arg("a.f90"));
    let report = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(
        report.contains("has no Fortran modules") && report.contains("margay fortran --fc="),
        "{report}"
    );
}

#[test]
fn pkg_config_builds_a_program_that_runs() {
    let folder = scratch();
    let flags = succeed(
        command("pkg-config", 60)
            .args(["--cflags", "--libs", "mpi-fort"])
            .env("PKG_CONFIG_PATH", stage().join("lib/pkgconfig")),
    );
    let executable = folder.path().join("modern");
    succeed(
        command("gfortran", 120)
            .current_dir(folder.path())
            .arg(program("fortran/modern.f90"))
            .arg("-o")
            .arg(&executable)
            .args(flags.split_whitespace()),
    );
    assert_eq!(printed(&executable, 2), "ok\n");
}

#[test]
fn cmake_finds_all_three_bindings() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        std::iter::once(stage().join("bin")).chain(std::env::split_paths(&path)),
    )
    .unwrap();
    for config in ["OFF", "ON"] {
        let folder = scratch();
        let report = succeed(
            command("cmake", 120)
                .env("PATH", &path)
                .arg("-S")
                .arg(program("fortran/project"))
                .arg("-B")
                .arg(folder.path())
                .arg(format!("-DCMAKE_FIND_PACKAGE_PREFER_CONFIG={config}"))
                .arg(format!("-DCMAKE_PREFIX_PATH={}", stage().display())),
        );
        assert!(report.contains("libmargay_mpifort.so"), "{report}");
        succeed(command("cmake", 120).arg("--build").arg(folder.path()));
        let tested = succeed(command("ctest", 120).arg("--test-dir").arg(folder.path()));
        assert!(tested.contains("100% tests passed"), "{tested}");
    }
}
