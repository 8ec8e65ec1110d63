//! The options of `margay part`, which are those of the Paragon's commands, and the words by which
//! the program that does the work, `margay-part`, gets them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{Args, Subcommand, ValueHint};
use margay_core_partitions::{COMPUTE, MOST_PRIORITY, Mode, Scheduling, Wanted};

use crate::hosts::hosts;

/// The program that does the work, beside `margay` in the same folder.
pub const PROGRAM: &str = "margay-part";

/// The Paragon's names of the actions: commands of their own in `share/margay/compat/bin`.
pub const NAMES: [&str; 7] = [
    "mkpart", "rmpart", "chpart", "lspart", "showpart", "pspart", "pexec",
];

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
        /// Also while applications run in it, which go on
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
        /// Other nodes of the machine, as of make, for .compute, .service or .io
        #[arg(long = "nd", value_name = "NODES", value_parser = nodes)]
        nodes: Option<String>,
        #[command(flatten)]
        attributes: AttributeOptions,
        /// A new owner, and behind a dot a new group, by name or number; root alone gives a
        /// partition to another user
        #[arg(short = 'o', value_name = "OWNER[.GROUP]")]
        owner: Option<String>,
        /// A new group, by name or number; for its owner one of their own
        #[arg(short = 'g', value_name = "GROUP")]
        group: Option<String>,
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
    /// List the applications that run or wait in a partition or below it
    #[command(name = "ps", visible_alias = "pspart")]
    Applications {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// The partition
        #[arg(default_value = COMPUTE)]
        name: String,
    },
    /// Make this machine's partitions common to all of its users (root), and start the service that
    /// changes them for others
    Init {
        /// Serve in this process, as a unit of systemd does; not in the background
        #[arg(long)]
        foreground: bool,
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
    pub size: Option<String>,
    /// These nodes, by their numbers in the parent: 3, 0..5, 2x3:7 (rows, columns, upper left
    /// node), with commas between them
    #[arg(long = "nd", value_name = "NODES", value_parser = nodes, conflicts_with = "size")]
    pub nodes: Option<String>,
    /// These hosts of the queue's machine (margay up --hosts), with as many of their slots: a:4,b,
    /// node[01-04]
    #[arg(long = "hosts", value_name = "HOSTS", value_parser = host_list, conflicts_with_all = ["size", "nodes"])]
    pub hosts: Option<String>,
    /// What can be had where the parent has not these nodes: fewer, or no rectangle
    #[arg(long = "rlx", conflicts_with = "hosts")]
    pub relaxed: bool,
    #[command(flatten)]
    pub attributes: AttributeOptions,
    /// The partition
    pub name: String,
}

/// The attributes of a partition; a new one has those of its parent where none is given.
#[derive(Clone, Debug, Args)]
pub struct AttributeOptions {
    /// Permissions for owner, group and others: 755 or rwxr-xr-x. r: see it, w: change it and what
    /// is below, x: run programs in it
    #[arg(long = "mod", value_name = "MODE", value_parser = mode, allow_hyphen_values = true)]
    pub mode: Option<String>,
    /// The highest priority of applications in it, from 0 to 10
    #[arg(long = "epl", value_name = "PRIORITY", value_parser = clap::value_parser!(u32).range(0..=i64::from(MOST_PRIORITY)))]
    pub priority_limit: Option<u32>,
    /// Gang scheduling with this roll-in quantum: milliseconds, or 10s, 5m, 1h
    #[arg(long = "rq", value_name = "TIME", value_parser = quantum, conflicts_with_all = ["standard", "space"])]
    pub quantum: Option<String>,
    /// Standard scheduling: as the system has it
    #[arg(long = "ss", conflicts_with = "space")]
    pub standard: bool,
    /// Space sharing: one application on a node, to its end
    #[arg(long = "sps")]
    pub space: bool,
}

impl AttributeOptions {
    fn words(&self) -> Vec<String> {
        let scheduling = match (&self.quantum, self.standard, self.space) {
            (Some(quantum), ..) => Some(quantum.clone()),
            (None, true, _) => Some("ss".to_owned()),
            (None, false, true) => Some("sps".to_owned()),
            (None, false, false) => None,
        };
        let limit = self.priority_limit.map(|limit| limit.to_string());
        [
            pair("mode", self.mode.as_ref()),
            pair("scheduling", scheduling.as_ref()),
            pair("epl", limit.as_ref()),
        ]
        .concat()
    }
}

fn pair(key: &str, value: Option<&String>) -> Vec<String> {
    value.map_or_else(Vec::new, |value| vec![key.to_owned(), value.clone()])
}

fn flags(all: &[(&str, bool)]) -> Vec<String> {
    let set = all.iter().filter(|(_, is_set)| *is_set);
    set.map(|(name, _)| (*name).to_owned()).collect()
}

