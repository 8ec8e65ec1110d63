//! MPL: `mpl.h` and the source of `libmpl`.

use std::fmt::Write as _;
use std::path::Path;

use super::{
    Definition, Forms, Printed, TEXT, constants, defines, definitions, fortran_parameters, head,
    read,
};

pub(super) const FOLDER: &str = "abi/mpl/src";
pub(super) const CONSTANTS: &str = "run/mpl/src/error.rs";

/// Begins the source of `libmpl`.
const PRELUDE: &str = r#"/* libmpl: the names of MPL for the functions of libmpi_abi. Printed by `cargo xtask stage`. */
#include <stddef.h>
#include "mpl.h"
#undef mpc_brecv
#undef mpc_bvrecv
#undef mpc_bsendrecv
#undef mpc_wait
#undef mpc_probe

/* The address of Fortran's integer, marked by its lowest bit. */
#define INTEGER(place) ((void *)((size_t)(place) | 1))

void margay_mpl_start(int *mperrno, const size_t *functions);
void margay_mpl_failed(void);
int margay_mpl_status(int msgid);

"#;

/// Returns the header and the symbols.
///
/// # Errors
/// When a source cannot be read or understood.
pub fn print(root: &Path) -> Result<Printed, String> {
    let all = definitions(&root.join(FOLDER), "mpl")?;
    let defines = defines(&constants(&root.join(CONSTANTS))?);
    let own = ["start", "failed", "status"];
    let mut symbols: Vec<String> = own.iter().map(|n| format!("margay_mpl_{n}")).collect();
    let mut prototypes = String::new();
    for definition in &all {
        let Definition { name, doc, .. } = definition;
        let parameters: Vec<String> = forms(definition)?.into_iter().map(|f| f.c).collect();
        let own = head("int", &format!("mpc_{name}"), &parameters);
        write!(prototypes, "/* {doc} */\n{own};\n").expect("a string grows");
        symbols.push(format!("margay_mpl_{name}"));
    }
    let header = read(&root.join("abi/mpl/mpl.h.in"))?
        .replace("@constants@\n", &defines)
        .replace("@prototypes@\n", &prototypes);
    Ok(Printed {
        files: vec![("abi/mpl/include/mpl.h", header)],
        symbols,
    })
}

/// Returns the source of `libmpl`. Fortran's subroutines have an underscore at the end. Without it
/// they are for C programs, which called them on the SP1, and return what the calls for C return.
///
/// # Errors
/// As [`print()`].
pub fn source(root: &Path) -> Result<String, String> {
    let mut text = format!("{PRELUDE}{TEXT}");
    for definition in definitions(&root.join(FOLDER), "mpl")? {
        let name = &definition.name;
        let all = forms(&definition)?;
        let of = |pick: fn(&Forms) -> String| all.iter().map(pick).collect::<Vec<_>>();
        let inner = format!("margay_mpl_{name}");
        let declared = head("int", &inner, &of(|f| f.inner.clone()));
        let c = head("int", &format!("mpc_{name}"), &of(|f| f.c.clone()));
        let pass = of(|f| f.c_pass.clone()).join(", ");
        write!(text, "{declared};\n{c} {{ return {inner}({pass}); }}\n").expect("a string grows");
        let by_reference = of(|f| f.fortran.clone().unwrap_or_default());
        let pass = of(|f| {
            if f.is_text {
                &f.c_pass
            } else {
                &f.fortran_pass
            }
            .clone()
        })
        .join(", ");
        let own = head("int", &format!("mp_{name}"), &by_reference);
        writeln!(text, "{own} {{ return {inner}({pass}); }}").expect("a string grows");
        let pass = of(|f| f.fortran_pass.clone()).join(", ");
        let (result, call) = match definition.result {
            None => (None, format!("{inner}({pass})")),
            Some(_) => (Some("int *result"), format!("(*result = {inner}({pass}))")),
        };
        let parameters = fortran_parameters(&definition, &all, result);
        let own = head("void", &format!("mp_{name}_"), &parameters);
        writeln!(text, "{own} {{ if ({call} < 0) margay_mpl_failed(); }}").expect("a string grows");
    }
    Ok(text + "\n" + &read(&root.join("abi/mpl/start.c"))?)
}

fn forms(definition: &Definition) -> Result<Vec<Forms>, String> {
    let form = |(name, ty): &(String, String)| {
        // The declaration in C, of the inner function and in Fortran, and what Fortran hands on.
        let (c, inner, fortran, pass) = match ty.as_str() {
            "c_int" => ("int @", "int", "int *@", "*@"),
            "usize" => ("size_t @", "size_t", "int *@", "(size_t)*@"),
            "Bytes" => ("const void *@", "const void *", "const void *@", "@"),
            "Room" => ("void *@", "void *", "void *@", "@"),
            "Ints" => ("int *@", "int *", "int *@", "@"),
            "SizePlace" => ("size_t *@", "void *", "int *@", "INTEGER(@)"),
            "Text" => ("const char *@", "const char *", "const char *@", "TEXT(@)"),
            "Routine" => (
                "void (*@)(int *)",
                "void (*)(int *)",
                "void (*@)(int *)",
                "@",
            ),
            "Function" => (
                "void (*@)(MPL_OPERANDS)",
                "void (*)(MPL_OPERANDS)",
                "void (*@)(MPL_OPERANDS)",
                "@",
            ),
            _ => return None,
        };
        let named = |text: &str| text.replace('@', name);
        Some(Forms {
            c: named(c),
            c_pass: name.clone(),
            inner: inner.to_owned(),
            fortran: Some(named(fortran)),
            fortran_pass: named(pass),
            is_text: ty == "Text",
        })
    };
    let all = definition
        .parameters
        .iter()
        .map(form)
        .collect::<Option<_>>();
    all.ok_or_else(|| format!("{}: no C type for a parameter", definition.name))
}
