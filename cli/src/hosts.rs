//! Lists of hosts: jobs run on this machine alone, so a list may name no other.

use std::net::IpAddr;
use std::path::Path;

use margay_job_launch::plan::Job;
use margay_job_launch::report::host_name;
use margay_sys_os::cpu;

/// How many ranks a list of hosts has places for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// The sum of the numbers that are given, and 1 for each host without one.
    message: u32,
    /// There is one host, in a file, and no number: its cores are its places.
    is_whole_host: bool,
}

impl Slots {
    /// Returns the number of ranks on a host with these usable cores.
    #[must_use]
    pub fn ranks(self, usable_cores: u32) -> u32 {
        if self.is_whole_host {
            usable_cores
        } else {
            self.message
        }
    }

    fn add(&mut self, slots: Option<u32>) -> Result<(), String> {
        let sum = self.message.checked_add(slots.unwrap_or(1));
        self.message = sum
            .filter(|&sum| sum <= Job::MOST_RANKS)
            .ok_or_else(|| format!("at most {} ranks are possible", Job::MOST_RANKS))?;
        Ok(())
    }
}

/// Reads a list `name[:slots],...`, whose hosts must all be this machine, without asking anybody.
///
/// # Errors
/// When one is not, or no rank has a place.
pub fn hosts(text: &str) -> Result<Slots, String> {
    let mut slots = Slots::default();
    for host in text.split(',').map(str::trim).filter(|h| !h.is_empty()) {
        slots.add(is_here(host)?)?;
    }
    if slots.message == 0 {
        return Err("it has no place for a rank; write: localhost:4".into());
    }
    Ok(slots)
}

/// Reads a file of hosts: a line each, `name[:slots] [word=value]...`, `#` begins a comment.
///
/// # Errors
/// When it cannot be read, names no host or another one, or says something wrong of a host.
pub fn host_file(path: &str) -> Result<Slots, String> {
    let text =
        std::fs::read_to_string(Path::new(path)).map_err(|e| format!("cannot read it: {e}"))?;
    check_lines(&text)
}

fn check_lines(text: &str) -> Result<Slots, String> {
    let mut slots = Slots::default();
    let mut lines = 0;
    let mut has_number = false;
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace();
        let Some(host) = words.next() else { continue };
        lines += 1;
        let checked = is_here(host).and_then(|mut count| {
            for word in words {
                count = slots_of(word)?.or(count);
            }
            has_number |= count.is_some();
            slots.add(count)
        });
        checked.map_err(|why| format!("line {number}: {why}"))?;
    }
    if lines == 0 {
        return Err("it names no host; write: localhost slots=4".into());
    }
    if slots.message == 0 {
        return Err("it has no place for a rank; write: localhost slots=4".into());
    }
    slots.is_whole_host = lines == 1 && !has_number;
    Ok(slots)
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

/// Checks that a host, perhaps with slots, is this machine; returns the slots.
///
/// # Errors
/// When it is not.
pub fn is_here(host: &str) -> Result<Option<u32>, String> {
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
    let own = host_name();
    let short = |n: &str| n.split('.').next().unwrap_or_default().to_lowercase();
    let is_loopback = |name: &str| {
        let address = name.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok_and(|a| a.is_loopback())
    };
    let local = name == "localhost" || is_loopback(name);
    if local || name.eq_ignore_ascii_case(&own) || short(name) == short(&own) {
        return Ok(slots);
    }
    Err(format!(
        "jobs on several hosts are not supported yet, and '{name}' is not this machine ({own}); \
         use localhost"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine() {
        let count = |text: &str| hosts(text).map(|slots| slots.ranks(64));
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
        }
        for text in [
            "localhost,far",
            "localhost:x",
            "localhost:0",
            "",
            "localhost:99999999",
        ] {
            assert!(hosts(text).is_err(), "{text}");
        }
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
        ] {
            let slots = check_lines(text).map(|slots| slots.ranks(64));
            assert_eq!(slots, Ok(ranks), "{text}");
        }
        for (text, message) in [
            ("localhost slots=0", "it has no place for a rank"),
            ("", "it names no host"),
            ("# nothing\n", "it names no host"),
            (
                "localhost\nlocalhost slots=zz",
                "line 2: 'slots=zz' has no number",
            ),
            ("localhost slots=", "line 1: 'slots=' has no number"),
            ("localhost fast", "line 1: 'fast' is not known"),
            ("\nfar slots=2", "line 2: jobs on several hosts"),
        ] {
            let error = check_lines(text).unwrap_err();
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }
}
