//! Long messages that their receiver reads out of the sender's memory, where the provider can.
//!
//! | step | |
//! | --- | --- |
//! | offer | the sender registers the memory; the words of the offer name it |
//! | accept | the receiver registers its own, and reads piece by piece |
//! | end | the receiver says so in a packet ([`TAKEN`]), and both give their memory back |
//!
//! A read that fails is none: the message goes as bytes then. Memory into which something is read
//! is not given back before that is over, also when its sender has died.

use margay_net_tcp::frame::{self, FRAGMENT_HEAD, HEAD};
use margay_net_transport::{Advance, Head, Ticket};
use margay_sys_os::user::Mem;

use crate::Ofi;
use crate::message::TAKEN;
use crate::peer::State;

/// The first word of an offer has this number, and the sender's ticket above.
const BY_READING: u64 = 1;
/// A provider that has not ended a read from a rank that has died for so long is not waited for:
/// the endpoint is closed, which ends it. In nanoseconds.
const LETS_GO_NS: u64 = 10_000_000_000;

/// Reads in a row that have failed, after which nothing is read any more.
const MOST_FAILURES: u32 = 4;

/// A copy on one side.
pub(crate) enum Copy {
    /// Another rank reads from here.
    Give {
        to: u32,
        region: usize,
        is_taken: bool,
    },
    /// This rank reads from another one's memory.
    Take(Take),
}

pub(crate) struct Take {
    from: u32,
    /// Where to: a region of `len` bytes.
    region: usize,
    len: usize,
    /// How the other one's memory is called, and where it begins.
    key: u64,
    address: u64,
    /// Its ticket.
    theirs: u32,
    /// Bytes for which a read has begun.
    begun: usize,
    has_failed: bool,
}

impl Ofi {
    fn enter(&mut self, copy: Copy) -> Ticket {
        let at = self.copies.iter().position(Option::is_none);
        let at = at.unwrap_or_else(|| {
            self.copies.push(None);
            self.copies.len() - 1
        });
        self.copies[at] = Some(copy);
        Ticket(at as u32)
    }

    pub(crate) fn offer_memory(
        &mut self,
        to: u32,
        from: &Mem,
        offset: i64,
        len: u64,
    ) -> Option<(Ticket, [u64; 3])> {
        let is_gone = matches!(self.peers[to as usize].state, State::Gone);
        if !self.reads() || is_gone || !from.covers(offset, len as usize) {
            return None;
        }
        // A provider that refuses this memory may take other memory.
        let offered = self.endpoint.offer(from, offset, len as usize).ok()?;
        let ticket = self.enter(Copy::Give {
            to,
            region: offered.region,
            is_taken: false,
        });
        let first = BY_READING | u64::from(ticket.0) << 32;
        Some((ticket, [first, offered.key, offered.address]))
    }

    pub(crate) fn accept_memory(
        &mut self,
        from: u32,
        words: [u64; 3],
        into: &Mem,
        offset: i64,
        len: u64,
    ) -> Option<Ticket> {
        let [first, key, address] = words;
        let is_known = first & u64::from(u32::MAX) == BY_READING;
        let is_up = matches!(self.peers[from as usize].state, State::Up(_));
        if !self.reads() || !is_known || !is_up || !into.covers(offset, len as usize) {
            return None;
        }
        let len = len as usize;
        let region = self.endpoint.prepare(into, offset, len).ok()?;
        Some(self.enter(Copy::Take(Take {
            from,
            region,
            len,
            key,
            address,
            theirs: (first >> 32) as u32,
            begun: 0,
            has_failed: false,
        })))
    }

    pub(crate) fn advance_copy(&mut self, ticket: Ticket) -> Advance {
        let step = match self.copies.get(ticket.0 as usize) {
            Some(Some(Copy::Give { is_taken, .. })) => match is_taken {
                true => Advance::Done,
                false => Advance::Pending(false),
            },
            Some(Some(Copy::Take(_))) => self.read_on(ticket.0 as usize),
            _ => return Advance::Done,
        };
        if !matches!(step, Advance::Pending(_)) {
            self.end_copy(ticket);
        }
        step
    }

