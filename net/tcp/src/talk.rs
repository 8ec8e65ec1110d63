//! Talks between two processes of different jobs on different hosts, before they share a transport.
//!
//! One listens at a [`Door`]; the other one has been given its addresses with a secret, and
//! [knocks](Knock). Both prove the secret as ranks do. What they say then is always encrypted,
//! because it holds secrets of its own: messages, as records of at most 32 KiB each of which begins
//! with a byte that is 1 at a message's end. Nobody waits here.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use margay_sys_os::sockets::{self, Epoll};

use crate::connect::{Attempt, ETIMEDOUT, Reached, SILENCE, Visited, Visitor};
use crate::proof::{Names, Secret};
use crate::seal::{BEFORE, BEHIND, Keys, Seals};
use crate::{GIVE_UP_NS, MOST_VISITORS, PAUSE_NS, VISIT_NS};

/// Bytes of a message in one record.
const PIECE: usize = 32 << 10;
/// Longest message in bytes: more than the contacts of 30,000 processes.
const LONGEST: usize = 4 << 20;
/// Most connections taken at once: more may come than can be taken, without an end.
const AT_ONCE: usize = 1024;
/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Who knocks and who opens, as the ranks of a job.
fn names(number: u64) -> Names {
    Names {
        job: number,
        from: 1,
        to: 0,
    }
}

/// Where a process listens for others that have its secret.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    number: u64,
    secret: Secret,
    /// Who has not proved anything yet, the oldest first.
    visitors: VecDeque<Visitor>,
}

impl Door {
    /// A connection to `listener` has to name `number` and to prove `secret`.
    #[must_use]
    pub fn new(listener: TcpListener, number: u64, secret: Secret) -> Door {
        Door {
            listener,
            number,
            secret,
            visitors: VecDeque::new(),
        }
    }

    /// What becomes readable when somebody knocks. Who has knocked proves the secret in some looks
    /// more.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The next one who has proved the secret, if there is one.
    pub fn next(&mut self, now_ns: u64) -> Option<Talk> {
        for _ in 0..AT_ONCE {
            let Ok((stream, _)) = self.listener.accept() else {
                break;
            };
            if sockets::set_up(&stream, SILENCE).is_ok() {
                if self.visitors.len() == MOST_VISITORS {
                    self.visitors.pop_front();
                }
                self.visitors.push_back(Visitor::new(stream, now_ns));
            }
        }
        let expects = |said: Names| said == names(self.number);
        let mut at = 0;
        while let Some(visitor) = self.visitors.get_mut(at) {
            match visitor.advance(&self.secret, expects, now_ns) {
                Visited::NotYet if now_ns.saturating_sub(visitor.began_ns) < VISIT_NS => at += 1,
                Visited::NotYet | Visited::Stranger => drop(self.visitors.remove(at)),
                Visited::Proved(_) => {
                    let mut visitor = self.visitors.remove(at)?;
                    if let Some(keys) = visitor.keys(&self.secret)
                        && visitor.tell(&self.secret, true)
                    {
                        return Some(Talk::new(visitor.stream, &keys, false));
                    }
                }
            }
        }
        None
    }
}

/// The way to somebody's door.
pub struct Knock {
    addresses: Vec<SocketAddr>,
    number: u64,
    secret: Secret,
    epoll: Epoll,
    attempt: Attempt,
    /// When the next attempt is made, after the other side has closed the last one.
    again_ns: Option<u64>,
}

