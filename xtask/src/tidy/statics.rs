//! State hangs off values: no mutable statics outside the libraries that look up the one rank.
//!
//! Found in tokens: `static mut` anywhere, and in `FOLDERS` statics and thread-local variables
//! whose types name one of the standard library's types with interior mutability. A type of the
//! project that contains one of these is not seen through.

use proc_macro2::{TokenStream, TokenTree};

use super::{File, Finding};

/// Folders whose crates own no state: their users make values.
const FOLDERS: [&str; 6] = ["core/", "net/", "fs/", "job/", "run/", "svc/"];

/// Types with interior mutability; also those that begin with `Atomic`.
const MUTABLE: [&str; 11] = [
    "Cell",
    "Condvar",
    "LazyCell",
    "LazyLock",
    "Mutex",
    "Once",
    "OnceCell",
    "OnceLock",
    "RefCell",
    "RwLock",
    "UnsafeCell",
];

/// Statics that may be mutable: file, name, and why.
const EXCEPTIONS: [(&str, &str, &str); 11] = [
    (
        "job/observe/src/lib.rs",
        "TURN",
        "of tests: a process that holds two segments is seen with one, so those that make one take turns",
    ),
    (
        "run/engine/src/monitor/python.rs",
        "INTERPRETER",
        "a process has one interpreter of Python, which is looked for once",
    ),
    (
        "run/engine/src/monitor/python.rs",
        "FOUND",
        "whether there is an interpreter, for a handler of signals that has nothing but an address",
    ),
    (
        "run/engine/src/monitor/python.rs",
        "PLACES",
        "the recorder asks for the file of a call site by its number alone, as it asks the loader for that of an address",
    ),
    (
        "run/engine/src/monitor/recording.rs",
        "LANE",
        "the ring in which the calling thread records its calls, which nothing else finds in a few nanoseconds",
    ),
    (
        "run/engine/src/monitor/recording.rs",
        "KEPT",
        "gives that ring back when the thread ends",
    ),
    (
        "run/threads/src/pool.rs",
        "CURRENT",
        "the worker of the calling thread: a call from anywhere in the program has nothing else to find it by",
    ),
    (
        "run/openmp/src/affinity.rs",
        "PLACE",
        "what was set in the kernel for the calling thread last, so that only changes are set",
    ),
    (
        "run/openmp/src/tls.rs",
        "SPARE",
        "a set of thread-local variables that the calling thread keeps for its next nested member, so that it needs no lock",
    ),
    (
        "run/mlp/src/lib.rs",
        "HERE",
        "the calling thread's number in its process, which only the thread knows",
    ),
    (
        "svc/pfs/src/near.rs",
        "PLACE",
        "to which core the calling thread is bound; the threads are those of a crate that hands them nothing",
    ),
];

/// Checks all source files.
pub fn check(files: &[File]) -> Vec<Finding> {
    check_with(files, &EXCEPTIONS)
}

fn check_with(files: &[File], exceptions: &[(&str, &str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_used = vec![false; exceptions.len()];
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        // What does not parse is a finding of another rule.
        let Ok(tokens) = file.text.as_deref().unwrap_or("").parse::<TokenStream>() else {
            continue;
        };
        let mut statics = Vec::new();
        collect(tokens, &mut statics);
        for found in statics {
            let exception = exceptions
                .iter()
                .position(|(path, name, _)| *path == file.path && *name == found.name);
            if found.is_mut {
                findings.push(Finding::new(
                    &file.path,
                    found.line,
                    format!(
                        "static mut {}: nothing is a mutable static; hand a value on",
                        found.name
                    ),
                ));
            } else if let (Some(at), Some(_)) = (exception, &found.mutable) {
                is_used[at] = true;
            } else if let Some(kind) = found.mutable
                && holds_no_state(&file.path)
            {
                findings.push(Finding::new(
                    &file.path,
                    found.line,
                    format!(
                        "static {} has a {kind}: state hangs off values that callers hand in; if there is \
                         no other way, list it with the reason in xtask/src/tidy/statics.rs",
                        found.name
                    ),
                ));
            }
        }
    }
    for ((path, name, _), is_used) in exceptions.iter().zip(is_used) {
        if !is_used {
            findings.push(Finding::new(
                path,
                0,
                format!(
                    "there is no mutable static {name}; remove it from xtask/src/tidy/statics.rs"
                ),
            ));
        }
    }
    findings
}

/// Whether this is a source file, not a test, of a crate that owns no state.
fn holds_no_state(path: &str) -> bool {
    FOLDERS.iter().any(|folder| path.starts_with(folder)) && !path.contains("/tests/")
}

/// A static or thread-local variable.
struct Static {
    name: String,
    line: usize,
    is_mut: bool,
    /// The type with interior mutability that its type names.
    mutable: Option<String>,
}

fn collect(tokens: TokenStream, statics: &mut Vec<Static>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (n, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => collect(group.stream(), statics),
            TokenTree::Ident(ident) if *ident == "static" => {
                statics.extend(declaration(&tokens[n + 1..], ident.span().start().line));
            }
            _ => {}
        }
    }
}

