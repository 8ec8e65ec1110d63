//! Options of Open MPI's, MPICH's, Intel's and PALS' launchers: each becomes options of Margay's,
//! or is refused with what to do instead.
//!
//! The parser of Margay's own options never sees them. The module `table` says what each is.

mod table;
mod translate;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

pub use table::TABLE;

/// Options of other launchers that mean the same.
#[derive(Clone, Copy)]
pub struct Foreign {
    /// Their names, without dashes.
    pub names: &'static [&'static str],
    /// How many words follow.
    pub values: usize,
    /// What they are here.
    pub meaning: Meaning,
}

/// What makes words of Margay's out of an option's values.
pub type Translate = fn(&[OsString]) -> Result<Vec<OsString>, String>;

/// What an option of another launcher is here.
#[derive(Clone, Copy)]
pub enum Meaning {
    /// The option of this name, with the same value.
    Same(&'static str),
    /// These words.
    Words(&'static [&'static str]),
    /// What the function makes of the values.
    By(Translate),
    /// A variable of the environment: `NAME VALUE` or `NAME=VALUE`. The option's name.
    Pair(&'static str),
    /// A file with a program a line.
    File,
    /// It has no effect: Margay does that anyway, or has no such part.
    Nothing,
    /// It is refused; this is what to do instead.
    Refused(&'static str),
}

/// What was made of an option.
#[derive(Debug, PartialEq, Eq)]
pub enum Translated {
    /// These words.
    Words(Vec<OsString>),
    /// The programs in this file.
    File(OsString),
}

/// Returns what an option of another launcher is here; none when there is no such option. `more`
/// gives the words behind it that belong to its segment.
///
/// # Errors
/// When Margay does not have it, or its values are missing or wrong.
pub fn translated(
    word: &OsStr,
    mut more: impl FnMut() -> Option<OsString>,
) -> Option<Result<Translated, String>> {
    let bytes = word.as_bytes();
    let dashes = bytes.iter().take_while(|&&b| b == b'-').count();
    let name = &bytes[dashes..];
    let at = name.iter().position(|&b| b == b'=').unwrap_or(name.len());
    let (name, joined) = (&name[..at], name.get(at + 1..));
    let (found, joined) = match find(name) {
        Some(found) => (found, joined.map(OsStr::from_bytes)),
        // -N4
        None if dashes == 1 && joined.is_none() && is_number(name.get(1..)?) => {
            let found = find(&name[..1]).filter(|f| f.values == 1)?;
            (found, Some(OsStr::from_bytes(&name[1..])))
        }
        None => return None,
    };
    let message = OsStr::from_bytes(&bytes[..dashes + at]).to_string_lossy();
    let mut values: Vec<OsString> = Vec::new();
    if found.values > 0 {
        values.extend(joined.map(OsStr::to_owned));
    }
    while values.len() < found.values {
        match more() {
            Some(value) => values.push(value),
            None => {
                let many = if found.values == 1 {
                    "a value"
                } else {
                    "two values"
                };
                return Some(Err(format!("'{message}' needs {many}")));
            }
        }
    }
    let words = match found.meaning {
        Meaning::Same(own) => {
            let mut word = OsString::from(format!("--{own}="));
            values.iter().for_each(|value| word.push(value));
            Ok(vec![word])
        }
        Meaning::Words(words) => Ok(words.iter().map(OsString::from).collect()),
        Meaning::By(translate) => {
            translate(&values).map_err(|why| format!("'{message}' {}: {why}", shown(&values)))
        }
        Meaning::Pair(own) => Ok(pair(own, values.pop().unwrap_or_default(), more)),
        Meaning::File => return Some(Ok(Translated::File(values.pop().unwrap_or_default()))),
        Meaning::Nothing => Ok(Vec::new()),
        Meaning::Refused(instead) => {
            Err(format!("'{message}' is no option of Margay's: {instead}"))
        }
    };
    Some(words.map(Translated::Words))
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

fn find(name: &[u8]) -> Option<&'static Foreign> {
    TABLE
        .iter()
        .find(|f| f.names.iter().any(|n| n.as_bytes() == name))
}

fn shown(values: &[OsString]) -> String {
    let values: Vec<_> = values.iter().map(|v| v.to_string_lossy()).collect();
    values.join(" ")
}

/// `NAME VALUE` or `NAME=VALUE` as three words.
fn pair(own: &str, first: OsString, mut more: impl FnMut() -> Option<OsString>) -> Vec<OsString> {
    let bytes = first.as_bytes();
    let mut words = vec![OsString::from(own)];
    match bytes.iter().position(|&b| b == b'=') {
        Some(at) => {
            words.push(OsStr::from_bytes(&bytes[..at]).to_owned());
            words.push(OsStr::from_bytes(&bytes[at + 1..]).to_owned());
        }
        None => {
            words.push(first);
            words.extend(more());
        }
    }
    words
}

/// Returns the names that may be meant by a wrong one.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    let known = TABLE
        .iter()
        .filter(|f| !matches!(f.meaning, Meaning::Refused(_)));
    known
        .flat_map(|f| f.names.iter().copied())
        .filter(|name| name.len() > 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<String, String> {
        let mut words = line.split(' ').map(OsString::from);
        let first = words.next().unwrap();
        match translated(&first, || words.next()) {
            None => Err("unknown".into()),
            Some(Ok(Translated::Words(words))) => Ok(shown(&words)),
            Some(Ok(Translated::File(file))) => Ok(format!("file {}", file.display())),
            Some(Err(error)) => Err(error),
        }
    }

    #[test]
    fn options_become_margays() {
        for (line, own) in [
            ("-npernode 2", "--map-by=ppr:2:node"),
            ("--npernode=2", "--map-by=ppr:2:node"),
            ("-N4", "--map-by=ppr:4:node"),
            ("--npersocket 3", "--map-by=ppr:3:socket"),
            ("-genv A=b=c", "--genv A b=c"),
            ("-genv A b", "--genv A b"),
            ("--env=A=b", "--env A b"),
            ("--mca btl ^openib", ""),
            ("-mca orte_tag_output 1", "--label"),
            ("--mca hwloc_base_binding_policy none", "--bind=none"),
            ("--mca rmaps_base_mapping_policy socket", "--map-by=socket"),
            (
                "--output-filename d",
                "--output-files=d/1/rank.%R/stdout --error-files=d/1/rank.%R/stderr --tee",
            ),
            (
                "--output-filename=100%:nojobid,nocopy",
                "--output-files=100%%/rank.%R/stdout --error-files=100%%/rank.%R/stderr",
            ),
            ("--output tag,timestamp", "--label --timestamp"),
            ("--output ordered", "--output=ordered"),
            ("-output rank:3", "--output=rank:3"),
            (
                "--output file=f:nocopy",
                "--output-files=f.%R --error-files=f.%R",
            ),
            ("--display map,bind", "--display-map --report-bindings"),
            ("--cpu-bind list:0-1:3", "--bind=cores:0-1:3"),
            ("-d 2", "--cores-per-rank=2"),
            ("--cpu-bind depth", ""),
            ("--with-ft ulfm", "--continue-on-failure"),
            ("-launcher ssh", ""),
            ("--allow-run-as-root=true", ""),
            ("-configfile x", "file x"),
        ] {
            assert_eq!(of(line).as_deref(), Ok(own), "{line}");
        }
    }

    #[test]
    fn what_margay_has_not_is_refused_with_what_to_do_instead() {
        for (line, message) in [
            ("-gdb", "gdbserver"),
            ("--report-uri -", "showmesh"),
            ("-rf /no/such", "cannot read it"),
            ("--mca btl", "'--mca' needs two values"),
            ("-npernode", "'-npernode' needs a value"),
            ("--display topo", "'--display' topo: "),
            ("--cpu-bind moon", "choose none, core"),
        ] {
            let error = of(line).unwrap_err();
            assert!(
                error.contains(message) && !error.contains('\n'),
                "{line}: {error}"
            );
        }
        assert_eq!(of("-frobnicate"), Err("unknown".into()));
        assert_eq!(of("-Nx"), Err("unknown".into()));
    }

    #[test]
    fn names_are_unique_and_none_is_margays_own() {
        let command = crate::options::run_command("mpiexec");
        let mut all: Vec<&str> = TABLE.iter().flat_map(|f| f.names.iter().copied()).collect();
        // These two take more words there than here.
        all.retain(|name| !["env", "genv", "output"].contains(name));
        for name in &all {
            let is_own = command.get_arguments().any(|arg| {
                arg.get_long() == Some(name)
                    || arg.get_all_aliases().is_some_and(|a| a.contains(name))
            });
            assert!(!is_own, "{name} has two meanings");
        }
        let many = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), many);
    }

    #[test]
    fn the_guide_names_every_option() {
        let guide = include_str!("../../docs/launcher.md");
        for name in TABLE.iter().flat_map(|f| f.names) {
            let is_there = ["`", " ", ","].iter().any(|after| {
                guide.contains(&format!("`-{name}{after}"))
                    || guide.contains(&format!("`--{name}{after}"))
            });
            assert!(is_there, "docs/launcher.md does not name -{name}");
        }
    }
}
