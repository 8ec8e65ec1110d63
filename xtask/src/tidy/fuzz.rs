//! Every file in `tests/fuzz/targets` is a fuzz target that `make fuzz` runs, which needs an entry
//! of its name in Cargo.toml.

use super::{File, Finding};

const MANIFEST: &str = "tests/fuzz/Cargo.toml";
const TARGETS: &str = "tests/fuzz/targets/";

/// Checks the targets against the manifest. (That each entry has a file, cargo says.)
pub fn check(files: &[File]) -> Vec<Finding> {
    let manifest = files
        .iter()
        .find(|file| file.path == MANIFEST)
        .and_then(|file| file.text.as_deref())
        .unwrap_or("");
    let has_entry = |target: &str| {
        manifest.split("[[bin]]").skip(1).any(|entry| {
            let has = |wanted: &str| entry.lines().any(|line| line.trim() == wanted);
            has(&format!("name = \"{target}\"")) && has(&format!("path = \"targets/{target}.rs\""))
        })
    };
    files
        .iter()
        .filter_map(|file| {
            let target = file.path.strip_prefix(TARGETS)?.strip_suffix(".rs")?;
            (!target.contains('/') && !has_entry(target)).then(|| {
                Finding::new(
                    &file.path,
                    0,
                    format!(
                        "nothing runs this target: {MANIFEST} needs a [[bin]] with name = \"{target}\" and path = \"targets/{target}.rs\""
                    ),
                )
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn a_target_without_an_entry_of_its_name_is_found() {
        let manifest = "[package]\nname = \"c\"\n\n[[bin]]\nname = \"a\"\npath = \"targets/a.rs\"\n\n[[bin]]\nname = \"x\"\npath = \"targets/b.rs\"\n";
        let files = ["a", "b", "c"].map(|name| file(&format!("{TARGETS}{name}.rs"), ""));
        let house: Vec<File> = files
            .into_iter()
            .chain([file(MANIFEST, manifest), file("tests/fuzz/run.sh", "")])
            .collect();
        let found: Vec<String> = check(&house).into_iter().map(|f| f.path).collect();
        assert_eq!(
            found,
            ["tests/fuzz/targets/b.rs", "tests/fuzz/targets/c.rs"]
        );
    }
}