impl PartAction {
    /// The words for `margay-part`: an action, what it is done to, then keys and values or flags.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let (action, name, rest): (&str, &str, Vec<String>) = match self {
            PartAction::Make(make) => {
                let nodes = [
                    pair("size", make.size.as_ref()),
                    pair("nodes", make.nodes.as_ref()),
                    pair("hosts", make.hosts.as_ref()),
                    pair("relaxed", make.relaxed.then(|| "yes".to_owned()).as_ref()),
                    make.attributes.words(),
                ];
                ("make", &make.name, nodes.concat())
            }
            PartAction::Remove {
                recursive,
                force,
                name,
            } => {
                let flags = flags(&[("recursive", *recursive), ("force", *force)]);
                ("remove", name, flags)
            }
            PartAction::Change {
                new_name,
                nodes,
                attributes,
                owner,
                group,
                name,
            } => {
                let changes = [
                    pair("name", new_name.as_ref()),
                    pair("nodes", nodes.as_ref()),
                    attributes.words(),
                    pair("owner", owner.as_ref()),
                    pair("group", group.as_ref()),
                ];
                ("change", name, changes.concat())
            }
            PartAction::List {
                recursive,
                json,
                name,
            } => (
                "list",
                name,
                flags(&[("recursive", *recursive), ("json", *json)]),
            ),
            PartAction::Show { name } => ("show", name, Vec::new()),
            PartAction::Applications { json, name } => ("ps", name, flags(&[("json", *json)])),
            PartAction::Init { foreground: true } => ("serve", ".", Vec::new()),
            PartAction::Init { foreground: false } => ("init", ".", Vec::new()),
            PartAction::Exec { name, command } => {
                let words = ["exec".into(), name.into()];
                return words.into_iter().chain(command.iter().cloned()).collect();
            }
        };
        let words = [action.to_owned(), name.to_owned()].into_iter().chain(rest);
        words.map(OsString::from).collect()
    }
}

fn size(text: &str) -> Result<String, String> {
    let size = Wanted::size(text).map(|_| text.to_owned());
    size.ok_or_else(|| "write a number of nodes, or rows and columns: 4 or 2x3".into())
}

fn nodes(text: &str) -> Result<String, String> {
    let nodes = Wanted::list(text).map(|_| text.to_owned());
    nodes.ok_or_else(|| "write nodes such as 3, 0..5 or 2x3:7, with commas".into())
}

fn host_list(text: &str) -> Result<String, String> {
    let list = hosts(text)?.distinct().into_iter();
    let shown = list.map(|(name, slots)| match slots {
        Some(slots) => format!("{name}:{slots}"),
        None => name,
    });
    Ok(shown.collect::<Vec<_>>().join(","))
}

fn mode(text: &str) -> Result<String, String> {
    let mode = Mode::parse(text).map(Mode::octal);
    mode.ok_or_else(|| "write permissions as 755 or rwxr-xr-x".into())
}

fn quantum(text: &str) -> Result<String, String> {
    let quantum = Scheduling::quantum(text).map(|quantum| quantum.to_string());
    quantum.ok_or_else(|| "write milliseconds, or 10s, 5m or 1h, up to a day".into())
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
    use clap::FromArgMatches;

    #[test]
    fn every_name_of_the_paragon_is_one_of_an_action() {
        let mut command = PartOptions::augment_args(clap::Command::new("part"));
        command.build();
        for name in NAMES {
            assert!(command.find_subcommand(name).is_some(), "{name}");
        }
    }

    #[test]
    fn actions_become_words() {
        let words = |line: &str| {
            let command = PartOptions::augment_args(clap::Command::new("part"));
            let all = line.split(' ').map(OsString::from).collect();
            let all = std::iter::once("part".into()).chain(with_two_dashes(all));
            let matches = command.try_get_matches_from(all).unwrap();
            let options = PartOptions::from_arg_matches(&matches).unwrap();
            let words = options.action.words();
            let words: Vec<String> = (words.iter())
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            words.join(" ")
        };
        for (line, expected) in [
            (
                "mkpart -sz 2x3 -rq 5s -mod rwx------ a",
                "make a size 2x3 mode 700 scheduling 5000ms",
            ),
            ("mkpart -sz 9 -rlx a", "make a size 9 relaxed yes"),
            ("rmpart -r -f a", "remove a recursive force"),
            (
                "chpart -nm b -ss -epl 3 -o me.us -g 7 a",
                "change a name b scheduling ss epl 3 owner me.us group 7",
            ),
            ("lspart", "list .compute"),
            ("pspart --json .", "ps . json"),
            ("pexec a ls -la", "exec a ls -la"),
            ("init --foreground", "serve ."),
        ] {
            assert_eq!(words(line), expected);
        }
    }

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
