//! The C side: for each function the symbols that Fortran calls, which convert the arguments and
//! call C.

use std::fmt::Write as _;

use super::model::{Kind, Parameter, Routine, Width};
use super::table::{self, Intent, Passing};

const HEAD: &str = "/* Printed by `cargo xtask fortran` from the definitions of the functions; change those, not this file. */
#include \"glue.h\"
";

/// Whose programs call the functions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// Those of the standard ABI, with Margay's modules.
    Standard,
    /// MPICH's: `mpi_f08` passes the descriptors of gfortran, and large counts have names that end
    /// with `large`.
    Mpich,
    /// Open MPI's: `mpi_f08` passes addresses and has no large counts.
    OpenMpi,
}

/// Returns all functions but those that are written by hand.
pub fn print(routines: &[Routine], callers: Callers) -> String {
    let mut text = HEAD.to_string();
    for routine in routines {
        if table::is_by_hand(&routine.name) {
            continue;
        }
        let forms = forms(routine, callers);
        if forms.contains(&Form::Classic) {
            text += &function(routine, Form::Classic);
            if routine.puts_address() {
                writeln!(
                    text,
                    "SAME_WITH_POINTER({}, {})",
                    routine.lower,
                    signature(routine, Form::Classic)
                )
                .expect("a string grows");
            }
        }
        if forms.contains(&Form::Same) {
            writeln!(
                text,
                "SAME_IN_F08({}, {})",
                routine.lower,
                signature(routine, Form::Classic)
            )
            .expect("a string grows");
        }
        for form in forms {
            if ![Form::Classic, Form::Same].contains(&form) {
                text += &function(routine, form);
            }
        }
    }
    text
}

/// The conventions of a symbol.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `mpi_send_`: buffers by their addresses, the lengths of texts behind all parameters.
    Classic,
    /// `mpi_type_size_f08_`: another name of the first.
    Same,
    /// `mpi_send_f08ts_`: buffers and texts by descriptors.
    Descriptors,
    /// `mpi_type_size_c_f08_`: like the first.
    Large,
    /// `mpi_send_f08ts_` of MPICH: buffers by gfortran's own descriptors, texts like the first.
    Gfortran,
    /// `mpi_type_size_f08_large_` of MPICH: like the first.
    GfortranLarge,
}

impl Form {
    /// Whether buffers have descriptors.
    fn describes(self) -> bool {
        matches!(self, Form::Descriptors | Form::Gfortran)
    }

    /// The symbol without its first `mpi_` and its last underscore.
    fn name(self, routine: &Routine) -> String {
        let lower = &routine.lower;
        let (base, large) = match lower.strip_suffix("_c") {
            Some(base) if routine.large => (base, "_large"),
            _ => (lower.as_str(), ""),
        };
        match self {
            Form::Classic => lower.clone(),
            Form::Same | Form::Large => format!("{lower}_f08"),
            Form::Descriptors => format!("{lower}_f08ts"),
            Form::Gfortran => format!("{base}_f08ts{large}"),
            Form::GfortranLarge => format!("{base}_f08{large}"),
        }
    }
}

fn forms(routine: &Routine, callers: Callers) -> Vec<Form> {
    let mut forms = Vec::new();
    let by_address = !routine.has_buffer() || callers == Callers::OpenMpi;
    if routine.is_classic() {
        forms.push(Form::Classic);
        if routine.is_modern() && by_address {
            forms.push(Form::Same);
        }
    }
    match callers {
        _ if !routine.is_modern() => {}
        Callers::OpenMpi => {}
        Callers::Standard if routine.has_buffer() => forms.push(Form::Descriptors),
        Callers::Standard if routine.large => forms.push(Form::Large),
        Callers::Mpich if routine.has_buffer() => forms.push(Form::Gfortran),
        Callers::Mpich if routine.large => forms.push(Form::GfortranLarge),
        _ => {}
    }
    forms
}

/// Returns further names of the symbols as a linker script: one body serves `MPI_x` and `PMPI_x`,
/// and some compilers append two underscores to names that have one.
pub fn names(routines: &[Routine], callers: Callers) -> String {
    let mut text = String::from("/* Printed by `cargo xtask stage`. */\n");
    let mut same = |name: &str, of: &str| {
        writeln!(text, "{name} = {of};").expect("a string grows");
    };
    for routine in routines {
        let by_hand = table::is_by_hand(&routine.name);
        for form in forms(routine, callers) {
            let mut name = format!("mpi_{}_", form.name(routine));
            if by_hand && routine.large && callers == Callers::Mpich {
                let large = format!("mpi_{}_f08_", routine.lower);
                name = format!("mpi_{}_", Form::GfortranLarge.name(routine));
                same(&name, &large);
            }
            // MPICH has names of its own for the PMPI procedures of mpi_f08.
            let profiled = if callers == Callers::Mpich && form != Form::Classic {
                name.replacen("mpi_", "pmpir_", 1)
            } else {
                format!("p{name}")
            };
            same(&profiled, &name);
            if form == Form::Classic {
                same(&format!("{name}_"), &name);
                same(&format!("p{name}_"), &name);
            }
        }
    }
    text
}

