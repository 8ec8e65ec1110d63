//! What MPI-3 removed, in `mpi.h`: declared for programs of MPI-1, and for all others such that the
//! compiler names the way.

use std::fmt::Write as _;

use syn::Item;

use super::{Function, Part, doc, type_name, value};

/// A constant that MPI-3 removed.
struct Constant {
    name: String,
    /// Its C type.
    ty: String,
    value: String,
    successor: String,
}

const HANDLER: &str = "MPI_Handler_function";
const HANDLER_SUCCESSOR: &str = "MPI_Comm_errhandler_function";

const HEAD: &str = "\
/* What MPI-3 removed. The library always has it. Programs of MPI-1 define MARGAY_MPI1, as `mpicc -mpi1` does; in all others
 * the compiler refuses its use and says so. A name that the program has made a macro is left to it. */
#ifdef MARGAY_MPI1
typedef MPI_Comm_errhandler_function MPI_Handler_function;
";

const REFUSED: &str = "\
#else
#ifdef __has_attribute
#if __has_attribute(unavailable)
#define MARGAY_REMOVED(successor) \\
    __attribute__((unavailable(\"MPI-3 removed it; use \" successor \", or compile with 'mpicc -mpi1' (-DMARGAY_MPI1)\")))
#elif __has_attribute(error)
#define MARGAY_REMOVED(successor) \\
    __attribute__((error(\"MPI-3 removed it; use \" successor \", or compile with 'mpicc -mpi1' (-DMARGAY_MPI1)\")))
#endif
#endif
#ifdef MARGAY_REMOVED
";

/// Both forms of the declarations.
pub(super) fn declarations(file: &syn::File, functions: &[Function]) -> Result<String, String> {
    let constants = constants(file)?;
    let mut text = HEAD.to_string();
    let line = |text: &mut String, name: &str, declaration: &str| {
        writeln!(text, "#ifndef {name}\n{declaration}\n#endif").expect("a string grows");
    };
    for c in &constants {
        let value = match c.ty.as_str() {
            "int" => c.value.clone(),
            ty => format!("(({ty}){})", c.value),
        };
        line(&mut text, &c.name, &format!("#define {} {value}", c.name));
    }
    let removed: Vec<(&Function, &str)> = functions
        .iter()
        .filter_map(|f| Some((f, f.removed.as_deref()?)))
        .collect();
    for prefix in ["", "P"] {
        for (f, _) in &removed {
            line(
                &mut text,
                &format!("{prefix}{}", f.name),
                &format!("{};", f.prototype(prefix)),
            );
        }
    }
    text += REFUSED;
    for prefix in ["", "P"] {
        for (f, successor) in &removed {
            // The type of a handler is refused itself.
            let prototype = f.prototype(prefix).replace(HANDLER, HANDLER_SUCCESSOR);
            let declaration = format!("MARGAY_REMOVED(\"{prefix}{successor}\") {prototype};");
            line(&mut text, &format!("{prefix}{}", f.name), &declaration);
        }
    }
    writeln!(
        text,
        "#if __has_attribute(unavailable)\nMARGAY_REMOVED(\"{HANDLER_SUCCESSOR}\") \
         typedef void({HANDLER})(MPI_Comm *, int *, ...);"
    )
    .expect("a string grows");
    for c in &constants {
        let declaration = format!(
            "MARGAY_REMOVED(\"{}\") extern const {} {};",
            c.successor, c.ty, c.name
        );
        line(&mut text, &c.name, &declaration);
    }
    Ok(text + "#endif\n#undef MARGAY_REMOVED\n#endif\n#endif\n\n")
}

fn constants(file: &syn::File) -> Result<Vec<Constant>, String> {
    let mut all = Vec::new();
    for item in &file.items {
        let Item::Mod(module) = item else { continue };
        if Part::of(&module.ident.to_string()) != Part::Removed {
            continue;
        }
        let (_, items) = module.content.as_ref().ok_or("a module without items")?;
        for item in items {
            let Item::Const(constant) = item else {
                continue;
            };
            let name = constant.ident.to_string();
            let successor = doc(&constant.attrs)
                .and_then(|doc| doc.strip_prefix("Successor: ").map(ToString::to_string))
                .ok_or_else(|| format!("{name} names no successor"))?;
            let value = value(&constant.expr).map_err(|e| format!("{name}: {e}"))?;
            let ty = match type_name(&constant.ty).strip_suffix("Handle") {
                Some(handle) => format!("MPI_{handle}"),
                None => "int".to_string(),
            };
            let value = match (ty.as_str(), value.parse::<i64>()) {
                ("int", _) | (_, Err(_)) => value,
                (_, Ok(n)) => format!("0x{n:08x}"),
            };
            all.push(Constant {
                name,
                ty,
                value,
                successor,
            });
        }
    }
    Ok(all)
}
