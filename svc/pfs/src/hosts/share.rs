//! The service's end of a mount on another host: what the kernel there asks goes to the store as
//! from a kernel here, and locks are those of all hosts.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use fuser::{Config, Session, SessionACL};
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::fuse_device::stand_in;

use super::door::{Entrance, Letterbox};
use super::locks::{Locks, Waiter};
use super::requests;
use super::session::BEFORE;
use super::wire::{LOOK_EVERY, Wire, message};
use crate::fuse::Mounted;
use crate::lock::lock;

/// Bytes that a read or write of another host's kernel may have, and the longest message with them.
pub const MOST_DATA: u32 = 256 << 10;
pub const MOST_MESSAGE: usize = MOST_DATA as usize + 8192;

/// Threads that serve one host.
const THREADS: usize = 4;

/// Requests that may wait for them.
const MOST_REQUESTS: usize = 256;

/// The first four bytes of messages that are no requests, whose own length is there.
pub const ASKS_TO_UNMOUNT: u32 = u32::MAX;
pub const IS_IN_USE: u32 = u32::MAX - 1;
pub const IS_OVER: u32 = u32::MAX - 2;

/// What sort of message that is: the first four bytes.
pub fn sort(message: &[u8]) -> u32 {
    let first = message.get(BEFORE..).and_then(<[u8]>::first_chunk);
    first.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Whether a message that is not about a mount says that it is over.
pub fn is_over(message: &[u8]) -> bool {
    message.len() == BEFORE + size_of::<u32>() && sort(message) == IS_OVER
}

/// What is wanted of a mount, and how it is.
#[derive(Debug, Default)]
struct Wanted {
    /// Answers of requests whose locks are granted.
    granted: Vec<u64>,
    is_to_unmount: bool,
    /// Also where something uses it.
    is_to_end: bool,
    /// Why it was not unmounted.
    kept: Option<String>,
    is_up: bool,
}

/// A mount on another host.
pub struct Share {
    /// The host, as the user named it.
    pub host: String,
    session: u64,
    letterbox: Arc<Letterbox>,
    wanted: Arc<Mutex<Wanted>>,
    thread: JoinHandle<()>,
}

/// All mounts of a file system that share it, and their locks.
#[derive(Default)]
pub struct Peers {
    locks: Mutex<Locks>,
    /// Where those who wait for locks are reached, by their mount.
    mounts: Mutex<Vec<Place>>,
}

/// Where the thread of a mount is reached.
struct Place {
    mount: u64,
    letterbox: Arc<Letterbox>,
    wanted: Arc<Mutex<Wanted>>,
}

impl Peers {
    fn tell(&self, granted: Vec<Waiter>) {
        if granted.is_empty() {
            return;
        }
        let mounts = lock(&self.mounts);
        for waiter in granted {
            if let Some(there) = mounts.iter().find(|there| there.mount == waiter.mount) {
                lock(&there.wanted).granted.push(waiter.request);
                there.letterbox.bell.ring();
            }
        }
    }
}

impl Share {
    /// Begins to wait for a host, whose kernel `mounted` serves.
    ///
    /// # Errors
    /// What the system says.
    pub fn begin(
        host: &str,
        mounted: Mounted,
        entrance: &Arc<Entrance>,
        peers: &Arc<Peers>,
    ) -> io::Result<Share> {
        let (device, theirs) = stand_in(MOST_MESSAGE)?;
        let (session, letterbox) = entrance.begin()?;
        let wanted = Arc::new(Mutex::new(Wanted::default()));
        lock(&peers.mounts).push(Place {
            mount: session,
            letterbox: Arc::clone(&letterbox),
            wanted: Arc::clone(&wanted),
        });
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        let served = std::thread::spawn(move || {
            // The kernel there has looked at the permissions of who asks. It ends with the other
            // end of the device, as each mount does.
            let _ =
                Session::from_fd(mounted, theirs, SessionACL::All, config).and_then(Session::run);
        });
        let end = End {
            session,
            device: Some(device),
            wire: Wire::new(),
            waiting: Vec::new(),
            letterbox: Arc::clone(&letterbox),
            wanted: Arc::clone(&wanted),
            peers: Arc::clone(peers),
        };
        let entrance = Arc::clone(entrance);
        let thread = std::thread::spawn(move || {
            end.run();
            entrance.end(session);
            let _ = served.join();
        });
        Ok(Share {
            host: host.to_owned(),
            session,
            letterbox,
            wanted,
            thread,
        })
    }

    pub fn session(&self) -> u64 {
        self.session
    }

    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Whether its host is connected.
    pub fn is_up(&self) -> bool {
        lock(&self.wanted).is_up
    }

    /// Asks the host to unmount. `is_lazy`: who uses it loses it, and nobody is waited for.
    pub fn unmount(&self, is_lazy: bool) {
        let mut wanted = lock(&self.wanted);
        wanted.is_to_unmount = !is_lazy;
        wanted.is_to_end = is_lazy;
        wanted.kept = None;
        drop(wanted);
        self.letterbox.bell.ring();
    }

    /// Why it was not unmounted, if it was not.
    pub fn kept(&self) -> Option<String> {
        lock(&self.wanted).kept.clone()
    }
}

/// What the thread of a mount has.
struct End {
    session: u64,
    /// None when it is over.
    device: Option<File>,
    wire: Wire,
    /// Requests for which those who serve have no room yet.
    waiting: Vec<Vec<u8>>,
    letterbox: Arc<Letterbox>,
    wanted: Arc<Mutex<Wanted>>,
    peers: Arc<Peers>,
}

impl End {
    fn run(mut self) {
        let mut poll = PollSet::default();
        let mut buffer = vec![0; MOST_MESSAGE];
        while let Some(device) = &self.device {
            poll.clear();
            poll.add_readable(self.letterbox.bell.descriptor());
            if self.waiting.len() < MOST_REQUESTS {
                self.wire.add_to(&mut poll);
            }
            if self.wire.has_room() {
                poll.add_readable(device.as_fd());
            }
            if !self.waiting.is_empty() {
                poll.add_writable(device.as_fd());
            }
            if poll.wait(Some(LOOK_EVERY)).is_err() || self.wire.is_given_up() {
                break;
            }
            self.letterbox.bell.silence();
            self.wire.take_new(self.session, self.letterbox.take());
            self.hear();
            self.pass_on();
            self.answer(&mut buffer);
            self.wire.keep_up();
            self.do_what_is_wanted();
        }
        lock(&self.wanted).is_up = false;
        lock(&self.peers.mounts).retain(|place| place.mount != self.session);
        let granted = lock(&self.peers.locks).leave(self.session);
        self.peers.tell(granted);
    }

    /// Takes what has come from the host.
    fn hear(&mut self) {
        while self.waiting.len() < MOST_REQUESTS
            && let Some(message) = self.wire.receive()
        {
            match sort(&message) {
                IS_OVER => {
                    self.device = None;
                    return;
                }
                IS_IN_USE => {
                    let text = message.get(BEFORE + 4..).unwrap_or_default();
                    lock(&self.wanted).kept = Some(String::from_utf8_lossy(text).into_owned());
                }
                _ => self.ask(message),
            }
        }
    }

    fn ask(&mut self, message: Vec<u8>) {
        let request = &message[BEFORE..];
        let done = requests::look(&mut lock(&self.peers.locks), self.session, request);
        if let Some(answer) = done.answer {
            self.wire.send(self::message(&[&answer]));
        }
        self.peers.tell(done.granted);
        if done.is_for_store {
            self.waiting.push(message);
        }
    }

    /// Hands requests to those who serve them.
    fn pass_on(&mut self) {
        let Some(device) = &mut self.device else {
            return;
        };
        let mut taken = 0;
        for request in &self.waiting {
            match device.write(&request[BEFORE..]) {
                Ok(_) => taken += 1,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Those who serve are gone.
                Err(_) => {
                    self.device = None;
                    return;
                }
            }
        }
        self.waiting.drain(..taken);
    }

    /// Sends what they answer.
    fn answer(&mut self, buffer: &mut [u8]) {
        while self.wire.has_room()
            && let Some(device) = &mut self.device
        {
            match device.read(buffer) {
                Ok(0) => self.device = None,
                Ok(len) => self.wire.send(message(&[&buffer[..len]])),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.device = None,
            }
        }
    }

    fn do_what_is_wanted(&mut self) {
        let (granted, is_to_unmount, is_to_end) = {
            let mut wanted = lock(&self.wanted);
            wanted.is_up = self.wire.is_up();
            let is_to_unmount = std::mem::take(&mut wanted.is_to_unmount);
            let granted = std::mem::take(&mut wanted.granted);
            (granted, is_to_unmount, wanted.is_to_end)
        };
        for request in granted {
            let answer = requests::answer(request, 0, &[]);
            self.wire.send(message(&[&answer]));
        }
        if is_to_unmount {
            let wish = ASKS_TO_UNMOUNT.to_le_bytes();
            self.wire.send(message(&[&wish]));
        }
        if is_to_end {
            self.wire.send(message(&[&IS_OVER.to_le_bytes()]));
            self.wire.finish();
            self.device = None;
        }
    }
}