fn signature(routine: &Routine, form: Form) -> String {
    let mut parts: Vec<String> = routine
        .parameters
        .iter()
        .map(|p| declare(p, form))
        .collect();
    parts.push("MPI_Fint *ierror".into());
    if form != Form::Descriptors {
        for p in &routine.parameters {
            if matches!(p.kind, Kind::Text | Kind::TextOut(_)) {
                parts.push(format!("size_t {}_len", p.name));
            }
        }
    }
    format!("({})", parts.join(", "))
}

fn declare(p: &Parameter, form: Form) -> String {
    let name = &p.name;
    match &p.kind {
        Kind::Buffer(_) if form == Form::Descriptors => format!("CFI_cdesc_t *{name}"),
        Kind::Buffer(_) if form == Form::Gfortran => format!("const gfortran_array *g_{name}"),
        Kind::Text | Kind::TextOut(_) if form == Form::Descriptors => {
            format!("CFI_cdesc_t *{name}")
        }
        Kind::Buffer(_) | Kind::Address => format!("void *{name}"),
        Kind::Integer(w, _) | Kind::Integers(w) => format!("{} *{name}", integer(*w)),
        Kind::Logical(_)
        | Kind::Logicals(_)
        | Kind::Handle(..)
        | Kind::Handles(..)
        | Kind::Weights => {
            format!("MPI_Fint *{name}")
        }
        Kind::Status | Kind::Statuses => format!("MPI_Status *{name}"),
        Kind::Text | Kind::TextOut(_) | Kind::Texts | Kind::TextMatrix => format!("char *{name}"),
        Kind::Triples => format!("int (*{name})[3]"),
        Kind::Procedure(function) => format!("{function} *{name}"),
    }
}

fn integer(width: Width) -> &'static str {
    match width {
        Width::Int => "MPI_Fint",
        Width::Aint => "MPI_Aint",
        Width::Count => "MPI_Count",
        Width::Offset => "MPI_Offset",
    }
}

fn function(routine: &Routine, form: Form) -> String {
    let mut before = String::new();
    let mut after = String::new();
    let mut arguments: Vec<String> = Vec::new();
    let mut copies = Vec::new();
    for p in &routine.parameters {
        let (argument, pre, post) = convert(routine, p, form);
        arguments.push(argument);
        before += &pre;
        after += &post;
        if form == Form::Gfortran && matches!(p.kind, Kind::Buffer(_)) {
            before = format!("    DESCRIPTOR({})\n{before}", p.name);
        }
        if form.describes() && p.kind == Kind::Buffer(Passing::Scratch) {
            copies.push(p.name.as_str());
        }
    }
    // A count and a datatype that describe a section are those of its datatype.
    if form.describes() {
        for p in &routine.parameters {
            if let Kind::Buffer(Passing::Typed(count, datatype)) = p.kind {
                let narrow = routine.parameters[count].kind == Kind::Integer(Width::Int, false);
                arguments[count] =
                    format!("{}s_{}.count", if narrow { "(int)" } else { "" }, p.name);
                arguments[datatype] = format!("s_{}.type", p.name);
            }
        }
    }
    after += &end_of_copies(routine, &copies);
    let call = routine.name.trim_start_matches("MPI_");
    format!(
        "\nvoid FN({}){}\n{{\n    int e = MPI_SUCCESS;\n{before}    if (e == MPI_SUCCESS) e = CALL({call})({});\n{after}    \
         margay_done(ierror, e);\n}}\n",
        form.name(routine),
        signature(routine, form),
        arguments.join(", ")
    )
}

/// Copies of sections live as long as the operation: to the end of the call, or until its request
/// is complete.
fn end_of_copies(routine: &Routine, copies: &[&str]) -> String {
    let with_request = routine
        .parameters
        .iter()
        .any(|p| p.name == "request" && p.kind == Kind::Handle("Request".into(), true));
    match (copies, with_request) {
        ([], _) => String::new(),
        (copies, false) => copies
            .iter()
            .map(|c| format!("    margay_scratch_end(&s_{c});\n"))
            .collect(),
        (copies, true) => {
            let second = copies
                .get(1)
                .map_or("NULL".to_string(), |c| format!("&s_{c}"));
            let persistent = u8::from(routine.lower.contains("_init"));
            format!(
                "    margay_scratch_keep(e, *request, {persistent}, &s_{}, {second});\n",
                copies[0]
            )
        }
    }
}

