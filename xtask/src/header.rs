//! Prints `mpi.h`, the headers of the libraries beside MPI and the list of symbols from the one
//! definition of each function (`abi/mpi/src`) and of each constant (`run/mpi/src/constants.rs`).

use std::fmt::Write as _;
use std::path::Path;

use crate::{library, prototype};
use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Expr, GenericArgument, Item, Lit, PathArguments, Type};

mod removed;

/// What is printed, with its place relative to the root of the workspace.
pub struct Outputs {
    /// `abi/mpi/include/mpi.h`
    pub header: String,
    /// `abi/mpi/include/mpi_ext.h`
    pub extensions: String,
    /// `abi/mpi/symbols.txt`: one symbol a line, sorted.
    pub symbols: String,
    /// The headers of the libraries beside MPI, by their paths.
    pub libraries: Vec<(&'static str, String)>,
}

const HEADER: &str = "abi/mpi/include/mpi.h";
const EXTENSIONS: &str = "abi/mpi/include/mpi_ext.h";
const SYMBOLS: &str = "abi/mpi/symbols.txt";

/// What the Fortran bindings, the hooks of `mpiexec -check` and the libraries of other ABIs call,
/// so that the line and the call of the program are known (`abi/process/src/{origin,recorded}.rs`),
/// and what a library of threads calls to be recorded.
const ORIGIN: [&str; 7] = [
    "margay_called_from",
    "margay_entered_from",
    "margay_keep_threads",
    "margay_note_call",
    "margay_program_address",
    "margay_python_place",
    "margay_record_threads",
];

/// Writes all files; with `check` only compares them.
///
/// # Errors
/// When a source cannot be read or understood, and, with `check`, when a file is not what would be
/// printed.
pub fn run(root: &Path, check: bool) -> Result<(), String> {
    let outputs = print(root)?;
    let mut files = vec![
        (HEADER, outputs.header),
        (EXTENSIONS, outputs.extensions),
        (SYMBOLS, outputs.symbols),
    ];
    files.extend(outputs.libraries);
    for (path, text) in &files {
        let file = root.join(path);
        if std::fs::read_to_string(&file).is_ok_and(|old| old == *text) {
            continue;
        }
        if check {
            return Err(format!("{path} is out of date; run `cargo xtask header`"));
        }
        let write = || {
            std::fs::create_dir_all(file.parent().expect("a file in a folder"))?;
            std::fs::write(&file, text)
        };
        write().map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    }
    Ok(())
}

/// Returns the texts of all files.
///
/// # Errors
/// When a source cannot be read or understood.
pub fn print(root: &Path) -> Result<Outputs, String> {
    let source = parse(&root.join("run/mpi/src/constants.rs"))?;
    let functions = functions(&root.join("abi/mpi/src"))?;
    let mut symbols = Vec::new();
    for f in &functions {
        symbols.push(f.name.clone());
        symbols.push(format!("P{}", f.name));
        symbols.push(format!("margay_{}", f.name));
    }
    let print = |template: &str, extensions: bool| -> Result<String, String> {
        let mut prototypes = String::new();
        let mut profiling = String::new();
        for f in functions
            .iter()
            .filter(|f| f.removed.is_none() && is_extension(&f.name) == extensions)
        {
            writeln!(prototypes, "{};", f.prototype("")).expect("a string grows");
            writeln!(profiling, "{};", f.prototype("P")).expect("a string grows");
        }
        Ok(read(&root.join(template))?
            .replace(
                "@constants@\n",
                &constants(
                    &source,
                    if extensions {
                        Part::Extensions
                    } else {
                        Part::Standard
                    },
                )?,
            )
            .replace("@removed@\n", &removed::declarations(&source, &functions)?)
            .replace("@prototypes@\n", &prototypes)
            .replace("@profiling@\n", &profiling))
    };
    let header = print("abi/mpi/mpi.h.in", false)?;
    let extensions = print("abi/mpi/mpi_ext.h.in", true)?;
    let mut libraries = Vec::new();
    for library in library::print(root)? {
        symbols.extend(library.symbols);
        libraries.extend(library.files);
    }
    symbols.extend(ORIGIN.map(str::to_owned));
    symbols.sort();
    if let Some(twice) = symbols.windows(2).find(|w| w[0] == w[1]) {
        return Err(format!("{} is defined twice in abi/mpi/src", twice[0]));
    }
    Ok(Outputs {
        header,
        extensions,
        symbols: symbols.join("\n") + "\n",
        libraries,
    })
}

/// Whether a name is not the standard's.
pub(crate) fn is_extension(name: &str) -> bool {
    name.starts_with("MPIX_")
}

/// A function of the ABI as C declares it.
pub(crate) struct Function {
    pub name: String,
    /// The C type.
    pub result: String,
    /// Each as C declares it: `const int ranks[]`.
    pub parameters: Vec<String>,
    /// Of a function that MPI-3 removed: its successor.
    pub removed: Option<String>,
}

/// A constant of the ABI.
#[derive(Clone)]
pub(crate) struct Constant {
    pub name: String,
    /// The name of its Rust type, which determines how it is written in C.
    pub ty: String,
    /// A number in decimal, or the name of another constant.
    pub value: String,
    /// Whether MPI-3 removed it.
    pub removed: bool,
}

impl Function {
    pub(crate) fn prototype(&self, prefix: &str) -> String {
        let parameters = if self.parameters.is_empty() {
            "void".to_string()
        } else {
            self.parameters.join(", ")
        };
        format!("{} {prefix}{}({parameters})", self.result, self.name)
    }
}

/// Returns all functions, file by file in alphabetical order, each in the order of its file.
pub(crate) fn functions(folder: &Path) -> Result<Vec<Function>, String> {
    let mut all = Vec::new();
    for file in library::rust_files(folder)? {
        for item in parse(&file)?.items {
            let Item::Macro(item) = item else { continue };
            let Some(name) = item.mac.path.get_ident().map(ToString::to_string) else {
                continue;
            };
            if !["mpi", "collective"].contains(&name.as_str()) || item.ident.is_some() {
                continue;
            }
            definitions(item.mac.tokens, &mut all)
                .map_err(|e| format!("{}: {e}", file.display()))?;
        }
    }
    Ok(all)
}

/// Reads the definitions of one macro call: `fn`, `count fn` or `always fn`, names, parameters, an
/// optional result, a body.
fn definitions(tokens: TokenStream, all: &mut Vec<Function>) -> Result<(), String> {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let mut large = false;
        let mut removed = None;
        match &token {
            // A documentation comment: `#` and a bracketed group.
            TokenTree::Punct(p) if p.as_char() == '#' => {
                tokens.next();
                continue;
            }
            TokenTree::Ident(word) if word == "count" => large = true,
            TokenTree::Ident(word) if word == "always" => {}
            TokenTree::Ident(word) if word == "removed" => {
                removed = tokens.next().map(|group| {
                    let text = group.to_string();
                    text.trim_matches(['(', ')', ' ']).to_string()
                });
            }
            TokenTree::Ident(word) if word == "fn" => {}
            other => return Err(format!("`fn` expected, found `{other}`")),
        }
        if matches!(&token, TokenTree::Ident(word) if word != "fn") {
            tokens.next();
        }
        let mut names = Vec::new();
        let arguments = loop {
            match tokens.next() {
                Some(TokenTree::Ident(name)) => names.push(name.to_string()),
                Some(TokenTree::Punct(_)) => {}
                Some(TokenTree::Group(group)) => break group.stream(),
                other => return Err(format!("parameters expected, found {other:?}")),
            }
        };
        let mut result = TokenStream::new();
        loop {
            match tokens.next() {
                Some(TokenTree::Group(g)) if g.delimiter() == proc_macro2::Delimiter::Brace => {
                    break;
                }
                Some(TokenTree::Punct(p)) if p.as_char() == '|' => {
                    tokens.find(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == '|'));
                }
                Some(TokenTree::Punct(p)) if matches!(p.as_char(), '-' | '>') => {}
                Some(TokenTree::Ident(word)) if word == "on" => {
                    tokens.next();
                }
                // `at once { .. }`
                Some(TokenTree::Ident(word)) if word == "at" => {
                    tokens.nth(1);
                }
                Some(token) => result.extend([token]),
                None => return Err(format!("{} has no body", names.join(", "))),
            }
        }
        for (form, name) in names.iter().enumerate() {
            let variants: &[bool] = if large { &[false, true] } else { &[false] };
            for &c in variants {
                let mut function = function(name, form, &arguments, &result, c)?;
                function.removed.clone_from(&removed);
                all.push(function);
            }
        }
    }
    Ok(())
}

