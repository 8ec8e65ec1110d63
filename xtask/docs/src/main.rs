//! Prints the lists in the guides: in `docs/mpi.md` from the table of variables
//! (`run/mpi/src/tool/table.rs`), in those of NX, MPL and MLP from the definitions of their calls
//! and errors. A list is what stands between a line `<!-- begin NAME: ... -->` and the next
//! `<!-- end -->`.
//!
//! `cargo xtask docs` runs this program. It is a crate of its own because it links the table and
//! with it the product: the other commands, `cargo xtask tidy` above all, work when the product
//! does not compile.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use margay_run_mpi::constants::tools::*;
use margay_run_mpi::tool::environment::ENVIRONMENT;
use margay_run_mpi::tool::table::*;
use xtask::library::tables;

/// The guides that have lists.
const GUIDES: [&str; 4] = ["docs/mpi.md", "docs/nx.md", "docs/mpl.md", "docs/mlp.md"];

fn main() -> ExitCode {
    let check = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => {
            eprintln!("xtask-docs: '{other}' is no option; it takes --check only");
            return ExitCode::FAILURE;
        }
    };
    match run(workspace(), check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask-docs: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The root folder of the workspace.
fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Writes the guides; with `check` only compares them.
///
/// # Errors
/// When one cannot be read or written, names a list that there is not, or, with `check`, is out of
/// date.
fn run(root: &Path, check: bool) -> Result<(), String> {
    for guide in GUIDES {
        let file = root.join(guide);
        let old =
            std::fs::read_to_string(&file).map_err(|e| format!("cannot read {guide}: {e}"))?;
        let new = fill(root, &old).map_err(|e| format!("{guide}: {e}"))?;
        if old == new {
            continue;
        }
        if check {
            return Err(format!("{guide} is out of date; run `cargo xtask docs`"));
        }
        std::fs::write(&file, new).map_err(|e| format!("cannot write {guide}: {e}"))?;
    }
    Ok(())
}

/// Returns the text with its lists printed anew.
///
/// # Errors
/// When a list is not known or does not end, or its definitions cannot be read.
fn fill(root: &Path, text: &str) -> Result<String, String> {
    let mut new = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        new += line;
        new.push('\n');
        let Some(name) = line.strip_prefix("<!-- begin ") else {
            continue;
        };
        let name = name.split(':').next().unwrap_or_default();
        let printed = match list(name) {
            Some(printed) => Some(printed),
            None => tables::list(root, name)?,
        };
        new += &printed.ok_or_else(|| format!("no list '{name}'"))?;
        let end = lines.by_ref().find(|line| *line == "<!-- end -->");
        new += end.ok_or_else(|| format!("the list '{name}' does not end"))?;
        new.push('\n');
    }
    Ok(new)
}

fn list(name: &str) -> Option<String> {
    Some(match name {
        "control variables" => controls(),
        "performance variables" => performance(),
        "events" => events(),
        "environment variables" => environment(),
        _ => return None,
    })
}

