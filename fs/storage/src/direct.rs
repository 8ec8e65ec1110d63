//! The direct way to a file of a parallel file system of this host: its bytes go through memory
//! that this process and the service have in common, past the kernel. The file's descriptor stays
//! what shows the right to it, and takes over whenever there is no direct way.

pub mod wire;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use margay_sys_os::cpu::thread_number;
use margay_sys_os::file::{File, Slice, is_size_limited};
use margay_sys_os::packets::{Packets, map};
use margay_sys_os::user::Mem;

use wire::{ANSWER, Answer, INVITATION, Invitation, MOST, PLACES, Request};

/// How long the service may take to let this process in.
const IN_WITHIN: Duration = Duration::from_secs(2);

/// A direct way.
pub struct Direct {
    line: Packets,
    /// The places, one after the other.
    memory: Mem,
    /// One thread at a time; the others take the way through the kernel meanwhile.
    turn: Mutex<()>,
    is_over: AtomicBool,
}

/// A walk through pieces of memory.
struct Walk<'a> {
    pieces: &'a [Slice],
    within: usize,
}

impl Walk<'_> {
    /// Calls `each` with the pieces of the next `len` bytes: which bytes of what is walked they
    /// are, memory, where in it, and how many.
    fn next(&mut self, len: usize, mut each: impl FnMut(usize, &Mem, i64, usize)) {
        let mut done = 0;
        while let Some((first, rest)) = self.pieces.split_first()
            && done < len
        {
            let part = (first.len - self.within).min(len - done);
            if part > 0 {
                each(done, &first.mem, first.at + self.within as i64, part);
            }
            done += part;
            self.within += part;
            if self.within == first.len {
                (self.pieces, self.within) = (rest, 0);
            }
        }
    }
}

impl Direct {
    /// The direct way to an open file; none where there is none: the file is none of a parallel
    /// file system, or of another host's, or something maps it, or this process may only write
    /// small files.
    pub fn begin(file: &File) -> Option<Direct> {
        if is_size_limited() {
            return None;
        }
        let asked = file.ask::<INVITATION>(wire::INVITES).ok()?;
        let invitation = Invitation::from_bytes(&asked)?;
        let name = wire::socket_name(invitation.hall);
        let line = Packets::connect(&name, IN_WITHIN).ok()?;
        // Somebody else may listen there when the service has ended.
        if line.peer().ok()?.0 != invitation.user {
            return None;
        }
        line.send(&invitation.ticket).ok()?;
        let memory = line.receive_descriptor().ok()?;
        let memory = map(std::os::fd::AsFd::as_fd(&memory), PLACES * MOST).ok()?;
        // An answer takes as long as the disks do.
        line.wait_for(None, None).ok()?;
        Some(Direct {
            line,
            memory,
            turn: Mutex::default(),
            is_over: AtomicBool::new(false),
        })
    }

    /// Reads as [`File::read_at`] does; none where that has to do it.
    pub fn read_at(&self, offset: u64, pieces: &[Slice]) -> Option<io::Result<u64>> {
        let mut walk = Walk { pieces, within: 0 };
        let take = |place: i64, len| {
            walk.next(len, |done, mem, at, len| {
                self.memory.copy_to(place + done as i64, mem, at, len);
            });
        };
        self.transfer(None, offset, pieces, |_, _| (), take)
    }

    /// Writes to the same open file as [`File::write_at`] does; none where that has to do it, also
    /// if something has been written, and where there is no space for all: the kernel says why.
    pub fn write_at(&self, file: &File, offset: u64, pieces: &[Slice]) -> Option<io::Result<u64>> {
        if is_size_limited() {
            return None;
        }
        let mut walk = Walk { pieces, within: 0 };
        let give = |place: i64, len| {
            walk.next(len, |done, mem, at, len| {
                mem.copy_to(at, &self.memory, place + done as i64, len);
            });
        };
        self.transfer(Some(file), offset, pieces, give, |_, _| ())
    }

    /// Sends requests for all bytes, as many at a time as there are places, of which `before` fills
    /// one for its request, and `after` empties it. A request that ends at a multiple of the most
    /// bytes covers whole rows.
    fn transfer(
        &self,
        written: Option<&File>,
        offset: u64,
        pieces: &[Slice],
        mut before: impl FnMut(i64, usize),
        mut after: impl FnMut(i64, usize),
    ) -> Option<io::Result<u64>> {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let total: u64 = pieces.iter().map(|piece| piece.len as u64).sum();
        // What the kernel has a word for is its own to say.
        let end = offset.checked_add(total).filter(|end| *end < 1 << 62)?;
        if total == 0 || self.is_over.load(Ordering::SeqCst) {
            return None;
        }
        let most = MOST as u64;
        let thread = thread_number();
        let mut lens = [0; PLACES];
        // Requests that were sent and answered, the offset of the next one, bytes that are done.
        let (mut sent, mut answered, mut at, mut done) = (0, 0, offset, 0);
        // Behind the end of the file, an error and a refusal nothing counts.
        let (mut goes_on, mut error, mut is_refused) = (true, None, false);
        let mut has_grown = false;
        loop {
            while goes_on && at < end && sent - answered < PLACES {
                let room = if total <= most {
                    most
                } else {
                    most - at % most
                };
                let (place, len) = (sent % PLACES, room.min(end - at) as usize);
                before((place * MOST) as i64, len);
                let request = Request {
                    writes: written.is_some(),
                    maps: false,
                    follows: sent > 0,
                    thread,
                    offset: at,
                    len: len as u32,
                    place: place as u32,
                };
                lens[place] = len;
                self.or_over(self.line.send(&request.to_bytes()))?;
                sent += 1;
                at += len as u64;
            }
            if sent == answered {
                break;
            }
            let place = answered % PLACES;
            let mut bytes = [0; ANSWER];
            let got = self.or_over(self.line.receive(&mut bytes))?;
            answered += 1;
            if !goes_on {
                continue;
            }
            let asked = lens[place];
            let answer = Answer::from_bytes(&bytes);
            match answer {
                Answer::Done(len) | Answer::Grown(len)
                    if got == ANSWER && len as usize <= asked =>
                {
                    has_grown |= answer == Answer::Grown(len);
                    after((place * MOST) as i64, len as usize);
                    done += u64::from(len);
                    goes_on = len as usize == asked;
                    is_refused = written.is_some() && !goes_on;
                }
                Answer::Failed(errno) => {
                    error = Some(io::Error::from_raw_os_error(errno));
                    goes_on = false;
                }
                Answer::Done(_) | Answer::Grown(_) | Answer::Refused => {
                    self.is_over.store(true, Ordering::SeqCst);
                    (is_refused, goes_on) = (true, false);
                }
            }
        }
        if let Some(file) = written.filter(|_| has_grown) {
            // Who maps the file sees as much of it as the kernel knows.
            let _ = file.size();
        }
        (!is_refused).then_some(error.map_or(Ok(done), Err))
    }

    /// What a call on the connection returned; where it failed, the direct way is over.
    fn or_over<T>(&self, done: io::Result<T>) -> Option<T> {
        if done.is_err() {
            self.is_over.store(true, Ordering::SeqCst);
        }
        done.ok()
    }
}
