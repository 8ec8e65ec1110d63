//! What a job is: programs, ranks and the choices of the user.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A job as the user described it.
// Fields: the choices of the user, which have little to do with each other.
#[derive(Clone, Debug)]
pub struct Job {
    /// The name under which the launcher was called; it stands before its messages.
    pub launcher: String,
    /// The programs, in the order of their ranks (more than one is MPMD).
    pub programs: Vec<Program>,
    /// Which ranks get the launcher's standard input.
    pub stdin: StdinTo,
    /// How the ranks' standard output becomes the launcher's.
    pub output: Output,
    /// Put the rank before each line of output and error.
    pub label: bool,
    /// Which ranks run on which cores.
    pub binding: Binding,
    /// Tell the binding on standard error.
    pub report_bindings: bool,
    /// No messages of the launcher's own but errors.
    pub quiet: bool,
    /// The other ranks go on when one dies.
    pub continue_on_failure: bool,
    /// End the job after this time.
    pub timeout: Option<TimeLimit>,
    /// What is done when ranks can never go on.
    pub on_deadlock: OnDeadlock,
    /// What else says where ranks run.
    pub layout: Layout,
    /// Where the ranks' output goes besides, or instead of, the launcher's.
    pub capture: Capture,
    /// What is reported before the ranks start.
    pub tell: Tell,
    /// The hosts on which the ranks run; none is this machine alone.
    pub hosts: Option<Hosts>,
    /// The job is recorded.
    pub recording: Option<Recording>,
}

/// How a job is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The program that does it, on all hosts.
    pub program: PathBuf,
    /// What it is to make of the job.
    pub arguments: Vec<OsString>,
}

/// What is done when ranks wait for each other so that they can never go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeadlock {
    /// It is reported, and the job goes on waiting.
    #[default]
    Report,
    /// It is reported, and the job is ended.
    End,
    /// Nobody looks for it.
    Ignore,
}

/// The hosts of a job, and how they are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Their names as the user wrote them, each with how many ranks it has before the next one has
    /// any. One may be there several times.
    pub list: Vec<(String, u32)>,
    /// The same for each program, where they have hosts of their own.
    pub of_programs: Vec<Vec<(String, u32)>>,
    /// The words of the remote shell: `%h` is the host, which comes last where no word is that. The
    /// command follows as one word.
    pub shell: Vec<OsString>,
    /// The ports at which ranks listen; none leaves them to the system.
    pub ports: Option<(u16, u16)>,
    /// Whether packets between hosts are encrypted.
    pub encrypts: bool,
    /// Consecutive ranks go to one host after the other, instead of filling the first one first.
    pub deals: bool,
    /// The programs are sent to the hosts, which need not have them.
    pub stages: bool,
    /// How many remote shells a host starts, before others start more; 0: the launcher's host
    /// starts all.
    pub width: usize,
}

impl Hosts {
    /// The remote shell that is used where the user names none: it asks nobody and gives up soon.
    pub const SHELL: [&str; 6] = [
        "ssh",
        "-x",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=10",
    ];

    /// Remote shells that one host starts where the user says nothing.
    pub const WIDTH: usize = 32;

    /// Returns the names of the hosts that have ranks, each once, and the number of the host of
    /// each rank. `counts` are the ranks of the programs.
    ///
    /// # Panics
    /// When a list has no place for a rank.
    #[must_use]
    pub fn assign(&self, counts: &[u32]) -> (Vec<String>, Vec<u32>) {
        let spread = |list, ranks: u32| {
            let places = self.in_order(list);
            assert!(!places.is_empty(), "hosts without places");
            places.into_iter().cycle().take(ranks as usize)
        };
        let of_rank: Vec<&String> = if self.of_programs.is_empty() {
            spread(&self.list, counts.iter().sum()).collect()
        } else {
            let programs = self.of_programs.iter().zip(counts);
            programs
                .flat_map(|(list, &ranks)| spread(list, ranks))
                .collect()
        };
        let mut names: Vec<String> = Vec::new();
        let numbers = of_rank.into_iter().map(|name| {
            let at = names.iter().position(|known| known == name);
            let at = at.unwrap_or_else(|| {
                names.push(name.clone());
                names.len() - 1
            });
            at as u32
        });
        let numbers = numbers.collect();
        (names, numbers)
    }

    /// The host of each place of a list, in the order in which ranks get them.
    fn in_order<'a>(&self, list: &'a [(String, u32)]) -> Vec<&'a String> {
        let in_a_row = |(name, places): &'a (String, u32)| (0..*places).map(move |at| (at, name));
        let mut places: Vec<_> = list.iter().flat_map(in_a_row).collect();
        if self.deals {
            places.sort_by_key(|&(at, _)| at);
        }
        places.into_iter().map(|(_, name)| name).collect()
    }
}