/// Returns the declaration behind the word `static`; none where that is a lifetime or begins a
/// closure.
fn declaration(rest: &[TokenTree], line: usize) -> Option<Static> {
    let is_mut = matches!(rest.first(), Some(TokenTree::Ident(word)) if *word == "mut");
    let rest = &rest[usize::from(is_mut)..];
    let (Some(TokenTree::Ident(name)), Some(TokenTree::Punct(colon))) = (rest.first(), rest.get(1))
    else {
        return None;
    };
    if colon.as_char() != ':' {
        return None;
    }
    let of = rest[2..].iter().take_while(
        |token| !matches!(token, TokenTree::Punct(mark) if matches!(mark.as_char(), '=' | ';')),
    );
    Some(Static {
        name: name.to_string(),
        line,
        is_mut,
        mutable: mutable_type(of.cloned().collect()),
    })
}

/// Returns the first type with interior mutability that the tokens of a type name.
fn mutable_type(of: TokenStream) -> Option<String> {
    of.into_iter().find_map(|token| match token {
        TokenTree::Ident(word) => {
            let word = word.to_string();
            let is_mutable = word.starts_with("Atomic") || MUTABLE.contains(&word.as_str());
            is_mutable.then_some(word)
        }
        TokenTree::Group(group) => mutable_type(group.stream()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, source: &str, exceptions: &[(&str, &str, &str)]) -> Vec<String> {
        let file = File {
            path: path.to_owned(),
            text: Some(source.to_owned()),
            executable: false,
        };
        check_with(&[file], exceptions)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    const MUTABLE_STATICS: [&str; 6] = [
        "static COUNT: AtomicU32 = AtomicU32::new(0);",
        "pub(crate) static TABLE: std::sync::Mutex<Vec<u8>> = Mutex::new(Vec::new());",
        "fn f() { static POOL: OnceLock<Pool> = OnceLock::new(); }",
        "thread_local! {\n    static HERE: Cell<u32> = const { Cell::new(0) };\n}",
        "static BOTH: (u8, [RefCell<u8>; 2]) = X;",
        "macro_rules! m { () => { static LAST: RwLock<String> = RwLock::new(String::new()); } }",
    ];

    #[test]
    fn mutable_statics_are_found_where_no_state_may_be() {
        for source in MUTABLE_STATICS {
            for path in [
                "run/openmp/src/a.rs",
                "core/x/src/lib.rs",
                "net/shm/src/lib.rs",
                "job/l/src/a.rs",
            ] {
                assert_eq!(findings(path, source, &[]).len(), 1, "{path}: {source}");
            }
            for path in [
                "abi/gomp/src/lib.rs",
                "sys/src/lib.rs",
                "cli/src/main.rs",
                "run/x/tests/a.rs",
            ] {
                assert_eq!(
                    findings(path, source, &[]),
                    Vec::<String>::new(),
                    "{path}: {source}"
                );
            }
        }
        assert!(
            findings("run/a.rs", MUTABLE_STATICS[3], &[])[0]
                .starts_with("run/a.rs:2: static HERE has a Cell")
        );
    }

    #[test]
    fn static_mut_is_found_everywhere() {
        for path in ["run/a.rs", "abi/mpi/src/lib.rs", "sys/src/lib.rs"] {
            assert_eq!(
                findings(path, "static mut COUNT: u32 = 0;", &[]).len(),
                1,
                "{path}"
            );
        }
    }

    #[test]
    fn constants_and_lifetimes_are_no_findings() {
        let source = "static SIZES: [u8; 2] = [1, 2];\nconst ONE: AtomicU32 = AtomicU32::new(1);\n\
                      fn f(x: &'static Mutex<u8>) -> &'static str { \"static A: Cell<u8>\" }\n\
                      thread_local!(static HERE: u8 = const { 0 });\n";
        assert_eq!(findings("run/a.rs", source, &[]), Vec::<String>::new());
    }

    #[test]
    fn an_exception_is_for_one_static_and_must_be_needed() {
        let exceptions = [("run/a.rs", "COUNT", "reason")];
        assert_eq!(
            findings("run/a.rs", MUTABLE_STATICS[0], &exceptions),
            Vec::<String>::new()
        );
        let two = format!("{} static OTHER: AtomicU8 = X;", MUTABLE_STATICS[0]);
        assert_eq!(findings("run/a.rs", &two, &exceptions).len(), 1);
        // Another file does not have it, and the list is not kept for nothing.
        assert_eq!(
            findings("run/b.rs", MUTABLE_STATICS[0], &exceptions).len(),
            2
        );
        assert_eq!(
            findings("run/a.rs", "static COUNT: u8 = 0;", &exceptions).len(),
            1
        );
    }
}
