//! Bounds on what a reader has to keep in mind: the length of functions and files, the number of
//! fields of a type.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::{File, Finding};

/// Longest function, in lines from `fn` to its closing brace.
const FUNCTION_LINES: usize = 120;

/// Longest file of code, in lines.
const FILE_LINES: usize = 700;

/// Most fields of a struct without a reason beside it.
const FIELDS: usize = 15;

/// How a comment above a struct with more fields begins that says why.
const REASON: &str = "// Fields:";

/// What a file of code ends with.
const CODE: [&str; 7] = [".rs", ".c", ".h", ".cpp", ".f90", ".py", ".sh"];

/// Headers that `xtask` prints.
const PRINTED: [&str; 1] = ["abi/mpi/include/mpi.h"];

/// Checks one file.
pub fn check(file: &File) -> Vec<Finding> {
    let Some(text) = &file.text else {
        return vec![];
    };
    let mut findings = Vec::new();
    let is_code = CODE.iter().any(|end| file.path.ends_with(end));
    let lines = text.lines().count();
    if is_code && lines > FILE_LINES && !PRINTED.contains(&file.path.as_str()) {
        let what = format!(
            "the file has {lines} lines; {FILE_LINES} are allowed: split it by what changes for different reasons"
        );
        findings.push(Finding::new(&file.path, 0, what));
    }
    if file.path.ends_with(".rs")
        && let Ok(tokens) = text.parse::<TokenStream>()
    {
        let lines: Vec<&str> = text.lines().collect();
        walk(&file.path, &lines, tokens, &mut findings);
    }
    findings
}

/// Finds functions and structs that are too large, within macros too.
fn walk(path: &str, lines: &[&str], tokens: TokenStream, findings: &mut Vec<Finding>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (n, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if *word == "fn" || *word == "struct" => {
                let (Some(TokenTree::Ident(name)), Some(body)) =
                    (tokens.get(n + 1), body(&tokens[n + 1..]))
                else {
                    continue;
                };
                let first = word.span().start().line;
                let what = if *word == "fn" {
                    long_function(first, body)
                } else {
                    many_fields(lines, first, body)
                };
                if let Some(what) = what {
                    findings.push(Finding::new(path, first, format!("{name}: {what}")));
                }
            }
            TokenTree::Group(group) => walk(path, lines, group.stream(), findings),
            _ => {}
        }
    }
}

/// Returns the braces that belong to an item whose name is first in `tokens`.
fn body(tokens: &[TokenTree]) -> Option<&Group> {
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return Some(group),
            TokenTree::Punct(mark) if mark.as_char() == ';' => return None,
            _ => {}
        }
    }
    None
}

fn long_function(first: usize, body: &Group) -> Option<String> {
    let lines = body.span_close().end().line - first + 1;
    (lines > FUNCTION_LINES).then(|| {
        format!(
            "the function has {lines} lines; {FUNCTION_LINES} are allowed: make functions of its steps"
        )
    })
}

fn many_fields(lines: &[&str], first: usize, body: &Group) -> Option<String> {
    let fields = fields(body);
    (fields > FIELDS && !has_reason(lines, first)).then(|| {
        format!(
            "the struct has {fields} fields; {FIELDS} are allowed: group them, or say why not in a comment '{REASON} ...' above it"
        )
    })
}

/// Returns the number of parts between commas that are not within angle brackets.
fn fields(body: &Group) -> usize {
    let (mut fields, mut depth, mut is_open, mut dash) = (0, 0usize, false, false);
    for token in body.stream() {
        let mark = match &token {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        match mark {
            '<' => depth += 1,
            // That of an arrow closes nothing.
            '>' if !dash => depth = depth.saturating_sub(1),
            ',' if depth == 0 => is_open = false,
            _ => {}
        }
        if !is_open && mark != ',' {
            is_open = true;
            fields += 1;
        }
        dash = mark == '-';
    }
    fields
}

/// Whether a reason stands in the comments and attributes right above a line.
fn has_reason(lines: &[&str], first: usize) -> bool {
    lines[..first - 1]
        .iter()
        .rev()
        .map(|line| line.trim())
        .take_while(|line| line.starts_with("//") || line.starts_with("#["))
        .any(|line| line.starts_with(REASON))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    fn found(path: &str, text: &str) -> Vec<String> {
        let findings = check(&file(path, text));
        findings.into_iter().map(|f| f.to_string()).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    fn structure(above: &str, fields: usize) -> String {
        let fields: String = (0..fields)
            .map(|n| {
                format!(
                    "    /// One.\n    pub f{n}: BTreeMap<u32, Box<dyn Fn(u8, u8) -> Vec<u8>>>,\n"
                )
            })
            .collect();
        format!("/// Things.\n{above}#[derive(Clone)]\npub struct Things<'a, T> {{\n{fields}}}\n")
    }

    #[test]
    fn a_long_function_is_found() {
        assert_eq!(found("run/x/src/a.rs", &function(120)), [""; 0]);
        let findings = found("run/x/src/a.rs", &function(121));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].starts_with("run/x/src/a.rs:1: f: the function has 121 lines"));
    }

    #[test]
    fn a_long_function_is_found_in_a_macro_and_an_impl() {
        for around in ["mpi! {", "impl X {", "mod m {"] {
            let text = format!("{around}\n{}}}\n", function(130));
            assert_eq!(found("abi/x/src/a.rs", &text).len(), 1, "{around}");
        }
    }

    #[test]
    fn a_function_without_body_has_no_length() {
        let text = format!(
            "trait T {{\n    fn f(&self);\n}}\nmod m {{\n{}}}\n",
            "use a::b;\n".repeat(200)
        );
        assert_eq!(found("run/x/src/a.rs", &text), [""; 0]);
    }

    #[test]
    fn a_long_file_is_found() {
        for path in ["run/x/src/a.rs", "tests/programs/a.c", "x/a.f90", "x/a.sh"] {
            assert_eq!(found(path, &"\n".repeat(700)), [""; 0], "{path}");
            let findings = found(path, &"\n".repeat(701));
            assert_eq!(findings.len(), 1, "{path}");
            assert!(findings[0].contains("the file has 701 lines"), "{path}");
        }
        assert_eq!(found("docs/mpi.md", &"\n".repeat(900)), [""; 0]);
        assert_eq!(found(PRINTED[0], &"\n".repeat(900)), [""; 0]);
    }

    #[test]
    fn a_struct_with_many_fields_needs_a_reason() {
        assert_eq!(found("run/x/src/a.rs", &structure("", 15)), [""; 0]);
        let findings = found("run/x/src/a.rs", &structure("", 16));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(
            findings[0].contains("Things: the struct has 16 fields"),
            "{findings:?}"
        );
        let reason = "// Fields: one for each register.\n";
        assert_eq!(found("run/x/src/a.rs", &structure(reason, 16)), [""; 0]);
        // A reason of another type is none.
        let text = format!("{reason}struct Other;\n\n{}", structure("", 16));
        assert_eq!(found("run/x/src/a.rs", &text).len(), 1);
    }
}
