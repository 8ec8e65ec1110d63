//! Lists of hosts: this machine alone, or several.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use margay_job_launch::hosts::is_this_machine;
use margay_job_launch::hosts::names::{checked, expanded, parts};
use margay_job_launch::plan::{Hosts, Job};
use margay_job_launch::report::host_name;
use margay_sys_os::cpu;

/// How programs and agents come to other hosts.
#[derive(Clone, Debug, Args)]
pub struct StartOptions {
    /// Begin with the hosts that have least to do: all are asked for their load first
    #[arg(long = "least-loaded")]
    pub least_loaded: bool,

    /// Send the programs to the hosts, which need not have them: they are in memory there, and gone
    /// with the job
    #[arg(long, aliases = ["preload-binary"])]
    pub stage: bool,

    /// How many remote shells one host starts; those start the agents of further hosts, and so on;
    /// 0: this host starts all [default: 32]
    #[arg(
        long = "tree-width",
        value_name = "SHELLS",
        env = "MARGAY_TREE_WIDTH",
        hide_env_values = true
    )]
    pub tree_width: Option<usize>,
}

/// Hosts as the user listed them, with how many ranks each has places for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostList {
    list: Vec<(String, Option<u32>)>,
    /// There is one host, in a file, and no number: its cores are its places.
    is_whole_host: bool,
}

impl HostList {
    /// Whether all of them are this machine: the job needs no network.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.list.iter().all(|(name, _)| is_this_machine(name))
    }

    /// Returns the number of ranks that have places; `per_host` is how many each host gets, where
    /// the user says it.
    #[must_use]
    pub fn ranks(&self, usable_cores: u32, per_host: Option<u32>) -> u32 {
        if self.is_whole_host && self.is_here() {
            return usable_cores;
        }
        let places = self.places(per_host);
        places.iter().map(|(_, places)| places).sum()
    }

    /// Returns the hosts with the places of each: `per_host`, what the list says, else 1.
    #[must_use]
    pub fn places(&self, per_host: Option<u32>) -> Vec<(String, u32)> {
        let all = self.list.iter();
        let mut places: Vec<(String, u32)> = all
            .map(|(name, places)| (name.clone(), per_host.or(*places).unwrap_or(1)))
            .collect();
        if per_host.is_some() {
            // A host that a batch system names once for each rank has them once.
            let mut names = HashSet::new();
            places.retain(|(name, _)| names.insert(name.clone()));
        }
        places
    }

    /// Returns the hosts of a job.
    #[must_use]
    pub fn hosts(
        &self,
        per_host: Option<u32>,
        shell: Vec<OsString>,
        ports: Option<(u16, u16)>,
    ) -> Hosts {
        Hosts {
            list: self.places(per_host),
            of_programs: Vec::new(),
            shell,
            ports,
            encrypts: false,
            deals: false,
            stages: false,
            width: 0,
        }
    }

    /// Returns each host once, with the sum of the places that the list says, if it says any.
    #[must_use]
    pub fn distinct(&self) -> Vec<(String, Option<u32>)> {
        let mut distinct: Vec<(String, Option<u32>)> = Vec::new();
        for (name, places) in &self.list {
            match distinct.iter_mut().find(|(other, _)| other == name) {
                Some((_, sum)) => *sum = sum.zip(*places).map(|(a, b)| a.saturating_add(b)),
                None => distinct.push((name.clone(), *places)),
            }
        }
        distinct
    }

    /// Returns the hosts of a list of nodes as Slurm writes it, with the places of each; where
    /// there are fewer numbers than nodes, the others have one place.
    ///
    /// # Errors
    /// When a name is none.
    pub fn of_nodes(nodes: &str, places: &[u32]) -> Result<HostList, String> {
        let mut list = HostList::default();
        for node in parts(nodes) {
            list.add(node, None)?;
        }
        for ((_, place), &count) in list.list.iter_mut().zip(places) {
            *place = Some(count);
        }
        list.checked("node[01-04]")
    }

    /// Returns the hosts of a batch system's file: a line each, with the number of places as the
    /// second word where it is not 1. The same host may be there several times.
    ///
    /// # Errors
    /// When a name is none, or there are none.
    pub fn of_places<'a>(lines: impl Iterator<Item = &'a str>) -> Result<HostList, String> {
        let mut list = HostList::default();
        for line in lines {
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            let places = words.next().and_then(|word| word.parse().ok());
            list.add(checked(name)?, Some(places.unwrap_or(1)))?;
        }
        if list.list.is_empty() {
            return Err("it names no host".into());
        }
        list.checked("node01 4")
    }

    /// Returns hosts that have joined: a line each, with the cores of each and its name.
    #[must_use]
    pub fn of_joined<'a>(lines: impl Iterator<Item = &'a str>) -> HostList {
        let host = |line: &'a str| {
            let (cores, name) = line.split_once(' ')?;
            Some((name.to_owned(), Some(cores.parse().ok()?)))
        };
        HostList {
            list: lines.filter_map(host).collect(),
            is_whole_host: false,
        }
    }

    /// Whether it names no host.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether all hosts of another list are in this one.
    #[must_use]
    pub fn has_all_of(&self, other: &HostList) -> bool {
        let has = |name: &String| self.list.iter().any(|(own, _)| own == name);
        other.list.iter().all(|(name, _)| has(name))
    }

    fn add(&mut self, name: &str, places: Option<u32>) -> Result<(), String> {
        for name in expanded(name)? {
            self.list.push((name, places));
        }
        if self.list.len() > Job::MOST_RANKS as usize {
            return Err(format!("at most {} hosts are possible", Job::MOST_RANKS));
        }
        Ok(())
    }

    fn checked(self, example: &str) -> Result<HostList, String> {
        let places = self.list.iter().map(|(_, p)| u64::from(p.unwrap_or(1)));
        if places.sum::<u64>() > u64::from(Job::MOST_RANKS) {
            return Err(format!("at most {} ranks are possible", Job::MOST_RANKS));
        }
        if self.list.iter().all(|(_, places)| *places == Some(0)) {
            return Err(format!("it has no place for a rank; write: {example}"));
        }
        Ok(self)
    }
}

