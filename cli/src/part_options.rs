//! The options of `margay part`, which are those of the Paragon's commands.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{Args, Subcommand, ValueHint};
use margay_core_partitions::{COMPUTE, Changes, MOST_PRIORITY, Mode, Scheduling, Wanted};

/// Make and use partitions of this machine: named sets of its nodes, in a tree. A node is a core.
/// Names without a leading dot lie below .compute; a dot stands between a partition and its
/// subpartition. Options may be written with one dash (-sz 4) or two.
#[derive(Clone, Debug, Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct PartOptions {
    #[command(subcommand)]
    pub action: PartAction,
}

/// What is done.
#[derive(Clone, Debug, Subcommand)]
pub enum PartAction {
    /// Make a partition
    #[command(visible_alias = "mkpart")]
    Make(MakeOptions),
    /// Remove a partition
    #[command(visible_alias = "rmpart")]
    Remove {
        /// The partitions below it, too
        #[arg(short)]
        recursive: bool,
        /// Also while processes run in it; accepted, and no difference: they go on in any case
        #[arg(short)]
        force: bool,
        /// The partition
        name: String,
    },
    /// Change the name or the attributes of a partition
    #[command(visible_alias = "chpart")]
    Change {
        /// A new name, without a dot: it stays in its parent
        #[arg(long = "nm", value_name = "NAME")]
        new_name: Option<String>,
        #[command(flatten)]
        attributes: AttributeOptions,
        /// The partition
        name: String,
    },
    /// List the partitions below one
    #[command(visible_alias = "lspart")]
    List {
        /// All that are below it, not only those directly below
        #[arg(short)]
        recursive: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// The partition
        #[arg(default_value = COMPUTE)]
        name: String,
    },
    /// Show a partition's attributes and where its nodes are
    #[command(visible_alias = "showpart")]
    Show {
        /// The partition
        #[arg(default_value = COMPUTE)]
        name: String,
    },
    /// Run a command in a partition: it and what it starts use that partition's cores only
    #[command(visible_alias = "pexec")]
    Exec {
        /// The partition
        name: String,
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
        command: Vec<OsString>,
    },
}

/// The options of `margay part make`.
#[derive(Clone, Debug, Args)]
pub struct MakeOptions {
    /// How many nodes of the parent, or rows and columns of the mesh: 4 or 2x3 [default: all]
    #[arg(long = "sz", value_name = "SIZE", value_parser = size)]
    pub size: Option<Wanted>,
    /// These nodes, by their numbers in the parent: 3, 0..5, 2x3:7 (rows, columns, upper left
    /// node), with commas between them
    #[arg(long = "nd", value_name = "NODES", value_parser = nodes, conflicts_with = "size")]
    pub nodes: Option<Wanted>,
    #[command(flatten)]
    pub attributes: AttributeOptions,
    /// The partition
    pub name: String,
}

impl MakeOptions {
    /// The nodes that are asked for.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        let wanted = self.size.as_ref().or(self.nodes.as_ref());
        wanted.cloned().unwrap_or(Wanted::All)
    }
}

/// The attributes of a partition; a new one has those of its parent where none is given.
#[derive(Clone, Debug, Args)]
pub struct AttributeOptions {
    /// Permissions for owner, group and others: 755 or rwxr-xr-x. r: see it, w: change it and what
    /// is below, x: run programs in it
    #[arg(long = "mod", value_name = "MODE", value_parser = mode, allow_hyphen_values = true)]
    pub mode: Option<Mode>,
    /// The highest priority of applications in it, from 0 to 10; kept, without effect yet
    #[arg(long = "epl", value_name = "PRIORITY", value_parser = clap::value_parser!(u32).range(0..=i64::from(MOST_PRIORITY)))]
    pub priority_limit: Option<u32>,
    /// The roll-in quantum of gang scheduling: milliseconds, or 10s, 5m, 1h; kept, without effect
    /// yet
    #[arg(long = "rq", value_name = "TIME", value_parser = quantum, conflicts_with_all = ["standard", "space"])]
    pub quantum: Option<Scheduling>,
    /// Standard scheduling: as the system has it
    #[arg(long = "ss", conflicts_with = "space")]
    pub standard: bool,
    /// Space sharing: one application on a node; kept, without effect yet
    #[arg(long = "sps")]
    pub space: bool,
}

impl AttributeOptions {
    /// What they change.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let standard = self.standard.then_some(Scheduling::Standard);
        let space = self.space.then_some(Scheduling::Space);
        Changes {
            mode: self.mode,
            scheduling: self.quantum.or(standard).or(space),
            priority_limit: self.priority_limit,
        }
    }
}

fn size(text: &str) -> Result<Wanted, String> {
    Wanted::size(text)
        .ok_or_else(|| "write a number of nodes, or rows and columns: 4 or 2x3".into())
}

fn nodes(text: &str) -> Result<Wanted, String> {
    Wanted::list(text).ok_or_else(|| "write nodes such as 3, 0..5 or 2x3:7, with commas".into())
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::parse(text).ok_or_else(|| "write permissions as 755 or rwxr-xr-x".into())
}

fn quantum(text: &str) -> Result<Scheduling, String> {
    Scheduling::quantum(text)
        .ok_or_else(|| "write milliseconds, or 10s, 5m or 1h, up to a day".into())
}

/// Writes long options behind a single dash with two, up to the command that `exec` runs. The first
/// word is the action.
#[must_use]
pub fn with_two_dashes(words: Vec<OsString>) -> Vec<OsString> {
    let runs = |word: &OsString| word == "exec" || word == "pexec";
    let is_exec = words.first().is_some_and(runs);
    let is_option = |word: &OsStr| word.as_bytes().starts_with(b"-");
    // Not options: a mode such as -wx---r--, and what stands behind the partition of exec.
    let mut names = 0;
    let mut is_mode = false;
    let written = words.into_iter().map(|word| {
        let bytes = word.as_bytes();
        let is_long = bytes.len() > 2 && bytes[0] == b'-' && bytes[1].is_ascii_lowercase();
        let is_kept = is_mode || (is_exec && names > 1);
        names += usize::from(!is_option(&word));
        is_mode = matches!(bytes, b"-mod" | b"--mod");
        if !is_long || is_kept {
            return word;
        }
        OsString::from_vec([b"-", bytes].concat())
    });
    written.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_dashes_are_doubled_where_they_are_options() {
        for (line, expected) in [
            (
                "mkpart -sz 2x3 -mod rwx------ a",
                "mkpart --sz 2x3 --mod rwx------ a",
            ),
            (
                "change -mod -wx------ --nm b a",
                "change --mod -wx------ --nm b a",
            ),
            ("rmpart -r -f a", "rmpart -r -f a"),
            ("pexec a ls -la", "pexec a ls -la"),
            ("exec -help", "exec --help"),
        ] {
            let words = line.split(' ').map(OsString::from).collect();
            let written: Vec<String> = with_two_dashes(words)
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            assert_eq!(written.join(" "), expected);
        }
    }
}
