//! How the processes of a job find each other over a [`Wire`].
//!
//! Each puts a line about itself: what tells its host from others, its process id, the port at
//! which it listens, its host's name and addresses. After a fence the first process of each host
//! reads all lines, makes the segment of its host and puts where that is; after a second fence the
//! others of the host join it. So a process that is not the first on its host asks for two lines,
//! however large the job is.
//!
//! What a host is, the processes say themselves: those that have the same kernel and the same
//! namespaces of processes, networks and users can share memory and wake each other. The launcher's
//! word only saves asking.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use margay_core_registry::Facts;
use margay_core_registry::hosts::{self, Host, Location, SECRET, Table};
use margay_sys_os::{clock, cpu, process, sockets};
use margay_sys_shm::environment::ENV_PORT_RANGE;
use margay_sys_shm::layout::Sizes;
use margay_sys_shm::segment::Segment;

use crate::{Wire, WireError};

/// The variable with the ports at which ranks listen, `FIRST:LAST`.
pub const VARIABLE_PORTS: &str = ENV_PORT_RANGE;

/// The version of what processes put, which is its first word.
const VERSION: &str = "1";
const PROCESS: &str = "margay";
const SECRET_KEY: &str = "margay-secret";
const MEMORY: &str = "margay-memory";

/// What has come of it.
pub struct Met {
    /// The memory that the ranks of this host share, with a cell for every rank of the job.
    pub segment: Arc<Segment>,
    /// Where ranks of other hosts connect to; none where all are on this one.
    pub listener: Option<TcpListener>,
}

/// What a process says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct About {
    /// What no other host has.
    host: String,
    pid: u32,
    port: u16,
    name: String,
    addresses: Vec<IpAddr>,
}

impl About {
    fn me(port: u16) -> About {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut host = boot.trim().to_owned();
        for space in ["pid", "net", "user"] {
            let link = std::fs::read_link(format!("/proc/self/ns/{space}"));
            let link = link.map(|l| l.to_string_lossy().into_owned());
            let number = link.unwrap_or_default();
            host.push('.');
            host.extend(number.chars().filter(char::is_ascii_digit));
        }
        About {
            host,
            pid: std::process::id(),
            port,
            name: process::host_name(),
            addresses: sockets::own_addresses(),
        }
    }