impl Knock {
    /// Knocks at all addresses at once.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn begin(
        addresses: &[IpAddr],
        port: u16,
        (number, secret): (u64, Secret),
        now_ns: u64,
    ) -> io::Result<Knock> {
        let epoll = Epoll::new()?;
        let addresses: Vec<SocketAddr> = (addresses.iter())
            .map(|&ip| SocketAddr::new(ip, port))
            .collect();
        let attempt = attempt(&addresses, number, &epoll, now_ns);
        Ok(Knock {
            addresses,
            number,
            secret,
            epoll,
            attempt,
            again_ns: None,
        })
    }

    /// Goes on. The side that has opened proves the secret; until then, however long that may be,
    /// there is none.
    ///
    /// # Errors
    /// When nobody listens, or no host answers.
    pub fn advance(&mut self, now_ns: u64) -> io::Result<Option<Talk>> {
        if let Some(again_ns) = self.again_ns {
            if now_ns < again_ns {
                return Ok(None);
            }
            self.again_ns = None;
            self.attempt = attempt(&self.addresses, self.number, &self.epoll, now_ns);
        }
        let reached = self.attempt.advance(&self.secret, &self.epoll, 0);
        match reached {
            Reached::Up(stream, keys) => Ok(Some(Talk::new(stream, &keys, true))),
            // One of many who knock, or one who was late, was sent away.
            Reached::Failed(_) | Reached::Refused if self.attempt.was_taken => {
                self.again_ns = Some(now_ns + PAUSE_NS);
                Ok(None)
            }
            Reached::Failed(errno) => Err(io::Error::from_raw_os_error(errno)),
            Reached::NotYet
                if !self.attempt.was_taken && now_ns - self.attempt.began_ns >= GIVE_UP_NS =>
            {
                Err(io::Error::from_raw_os_error(ETIMEDOUT))
            }
            Reached::NotYet | Reached::Refused => Ok(None),
        }
    }
}

fn attempt(addresses: &[SocketAddr], number: u64, epoll: &Epoll, now_ns: u64) -> Attempt {
    Attempt::begin(names(number), addresses.iter().copied(), (epoll, 0), now_ns)
}

