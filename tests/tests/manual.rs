//! The manual pages of the stage tree: every command has one, with all that its help lists, and
//! `man` has nothing to complain of.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use margay_tests::{command, run, stage, succeed};

fn page(name: &str) -> PathBuf {
    stage().join(format!("share/man/man1/{name}.1.gz"))
}

/// The source of a page as a reader sees it: dashes and quotes are themselves.
fn read(name: &str) -> String {
    let text = succeed(command("gzip", 60).arg("-dc").arg(page(name)));
    [("\\-", "-"), ("\\(aq", "'"), ("\\fB", ""), ("\\fR", "")]
        .iter()
        .fold(text, |text, (written, shown)| text.replace(written, shown))
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_+".contains(c)
}

/// The options in a help: words that begin with a dash, at the beginning of a line or behind a
/// comma, and those that are called an alias.
fn options(help: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for line in help.lines().filter(|line| line.starts_with("  ")) {
        let line = line.trim_start();
        if line.starts_with('-') {
            let head = line.split("  ").next().unwrap_or_default();
            all.extend(head.split(", ").map(str::to_owned));
        }
    }
    let joined = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for kind in ["[alias: ", "[aliases: "] {
        for found in joined.split(kind).skip(1) {
            let names = found.split(']').next().unwrap_or_default();
            all.extend(names.split(", ").map(str::to_owned));
        }
    }
    let name = |text: String| {
        let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
        text[..end].to_owned()
    };
    all.into_iter().map(name).filter(|n| n.len() > 1).collect()
}

/// Checks that a page names all options of a help.
fn compare(name: &str, help: &str) {
    let text = read(name);
    let words: BTreeSet<&str> = text.split(|c| !is_name(c)).collect();
    let all = options(help);
    assert!(!all.is_empty(), "{name}: no options in {help}");
    for option in all {
        assert!(words.contains(option.as_str()), "{name}.1 lacks {option}");
    }
}

/// The names of the commands that a help lists.
fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

#[test]
fn every_command_has_a_page_with_all_that_its_help_lists() {
    let mut seen = 0;
    for entry in fs::read_dir(stage().join("bin")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // The wrappers are scripts, and `--help` is their compiler's.
        let is_script = fs::read(&path).unwrap().starts_with(b"#!");
        let option = if is_script { "-help" } else { "--help" };
        let help = succeed(command(&path, 60).arg(option));
        compare(&name, &help);
        seen += 1;
        for sub in commands(&help) {
            let page = format!("{name}-{sub}");
            compare(&page, &succeed(command(&path, 60).args([&sub, option])));
        }
    }
    assert!(seen > 10, "{seen} commands");
}

#[test]
fn commands_of_commands_have_pages_too() {
    let margay = stage().join("bin/margay");
    let help = succeed(command(&margay, 60).args(["bench", "--help"]));
    let all = commands(&help);
    assert_eq!(all, ["threads", "files"]);
    for sub in all {
        let help = succeed(command(&margay, 60).args(["bench", &sub, "--help"]));
        compare(&format!("margay-bench-{sub}"), &help);
    }
}

#[test]
fn man_has_nothing_to_complain_of() {
    for entry in fs::read_dir(stage().join("share/man/man1")).unwrap() {
        let path = entry.unwrap().path();
        let complain = "gzip -dc \"$0\" | groff -ww -man -Tutf8 -z";
        let output = run(command("sh", 60).args(["-c", complain]).arg(&path));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.is_empty(),
            "{}: {said}",
            path.display()
        );
    }
}
