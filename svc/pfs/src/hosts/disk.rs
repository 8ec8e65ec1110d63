//! The service's end of a stripe directory on another host. Requests and answers are drawn in
//! docs/wire.md.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use margay_fs_stripes::{Disk, PARTS, Part, Pending, Space, Write};
use margay_sys_os::descriptor::PollSet;

use super::door::{Entrance, Letterbox};
use super::session::BEFORE;
use super::share::IS_OVER;
use super::wire::{LOOK_EVERY, Wire, message};
use crate::lock::lock;

/// Bytes of what each request, and each answer, begins with.
pub const REQUEST: usize = 32;
pub const ANSWER: usize = 32;

/// Bytes that are read or written by one request.
pub const MOST_BYTES: usize = 1 << 20;

/// How long its host may take to say whether it is there, and how much space there is.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// What is asked, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Sync,
    Cut,
    Len,
    Punch,
    Reserve,
    Space,
    IsPresent,
    /// That something is wanted soon, which is not answered.
    WillNeed,
}

const OPERATIONS: [Operation; 10] = [
    Operation::Read,
    Operation::Write,
    Operation::Sync,
    Operation::Cut,
    Operation::Len,
    Operation::Punch,
    Operation::Reserve,
    Operation::Space,
    Operation::IsPresent,
    Operation::WillNeed,
];

/// A request, without the bytes that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub number: u64,
    pub operation: Operation,
    /// Which of [`PARTS`].
    pub part: u8,
    pub at: u64,
    pub len: u64,
}

impl Request {
    fn bytes(&self) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        let operation = OPERATIONS.iter().position(|o| *o == self.operation);
        bytes[8] = operation.unwrap_or(0) as u8;
        bytes[9] = self.part;
        bytes[16..24].copy_from_slice(&self.at.to_le_bytes());
        bytes[24..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Whether these bytes begin with it, apart from those that say nothing.
    pub fn is(&self, bytes: &[u8]) -> bool {
        let own = self.bytes();
        bytes.starts_with(&own[..10]) && bytes[16..].starts_with(&own[16..])
    }

    pub fn read(bytes: &[u8]) -> Option<Request> {
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Request {
            number: number(0)?,
            operation: *OPERATIONS.get(usize::from(*bytes.get(8)?))?,
            part: *bytes.get(9)?,
            at: number(16)?,
            len: number(24)?,
        })
    }
}

#[derive(Default)]
struct Calls {
    next: u64,
    /// What is to be sent: of the store's requests, which are few at a time.
    new: Vec<Vec<u8>>,
    /// Answers, once they have come, of those who wait.
    answers: BTreeMap<u64, Option<Vec<u8>>>,
    is_to_end: bool,
    is_over: bool,
}

struct Shared {
    /// What was known last, for when it cannot be asked.
    space: Mutex<Option<Space>>,
    is_up: AtomicBool,
    calls: Mutex<Calls>,
    came: Condvar,
    letterbox: Arc<Letterbox>,
}

/// A stripe directory on another host.
pub struct Remote {
    shared: Arc<Shared>,
}

impl Remote {
    /// Begins a session for a host that has not been asked yet.
    ///
    /// # Errors
    /// What the system says.
    pub fn begin(entrance: &Arc<Entrance>) -> io::Result<(u64, Remote)> {
        let (session, letterbox) = entrance.begin()?;
        let shared = Arc::new(Shared {
            space: Mutex::default(),
            is_up: AtomicBool::new(true),
            calls: Mutex::default(),
            came: Condvar::new(),
            letterbox,
        });
        let (kept, entrance) = (Arc::clone(&shared), Arc::clone(entrance));
        std::thread::spawn(move || {
            kept.run(session);
            entrance.end(session);
        });
        Ok((session, Remote { shared }))
    }

    /// Lets the host go.
    pub fn end(&self) {
        lock(&self.shared.calls).is_to_end = true;
        self.shared.letterbox.bell.ring();
    }

    /// Waits until it knows that, if it can be reached.
    pub fn wait_for_end(&self, within: Duration) {
        let calls = lock(&self.shared.calls);
        let waits = |calls: &mut Calls| !calls.is_over;
        let _ = self.shared.came.wait_timeout_while(calls, within, waits);
    }