    fn encode(&self) -> String {
        let addresses = self.addresses.iter().take(hosts::MOST_ADDRESSES);
        let addresses: Vec<String> = addresses.map(IpAddr::to_string).collect();
        let name = self.name.chars().take(hosts::NAME_BYTES);
        let name: String = name
            .map(|c| {
                if c.is_ascii_graphic() && c != ';' {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let About {
            host, pid, port, ..
        } = self;
        format!(
            "{VERSION};{host};{pid};{port};{name};{}",
            addresses.join(",")
        )
    }

    fn decode(line: &str) -> Option<About> {
        let mut words = line.split(';');
        if words.next()? != VERSION {
            return None;
        }
        let about = About {
            host: words.next()?.to_owned(),
            pid: words.next()?.parse().ok()?,
            port: words.next()?.parse().ok()?,
            name: words.next()?.to_owned(),
            addresses: (words.next()?.split(','))
                .filter(|word| !word.is_empty())
                .map(|word| word.parse().ok())
                .collect::<Option<_>>()?,
        };
        words.next().is_none().then_some(about)
    }
}

/// Brings the processes of a job together. `ports` are those at which ranks may listen.
///
/// # Errors
/// When the launcher fails, or a segment cannot be made or joined.
pub fn meet(wire: &mut dyn Wire, ports: Option<(u16, u16)>) -> Result<Met, WireError> {
    let listener = sockets::listen(ports)
        .map_err(|error| WireError(format!("cannot listen for other hosts: {error}")))?;
    let port = listener.local_addr().map_or(0, |address| address.port());
    let me = wire.rank();
    let about = About::me(port);
    wire.put(PROCESS, &about.encode())?;
    if me == 0 {
        let mut secret = [0; SECRET];
        sockets::fill_random(&mut secret)
            .map_err(|error| WireError(format!("cannot make the job's secret: {error}")))?;
        let text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        wire.put(SECRET_KEY, &text)?;
    }
    wire.fence()?;
    let hint = wire.first_of_host().filter(|&first| first < me);
    let follows = match hint {
        Some(first) if ask(wire, first)?.host == about.host => Some(first),
        _ => None,
    };
    let segment = match follows {
        Some(first) => {
            wire.fence()?;
            join(wire, first)?
        }
        None => {
            let size = wire.size();
            let all = (0..size).map(|rank| ask(wire, rank));
            let all = all.collect::<Result<Vec<_>, _>>()?;
            let first = all.iter().position(|of| of.host == about.host);
            let first = first.unwrap_or(me as usize) as u32;
            if first == me {
                let segment = make(wire, &all, me)?;
                let (fd, id) = (segment.fd().as_raw_fd(), segment.id());
                wire.put(MEMORY, &format!("{};{fd};{id}", about.pid))?;
                wire.fence()?;
                segment
            } else {
                wire.put(MEMORY, &format!("={first}"))?;
                wire.fence()?;
                join(wire, first)?
            }
        }
    };
    if segment.ranks() != wire.size() {
        return Err(WireError("the memory of this host is another job's".into()));
    }
    let is_on_several = segment.note(0, hosts::KEY).is_some();
    Ok(Met {
        listener: is_on_several.then_some(listener),
        segment,
    })
}

fn ask(wire: &mut dyn Wire, rank: u32) -> Result<About, WireError> {
    let line = wire.get(rank, PROCESS)?;
    About::decode(&line).ok_or_else(|| {
        WireError(format!(
            "process {rank} says '{line}' of itself: it uses another version of Margay; install the same on all hosts"
        ))
    })
}

/// Joins the segment of this host, which process `first` has made or knows of.
fn join(wire: &mut dyn Wire, first: u32) -> Result<Arc<Segment>, WireError> {
    let mut said = wire.get(first, MEMORY)?;
    if let Some(other) = said.strip_prefix('=') {
        let other = other.parse().map_err(|_| broken(first, &said))?;
        said = wire.get(other, MEMORY)?;
    }
    let mut numbers = said.split(';');
    let mut number = || -> Option<u64> { numbers.next()?.parse().ok() };
    let place = (|| {
        let pid = u32::try_from(number()?).ok()?;
        Some((pid, i32::try_from(number()?).ok()?, number()?))
    })();
    let (pid, fd, id) = place.ok_or_else(|| broken(first, &said))?;
    let joined = Segment::join_of(pid, fd, id);
    let joined = joined.map_err(|error| {
        WireError(format!(
            "cannot share memory with process {pid}, which is on this host, too: {error}; both need the same user and /proc"
        ))
    })?;
    Ok(Arc::new(joined))
}

fn broken(rank: u32, said: &str) -> WireError {
    WireError(format!("process {rank} says '{said}' of its memory"))
}

/// Makes the segment of this host.
fn make(wire: &mut dyn Wire, all: &[About], me: u32) -> Result<Arc<Segment>, WireError> {
    let here = &all[me as usize].host;
    let segment = Segment::create(Sizes::for_job(all.len() as u32));
    let segment = Arc::new(segment.map_err(|error| WireError(error.to_string()))?);
    let registry = segment.registry();
    let arguments = std::env::args_os().map(|a| a.to_string_lossy().into_owned());
    registry.describe(&Facts {
        job: all[0].pid.into(),
        launcher: std::process::id(),
        started_ns: clock::now_ns(),
        command: arguments.collect::<Vec<_>>().join(" "),
        cores: usable_cores(all.iter().filter(|of| of.host == *here)),
        is_tolerant: true,
    });
    for (rank, of) in (0..).zip(all) {
        let pid = if of.host == *here { of.pid } else { 0 };
        registry.identify(rank, pid, None, 0);
    }
    let mut keys: Vec<&str> = Vec::new();
    let mut known = Vec::new();
    let mut locations = Vec::new();
    for of in all {
        let at = keys.iter().position(|&key| key == of.host);
        let at = at.unwrap_or_else(|| {
            keys.push(&of.host);
            known.push(Host {
                name: of.name.clone(),
                addresses: of.addresses.clone(),
                cores: cores_number(&of.host),
            });
            keys.len() - 1
        });
        locations.push(Location {
            host: at as u32,
            port: of.port,
        });
    }
    if known.len() > 1 {
        let secret = secret(&wire.get(0, SECRET_KEY)?)?;
        let words = hosts::words(known.len(), locations.len());
        let note = segment.make_note(0, hosts::KEY, words).ok_or_else(|| {
            WireError(format!(
                "the job's registry has no room for {} hosts and {} ranks",
                known.len(),
                locations.len()
            ))
        })?;
        let here = locations[me as usize].host;
        Table::write(&note, &secret, (here, false), &known, &locations);
        segment.use_doorbells();
    }
    Ok(segment)
}

/// A number that only hosts with the same cores have in common: containers of one machine run the
/// same system, whose number is the first part of what a host calls itself.
fn cores_number(host: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    host.split('.').next().hash(&mut hasher);
    hasher.finish()
}

/// The cores that the processes of this host may use together.
fn usable_cores<'a>(here: impl Iterator<Item = &'a About>) -> u32 {
    let mut cores: Vec<usize> = here
        .flat_map(|of| cpu::affinity_of(of.pid).unwrap_or_default())
        .collect();
    cores.sort_unstable();
    cores.dedup();
    let quota = cpu::quota_cores().map_or(usize::MAX, |quota| quota.ceil() as usize);
    cores.len().min(quota).max(1) as u32
}

fn secret(text: &str) -> Result<[u8; SECRET], WireError> {
    let digits = text.as_bytes().as_chunks::<2>().0.iter();
    let bytes: Option<Vec<u8>> = digits
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| WireError("the job's secret is broken".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_says_of_itself_is_read_as_it_was_written() {
        let about = About {
            host: "4f-1.2.3".into(),
            pid: 77,
            port: 40_000,
            name: "a;b c".into(),
            addresses: vec!["10.1.2.3".parse().unwrap(), "2001:db8::7".parse().unwrap()],
        };
        let line = about.encode();
        assert!(!line.contains(' '), "{line}");
        let name = "a_b_c".into();
        assert_eq!(About::decode(&line), Some(About { name, ..about }));
        for wrong in [
            "",
            "2;h;1;2;n;",
            "1;h;x;2;n;",
            "1;h;1;2;n;;",
            "1;h;1;2;n;10.0.0",
        ] {
            assert_eq!(About::decode(wrong), None, "{wrong}");
        }
        assert_eq!(secret(&"0f".repeat(32)), Ok([15; 32]));
        assert!(secret("0f").is_err() && secret(&"zz".repeat(32)).is_err());
    }
}
