//! MLP: `mlp.h`, `fmlp.h` and the source that gives the functions of `libmlp` their names.
//!
//! Unlike NX and MPL it has nothing to do with the engine of `libmpi_abi`, so the Rust code is in
//! the library itself.

use std::fmt::Write as _;
use std::path::Path;

use super::{
    Definition, Forms, Printed, TEXT, constants, defines, definitions, fortran_constants,
    fortran_parameters, head, jump, read,
};

pub(super) const FOLDER: &str = "abi/mlp/src";
pub(super) const CONSTANTS: &str = "run/mlp/src/constants.rs";

/// Begins the source.
const PRELUDE: &str = r#"/* libmlp: the names of MLP. Printed by `cargo xtask stage`. */
#include "mlp.h"

/* A text of C's for Fortran: blanks from its end on. */
static void filled(char *text, size_t length) {
    size_t at = 0;
    while (at < length && text[at]) at++;
    while (at < length) text[at++] = ' ';
}

"#;

/// Headers; no symbols of `libmpi_abi`.
///
/// # Errors
/// When a source cannot be read or understood.
pub fn print(root: &Path) -> Result<Printed, String> {
    let all = definitions(&root.join(FOLDER), "mlp")?;
    let numbers = constants(&root.join(CONSTANTS))?;
    let defines = defines(&numbers);
    let mut prototypes = String::new();
    for definition in &all {
        let Definition { name, doc, .. } = definition;
        let parameters: Vec<String> = forms(definition)?.into_iter().map(|f| f.c).collect();
        let own = head(result(definition)?.0, name, &parameters);
        write!(prototypes, "/* {doc} */\n{own};\n").expect("a string grows");
    }
    let header = read(&root.join("abi/mlp/mlp.h.in"))?
        .replace("@constants@\n", &defines)
        .replace("@prototypes@\n", &prototypes);
    let files = vec![
        ("abi/mlp/include/mlp.h", header),
        ("abi/mlp/include/fmlp.h", fortran_header(&all, &numbers)?),
    ];
    Ok(Printed {
        files,
        symbols: Vec::new(),
    })
}

/// Returns the source.
///
/// # Errors
/// As [`print()`].
pub fn source(root: &Path) -> Result<String, String> {
    let mut text = format!("{PRELUDE}{TEXT}");
    for definition in definitions(&root.join(FOLDER), "mlp")? {
        let name = &definition.name;
        let all = forms(&definition)?;
        let ((c_result, fortran_result), inner) =
            (result(&definition)?, format!("margay_mlp_{name}"));
        let of = |pick: fn(&Forms) -> &String| all.iter().map(|f| pick(f).clone()).collect();
        let (c, declared, pass): (Vec<String>, Vec<String>, Vec<String>) =
            (of(|f| &f.c), of(|f| &f.inner), of(|f| &f.c_pass));
        writeln!(text, "{};", head(c_result, &inner, &declared)).expect("a string grows");
        jump(&mut text, &head(c_result, name, &c), &inner, &pass, false);

        let parameters = fortran_parameters(&definition, &all, None);
        let pass: Vec<String> = of(|f| &f.fortran_pass);
        let own = head(fortran_result.0, &format!("{name}_"), &parameters);
        let call = format!("{inner}({})", pass.join(", "));
        let room = definition.parameters.iter().find(|(_, ty)| ty == "Room");
        let body = match (room, fortran_result.0) {
            (Some((room, _)), ty) => {
                format!("{ty} all = {call}; filled({room}, {room}_length); return all;")
            }
            (None, "void") => format!("{call};"),
            (None, _) => format!("return {call};"),
        };
        writeln!(text, "{own} {{ {body} }}").expect("a string grows");
    }
    Ok(text)
}

/// Returns the functions that the library has, for the linker: these, and none of those that they
/// are made of.
///
/// # Errors
/// As [`print()`].
pub fn exports(root: &Path) -> Result<String, String> {
    let mut text = String::from("{\n  global:\n");
    for Definition { name, .. } in definitions(&root.join(FOLDER), "mlp")? {
        writeln!(text, "    {name}; {name}_;").expect("a string grows");
    }
    Ok(text + "  local: *;\n};\n")
}