    fn ask(&self, operation: Operation, part: Part, (at, len): (u64, u64), data: &[&[u8]]) -> u64 {
        let part = PARTS.iter().position(|other| *other == part);
        let mut calls = lock(&self.shared.calls);
        let number = calls.next;
        calls.next += 1;
        let head = Request {
            number,
            operation,
            part: part.unwrap_or(0) as u8,
            at,
            len,
        };
        let head = head.bytes();
        let parts: Vec<&[u8]> = [&[&head[..]], data].concat();
        calls.new.push(message(&parts));
        if operation != Operation::WillNeed {
            calls.answers.insert(number, None);
        }
        drop(calls);
        self.shared.letterbox.bell.ring();
        number
    }

    fn call(&self, operation: Operation, part: Part, at: u64, len: u64) -> io::Result<[u64; 2]> {
        let number = self.ask(operation, part, (at, len), &[]);
        self.shared.answer(number, None).map(|(values, _)| values)
    }

    /// Asks what a host has to answer soon, or is taken as it was.
    fn ask_soon(&self, operation: Operation) -> io::Result<[u64; 2]> {
        if !self.shared.is_up.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let number = self.ask(operation, Part::Data, (0, 0), &[]);
        let answer = self.shared.answer(number, Some(ANSWERED_WITHIN));
        answer.map(|(values, _)| values)
    }