/// Returns a table for each category that has rows; `row` gives a row's category and cells.
fn tables<T>(heads: &[&str], all: &[T], row: impl Fn(&T) -> (&'static str, Vec<String>)) -> String {
    let mut text = String::new();
    for category in CATEGORIES {
        let rows: Vec<_> = all
            .iter()
            .map(&row)
            .filter(|r| r.0 == category.name)
            .collect();
        if rows.is_empty() {
            continue;
        }
        write!(
            text,
            "\nCategory `{}`: {}\n\n| ",
            category.name, category.about
        )
        .expect("a string grows");
        text += &heads.join(" | ");
        text += " |\n|";
        text += &" --- |".repeat(heads.len());
        text.push('\n');
        for (_, cells) in rows {
            writeln!(text, "| {} |", cells.join(" | ")).expect("a string grows");
        }
    }
    text.push('\n');
    text
}

fn controls() -> String {
    tables(&["variable", "environment", "set", ""], CONTROLS, |c| {
        let environment = c.environment.map_or(String::new(), |e| format!("`{e}`"));
        let set = match (c.scope, c.setting) {
            (MPI_T_SCOPE_CONSTANT | MPI_T_SCOPE_READONLY, _) => "never",
            (_, Setting::ProgressThread) => "before the start",
            (MPI_T_SCOPE_ALL, _) => "always, best on all ranks",
            _ => "always",
        };
        let mut about = c.about.to_string();
        if let Some(enumeration) = c.enumeration.map(|e| &ENUMERATIONS[e]) {
            let items: Vec<_> = enumeration
                .items
                .iter()
                .map(|(v, n)| format!("{v}: {n}"))
                .collect();
            write!(about, " ({})", items.join(", ")).expect("a string grows");
        }
        (
            c.category,
            vec![format!("`{}`", c.name), environment, set.into(), about],
        )
    })
}

fn performance() -> String {
    tables(&["variable", "class", ""], PERFORMANCE, |p| {
        let class = match p.class {
            MPI_T_PVAR_CLASS_STATE => "state",
            MPI_T_PVAR_CLASS_LEVEL => "level",
            MPI_T_PVAR_CLASS_SIZE => "size",
            MPI_T_PVAR_CLASS_PERCENTAGE => "percentage",
            MPI_T_PVAR_CLASS_HIGHWATERMARK => "high watermark",
            MPI_T_PVAR_CLASS_COUNTER => "counter",
            MPI_T_PVAR_CLASS_AGGREGATE => "aggregate",
            MPI_T_PVAR_CLASS_TIMER => "timer",
            _ => "generic",
        };
        (
            p.category,
            vec![format!("`{}`", p.name), class.into(), p.about.into()],
        )
    })
}

fn events() -> String {
    tables(&["event", "elements", ""], EVENTS, |e| {
        let elements: Vec<_> = e.elements.iter().map(|(name, _)| *name).collect();
        (
            e.category,
            vec![format!("`{}`", e.name), elements.join(", "), e.about.into()],
        )
    })
}

fn environment() -> String {
    let mut text = String::from("\n| variable | read by | |\n| --- | --- | --- |\n");
    let controls = CONTROLS.iter().filter_map(|c| {
        let name = c.environment?;
        Some((name, "the library", format!("{} (`{}`)", c.about, c.name)))
    });
    let others = ENVIRONMENT
        .iter()
        .map(|e| (e.name, e.reader, e.about.to_string()));
    for (name, reader, about) in others.chain(controls) {
        writeln!(text, "| `{name}` | {reader} | {about} |").expect("a string grows");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use xtask::tidy;

    use super::*;

    #[test]
    fn the_guides_are_up_to_date() {
        run(workspace(), true).unwrap();
    }

    /// Every function that a header of NX, MPL, MLP or IML declares has a line in a table of its
    /// guide.
    #[test]
    fn every_call_is_in_its_guide() {
        for (header, guide, name) in [
            (
                "abi/nx/include/nx.h",
                "docs/nx.md",
                r"(?m)^[a-z][a-z ]*[ *]([a-z]\w*)\(",
            ),
            (
                "abi/mpl/include/mpl.h",
                "docs/mpl.md",
                r"(?m)^int (mpc_\w+)\(",
            ),
            (
                "abi/mlp/include/mlp.h",
                "docs/mlp.md",
                r"(?m)^[a-z][a-z ]*[ *]([a-z]\w*)\(",
            ),
            (
                "abi/iml/include/iml.h",
                "docs/threads.md",
                r"(?m)^[a-z][a-z ]*[ *](iml_\w+)\(",
            ),
        ] {
            let read = |path: &str| std::fs::read_to_string(workspace().join(path)).unwrap();
            let (header, guide_text) = (read(header), read(guide));
            let rows: String = guide_text
                .lines()
                .filter(|line| line.starts_with("| `"))
                .collect();
            let found = regex::Regex::new(name).unwrap();
            let names: BTreeSet<String> = found
                .captures_iter(&header)
                .map(|capture| capture[1].to_owned())
                .collect();
            assert!(names.len() > 10, "{guide}: {names:?}");
            for name in names {
                let is_there = [format!("`{name}("), format!("`{name}`")]
                    .iter()
                    .any(|form| rows.contains(form));
                assert!(is_there, "{guide} has no line for {name}");
            }
        }
    }

    #[test]
    fn a_list_is_printed_between_its_marks() {
        let text = "a\n<!-- begin events: printed -->\nold\n<!-- end -->\nb\n";
        let fill = |text: &str| fill(workspace(), text);
        let filled = fill(text).unwrap();
        assert!(
            filled.starts_with("a\n<!-- begin events: printed -->\n\nCategory"),
            "{filled}"
        );
        assert!(
            filled.ends_with("<!-- end -->\nb\n") && !filled.contains("old"),
            "{filled}"
        );
        assert_eq!(fill(&filled).unwrap(), filled);
        assert!(fill("<!-- begin nothing: -->\n<!-- end -->\n").is_err());
        assert!(fill("<!-- begin events: -->\n").is_err());
    }

    /// Code that reads a variable of the environment that is ours has to name it in the table.
    #[test]
    fn every_environment_variable_is_in_the_table() {
        let known: BTreeSet<&str> = CONTROLS
            .iter()
            .filter_map(|c| c.environment)
            .chain(ENVIRONMENT.iter().map(|e| e.name))
            .collect();
        // A name that ends with "_" is what several begin with.
        let name = regex::Regex::new("\"((?:MARGAY|MP)_[A-Z_]*[A-Z])\"").unwrap();
        for file in tidy::files(workspace()).unwrap() {
            let Some(text) = file.text.filter(|_| file.path.ends_with(".rs")) else {
                continue;
            };
            for found in name.captures_iter(&text) {
                let found = found.get(1).expect("it has one group").as_str();
                // What tests put on their jobs, or are given by hand, is nothing that a user sets.
                if !found.starts_with("MARGAY_TEST_") {
                    assert!(known.contains(found), "{}: {found}", file.path);
                }
            }
        }
    }
}
