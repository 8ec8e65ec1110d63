//! `core/` is pure: no clock, file, socket or other process. Rules 3 and 5 of ARCHITECTURE.md;
//! found in tokens, also in tests.
//!
//! A type of the standard library's under another name (`use std::time as t`) is found where it is
//! named itself. What another crate does on behalf of `core` is not: what `core` may depend on is a
//! rule of [`layers`](super::layers).

use proc_macro2::{TokenStream, TokenTree};

use super::Finding;

/// The folder of pure logic.
const FOLDER: &str = "core/";

/// Modules of the standard library that are the operating system's.
const MODULES: [&str; 5] = ["env", "fs", "net", "os", "process"];

/// Types that read a clock.
const CLOCKS: [&str; 2] = ["Instant", "SystemTime"];

/// Checks one source file.
pub fn check(path: &str, source: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    // What does not parse is a finding of another rule.
    if path.starts_with(FOLDER)
        && let Ok(tokens) = source.parse::<TokenStream>()
    {
        walk(path, tokens, &mut findings);
    }
    findings
}

fn walk(path: &str, tokens: TokenStream, findings: &mut Vec<Finding>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (n, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if CLOCKS.iter().any(|clock| word == clock) => {
                let what =
                    format!("{word}: core/ reads no clock; time is a parameter, in nanoseconds");
                findings.push(Finding::new(path, word.span().start().line, what));
            }
            TokenTree::Ident(word) if word == "std" && is_path(&tokens[n + 1..]) => {
                for (module, line) in heads(tokens.get(n + 3)) {
                    if MODULES.contains(&module.as_str()) {
                        let what = format!(
                            "std::{module}: core/ asks no operating system; it gets values, and sys/ has the calls"
                        );
                        findings.push(Finding::new(path, line, what));
                    }
                }
            }
            TokenTree::Group(group) => walk(path, group.stream(), findings),
            _ => {}
        }
    }
}

/// Whether these tokens begin with `::`.
fn is_path(tokens: &[TokenTree]) -> bool {
    let colon = |n: usize| matches!(tokens.get(n), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(0) && colon(1)
}

/// The words that follow a `::` with their lines: one, or the first of each item in braces.
fn heads(next: Option<&TokenTree>) -> Vec<(String, usize)> {
    let of = |token: &TokenTree| match token {
        TokenTree::Ident(word) => Some((word.to_string(), word.span().start().line)),
        _ => None,
    };
    match next {
        Some(TokenTree::Group(group)) => {
            let mut is_first = true;
            let mut found = Vec::new();
            for token in group.stream() {
                if is_first {
                    found.extend(of(&token));
                }
                is_first = matches!(&token, TokenTree::Punct(p) if p.as_char() == ',');
            }
            found
        }
        Some(token) => of(token).into_iter().collect(),
        None => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_the_operating_system_is_found() {
        for source in [
            "fn f() { let t = std::time::Instant::now(); }",
            "fn f() { let t = SystemTime::now(); }",
            "use std::time::SystemTime as Now;",
            "fn f() { std::process::Command::new(\"ls\"); }",
            "use std::process::Command;",
            "use std::fs;",
            "use std::{cmp, fs::File};",
            "use std::{fmt, net};",
            "fn f() { m!(std::env::var(\"X\")) }",
            "#[cfg(test)] mod tests { use std::os::fd::RawFd; }",
        ] {
            assert_eq!(check("core/x/src/lib.rs", source).len(), 1, "{source}");
            assert_eq!(check("job/x/src/lib.rs", source), vec![], "{source}");
        }
    }

    #[test]
    fn what_needs_no_operating_system_is_no_finding() {
        for source in [
            "use std::{fmt, sync::Arc, time::Duration};",
            "use std::collections::fs;",
            "fn f(env: u32, fs: Fs) -> u32 { fs.net + env }",
            "// std::fs\nfn f() -> &'static str { \"Instant::now()\" }",
            "fn f() { std::thread::yield_now() }",
        ] {
            assert_eq!(check("core/x/src/lib.rs", source), vec![], "{source}");
        }
    }
}
