//! What the linker needs for `libgomp.so.1`, from the list of its symbols: a version script, and
//! the second functions of names that have two versions.

use std::collections::BTreeMap;
use std::fmt::Write;

/// A line of `abi/gomp/symbols.txt`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol {
    pub name: String,
    pub version: String,
    /// The function of the library that it is under this version, beside one that new programs get.
    pub jumps_to: Option<String>,
}

/// Reads the list.
///
/// # Errors
/// The line that is not understood.
pub fn symbols(list: &str) -> Result<Vec<Symbol>, String> {
    list.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let short = words[0].strip_prefix("omp_").unwrap_or(words[0]);
            let jumps_to = match words[..] {
                [_, _] => None,
                [name, _, "also"] => Some(name.to_owned()),
                [_, _, "old"] => Some(format!("margay_omp25_{short}")),
                [_, _, "as", other] => Some(other.to_owned()),
                [_, _, "kmp"] => Some(format!("margay_kmp_{short}")),
                _ => return Err(format!("symbols.txt: '{line}' is no name and version")),
            };
            Ok(Symbol {
                name: words[0].to_owned(),
                version: words[1].to_owned(),
                jumps_to,
            })
        })
        .collect()
}

/// Returns the version script: each version of a family (`OMP_`, `GOMP_`) builds on the one before.
#[must_use]
pub fn version_script(symbols: &[Symbol]) -> String {
    let mut versions: BTreeMap<(&str, Vec<u32>), Vec<&Symbol>> = BTreeMap::new();
    for symbol in symbols {
        let (family, number) = symbol
            .version
            .split_once('_')
            .unwrap_or((symbol.version.as_str(), ""));
        let number = number
            .split('.')
            .map(|part| part.parse().unwrap_or(0))
            .collect();
        versions.entry((family, number)).or_default().push(symbol);
    }
    let mut script = String::new();
    let mut before: Option<(&str, &str)> = None;
    for ((family, _), symbols) in &versions {
        let version = &symbols[0].version;
        let _ = writeln!(script, "{version} {{\n  global:");
        for symbol in symbols.iter().filter(|symbol| symbol.jumps_to.is_none()) {
            let _ = writeln!(script, "    {};", symbol.name);
        }
        if before.is_none() {
            script.push_str("  local:\n    *;\n");
        }
        let parent = before.filter(|(other, _)| other == family);
        let parent = parent.map_or_else(String::new, |(_, version)| format!(" {version}"));
        let _ = writeln!(script, "}}{parent};");
        before = Some((family, version));
    }
    script
}

/// Returns the functions that a name has under other versions, as assembly: each jumps to the one
/// that the library has.
#[must_use]
pub fn other_versions(symbols: &[Symbol]) -> String {
    let jump = if cfg!(target_arch = "aarch64") {
        "b"
    } else {
        "jmp"
    };
    let mut code = String::from(".text\n");
    for symbol in symbols {
        let Symbol { name, version, .. } = symbol;
        let Some(inner) = &symbol.jumps_to else {
            continue;
        };
        let label = format!("{}.{name}", version.replace('.', "_"));
        let _ = writeln!(
            code,
            ".globl {label}\n.type {label}, %function\n{label}: {jump} {inner}\n.size {label}, .-{label}\n\
             .symver {label}, {name}@{version}"
        );
    }
    code.push_str(".section .note.GNU-stack, \"\", %progbits\n");
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_build_on_each_other_and_old_names_stand_aside() {
        let list = "# note\na OMP_1.0\nomp_b OMP_1.0 old\nomp_b OMP_3.0\nc GOMP_1.0\nd OMP_10.0\n";
        let symbols = symbols(list).unwrap();
        let script = version_script(&symbols);
        assert!(script.starts_with("GOMP_1.0 {\n  global:\n    c;\n  local:\n    *;\n};\n"));
        assert!(script.contains("OMP_1.0 {\n  global:\n    a;\n};\nOMP_3.0 {\n  global:\n    omp_b;\n} OMP_1.0;\nOMP_10.0"));
        let code = other_versions(&symbols);
        assert!(
            code.contains("margay_omp25_b\n")
                && code.contains(".symver OMP_1_0.omp_b, omp_b@OMP_1.0")
        );
    }

    #[test]
    fn a_line_that_is_none_is_reported() {
        assert!(
            symbols("only-a-name\n")
                .unwrap_err()
                .contains("only-a-name")
        );
    }
}
