//! The interfaces of the modules `mpi` and `mpi_f08`.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::model::{Kind, Parameter, Routine, Width};
use super::table::{self, Intent};

const HEAD: &str = "! Printed by `cargo xtask fortran` from the definitions of the functions; change those, not this file.\n";

/// `use mpi` or `use mpi_f08`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Binding {
    Mpi,
    F08,
}

/// Interfaces of the functions in `mpi`. Those of `PMPI_x` are made from them by `margay fortran`
/// (`cli/src/fortran.rs`), which knows how lines with names begin.
pub fn mpi(routines: &[Routine]) -> String {
    let mut text = format!("{HEAD}module mpi_interfaces\n  implicit none\n  public\n");
    let mut with_pointers = Vec::new();
    text += "  interface\n";
    for routine in routines.iter().filter(|r| r.is_classic()) {
        if routine.puts_address() {
            with_pointers.push(routine);
        } else {
            text += &procedure(routine, &routine.name, None, Binding::Mpi, false);
        }
    }
    text += "  end interface\n";
    let names = table::PREDEFINED
        .iter()
        .map(|(name, _)| *name)
        .chain(table::PREDEFINED_CLASSIC);
    for name in names {
        writeln!(text, "  external :: {name}").expect("a string grows");
    }
    // Those that put out an address, as an integer or as a C pointer.
    for routine in with_pointers {
        let name = &routine.name;
        let specific = format!("{name}_cptr");
        writeln!(text, "  interface {name}").expect("a string grows");
        text += &procedure(routine, name, None, Binding::Mpi, false);
        text += &procedure(routine, &specific, None, Binding::Mpi, true);
        text += "  end interface\n";
    }
    format!("{text}end module\n")
}

/// Interfaces of the functions in `mpi_f08`, generic where there is a variant for large counts; as
/// with [`mpi`], those of `PMPI_x` are made from them.
pub fn f08(routines: &[Routine]) -> String {
    let mut text = format!("{HEAD}module mpi_f08_interfaces\n  implicit none\n  public\n");
    let by_name: HashMap<&str, &Routine> = routines.iter().map(|r| (r.name.as_str(), r)).collect();
    for routine in routines.iter().filter(|r| r.is_modern()) {
        let named = table::NAMED_LARGE.contains(&routine.name.as_str());
        if routine.large && !named {
            continue;
        }
        writeln!(text, "  interface {}", routine.name).expect("a string grows");
        text += &specific(routine);
        if let Some(large) = by_name.get(format!("{}_c", routine.name).as_str())
            && !table::NAMED_LARGE.contains(&large.name.as_str())
            && shape(routine) != shape(large)
        {
            text += &specific(large);
        }
        text += "  end interface\n";
    }
    format!("{text}end module\n")
}

/// Abstract interfaces of the functions that users supply, and the library's own.
pub fn callbacks() -> String {
    let mut text = format!(
        "{HEAD}module mpi_f08_callbacks\n  implicit none\n  public\n  abstract interface\n"
    );
    for callback in table::callbacks() {
        text += &callback_procedure(&callback, callback.name);
    }
    text += "  end interface\n  interface\n";
    for (name, kind) in table::PREDEFINED {
        let callback = table::callbacks()
            .find(|c| c.name == kind)
            .expect("a function of the table");
        text += &callback_procedure(&callback, name);
    }
    format!("{text}  end interface\nend module\n")
}

fn callback_procedure(callback: &table::Callback, name: &str) -> String {
    let names: Vec<&str> = callback.parameters.iter().map(|(name, _)| *name).collect();
    let mut text = format!("    subroutine {name}{}\n", wrapped(&names));
    text += "      use mpi_f08_types\n      use, intrinsic :: iso_c_binding, only: c_ptr\n      implicit none\n";
    for (name, ty) in callback.parameters {
        writeln!(text, "      {ty} :: {name}").expect("a string grows");
    }
    text + "    end subroutine\n"
}

/// Returns what makes two specific procedures different for a generic name: the kinds of their
/// parameters.
fn shape(routine: &Routine) -> Vec<String> {
    routine
        .parameters
        .iter()
        .map(|p| match &p.kind {
            Kind::Integer(w, _) => format!("{}", bytes(*w)),
            Kind::Integers(w) => format!("{}*", bytes(*w)),
            other => format!("{other:?}"),
        })
        .collect()
}

fn bytes(width: Width) -> u8 {
    if width == Width::Int { 4 } else { 8 }
}

fn specific(routine: &Routine) -> String {
    let suffix = if routine.has_buffer() {
        "_f08ts"
    } else {
        "_f08"
    };
    let name = format!("{}{suffix}", routine.name);
    let symbol = routine
        .has_buffer()
        .then(|| format!("{}_", name.to_lowercase()));
    procedure(routine, &name, symbol.as_deref(), Binding::F08, true)
}

