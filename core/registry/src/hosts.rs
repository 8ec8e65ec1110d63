//! The hosts of a job that runs on several: their names and addresses, on which of them each rank
//! is and at which port it listens, and the secret that the ranks prove to each other.
//!
//! It is one note of rank 0, which the starter of a host's ranks makes there before the first
//! of them starts. A job on one host has none. All of it is written once, but for the last three
//! words of each rank. Reports are entered where the job is looked at as a whole: at the launcher's
//! host.
//!
//! ```text
//! word 0      number of hosts | number of ranks << 32
//! word 1..5   the secret, 32 bytes
//! word 5      this host | 1 << 32 where packets between hosts are encrypted
//! per host    8 words: its name, NUL-padded
//!             1 word:  number of its addresses
//!             8 x 2 words: addresses as IPv6, those of IPv4 as ::ffff:a.b.c.d
//!             1 word:  a number that only hosts with the same cores have in common
//! per rank    1 word: host | port << 32
//!             1 word: 0, or 1 + the rank to which the link is lost | error number << 32
//!                     (-2: not lost, but what takes its connections has not answered for long)
//!             1 word: what its host has reported: process | what it does << 32 | at rest << 40
//!                     | computes << 41
//!             1 word: CPU time in milliseconds | core << 48
//! ```

use core::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::NoteKey;

/// The note of rank 0 that holds the table.
pub const KEY: NoteKey = NoteKey(u32::from_be_bytes(*b"hsts"));

/// Addresses that are kept of a host.
pub const MOST_ADDRESSES: usize = 8;
/// Longest name of a host in bytes, which is also the system's.
pub const NAME_BYTES: usize = 64;

const FIRST: usize = 6;
const NAME: usize = NAME_BYTES / 8;
const CORES: usize = NAME + 1 + 2 * MOST_ADDRESSES;
const PER_HOST: usize = CORES + 1;
const PER_RANK: usize = 4;

/// Instead of an error number: the link is not lost, but what takes the connections to that rank
/// has not answered for long. The rank may compute, or another program has its address.
pub const UNANSWERED: i32 = -2;

/// The number of bytes of a job's secret.
pub const SECRET: usize = 32;

/// A host of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Its name, cut to [`NAME_BYTES`].
    pub name: String,
    /// Where it can be reached, at most [`MOST_ADDRESSES`].
    pub addresses: Vec<IpAddr>,
    /// A number that only hosts with the same cores have in common: containers of one machine.
    pub cores: u64,
}

/// Where a rank is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The number of its host.
    pub host: u32,
    /// The port at which it listens.
    pub port: u16,
}

/// What the host of a rank has reported of its process to another host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The process, by its number there; 0 where nothing has been reported.
    pub pid: u32,
    /// What it does, by a number that only those who report and who show it need to know.
    pub activity: u8,
    /// It goes on only when one of its waits ends.
    pub is_at_rest: bool,
    /// A thread that does not wait in the library runs.
    pub computes: bool,
    /// CPU time that it has used, in milliseconds.
    pub cpu_ms: u64,
    /// The core that it ran on last.
    pub core: u16,
}

/// Words of the table of a job.
#[must_use]
pub fn words(hosts: usize, ranks: usize) -> usize {
    FIRST + hosts * PER_HOST + ranks * PER_RANK
}

/// The table in a note.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    words: &'a [AtomicU64],
    hosts: usize,
    ranks: usize,
}

