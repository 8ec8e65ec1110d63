//! Where processes of other jobs are.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the registry of a job is found, alike for all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobAddress {
    /// The job's [`Peers::id`](crate::Peers::id).
    pub id: u64,
    /// The system whose processes share the registry ([`this_system`]); 0 where the job is on
    /// several hosts, so that its processes are reached over the network alone.
    pub system: u64,
    /// A process that holds it.
    pub pid: u32,
    /// The number of its descriptor in that process.
    pub descriptor: i32,
}

impl JobAddress {
    /// Whether both are of one job.
    #[must_use]
    pub fn is_of_job(&self, other: &JobAddress) -> bool {
        (self.system, self.id) == (other.system, other.id)
    }

    /// Whether processes of both jobs can share memory.
    #[must_use]
    pub fn is_near(&self, other: &JobAddress) -> bool {
        self.system != 0 && self.system == other.system
    }
}

/// Returns a number for the running kernel and this process's namespaces: processes for which it is
/// the same can find each other's memory.
#[must_use]
pub fn this_system() -> u64 {
    let mut hasher = DefaultHasher::new();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.hash(&mut hasher);
    for space in ["pid", "net", "user"] {
        let link = std::fs::read_link(format!("/proc/self/ns/{space}"));
        link.unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish().max(1)
}

/// Where a process is reached over the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contact {
    /// The addresses of its host, at most [`Contact::MOST`].
    pub addresses: Vec<IpAddr>,
    /// Where it listens; 0 where it does not.
    pub port: u16,
}

impl Contact {
    /// Most addresses.
    pub const MOST: usize = 8;
    /// Words of a contact in messages.
    pub const WORDS: usize = 1 + 4 * Contact::MOST;

    /// As words.
    #[must_use]
    pub fn words(&self) -> [i32; Contact::WORDS] {
        let mut words = [0; Contact::WORDS];
        let addresses = self.addresses.iter().take(Contact::MOST);
        words[0] = i32::from(self.port) | (addresses.len() as i32) << 16;
        for (four, address) in words[1..].chunks_exact_mut(4).zip(addresses) {
            let v6 = match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => *v6,
            };
            let bits = v6.to_bits();
            for (at, word) in four.iter_mut().enumerate() {
                *word = (bits >> (32 * at)) as i32;
            }
        }
        words
    }

    /// From words.
    #[must_use]
    pub fn from_words(words: &[i32]) -> Contact {
        let Some((&first, rest)) = words.split_first() else {
            return Contact::default();
        };
        let address = |four: &[i32]| {
            let words = four.iter().rev().map(|&word| u128::from(word as u32));
            Ipv6Addr::from_bits(words.fold(0, |bits, word| bits << 32 | word)).to_canonical()
        };
        let count = (first >> 16) as usize & 0xff;
        Contact {
            addresses: rest.chunks_exact(4).take(count).map(address).collect(),
            port: first as u16,
        }
    }
}

/// A bridge over the network, for one of its processes.
#[derive(Debug)]
pub struct Crossing {
    /// Tells it from other bridges.
    pub key: u64,
    /// What only its processes know.
    pub secret: [u8; 32],
    /// Whether what goes over it is encrypted.
    pub encrypts: bool,
    /// This process's rank in it.
    pub me: u32,
    /// Where this process listens.
    pub listener: TcpListener,
    /// The processes: where each is reached, its job, and its rank there.
    pub members: Vec<(Contact, JobAddress, u32)>,
}

/// Whether a rank, when it sleeps, has to look often at what wakes nobody.
#[derive(Clone, Debug, Default)]
pub struct Attention(Arc<AtomicU32>);

impl Attention {
    /// How long a rank sleeps at most while it attends to something, in nanoseconds.
    const NS: u64 = 2_000_000;

    /// From now on, until the value is dropped.
    #[must_use]
    pub fn begin(&self) -> Attending {
        self.0.fetch_add(1, Ordering::Relaxed);
        Attending(self.clone())
    }

    /// Returns how long a rank may sleep that would sleep for that long.
    #[must_use]
    pub fn limit(&self, timeout_ns: u64) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            0 => timeout_ns,
            _ => timeout_ns.min(Attention::NS),
        }
    }
}

/// A rank looks often while there is one.
#[derive(Debug)]
pub struct Attending(Attention);

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts_are_read_as_they_were_written() {
        let contact = Contact {
            addresses: vec!["10.1.2.3".parse().unwrap(), "2001:db8::7".parse().unwrap()],
            port: 65_535,
        };
        for contact in [contact, Contact::default()] {
            assert_eq!(Contact::from_words(&contact.words()), contact);
        }
        let mut wrong = [-1; Contact::WORDS];
        assert_eq!(Contact::from_words(&wrong).addresses.len(), Contact::MOST);
        wrong[0] = 0;
        assert_eq!(Contact::from_words(&wrong[..3]), Contact::default());
    }

    #[test]
    fn sleeps_are_short_while_something_is_attended_to() {
        let attention = Attention::default();
        assert_eq!(attention.limit(u64::MAX), u64::MAX);
        let (one, two) = (attention.begin(), attention.begin());
        drop(one);
        assert!(attention.limit(u64::MAX) < 10_000_000);
        drop(two);
        assert_eq!(attention.limit(u64::MAX), u64::MAX);
    }
}
