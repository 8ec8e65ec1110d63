//! Making connections: trying all addresses of a rank at once, and finding out who has connected.
//!
//! A pair of ranks has one connection. Where both begin at the same time, that of the lower rank is
//! used: a rank refuses a connection from a higher one while it is trying to reach that one itself,
//! and takes one from a lower one in place of its own trial. No packet is sent before the side that
//! listens has said that the connection is used, so nothing can be lost with the other one.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use margay_sys_os::sockets::{self, Epoll};

use crate::proof::{self, Answer, CODE, Code, GREETING, Greeting, Names, Secret};
use crate::seal::Keys;

/// A host that has not answered for so long is lost.
pub(crate) const SILENCE: Duration = Duration::from_secs(8);

/// The system's number for "timed out" and for "refused".
pub(crate) const ETIMEDOUT: i32 = 110;
pub(crate) const ECONNREFUSED: i32 = 111;

/// Trying to reach a rank at all its addresses.
pub(crate) struct Attempt {
    pub(crate) began_ns: u64,
    greeting: Greeting,
    tries: Vec<Try>,
    /// A host has taken a connection, which may have been closed since.
    pub(crate) was_taken: bool,
    /// Why the last try failed.
    errno: i32,
}

struct Try {
    stream: TcpStream,
    stage: Stage,
    got: Vec<u8>,
}

enum Stage {
    Connecting,
    Greeted,
    /// Waits for the verdict.
    Proved(Box<Answer>),
}

/// What has become of an attempt.
pub(crate) enum Reached {
    /// Call again.
    NotYet,
    /// Packets may be sent.
    Up(TcpStream, Keys),
    /// The other side uses another connection.
    Refused,
    /// No address is left; the system's number for why.
    Failed(i32),
}

/// What one try has come to.
enum Tried {
    NotYet,
    /// This is the one: the others are given up.
    Chosen,
    Up,
    Refused,
    Failed(i32),
}

impl Attempt {
    pub(crate) fn begin(
        names: Names,
        addresses: impl Iterator<Item = SocketAddr>,
        (epoll, token): (&Epoll, u64),
        now_ns: u64,
    ) -> Attempt {
        let mut attempt = Attempt {
            began_ns: now_ns,
            greeting: [0; GREETING],
            tries: Vec::new(),
            was_taken: false,
            errno: ECONNREFUSED,
        };
        match proof::greeting(names) {
            Ok(greeting) => attempt.greeting = greeting,
            Err(error) => {
                attempt.errno = error.raw_os_error().unwrap_or(ECONNREFUSED);
                return attempt;
            }
        }
        for address in addresses {
            let begun = sockets::begin_connect(address).and_then(|stream| {
                epoll.add(stream.as_fd(), token, true)?;
                Ok(stream)
            });
            match begun {
                Ok(stream) => attempt.tries.push(Try {
                    stream,
                    stage: Stage::Connecting,
                    got: Vec::new(),
                }),
                Err(error) => attempt.errno = error.raw_os_error().unwrap_or(ECONNREFUSED),
            }
        }
        attempt
    }

    /// Whether a host has taken a connection. Its rank answers when it polls the next time, and it
    /// may compute until then for as long as it likes.
    pub(crate) fn is_taken(&self) -> bool {
        let is_taken = |a_try: &Try| !matches!(a_try.stage, Stage::Connecting);
        self.tries.iter().any(is_taken)
    }

    /// Goes on with all tries.
    pub(crate) fn advance(&mut self, secret: &Secret, epoll: &Epoll, token: u64) -> Reached {
        let mut at = 0;
        while at < self.tries.len() {
            let tried = self.tries[at].advance(secret, &self.greeting, epoll, token);
            self.was_taken |= !matches!(self.tries[at].stage, Stage::Connecting);
            match tried {
                Tried::NotYet => at += 1,
                Tried::Chosen => {
                    self.tries.swap(0, at);
                    self.tries.truncate(1);
                    at = 1;
                }
                Tried::Up => {
                    let won = self.tries.swap_remove(at);
                    let Stage::Proved(answer) = &won.stage else {
                        unreachable!("there is no verdict without a proof")
                    };
                    let keys = proof::keys(secret, &self.greeting, answer);
                    return Reached::Up(won.stream, keys);
                }
                Tried::Refused => return Reached::Refused,
                Tried::Failed(errno) => {
                    self.errno = errno;
                    self.tries.swap_remove(at);
                }
            }
        }
        if self.tries.is_empty() {
            Reached::Failed(self.errno)
        } else {
            Reached::NotYet
        }
    }
}

