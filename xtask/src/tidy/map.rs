//! The README's map: each line of it names something that is there, and all that is there is on it.

use std::collections::BTreeSet;

use super::{File, Finding};

const README: &str = "README.md";
const HEADING: &str = "## The map";

/// Checks the map against the project's files.
pub fn check(files: &[File]) -> Vec<Finding> {
    let Some(text) = files
        .iter()
        .find(|file| file.path == README)
        .and_then(|file| file.text.as_deref())
    else {
        return vec![Finding::new(README, 0, "is missing")];
    };
    let entries = entries(text);
    if entries.is_empty() {
        return vec![Finding::new(
            README,
            0,
            format!("has no block with the map under '{HEADING}'"),
        )];
    }
    let mut findings = Vec::new();
    for (line, entry) in &entries {
        let there = match entry.strip_suffix('/') {
            Some(folder) => files
                .iter()
                .any(|file| file.path.starts_with(&format!("{folder}/"))),
            None => files.iter().any(|file| file.path == *entry),
        };
        if !there {
            findings.push(Finding::new(
                README,
                *line,
                format!("the map names {entry}, which is not there"),
            ));
        }
    }
    let on_map: BTreeSet<&str> = entries.iter().map(|(_, entry)| entry.as_str()).collect();
    let missing: BTreeSet<String> = files
        .iter()
        .filter(|file| !file.path.starts_with('.'))
        .filter_map(|file| file.path.split_once('/'))
        .map(|(folder, _)| format!("{folder}/"))
        .filter(|folder| !on_map.contains(folder.as_str()))
        .collect();
    findings.extend(
        missing
            .iter()
            .map(|folder| Finding::new(README, 0, format!("the map does not name {folder}"))),
    );
    findings
}

/// Line and path of each line of the first fenced block under the heading: the path comes first,
/// then words about it.
fn entries(readme: &str) -> Vec<(usize, String)> {
    readme
        .lines()
        .enumerate()
        .skip_while(|(_, line)| line.trim() != HEADING)
        .skip_while(|(_, line)| !line.starts_with("```"))
        .skip(1)
        .take_while(|(_, line)| !line.starts_with("```"))
        .filter_map(|(n, line)| Some((n + 1, line.split_whitespace().next()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn house(readme: &str, paths: &[&str]) -> Vec<File> {
        let file = |path: &str, text: &str| File {
            path: path.into(),
            text: Some(text.into()),
            executable: false,
        };
        let mut files: Vec<File> = paths.iter().map(|path| file(path, "")).collect();
        files.push(file(README, readme));
        files
    }

    const MAP: &str = "# X\n\n## The map\n```\nsys/          system\nrun/engine/   engine\nrun/  all\nMakefile  menu\n```\n";

    #[test]
    fn a_true_map_is_in_order() {
        let files = house(
            MAP,
            &[
                "sys/src/lib.rs",
                "run/engine/src/lib.rs",
                "Makefile",
                ".ci/run",
                "Cargo.toml",
            ],
        );
        assert_eq!(check(&files), vec![]);
    }

    #[test]
    fn an_entry_that_is_not_there_is_found() {
        let findings = check(&house(MAP, &["sys/src/lib.rs", "run/other.rs", "Makefile"]));
        assert_eq!(
            findings,
            vec![Finding::new(
                README,
                6,
                "the map names run/engine/, which is not there"
            )]
        );
    }

    #[test]
    fn a_folder_that_is_not_on_the_map_is_found() {
        let files = house(
            MAP,
            &["sys/a", "run/engine/a", "Makefile", "misc/a", "misc/b"],
        );
        assert_eq!(
            check(&files),
            vec![Finding::new(README, 0, "the map does not name misc/")]
        );
    }

    #[test]
    fn a_missing_map_is_found() {
        assert_eq!(check(&house("# X\n", &[])).len(), 1);
        assert_eq!(check(&[]).len(), 1);
    }
}
