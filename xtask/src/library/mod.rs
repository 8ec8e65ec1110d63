//! The libraries beside MPI: their headers, and the C sources of the small shared libraries that
//! give functions of `libmpi_abi`, or of a static library, their names.
//!
//! Each function is defined once, in `abi/nx`, `abi/mpl` or `abi/mlp`. From the definition come its
//! prototypes and two kinds of functions that jump to it: for C, and for Fortran, where all
//! arguments are references and integers have four bytes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{Expr, Item, Lit};

pub mod gomp;
pub mod mlp;
pub mod mpl;
pub mod nx;
pub mod tables;

/// What is printed of a library.
pub struct Printed {
    /// Files in the tree, by their paths from the root of the workspace.
    pub files: Vec<(&'static str, String)>,
    /// The symbols in `libmpi_abi` that it needs.
    pub symbols: Vec<String>,
}

/// Returns all libraries.
///
/// # Errors
/// When a source cannot be read or understood.
pub fn print(root: &Path) -> Result<Vec<Printed>, String> {
    Ok(vec![nx::print(root)?, mpl::print(root)?, mlp::print(root)?])
}

/// The C source of a shared library.
pub struct Source {
    /// The library's name, as in `-lNAME`.
    pub name: &'static str,
    /// The C code.
    pub code: String,
    /// Where the functions are that it jumps to.
    pub inner: Inner,
}

/// IML's calls have as many arguments as the caller likes, so that half of the library is C; its
/// header is written by hand, and the C half includes it.
const IML_EXPORTS: &str =
    "{\n  global: iml_*; *_schedule; margay_threads_description;\n  local: *;\n};\n";

/// Where the functions are to which a library gives names.
pub enum Inner {
    /// In `libmpi_abi`, since there is one engine in a process.
    Abi,
    /// In a static library of this name, which becomes part of the library; with the linker's list
    /// of what it exports.
    Static(&'static str, String),
}

/// Returns the C sources of the shared libraries.
///
/// # Errors
/// As [`print()`].
pub fn sources(root: &Path) -> Result<Vec<Source>, String> {
    let source = |name, code, inner| Source { name, code, inner };
    Ok(vec![
        source("nx", nx::source(root)?, Inner::Abi),
        source("mpl", mpl::source(root)?, Inner::Abi),
        source(
            "mlp",
            mlp::source(root)?,
            Inner::Static("margay_mlp", mlp::exports(root)?),
        ),
        source(
            "iml",
            read(&root.join("abi/iml/iml.c"))?,
            Inner::Static("margay_iml", IML_EXPORTS.to_owned()),
        ),
    ])
}

/// A function as it is defined.
pub(crate) struct Definition {
    /// Its comment, for readers of the header.
    pub doc: String,
    pub name: String,
    /// Names and Rust types.
    pub parameters: Vec<(String, String)>,
    /// The Rust type of the result; none for a void function.
    pub result: Option<String>,
}

/// One parameter in the two languages.
pub(crate) struct Forms {
    /// The declaration in the header.
    pub c: String,
    /// How C's argument is handed on.
    pub c_pass: String,
    /// The declaration of what it is handed to.
    pub inner: String,
    /// The declaration in Fortran's function; none when Fortran does not have the parameter.
    pub fortran: Option<String>,
    /// How Fortran's argument is handed on.
    pub fortran_pass: String,
    /// It is a text, whose length Fortran passes behind all parameters.
    pub is_text: bool,
}

/// Returns the Rust files of a folder in alphabetical order.
pub(crate) fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(|e| format!("cannot list {}: {e}", folder.display()))?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect();
    files.sort();
    Ok(files)
}

/// Returns the constants as C's preprocessor has them, a line each with its comment.
pub(crate) fn defines(numbers: &[(String, i64, String)]) -> String {
    let mut defines = String::new();
    for (name, value, doc) in numbers {
        let value = if *value < 0 {
            format!("({value})")
        } else {
            value.to_string()
        };
        writeln!(defines, "#define {name} {value} /* {doc} */").expect("a string grows");
    }
    defines
}

/// Returns the constants as Fortran has them, in fixed and free form.
pub(crate) fn fortran_constants(numbers: &[(String, i64, String)]) -> String {
    let mut text = String::new();
    for (name, value, _) in numbers {
        writeln!(
            text,
            "      integer {name}\n      parameter ({name} = {value})"
        )
        .expect("a string grows");
    }
    text
}

/// Returns all functions that calls of the macro `name` define in a folder, file by file in
/// alphabetical order.
pub(crate) fn definitions(folder: &Path, name: &str) -> Result<Vec<Definition>, String> {
    let mut all = Vec::new();
    for file in rust_files(folder)? {
        all.extend(definitions_of_file(&file, name)?);
    }
    Ok(all)
}

/// Returns the functions that calls of the macro `name` define in a file.
fn definitions_of_file(file: &Path, name: &str) -> Result<Vec<Definition>, String> {
    let mut all = Vec::new();
    for item in parse(file)?.items {
        let Item::Macro(item) = item else { continue };
        if item.mac.path.is_ident(name) && item.ident.is_none() {
            read_calls(item.mac.tokens, &mut all)
                .map_err(|e| format!("{}: {e}", file.display()))?;
        }
    }
    Ok(all)
}

fn read_calls(tokens: TokenStream, all: &mut Vec<Definition>) -> Result<(), String> {
    let mut tokens = tokens.into_iter();
    let mut lines = Vec::new();
    while let Some(token) = tokens.next() {
        match &token {
            TokenTree::Punct(p) if p.as_char() == '#' => {
                if let Some(TokenTree::Group(group)) = tokens.next()
                    && let Some(TokenTree::Literal(text)) = group.stream().into_iter().nth(2)
                {
                    lines.push(text.to_string().trim_matches('"').trim().to_owned());
                }
                continue;
            }
            TokenTree::Ident(word) if word == "free" => {
                tokens.next();
            }
            TokenTree::Ident(word) if word == "fn" => {}
            other => return Err(format!("`fn` expected, found `{other}`")),
        }
        let Some(TokenTree::Ident(name)) = tokens.next() else {
            return Err("a function without a name".into());
        };
        let Some(TokenTree::Group(arguments)) = tokens.next() else {
            return Err(format!("{name} has no parameters"));
        };
        let mut result = None;
        loop {
            match tokens.next() {
                Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace => break,
                Some(TokenTree::Punct(p)) if p.as_char() == '|' => {
                    tokens.find(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == '|'));
                }
                Some(TokenTree::Ident(ty)) => result = Some(ty.to_string()),
                Some(TokenTree::Punct(_)) => {}
                other => return Err(format!("{name} has no body but {other:?}")),
            }
        }
        let words: Vec<String> = arguments
            .stream()
            .into_iter()
            .filter_map(|token| match token {
                TokenTree::Ident(word) => Some(word.to_string()),
                _ => None,
            })
            .collect();
        let parameters = words
            .chunks_exact(2)
            .map(|pair| (pair[0].trim_end_matches('_').to_owned(), pair[1].clone()))
            .collect();
        all.push(Definition {
            doc: paragraph(std::mem::take(&mut lines)),
            name: name.to_string(),
            parameters,
            result,
        });
    }
    Ok(())
}

