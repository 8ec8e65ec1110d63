//! Rules for every file: nothing left open, no path of one machine, scripts that their interpreter
//! accepts.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use regex::Regex;

use super::{File, Finding};

/// Words for what is left open. Written so that this file does not hold them.
static LEFT_OPEN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(TO[D]O|FI[X]ME|X[X]X|HA[C]K)\b").expect("a constant pattern"));

/// Absolute paths that exist on one machine only.
static MACHINE_PATH: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(^|[^A-Za-z0-9_.$}/])/(work|root|home|tmp)/[A-Za-z.]"#)
        .expect("a constant pattern")
});

static CONFLICT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(<{7}|>{7})( |$)").expect("a constant pattern"));

/// Files whose text comes from elsewhere.
const FOREIGN: [&str; 2] = ["LICENSE", "Cargo.lock"];

/// Checks one file.
pub fn check(file: &File) -> Vec<Finding> {
    let Some(text) = &file.text else {
        return vec![];
    };
    if FOREIGN.contains(&file.path.as_str()) {
        return vec![];
    }
    let mut findings = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let mut found = |what: &str| findings.push(Finding::new(&file.path, n + 1, what));
        if LEFT_OPEN.is_match(line) {
            found("something is left open: do it, or file it where work is kept");
        }
        if MACHINE_PATH.is_match(line) {
            found("a path of one machine: derive it, or take it as an option");
        }
        if CONFLICT.is_match(line) {
            found("a mark of a merge conflict");
        }
        if is_long_comment(&file.path, line) {
            found("a comment goes beyond column 100: wrap it");
        }
        if line.ends_with([' ', '\t']) && !line.trim().is_empty() {
            found("blanks at the end of the line");
        }
    }
    findings.extend(script(file, text));
    findings
}

/// Whether a line of Rust is a comment of more than 100 columns. Rows of tables cannot be wrapped.
fn is_long_comment(path: &str, line: &str) -> bool {
    const COLUMNS: usize = 100;
    path.ends_with(".rs")
        && line.trim_start().starts_with("//")
        && !line.contains(" | ")
        && line.chars().count() > COLUMNS
}

/// A script has the interpreter's line exactly when it is executable, and the interpreter accepts
/// it.
fn script(file: &File, text: &str) -> Option<Finding> {
    let first = text.lines().next().unwrap_or("");
    if file.executable != (first.starts_with("#!") && !first.starts_with("#![")) {
        let what = if file.executable {
            "is executable and names no interpreter"
        } else {
            "is a script and not executable"
        };
        return Some(Finding::new(&file.path, 0, what));
    }
    if !file.executable {
        return None;
    }
    let interpreter = first.rsplit(['/', ' ']).next().unwrap_or("");
    let arguments: &[&str] = match interpreter {
        "sh" | "bash" => &["-n"],
        "python3" => &["-c", "import ast, sys; ast.parse(sys.stdin.read())"],
        other => {
            return Some(Finding::new(
                &file.path,
                1,
                format!("'{other}' is no interpreter of the project's scripts"),
            ));
        }
    };
    match syntax(interpreter, arguments, text) {
        Ok(errors) if errors.is_empty() => None,
        Ok(errors) => Some(Finding::new(&file.path, 0, errors)),
        Err(error) => Some(Finding::new(
            &file.path,
            0,
            format!("{interpreter} cannot check it: {error}"),
        )),
    }
}

/// Returns the interpreter's complaint about a script, empty when it has none.
fn syntax(interpreter: &str, arguments: &[&str], text: &str) -> std::io::Result<String> {
    let mut child = Command::new(interpreter)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .expect("standard input is piped")
        .write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok(match output.status.success() {
        true => String::new(),
        false if errors.is_empty() => format!("{interpreter} does not accept it"),
        false => errors,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str, executable: bool) -> Vec<Finding> {
        check(&File {
            path: path.into(),
            text: Some(text.into()),
            executable,
        })
    }

    #[test]
    fn what_is_left_open_is_found() {
        for word in [
            concat!("TO", "DO"),
            concat!("FIX", "ME"),
            concat!("XX", "X"),
        ] {
            assert_eq!(
                findings("a.c", &format!("ok\n/* {word}: later */\n"), false).len(),
                1,
                "{word}"
            );
        }
        assert_eq!(findings("a.md", "Todos los hackers\n", false), vec![]);
        assert_eq!(findings("LICENSE", concat!("TO", "DO"), false), vec![]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for folder in ["work", "root", "home", "tmp"] {
            assert_eq!(
                findings("a.sh", &format!("cd /{folder}/me\n"), false).len(),
                1,
                "{folder}"
            );
            assert_eq!(
                findings("a.rs", &format!("\"/{folder}/.x\"\n"), false).len(),
                1,
                "{folder}"
            );
        }
        for fine in [
            "$prefix/home/x",
            "https://site.org/home/x",
            "a/root/b",
            "no files in /tmp for a job",
        ] {
            assert_eq!(findings("a.md", fine, false), vec![], "{fine}");
        }
    }

    #[test]
    fn conflicts_and_blanks_at_the_end_are_found() {
        assert_eq!(
            findings("a.md", &format!("{} HEAD\n", "<".repeat(7)), false).len(),
            1
        );
        assert_eq!(findings("a.md", "words \n", false).len(), 1);
    }

    #[test]
    fn comments_beyond_column_100_are_found() {
        let comment = |columns: usize| format!("    /// {}\n", "é".repeat(columns - 8));
        assert_eq!(findings("a.rs", &comment(100), false), vec![]);
        assert_eq!(findings("a.rs", &comment(101), false).len(), 1);
        assert_eq!(findings("a.md", &comment(101), false), vec![]);
        let row = format!("//! | {} | b |\n", "a".repeat(100));
        assert_eq!(findings("a.rs", &row, false), vec![]);
    }

    #[test]
    fn scripts_are_executable_and_parse() {
        assert_eq!(findings("run", "#!/bin/sh\necho fine\n", true), vec![]);
        assert_eq!(findings("run", "#!/bin/sh\nif true; then\n", true).len(), 1);
        assert_eq!(
            findings("run", "#!/bin/sh\necho fine\n", false)[0].what,
            "is a script and not executable"
        );
        assert_eq!(
            findings("run", "echo fine\n", true)[0].what,
            "is executable and names no interpreter"
        );
        assert_eq!(findings("run", "#!/usr/bin/perl\n", true).len(), 1);
        assert_eq!(
            findings("lib.rs", "#![forbid(unsafe_code)]\n", false),
            vec![]
        );
    }

    #[test]
    fn a_file_that_is_no_text_is_passed_over() {
        assert_eq!(
            check(&File {
                path: "a.png".into(),
                text: None,
                executable: false
            }),
            vec![]
        );
    }
}