/// What says, beside the binding, where ranks run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Only these cores.
    pub cores: Option<Vec<usize>>,
    /// Consecutive ranks go to one of these after the other, instead of filling the first one
    /// first.
    pub round: Option<Unit>,
    /// Where there are not cores enough for the binding, no rank is bound.
    pub may_overload: bool,
    /// More ranks than usable cores are an error.
    pub no_oversubscription: bool,
    /// Each rank sees its share of the devices.
    pub gpus: Option<Gpus>,
}

/// Parts of a machine, from the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// All of it.
    Host,
    /// A processor package.
    Socket,
    /// The cores near a part of the memory.
    Numa,
    /// Cores that share a third-level cache.
    L3,
    /// Those that share a second-level cache.
    L2,
    /// A core with all its hardware threads.
    Core,
    /// A hardware thread, which the system calls a CPU.
    Thread,
}

/// How many devices the ranks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// As many as are found.
    Found,
    /// As many as the user says.
    Number(u32),
}

/// Files that get the output of ranks. In their names `%r` is the rank, `%R` the rank with as many
/// digits as the last one has, `%h` the host, `%g` the number of the job among those that this
/// launcher runs (always 0), `%p` that of the host, from 0, `%%` a percent sign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// For standard output.
    pub output: Option<String>,
    /// For standard error.
    pub error: Option<String>,
    /// The launcher's output gets it, too.
    pub copies: bool,
    /// The ranks' standard error is their standard output.
    pub merges: bool,
    /// The time stands before each line.
    pub timestamps: bool,
}

/// What the launcher tells before the ranks start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tell {
    /// Which ranks run which program where.
    pub map: bool,
    /// The hosts and their cores.
    pub allocation: bool,
}

/// When a job is ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLimit {
    /// After this time.
    pub time: Duration,
    /// What set it: an option or a variable of the environment.
    pub from: &'static str,
}

/// One program of a job.
#[derive(Clone, Debug)]
pub struct Program {
    /// How many ranks run it; none means one rank for each usable core, or one when the job has
    /// several programs.
    pub ranks: Option<u32>,
    /// The program as the user named it.
    pub command: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The type of its processes on their nodes, in NX.
    pub process_type: u32,
    /// The nodes on which its processes are, in NX; none means those that no other program has with
    /// the same type.
    pub nodes: Option<Vec<u32>>,
    /// Its working directory; none means the launcher's.
    pub directory: Option<PathBuf>,
    /// What it gets of the launcher's environment.
    pub inherit: Inherit,
    /// Environment variables that are set in addition.
    pub environment: Vec<(OsString, OsString)>,
    /// The file that is executed; none means that it is looked for by its name.
    pub file: Option<PathBuf>,
}

/// What ranks get of the launcher's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Inherit {
    /// All of it.
    #[default]
    All,
    /// These variables.
    Only(Vec<OsString>),
    /// All but these.
    Except(Vec<OsString>),
}

impl Inherit {
    /// Whether a variable is passed on.
    #[must_use]
    pub fn passes(&self, name: &OsStr) -> bool {
        match self {
            Inherit::All => true,
            Inherit::Only(names) => names.iter().any(|n| n == name),
            Inherit::Except(names) => names.iter().all(|n| n != name),
        }
    }
}

/// Which ranks get the launcher's standard input; the others read the end at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinTo {
    /// One rank.
    Rank(u32),
    /// Every rank gets all of it.
    All,
    /// Nobody.
    Nobody,
}

/// How the ranks' standard output becomes the launcher's (the choices of the SP2's Partition
/// Manager). Standard error is always passed on as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Each line as soon as it is whole.
    Unordered,
    /// All of rank 0's, then all of rank 1's, and so on.
    Ordered,
    /// Only this rank's.
    Rank(u32),
}

/// Which ranks run on which cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Each rank on its share of the cores when there are enough, else none.
    Auto,
    /// No binding.
    None,
    /// Each rank on one core.
    Core,
    /// Each rank on this many cores.
    Cores(u32),
    /// Each rank on all cores of one such part of the machine.
    Unit(Unit),
    /// Rank 0 on the first core of the list, rank 1 on the second, and so on.
    List(Vec<usize>),
    /// Rank 0 on all cores of the first list, rank 1 on those of the second, and so on.
    Lists(Vec<Vec<usize>>),
}