/// Returns the argument for C, what comes before the call and what after it.
fn convert(routine: &Routine, p: &Parameter, form: Form) -> (String, String, String) {
    let name = &p.name;
    let none = String::new;
    let plain = |argument: String| (argument, none(), none());
    let text = |name: &str| {
        if form == Form::Descriptors {
            format!("{name}->base_addr, {name}->elem_len")
        } else {
            format!("{name}, {name}_len")
        }
    };
    match &p.kind {
        Kind::Buffer(passing) if form.describes() => section(routine, p, *passing),
        Kind::Buffer(_) => plain(format!("margay_buffer({name})")),
        Kind::Integer(_, false) => plain(format!("*{name}")),
        Kind::Address
        | Kind::Integer(_, true)
        | Kind::Integers(_)
        | Kind::Triples
        | Kind::Procedure(_) => plain(name.clone()),
        Kind::Logical(false) => plain(format!("margay_is_true(*{name})")),
        Kind::Logical(true) => (
            format!("&c_{name}"),
            format!("    int c_{name} = 0;\n"),
            format!("    *{name} = margay_logical(c_{name});\n"),
        ),
        Kind::Logicals(length) => {
            let put = if p.intent == Intent::In {
                format!("    free(c_{name});\n")
            } else {
                format!(
                    "    margay_logicals_out({name}, c_{name}, e == MPI_SUCCESS ? {length} : 0);\n"
                )
            };
            (
                format!("c_{name}"),
                format!("    int *c_{name} = margay_logicals({name}, {length});\n"),
                put,
            )
        }
        Kind::Weights => plain(format!("margay_weights({name})")),
        Kind::Handle(handle, false) => plain(format!("FROM_INT({}, *{name})", short(handle))),
        Kind::Handle(handle, true) => (
            format!("&c_{name}"),
            format!(
                "    MPI_{handle} c_{name} = FROM_INT({}, *{name});\n",
                short(handle)
            ),
            format!("    *{name} = TO_INT({}, c_{name});\n", short(handle)),
        ),
        Kind::Handles(handle, length) => {
            let length = match form {
                form if form.describes() => length.replace("(sendbuf)", "(sendbuf->base_addr)"),
                _ => (*length).to_string(),
            };
            let put = if p.intent == Intent::In {
                String::new()
            } else {
                format!(
                    "    if (e == MPI_SUCCESS) margay_{}_out({name}, c_{name}, {length});\n",
                    handle.to_lowercase()
                )
            };
            (
                format!("c_{name}"),
                format!(
                    "    MPI_{handle} *c_{name} = margay_{}_in({name}, {length});\n",
                    handle.to_lowercase()
                ),
                format!("{put}    free(c_{name});\n"),
            )
        }
        Kind::Status => plain(format!("margay_status({name})")),
        Kind::Statuses => plain(format!("margay_statuses({name})")),
        Kind::Text => {
            let leading = u8::from(routine.name.starts_with("MPI_Info_"));
            (
                format!("c_{name}"),
                format!(
                    "    char *c_{name} = margay_text({}, {leading});\n",
                    text(name)
                ),
                format!("    free(c_{name});\n"),
            )
        }
        Kind::TextOut(longest) => (
            format!("c_{name}"),
            format!("    char c_{name}[{longest}];\n    c_{name}[0] = 0;\n"),
            format!(
                "    if (e == MPI_SUCCESS) margay_text_out({}, c_{name});\n",
                text(name)
            ),
        ),
        Kind::Texts | Kind::TextMatrix => plain(format!("NULL /* {name} */")),
    }
}

fn short(handle: &str) -> &str {
    if handle == "Datatype" { "Type" } else { handle }
}

fn section(routine: &Routine, p: &Parameter, passing: Passing) -> (String, String, String) {
    let name = &p.name;
    match passing {
        Passing::Address => (
            format!("margay_buffer({name}->base_addr)"),
            String::new(),
            String::new(),
        ),
        Passing::Contiguous => (
            format!("margay_buffer({name}->base_addr)"),
            format!("    margay_no_gaps({name}, &e);\n"),
            String::new(),
        ),
        Passing::Typed(count, datatype) => {
            let (count, datatype) = (
                &routine.parameters[count].name,
                &routine.parameters[datatype].name,
            );
            (
                format!("s_{name}.base"),
                format!(
                    "    margay_section s_{name} = margay_section_of({name}, *{count}, FROM_INT(Type, *{datatype}), &e);\n"
                ),
                format!("    margay_section_end(&s_{name});\n"),
            )
        }
        Passing::Scratch => (
            format!("s_{name}.base"),
            format!(
                "    margay_scratch s_{name} = margay_scratch_of({name}, {}, &e);\n",
                u8::from(!p.constant())
            ),
            String::new(),
        ),
    }
}