/// `form`: 0 blocking (or the only one), 1 nonblocking, 2 persistent; the latter two of
/// `collective!` take more parameters. `c`: the large-count variant.
fn function(
    name: &str,
    form: usize,
    arguments: &TokenStream,
    result: &TokenStream,
    c: bool,
) -> Result<Function, String> {
    use syn::parse::Parser as _;
    let parser = syn::punctuated::Punctuated::<syn::FnArg, syn::Token![,]>::parse_terminated;
    let arguments = parser
        .parse2(arguments.clone())
        .map_err(|e| format!("{name}: {e}"))?;
    let mut parameters = Vec::new();
    for argument in &arguments {
        let syn::FnArg::Typed(argument) = argument else {
            return Err(format!("{name} has a self parameter"));
        };
        let syn::Pat::Ident(parameter) = &*argument.pat else {
            return Err(format!("{name} has a pattern as a parameter"));
        };
        parameters.push(
            declare(&argument.ty, &parameter.ident.to_string(), c)
                .map_err(|e| format!("{name}: {e}"))?,
        );
    }
    match form {
        0 => {}
        1 => parameters.push("MPI_Request *request".into()),
        _ => parameters.extend(["MPI_Info info".into(), "MPI_Request *request".into()]),
    }
    if name == "MPI_Pcontrol" {
        // A variadic function cannot be defined in Rust; ours does not look at the arguments.
        parameters = vec!["const int level".into(), "...".into()];
    }
    let result = if result.is_empty() {
        "int".into()
    } else {
        let ty: Type = syn::parse2(result.clone()).map_err(|e| format!("{name}: {e}"))?;
        declare(&ty, "", c)?.trim_end().to_string()
    };
    Ok(Function {
        name: format!("{name}{}", if c { "_c" } else { "" }),
        result,
        parameters,
        removed: None,
    })
}

