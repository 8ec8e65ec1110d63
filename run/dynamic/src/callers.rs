//! Who calls at a port: connections whose HELLO has not arrived.
//!
//! The name of a port's socket is no secret, so anybody on the machine can connect to it, say
//! anything or nothing, and do so thousands of times. None of that may end or delay an accept: the
//! kernel says whose the other process is, a connection that says something else than HELLO is
//! dropped, one that says nothing for long too, and meanwhile the others are listened to. A process
//! that was dropped because it was late connects again.

use std::collections::{HashSet, VecDeque};
use std::io;

use margay_net_tcp::talk::{Door, Talk};
use margay_run_mpi::foreign::Address;
use margay_sys_os::port::{Channel, Listener, no_descriptor};

/// The first words of messages between roots.
pub(crate) const HELLO: i32 = 0x4d47_0001;
pub(crate) const REFUSED: i32 = 0x4d47_0004;

/// How long a HELLO is waited for.
const HELLO_NS: u64 = 10_000_000_000;

/// How long when others cannot be let in meanwhile: longer than a process that is about to send is
/// kept from its core.
const FULL_NS: u64 = 200_000_000;

/// Most connections that are held without a HELLO.
const MOST: usize = 256;

/// Most connections taken at once, after which the rank looks after its other work.
const AT_ONCE: usize = 1024;

/// Why a connection was not taken, as the second word of REFUSED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A process is in both groups.
    BothSides = 1,
    /// The message is no HELLO.
    Language = 2,
    /// The registry of the other job cannot be opened.
    Unreachable = 3,
    /// The other process is of another user.
    User = 4,
}

impl Refusal {
    /// Returns the text for the words behind REFUSED.
    pub(crate) fn text(words: &[i32]) -> &'static str {
        let is = |refusal: Refusal| words.first() == Some(&(refusal as i32));
        if is(Refusal::BothSides) {
            "the other side refuses: a process is in both groups, which must be disjoint"
        } else if is(Refusal::Language) {
            "the other side does not understand this one; both must be of the same Margay"
        } else if is(Refusal::Unreachable) {
            "the other side cannot open the shared memory of this job; on the same machine both must be of one user and see each \
             other in /proc"
        } else if is(Refusal::User) {
            "the port belongs to another user; only processes of one user can connect"
        } else {
            "the other side has given up"
        }
    }

    /// Tells the other process, which may be gone.
    pub(crate) fn tell(self, line: &mut Line) {
        let _ = line.send(&bytes_of(&[REFUSED, self as i32]));
    }
}

/// What a root says first: its place in its group, whether its job encrypts what goes to other
/// hosts, and the addresses of its group.
#[derive(Debug)]
pub(crate) struct Hello {
    pub(crate) root: Address,
    pub(crate) encrypts: bool,
    pub(crate) group: Vec<Address>,
}

impl Hello {
    /// From the words behind the first; none when their number or the root is not possible, or a
    /// process occurs twice.
    pub(crate) fn from_words(words: &[i32]) -> Option<Hello> {
        let (&[root, encrypts], addresses) = words.split_first_chunk()?;
        if addresses.len() % Address::WORDS != 0 {
            return None;
        }
        let group = Address::list(addresses);
        let distinct: HashSet<_> = group.iter().map(|a| (a.job, a.system, a.rank)).collect();
        if distinct.len() != group.len() {
            return None;
        }
        let root = *group.get(usize::try_from(root).ok()?)?;
        Some(Hello {
            root,
            encrypts: encrypts != 0,
            group,
        })
    }
}

/// A connection to another root: on this host, or over the network.
pub(crate) enum Line {
    Near(Channel),
    Far(Box<Talk>),
}

impl Line {
    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Line::Near(channel) => channel.send(message),
            Line::Far(talk) => talk.send(message),
        }
    }

    pub(crate) fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self {
            Line::Near(channel) => channel.receive(),
            Line::Far(talk) => talk.receive(),
        }
    }
}

/// Where those come who connect over the network, and those who have proved the port's secret and
/// not said HELLO, the oldest first.
pub(crate) struct FarCallers {
    door: Door,
    waiting: VecDeque<(Box<Talk>, u64)>,
}

impl FarCallers {
    pub(crate) fn new(door: Door) -> FarCallers {
        FarCallers {
            door,
            waiting: VecDeque::new(),
        }
    }