/// Reads a list `name[:slots],...`; a name may stand for several: `node[01-04,7]`.
///
/// # Errors
/// When a name or a number is none, or no rank has a place.
pub fn hosts(text: &str) -> Result<HostList, String> {
    let mut list = HostList::default();
    for host in parts(text) {
        let (name, places) = places_of(host)?;
        list.add(name, places)?;
    }
    let first = list.list.first().map_or("localhost", |(name, _)| name);
    let example = format!("{first}:4");
    list.checked(&example)
}

/// Reads a file of hosts: a line each, `name[:slots] [word=value]...`, `#` begins a comment.
///
/// # Errors
/// When it cannot be read, names no host, or says something wrong of one.
pub fn host_file(path: &str) -> Result<HostList, String> {
    let text =
        std::fs::read_to_string(Path::new(path)).map_err(|e| format!("cannot read it: {e}"))?;
    check_lines(&text)
}

fn check_lines(text: &str) -> Result<HostList, String> {
    let mut list = HostList::default();
    let mut lines = 0;
    let mut has_number = false;
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace();
        let Some(hosts) = words.next() else { continue };
        lines += 1;
        let words: Vec<&str> = words.collect();
        let checked = parts(hosts).into_iter().try_for_each(|host| {
            let (name, mut count) = places_of(host)?;
            for word in &words {
                count = slots_of(word)?.or(count);
            }
            has_number |= count.is_some();
            list.add(name, count)
        });
        checked.map_err(|why| format!("line {number}: {why}"))?;
    }
    if lines == 0 {
        return Err("it names no host; write: localhost slots=4".into());
    }
    list.is_whole_host = lines == 1 && !has_number;
    list.checked("localhost slots=4")
}

/// Returns the number of slots that a word behind a host says. Other words of other launchers
/// change nothing.
fn slots_of(word: &str) -> Result<Option<u32>, String> {
    match word.split_once('=') {
        Some((name @ ("slots" | "max_slots" | "max-slots"), count)) => match count.parse() {
            Ok(count) if name == "slots" => Ok(Some(count)),
            Ok(_) => Ok(None),
            Err(_) => Err(format!("'{word}' has no number; write: slots=4")),
        },
        Some(("user" | "binding" | "ifhn" | "port", _)) => Ok(None),
        _ => Err(format!(
            "'{word}' is not known after a host; slots=N and max_slots=N are"
        )),
    }
}

/// Returns the name of a host and its slots, if it says any.
fn places_of(host: &str) -> Result<(&str, Option<u32>), String> {
    let (name, slots) = match host.rsplit_once(':') {
        Some((name, slots)) if !name.contains(':') || name.ends_with(']') => {
            let count = match slots {
                // As many as there are cores.
                "*" | "auto" => Some(cpu::usable_cores() as u32),
                _ => slots.parse::<u32>().ok(),
            };
            match count {
                Some(_) => (name, count),
                None => {
                    return Err(format!(
                        "'{slots}' is not a number of ranks; write: {name}:4"
                    ));
                }
            }
        }
        _ => (host, None),
    };
    Ok((name, slots))
}

/// Checks that a host, perhaps with slots, is this machine; returns the slots.
///
/// # Errors
/// When it is not.
pub fn is_here(host: &str) -> Result<Option<u32>, String> {
    let (name, slots) = places_of(host)?;
    if is_this_machine(name) {
        return Ok(slots);
    }
    Err(format!(
        "'{name}' is not this machine ({}), and this names places on this machine only; use localhost",
        host_name()
    ))
}