/// Why a job could not be started: one line, and the launcher's exit status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchError {
    /// What, why, remedy.
    pub message: String,
    /// Exit status: 127 not found, 126 not executable, 2 wrong use, 1 anything else.
    pub status: u8,
}

impl LaunchError {
    /// Returns an error in what the user asked for.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> LaunchError {
        LaunchError {
            message: message.into(),
            status: 2,
        }
    }

    /// Returns an error of the system.
    #[must_use]
    pub fn system(message: impl Into<String>) -> LaunchError {
        LaunchError {
            message: message.into(),
            status: 1,
        }
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LaunchError {}

impl Job {
    /// The most ranks that a job may have.
    pub const MOST_RANKS: u32 = 65_536;

    /// Returns a job without programs, with all choices as they are without options.
    #[must_use]
    pub fn new(launcher: &str) -> Job {
        Job {
            launcher: launcher.to_owned(),
            programs: Vec::new(),
            stdin: StdinTo::Rank(0),
            output: Output::Unordered,
            label: false,
            binding: Binding::Auto,
            report_bindings: false,
            quiet: false,
            continue_on_failure: false,
            timeout: None,
            on_deadlock: OnDeadlock::Report,
            recording: None,
            layout: Layout::default(),
            capture: Capture::default(),
            tell: Tell::default(),
            hosts: None,
        }
    }

    /// Returns the number of ranks of each program.
    ///
    /// # Errors
    /// When there are too many, or when a rank that the user named does not exist.
    pub fn counts(&self, usable_cores: usize) -> Result<Vec<u32>, LaunchError> {
        let default = if self.programs.len() == 1 {
            usable_cores as u32
        } else {
            1
        };
        let counts: Vec<u32> = self
            .programs
            .iter()
            .map(|p| {
                let listed = p.nodes.as_ref().map(|nodes| nodes.len() as u32);
                p.ranks.or(listed).unwrap_or(default)
            })
            .collect();
        let total: u64 = counts.iter().map(|&n| u64::from(n)).sum();
        if total > u64::from(Self::MOST_RANKS) {
            return Err(LaunchError::usage(format!(
                "{total} ranks are too many: at most {} run on one machine",
                Self::MOST_RANKS
            )));
        }
        // Each of several hosts counts its own.
        let counts_here = self.hosts.is_none();
        if self.layout.no_oversubscription && counts_here && total > usable_cores as u64 {
            return Err(LaunchError::usage(format!(
                "-nooversubscribe: {total} ranks are more than the {usable_cores} usable cores; start fewer, or leave the option out"
            )));
        }
        let named = [
            match self.stdin {
                StdinTo::Rank(r) if r > 0 => Some(("-stdin", r)),
                _ => None,
            },
            match self.output {
                Output::Rank(r) => Some(("-output", r)),
                _ => None,
            },
        ];
        for (option, rank) in named.into_iter().flatten() {
            if u64::from(rank) >= total {
                return Err(LaunchError::usage(format!(
                    "{option}: there is no rank {rank}, the job's ranks are 0 to {}",
                    total - 1
                )));
            }
        }
        Ok(counts)
    }

    /// Node and process type of each rank, for NX, with the given number of ranks of each program.
    /// Programs with the same process type have nodes of their own, one after the other; those with
    /// another type begin at the first node again.
    ///
    /// # Errors
    /// When two processes would have the same node and type, or a program has not as many ranks as
    /// nodes.
    pub fn places(&self, counts: &[u32]) -> Result<Vec<(u32, u32)>, LaunchError> {
        let mut places = Vec::new();
        let mut taken = BTreeSet::new();
        for (program, &count) in self.programs.iter().zip(counts) {
            let process_type = program.process_type;
            if let Some(nodes) = &program.nodes
                && nodes.len() != count as usize
            {
                return Err(LaunchError::usage(format!(
                    "-on names {} nodes for {count} ranks; leave out the number of ranks",
                    nodes.len()
                )));
            }
            let mut next = 0;
            for rank in 0..count as usize {
                let node = match &program.nodes {
                    Some(nodes) => nodes[rank],
                    None => {
                        while taken.contains(&(next, process_type)) {
                            next += 1;
                        }
                        next
                    }
                };
                if !taken.insert((node, process_type)) {
                    return Err(LaunchError::usage(format!(
                        "-on: two processes of type {process_type} would be on node {node}; give one another type with -pt"
                    )));
                }
                places.push((node, process_type));
            }
        }
        Ok(places)
    }

    /// Returns the command line for displays.
    #[must_use]
    pub fn command_line(&self) -> String {
        let programs: Vec<String> = self
            .programs
            .iter()
            .map(|p| {
                let words: Vec<String> = std::iter::once(&p.command)
                    .chain(&p.arguments)
                    .map(|w| w.to_string_lossy().into_owned())
                    .collect();
                words.join(" ")
            })
            .collect();
        programs.join(" : ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(ranks: &[Option<u32>]) -> Job {
        let program = |&ranks: &Option<u32>| Program {
            file: None,
            ranks,
            command: "a.out".into(),
            arguments: vec!["-x".into()],
            process_type: 0,
            nodes: None,
            directory: None,
            inherit: Inherit::All,
            environment: Vec::new(),
        };
        let mut job = Job::new("mpiexec");
        job.programs = ranks.iter().map(program).collect();
        job
    }

    #[test]
    fn a_program_alone_fills_the_cores_and_several_get_one_rank_each() {
        assert_eq!(job(&[None]).counts(6).unwrap(), [6]);
        assert_eq!(job(&[Some(3)]).counts(6).unwrap(), [3]);
        assert_eq!(job(&[None, Some(4)]).counts(6).unwrap(), [1, 4]);
        assert_eq!(job(&[None, None]).command_line(), "a.out -x : a.out -x");
    }

    #[test]
    fn processes_of_one_type_have_nodes_of_their_own() {
        let mut j = job(&[Some(2), Some(3), Some(1)]);
        j.programs[1].process_type = 1;
        let places = |j: &Job, counts: &[u32]| j.places(counts).map_err(|e| e.message);
        assert_eq!(
            places(&j, &[2, 3, 1]).unwrap(),
            [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (2, 0)]
        );
        j.programs[0].nodes = Some(vec![5, 0]);
        assert_eq!(
            places(&j, &[2, 3, 1]).unwrap()[..2],
            [(5, 0), (0, 0)],
            "nodes as they were asked for"
        );
        j.programs[2].nodes = Some(vec![5]);
        let error = places(&j, &[2, 3, 1]).unwrap_err();
        assert!(
            error.contains("two processes of type 0 would be on node 5"),
            "{error}"
        );
        let error = places(&j, &[3, 3, 1]).unwrap_err();
        assert!(error.contains("-on names 2 nodes for 3 ranks"), "{error}");
    }

    #[test]
    fn ranks_fill_the_places_of_hosts_in_order_and_begin_again() {
        let hosts = |list: &[(&str, u32)]| Hosts {
            list: list.iter().map(|&(n, p)| (n.to_owned(), p)).collect(),
            ..Hosts::default()
        };
        let own = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        let two = hosts(&[("a", 2), ("b", 1)]);
        assert_eq!(two.assign(&[3]), (own(&["a", "b"]), vec![0, 0, 1]));
        assert_eq!(two.assign(&[5]).1, [0, 0, 1, 0, 0]);
        assert_eq!(two.assign(&[1]), (own(&["a"]), vec![0]));
        let mut dealt = hosts(&[("a", 3), ("b", 1), ("c", 2)]);
        dealt.deals = true;
        assert_eq!(dealt.assign(&[8]).1, [0, 1, 2, 0, 2, 0, 0, 1]);
        let again = hosts(&[("a", 1), ("b", 1), ("a", 1)]);
        assert_eq!(again.assign(&[3]), (own(&["a", "b"]), vec![0, 1, 0]));
        let mut apart = two.clone();
        let list = |list: &[(&str, u32)]| hosts(list).list;
        apart.of_programs = vec![list(&[("c", 1)]), list(&[("a", 0), ("c", 1), ("b", 2)])];
        assert_eq!(
            apart.assign(&[2, 4]),
            (own(&["c", "b"]), vec![0, 0, 0, 1, 1, 0])
        );
    }

    #[test]
    fn ranks_that_do_not_exist_are_reported() {
        let mut j = job(&[Some(3)]);
        j.stdin = StdinTo::Rank(3);
        let error = j.counts(1).unwrap_err();
        assert_eq!(
            error.message,
            "-stdin: there is no rank 3, the job's ranks are 0 to 2"
        );
        let mut j = job(&[Some(3)]);
        j.layout.no_oversubscription = true;
        assert_eq!(j.counts(3).unwrap(), [3]);
        assert!(
            j.counts(2)
                .unwrap_err()
                .message
                .contains("-nooversubscribe")
        );
        let error = job(&[Some(u32::MAX), Some(9)]).counts(1).unwrap_err();
        assert!(error.message.contains("too many"), "{error}");
    }
}
