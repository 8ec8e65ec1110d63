//! Modules that have code of their own: types of handles and statuses with their operators, and
//! `MPI_Sizeof`.

use std::fmt::Write as _;

use crate::prototype::HANDLES;

const HEAD: &str = "! Printed by `cargo xtask fortran`; change xtask/src/fortran, not this file.\n";

/// `mpi_f08_types`: what `mpi_f08` and `mpi` share.
pub fn types() -> String {
    let mut text =
        format!("{HEAD}module mpi_f08_types\n  use mpi_kinds\n  implicit none\n  public\n");
    for handle in HANDLES {
        writeln!(
            text,
            "  type, bind(C) :: MPI_{handle}\n    integer :: MPI_VAL\n  end type"
        )
        .expect("a string grows");
    }
    text += "  type, bind(C) :: MPI_Status\n    integer :: MPI_SOURCE\n    integer :: MPI_TAG\n    integer :: MPI_ERROR\n    \
             integer, private :: MPI_internal(5)\n  end type\n";
    for (operator, name) in [("==", "equal"), ("/=", "differ")] {
        writeln!(text, "  interface operator({operator})").expect("a string grows");
        for handle in HANDLES {
            writeln!(
                text,
                "    module procedure {name}_{}",
                handle.to_lowercase()
            )
            .expect("a string grows");
        }
        text += "  end interface\n";
    }
    for prefix in ["", "P"] {
        text += &status_conversions(prefix);
    }
    for (operator, name) in [("==", "equal"), ("/=", "differ")] {
        for handle in HANDLES {
            writeln!(text, "  private :: {name}_{}", handle.to_lowercase())
                .expect("a string grows");
        }
        let _ = operator;
    }
    text += "contains\n";
    for (operator, name) in [("==", "equal"), ("/=", "differ")] {
        for handle in HANDLES {
            let function = format!("{name}_{}", handle.to_lowercase());
            writeln!(
                text,
                "  elemental logical function {function}(a, b)\n    type(MPI_{handle}), intent(in) :: a, b\n    \
                 {function} = a%MPI_VAL {operator} b%MPI_VAL\n  end function"
            )
            .expect("a string grows");
        }
    }
    text + "end module\n"
}

fn status_conversions(prefix: &str) -> String {
    let mut text = String::new();
    for (name, old, new) in [
        ("MPI_Status_f2f08", "f_status", "f08_status"),
        ("MPI_Status_f082f", "f08_status", "f_status"),
    ] {
        writeln!(
            text,
            "  interface\n    subroutine {prefix}{name}({old}, {new}, ierror)\n      import :: MPI_Status, MPI_STATUS_SIZE"
        )
        .expect("a string grows");
        for (status, intent) in [(old, "in"), (new, "out")] {
            let declaration = match status {
                "f_status" => format!("integer, intent({intent}) :: f_status(MPI_STATUS_SIZE)"),
                _ => format!("type(MPI_Status), intent({intent}) :: f08_status"),
            };
            writeln!(text, "      {declaration}").expect("a string grows");
        }
        text +=
            "      integer, optional, intent(out) :: ierror\n    end subroutine\n  end interface\n";
    }
    text
}

/// Intrinsic types with the kinds that all compilers have, and those that gfortran has besides.
const KINDS: [(&str, &[u8], &[u8]); 4] = [
    ("integer", &[1, 2, 4, 8], &[16]),
    ("real", &[4, 8], &[10, 16]),
    ("complex", &[4, 8], &[10, 16]),
    ("logical", &[4], &[1, 2, 8, 16]),
];

/// `MPI_Sizeof` for scalars and arrays of every rank.
pub fn sizeofs() -> String {
    let mut text = format!(
        "{HEAD}module mpi_sizeofs\n  implicit none\n  private\n  public :: MPI_Sizeof, PMPI_Sizeof\n"
    );
    for prefix in ["", "P"] {
        writeln!(
            text,
            "  interface {prefix}MPI_Sizeof\n    module procedure sizeof_character"
        )
        .expect("a string grows");
        each_kind(&mut text, |ty, kind| {
            format!("    module procedure sizeof_{ty}{kind}\n")
        });
        text += "  end interface\n";
    }
    text += "contains\n";
    text += &sizeof("character", "character(len=*)");
    each_kind(&mut text, |ty, kind| {
        sizeof(&format!("{ty}{kind}"), &format!("{ty}(kind={kind})"))
    });
    text + "end module\n"
}

fn each_kind(text: &mut String, mut print: impl FnMut(&str, u8) -> String) {
    for (ty, kinds, _) in KINDS {
        for kind in kinds {
            *text += &print(ty, *kind);
        }
    }
    *text += "#ifdef __GFORTRAN__\n";
    for (ty, _, kinds) in KINDS {
        for kind in kinds {
            *text += &print(ty, *kind);
        }
    }
    *text += "#endif\n";
}

fn sizeof(name: &str, ty: &str) -> String {
    format!(
        "  subroutine sizeof_{name}(x, size, ierror)\n    {ty}, dimension(..), intent(in) :: x\n    \
         integer, intent(out) :: size\n    integer, optional, intent(out) :: ierror\n    \
         size = storage_size(x) / 8\n    if (present(ierror)) ierror = 0\n  end subroutine\n"
    )
}