/// Returns the text of an attribute that is a line of a comment.
fn doc(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        Expr::Lit(syn::ExprLit {
            lit: Lit::Str(text),
            ..
        }) if pair.path.is_ident("doc") => Some(text.value().trim().to_owned()),
        _ => None,
    }
}

/// The first paragraph of a comment, whose lines may be wrapped, in one line.
fn paragraph(lines: impl IntoIterator<Item = String>) -> String {
    let text = lines.into_iter().take_while(|line| !line.is_empty());
    text.collect::<Vec<_>>().join(" ")
}

/// Returns the constants of a Rust file with their comments.
pub(crate) fn constants(file: &Path) -> Result<Vec<(String, i64, String)>, String> {
    let mut all = Vec::new();
    for item in parse(file)?.items {
        let Item::Const(item) = item else { continue };
        let name = item.ident.to_string();
        let doc = paragraph(item.attrs.iter().filter_map(doc));
        let (sign, expr) = match &*item.expr {
            Expr::Unary(unary) => (-1, &*unary.expr),
            expr => (1, expr),
        };
        let Expr::Lit(syn::ExprLit {
            lit: Lit::Int(number),
            ..
        }) = expr
        else {
            return Err(format!("{name} is not a number"));
        };
        let value: i64 = number.base10_parse().map_err(|e| e.to_string())?;
        all.push((name, sign * value, doc));
    }
    Ok(all)
}

/// How the small libraries make a C string of Fortran's text, which has blanks at its end and its
/// length behind all parameters.
pub(crate) const TEXT: &str = r#"/* A text of Fortran's, without the blanks at its end. */
#define TEXT(text) ended(text, text##_length, (char[1024]){0})
static const char *ended(const char *text, size_t length, char room[1024]) {
    while (length > 0 && text[length - 1] == ' ') length--;
    if (length > 1023) length = 1023;
    for (size_t i = 0; i < length; i++) room[i] = text[i];
    return room;
}

"#;

/// Returns the parameters of a function in Fortran: those of the definition, `more`, and the
/// lengths of texts.
pub(crate) fn fortran_parameters(
    definition: &Definition,
    forms: &[Forms],
    more: Option<&str>,
) -> Vec<String> {
    let own = forms.iter().filter_map(|form| form.fortran.clone());
    let texts = definition.parameters.iter().zip(forms);
    let lengths = texts.filter(|(_, form)| form.is_text);
    own.chain(more.map(str::to_owned))
        .chain(lengths.map(|((name, _), _)| format!("size_t {name}_length")))
        .collect()
}

/// Returns a C function's head.
pub(crate) fn head(result: &str, name: &str, parameters: &[String]) -> String {
    let parameters = match parameters {
        [] => "void".to_owned(),
        some => some.join(", "),
    };
    let space = if result.ends_with('*') { "" } else { " " };
    format!("{result}{space}{name}({parameters})")
}

/// A C function that hands its arguments on.
pub(crate) fn jump(text: &mut String, head: &str, inner: &str, arguments: &[String], void: bool) {
    let back = if void { "" } else { "return " };
    writeln!(
        text,
        "{head} {{ {back}{inner}({}); }}",
        arguments.join(", ")
    )
    .expect("a string grows");
}

fn parse(path: &Path) -> Result<syn::File, String> {
    syn::parse_file(&read(path)?).map_err(|e| format!("{}: {e}", path.display()))
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}
