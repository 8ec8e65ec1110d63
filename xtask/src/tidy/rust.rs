//! Rules for Rust sources, found in their tokens (so not in comments and strings).

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Finding;

/// Folders where unsafe code may stand.
const UNSAFE_FOLDERS: [&str; 2] = ["sys/", "abi/"];

/// The folder where system calls may stand.
const SYSTEM_CALL_FOLDER: &str = "sys/";

/// Crates that are the operating system's interface.
pub const SYSTEM_CRATES: [&str; 4] = ["libc", "rustix", "nix", "syscalls"];

/// Lines above an `unsafe` in which its argument has to stand.
const SAFETY_LINES: usize = 10;

/// Checks one source file.
pub fn check(path: &str, source: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    match source.parse::<TokenStream>() {
        Ok(tokens) => walk(
            path,
            &source.lines().collect::<Vec<_>>(),
            tokens,
            &mut findings,
        ),
        Err(error) => findings.push(Finding::new(
            path,
            error.span().start().line,
            format!("does not parse: {error}"),
        )),
    }
    findings
}

/// Checks a crate's root file: outside the folders for unsafe code it forbids it.
pub fn check_root(path: &str, source: &str) -> Option<Finding> {
    let forbids = source
        .lines()
        .any(|line| line.trim() == "#![forbid(unsafe_code)]");
    (!forbids && !may_be_unsafe(path)).then(|| {
        Finding::new(
            path,
            0,
            "a crate outside sys/ and abi/ begins with #![forbid(unsafe_code)]",
        )
    })
}

fn may_be_unsafe(path: &str) -> bool {
    UNSAFE_FOLDERS.iter().any(|folder| path.starts_with(folder))
}

fn walk(path: &str, lines: &[&str], tokens: TokenStream, findings: &mut Vec<Finding>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (n, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(ident) => {
                let line = ident.span().start().line;
                let next = tokens.get(n + 1);
                let previous = n.checked_sub(1).and_then(|n| tokens.get(n));
                if let Some(what) = judge(path, lines, &ident.to_string(), line, previous, next) {
                    findings.push(Finding::new(path, line, what));
                }
            }
            TokenTree::Group(group) => walk(path, lines, group.stream(), findings),
            _ => {}
        }
    }
}

/// Returns what is wrong with one word, given its neighbours.
fn judge(
    path: &str,
    lines: &[&str],
    word: &str,
    line: usize,
    previous: Option<&TokenTree>,
    next: Option<&TokenTree>,
) -> Option<String> {
    let is = |token: Option<&TokenTree>, mark: char| matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == mark);
    match word {
        "unsafe" if !may_be_unsafe(path) => {
            Some("unsafe code stands only in sys/ and abi/; let sys grow a safe wrapper".into())
        }
        "unsafe" if needs_argument(next) && !argued(lines, line) => Some(
            "an unsafe block or impl has a `// SAFETY:` comment above it that argues it".into(),
        ),
        _ if SYSTEM_CRATES.contains(&word)
            && !path.starts_with(SYSTEM_CALL_FOLDER)
            && !is(previous, '.') =>
        {
            let used = is(next, ':') || is(next, ';') || is(previous, ':');
            used.then(|| format!("{word}: system calls stand only in {SYSTEM_CALL_FOLDER}; let it grow a safe wrapper"))
        }
        "todo" | "unimplemented" | "dbg" if is(next, '!') => Some(format!("{word}! is left")),
        "ignore"
            if is(previous, '#') || (previous.is_none() && !is(next, ':') && !is(next, '.')) =>
        {
            let attribute = lines
                .get(line - 1)
                .is_some_and(|text| text.contains("#[ignore"));
            attribute.then(|| "a test that is switched off: mend it, or take it out".into())
        }
        _ => None,
    }
}

/// Blocks and impls are claims to be argued; functions and attributes say what their callers must
/// argue.
fn needs_argument(next: Option<&TokenTree>) -> bool {
    match next {
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Brace,
        Some(TokenTree::Ident(ident)) => *ident == "impl",
        _ => false,
    }
}

