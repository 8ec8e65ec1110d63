//! What each client of the mount does, counted, for `top`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// Clients that are known at a time.
const MOST_CLIENTS: usize = 1024;

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// This many bytes.
    Read(usize),
    Write(usize),
    /// Names and attributes.
    Other,
}

/// Bytes of a request that takes less time than waking a core.
const SMALL: usize = 32 << 10;

impl Kind {
    /// Whether it takes less time than waking a core.
    pub fn is_small(self) -> bool {
        match self {
            Kind::Read(bytes) | Kind::Write(bytes) => bytes <= SMALL,
            Kind::Other => true,
        }
    }
}

/// Requests of a client since it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    others: u64,
}

/// Host, none for this one, user and process.
type Client = (Option<Arc<str>>, u32, u32);

/// The clients.
#[derive(Debug, Default)]
pub struct Clients {
    known: Mutex<BTreeMap<Client, Requests>>,
}

impl Clients {
    /// Counts a request.
    pub fn count(&self, host: Option<&Arc<str>>, user: u32, process: u32, kind: Kind) {
        let mut known = lock(&self.known);
        let client = (host.cloned(), user, process);
        if known.len() >= MOST_CLIENTS && !known.contains_key(&client) {
            // Those that have ended go first, or everybody.
            known.retain(|(host, _, process), _| {
                host.is_none() && fs::exists(format!("/proc/{process}")).unwrap_or(false)
            });
            if known.len() >= MOST_CLIENTS {
                known.clear();
            }
        }
        let requests = known.entry(client).or_default();
        match kind {
            Kind::Read(bytes) => {
                requests.reads += 1;
                requests.read_bytes += bytes as u64;
            }
            Kind::Write(bytes) => {
                requests.writes += 1;
                requests.write_bytes += bytes as u64;
            }
            Kind::Other => requests.others += 1,
        }
    }

    /// A line for each client.
    pub fn lines(&self) -> String {
        let known = lock(&self.known).clone();
        let mut text = String::new();
        for ((host, user, process), requests) in known {
            let name = match &host {
                Some(host) => format!("on {host}"),
                None => fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default(),
            };
            let host = host.map_or(String::new(), |host| format!("@{host}"));
            let Requests {
                reads,
                read_bytes,
                writes,
                write_bytes,
                others,
            } = requests;
            // A string takes everything.
            let _ = writeln!(
                text,
                "client {user}/{process}{host} {reads} {read_bytes} {writes} {write_bytes} {others} {}",
                name.trim_end()
            );
        }
        text
    }
}
