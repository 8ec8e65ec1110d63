//! NX: `nx.h`, `fnx.h` and the source of `libnx`.

use std::fmt::Write as _;
use std::path::Path;

use super::{
    Definition, Forms, Printed, TEXT, constants, defines, definitions, fortran_constants,
    fortran_parameters, head, jump, read,
};

pub(super) const FOLDER: &str = "abi/nx/src";
pub(super) const CONSTANTS: &str = "run/nx/src/constants.rs";

/// Functions with as many arguments as the caller likes, with the parameters that they have in C:
/// their prototypes and bodies are written by hand.
const VARIADIC: [(&str, &str); 2] = [
    ("nx_initve_attr", "part, argc, argv, ..."),
    ("nx_mkpart_attr", "name, ..."),
];

/// Functions of `files.c` that return a number in Fortran.
const FILES: [&str; 9] = [
    "iomode", "iread", "iwrite", "iodone", "iseof", "lsize", "ecmp", "ediv", "emod",
];

/// Functions whose form for Fortran is written by hand, in `start.c`: lists of attributes are
/// arrays there, and arrays that C gets from the library are the caller's.
const BY_HAND: [&str; 7] = [
    "nx_mkpart_attr",
    "nx_initve_attr",
    "nx_part_nodes",
    "nx_pspart",
    "nx_empty_nodes",
    "nx_failed_nodes",
    "nx_app_nodes",
];

/// Returns the parameters of a function with as many arguments as the caller likes; `None` for all
/// others.
pub(super) fn variadic(name: &str) -> Option<&'static str> {
    let found = VARIADIC.iter().find(|(variadic, _)| *variadic == name);
    found.map(|(_, parameters)| *parameters)
}

/// Begins the source of `libnx`.
const PRELUDE: &str = r#"/* libnx: the names of NX for the functions of libmpi_abi. Printed by `cargo xtask stage`. */
#include <stddef.h>
#include "nx.h"

struct routine {
    void (*routine)(void);
    long fortran;
};

/* A program without prototypes passes an int where a long is wanted: a number below zero has lost the upper half of its signs. */
#define SMALL(number) ((number) >> 31 == 1 ? (long)(int)(number) : (number))

/* The address of Fortran's integers, marked by its lowest bit. */
#define INTEGERS(place) ((void *)((size_t)(place) | 1))

void margay_nx_start(void *msginfo, int controls);

"#;

/// Headers and symbols.
///
/// # Errors
/// When a source cannot be read or understood.
pub fn print(root: &Path) -> Result<Printed, String> {
    let all = definitions(&root.join(FOLDER), "nx")?;
    let numbers = constants(&root.join(CONSTANTS))?;
    let defines = defines(&numbers);
    let mut prototypes = String::new();
    let mut symbols = vec!["margay_nx_start".to_owned()];
    for definition in &all {
        let parameters = c_parameters(definition)?;
        let (result, twin) = results(definition)?;
        let Definition { name, doc, .. } = definition;
        let plain = head(result, name, &parameters);
        let other = head(twin, &format!("_{name}"), &parameters);
        if variadic(name).is_none() {
            write!(prototypes, "/* {doc} */\n{plain};\n{other};\n").expect("a string grows");
        }
        symbols.push(format!("margay_nx_{name}"));
        symbols.push(format!("margay_nx__{name}"));
    }
    let header = read(&root.join("abi/nx/nx.h.in"))?
        .replace("@constants@\n", &defines)
        .replace("@prototypes@\n", &prototypes);
    let files = vec![
        ("abi/nx/include/nx.h", header),
        ("abi/nx/include/fnx.h", fortran_header(&all, &numbers)?),
    ];
    Ok(Printed { files, symbols })
}

/// Returns the source of `libnx`.
///
/// # Errors
/// As [`print()`].
pub fn source(root: &Path) -> Result<String, String> {
    let mut text = format!("{PRELUDE}{TEXT}");
    for definition in definitions(&root.join(FOLDER), "nx")? {
        let name = &definition.name;
        let forms = all_forms(&definition)?;
        let (result, twin) = results(&definition)?;
        let of = |pick: fn(&Forms) -> &String| forms.iter().map(|f| pick(f).clone()).collect();
        let inner: Vec<String> = of(|f| &f.inner);
        let c: Vec<String> = of(|f| &f.c);
        let pass: Vec<String> = of(|f| &f.c_pass);
        for (result, mark) in [(result, ""), (twin, "_")] {
            let function = format!("margay_nx_{mark}{name}");
            writeln!(text, "{};", head(result, &function, &inner)).expect("a string grows");
            if variadic(name).is_some() {
                continue;
            }
            let own = head(result, &format!("{mark}{name}"), &c);
            jump(&mut text, &own, &function, &pass, result == "void");
        }
        if !is_for_fortran(&definition) {
            continue;
        }
        let parameters = fortran_parameters(&definition, &forms, None);
        let pass: Vec<String> = of(|f| &f.fortran_pass);
        let own = head(fortran_result(result), &format!("{name}_"), &parameters);
        jump(
            &mut text,
            &own,
            &format!("margay_nx_{name}"),
            &pass,
            result == "void",
        );
    }
    for name in ["nx/start.c", "pfs/way.h", "nx/files.c"] {
        text = text + "\n" + &read(&root.join("abi").join(name))?;
    }
    Ok(text)
}