/// Whether `SAFETY:` stands on the line or in the lines above it, up to an empty one.
fn argued(lines: &[&str], line: usize) -> bool {
    let above = lines[..line - 1]
        .iter()
        .rev()
        .take(SAFETY_LINES)
        .take_while(|text| !text.trim().is_empty());
    std::iter::once(&lines[line - 1])
        .chain(above)
        .any(|text| text.contains("SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, source: &str) -> Vec<String> {
        check(path, source)
            .into_iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn unsafe_outside_its_folders_is_found() {
        let source = "fn f() {\n    // SAFETY: argued\n    unsafe { g() }\n}\n";
        assert_eq!(findings("sys/src/lib.rs", source), Vec::<String>::new());
        assert_eq!(findings("abi/mpi/src/lib.rs", source), Vec::<String>::new());
        assert!(
            findings("run/engine/src/lib.rs", source)[0]
                .starts_with("run/engine/src/lib.rs:3: unsafe code")
        );
        assert_eq!(findings("core/x.rs", "unsafe impl Send for X {}").len(), 1);
        assert_eq!(
            findings("core/x.rs", "#[unsafe(no_mangle)] fn f() {}").len(),
            1
        );
    }

    #[test]
    fn the_word_in_strings_comments_and_lint_names_is_no_finding() {
        let source = "#![forbid(unsafe_code)]\n// unsafe { }\nfn f() -> &'static str { \"unsafe { todo!() } libc::f\" }\n";
        assert_eq!(findings("core/x.rs", source), Vec::<String>::new());
    }

    #[test]
    fn an_unsafe_block_without_argument_is_found_also_in_macros() {
        assert_eq!(
            findings("sys/x.rs", "fn f() {\n    unsafe { g() }\n}\n").len(),
            1
        );
        assert_eq!(
            findings("sys/x.rs", "macro_rules! m { () => { unsafe { g() } } }").len(),
            1
        );
        assert_eq!(findings("sys/x.rs", "unsafe impl Send for X {}").len(), 1);
        let far = "// SAFETY: of another block\nfn a() {}\n\nfn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(findings("sys/x.rs", far).len(), 1);
        let multi_line =
            "fn f() {\n    // SAFETY: argued\n    let x = h(\n        unsafe { g() },\n    );\n}\n";
        assert_eq!(findings("sys/x.rs", multi_line), Vec::<String>::new());
    }

    #[test]
    fn declarations_of_unsafe_functions_need_no_comment() {
        assert_eq!(
            findings(
                "sys/x.rs",
                "pub unsafe fn f() {}\nunsafe extern \"C\" { fn g(); }\n"
            ),
            Vec::<String>::new()
        );
    }

    #[test]
    fn system_calls_outside_sys_are_found() {
        for source in [
            "use libc;",
            "use libc::c_int;",
            "fn f() { libc::getpid(); }",
            "use rustix::fs;",
            "use {nix::unistd};",
        ] {
            assert_eq!(findings("abi/mpi/src/lib.rs", source).len(), 1, "{source}");
            assert_eq!(findings("sys/src/lib.rs", source).len(), 0, "{source}");
        }
        assert_eq!(
            findings("job/x.rs", "fn f(x: X) { x.libc; let nix = 1; g(nix) }"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_is_left_open_is_found() {
        assert_eq!(findings("core/x.rs", "fn f() { todo!() }").len(), 1);
        assert_eq!(
            findings("core/x.rs", "fn f() { unimplemented!(\"x\") }").len(),
            1
        );
        assert_eq!(findings("core/x.rs", "fn f() { dbg!(1); }").len(), 1);
    }

    #[test]
    fn tests_that_are_switched_off_are_found() {
        assert_eq!(
            findings("core/x.rs", "#[test]\n#[ignore]\nfn f() {}\n").len(),
            1
        );
        assert_eq!(
            findings("core/x.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n").len(),
            1
        );
        assert_eq!(
            findings("core/x.rs", "use ignore::Walk;\nfn f() { ignore(1) }\n"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_crate_root_forbids_unsafe_code() {
        assert!(check_root("core/x/src/lib.rs", "//! Words.\n").is_some());
        assert!(check_root("core/x/src/lib.rs", "//! Words.\n#![forbid(unsafe_code)]\n").is_none());
        assert!(check_root("core/x/src/lib.rs", "// #![forbid(unsafe_code)]\n").is_some());
        assert!(check_root("sys/src/lib.rs", "//! Words.\n").is_none());
    }

    #[test]
    fn a_source_that_does_not_parse_is_found() {
        assert!(findings("core/x.rs", "fn f( {")[0].contains("does not parse"));
    }
}