/// C's type of the result, and Fortran's: as C knows it and as Fortran does, none for a subroutine.
/// An address is a number in Fortran.
#[allow(clippy::type_complexity)]
fn result(
    definition: &Definition,
) -> Result<(&'static str, (&'static str, Option<&'static str>)), String> {
    const LONG: &str = "integer(selected_int_kind(18))";
    Ok(
        match (definition.name.as_str(), definition.result.as_deref()) {
            // The subroutine of the paper; an error ends the process, or can be asked for.
            ("forkit", _) => ("int", ("void", None)),
            (_, Some("c_int")) => ("int", ("int", Some("integer"))),
            (_, Some("c_long")) => ("long", ("long", Some(LONG))),
            (_, Some("Address")) => ("void *", ("void *", Some(LONG))),
            (name, other) => return Err(format!("{name}: no C type for {other:?}")),
        },
    )
}

fn forms(definition: &Definition) -> Result<Vec<Forms>, String> {
    let has_room = definition.parameters.iter().any(|(_, ty)| ty == "Room");
    let form = |(name, ty): &(String, String)| {
        // The declarations in C and of the inner function, and Fortran's with what is handed on.
        let (c, inner, fortran, pass) = match ty.as_str() {
            "c_int" => ("int @", "int", "int *@", "*@"),
            // The size of the room for a text, which Fortran passes by itself.
            "usize" if has_room => ("size_t @", "size_t", "", "text_length"),
            "usize" => ("size_t @", "size_t", "long *@", "(size_t)*@"),
            "Ints" => ("const int @[]", "const int *", "const int *@", "@"),
            "IntPlace" | "Lock" => ("int *@", "int *", "int *@", "@"),
            "SizePlace" => ("size_t *@", "size_t *", "long *@", "(size_t *)@"),
            "Text" => ("const char *@", "const char *", "const char *@", "TEXT(@)"),
            "Room" => ("char *@", "char *", "char *@", "@"),
            _ => return None,
        };
        let named = |text: &str| text.replace('@', name);
        Some(Forms {
            c: named(c),
            c_pass: name.clone(),
            inner: inner.to_owned(),
            fortran: (!fortran.is_empty()).then(|| named(fortran)),
            fortran_pass: named(pass),
            is_text: ty == "Text" || ty == "Room",
        })
    };
    let all = definition
        .parameters
        .iter()
        .map(form)
        .collect::<Option<_>>();
    all.ok_or_else(|| format!("{}: no C type for a parameter", definition.name))
}

/// `fmlp.h`, for fixed and free form: interfaces, so that the compiler checks the calls.
fn fortran_header(all: &[Definition], numbers: &[(String, i64, String)]) -> Result<String, String> {
    let mut text = String::from(
        "! fmlp.h: Multi-Level Parallelism, Margay.\n! Printed by `cargo xtask header`; see docs/mlp.md.\n",
    );
    text += &fortran_constants(numbers);
    text += "      interface\n";
    for definition in all {
        let name = &definition.name;
        let ty = result(definition)?.1.1;
        let kind = if ty.is_some() {
            "function"
        } else {
            "subroutine"
        };
        let with: Vec<(&String, String)> = definition
            .parameters
            .iter()
            .filter_map(|(name, ty)| Some((name, fortran_type(definition, name, ty)?)))
            .collect();
        let names: Vec<&str> = with.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(text, "      {kind} {name}({})", names.join(", ")).expect("a string grows");
        for (parameter, declared) in &with {
            writeln!(text, "      {declared} {parameter}").expect("a string grows");
        }
        if let Some(ty) = ty {
            writeln!(text, "      {ty} {name}").expect("a string grows");
        }
        writeln!(text, "      end {kind}").expect("a string grows");
    }
    Ok(text + "      end interface\n")
}

/// Returns how Fortran declares a parameter; none when it has it not.
fn fortran_type(definition: &Definition, name: &str, ty: &str) -> Option<String> {
    let has_room = definition.parameters.iter().any(|(_, ty)| ty == "Room");
    Some(match ty {
        "usize" if has_room => return None,
        "usize" | "SizePlace" => "integer(selected_int_kind(18))".into(),
        "Ints" => "integer, dimension(*) ::".into(),
        "Text" | "Room" => "character(len=*)".into(),
        _ if name.is_empty() => return None,
        _ => "integer".into(),
    })
}
