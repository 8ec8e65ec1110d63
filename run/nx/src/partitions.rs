//! Partitions, as the calls of NX make, change and ask for them: by the program that `margay part`
//! runs, so that no process of a job carries it.

use std::process::{Command, Stdio};

use margay_run_mpi::launcher::launcher;

use crate::constants::{NX_GANG, NX_SPS, NX_STD};
use crate::error::*;
use crate::refuse;

/// The program, beside the launcher.
const PROGRAM: &str = "margay-part";
/// The roll-in quantum of partitions with gangs for which none is given.
const QUANTUM: &str = "60000ms";

/// The nodes of a new partition.
pub enum Nodes<'a> {
    /// This many; below one: all of its parent.
    Size(i64),
    /// Rows and columns, and their upper left node, which may be anywhere below 0.
    Rectangle(i64, i64, i64),
    /// By their numbers in the parent.
    Listed(&'a [i64]),
}

/// Attributes of a partition; what is none stays, or is the parent's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    pub scheduling: Option<i64>,
    /// Milliseconds.
    pub quantum_ms: Option<i64>,
    pub priority_limit: Option<i64>,
    pub mode: Option<i64>,
    /// What can be had is enough where the nodes cannot be had as asked.
    pub is_relaxed: bool,
}

impl Attributes {
    fn words(self) -> Result<Vec<String>> {
        let mut words = Vec::new();
        let scheduling = match (self.scheduling, self.quantum_ms) {
            (Some(NX_GANG) | None, Some(ms)) => Some(format!("{ms}ms")),
            (Some(NX_STD), _) => Some("ss".into()),
            (Some(NX_GANG), None) => Some(QUANTUM.into()),
            (Some(NX_SPS), _) => Some("sps".into()),
            (Some(other), _) => {
                refuse!(
                    EQPARAM,
                    "the scheduling is {other}; it is NX_STD, NX_GANG or NX_SPS"
                )
            }
            (None, None) => None,
        };
        let mode = self.mode.map(|mode| format!("{mode:03o}"));
        let limit = self.priority_limit.map(|limit| limit.to_string());
        let pairs = [("scheduling", scheduling), ("mode", mode), ("epl", limit)];
        for (key, value) in pairs {
            words.extend(
                value
                    .map(|value| [key.to_owned(), value])
                    .into_iter()
                    .flatten(),
            );
        }
        Ok(words)
    }
}

