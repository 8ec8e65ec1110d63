//! The functions of an ABI in C: each converts its arguments, calls the function of the standard's
//! ABI, and converts what that has put out.

use std::fmt::Write as _;

use super::kinds;
use crate::header::Function;
use crate::prototype::{HANDLES, Raw, is_callback};

/// Returns the declarations of `libmpi_abi`'s functions, for C that has the other ABI's names.
///
/// # Errors
/// When a prototype is not understood.
pub fn declarations(functions: &[&Function]) -> Result<String, String> {
    let mut text = String::from(
        "/* Functions of libmpi_abi. Printed by `cargo xtask stage`. */\n#include \"convert.h\"\n\n",
    );
    for f in functions {
        let mut parameters = Vec::new();
        for raw in raws(f)? {
            let constant = if raw.constant { "const " } else { "" };
            let stars = "*".repeat(raw.stars + usize::from(raw.array && !raw.triples));
            let base = match raw.base.as_str() {
                "MPI_Status" => "abi_status",
                base if is_handle(base) => "abi_handle",
                base if is_callback(base) => {
                    parameters.push("abi_function".to_owned());
                    continue;
                }
                base => base,
            };
            let triples = if raw.triples { "(*)[3]" } else { "" };
            parameters.push(format!("{constant}{base} {stars}{triples}"));
        }
        if parameters.is_empty() {
            parameters.push("void".to_owned());
        }
        let result = &f.result;
        writeln!(
            text,
            "{result} margay_{}({});",
            f.name,
            parameters.join(", ")
        )
        .expect("a string grows");
    }
    Ok(text)
}

/// Returns the functions: those that programs call often, and the others.
///
/// # Errors
/// When a parameter is not known.
pub fn functions(functions: &[&Function]) -> Result<[String; 2], String> {
    let begin = "/* Printed by `cargo xtask stage` from the definitions in abi/mpi. */\n#include \"margay.h\"\n";
    let [mut often, mut seldom] = [begin, begin].map(String::from);
    for f in functions
        .iter()
        .filter(|f| !kinds::BY_HAND.contains(&f.name.as_str()))
    {
        let text = match kinds::OFTEN.contains(&f.name.as_str()) {
            true => &mut often,
            false => &mut seldom,
        };
        *text += &function(f)?;
    }
    Ok([often, seldom])
}

fn raws(f: &Function) -> Result<Vec<Raw>, String> {
    let mut raws = Vec::new();
    for text in &f.parameters {
        if let Some(raw) = Raw::of(text).map_err(|e| format!("{}: {e}", f.name))? {
            raws.push(raw);
        }
    }
    Ok(raws)
}

fn is_handle(base: &str) -> bool {
    base.strip_prefix("MPI_")
        .is_some_and(|name| HANDLES.contains(&name))
}

/// How one argument is passed on.
struct Argument {
    /// Statements before the call.
    before: String,
    argument: String,
    /// Statements after it.
    after: String,
}

impl Argument {
    fn plain(argument: impl Into<String>) -> Argument {
        Argument {
            before: String::new(),
            argument: argument.into(),
            after: String::new(),
        }
    }
}

fn function(f: &Function) -> Result<String, String> {
    let raws = raws(f)?;
    let has_length = raws.iter().any(|r| r.name == "resultlen");
    let (mut before, mut arguments, mut after) = (String::new(), Vec::new(), String::new());
    for raw in &raws {
        let argument = convert(&f.name, raw, has_length)?;
        before += &argument.before;
        after += &argument.after;
        arguments.push(argument.argument);
    }
    let declared = if f.parameters.is_empty() {
        "void".to_owned()
    } else {
        f.parameters.join(", ")
    };
    let call = format!("margay_{}({})", f.name, arguments.join(", "));
    // What is asked for is the result itself.
    let is_answer = f.name.starts_with("MPIX_Query_");
    let body = if f.result == "int" && !is_answer {
        format!(
            "    FROM_PROGRAM;\n{before}    int e = {call};\n{after}    return unlikely(e) ? from_error(e) : e;\n"
        )
    } else {
        format!("    return {call};\n")
    };
    Ok(format!(
        "\nFACE({}, {}, ({declared}))\n{{\n{body}}}\n",
        f.result, f.name
    ))
}

fn convert(function: &str, raw: &Raw, has_length: bool) -> Result<Argument, String> {
    let name = raw.name.as_str();
    let pointer = raw.stars > 0 || raw.array;
    if raw.base == "MPI_Status" {
        return status(function, raw);
    }
    if let Some(handle) = raw
        .base
        .strip_prefix("MPI_")
        .filter(|_| is_handle(&raw.base))
    {
        let kind = handle.to_lowercase();
        return if raw.array {
            handles(function, raw, &kind)
        } else if pointer {
            Ok(one_handle(function, raw, &kind))
        } else {
            Ok(Argument::plain(format!("to_{kind}({name})")))
        };
    }
    let plain = Ok(Argument::plain(name));
    match raw.base.as_str() {
        "void" => Ok(Argument::plain(match name {
            "sendbuf" | "recvbuf" | "inbuf" | "inoutbuf" => format!("(void *)to_buffer({name})"),
            "buffer" if function.contains("attach") => format!("to_room({name})"),
            "buffer_addr" => {
                return Ok(Argument {
                    before: String::new(),
                    argument: name.to_owned(),
                    after: format!("    if (!e) put_room({name});\n"),
                });
            }
            _ => name.to_owned(),
        })),
        "int" if name.ends_with("weights") => Ok(Argument::plain(format!("to_weights({name})"))),
        "int" => int(function, raw),
        "MPI_Offset" if function == "MPI_File_set_view" && name == "disp" => {
            Ok(Argument::plain("to_displacement(disp)"))
        }
        "MPI_T_pvar_handle" if !pointer => Ok(Argument::plain(format!("to_pvar({name})"))),
        "MPI_T_cb_safety" => Ok(Argument::plain(format!("to_cb_safety({name})"))),
        "char" if raw.stars == 1 && !raw.constant && !raw.array => {
            Ok(match kinds::longest(function, name) {
                Some((most, room)) => text(name, most, room, has_length),
                None => Argument::plain(name),
            })
        }
        base if is_callback(base) => Ok(Argument::plain(format!("(abi_function){name}"))),
        _ => plain,
    }
}

