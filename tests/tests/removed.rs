//! What MPI-3 removed, for programs of the 1990s: in C and Fortran, declared on request, refused
//! with a hint otherwise; and the header of extensions by Open MPI's name.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

use margay_tests::{command, program, run, scratch, stage, succeed};

const NAMES: &str = include_str!("../facts/mpi_removed.txt");

fn wrapper(name: &str) -> Command {
    command(stage().join("bin").join(name), 120)
}

fn printed(executable: &Path, ranks: u32) -> String {
    succeed(
        command(stage().join("bin/mpiexec"), 120)
            .args(["-n", &ranks.to_string()])
            .arg(executable),
    )
}

fn names() -> impl Iterator<Item = &'static str> {
    NAMES.lines().filter(|line| !line.starts_with('#'))
}

/// Compiles a source text and returns whether that worked and what the compiler said.
fn check(wrapper_name: &str, flags: &[&str], text: &str) -> (bool, String) {
    let folder = scratch();
    let file = folder.path().join("text.c");
    std::fs::write(&file, text).expect("a source file");
    let mut compile = wrapper(wrapper_name);
    if wrapper_name == "mpicxx" {
        compile.args(["-x", "c++"]);
    }
    let output = run(compile.args(flags).args(["-fsyntax-only"]).arg(&file));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), said)
}

#[test]
fn programs_in_c() {
    let folder = scratch();
    for (name, flags) in [
        ("mpicc", &["-mpi1", "-std=c99", "-pedantic"][..]),
        ("mpicc", &["-DMARGAY_MPI1", "-O2"]),
    ] {
        let executable = folder.path().join("removed");
        succeed(
            wrapper(name)
                .args(flags)
                .args(["-g", "-Wall", "-Wextra", "-Werror"])
                .arg(program("mpi/removed.c"))
                .arg("-o")
                .arg(&executable),
        );
        for ranks in [1, 3] {
            assert_eq!(printed(&executable, ranks), "ok\n", "{ranks} ranks");
        }
    }
}

#[test]
fn programs_in_fortran() {
    let folder = scratch();
    for (name, source) in [
        ("mpif77", "removed.f"),
        ("mpif90", "removed.f90"),
        ("mpifort", "removed.f"),
    ] {
        for flag in ["-mpi1", "-O2"] {
            let executable = folder.path().join("removed");
            succeed(
                wrapper(name)
                    .args([flag, "-g", "-w"])
                    .arg(program("fortran").join(source))
                    .arg("-o")
                    .arg(&executable),
            );
            for ranks in [1, 3] {
                assert_eq!(printed(&executable, ranks), "ok\n", "{source}, {ranks}");
            }
        }
    }
}

#[test]
fn without_the_option_the_compiler_names_it() {
    let uses: Vec<String> = names()
        .flat_map(|name| [name.to_string(), format!("P{name}")])
        .map(|name| format!("return {name} == 0;"))
        .chain([
            "return MPI_LB == MPI_UB;".into(),
            "MPI_Handler_function *f = 0; return f == 0;".into(),
            "return MPI_COMBINER_STRUCT_INTEGER;".into(),
        ])
        .collect();
    assert_eq!(uses.len(), 23);
    for use_ in uses {
        let text = format!("#include <mpi.h>\nint main(void) {{ {use_} }}\n");
        for compiler in ["mpicc", "mpicxx"] {
            let (works, said) = check(compiler, &[], &text);
            assert!(!works && said.contains("mpicc -mpi1"), "{use_}: {said}");
            assert!(said.contains("MPI-3 removed it; use "), "{use_}: {said}");
            let (works, said) = check(compiler, &["-mpi1", "-w"], &text);
            assert!(works, "{use_}: {said}");
        }
    }
}

/// Programs that were mended in that way long ago: by the command line or before the header is
/// included.
#[test]
fn names_that_are_macros_of_the_program_stay_so() {
    let text = "#define MPI_Address MPI_Get_address\n#define MPI_UB MPI_DATATYPE_NULL\n#include <mpi.h>\n\
                int main(void) { MPI_Aint a; MPI_Datatype t = MPI_UB; MPI_Address(&t, &a); \
                return MPI_Type_extent(t, &a); }\n";
    let flags = ["-Wall", "-Werror", "-DMPI_Type_extent=PMPI_Type_size_x"];
    for more in [&[][..], &["-mpi1"]] {
        let (works, said) = check("mpicc", &[&flags[..], more].concat(), text);
        assert!(works, "{said}");
    }
}