    /// Reads on, and says when all has been read.
    fn read_on(&mut self, at: usize) -> Advance {
        let Some(Copy::Take(take)) = &mut self.copies[at] else {
            return Advance::Done;
        };
        let mut any = false;
        while take.begun < take.len
            && !take.has_failed
            && let State::Up(peer) = self.peers[take.from as usize].state
        {
            let place = (take.region, take.begun, take.len - take.begun);
            let source = (take.key, take.address.wrapping_add(take.begun as u64));
            match self.endpoint.read(place, peer, source) {
                Ok(Some(len)) => take.begun += len,
                Ok(None) => break,
                Err(_) => take.has_failed = true,
            }
            any = true;
        }
        if self.endpoint.is_read_into(take.region) {
            return Advance::Pending(any);
        }
        if take.has_failed || !matches!(self.peers[take.from as usize].state, State::Up(_)) {
            self.failures += 1;
            return Advance::Refused;
        }
        if take.begun < take.len {
            return Advance::Pending(any);
        }
        self.failures = 0;
        let (from, theirs) = (take.from, take.theirs);
        let head = Head {
            kind: TAKEN,
            word: theirs,
            ..Head::default()
        };
        let mut bytes = [0; FRAGMENT_HEAD];
        let len = frame::encode(&mut bytes, head, None, 0);
        let mut fill = |to: &mut [u8]| to.copy_from_slice(&bytes[..len]);
        match self.put(from, HEAD, &mut fill) {
            true => Advance::Done,
            false => Advance::Pending(any),
        }
    }

    /// A read into a region is over, with the system's number for why it has failed, or 0.
    pub(crate) fn has_read(&mut self, region: usize, errno: i32) {
        if errno == 0 {
            return;
        }
        for copy in self.copies.iter_mut().flatten() {
            if let Copy::Take(take) = copy
                && take.region == region
            {
                take.has_failed = true;
            }
        }
    }

    /// A rank has read all that was offered to it with a ticket.
    pub(crate) fn was_taken(&mut self, by: u32, ticket: u32) {
        if let Some(Some(Copy::Give { to, is_taken, .. })) = self.copies.get_mut(ticket as usize)
            && *to == by
        {
            *is_taken = true;
        }
    }

    /// Gives the memory of a copy back, into which nothing may be read.
    fn end_copy(&mut self, ticket: Ticket) {
        let copy = self.copies.get_mut(ticket.0 as usize);
        match copy.and_then(Option::take) {
            Some(Copy::Give { region, .. } | Copy::Take(Take { region, .. })) => {
                self.endpoint.release(region);
            }
            None => {}
        }
    }

    /// Gives up a copy: what is under way is waited for, since its memory goes back to the program.
    /// Its sender has died; the provider finds that out, or is closed.
    ///
    /// # Panics
    /// When the provider does not close: the program's memory is not safe from it.
    pub(crate) fn give_up_copy(&mut self, ticket: Ticket) {
        if let Some(Some(Copy::Take(take))) = self.copies.get(ticket.0 as usize) {
            let (region, began) = (take.region, self.clock.now_ns());
            while self.endpoint.is_read_into(region) {
                self.collect();
                if self.clock.now_ns().saturating_sub(began) > LETS_GO_NS {
                    let provider = self.endpoint.provider().to_owned();
                    assert!(
                        self.endpoint.shut(),
                        "libfabric's provider {provider} does not let go of this rank's memory"
                    );
                    for copy in self.copies.iter_mut().flatten() {
                        if let Copy::Take(take) = copy {
                            take.has_failed = true;
                        }
                    }
                }
            }
        }
        self.end_copy(ticket);
    }

    fn reads(&self) -> bool {
        self.endpoint.reads() && self.failures < MOST_FAILURES
    }

    /// Whether memory is read here or from here.
    pub(crate) fn copies(&self) -> bool {
        self.copies.iter().any(Option::is_some)
    }
}
