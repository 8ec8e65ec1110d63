//! Who asks, and how much at once. In the queue that all users of a machine share, each user sees
//! of the jobs of others what a queue shows, and changes none of them; root does. One user cannot
//! take all connections of the head or all of its memory.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use margay_svc_queue_wire::{MOST_BYTES, Owner};
use margay_sys_os::credentials::user_name;
use margay_sys_os::port::{is_trusted, peer, peer_process};

/// Commands that are served at the same time; those that wait for jobs are among them.
const MOST_COMMANDS: usize = 512;

/// Those of one user who is not root, of the queue that all share; root has some for itself.
const MOST_OF_USER: usize = 64;
const KEPT_FOR_ROOT: usize = 32;

/// Bytes of the requests of such a user that are read at the same time.
const MOST_BYTES_OF_USER: usize = 16 << 20;

/// Longest line that says who asks on another host: with as many groups as the kernel allows.
const MOST_LINE: usize = 1 << 20;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    pub uid: u32,
    /// May see and change all jobs and the rules: root, and everybody in a queue of their own.
    pub is_master: bool,
    /// In the queue that all share: as whom jobs run, and the name that the system has for them.
    pub as_user: Option<(Owner, String)>,
    /// On another host: this process passes on what it asks.
    pub is_elsewhere: bool,
}

impl Caller {
    /// Who is at the other end.
    ///
    /// # Errors
    /// When it is none that this queue serves.
    pub fn of(stream: &UnixStream, is_system: bool) -> Result<Caller, String> {
        let failed = |error: io::Error| format!("the system does not say who asks: {error}");
        if !is_system {
            // The folder of the socket keeps others out already.
            return match is_trusted(stream.as_fd()) {
                true => Ok(Caller {
                    uid: peer(stream.as_fd()).unwrap_or(u32::MAX),
                    is_master: true,
                    as_user: None,
                    is_elsewhere: peer_process(stream.as_fd())
                        .is_ok_and(|peer| peer.pid == std::process::id()),
                }),
                false => Err("the queue belongs to another user".into()),
            };
        }
        let peer = peer_process(stream.as_fd()).map_err(failed)?;
        // This process passes on what an agent of root's has heard, and before it from whom.
        let is_elsewhere = peer.pid == std::process::id();
        let owner = match is_elsewhere {
            true => passed_on(stream).ok_or("the agent does not say who asks")?,
            false => owner_of(stream).map_err(failed)?,
        };
        Ok(Caller::as_owner(owner, is_elsewhere))
    }

    /// A user of the queue of all users.
    #[must_use]
    pub fn as_owner(owner: Owner, is_elsewhere: bool) -> Caller {
        let uid = owner.uid;
        // Looked up here, where nobody waits for it but who asks.
        let name = user_name(uid).filter(|name| !name.chars().any(char::is_control));
        Caller {
            uid,
            is_master: uid == 0,
            is_elsewhere,
            as_user: Some((owner, name.unwrap_or_else(|| uid.to_string()))),
        }
    }

    /// Whether it is this user.
    #[must_use]
    pub fn is_owner_of(&self, uid: u32) -> bool {
        self.uid == uid
    }

    /// Whether something of this user's is shown in full, and may be changed.
    #[must_use]
    pub fn may(&self, uid: u32) -> bool {
        self.is_master || self.uid == uid
    }
}

/// Who the kernel says is at the other end.
///
/// # Errors
/// What the system says.
pub fn owner_of(stream: &UnixStream) -> io::Result<Owner> {
    let mut peer = peer_process(stream.as_fd())?;
    Ok(Owner {
        uid: peer.user,
        gid: peer.groups.remove(0),
        groups: peer.groups,
    })
}

/// The line that stands before a request of another host.
fn passed_on(stream: &UnixStream) -> Option<Owner> {
    let mut line = Vec::new();
    let mut byte = [0];
    let mut stream: &UnixStream = stream;
    while line.len() < MOST_LINE && stream.read_exact(&mut byte).is_ok() {
        if byte == *b"\n" {
            return serde_json::from_slice(&line).ok();
        }
        line.push(byte[0]);
    }
    None
}

/// What a user has at the head.
#[derive(Debug, Default)]
struct Load {
    commands: usize,
    bytes: usize,
}

/// What all have there.
#[derive(Debug)]
pub struct Loads {
    is_system: bool,
    of_users: Mutex<HashMap<u32, Load>>,
}