impl<'a> Table<'a> {
    /// Writes a table into a note of [`words`] words.
    ///
    /// # Panics
    /// When the note is too short.
    pub fn write(
        note: &'a [AtomicU64],
        secret: &[u8; SECRET],
        (here, encrypts): (u32, bool),
        hosts: &[Host],
        locations: &[Location],
    ) -> Table<'a> {
        let put = |at: usize, word: u64| note[at].store(word, Ordering::Relaxed);
        for (at, word) in (1..).zip(eights(secret)) {
            put(at, word);
        }
        put(5, u64::from(here) | u64::from(encrypts) << 32);
        for (host, at) in hosts.iter().zip((FIRST..).step_by(PER_HOST)) {
            let mut name = [0; NAME_BYTES];
            let used = host.name.len().min(NAME_BYTES);
            name[..used].copy_from_slice(&host.name.as_bytes()[..used]);
            for (at, word) in (at..).zip(eights(&name)) {
                put(at, word);
            }
            let addresses = host.addresses.iter().take(MOST_ADDRESSES);
            put(at + NAME, addresses.len() as u64);
            for (address, at) in addresses.zip((at + NAME + 1..).step_by(2)) {
                let v6 = match address {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => *v6,
                };
                put(at, v6.to_bits() as u64);
                put(at + 1, (v6.to_bits() >> 64) as u64);
            }
            put(at + CORES, host.cores);
        }
        let first = FIRST + hosts.len() * PER_HOST;
        for (location, at) in locations.iter().zip((first..).step_by(PER_RANK)) {
            put(
                at,
                u64::from(location.host) | u64::from(location.port) << 32,
            );
        }
        note[0].store(
            hosts.len() as u64 | (locations.len() as u64) << 32,
            Ordering::Release,
        );
        Table {
            words: note,
            hosts: hosts.len(),
            ranks: locations.len(),
        }
    }

    /// The table in a note; none where the note is too short for what it says.
    #[must_use]
    pub fn read(note: &'a [AtomicU64]) -> Option<Table<'a>> {
        let sizes = note.first()?.load(Ordering::Acquire);
        let (hosts, ranks) = ((sizes as u32) as usize, (sizes >> 32) as usize);
        let most = note.len();
        let fits = hosts <= most && ranks <= most && words(hosts, ranks) <= most;
        (hosts > 0 && fits).then_some(Table {
            words: note,
            hosts,
            ranks,
        })
    }

    fn word(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    /// The number of hosts.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        self.hosts as u32
    }

    /// The host on which this table is.
    #[must_use]
    pub fn here(&self) -> u32 {
        self.word(5) as u32
    }

    /// Whether packets between hosts are encrypted.
    #[must_use]
    pub fn encrypts(&self) -> bool {
        self.word(5) >> 32 & 1 != 0
    }

    /// The job's secret.
    #[must_use]
    pub fn secret(&self) -> [u8; SECRET] {
        let mut secret = [0; SECRET];
        for (at, eight) in (1..).zip(secret.chunks_exact_mut(8)) {
            eight.copy_from_slice(&self.word(at).to_ne_bytes());
        }
        secret
    }

    fn host_at(&self, host: u32) -> Option<usize> {
        let host = host as usize;
        (host < self.hosts).then_some(FIRST + host * PER_HOST)
    }

    /// What is known of a host; none beyond the last one.
    #[must_use]
    pub fn host(&self, host: u32) -> Option<Host> {
        let at = self.host_at(host)?;
        let name = (at..at + NAME).flat_map(|at| self.word(at).to_ne_bytes());
        let name: Vec<u8> = name.take_while(|&b| b != 0).collect();
        let addresses = (self.word(at + NAME) as usize).min(MOST_ADDRESSES);
        let address = |number: usize| {
            let at = at + NAME + 1 + 2 * number;
            let v6 = u128::from(self.word(at)) | u128::from(self.word(at + 1)) << 64;
            Ipv6Addr::from_bits(v6).to_canonical()
        };
        Some(Host {
            name: String::from_utf8_lossy(&name).into_owned(),
            addresses: (0..addresses).map(address).collect(),
            cores: self.word(at + CORES),
        })
    }

    fn rank_at(&self, rank: u32) -> Option<usize> {
        let rank = (rank as usize) < self.ranks && rank != u32::MAX;
        rank.then_some(FIRST + self.hosts * PER_HOST)
    }

    /// Where a rank is; none beyond the last one.
    #[must_use]
    pub fn location(&self, rank: u32) -> Option<Location> {
        let word = self.word(self.rank_at(rank)? + rank as usize * PER_RANK);
        Some(Location {
            host: word as u32,
            port: (word >> 32) as u16,
        })
    }

    /// The ranks of a host, in order.
    pub fn ranks_of(self, host: u32) -> impl Iterator<Item = u32> + use<'a> {
        (0..self.ranks as u32)
            .filter(move |&rank| self.location(rank).is_some_and(|s| s.host == host))
    }

    /// Returns the number of ranks that share the cores of `host`: its own, and those of hosts that
    /// are containers of the same machine.
    #[must_use]
    pub fn ranks_on_cores_of(&self, host: u32) -> u32 {
        let cores_of = |host: u32| Some(self.word(self.host_at(host)? + CORES));
        let cores = cores_of(host);
        let shares = |other: u32| other == host || cores_of(other) == cores;
        let shares: Vec<bool> = (0..self.hosts()).map(shares).collect();
        let ranks = (0..self.ranks as u32).filter_map(|rank| self.location(rank));
        let sharing = ranks.filter(|at| shares.get(at.host as usize) == Some(&true));
        sharing.count() as u32
    }

    /// Enters that a rank cannot reach another one any more, and why. Until that is taken, only the
    /// first loss of a rank counts.
    pub fn lose_link(&self, rank: u32, to: u32, errno: i32) {
        if let Some(at) = self.rank_at(rank) {
            let word = (u64::from(to) + 1) | u64::from(errno as u32) << 32;
            let cell = &self.words[at + rank as usize * PER_RANK + 1];
            let is_minor = |before: u64| before == 0 || (before >> 32) as i32 == UNANSWERED;
            let enter = |before| is_minor(before).then_some(word);
            let _ = cell.try_update(Ordering::Release, Ordering::Relaxed, enter);
        }
    }

    /// Enters what the host of a rank has reported.
    pub fn report(&self, rank: u32, report: &Report) {
        let Some(first) = self.rank_at(rank) else {
            return;
        };
        let at = first + rank as usize * PER_RANK + 2;
        let word = u64::from(report.pid)
            | u64::from(report.activity) << 32
            | u64::from(report.is_at_rest) << 40
            | u64::from(report.computes) << 41;
        let cpu = report.cpu_ms & ((1 << 48) - 1) | u64::from(report.core) << 48;
        self.words[at + 1].store(cpu, Ordering::Relaxed);
        self.words[at].store(word, Ordering::Release);
    }

    /// What the host of a rank has reported; none where the rank is on this host.
    #[must_use]
    pub fn reported(&self, rank: u32) -> Option<Report> {
        if self.location(rank)?.host == self.here() {
            return None;
        }
        let at = self.rank_at(rank)? + rank as usize * PER_RANK + 2;
        let word = self.words[at].load(Ordering::Acquire);
        let cpu = self.word(at + 1);
        Some(Report {
            pid: word as u32,
            activity: (word >> 32) as u8,
            is_at_rest: word >> 40 & 1 != 0,
            computes: word >> 41 & 1 != 0,
            cpu_ms: cpu & ((1 << 48) - 1),
            core: (cpu >> 48) as u16,
        })
    }

    /// Takes which rank a rank cannot reach any more, and the system's number for the reason.
    /// Another loss may be entered then.
    #[must_use]
    pub fn take_lost_link(&self, rank: u32) -> Option<(u32, i32)> {
        let at = self.rank_at(rank)? + rank as usize * PER_RANK + 1;
        let word = self.words[at].swap(0, Ordering::Acquire);
        Some(((word as u32).checked_sub(1)?, (word >> 32) as i32))
    }
}

