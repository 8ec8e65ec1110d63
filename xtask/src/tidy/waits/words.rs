//! Words of a source that let it wait.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Words that wait wherever they stand.
const WORDS: [&str; 25] = [
    "Condvar",
    "F_OFD_SETLKW",
    "F_SETLKW",
    "FUTEX_WAIT",
    "FUTEX_WAIT_BITSET",
    "PollSet",
    "block_on",
    "clock_nanosleep",
    "epoll_wait",
    "futex_wait",
    "nanosleep",
    "park",
    "park_timeout",
    "poll_fds",
    "ppoll",
    "pselect",
    "recv_timeout",
    "sched_yield",
    "sigwait",
    "spin_loop",
    "usleep",
    "wait_for_child",
    "wait_timeout",
    "wait_with_output",
    "yield_now",
];

/// Functions that wait when they are called by a path, `thread::sleep(..)`.
const FUNCTIONS: [&str; 3] = ["sleep", "waitid", "waitpid"];

/// Methods that wait, and what they are called on as far as words show: without arguments, and with
/// a result that is looked at or thrown away as one (`join` of a path has an argument, that of a
/// rank has no result).
const METHODS: [(&str, bool); 4] = [
    ("join", true),
    ("recv", true),
    ("sleep", false),
    ("wait", true),
];

/// What stands behind a call that has a result: `thread.join().unwrap()`, `child.wait()?`,
/// `let _ = thread.join();`.
const RESULT: [&str; 2] = [".", "?"];
/// Returns the waiting words of a source with their lines, without those of tests. One that does
/// not parse has none; another rule says so.
pub(super) fn waits(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    if let Ok(tokens) = source.parse::<TokenStream>() {
        walk(tokens, &mut found);
    }
    found
}

fn walk(tokens: TokenStream, found: &mut Vec<(usize, String)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let next = tokens.get(at + 1);
        at += 1;
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                if let Some(TokenTree::Group(attribute)) = next {
                    at += 1;
                    if is_for_tests(attribute.stream()) {
                        at = behind_item(&tokens, at);
                    }
                }
            }
            TokenTree::Ident(ident) => {
                let word = ident.to_string();
                if WORDS.contains(&word.as_str()) || is_call(&tokens, at - 1, &word) {
                    found.push((ident.span().start().line, word));
                }
            }
            TokenTree::Group(group) => walk(group.stream(), found),
            _ => {}
        }
    }
}

/// Whether the word at `at` calls something that waits.
fn is_call(tokens: &[TokenTree], at: usize, word: &str) -> bool {
    let Some(TokenTree::Group(arguments)) = tokens.get(at + 1) else {
        return false;
    };
    let before = at.checked_sub(1).and_then(|before| tokens.get(before));
    match before.map(ToString::to_string).as_deref() {
        _ if arguments.delimiter() != Delimiter::Parenthesis => false,
        Some(":") => FUNCTIONS.contains(&word),
        Some(".") => METHODS.iter().any(|&(name, has_result)| {
            name == word && (!has_result || arguments.stream().is_empty() && is_result(tokens, at))
        }),
        _ => false,
    }
}

/// Whether what the call at `at` returns is looked at, or thrown away by `let _ =`.
fn is_result(tokens: &[TokenTree], at: usize) -> bool {
    let behind = tokens.get(at + 2).map(ToString::to_string);
    let statement = tokens[..at]
        .iter()
        .rposition(|token| token.to_string() == ";");
    let start: Vec<String> = tokens[statement.map_or(0, |end| end + 1)..at]
        .iter()
        .take(2)
        .map(ToString::to_string)
        .collect();
    behind.is_some_and(|behind| RESULT.contains(&&*behind))
        || start.first().is_some_and(|word| word == "let")
}

/// Whether an attribute is `test`, or a `cfg` that asks for tests or for a model.
fn is_for_tests(attribute: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = attribute.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(only)] => only == "test",
        [TokenTree::Ident(cfg), TokenTree::Group(what)] if cfg == "cfg" => {
            asks_for_tests(what.stream())
        }
        _ => false,
    }
}

fn asks_for_tests(condition: TokenStream) -> bool {
    let mut negated = false;
    condition.into_iter().any(|token| match token {
        TokenTree::Ident(word) => {
            negated = word == "not";
            word == "test" || word == "loom"
        }
        TokenTree::Group(group) => !negated && asks_for_tests(group.stream()),
        _ => false,
    })
}

/// Returns the place behind the item that begins at `at`: its body in braces, or its semicolon.
fn behind_item(tokens: &[TokenTree], at: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    };
    let rest = tokens[at..].iter().position(ends);
    rest.map_or(tokens.len(), |end| at + end + 1)
}