/// Returns the C declaration of `name` with a Rust type as `abi/mpi/src/types.rs` names them.
fn declare(ty: &Type, name: &str, c: bool) -> Result<String, String> {
    match ty {
        Type::Path(path) => {
            let segment = path.path.segments.last().ok_or("an empty path")?;
            let ident = segment.ident.to_string();
            if let PathArguments::AngleBracketed(arguments) = &segment.arguments {
                let Some(GenericArgument::Type(inner)) = arguments.args.first() else {
                    return Err(format!("{ident} without a type"));
                };
                let constant = match ident.as_str() {
                    "Place" => return Ok(format!("{} *{name}", declare(inner, "", c)?.trim_end())),
                    "View" => {
                        return Ok(format!(
                            "const {} *{name}",
                            declare(inner, "", c)?.trim_end()
                        ));
                    }
                    "In" => "const ",
                    "Out" => "",
                    _ => return Err(format!("unknown generic type {ident}")),
                };
                // As an array, gcc would warn about MPI_STATUSES_IGNORE.
                if type_name(inner) == "MPI_Status" {
                    return Ok(format!("{constant}MPI_Status *{name}"));
                }
                if let Type::Array(triple) = inner {
                    return Ok(format!("{}[][3]", declare(&triple.elem, name, c)?));
                }
                return Ok(format!("{constant}{}[]", declare(inner, name, c)?));
            }
            let base = match (ident.as_str(), c) {
                ("Buf", _) => return Ok(format!("void *{name}")),
                ("ConstBuf", _) => return Ok(format!("const void *{name}")),
                ("Opaque", _) => return Ok(format!("void *{name}")),
                ("Text", _) => return Ok(format!("const char *{name}")),
                ("Weights", _) => return Ok(format!("const int *{name}")),
                ("WeightsOut", _) => return Ok(format!("int *{name}")),
                ("TextOut", _) => return Ok(format!("char *{name}")),
                ("ArgvPlace", _) => return Ok(format!("char ***{name}")),
                ("Argvs", _) => return Ok(format!("char **{name}[]")),
                ("Argv", _) => return Ok(format!("char *{name}[]")),
                ("c_char", _) => "char",
                ("c_double", _) => "double",
                ("c_int" | "Count" | "Disp" | "DispCount", false) | ("c_int", true) => "int",
                ("Count" | "AintCount" | "DispCount", true) => "MPI_Count",
                ("Disp", true) | ("AintCount", false) => "MPI_Aint",
                (function, _) if prototype::is_callback(function) => {
                    return Ok(format!("{function} *{name}"));
                }
                (mpi, _) if mpi.starts_with("MPI_") => mpi,
                (other, _) => return Err(format!("no C type for {other}")),
            };
            Ok(format!("{base} {name}"))
        }
        _ => Err("a type that is not a name".into()),
    }
}

