//! Where other hosts reach the service: they prove the secret that they were given, name their
//! session, and what keeps that gets the connection.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use margay_net_tcp::Secret;
use margay_net_tcp::talk::{Door, Talk};
use margay_sys_os::clock::{Clock, SystemClock};
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::sockets::{fill_random, listen, own_addresses};

use super::wire;
use crate::lock::lock;

/// How long somebody who has proved the secret may take to name a session.
const NAMED_WITHIN: Duration = Duration::from_secs(5);

/// How often those who have not done so are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What wakes a thread that waits for descriptors.
pub struct Bell {
    ours: UnixStream,
    theirs: UnixStream,
}

impl Bell {
    pub fn new() -> io::Result<Bell> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        Ok(Bell { ours, theirs })
    }

    pub fn ring(&self) {
        // Where it is full it rings already.
        let _ = (&self.ours).write(&[0]);
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.theirs.as_fd()
    }

    pub fn silence(&self) {
        let mut bytes = [0; 64];
        while (&self.theirs).read(&mut bytes).is_ok_and(|n| n > 0) {}
    }
}

/// Where new connections of a session are left.
pub struct Letterbox {
    pub bell: Bell,
    new: Mutex<Option<(Talk, u64)>>,
}

impl Letterbox {
    pub fn new() -> io::Result<Letterbox> {
        Ok(Letterbox {
            bell: Bell::new()?,
            new: Mutex::default(),
        })
    }

    /// A connection, and how much the other host has.
    pub fn take(&self) -> Option<(Talk, u64)> {
        lock(&self.new).take()
    }
}

/// The door of a service, and whose sessions lie behind it.
pub struct Entrance {
    port: u16,
    number: u64,
    secret: Secret,
    sessions: Mutex<BTreeMap<u64, Arc<Letterbox>>>,
}

impl Entrance {
    /// Listens at the first free one of some ports, or of all, in a thread that goes with the
    /// process.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(ports: Option<(u16, u16)>) -> io::Result<Arc<Entrance>> {
        let listener = listen(ports)?;
        let mut random = [0; 40];
        fill_random(&mut random)?;
        let mut secret = Secret::default();
        secret.copy_from_slice(&random[..32]);
        let number = u64::from_le_bytes(*random[32..].first_chunk().unwrap_or(&[0; 8]));
        let entrance = Arc::new(Entrance {
            port: listener.local_addr()?.port(),
            number,
            secret,
            sessions: Mutex::default(),
        });
        let door = Door::new(listener, number, secret);
        let kept = Arc::clone(&entrance);
        std::thread::spawn(move || kept.attend(door));
        Ok(entrance)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// How this service is reached, as lines of text, which hold the secret.
    pub fn lines(&self) -> String {
        let addresses: Vec<String> = own_addresses().iter().map(ToString::to_string).collect();
        let secret: String = self.secret.iter().map(|b| format!("{b:02x}")).collect();
        format!(
            "addresses {}\ndoor {} {:x} {secret}\n",
            addresses.join(" "),
            self.port,
            self.number
        )
    }

    /// Begins a session.
    ///
    /// # Errors
    /// What the system says.
    pub fn begin(&self) -> io::Result<(u64, Arc<Letterbox>)> {
        let mut random = [0; 8];
        fill_random(&mut random)?;
        let session = u64::from_le_bytes(random);
        let letterbox = Arc::new(Letterbox::new()?);
        lock(&self.sessions).insert(session, Arc::clone(&letterbox));
        Ok((session, letterbox))
    }

    /// A session is over: who names it is sent away.
    pub fn end(&self, session: u64) {
        lock(&self.sessions).remove(&session);
    }

    fn attend(&self, mut door: Door) {
        let mut poll = PollSet::default();
        let mut visitors: Vec<(Talk, Instant)> = Vec::new();
        let mut looked = Instant::now();
        loop {
            poll.clear();
            poll.add_readable(door.descriptor());
            // Who has knocked is proved in some looks.
            let is_quiet = visitors.is_empty() && looked.elapsed() > NAMED_WITHIN;
            let before = Instant::now();
            if poll.wait((!is_quiet).then_some(LOOK_EVERY)).is_err() {
                return;
            }
            if is_quiet || before.elapsed() < LOOK_EVERY {
                looked = Instant::now();
            }
            while let Some(talk) = door.next(SystemClock.now_ns()) {
                visitors.push((talk, Instant::now()));
            }
            visitors = (visitors.into_iter())
                .filter_map(|(talk, since)| self.admit(talk, since))
                .collect();
        }
    }

    /// Hands a connection over when its session is named; returns one that has named none yet.
    fn admit(&self, mut talk: Talk, since: Instant) -> Option<(Talk, Instant)> {
        let message = match talk.receive() {
            Ok(Some(message)) => message,
            Ok(None) => return (since.elapsed() < NAMED_WITHIN).then_some((talk, since)),
            Err(_) => return None,
        };
        let (session, has) = wire::greeted(&message)?;
        let letterbox = lock(&self.sessions).get(&session).cloned()?;
        *lock(&letterbox.new) = Some((talk, has));
        letterbox.bell.ring();
        None
    }
}