/// One interface body; `symbol`: of a procedure with C's conventions, for descriptors.
fn procedure(
    routine: &Routine,
    name: &str,
    symbol: Option<&str>,
    binding: Binding,
    pointers: bool,
) -> String {
    let mut names: Vec<&str> = routine.parameters.iter().map(|p| p.name.as_str()).collect();
    if routine.result.is_none() {
        names.push("ierror");
    }
    let kind = if routine.result.is_some() {
        "function"
    } else {
        "subroutine"
    };
    let bind = symbol.map_or(String::new(), |s| {
        format!(" &\n        bind(C, name=\"{s}\")")
    });
    let mut text = format!("    {kind} {name}{}{bind}\n", wrapped(&names));
    text += match binding {
        Binding::Mpi => "      use mpi_kinds\n",
        Binding::F08 => "      use mpi_f08_types\n",
    };
    if binding == Binding::F08
        && routine
            .parameters
            .iter()
            .any(|p| matches!(p.kind, Kind::Procedure(_)))
    {
        text += "      use mpi_f08_callbacks\n";
    }
    if pointers && routine.parameters.iter().any(|p| p.kind == Kind::Address) {
        text += "      use, intrinsic :: iso_c_binding, only: c_ptr\n";
    }
    text += "      implicit none\n";
    if let Some(result) = &routine.result {
        let ty = if result == "double" {
            "double precision"
        } else {
            "integer(MPI_ADDRESS_KIND)"
        };
        writeln!(text, "      {ty} :: {name}").expect("a string grows");
    }
    for p in &routine.parameters {
        text += &declaration(routine, p, binding, pointers);
    }
    if routine.result.is_none() {
        text += match binding {
            Binding::Mpi => "      integer, intent(out) :: ierror\n",
            Binding::F08 => "      integer, optional, intent(out) :: ierror\n",
        };
    }
    format!("{text}    end {kind}\n")
}

fn declaration(routine: &Routine, p: &Parameter, binding: Binding, pointers: bool) -> String {
    let name = &p.name;
    let intent = match p.intent {
        Intent::In => ", intent(in)",
        Intent::Out => ", intent(out)",
        Intent::InOut => ", intent(inout)",
    };
    let modern = binding == Binding::F08;
    let handle = |handle: &str| {
        if modern {
            format!("type(MPI_{handle})")
        } else {
            "integer".to_string()
        }
    };
    let line = match &p.kind {
        Kind::Buffer(_) if modern => {
            let intent = if p.constant() { ", intent(in)" } else { "" };
            format!("type(*), dimension(..), asynchronous{intent} :: {name}")
        }
        Kind::Address if pointers && (modern || name == "baseptr") => {
            format!("type(c_ptr), intent(out) :: {name}")
        }
        Kind::Address if name == "baseptr" => {
            format!("integer(MPI_ADDRESS_KIND), intent(out) :: {name}")
        }
        Kind::Buffer(_) | Kind::Address => {
            // Without an intent: what is passed may be a constant that only marks a place.
            format!(
                "type(*), dimension(*) :: {name}\n      !GCC$ ATTRIBUTES NO_ARG_CHECK :: {name}\n      \
                 !DIR$ IGNORE_TKR {name}"
            )
        }
        Kind::Integer(w, _) => format!("{}{intent} :: {name}", integer(*w)),
        Kind::Integers(w) => {
            // MPI_ERRCODES_IGNORE is not to be defined by a call, as an intent would say.
            let intent = if name == "array_of_errcodes" {
                ""
            } else {
                intent
            };
            format!("{}{intent} :: {name}(*)", integer(*w))
        }
        Kind::Logical(_) => format!("logical{intent} :: {name}"),
        Kind::Logicals(_) => format!("logical{intent} :: {name}(*)"),
        Kind::Weights => format!(
            "integer{} :: {name}(*)",
            if p.intent == Intent::In { intent } else { "" }
        ),
        Kind::Handle(h, _) => format!("{}{intent} :: {name}", handle(h)),
        Kind::Handles(h, _) => format!("{}{intent} :: {name}(*)", handle(h)),
        Kind::Status | Kind::Statuses => {
            let array = p.kind == Kind::Statuses;
            let intent = if routine.name.contains("_set_") || p.intent == Intent::In {
                intent
            } else {
                ""
            };
            match (modern, array) {
                (true, false) => format!("type(MPI_Status){intent} :: {name}"),
                (true, true) => format!("type(MPI_Status){intent} :: {name}(*)"),
                (false, false) => format!("integer{intent} :: {name}(MPI_STATUS_SIZE)"),
                (false, true) => format!("integer{intent} :: {name}(MPI_STATUS_SIZE,*)"),
            }
        }
        Kind::Text | Kind::TextOut(_) => format!("character(len=*){intent} :: {name}"),
        Kind::Texts => format!("character(len=*){intent} :: {name}(*)"),
        Kind::TextMatrix => format!("character(len=*){intent} :: {name}(count,*)"),
        Kind::Triples => format!("integer{intent} :: {name}(3,*)"),
        Kind::Procedure(function) if modern => format!("procedure({function}) :: {name}"),
        Kind::Procedure(_) => format!("external :: {name}"),
    };
    format!("      {line}\n")
}

fn integer(width: Width) -> &'static str {
    match width {
        Width::Int => "integer",
        Width::Aint => "integer(MPI_ADDRESS_KIND)",
        Width::Count => "integer(MPI_COUNT_KIND)",
        Width::Offset => "integer(MPI_OFFSET_KIND)",
    }
}

/// Returns a list in parentheses, in lines that Fortran takes.
fn wrapped(names: &[&str]) -> String {
    let mut text = "(".to_string();
    let mut width = 50;
    for (i, name) in names.iter().enumerate() {
        if i > 0 {
            text.push_str(", ");
        }
        if width + name.len() > 110 {
            text.push_str("&\n        ");
            width = 8;
        }
        width += name.len() + 2;
        text += name;
    }
    text + ")"
}
