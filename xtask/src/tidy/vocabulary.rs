//! Words that have a standard one instead. A reader who knows MPI and Linux needs no glossary of
//! this project.

use std::sync::LazyLock;

use regex::Regex;

use super::{File, Finding};

/// Words and phrases that do not stand in the tree, and what is written instead. Each is matched
/// as whole words. Split, so that this file does not hold them.
const WORDS: [(&str, &str, &str); 23] = [
    (
        "crow",
        "ded",
        "oversubscribed (by ourselves) or contended (by others)",
    ),
    (
        "out",
        "done",
        "oversubscribed (by ourselves) or contended (by others)",
    ),
    ("others p", "ress", "contended"),
    ("gives? w", "ay", "yield"),
    ("give the core a", "way", "yield"),
    ("trou", "ble", "failure_pending, or what failed"),
    ("hu", "rt", "has_failures, or what failed"),
    ("Mee", "ting", "its kind: rendezvous, barrier, split"),
    ("In", "let", "progress hook"),
    ("Se", "at", "worker slot"),
    ("B", "ed", "sleep state"),
    ("ri", "pe", "stealable"),
    ("pati", "ence", "delay, or limit"),
    ("PATI", "ENCE", "delay, or limit"),
    ("lay o", "ut", "publish"),
    ("way b", "ack", "reverse traversal"),
    ("is_po", "ked", "has_wakeup"),
    ("is_choo", "sy", "is_constrained"),
    ("reli", "eve", "pause"),
    (
        "[Tt]o",
        "ld",
        "reported, distinguished, or what the message is: WindowInfo, Vote",
    ),
    ("the o", "wn", "its own, or our own"),
    ("so ma", "ny", "this many, or the number"),
    (
        "[Ww]ho",
        "ever",
        "a caller, a client, an observer: the one that is meant",
    ),
];

/// The words as one pattern, with a group for each.
static PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    let groups: Vec<String> = WORDS.iter().map(|(a, b, _)| format!("({a}{b})")).collect();
    Regex::new(&format!(r"\b(?:{})\b", groups.join("|"))).expect("a constant pattern")
});

/// Files that quote: figures of former runs, and what others have written.
const QUOTES: [&str; 4] = ["bench/results/", "tests/facts/", "Cargo.lock", "LICENSE"];

/// Checks one file.
pub fn check(file: &File) -> Vec<Finding> {
    let Some(text) = &file.text else {
        return vec![];
    };
    if QUOTES.iter().any(|quote| file.path.starts_with(quote)) {
        return vec![];
    }
    let mut findings = Vec::new();
    for (n, line) in text.lines().enumerate() {
        for found in PATTERN.captures_iter(line) {
            let (_, _, remedy) = (WORDS.iter().enumerate())
                .find(|(group, _)| found.get(group + 1).is_some())
                .map_or(("", "", "another word"), |(_, word)| *word);
            let what = format!("'{}': write {remedy}", &found[0]);
            findings.push(Finding::new(&file.path, n + 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn each_word_is_found_with_its_remedy() {
        for (a, b, remedy) in WORDS {
            let word = format!("{a}{b}")
                .replace("[Ww]", "W")
                .replace("[Tt]", "t")
                .replace("s?", "s");
            let findings = check(&file("docs/a.md", &format!("fine\nthat {word}, there\n")));
            assert_eq!(findings.len(), 1, "{word}");
            assert_eq!(findings[0].line, 2);
            assert!(findings[0].what.ends_with(remedy), "{word}");
        }
    }

    #[test]
    fn parts_of_words_and_files_that_quote_are_passed_over() {
        let parts = concat!("un", "hu", "rt, in", "let", ", ri", "per");
        assert_eq!(check(&file("a.rs", parts)), vec![]);
        let quoted = concat!("it was to", "ld");
        assert_eq!(check(&file("bench/results/a.json", quoted)), vec![]);
        assert_eq!(check(&file("bench/a.rs", quoted)).len(), 1);
    }
}
