//! The calls and the errors of NX, MPL and MLP as tables for their guides, from the same
//! definitions as their headers.

use std::fmt::Write as _;
use std::path::Path;

use super::{Definition, constants, definitions_of_file, mlp, mpl, nx, parse, rust_files};

/// A library as its guide shows it.
struct Library {
    /// The name of its guide and of its macro.
    name: &'static str,
    folder: &'static str,
    constants: &'static str,
    /// What begins the numbers of its errors.
    error: &'static str,
    /// Before the name that a definition has.
    prefix: &'static str,
    /// The function's name in Fortran where it has one.
    fortran: fn(&Definition) -> Option<String>,
}

const LIBRARIES: [Library; 3] = [
    Library {
        name: "nx",
        folder: nx::FOLDER,
        constants: nx::CONSTANTS,
        error: "EQ",
        prefix: "",
        fortran: |definition| nx::has_fortran(definition).then(|| definition.name.clone()),
    },
    Library {
        name: "mpl",
        folder: mpl::FOLDER,
        constants: mpl::CONSTANTS,
        error: "MPL_",
        prefix: "mpc_",
        fortran: |definition| Some(format!("mp_{}", definition.name)),
    },
    Library {
        name: "mlp",
        folder: mlp::FOLDER,
        constants: mlp::CONSTANTS,
        error: "MLP_ERR_",
        prefix: "",
        fortran: |definition| Some(definition.name.clone()),
    },
];

/// Returns the list `NAME calls` or `NAME errors` of a library; `None` when there is no such list.
///
/// # Errors
/// When a source cannot be read or understood.
pub fn list(root: &Path, name: &str) -> Result<Option<String>, String> {
    let Some((library, kind)) = name.split_once(' ') else {
        return Ok(None);
    };
    let Some(library) = LIBRARIES.iter().find(|l| l.name == library) else {
        return Ok(None);
    };
    Ok(match kind {
        "calls" => Some(calls(root, library)?),
        "errors" => Some(errors(root, library)?),
        _ => None,
    })
}

/// A table for each file of definitions, under the line that describes the file.
fn calls(root: &Path, library: &Library) -> Result<String, String> {
    let mut text = String::new();
    for file in rust_files(&root.join(library.folder))? {
        let all = definitions_of_file(&file, library.name)?;
        if all.is_empty() {
            continue;
        }
        let about = about(&file)?;
        write!(
            text,
            "\n{about}\n\n| C | Fortran | |\n| --- | --- | --- |\n"
        )
        .expect("a string grows");
        for definition in &all {
            let parameters: Vec<&str> = definition
                .parameters
                .iter()
                .map(|(name, _)| name.as_str())
                .collect();
            let parameters = match nx::variadic(&definition.name) {
                Some(parameters) => parameters.to_owned(),
                None => parameters.join(", "),
            };
            let fortran = match (library.fortran)(definition) {
                Some(name) => format!("`{name}`"),
                None => "none".to_owned(),
            };
            writeln!(
                text,
                "| `{}{}({parameters})` | {fortran} | {} |",
                library.prefix, definition.name, definition.doc
            )
            .expect("a string grows");
        }
    }
    text.push('\n');
    Ok(text)
}

/// The first paragraph of a file's own comment.
fn about(file: &Path) -> Result<String, String> {
    let lines = parse(file)?.attrs;
    let text = super::paragraph(lines.iter().filter_map(super::doc));
    if text.is_empty() {
        return Err(format!("{}: no comment says what is in it", file.display()));
    }
    Ok(text)
}

fn errors(root: &Path, library: &Library) -> Result<String, String> {
    let mut text = String::from("\n| error | number | |\n| --- | --- | --- |\n");
    for (name, number, about) in constants(&root.join(library.constants))? {
        if name.starts_with(library.error) {
            writeln!(text, "| `{name}` | {number} | {about} |").expect("a string grows");
        }
    }
    text.push('\n');
    Ok(text)
}
