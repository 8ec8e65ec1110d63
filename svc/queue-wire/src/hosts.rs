//! The hosts of a machine of several.

use serde::{Deserialize, Serialize};

/// What machine a head is started for: as words, its slots, the remote shell, the hosts, and what
/// prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineSpec {
    /// Slots of each host for which nothing else is said; its usable cores without.
    pub slots: Option<u32>,
    /// None: this host alone.
    pub hosts: Vec<HostSpec>,
    /// The words of the remote shell.
    pub shell: Vec<String>,
    /// A command, of one line, that prints which hosts there are now, where one does.
    pub hosts_from: Option<String>,
}

/// A host as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    pub name: String,
    pub slots: Option<u32>,
    /// It goes when the jobs that run there have ended.
    pub leaves: bool,
}

/// Stands behind the slots of a host that leaves.
const LEAVES: &str = " leaves";

fn slots_text(slots: Option<u32>) -> String {
    slots.map_or_else(|| "-".into(), |slots| slots.to_string())
}

fn slots_of(text: &str) -> Option<Option<u32>> {
    match text {
        "-" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// Hosts as a word.
#[must_use]
pub fn hosts_text(hosts: &[HostSpec]) -> String {
    let hosts = hosts.iter();
    let hosts: Vec<String> = hosts
        .map(|host| {
            let leaves = if host.leaves { LEAVES } else { "" };
            format!("{} {}{leaves}", host.name, slots_text(host.slots))
        })
        .collect();
    hosts.join(",")
}

/// The hosts of such a word; none when it is no such one.
#[must_use]
pub fn hosts_of(text: &str) -> Option<Vec<HostSpec>> {
    let host = |host: &str| {
        let (name, slots) = host.split_once(' ')?;
        let stays = slots.strip_suffix(LEAVES);
        Some(HostSpec {
            name: name.to_owned(),
            slots: slots_of(stays.unwrap_or(slots))?,
            leaves: stays.is_some(),
        })
    };
    text.split(',').map(host).collect()
}

impl MachineSpec {
    /// It as words, one, three or four.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![slots_text(self.slots)];
        if !self.hosts.is_empty() {
            words.push(self.shell.join(" "));
            words.push(hosts_text(&self.hosts));
            words.extend(self.hosts_from.clone());
        }
        words
    }

    /// The machine of these words; none when they are none.
    #[must_use]
    pub fn of(words: &[&str]) -> Option<MachineSpec> {
        let (&slots, rest) = words.split_first()?;
        let slots = slots_of(slots)?;
        let mut spec = MachineSpec {
            slots,
            ..MachineSpec::default()
        };
        match rest {
            [] => {}
            [shell, hosts, from @ ..] if from.len() <= 1 => {
                spec.hosts_from = from.first().map(|&command| command.to_owned());
                spec.shell = shell.split(' ').map(str::to_owned).collect();
                spec.hosts = hosts_of(hosts)?;
            }
            _ => return None,
        }
        Some(spec)
    }
}

impl HostSpec {
    /// A host as a command prints it: `name` or `name:slots`; none for a line without a name.
    #[must_use]
    pub fn of_line(line: &str) -> Option<HostSpec> {
        let line = line.trim();
        let (name, slots) = match line.rsplit_once(':') {
            // An address of IPv6 stands in brackets, or has no slots behind it.
            Some((name, slots)) if !name.contains(':') || name.ends_with(']') => {
                (name, Some(slots.parse().ok()?))
            }
            _ => (line, None),
        };
        (!name.is_empty() && !name.contains([' ', ','])).then(|| HostSpec {
            name: name.to_owned(),
            slots,
            leaves: false,
        })
    }
}

/// A host as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRow {
    pub name: String,
    pub slots: u32,
    pub used: u32,
    pub memory_mib: u64,
    pub is_up: bool,
    /// Jobs that have slots there.
    pub running: usize,
    /// No job starts there, and it goes when those that run have ended.
    #[serde(default)]
    pub leaves: bool,
    /// Why it is down.
    pub note: String,
}

impl HostRow {
    /// Its state in one word.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (self.is_up, self.used) {
            _ if self.leaves => "leaving",
            (false, _) => "down",
            (true, 0) => "idle",
            (true, used) if used >= self.slots => "full",
            _ => "in use",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_printed_with_slots_or_without() {
        let known = |line: &str| HostSpec::of_line(line).map(|host| (host.name, host.slots));
        assert_eq!(known(" a\r"), Some(("a".into(), None)));
        assert_eq!(known("b:4"), Some(("b".into(), Some(4))));
        assert_eq!(known("fe80::1"), Some(("fe80::1".into(), None)));
        assert_eq!(known("[fe80::1]:2"), Some(("[fe80::1]".into(), Some(2))));
        for wrong in ["", "a:x", "a b", "a,b", ":3"] {
            assert_eq!(known(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_machine_is_what_its_words_say() {
        let host = |name: &str, slots| HostSpec {
            name: name.into(),
            slots,
            leaves: name == "b",
        };
        let alone = MachineSpec {
            slots: Some(4),
            ..MachineSpec::default()
        };
        let several = MachineSpec {
            slots: None,
            hosts: vec![host("a", Some(2)), host("[::1]", None), host("b", Some(3))],
            shell: vec!["ssh".into(), "-x".into()],
            hosts_from: None,
        };
        let printed = MachineSpec {
            hosts_from: Some("kubectl get pods -o name".into()),
            ..several.clone()
        };
        for spec in [alone, several, printed, MachineSpec::default()] {
            let words = spec.words();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(MachineSpec::of(&words), Some(spec));
        }
        for wrong in [
            &[][..],
            &["x"],
            &["4", "ssh"],
            &["-", "ssh", "a"],
            &["-", "ssh", "a -", "cat", "cat"],
        ] {
            assert_eq!(MachineSpec::of(wrong), None, "{wrong:?}");
        }
    }
}
