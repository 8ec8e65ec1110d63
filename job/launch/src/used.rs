//! What a job of a queue used on the hosts other than that on which it began. Its launchers write
//! it down in a file of the job, a line for each host and launch; what watches over the job adds it
//! to what the job used on its first host. Without it the job's account would have that host alone.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

use margay_sys_os::process::{ReapedUsage, descendants};

use crate::energy::EnergyMeter;
use crate::hosts::wire::{Broken, Reader, Writer};
use crate::step;

/// The file, beside that of a job's nodes; a job on several hosts has one.
#[must_use]
pub fn file_beside(nodes: &Path) -> PathBuf {
    nodes.with_file_name("used")
}

/// What was used on one host by one launch.
#[derive(Clone, Debug, PartialEq)]
pub struct UsedThere {
    /// The host, by the name that the launcher was given.
    pub host: String,
    /// Processor time in microseconds.
    pub cpu_us: u64,
    /// The largest resident set of a process, in KiB.
    pub max_rss_kib: u64,
    /// Energy of the whole host in microjoules, where it tells.
    pub energy_uj: Option<u64>,
    /// The step of the job that the launch was.
    pub step: Option<u32>,
}

impl UsedThere {
    /// As a line of the file. No host's name has blanks in it.
    fn line(&self) -> String {
        let energy = self
            .energy_uj
            .map_or("-".into(), |energy| energy.to_string());
        let step = self.step.map_or("-".into(), |step| step.to_string());
        let UsedThere {
            host,
            cpu_us,
            max_rss_kib,
            ..
        } = self;
        format!("{host} {cpu_us} {max_rss_kib} {energy} {step}\n")
    }

    /// The lines of the file, without what is none: a job's user may write to it.
    #[must_use]
    pub fn lines(text: &str) -> Vec<UsedThere> {
        let of = |line: &str| {
            let mut words = line.split(' ');
            let mut next = || words.next();
            Some(UsedThere {
                host: next()?.to_owned(),
                cpu_us: next()?.parse().ok()?,
                max_rss_kib: next()?.parse().ok()?,
                energy_uj: next()?.parse().ok(),
                step: next().and_then(|step| step.parse().ok()),
            })
        };
        text.lines().filter_map(of).collect()
    }
}

/// What an agent says of what its host was used.
pub(crate) fn put(message: &mut Writer, ranks: &ReapedUsage, energy: Option<&mut EnergyMeter>) {
    message
        .number((ranks.cpu_s * 1e6) as u64)
        .number(ranks.max_rss_kib)
        .number(energy.map_or(u64::MAX, EnergyMeter::read));
}

/// The file in which the launcher of a job writes down what was used on the other hosts.
#[derive(Debug)]
pub(crate) struct Account {
    file: Option<File>,
    step: Option<u32>,
    /// Hosts that are containers of this one: their agents are below this process, and what watches
    /// over the job sees them itself.
    within: HashSet<usize>,
}

impl Account {
    /// That of the job to which this process belongs, if it has one.
    pub fn of_job() -> Account {
        let of_queue = std::env::var_os("MARGAY_JOB_ID");
        let nodes = of_queue.and_then(|_| std::env::var_os("PBS_NODEFILE"));
        let open = |path: PathBuf| OpenOptions::new().append(true).open(path).ok();
        Account {
            file: nodes.and_then(|nodes| open(file_beside(Path::new(&nodes)))),
            // The relay is a child of the launcher.
            step: step::of_launcher(parent_id()),
            within: HashSet::new(),
        }
    }

    /// An agent with this process id is on the host of this number.
    pub fn know(&mut self, host: usize, agent: u32) {
        if self.file.is_some() && descendants(&[]).iter().any(|facts| facts.pid == agent) {
            self.within.insert(host);
        }
    }

    /// Writes down what an agent has said of its host, which has this number and name.
    ///
    /// # Errors
    /// When the message is broken.
    pub fn add(&mut self, at: usize, host: &str, from: &mut Reader<'_>) -> Result<(), Broken> {
        let used = UsedThere {
            host: host.to_owned(),
            cpu_us: from.number()?,
            max_rss_kib: from.number()?,
            energy_uj: Some(from.number()?).filter(|&energy| energy != u64::MAX),
            step: self.step,
        };
        if let Some(file) = self.file.as_mut().filter(|_| !self.within.contains(&at)) {
            // The account is not worth the end of a job.
            let _ = file.write_all(used.line().as_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written_and_others_left_out() {
        let used = |energy_uj| UsedThere {
            host: "node-7".into(),
            cpu_us: 1_234_567,
            max_rss_kib: 89,
            energy_uj,
            step: energy_uj.map(|_| 3),
        };
        let all = [used(None), used(Some(5))];
        let text = format!("{}\nno 1\n -1\u{0}\n{}", all[0].line(), all[1].line());
        assert_eq!(UsedThere::lines(&text), all);
    }
}
