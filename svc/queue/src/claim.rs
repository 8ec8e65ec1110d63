//! A host belongs to one machine of several hosts at a time. Who has it holds a name of the
//! system's abstract socket names, which goes with the process, and says there who it is.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use margay_svc_queue_wire::{Answer, Place, Request, connect, converse};
use margay_sys_os::port::is_trusted;
use margay_sys_os::process::host_name;

/// How long the claim of the same machine that has lost its connection may take to go.
const FREED_WITHIN: Duration = Duration::from_secs(5);

/// How long who asks may take to say for whom, in as many bytes at most.
const HEARD_WITHIN: Duration = Duration::from_millis(200);
const MOST_TEXT: u64 = 8192;

/// How long who has the host may take to say so.
const SAID_WITHIN: Duration = Duration::from_secs(2);

/// Who claims a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The head's host, and the queue's folder there.
    pub head: String,
    pub folder: String,
    /// How the head names this host.
    pub name: String,
    /// The name of the queue, when its head may be one of several, and the number of the head.
    pub queue: String,
    pub term: i64,
}

impl Claimant {
    /// It as lines.
    #[must_use]
    pub fn text(&self) -> String {
        let term = self.term.to_string();
        [&*self.head, &self.folder, &self.name, &self.queue, &term].join("\n")
    }

    /// Who these lines name.
    #[must_use]
    pub fn of(text: &[u8]) -> Option<Claimant> {
        let text = String::from_utf8_lossy(text);
        let mut lines = text.split('\n').map(str::to_owned);
        Some(Claimant {
            head: lines.next()?,
            folder: lines.next()?,
            name: lines.next()?,
            queue: lines.next().unwrap_or_default(),
            term: (lines.next())
                .and_then(|term| term.parse().ok())
                .unwrap_or(0),
        })
    }

    /// Whether it is of a head that comes after that of the other.
    #[must_use]
    pub fn follows(&self, other: &Claimant) -> bool {
        !self.queue.is_empty() && self.queue == other.queue && self.term > other.term
    }
}

/// A host that belongs to a machine for as long as this lives.
#[derive(Debug)]
pub struct Claim {
    listener: UnixListener,
    own: Claimant,
}

fn address() -> io::Result<SocketAddr> {
    let user = margay_sys_os::port::user();
    SocketAddr::from_abstract_name(format!("margay-queue-host-{user}"))
}

impl Claim {
    /// Takes this host.
    ///
    /// # Errors
    /// In words: it belongs to another machine.
    pub fn take(own: &Claimant) -> Result<Claim, String> {
        let failed = |error: io::Error| format!("the host cannot be claimed: {error}");
        let end = Instant::now() + FREED_WITHIN;
        loop {
            match UnixListener::bind_addr(&address().map_err(failed)?) {
                Ok(listener) => {
                    listener.set_nonblocking(true).map_err(failed)?;
                    let own = own.clone();
                    return Ok(Claim { listener, own });
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(failed(error)),
            }
            match owner(Some(own)) {
                // It has heard so, and goes.
                Some(other) if own.follows(&other) && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Some(other) if (&other.head, &other.folder) != (&own.head, &own.folder) => {
                    return Err(format!(
                        "it belongs to the queue of host {}; end that one there first: margay down",
                        other.head
                    ));
                }
                Some(other) if other.name != own.name => {
                    return Err(format!(
                        "it is in the list already, as {}; name it once",
                        other.name
                    ));
                }
                _ if Instant::now() >= end => {
                    return Err(
                        "it is still held by an earlier connection; it is tried again".into(),
                    );
                }
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Says whose the host is, to all that have asked. Returns whether one of them is of a head
    /// that comes after this one's, for which the host is to be given up.
    #[must_use]
    pub fn answer(&self) -> bool {
        let mut is_over = false;
        while let Ok((mut stream, _)) = self.listener.accept() {
            // Far less than a socket holds.
            let _ = stream.write_all(self.own.text().as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.set_read_timeout(Some(HEARD_WITHIN));
            let mut text = Vec::new();
            // Any user may connect: what others say counts nothing.
            if is_trusted(stream.as_fd())
                && (&stream).take(MOST_TEXT).read_to_end(&mut text).is_ok()
            {
                is_over |= Claimant::of(&text).is_some_and(|other| other.follows(&self.own));
            }
        }
        is_over
    }
}

impl AsFd for Claim {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Who has this host, if somebody has; `own` says who asks, for whom it may be given up.
pub fn owner(own: Option<&Claimant>) -> Option<Claimant> {
    let mut stream = UnixStream::connect_addr(&address().ok()?).ok()?;
    // Any user may take any of these names: what others say of it counts nothing.
    if !is_trusted(stream.as_fd()) {
        return None;
    }
    stream.set_read_timeout(Some(SAID_WITHIN)).ok()?;
    let text = own.map(Claimant::text).unwrap_or_default();
    // One that has gone in the meantime hears nothing.
    let _ = stream.write_all(text.as_bytes());
    let _ = stream.shutdown(Shutdown::Write);
    let mut text = Vec::new();
    stream.read_to_end(&mut text).ok()?;
    Claimant::of(&text)
}

/// Why a head of this host alone keeps it from belonging to another machine, if one does.
pub fn own_head() -> Option<String> {
    let mut stream = connect(&Place::find().ok()?).ok()??;
    match converse(&mut stream, &Request::Machine) {
        // A home directory that several hosts have shows the heads of others, too.
        Ok(Answer::Machine(machine)) if machine.host == host_name() => {
            Some("it has a queue of its own; end that one there first: margay down".into())
        }
        _ => None,
    }
}