fn fortran_result(c: &str) -> &str {
    match c {
        "long" | "unsigned long" => "int",
        other => other,
    }
}

/// Returns the C types of the result of a function and of its twin.
fn results(definition: &Definition) -> Result<(&'static str, &'static str), String> {
    Ok(match definition.result.as_deref() {
        None => ("void", "long"),
        Some("c_long") => ("long", "long"),
        Some("c_ulong") => ("unsigned long", "long"),
        Some("c_double") => ("double", "double"),
        Some(other) => return Err(format!("{}: no C type for {other}", definition.name)),
    })
}

/// Whether Fortran has it.
pub(super) fn has_fortran(definition: &Definition) -> bool {
    is_for_fortran(definition) || BY_HAND.contains(&definition.name.as_str())
}

/// Whether its form for Fortran is printed. Lists of strings are C's alone.
fn is_for_fortran(definition: &Definition) -> bool {
    let mut types = definition.parameters.iter().map(|(_, ty)| ty.as_str());
    variadic(&definition.name).is_none()
        && !types.any(|ty| matches!(ty, "Strings" | "LongsPlace" | "Applications"))
}

fn c_parameters(definition: &Definition) -> Result<Vec<String>, String> {
    Ok(all_forms(definition)?.into_iter().map(|f| f.c).collect())
}

fn all_forms(definition: &Definition) -> Result<Vec<Forms>, String> {
    let forms = definition
        .parameters
        .iter()
        .map(|(name, ty)| forms(name, ty));
    forms
        .collect::<Option<_>>()
        .ok_or_else(|| format!("{}: no C type for a parameter", definition.name))
}

fn forms(name: &str, ty: &str) -> Option<Forms> {
    // The declarations in C and of the inner function, and what Fortran has: its declaration and
    // what is handed on.
    let (c, inner, fortran, fortran_pass) = match ty {
        "c_long" | "Small" => ("long @", "long", "int *@", "*@"),
        "Bytes" => ("const void *@", "const void *", "const void *@", "@"),
        "Room" => ("void *@", "void *", "void *@", "@"),
        "Longs" => ("long @[]", "void *", "int *@", "INTEGERS(@)"),
        "Esize" => ("esize_t *@", "void *", "int *@", "INTEGERS(@)"),
        "PartInfo" => ("nx_part_info_t *@", "void *", "int *@", "INTEGERS(@)"),
        "NodeInfo" => ("nx_node_info_t *@", "void *", "int *@", "INTEGERS(@)"),
        "Cubes" => ("cubetable_t *@", "void *", "int *@", "INTEGERS(@)"),
        "Applications" => ("nx_pspart_t **@", "void *", "", "0"),
        "Text" => ("const char *@", "const char *", "const char *@", "TEXT(@)"),
        "Strings" => ("char *@[]", "char **", "", "0"),
        "LongsPlace" => ("long **@", "long **", "", "0"),
        "Argc" => ("int *@", "int *", "", "0"),
        "Argv" => ("char *@[]", "char **", "", "0"),
        "Handler" => (
            "void (*@)(long, long, long, long)",
            "struct routine",
            "void (*@)(void)",
            "(struct routine){@, 1}",
        ),
        "XHandler" => (
            "void (*@)(long)",
            "struct routine",
            "void (*@)(void)",
            "(struct routine){@, 1}",
        ),
        "Combine" => (
            "long (*@)(NX_OPERANDS)",
            "long (*)(NX_OPERANDS)",
            "long (*@)(NX_OPERANDS)",
            "@",
        ),
        "Routine" => (
            "void (*@)(void *)",
            "void (*)(void *)",
            "void (*@)(void *)",
            "@",
        ),
        _ => return None,
    };
    let named = |text: &str| text.replace('@', name);
    let c_pass = match inner {
        _ if ty == "Small" => format!("SMALL({name})"),
        "struct routine" => format!("(struct routine){{(void (*)(void)){name}, 0}}"),
        _ => name.to_owned(),
    };
    Some(Forms {
        c: named(c),
        c_pass,
        inner: inner.to_owned(),
        fortran: (!fortran.is_empty()).then(|| named(fortran)),
        fortran_pass: named(fortran_pass),
        is_text: ty == "Text",
    })
}

/// `fnx.h`, for fixed and free form.
fn fortran_header(all: &[Definition], numbers: &[(String, i64, String)]) -> Result<String, String> {
    let mut text = String::from(
        "! fnx.h: the NX message-passing library, Margay.\n! Printed by `cargo xtask header`; see docs/nx.md.\n",
    );
    for definition in all.iter().filter(|d| has_fortran(d)) {
        let ty = match results(definition)?.0 {
            "void" => continue,
            "double" => "double precision",
            _ => "integer",
        };
        let name = &definition.name;
        writeln!(text, "      {ty} {name}\n      external {name}").expect("a string grows");
    }
    for name in FILES {
        writeln!(text, "      integer {name}\n      external {name}").expect("a string grows");
    }
    Ok(text + &fortran_constants(numbers))
}
