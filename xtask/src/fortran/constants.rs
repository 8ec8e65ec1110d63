//! The constants: `mpif.h`, and the modules with handles as integers and as types.

use std::fmt::Write as _;

use super::table;
use crate::header::Constant;

const HEAD: &str = "! Printed by `cargo xtask fortran` from run/mpi/src/constants.rs; change that, not this file.\n";

/// What a Fortran program sees of a constant.
enum Value {
    Integer(String),
    Handle(String, String),
    Offset(String),
}

/// Returns the constants that Fortran has.
fn values(constants: &[Constant]) -> Vec<(&str, Value)> {
    let mut all = Vec::new();
    for constant in constants {
        let name = constant.name.as_str();
        if name.starts_with("MPI_T_") || name.starts_with("MPI_F_") || name.starts_with("MPI_ABI_")
        {
            continue;
        }
        let value = constant.value.clone();
        all.push((
            name,
            match constant.ty.as_str() {
                "i32" => Value::Integer(value),
                // Fortran's texts have no final zero.
                "Define" if name.starts_with("MPI_MAX_") => match value.parse::<i64>() {
                    Ok(number) => Value::Integer((number - 1).to_string()),
                    Err(_) => Value::Integer(value),
                },
                "Define" => Value::Integer(value),
                "OffsetConstant" => Value::Offset(value),
                ty => match ty.strip_suffix("Handle") {
                    Some(handle) => Value::Handle(handle.to_string(), value),
                    None => continue, // an address: see SENTINELS
                },
            },
        ));
    }
    all
}

/// `MPI_ABI_VERSION` and the like are functions' results in Fortran too, but the numbers are of
/// use.
const KINDS: [(&str, u8); 4] = [
    ("MPI_ADDRESS_KIND", 8),
    ("MPI_OFFSET_KIND", 8),
    ("MPI_COUNT_KIND", 8),
    ("MPI_INTEGER_KIND", 4),
];

const STATUS: [(&str, u8); 4] = [
    ("MPI_STATUS_SIZE", 8),
    ("MPI_SOURCE", 1),
    ("MPI_TAG", 2),
    ("MPI_ERROR", 3),
];

/// Kinds of integers and the size of a status, for all modules.
pub fn kinds() -> String {
    let mut text = format!("{HEAD}module mpi_kinds\n  implicit none\n  public\n");
    for (name, value) in KINDS.into_iter().chain(STATUS) {
        writeln!(text, "  integer, parameter :: {name} = {value}").expect("a string grows");
    }
    text + "end module\n"
}

/// Constants and marks by address for `mpi`.
pub fn mpi(constants: &[Constant]) -> String {
    let mut text =
        format!("{HEAD}module mpi_constants\n  use mpi_kinds\n  implicit none\n  public\n");
    for (name, value) in values(constants) {
        let line = match value {
            Value::Integer(v) | Value::Handle(_, v) => {
                format!("integer, parameter :: {name} = {v}")
            }
            Value::Offset(v) => format!("integer(MPI_OFFSET_KIND), parameter :: {name} = {v}"),
        };
        writeln!(text, "  {line}").expect("a string grows");
    }
    text += &logicals(false);
    for (name, ty, _, shape) in table::SENTINELS {
        text += &sentinel(name, &ty.to_lowercase().replace("*1", "(len=1)"), shape);
    }
    text + "end module\n"
}

/// Constants and marks by address for `mpi_f08`.
pub fn f08(constants: &[Constant]) -> String {
    let mut text =
        format!("{HEAD}module mpi_f08_constants\n  use mpi_f08_types\n  implicit none\n  public\n");
    let current: Vec<Constant> = constants.iter().filter(|c| !c.removed).cloned().collect();
    for (name, value) in values(&current) {
        let line = match value {
            Value::Integer(v) => format!("integer, parameter :: {name} = {v}"),
            Value::Offset(v) => format!("integer(MPI_OFFSET_KIND), parameter :: {name} = {v}"),
            Value::Handle(handle, v) => match v.parse::<i64>() {
                Ok(_) => format!("type(MPI_{handle}), parameter :: {name} = MPI_{handle}({v})"),
                Err(_) => format!("type(MPI_{handle}), parameter :: {name} = {v}"),
            },
        };
        writeln!(text, "  {line}").expect("a string grows");
    }
    text += &logicals(true);
    for (name, _, ty, shape) in table::SENTINELS {
        let shape = match shape {
            "MPI_STATUS_SIZE" => "",
            "MPI_STATUS_SIZE,1" => "1",
            other => other,
        };
        text += &sentinel(name, ty, shape);
    }
    text + "end module\n"
}

fn logicals(modern: bool) -> String {
    let value = if modern { ".true." } else { ".false." };
    ["MPI_SUBARRAYS_SUPPORTED", "MPI_ASYNC_PROTECTS_NONBLOCKING"]
        .map(|name| format!("  logical, parameter :: {name} = {value}\n"))
        .concat()
}

fn block(name: &str) -> String {
    name.to_lowercase().replacen("mpi_", "mpi_fort_", 1)
}

fn sentinel(name: &str, ty: &str, shape: &str) -> String {
    let shape = if shape.is_empty() {
        String::new()
    } else {
        format!("({shape})")
    };
    format!(
        "  {ty} :: {name}{shape}\n  common /{}/ {name}\n",
        block(name)
    )
}

/// `mpif.h`, for fixed and free form.
pub fn mpif(constants: &[Constant]) -> String {
    let mut text =
        format!("! mpif.h - MPI for programs without modules; better: `use mpi_f08`.\n{HEAD}");
    let mut parameter = |ty: &str, name: &str, value: &str| {
        writeln!(text, "      {ty} {name}\n      PARAMETER ({name}={value})")
            .expect("a string grows");
    };
    for (name, value) in KINDS.into_iter().chain(STATUS) {
        parameter("INTEGER", name, &value.to_string());
    }
    for (name, value) in values(constants) {
        match value {
            Value::Integer(v) | Value::Handle(_, v) => parameter("INTEGER", name, &v),
            Value::Offset(v) => parameter("INTEGER(KIND=MPI_OFFSET_KIND)", name, &v),
        }
    }
    for name in ["MPI_SUBARRAYS_SUPPORTED", "MPI_ASYNC_PROTECTS_NONBLOCKING"] {
        parameter("LOGICAL", name, ".FALSE.");
    }
    for (name, ty, _, shape) in table::SENTINELS {
        let shape = if shape.is_empty() {
            String::new()
        } else {
            format!("({shape})")
        };
        writeln!(
            text,
            "      {ty} {name}{shape}\n      COMMON /{}/ {name}",
            block(name).to_uppercase()
        )
        .expect("a string grows");
    }
    for prefix in ["", "P"] {
        for (ty, name) in [
            ("DOUBLE PRECISION", "MPI_WTIME"),
            ("DOUBLE PRECISION", "MPI_WTICK"),
            ("INTEGER(KIND=MPI_ADDRESS_KIND)", "MPI_AINT_ADD"),
            ("INTEGER(KIND=MPI_ADDRESS_KIND)", "MPI_AINT_DIFF"),
        ] {
            writeln!(
                text,
                "      {ty} {prefix}{name}\n      EXTERNAL {prefix}{name}"
            )
            .expect("a string grows");
        }
    }
    let names = table::PREDEFINED
        .iter()
        .map(|(name, _)| *name)
        .chain(table::PREDEFINED_CLASSIC);
    for name in names {
        writeln!(text, "      EXTERNAL {name}").expect("a string grows");
    }
    text
}
