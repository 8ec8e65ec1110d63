//! README's commands run as they stand there: every block that compiles or runs a program of
//! `examples/`. So do the tutorial's programs and sessions, and print what it says.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use margay_tests::{command, run, scratch, stage};

/// Exit status of a job whose time is over.
const TIMED_OUT: &str = "124";

/// Before each status in the script's output.
const MARK: &str = "== status ";

/// The lines of each block of shell commands, those that a backslash continues as one.
fn blocks(readme: &str) -> Vec<Vec<String>> {
    let mut blocks = Vec::new();
    let mut lines = readme.lines();
    while lines.any(|line| line == "```sh") {
        let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let joined = text.join("\n").replace("\\\n", " ");
        blocks.push(joined.lines().map(str::to_owned).collect());
    }
    blocks
}

/// Whether a block needs nothing but the tree and the programs of `examples/`.
fn is_about_examples(block: &[String]) -> bool {
    let about = |line: &String| line.contains("examples/") || line.contains(" ./");
    block.iter().any(about)
}

/// A script that runs each line as an interactive shell would, and prints its status.
fn script(block: &[String]) -> String {
    // Jobs have numbers, and one that is still running does not outlive the script.
    let mut script = String::from("set -m\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n");
    for line in block {
        if line.starts_with("showmesh") {
            // A reader takes longer to type this than the waits need to settle.
            script += "for _ in $(seq 200); do showmesh --once | grep -q deadlock: && break; sleep 0.1; done\n";
        }
        let _ = writeln!(script, "{line}\nprintf '\\n{MARK}%d\\n' $?");
    }
    script + "wait\n"
}

#[test]
fn the_commands_of_the_readme_do_what_it_says() {
    let folder = scratch();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in a folder");
    for (name, to) in [("stage", stage()), ("examples", workspace.join("examples"))] {
        symlink(to, folder.path().join(name)).expect("a link");
    }
    let readme = std::fs::read_to_string(workspace.join("README.md")).expect("README.md");
    let mut said = String::new();
    for block in blocks(&readme).iter().filter(|b| is_about_examples(b)) {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = command("bash", 240);
        shell
            .arg("-c")
            .arg(script(block))
            .current_dir(folder.path())
            .env("PATH", format!("{}:{path}", stage().join("bin").display()));
        let output = run(&mut shell);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let statuses: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix(MARK)).collect();
        assert_eq!(statuses.len(), block.len(), "{block:#?}\n{text}\n{errors}");
        for (line, status) in block.iter().zip(statuses) {
            let expected = if line.contains("-timeout") {
                TIMED_OUT
            } else {
                "0"
            };
            assert_eq!(status, expected, "{line}\n{text}\n{errors}");
        }
        said += &text;
        said += &errors;
    }
    for part in [
        "hello from rank 3 of 4",
        "the ranks' numbers add up to 6",
        "ocean on 2 ranks: from ",
        "air on 2 ranks: from ",
        "pi is 3.1415926536, computed by 4 nodes",
        "the ring counted 400,",
        "task 3 of 4 holds 0.0",
        "deadlock: 0 → 2 → 1 → 0",
        "mpiexec: deadlock: 0 → 2 → 1 → 0",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(folder.path().join("temperature.field").exists());
}

/// The blocks of a page between ``` and ```, with the language behind the first.
fn fenced(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(language) = lines.by_ref().find_map(|line| line.strip_prefix("```")) {
        blocks.push((
            language,
            lines.by_ref().take_while(|line| *line != "```").collect(),
        ));
    }
    blocks
}

/// A line without what differs from run to run: numbers, and how far they are indented.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for word in line.split_whitespace() {
        for c in word.chars() {
            match c {
                '0'..='9' | '.' if shape.ends_with('#') => {}
                '0'..='9' => shape.push('#'),
                c => shape.push(c),
            }
        }
        shape.push(' ');
    }
    shape
}

#[test]
fn the_programs_and_sessions_of_the_tutorial_do_what_it_says() {
    let (programs, sessions) = play("docs/tutorial.md");
    assert!(programs >= 4 && sessions >= 7, "{programs} {sessions}");
}

#[test]
fn the_sessions_of_the_lesson_show_what_it_says() {
    let (_, sessions) = play("docs/lesson.md");
    assert_eq!(sessions, 4);
}

/// Writes the programs of a page, runs its sessions and compares what they print. Returns how many
/// there are.
fn play(page: &str) -> (u32, u32) {
    let folder = scratch();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in a folder");
    symlink(workspace.join("examples"), folder.path().join("examples")).expect("a link");
    let page = std::fs::read_to_string(workspace.join(page)).expect("the page");
    let (mut programs, mut sessions) = (0, 0);
    for (language, lines) in fenced(&page) {
        if matches!(language, "c" | "fortran") {
            // The first line is a comment that begins with the file's name.
            let name = lines[0].split([' ', ':']).nth(1).expect("a name");
            std::fs::write(folder.path().join(name), lines.join("\n") + "\n").expect("a file");
            programs += 1;
        }
        if language != "console" {
            continue;
        }
        sessions += 1;
        let (commands, printed): (Vec<&str>, Vec<&str>) =
            lines.iter().partition(|line| line.starts_with("$ "));
        let commands: Vec<String> = commands.iter().map(|line| line[2..].to_owned()).collect();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = command("bash", 240);
        shell
            .arg("-c")
            .arg(script(&commands))
            .current_dir(folder.path())
            .env("PATH", format!("{}:{path}", stage().join("bin").display()));
        let output = run(&mut shell);
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let statuses: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix(MARK)).collect();
        let expected = commands.iter().map(|line| match line {
            line if line.contains("-timeout") => TIMED_OUT,
            line if line.contains("-check") || line.contains("-deadlock end") => "1",
            _ => "0",
        });
        assert_eq!(
            statuses,
            expected.collect::<Vec<_>>(),
            "{commands:#?}\n{text}"
        );
        let shapes: Vec<String> = text.lines().map(shape).collect();
        for line in printed {
            assert!(shapes.contains(&shape(line)), "{line}\n{text}");
        }
    }
    (programs, sessions)
}