impl Loads {
    /// Nothing yet.
    #[must_use]
    pub fn new(is_system: bool) -> Arc<Loads> {
        Arc::new(Loads {
            is_system,
            of_users: Mutex::default(),
        })
    }

    fn of_users(&self) -> MutexGuard<'_, HashMap<u32, Load>> {
        self.of_users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more command of a user, if there is room for it.
    #[must_use]
    pub fn admit(self: &Arc<Loads>, uid: u32) -> Option<Admitted> {
        let mut users = self.of_users();
        let all: usize = users.values().map(|load| load.commands).sum();
        let is_limited = self.is_system && uid != 0;
        let most = match is_limited {
            true => MOST_COMMANDS - KEPT_FOR_ROOT,
            false => MOST_COMMANDS,
        };
        let own = users.get(&uid).map_or(0, |load| load.commands);
        if all >= most || is_limited && own >= MOST_OF_USER {
            return None;
        }
        users.entry(uid).or_default().commands += 1;
        drop(users);
        Some(Admitted {
            loads: Arc::clone(self),
            uid,
            most_bytes: match is_limited {
                true => MOST_BYTES_OF_USER,
                false => MOST_BYTES,
            },
            is_limited,
            bytes: 0,
        })
    }
}

/// A command that is served as long as this lives.
#[derive(Debug)]
pub struct Admitted {
    loads: Arc<Loads>,
    uid: u32,
    /// What its request may have, for a limited user together with others.
    pub most_bytes: usize,
    is_limited: bool,
    bytes: usize,
}

impl Admitted {
    /// Whether its request may have this number of bytes.
    pub fn has_room(&mut self, bytes: usize) -> bool {
        let mut users = self.loads.of_users();
        let load = users.entry(self.uid).or_default();
        let others = match self.is_limited {
            true => load.bytes - self.bytes,
            false => 0,
        };
        if others + bytes > self.most_bytes {
            return false;
        }
        load.bytes = load.bytes - self.bytes + bytes;
        self.bytes = bytes;
        true
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut users = self.loads.of_users();
        if let Some(load) = users.get_mut(&self.uid) {
            load.commands -= 1;
            load.bytes -= self.bytes;
            if load.commands == 0 {
                users.remove(&self.uid);
            }
        }
    }
}

/// Why a request could not be read, which may have this number of bytes.
pub fn unheard(error: &io::Error, most_bytes: usize) -> String {
    match error.kind() {
        ErrorKind::FileTooLarge => format!(
            "the request, with others of yours at the same time, is larger than {} MiB; send it in several parts",
            most_bytes >> 20
        ),
        ErrorKind::WouldBlock => "the request did not come in time".into(),
        _ => format!(
            "the request is not understood: {error}; is this command of the same version as the head?"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_leaves_room_for_others_and_for_root() {
        let loads = Loads::new(true);
        let mut all: Vec<Admitted> = Vec::new();
        for uid in 1..=7 {
            all.extend((0..MOST_OF_USER).filter_map(|_| loads.admit(uid)));
            assert!(loads.admit(uid).is_none());
        }
        all.extend((0..MOST_OF_USER).filter_map(|_| loads.admit(8)));
        assert_eq!(all.len(), MOST_COMMANDS - KEPT_FOR_ROOT);
        assert!(loads.admit(9).is_none());
        all.extend((0..MOST_OF_USER).filter_map(|_| loads.admit(0)));
        assert_eq!(all.len(), MOST_COMMANDS);
        all.clear();
        assert!(loads.of_users().is_empty());
        let (mut one, mut other) = (loads.admit(1).unwrap(), loads.admit(1).unwrap());
        assert!(one.has_room(MOST_BYTES_OF_USER / 2) && one.has_room(MOST_BYTES_OF_USER - 7));
        assert!(other.has_room(7) && !other.has_room(8));
        drop(one);
        assert!(other.has_room(MOST_BYTES_OF_USER));
        assert!(loads.admit(0).unwrap().has_room(MOST_BYTES));
        // In a queue of its own nobody is limited but by the number of all.
        let own = Loads::new(false);
        let all: Vec<Admitted> = (0..MOST_COMMANDS).filter_map(|_| own.admit(1)).collect();
        assert!(all.len() == MOST_COMMANDS && own.admit(1).is_none());
    }
}
