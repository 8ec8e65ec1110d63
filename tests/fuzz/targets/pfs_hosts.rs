//! Messages of other hosts to the service of a parallel file system: sessions, requests of kernels
//! with locks, requests to stripe directories. Whatever they are, no two locks are in each other's
//! way, and what is read is what was said.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use margay_svc_pfs::heard::{Hosts, is_read_whole};

/// A message of one of a few mounts.
#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Any(u8, &'a [u8]),
    /// A request about a lock, with few files, owners and bytes, so that they meet.
    Lock {
        mount: u8,
        kind: u8,
        number: u8,
        file: u8,
        owner: u8,
        first: u8,
        last: u8,
        lock: u8,
        flags: u8,
    },
    Leave(u8),
    Bytes(&'a [u8]),
}

/// The kinds of requests that have to do with locks.
const KINDS: [u32; 6] = [18, 25, 31, 32, 33, 36];

fn message(step: &Step<'_>) -> Option<(u64, Vec<u8>)> {
    match *step {
        Step::Any(mount, bytes) => Some((u64::from(mount % 3), bytes.to_vec())),
        Step::Lock {
            mount,
            kind,
            number,
            file,
            owner,
            first,
            last,
            lock,
            flags,
        } => {
            // What the other end has confirmed, and what every request begins with.
            let mut bytes = vec![0; 8 + 40];
            bytes[12..16].copy_from_slice(&KINDS[usize::from(kind) % 6].to_le_bytes());
            bytes[16] = number % 8;
            bytes[24] = file % 2;
            let mut body = [0_u8; 48];
            body[8] = owner % 3;
            body[16] = first;
            body[24] = last;
            body[32] = lock % 4;
            body[40] = flags % 4;
            if kind % 6 < 2 {
                body[12] = flags % 4;
                body[16] = owner % 3;
            }
            bytes.extend_from_slice(&body);
            Some((u64::from(mount % 3), bytes))
        }
        Step::Leave(_) | Step::Bytes(_) => None,
    }
}

fuzz_target!(|steps: Vec<Step<'_>>| {
    let mut hosts = Hosts::default();
    for step in &steps {
        match step {
            Step::Leave(mount) => hosts.leave(u64::from(mount % 3)),
            Step::Bytes(bytes) => assert!(is_read_whole(bytes)),
            _ => {}
        }
        if let Some((mount, bytes)) = message(step)
            && hosts.hear(mount, &bytes).is_none()
        {
            // The host is given up, as one that breaks the rules.
            hosts.leave(mount);
        }
        assert!(hosts.are_in_order());
    }
});