/// Hosts with their places, reached by `shell` where the user names no other remote shell; none
/// where they are this machine.
pub fn with_places(list: Vec<(String, u32)>, shell: Option<&str>) -> Option<Hosts> {
    if list.iter().all(|(host, _)| is_this_machine(host)) {
        return None;
    }
    let own = std::env::var("MARGAY_RSH").ok();
    let own = own.filter(|words| !words.trim().is_empty());
    Some(Hosts {
        list,
        shell: match own.as_deref().or(shell) {
            Some(words) => words.split_whitespace().map(OsString::from).collect(),
            None => Hosts::SHELL.map(OsString::from).to_vec(),
        },
        width: match own.as_deref().or(shell) {
            Some(words) if Some(words) == shell => 0,
            _ => Hosts::WIDTH,
        },
        ..Hosts::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted() {
        let count = |text: &str| hosts(text).map(|list| list.ranks(64, None));
        let own = host_name();
        for (text, ranks) in [
            ("localhost", 1),
            ("localhost:4,127.0.0.1", 5),
            ("::1,[::1]:2", 3),
            ("127.0.1.1,localhost", 2),
            (&own, 1),
            (&format!("{own}:3"), 3),
            ("localhost:*", cpu::usable_cores() as u32),
        ] {
            assert_eq!(count(text), Ok(ranks), "{text}");
            assert!(hosts(text).unwrap().is_here(), "{text}");
        }
        for (text, ranks) in [
            ("localhost,far", 2),
            ("far:3,localhost:0,", 3),
            ("n[08-11,3]x:2", 10),
        ] {
            assert_eq!(count(text), Ok(ranks), "{text}");
            assert!(!hosts(text).unwrap().is_here(), "{text}");
        }
        for text in [
            "localhost:x",
            "localhost:0",
            "",
            "localhost:99999999",
            "-oProxyCommand=x",
            "a b",
            "n[1-",
            "n[3-1]",
            "$(id)",
        ] {
            assert!(hosts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_in_brackets_stand_for_several_and_ranks_for_each_host_for_all() {
        let names = |text: &str, per_host| {
            let list = hosts(text).unwrap().hosts(per_host, Vec::new(), None).list;
            list.into_iter()
                .map(|(n, p)| format!("{n}:{p}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(names("n[08-10,3],b:4", None), "n08:1 n09:1 n10:1 n3:1 b:4");
        assert_eq!(names("r[1-2]n[1-2]", None), "r1n1:1 r1n2:1 r2n1:1 r2n2:1");
        assert_eq!(names("a:7,b,a", Some(2)), "a:2 b:2");
        assert_eq!(hosts("a,b").unwrap().ranks(64, Some(3)), 6);
    }

    #[test]
    fn a_list_of_too_many_is_refused_before_it_is_made() {
        let zeros = "0".repeat(100_000);
        let most = Job::MOST_RANKS;
        for (text, reason) in [
            ("[00-432][00-432]4:][00-432]4:2", "stands for more than"),
            ("n[0-65535]:0,n[0-9]:0", "hosts are possible"),
            ("n[0-4294967295]", "is not a list of hosts"),
            ("n[+1]", "is not a list of hosts"),
            (&format!("n[{zeros}1]"), "is not a list of hosts"),
            (&"[1]".repeat(100_000), "more than 255 bytes"),
            (&format!("n:{most},b"), "ranks are possible"),
        ] {
            let error = hosts(text).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert_eq!(
            hosts("n[00001-32768]").map(|l| l.ranks(1, None)),
            Ok(32_768)
        );
    }

    #[test]
    fn lines_of_a_file_are_checked() {
        for (text, ranks) in [
            ("localhost", 64),
            (
                "# all\n\nlocalhost slots=4 max_slots=8 # here\nlocalhost:2\n",
                6,
            ),
            ("localhost\nlocalhost\nlocalhost\n", 3),
            ("localhost:2", 2),
            ("localhost max_slots=8\n", 64),
            ("far\n", 1),
            ("a slots=2\nb:3\nc\n", 6),
            ("n[1-4] slots=2\n", 8),
        ] {
            let slots = check_lines(text).map(|list| list.ranks(64, None));
            assert_eq!(slots, Ok(ranks), "{text}");
        }
        for (text, reason) in [
            ("localhost slots=0", "it has no place for a rank"),
            ("", "it names no host"),
            ("# nothing\n", "it names no host"),
            (
                "localhost\nlocalhost slots=zz",
                "line 2: 'slots=zz' has no number",
            ),
            ("localhost slots=", "line 1: 'slots=' has no number"),
            ("localhost fast", "line 1: 'fast' is not known"),
        ] {
            let error = check_lines(text).unwrap_err();
            assert!(error.starts_with(reason), "{text}: {error}");
        }
    }
}