#[test]
fn the_wrapper_says_what_it_does() {
    for name in ["mpicc", "mpicxx", "mpif77", "mpif90"] {
        let shown = succeed(wrapper(name).args(["-mpi1", "-show", "-c", "a.c"]));
        assert!(shown.contains(" -DMARGAY_MPI1 "), "{name}: {shown}");
        assert!(!shown.contains("-mpi1"), "{name}: {shown}");
        let help = succeed(wrapper(name).arg("-help"));
        assert!(help.contains("  -mpi1 "), "{name}: {help}");
    }
    let plain = succeed(wrapper("mpicc").args(["-show", "-c", "a.c"]));
    assert!(!plain.contains("MARGAY_MPI1"), "{plain}");
    let flags = succeed(wrapper("mpicc").args(["-mpi1", "-showme:compile"]));
    assert!(flags.starts_with("-DMARGAY_MPI1 "), "{flags}");
}

/// Configure scripts declare the function themselves and link.
#[test]
fn a_check_of_the_library_alone_finds_every_name() {
    let folder = scratch();
    let mut text = String::new();
    for name in names() {
        text += &format!("char {name}(void);\n");
    }
    text += "int main(void) { return 0";
    for name in names() {
        text += &format!(" + {name}()");
    }
    text += "; }\n";
    let file = folder.path().join("conftest.c");
    std::fs::write(&file, text).expect("a source file");
    succeed(
        wrapper("mpicc")
            .arg(&file)
            .arg("-o")
            .arg(folder.path().join("conftest")),
    );
}

#[test]
fn extensions_by_the_name_of_open_mpis_header() {
    let folder = scratch();
    let file = folder.path().join("extensions.c");
    std::fs::write(
        &file,
        "#include <stdio.h>\n#include <mpi.h>\n#include <mpi-ext.h>\n\
         #if !defined(OMPI_HAVE_MPI_EXT) || !OMPI_HAVE_MPI_EXT_CUDA || !OMPI_HAVE_MPI_EXT_ROCM || !OMPI_HAVE_MPI_EXT_FTMPI\n\
         #error no macros\n#endif\n\
         #if !defined(MPIX_CUDA_AWARE_SUPPORT) || MPIX_CUDA_AWARE_SUPPORT || MPIX_ROCM_AWARE_SUPPORT || defined(OPEN_MPI)\n\
         #error not so\n#endif\n\
         int main(int argc, char **argv) {\n\
         int before = MPIX_Query_cuda_support(), flag = 7, bad;\n\
         MPI_Init(&argc, &argv);\n\
         MPIX_GPU_query_support(MPIX_GPU_SUPPORT_HIP, &flag);\n\
         bad = MPIX_GPU_query_support(99, &flag);\n\
         printf(\"%d %d %d %d %d %d %d\\n\", before, MPIX_Query_cuda_support(), MPIX_Query_rocm_support(),\n\
         MPIX_Query_hip_support(), MPIX_Query_ze_support(), flag, bad == MPI_SUCCESS);\n\
         MPIX_Comm_failure_ack(MPI_COMM_WORLD);\n\
         (void)MPIX_ERR_PROC_FAILED;\n\
         MPI_Finalize(); return 0; }\n",
    )
    .expect("a source file");
    for compiler in ["mpicc", "mpicxx"] {
        let executable = folder.path().join(compiler);
        let mut compile = wrapper(compiler);
        if compiler == "mpicxx" {
            compile.args(["-x", "c++"]);
        }
        succeed(
            compile
                .args(["-Wall", "-Wextra", "-Werror"])
                .arg(&file)
                .arg("-o")
                .arg(&executable),
        );
        assert_eq!(printed(&executable, 1), "0 0 0 0 0 0 0\n");
    }
}