/// Writes what a stream that does not block takes now, and leaves the rest.
///
/// # Errors
/// When the other end is gone.
pub fn flush(to: &mut impl Write, output: &mut Vec<u8>) -> io::Result<()> {
    let mut written = 0;
    let done = loop {
        if written == output.len() {
            break Ok(());
        }
        match to.write(&output[written..]) {
            Ok(n) => written += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    output.drain(..written);
    done
}

/// Adds what a stream that does not block has now. Returns whether there may be more.
///
/// # Errors
/// When the other end is gone (`UnexpectedEof`).
pub fn read_more(from: &mut impl Read, input: &mut Vec<u8>) -> io::Result<bool> {
    let old = input.len();
    input.resize(old + READ_BYTES, 0);
    let read = from.read(&mut input[old..]);
    input.truncate(old + read.as_ref().map_or(0, |&n| n));
    match read {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// One end of a talk.
pub struct Talk {
    stream: TcpStream,
    seals: Seals,
    input: Vec<u8>,
    message: Vec<u8>,
    output: Vec<u8>,
}

impl Talk {
    fn new(stream: TcpStream, keys: &Keys, connected: bool) -> Talk {
        Talk {
            stream,
            seals: Seals::new(keys, connected),
            input: Vec::new(),
            message: Vec::new(),
            output: Vec::new(),
        }
    }

    /// The connection.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// How many bytes wait until the connection is writable.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.output.len()
    }

    /// Whether the other host has not answered for some seconds although something is on its way.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        sockets::is_unanswered(&self.stream, SILENCE)
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    /// When the other end is gone.
    pub fn end(&mut self) -> io::Result<()> {
        self.flush()?;
        self.stream.shutdown(Shutdown::Write)
    }

    /// Sends a message; what the system does not take goes with later calls.
    ///
    /// # Errors
    /// When the other end is gone.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let mut rest = message;
        loop {
            let (piece, others) = rest.split_at(rest.len().min(PIECE));
            rest = others;
            let mut record = vec![0; BEFORE];
            record.push(u8::from(rest.is_empty()));
            record.extend_from_slice(piece);
            self.seals.seal(&mut record);
            self.output.extend_from_slice(&record);
            if rest.is_empty() {
                return self.flush();
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        flush(&mut self.stream, &mut self.output)
    }

    /// The next message, if all of it is here.
    ///
    /// # Errors
    /// When the other end is gone (`UnexpectedEof`), or sends what is not a message.
    pub fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.flush()?;
        loop {
            while let Some(last) = self.take_record()? {
                if last {
                    return Ok(Some(std::mem::take(&mut self.message)));
                }
            }
            if !read_more(&mut self.stream, &mut self.input)? {
                return Ok(None);
            }
        }
    }

    /// Adds the next record to the message. Returns whether it is the message's last one; none
    /// where it is not whole.
    fn take_record(&mut self) -> io::Result<Option<bool>> {
        let wrong = || io::Error::from(ErrorKind::InvalidData);
        let Some((first, end)) = self.seals.open(&mut self.input).map_err(|_| wrong())? else {
            return Ok(None);
        };
        let (&last, piece) = self.input[first..end].split_first().ok_or_else(wrong)?;
        if last > 1 || piece.len() > PIECE || self.message.len() + piece.len() > LONGEST {
            return Err(wrong());
        }
        self.message.extend_from_slice(piece);
        self.input.drain(..end + BEHIND);
        Ok(Some(last == 1))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use margay_sys_os::clock::{Clock, SystemClock};

    use super::*;

    const HERE: [IpAddr; 1] = [IpAddr::V4(Ipv4Addr::LOCALHOST)];

    fn now() -> u64 {
        SystemClock.now_ns()
    }

    fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = look() {
                return found;
            }
            std::thread::yield_now();
        }
    }

    fn both(secrets: [Secret; 2]) -> (Door, Knock) {
        let listener = sockets::listen(None).unwrap();
        let port = listener.local_addr().unwrap().port();
        let knock = Knock::begin(&HERE, port, (7, secrets[1]), now()).unwrap();
        (Door::new(listener, 7, secrets[0]), knock)
    }

    #[test]
    fn messages_of_any_length_come_whole_and_the_end_is_noticed() {
        let (mut door, mut knock) = both([[3; 32]; 2]);
        let (mut outer, mut inner) = (None, None);
        until(|| {
            inner = inner.take().or_else(|| door.next(now()));
            outer = outer.take().or_else(|| knock.advance(now()).unwrap());
            (inner.is_some() && outer.is_some()).then_some(())
        });
        let (mut outer, mut inner) = (outer.unwrap(), inner.unwrap());
        for len in [0, 1, PIECE, PIECE + 1, 3_000_000] {
            let message: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            outer.send(&message).unwrap();
            let got = until(|| {
                assert_eq!(outer.receive().unwrap(), None);
                inner.receive().unwrap()
            });
            assert!(got == message, "{len} bytes");
        }
        inner.send(b"answer").unwrap();
        assert_eq!(until(|| outer.receive().unwrap()), b"answer");
        drop(inner);
        let error = until(|| outer.receive().err());
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn who_has_another_secret_is_not_let_in_and_who_says_nothing_keeps_nobody_out() {
        let (mut door, mut wrong) = both([[3; 32], [4; 32]]);
        let port = door.listener.local_addr().unwrap().port();
        let silent: Vec<TcpStream> = (0..2 * MOST_VISITORS)
            .map(|_| {
                let stream = TcpStream::connect((HERE[0], port)).unwrap();
                assert!(door.next(now()).is_none());
                stream
            })
            .collect();
        let mut right = Knock::begin(&HERE, port, (7, [3; 32]), now()).unwrap();
        let (mut outer, mut inner) = (None, None);
        until(|| {
            assert!(wrong.advance(now()).unwrap().is_none());
            inner = inner.take().or_else(|| door.next(now()));
            outer = outer.take().or_else(|| right.advance(now()).unwrap());
            (inner.is_some() && outer.is_some()).then_some(())
        });
        drop(silent);
        drop(door);
        let nobody = until(|| wrong.advance(now()).err());
        assert_eq!(nobody.kind(), ErrorKind::ConnectionRefused);
    }
}