    /// Writes in pieces that one request takes; returns the requests.
    fn send(&self, write: &Write<'_>) -> Vec<u64> {
        let mut numbers = Vec::new();
        let mut at = write.at;
        let mut some: Vec<&[u8]> = Vec::new();
        let mut len = 0;
        let whole: Vec<&[u8]> = write
            .pieces
            .iter()
            .flat_map(|piece| piece.chunks(MOST_BYTES))
            .collect();
        for piece in whole {
            if len + piece.len() > MOST_BYTES {
                numbers.push(self.ask(Operation::Write, write.part, (at, len as u64), &some));
                at += len as u64;
                some.clear();
                len = 0;
            }
            some.push(piece);
            len += piece.len();
        }
        if len > 0 {
            numbers.push(self.ask(Operation::Write, write.part, (at, len as u64), &some));
        }
        numbers
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Waits for an answer; gives up after `within`, if there is such a time.
    fn answer(&self, number: u64, within: Option<Duration>) -> io::Result<([u64; 2], Vec<u8>)> {
        let waits =
            |calls: &mut Calls| !calls.is_over && matches!(calls.answers.get(&number), Some(None));
        let calls = lock(&self.calls);
        let within = within.unwrap_or(Duration::MAX);
        let waited = self.came.wait_timeout_while(calls, within, waits);
        let mut calls = waited.unwrap_or_else(PoisonError::into_inner).0;
        let answer = calls.answers.remove(&number).flatten();
        drop(calls);
        let answer = answer.ok_or_else(|| io::Error::other("its host cannot be reached"))?;
        let number = |at: usize| {
            let bytes = answer.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let errno = number(BEFORE + 8) as i32;
        if errno != 0 {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let values = [number(BEFORE + 16), number(BEFORE + 24)];
        Ok((values, answer))
    }

    fn run(&self, session: u64) {
        let mut wire = Wire::new();
        let mut poll = PollSet::default();
        while !wire.is_given_up() {
            poll.clear();
            poll.add_readable(self.letterbox.bell.descriptor());
            wire.add_to(&mut poll);
            if poll.wait(Some(LOOK_EVERY)).is_err() {
                break;
            }
            self.letterbox.bell.silence();
            wire.take_new(session, self.letterbox.take());
            while let Some(answer) = wire.receive() {
                self.take(answer);
            }
            let (new, is_to_end) = {
                let mut calls = lock(&self.calls);
                (std::mem::take(&mut calls.new), calls.is_to_end)
            };
            for request in new {
                wire.send(request);
            }
            if is_to_end {
                wire.send(message(&[&IS_OVER.to_le_bytes()]));
                wire.finish();
                break;
            }
            wire.keep_up();
            self.is_up.store(wire.is_up(), Ordering::SeqCst);
        }
        lock(&self.calls).is_over = true;
        self.came.notify_all();
    }

    fn take(&self, answer: Vec<u8>) {
        let number = answer.get(BEFORE..).and_then(<[u8]>::first_chunk);
        let number = number.map(|bytes| u64::from_le_bytes(*bytes));
        let mut calls = lock(&self.calls);
        // One that nobody waits for any more is dropped.
        if let Some(place) = number.and_then(|number| calls.answers.get_mut(&number)) {
            *place = Some(answer);
            self.came.notify_all();
        }
    }
}

impl Disk for Remote {
    fn read(&self, part: Part, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut asked = Vec::new();
        let mut from = at;
        for piece in into.chunks(MOST_BYTES) {
            let range = (from, piece.len() as u64);
            asked.push(self.ask(Operation::Read, part, range, &[]));
            from += piece.len() as u64;
        }
        let mut done = 0;
        let mut is_over = false;
        let mut failed = Ok(());
        for (number, piece) in asked.into_iter().zip(into.chunks_mut(MOST_BYTES)) {
            match self.shared.answer(number, None) {
                Ok((_, answer)) if !is_over => {
                    let bytes = answer.get(BEFORE + ANSWER..).unwrap_or_default();
                    let len = bytes.len().min(piece.len());
                    piece[..len].copy_from_slice(&bytes[..len]);
                    done += len;
                    is_over = len < piece.len();
                }
                Ok(_) => {}
                Err(error) => failed = Err(error),
            }
        }
        failed.map(|()| done)
    }

    fn write(&self, part: Part, at: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.begin(&[Write { part, at, pieces }]).wait()
    }

    fn begin(&self, writes: &[Write<'_>]) -> Pending {
        let numbers: Vec<u64> = writes.iter().flat_map(|write| self.send(write)).collect();
        let shared = Arc::clone(&self.shared);
        Pending::UnderWay(Box::new(move || {
            let mut done = Ok(());
            for number in numbers {
                if let Err(error) = shared.answer(number, None) {
                    done = Err(error);
                }
            }
            done
        }))
    }

    fn sync(&self, part: Part) -> io::Result<()> {
        self.call(Operation::Sync, part, 0, 0).map(|_| ())
    }

    fn cut(&self, part: Part, len: u64) -> io::Result<()> {
        self.call(Operation::Cut, part, 0, len).map(|_| ())
    }

    fn len(&self, part: Part) -> io::Result<u64> {
        self.call(Operation::Len, part, 0, 0).map(|[len, _]| len)
    }

    fn punch(&self, part: Part, at: u64, len: u64) -> io::Result<()> {
        self.call(Operation::Punch, part, at, len).map(|_| ())
    }

    fn reserve(&self, part: Part, at: u64, len: u64) -> io::Result<()> {
        self.call(Operation::Reserve, part, at, len).map(|_| ())
    }

    fn space(&self) -> io::Result<Space> {
        let answer = self.ask_soon(Operation::Space);
        let mut space = lock(&self.shared.space);
        match answer {
            Ok([total, free]) => *space = Some(Space { total, free }),
            Err(error) if space.is_none() => return Err(error),
            Err(_) => {}
        }
        Ok(space.unwrap_or_default())
    }

    fn will_need(&self, part: Part, at: u64, len: usize) {
        self.ask(Operation::WillNeed, part, (at, len as u64), &[]);
    }

    fn is_memory(&self) -> bool {
        false
    }

    fn is_present(&self) -> bool {
        let answer = self.ask_soon(Operation::IsPresent);
        // A host that cannot be reached has a deadline of its own.
        let is_over = lock(&self.shared.calls).is_over;
        answer.map_or(!is_over, |[is_there, _]| is_there != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written_and_others_are_none() {
        for operation in OPERATIONS {
            let request = Request {
                number: 3,
                operation,
                part: 5,
                at: 1 << 40,
                len: 7,
            };
            let mut bytes = request.bytes();
            assert_eq!(Request::read(&bytes), Some(request));
            assert_eq!(Request::read(&bytes[..REQUEST - 1]), None);
            bytes[8] = OPERATIONS.len() as u8;
            assert_eq!(Request::read(&bytes), None);
        }
    }
}