/// Returns all constants in their order, those of extensions last.
pub(crate) fn constant_list(root: &Path) -> Result<Vec<Constant>, String> {
    let mut all = Vec::new();
    for item in &parse(&root.join("run/mpi/src/constants.rs"))?.items {
        let Item::Mod(syn::ItemMod {
            ident: module,
            content: Some((_, items)),
            ..
        }) = item
        else {
            continue;
        };
        for item in items {
            let Item::Const(constant) = item else {
                continue;
            };
            let name = constant.ident.to_string();
            all.push(Constant {
                value: value(&constant.expr).map_err(|e| format!("{name}: {e}"))?,
                ty: type_name(&constant.ty),
                removed: Part::of(&module.to_string()) == Part::Removed,
                name,
            });
        }
    }
    all.sort_by_key(|constant| is_extension(&constant.name));
    Ok(all)
}

/// The parts into which the modules of constants go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Standard,
    Extensions,
    Removed,
}

impl Part {
    fn of(module: &str) -> Part {
        match module {
            "recovery" | "device" => Part::Extensions,
            "removed" => Part::Removed,
            _ => Part::Standard,
        }
    }
}

fn constants(file: &syn::File, part: Part) -> Result<String, String> {
    let mut text = String::new();
    for item in &file.items {
        let Item::Mod(module) = item else { continue };
        let (_, items) = module.content.as_ref().ok_or("a module without items")?;
        if Part::of(&module.ident.to_string()) != part {
            continue;
        }
        let doc = doc(&module.attrs).ok_or_else(|| format!("{} has no comment", module.ident))?;
        writeln!(text, "/* {doc} */").expect("a string grows");
        let constants: Vec<_> = items
            .iter()
            .filter_map(|i| match i {
                Item::Const(c) => Some(c),
                _ => None,
            })
            .collect();
        let enumerated = constants.iter().all(|c| type_name(&c.ty) == "i32");
        if enumerated {
            text += "enum {\n";
        }
        for (i, constant) in constants.iter().enumerate() {
            let name = &constant.ident;
            let value = value(&constant.expr).map_err(|e| format!("{name}: {e}"))?;
            let comma = if i + 1 < constants.len() { "," } else { "" };
            let number = value.parse::<i64>();
            let line = match (type_name(&constant.ty).as_str(), number) {
                ("i32", _) => format!("    {name} = {value}{comma}"),
                (_, Err(_)) => format!("#define {name} {value}"),
                ("Define", _) => format!("#define {name} {value}"),
                ("Address", _) => format!("#define {name} ((void *){value})"),
                ("IntArray", _) => format!("#define {name} ((int *){value})"),
                ("OffsetConstant", _) => format!("#define {name} ((MPI_Offset){value})"),
                (handle, Ok(n)) => {
                    let c = handle
                        .strip_suffix("Handle")
                        .ok_or_else(|| format!("{name} has the unknown type {handle}"))?;
                    format!("#define {name} ((MPI_{c})0x{n:08x})")
                }
            };
            text += &line;
            text.push('\n');
        }
        if enumerated {
            text += "};\n";
        }
        text.push('\n');
    }
    Ok(text)
}

fn type_name(ty: &Type) -> String {
    match ty {
        Type::Path(path) => path
            .path
            .segments
            .last()
            .map_or(String::new(), |s| s.ident.to_string()),
        _ => String::new(),
    }
}

/// Returns a number in decimal, or the name of another constant.
fn value(expr: &Expr) -> Result<String, String> {
    match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(n) => Ok(n
                .base10_parse::<i64>()
                .map_err(|e| e.to_string())?
                .to_string()),
            _ => Err("not a number".into()),
        },
        Expr::Unary(unary) => Ok(format!("-{}", value(&unary.expr)?)),
        Expr::Path(path) => path
            .path
            .get_ident()
            .map(ToString::to_string)
            .ok_or_else(|| "not a name".into()),
        _ => Err("neither a number nor a name".into()),
    }
}

fn doc(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|a| match &a.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_string()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

fn parse(path: &Path) -> Result<syn::File, String> {
    syn::parse_file(&read(path)?).map_err(|e| format!("{}: {e}", path.display()))
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_files_are_those_in_the_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        run(&root, true).unwrap();
    }

    #[test]
    fn a_count_function_is_declared_in_both_sizes() {
        let tokens: TokenStream = "/// Doc.\ncount fn MPI_X(buf: ConstBuf, counts: In<Count>, displs: In<Disp>, comm: MPI_Comm) |mpi| on comm { }"
            .parse()
            .unwrap();
        let mut all = Vec::new();
        definitions(tokens, &mut all).unwrap();
        let texts: Vec<_> = all.iter().map(|f| f.prototype("")).collect();
        assert_eq!(
            texts,
            [
                "int MPI_X(const void *buf, const int counts[], const int displs[], MPI_Comm comm)",
                "int MPI_X_c(const void *buf, const MPI_Count counts[], const MPI_Aint displs[], MPI_Comm comm)",
            ]
        );
    }
}