/// Has the program do something, and returns the numbers or texts that it prints.
fn ask(action: &str, name: &str, rest: &[String]) -> Result<String> {
    let program = launcher().with_file_name(PROGRAM);
    let done = Command::new(&program)
        .args([action, name])
        .args(rest)
        .stdin(Stdio::null())
        .output();
    let output = match done {
        Ok(output) => output,
        Err(error) => refuse!(
            EQPARTITION,
            "cannot run {}: {error}; partitions are part of a whole installation",
            program.display()
        ),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim_end().trim_start_matches("margay part: ");
    refuse!(EQPARTITION, "{text}")
}

fn numbers(text: &str) -> Vec<i64> {
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// `nx_mkpart` and its like: how many nodes the new partition has.
///
/// # Errors
/// When it cannot be made.
pub fn make(name: &str, nodes: &Nodes<'_>, attributes: Attributes) -> Result<i64> {
    let mut words = match *nodes {
        Nodes::Size(..1) => Vec::new(),
        Nodes::Size(size) => vec!["size".into(), size.to_string()],
        Nodes::Rectangle(rows, columns, ..0) => {
            vec!["size".into(), format!("{rows}x{columns}")]
        }
        Nodes::Rectangle(rows, columns, first) => {
            vec!["nodes".into(), format!("{rows}x{columns}:{first}")]
        }
        Nodes::Listed(list) => {
            let list: Vec<String> = list.iter().map(i64::to_string).collect();
            vec!["nodes".into(), list.join(",")]
        }
    };
    if attributes.is_relaxed && !words.is_empty() {
        words.extend(["relaxed".into(), "yes".into()]);
    }
    words.extend(attributes.words()?);
    ask("make", name, &words)?;
    Ok(nodes_of(name)?.len() as i64)
}

/// `nx_rmpart`
///
/// # Errors
/// When it cannot be removed.
pub fn remove(name: &str, is_forced: bool, is_recursive: bool) -> Result<()> {
    let flags = [("force", is_forced), ("recursive", is_recursive)];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
    let flags: Vec<String> = flags.map(|(flag, _)| flag.to_owned()).collect();
    ask("remove", name, &flags).map(drop)
}

/// `nx_chpart_epl`, `_mod`, `_rq`, `_sched`
///
/// # Errors
/// When the partition cannot be changed.
pub fn change(name: &str, attributes: Attributes) -> Result<()> {
    ask("change", name, &attributes.words()?).map(drop)
}

/// `nx_chpart_name`: the new name has no dot.
///
/// # Errors
/// When the partition cannot be renamed.
pub fn rename(name: &str, new: &str) -> Result<()> {
    ask("change", name, &["name".into(), new.into()]).map(drop)
}

/// `nx_chpart_owner`: -1 leaves what is.
///
/// # Errors
/// When the partition cannot be given away.
pub fn give(name: &str, owner: i64, group: i64) -> Result<()> {
    let mut words = Vec::new();
    for (key, number) in [("owner", owner), ("group", group)] {
        if number >= 0 {
            words.extend([key.to_owned(), number.to_string()]);
        }
    }
    ask("change", name, &words).map(drop)
}

/// `nx_part_nodes`: numbers of a partition's nodes in the machine.
///
/// # Errors
/// When there is none that may be seen.
pub fn nodes_of(name: &str) -> Result<Vec<i64>> {
    Ok(numbers(&ask("nodes", name, &[])?))
}

/// The cores of a partition in which processes of a running program may be.
///
/// # Errors
/// When there is none that may be used, or one in which applications take turns.
pub fn cores_of(name: &str) -> Result<Vec<usize>> {
    let cores = numbers(&ask("cores", name, &[])?);
    Ok(cores.into_iter().map(|core| core as usize).collect())
}

/// `nx_node_attr`: what `nx_node_info_t` has.
///
/// # Errors
/// When there is no such node.
pub fn node(number: i64) -> Result<Vec<i64>> {
    Ok(numbers(&ask("node", &number.to_string(), &[])?))
}

/// `nx_failed_nodes`: those of partitions of several hosts whose host is down.
///
/// # Errors
/// When the partitions cannot be read.
pub fn failed_nodes() -> Result<Vec<i64>> {
    Ok(numbers(&ask("failed", ".", &[])?))
}

/// `nx_empty_nodes`: the machine's nodes on which no application is that takes turns.
///
/// # Errors
/// When nobody can be asked.
pub fn empty_nodes() -> Result<Vec<i64>> {
    Ok(numbers(&ask("empty", ".", &[])?))
}

/// `nx_part_attr`: what `nx_part_info_t` has.
///
/// # Errors
/// When there is none that may be seen.
pub fn attributes(name: &str) -> Result<Vec<i64>> {
    Ok(numbers(&ask("attributes", name, &[])?))
}

/// `nx_pspart`: what `nx_pspart_t` has, for each application.
///
/// # Errors
/// When there is none that may be seen.
pub fn applications(name: &str) -> Result<Vec<i64>> {
    Ok(numbers(&ask("applications", name, &[])?))
}

/// `nx_pri`, by the process id of the application's launcher.
///
/// # Errors
/// When it is not the caller's, or has no turns.
pub fn prioritize(launcher: u32, priority: i64) -> Result<()> {
    let words = [launcher.to_string(), priority.to_string()];
    ask("priority", ".", &words).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_become_words() {
        let words = |scheduling, quantum_ms| {
            let attributes = Attributes {
                scheduling,
                quantum_ms,
                ..Attributes::default()
            };
            attributes.words().map(|words| words.join(" "))
        };
        assert_eq!(words(None, None).unwrap(), "");
        assert_eq!(words(Some(NX_GANG), Some(5)).unwrap(), "scheduling 5ms");
        assert_eq!(words(Some(NX_GANG), None).unwrap(), "scheduling 60000ms");
        assert_eq!(words(Some(NX_SPS), None).unwrap(), "scheduling sps");
        assert_eq!(words(None, Some(7)).unwrap(), "scheduling 7ms");
        assert!(words(Some(9), None).is_err());
    }
}