fn text(name: &str, most: usize, room: &str, has_length: bool) -> Argument {
    let length = if has_length { "resultlen" } else { "NULL" };
    Argument {
        before: format!("    char c_{name}[{most}] = \"\";\n"),
        argument: format!("{name} ? c_{name} : NULL"),
        after: format!("    if (!e) put_text({name}, c_{name}, {room}, {length});\n"),
    }
}

/// A number that may be one of an enumeration.
fn int(function: &str, raw: &Raw) -> Result<Argument, String> {
    let name = raw.name.as_str();
    let Some(kind) = kinds::of_int(function, name)? else {
        return Ok(Argument::plain(name));
    };
    if raw.stars > 0 {
        return Ok(Argument {
            before: String::new(),
            argument: name.to_owned(),
            after: format!("    if (!e && {name}) *{name} = from_{kind}(*{name});\n"),
        });
    }
    if !raw.array {
        return Ok(Argument::plain(format!("to_{kind}({name})")));
    }
    let n = length(function, name)?;
    Ok(if raw.constant {
        array(
            name,
            "int",
            n,
            &format!("c_{name}[i] = to_{kind}({name}[i])"),
            "",
        )
    } else {
        Argument {
            before: String::new(),
            argument: name.to_owned(),
            after: format!(
                "    for (int i = 0; !e && i < {n}; i++) {name}[i] = from_{kind}({name}[i]);\n"
            ),
        }
    })
}

fn length(function: &str, name: &str) -> Result<&'static str, String> {
    kinds::length(function, name).ok_or_else(|| {
        format!("{function}: the length of {name} is not known; say it in xtask/src/faces/kinds.rs")
    })
}

/// A converted copy of an array, on the stack if it is short. A null pointer stays one.
fn array(name: &str, ty: &str, n: &str, take: &str, put: &str) -> Argument {
    Argument {
        before: format!(
            "    int n_{name} = {name} ? {n} : 0;\n    {ty} few_{name}[FEW], *c_{name} = n_{name} > FEW ? allocate(n_{name}, sizeof({ty})) : few_{name};\n    \
             for (int i = 0; i < n_{name}; i++) {take};\n"
        ),
        argument: format!("{name} ? c_{name} : NULL"),
        after: format!("{put}    if (c_{name} != few_{name}) free(c_{name});\n"),
    }
}

fn handles(function: &str, raw: &Raw, kind: &str) -> Result<Argument, String> {
    let name = raw.name.as_str();
    let put = if raw.constant {
        String::new()
    } else {
        format!(
            "    for (int i = 0; i < n_{name}; i++) {name}[i] = c_{name}[i] == NO_HANDLE ? {name}[i] : from_{kind}(c_{name}[i]);\n"
        )
    };
    Ok(array(
        name,
        "abi_handle",
        length(function, name)?,
        &format!("c_{name}[i] = to_{kind}({name}[i])"),
        &put,
    ))
}

fn one_handle(function: &str, raw: &Raw, kind: &str) -> Argument {
    let name = raw.name.as_str();
    let first = if kinds::is_read(function, &raw.base) {
        format!("{name} ? to_{kind}(*{name}) : 0")
    } else {
        "0".to_owned()
    };
    Argument {
        before: format!("    abi_handle c_{name} = {first}, o_{name} = c_{name};\n"),
        argument: format!("{name} ? &c_{name} : NULL"),
        after: format!("    if (c_{name} != o_{name}) *{name} = from_{kind}(c_{name});\n"),
    }
}

fn status(function: &str, raw: &Raw) -> Result<Argument, String> {
    let name = raw.name.as_str();
    if name.starts_with("array_of") {
        let n = length(function, name)?;
        let none = format!("{name} == MPI_STATUSES_IGNORE");
        return Ok(Argument {
            before: format!(
                "    int n_{name} = {none} ? 0 : {n};\n    abi_status few_{name}[FEW], *c_{name} = n_{name} > FEW ? allocate(n_{name}, sizeof(abi_status)) : few_{name};\n    \
                 for (int i = 0; i < n_{name}; i++) place_of(&{name}[i], &c_{name}[i]);\n"
            ),
            argument: format!("{none} ? ABI_STATUS_IGNORE : c_{name}"),
            after: format!(
                "    for (int i = 0; i < n_{name}; i++) put_status(&{name}[i], &c_{name}[i]);\n    if (c_{name} != few_{name}) free(c_{name});\n"
            ),
        });
    }
    let is_read = raw.constant || function.starts_with("MPI_Status_set");
    if !is_read {
        return Ok(Argument {
            before: format!("    abi_status c_{name};\n"),
            argument: format!("place_of({name}, &c_{name})"),
            after: format!("    put_status({name}, &c_{name});\n"),
        });
    }
    let put = if raw.constant {
        String::new()
    } else {
        format!("    if ({name}) put_status({name}, &c_{name});\n")
    };
    Ok(Argument {
        before: format!(
            "    abi_status c_{name};\n    if ({name}) take_status({name}, &c_{name});\n"
        ),
        argument: format!("{name} ? &c_{name} : NULL"),
        after: put,
    })
}