impl Try {
    fn advance(
        &mut self,
        secret: &Secret,
        greeting: &Greeting,
        epoll: &Epoll,
        token: u64,
    ) -> Tried {
        if let Stage::Connecting = self.stage {
            match self.stream.take_error() {
                Ok(None) => {}
                Ok(Some(error)) | Err(error) => return failed(&error),
            }
            if self.stream.peer_addr().is_err() {
                return Tried::NotYet;
            }
            let greeted = sockets::set_up(&self.stream, SILENCE)
                .and_then(|()| epoll.change(self.stream.as_fd(), token, false))
                .and_then(|()| self.stream.write_all(greeting));
            if let Err(error) = greeted {
                return failed(&error);
            }
            self.stage = Stage::Greeted;
        }
        let most = match self.stage {
            Stage::Proved(_) => CODE,
            _ => GREETING,
        };
        match read_up_to(&self.stream, &mut self.got, most) {
            Ok(true) => {}
            Ok(false) => return Tried::NotYet,
            Err(errno) => return Tried::Failed(errno),
        }
        let got = std::mem::take(&mut self.got);
        match &self.stage {
            Stage::Proved(answer) => {
                let code: Code = got.try_into().unwrap_or_default();
                match proof::read_verdict(secret, greeting, answer, &code) {
                    Some(true) => Tried::Up,
                    Some(false) => Tried::Refused,
                    None => Tried::Failed(ECONNREFUSED),
                }
            }
            _ => {
                let Ok(answer) = Answer::try_from(got) else {
                    return Tried::Failed(ECONNREFUSED);
                };
                // Another process has that port, on this host or on the other one.
                if !proof::is_answer(secret, greeting, &answer) {
                    return Tried::Failed(ECONNREFUSED);
                }
                let own = proof::proof(secret, greeting, &answer);
                if let Err(error) = self.stream.write_all(&own) {
                    return failed(&error);
                }
                self.stage = Stage::Proved(Box::new(answer));
                Tried::Chosen
            }
        }
    }
}

fn failed(error: &std::io::Error) -> Tried {
    Tried::Failed(error.raw_os_error().unwrap_or(ECONNREFUSED))
}

/// Reads until there are `most` bytes, and none beyond. Returns whether they are there.
fn read_up_to(stream: &TcpStream, got: &mut Vec<u8>, most: usize) -> Result<bool, i32> {
    let mut bytes = [0; GREETING];
    while got.len() < most {
        match (&*stream).read(&mut bytes[..most - got.len()]) {
            Ok(0) => return Err(ECONNREFUSED),
            Ok(n) => got.extend_from_slice(&bytes[..n]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.raw_os_error().unwrap_or(ECONNREFUSED)),
        }
    }
    Ok(true)
}

/// Somebody who has connected and not proved anything yet.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub(crate) stream: TcpStream,
    /// Since when it is waited for.
    pub(crate) began_ns: u64,
    got: Vec<u8>,
    /// Its greeting and the answer to it.
    greeted: Option<Box<(Greeting, Answer)>>,
}

/// What has become of a visitor.
pub(crate) enum Visited {
    NotYet,
    /// It is this rank, and waits for the verdict.
    Proved(u32),
    /// It is nobody of this job.
    Stranger,
}

impl Visitor {
    pub(crate) fn new(stream: TcpStream, now_ns: u64) -> Visitor {
        Visitor {
            stream,
            began_ns: now_ns,
            got: Vec::new(),
            greeted: None,
        }
    }

    /// Goes on; `expects` says whether these names are possible here.
    pub(crate) fn advance(
        &mut self,
        secret: &Secret,
        expects: impl Fn(Names) -> bool,
        now_ns: u64,
    ) -> Visited {
        let most = if self.greeted.is_some() {
            CODE
        } else {
            GREETING
        };
        let whole = match read_up_to(&self.stream, &mut self.got, most) {
            Ok(whole) => whole,
            Err(_) => return Visited::Stranger,
        };
        if !whole {
            let is_wrong = self.greeted.is_none() && !proof::may_greet(&self.got);
            return if is_wrong {
                Visited::Stranger
            } else {
                Visited::NotYet
            };
        }
        let got = std::mem::take(&mut self.got);
        match &self.greeted {
            None => {
                let Ok(greeting) = Greeting::try_from(got) else {
                    return Visited::Stranger;
                };
                if !proof::may_greet(&greeting) || !expects(proof::names(&greeting)) {
                    return Visited::Stranger;
                }
                let Ok(answer) = proof::answer(secret, &greeting) else {
                    return Visited::Stranger;
                };
                if (&self.stream).write_all(&answer).is_err() {
                    return Visited::Stranger;
                }
                self.greeted = Some(Box::new((greeting, answer)));
                self.began_ns = now_ns;
                self.advance(secret, expects, now_ns)
            }
            Some(said) => {
                let code: Code = got.try_into().unwrap_or_default();
                match proof::is_proof(secret, &said.0, &said.1, &code) {
                    true => Visited::Proved(proof::names(&said.0).from),
                    false => Visited::Stranger,
                }
            }
        }
    }

    /// Returns the keys of its connection; none before it has greeted.
    pub(crate) fn keys(&self, secret: &Secret) -> Option<Keys> {
        let (greeting, answer) = &**self.greeted.as_ref()?;
        Some(proof::keys(secret, greeting, answer))
    }

    /// Tells the other side, which has proved itself, whether this connection is used. Returns
    /// whether that could be sent.
    pub(crate) fn tell(&mut self, secret: &Secret, is_used: bool) -> bool {
        let Some(said) = &self.greeted else {
            return false;
        };
        let verdict = proof::verdict(secret, &said.0, &said.1, is_used);
        (&self.stream).write_all(&verdict).is_ok()
    }
}
