//! A session's connection, as long as there is one.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use margay_net_tcp::talk::Talk;
use margay_sys_os::descriptor::PollSet;

use super::session::{BEFORE, Session};

/// How long the loss of the connection is survived.
pub const LOST_FOR: Duration = Duration::from_secs(60);

/// The same for the service where the other host has closed it: a program that lives comes back at
/// once.
const CLOSED_FOR: Duration = Duration::from_secs(5);

/// Bytes that wait for the connection, or for the other end, before no more are taken.
const MOST_WAITING: usize = 4 << 20;
const MOST_UNCONFIRMED: usize = 64 << 20;

/// The longest a wait may be, so that a host that does not answer is noticed.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What both ends begin with.
const MAGIC: [u8; 4] = *b"MPS1";

/// The first message of the host that has connected: which session, and how much of it has come.
pub fn greeting(session: u64, has: u64) -> Vec<u8> {
    [&MAGIC[..], &session.to_le_bytes(), &has.to_le_bytes()].concat()
}

/// Reads it: the session, and how much has come.
pub fn greeted(message: &[u8]) -> Option<(u64, u64)> {
    let (session, has) = message.strip_prefix(&MAGIC)?.split_first_chunk::<8>()?;
    let has = has.first_chunk::<8>().filter(|_| has.len() == 8)?;
    Some((u64::from_le_bytes(*session), u64::from_le_bytes(*has)))
}

/// One end of a session, and its connection.
pub struct Wire {
    pub session: Session,
    talk: Option<Talk>,
    lost: Instant,
    is_closed: bool,
}

impl Wire {
    pub fn new() -> Wire {
        Wire {
            session: Session::default(),
            talk: None,
            lost: Instant::now(),
            is_closed: false,
        }
    }

    pub fn is_up(&self) -> bool {
        self.talk.is_some()
    }

    /// How long there has been no connection.
    pub fn is_lost_for(&self) -> Duration {
        match self.talk {
            Some(_) => Duration::ZERO,
            None => self.lost.elapsed(),
        }
    }

    /// Whether the other host does not come back.
    pub fn is_given_up(&self) -> bool {
        let most = if self.is_closed { CLOSED_FOR } else { LOST_FOR };
        self.is_lost_for() > most
    }

    /// Whether more may be sent.
    pub fn has_room(&self) -> bool {
        self.session.bytes() < MOST_UNCONFIRMED
            && (self.talk.as_ref()).is_some_and(|talk| talk.waiting() < MOST_WAITING)
    }

    /// Sends a message, whose first bytes are free for the session, over this connection or a later
    /// one.
    pub fn send(&mut self, message: Vec<u8>) {
        let bytes = self.session.send(message);
        let sent = self.talk.as_mut().map(|talk| talk.send(bytes));
        self.look(sent);
    }

    /// The next message that has come, with what is in front of it.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        loop {
            let message = match self.talk.as_mut()?.receive() {
                Ok(message) => message?,
                Err(error) => {
                    self.is_closed = matches!(
                        error.kind(),
                        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                    );
                    self.lose();
                    return None;
                }
            };
            match self.session.take(&message) {
                Ok(Some(_)) => return Some(message),
                Ok(None) => {}
                Err(_) => self.lose(),
            }
        }
    }

    /// Confirms what has come, where nothing else does; and gives a connection up whose other host
    /// does not answer.
    pub fn keep_up(&mut self) {
        if self.talk.as_ref().is_some_and(Talk::is_unanswered) {
            self.lose();
        }
        if let Some(talk) = &mut self.talk
            && let Some(bytes) = self.session.confirmation()
        {
            let sent = talk.send(&bytes);
            self.look(Some(sent));
        }
    }

    /// Takes a connection that a host has made, if there is a new one, and how much that has.
    pub fn take_new(&mut self, session: u64, new: Option<(Talk, u64)>) {
        let Some((mut talk, has)) = new else {
            return;
        };
        let sent = talk.send(&greeting(session, self.session.received()));
        if sent.is_ok() {
            self.go_on(talk, has);
        }
    }

    /// Goes on over a new connection; `has`: what the other end has, as it says.
    pub fn go_on(&mut self, mut talk: Talk, has: u64) {
        let mut sent = Ok(());
        let resumed = self.session.resume(has, |bytes| {
            if sent.is_ok() {
                sent = talk.send(bytes);
            }
        });
        self.talk = Some(talk);
        self.is_closed = false;
        if resumed.is_err() {
            self.lose();
        }
        self.look(Some(sent));
    }

    /// Adds the connection to what is waited for.
    pub fn add_to(&self, poll: &mut PollSet) {
        if let Some(talk) = &self.talk {
            poll.add_readable(talk.descriptor());
            if talk.waiting() > 0 {
                poll.add_writable(talk.descriptor());
            }
        }
    }

    /// Waits until the other end, which closes the connection when it has heard the last message,
    /// has done so, for a moment.
    pub fn finish(&mut self) {
        let end = Instant::now() + LOOK_EVERY;
        let mut poll = PollSet::default();
        while self.is_up() && Instant::now() < end {
            self.receive();
            poll.clear();
            self.add_to(&mut poll);
            if poll.wait(Some(LOOK_EVERY / 10)).is_err() {
                return;
            }
        }
    }

    fn look(&mut self, sent: Option<io::Result<()>>) {
        if sent.is_some_and(|sent| sent.is_err()) {
            self.lose();
        }
    }

    fn lose(&mut self) {
        if self.talk.take().is_some() {
            self.lost = Instant::now();
        }
    }
}

/// A message of which the first bytes are free for the session.
pub fn message(parts: &[&[u8]]) -> Vec<u8> {
    let len = parts.iter().map(|part| part.len()).sum::<usize>();
    let mut message = Vec::with_capacity(BEFORE + len);
    message.extend_from_slice(&[0; BEFORE]);
    for part in parts {
        message.extend_from_slice(part);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_are_read_as_they_were_written_and_others_are_none() {
        let text = greeting(7, 9);
        assert_eq!(greeted(&text), Some((7, 9)));
        for len in 0..text.len() {
            assert_eq!(greeted(&text[..len]), None);
        }
        assert_eq!(greeted(&[text.as_slice(), b"x"].concat()), None);
        assert_eq!(message(&[b"ab", b"c"]), b"\0\0\0\0\0\0\0\0abc");
    }
}