    /// Returns the next connection with a HELLO, when there is one. Does not wait.
    pub(crate) fn next(&mut self, now_ns: u64) -> Option<(Line, Hello)> {
        for talk in std::iter::from_fn(|| self.door.next(now_ns)).take(MOST) {
            if self.waiting.len() >= MOST {
                self.waiting.pop_front();
            }
            self.waiting.push_back((Box::new(talk), now_ns));
        }
        let mut at = 0;
        while let Some((talk, since_ns)) = self.waiting.get_mut(at) {
            let heard = match talk.receive() {
                Ok(None) if now_ns.saturating_sub(*since_ns) < HELLO_NS => {
                    at += 1;
                    continue;
                }
                Ok(message) => message,
                Err(_) => None,
            };
            let (talk, _) = self.waiting.remove(at)?;
            let Some(message) = heard else { continue };
            let mut line = Line::Far(talk);
            let words = words_of(&message);
            let hello = words.split_first().filter(|(first, _)| **first == HELLO);
            match hello.and_then(|(_, words)| Hello::from_words(words)) {
                Some(hello) => return Some((line, hello)),
                None => Refusal::Language.tell(&mut line),
            }
        }
        None
    }
}

pub(crate) fn words_of(bytes: &[u8]) -> Vec<i32> {
    let word = |w: &[u8]| i32::from_ne_bytes(w.try_into().expect("four bytes"));
    bytes.chunks_exact(4).map(word).collect()
}

pub(crate) fn bytes_of(words: &[i32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

/// What has come of a connection.
enum Heard {
    /// Nothing yet, or a part.
    Waits,
    Hello(Hello),
    /// It is of no use any more.
    Gone,
    Refused(Refusal),
}

/// Connections without a HELLO, the oldest first, with the time at which they came.
#[derive(Default)]
pub(crate) struct Callers {
    waiting: VecDeque<(Channel, u64)>,
}

impl Callers {
    /// Returns the next connection with a HELLO, when there is one. Does not wait.
    ///
    /// # Errors
    /// When no connection can be taken for want of a descriptor, or the system refuses.
    pub(crate) fn next(
        &mut self,
        listener: &Listener,
        now_ns: u64,
    ) -> io::Result<Option<(Line, Hello)>> {
        let mut at = 0;
        while let Some((channel, since_ns)) = self.waiting.get_mut(at) {
            match listen(channel) {
                Heard::Waits if now_ns.saturating_sub(*since_ns) < HELLO_NS => at += 1,
                heard => {
                    let gone = self.waiting.remove(at).expect("it is there");
                    if let Some(caller) = settle(gone.0, heard) {
                        return Ok(Some(caller));
                    }
                }
            }
        }
        for _ in 0..AT_ONCE {
            if self.waiting.len() >= MOST && !self.drop_oldest(now_ns, FULL_NS) {
                break;
            }
            let mut channel = match listener.accept() {
                Ok(Some(channel)) => channel,
                Ok(None) => break,
                Err(error) if no_descriptor(&error) && !self.waiting.is_empty() => {
                    self.drop_oldest(now_ns, FULL_NS);
                    break;
                }
                Err(error) => return Err(error),
            };
            let heard = match channel.is_trusted() {
                true => listen(&mut channel),
                false => Heard::Refused(Refusal::User),
            };
            match heard {
                Heard::Waits => self.waiting.push_back((channel, now_ns)),
                heard => {
                    if let Some(caller) = settle(channel, heard) {
                        return Ok(Some(caller));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Drops the oldest connection when it is older than that. Whether it was.
    fn drop_oldest(&mut self, now_ns: u64, age_ns: u64) -> bool {
        let is_old = |(_, since_ns): &(Channel, u64)| now_ns.saturating_sub(*since_ns) >= age_ns;
        let drops = self.waiting.front().is_some_and(is_old);
        if drops {
            self.waiting.pop_front();
        }
        drops
    }
}

/// Listens to a connection for what is there.
fn listen(channel: &mut Channel) -> Heard {
    match channel.receive() {
        Ok(None) => match channel.partial().first_chunk() {
            // Nothing is kept for a message that is no HELLO.
            Some(first) if i32::from_ne_bytes(*first) != HELLO => Heard::Refused(Refusal::Language),
            _ => Heard::Waits,
        },
        Ok(Some(message)) => match words_of(&message).split_first() {
            Some((&HELLO, words)) => match Hello::from_words(words) {
                // One that has given up meanwhile does not count.
                Some(_) if channel.is_closed() => Heard::Gone,
                Some(hello) => Heard::Hello(hello),
                None => Heard::Refused(Refusal::Language),
            },
            _ => Heard::Refused(Refusal::Language),
        },
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Heard::Refused(Refusal::Language)
        }
        Err(_) => Heard::Gone,
    }
}

/// Returns the HELLO of a connection that is to be taken; others get the reason why they are not.
fn settle(channel: Channel, heard: Heard) -> Option<(Line, Hello)> {
    match heard {
        Heard::Hello(hello) => return Some((Line::Near(channel), hello)),
        Heard::Refused(refusal) => refusal.tell(&mut Line::Near(channel)),
        // Late ones may connect again.
        Heard::Waits | Heard::Gone => {}
    }
    None
}