fn eights(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let words = bytes.chunks_exact(8);
    words.map(|eight| u64::from_ne_bytes(eight.try_into().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let hosts = [
            Host {
                name: "a".into(),
                addresses: vec!["10.0.0.1".parse().unwrap(), "2001:db8::7".parse().unwrap()],
                cores: 7 << 40,
            },
            Host {
                name: "x".repeat(NAME_BYTES),
                addresses: Vec::new(),
                cores: 1,
            },
        ];
        let location = |host, port| Location { host, port };
        let locations = [location(0, 40_000), location(1, 65_535), location(0, 1)];
        let note: Vec<AtomicU64> = (0..words(2, 3)).map(|_| AtomicU64::new(0)).collect();
        assert!(Table::read(&note).is_none(), "nothing is written yet");
        let secret = std::array::from_fn(|i| i as u8);
        Table::write(&note, &secret, (1, true), &hosts, &locations);
        let table = Table::read(&note).unwrap();
        assert_eq!(
            (
                table.secret(),
                table.here(),
                table.hosts(),
                table.encrypts()
            ),
            (secret, 1, 2, true)
        );
        assert_eq!([0, 1].map(|h| table.host(h).unwrap()), hosts);
        assert_eq!([0, 1, 2].map(|r| table.location(r).unwrap()), locations);
        assert_eq!(table.ranks_of(0).collect::<Vec<_>>(), [0, 2]);
        assert_eq!([0, 1].map(|host| table.ranks_on_cores_of(host)), [2, 1]);
        assert!(table.host(2).is_none() && table.location(3).is_none());
        let report = Report {
            pid: 77,
            activity: 2,
            is_at_rest: true,
            computes: false,
            cpu_ms: 123_456,
            core: 65_535,
        };
        table.report(2, &report);
        assert_eq!(table.reported(2), Some(report));
        assert_eq!(table.reported(0), Some(Report::default()), "not yet");
        assert_eq!(table.reported(1), None, "it is here");
        assert_eq!(table.take_lost_link(2), None);
        table.lose_link(2, 1, 110);
        table.lose_link(2, 0, 113);
        assert_eq!(table.take_lost_link(2), Some((1, 110)), "the first one");
        assert_eq!(table.take_lost_link(2), None);
        table.lose_link(2, 0, 113);
        assert_eq!(table.take_lost_link(2), Some((0, 113)));
        table.lose_link(2, 1, UNANSWERED);
        table.lose_link(2, 0, 113);
        table.lose_link(2, 1, UNANSWERED);
        assert_eq!(table.take_lost_link(2), Some((0, 113)), "a loss counts");
        table.lose_link(2, 1, UNANSWERED);
        assert_eq!(table.take_lost_link(2), Some((1, UNANSWERED)));
        assert!(Table::read(&note[..note.len() - 1]).is_none());
        let alike = hosts.map(|host| Host { cores: 3, ..host });
        let table = Table::write(&note, &secret, (1, false), &alike, &locations);
        assert!(!table.encrypts());
        assert_eq!(table.ranks_on_cores_of(1), 3, "containers of one machine");
    }
}
