//! What each client of the mount does, counted, for `top`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::sync::Mutex;

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

/// Requests of a client since it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    others: u64,
}

/// The clients, by user and process.
#[derive(Debug, Default)]
pub struct Clients {
    known: Mutex<BTreeMap<(u32, u32), Requests>>,
}

impl Clients {
    /// Counts a request.
    pub fn count(&self, user: u32, process: u32, kind: Kind) {
        let mut known = lock(&self.known);
        if known.len() >= MOST_CLIENTS && !known.contains_key(&(user, process)) {
            // Those that have ended go first, or everybody.
            known.retain(|(_, process), _| fs::exists(format!("/proc/{process}")).unwrap_or(false));
            if known.len() >= MOST_CLIENTS {
                known.clear();
            }
        }
        let requests = known.entry((user, process)).or_default();
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
        for ((user, process), requests) in known {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
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
                "client {user}/{process} {reads} {read_bytes} {writes} {write_bytes} {others} {}",
                name.trim_end()
            );
        }
        text
    }
}
