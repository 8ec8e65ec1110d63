//! A function of the ABI as Fortran sees it: the C prototype, read again, with what the tables add.

use super::table::{self, Intent, Passing};
use crate::prototype::{HANDLES, Raw, is_callback};

/// A function with its parameters; `MPI_Pcontrol` and the like have lost what Fortran does not
/// pass.
pub struct Routine {
    /// `MPI_Send_c`
    pub name: String,
    /// `send_c`: what stands between `mpi_` and the final underscore of the symbol.
    pub lower: String,
    /// The variant for large counts.
    pub large: bool,
    /// The result's C type where that is not an error code.
    pub result: Option<String>,
    pub parameters: Vec<Parameter>,
}

pub struct Parameter {
    pub name: String,
    pub kind: Kind,
    pub intent: Intent,
    constant: bool,
}

impl Parameter {
    /// Whether C only reads what the parameter points to.
    pub fn constant(&self) -> bool {
        self.constant
    }
}

/// The integers of Fortran's interface, by their kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    Int,
    Aint,
    Count,
    Offset,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A choice buffer.
    Buffer(Passing),
    /// An address that is put out: `TYPE(C_PTR)`, or an integer for programs that have no such
    /// type.
    Address,
    /// A number; `true`: C gets its address.
    Integer(Width, bool),
    Integers(Width),
    /// `true`: C gets its address.
    Logical(bool),
    /// With the number of elements as a C expression.
    Logicals(&'static str),
    /// Weights of a graph, which may be `MPI_UNWEIGHTED`.
    Weights,
    /// `MPI_Comm` and so on; `true`: C gets its address.
    Handle(String, bool),
    /// With the number of elements as a C expression.
    Handles(String, &'static str),
    Status,
    Statuses,
    Text,
    /// With C's longest length.
    TextOut(&'static str),
    /// An array of texts.
    Texts,
    /// `array_of_argv(count, *)`
    TextMatrix,
    /// `ranges(3, *)`
    Triples,
    /// The C type of a function of the user.
    Procedure(String),
}

impl Routine {
    /// # Errors
    /// When a parameter is not understood.
    pub fn of(name: &str, result: &str, parameters: &[String]) -> Result<Routine, String> {
        let large = name.ends_with("_c");
        let short = name.trim_start_matches("MPI_");
        let base = short.strip_suffix("_c").unwrap_or(short);
        let mut kept = Vec::new();
        for text in parameters {
            let raw = Raw::of(text).map_err(|e| format!("{name}: {e}"))?;
            let Some(raw) = raw else { continue };
            let command_line = matches!(raw.name.as_str(), "argc" | "argv");
            if command_line && !base.starts_with("Comm_spawn") {
                continue;
            }
            kept.push(raw);
        }
        let mut routine = Routine {
            name: name.to_string(),
            lower: short.to_lowercase(),
            large,
            result: (result != "int").then(|| result.to_string()),
            parameters: Vec::new(),
        };
        for (i, raw) in kept.iter().enumerate() {
            let kind = kind(base, raw, &kept, i).map_err(|e| format!("{name}: {e}"))?;
            routine.parameters.push(Parameter {
                name: table::fortran_name(&raw.name).to_string(),
                intent: intent(base, raw),
                constant: raw.constant,
                kind,
            });
        }
        Ok(routine)
    }

    /// Whether a buffer is among the parameters.
    pub fn has_buffer(&self) -> bool {
        self.parameters
            .iter()
            .any(|p| matches!(p.kind, Kind::Buffer(_)))
    }

    /// Whether it puts out the address of memory, as an integer or as a C pointer.
    pub fn puts_address(&self) -> bool {
        self.parameters
            .iter()
            .any(|p| p.kind == Kind::Address && p.name == "baseptr")
    }

    /// Whether it belongs into the modules before Fortran 2008 and into `mpif.h`.
    pub fn is_classic(&self) -> bool {
        !self.large
    }

    /// Whether `mpi_f08` has it: all but what MPI 1 had and MPI 2 replaced.
    pub fn is_modern(&self) -> bool {
        !table::CLASSIC_ONLY.contains(&self.name.as_str())
    }
}

fn width(base: &str) -> Option<Width> {
    match base {
        "int" => Some(Width::Int),
        "MPI_Aint" => Some(Width::Aint),
        "MPI_Count" => Some(Width::Count),
        "MPI_Offset" => Some(Width::Offset),
        _ => None,
    }
}

fn kind(function: &str, raw: &Raw, all: &[Raw], at: usize) -> Result<Kind, String> {
    let name = raw.name.as_str();
    let unknown = || {
        format!(
            "Fortran has no rule for the parameter {name} ({}); add one to xtask/src/fortran/table.rs",
            raw.base
        )
    };
    let classic = table::CLASSIC_ONLY.contains(&format!("MPI_{function}").as_str());
    match raw.base.as_str() {
        "void" if raw.stars == 1 => Ok(match name {
            "extra_state" | "attribute_val" => {
                let width = if classic { Width::Int } else { Width::Aint };
                Kind::Integer(width, true)
            }
            "baseptr" | "buffer_addr" => Kind::Address,
            _ => Kind::Buffer(passing(function, all, at)),
        }),
        "char" => match (raw.constant, raw.stars, raw.array) {
            (true, 1, false) | (true, 0, true) => Ok(Kind::Text),
            (false, 1, false) => table::longest(name).map(Kind::TextOut).ok_or_else(unknown),
            (false, 1, true) => Ok(Kind::Texts),
            (false, 2, true) => Ok(Kind::TextMatrix),
            _ => Err(unknown()),
        },
        "MPI_Status" => Ok(if name.starts_with("array_of") {
            Kind::Statuses
        } else {
            Kind::Status
        }),
        "int" if raw.triples => Ok(Kind::Triples),
        "int" if raw.stars == 1 && table::WEIGHTS.contains(&name) => Ok(Kind::Weights),
        "int" if table::LOGICALS.contains(&name) => {
            if raw.array {
                let length = table::length(function, name).ok_or_else(unknown)?;
                Ok(Kind::Logicals(length))
            } else {
                Ok(Kind::Logical(raw.stars == 1))
            }
        }
        base if is_callback(base) => Ok(Kind::Procedure(base.to_string())),
        "MPI_Aint" if classic && raw.array => Ok(Kind::Integers(Width::Int)),
        "MPI_Aint" if classic => Ok(Kind::Integer(Width::Int, raw.stars == 1)),
        base => match (width(base), raw.array) {
            (Some(width), true) => Ok(Kind::Integers(width)),
            (Some(width), false) => Ok(Kind::Integer(width, raw.stars == 1)),
            (None, array) => {
                let handle = base.strip_prefix("MPI_").ok_or_else(unknown)?.to_string();
                if !HANDLES.contains(&handle.as_str()) {
                    return Err(unknown());
                }
                if !array {
                    return Ok(Kind::Handle(handle, raw.stars == 1));
                }
                let length = table::length(function, name).ok_or_else(unknown)?;
                Ok(Kind::Handles(handle, length))
            }
        },
    }
}

/// Returns how a section reaches C: as a datatype where a count and a datatype follow the buffer
/// and describe all of it.
fn passing(function: &str, all: &[Raw], at: usize) -> Passing {
    if let Some(passing) = table::passing(function) {
        return passing;
    }
    let counted = all.get(at + 1).is_some_and(|p| {
        p.name.ends_with("count") && p.stars == 0 && !p.array && width(&p.base).is_some()
    });
    let typed = all
        .get(at + 2)
        .is_some_and(|p| p.base == "MPI_Datatype" && p.stars == 0 && !p.array);
    if counted && typed && !table::is_gathering(function) {
        Passing::Typed(at + 1, at + 2)
    } else {
        Passing::Scratch
    }
}

fn intent(function: &str, raw: &Raw) -> Intent {
    let pointer = raw.stars > 0 || raw.array;
    if !pointer || raw.constant || raw.triples {
        return Intent::In;
    }
    if let Some(intent) = table::intent(function, &raw.name) {
        return intent;
    }
    match raw.base.as_str() {
        "void" => Intent::In,
        "char" if raw.array => Intent::In,
        _ => Intent::Out,
    }
}
