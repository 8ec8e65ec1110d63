//! What has arrived: in the inbox, and in the rings of those who have one to this rank.

use std::sync::Arc;

use margay_net_transport::{Head, Packet, SHORT, Sink, WHOLE};
use margay_sys_shm::inbox::{Inbox, Letter};
use margay_sys_shm::ring::{self, Consumer, LINE_BYTES};
use margay_sys_shm::segment::Segment;

use crate::line::{self, Form};

/// Packets taken from one sender before the next one has its turn.
const BURST: usize = 32;
/// Messages taken from the inbox before the rings have their turn.
const INBOX_BURST: usize = 256;

/// Spins for the next line of a packet before its sender counts as interrupted.
const SPINS: u32 = 200;

/// The receiving side of a rank.
pub(crate) struct Incoming {
    segment: Arc<Segment>,
    inbox: Inbox,
    pipes: Vec<Pipe>,
}

/// A ring to this rank.
struct Pipe {
    from: u32,
    ring: Consumer,
    /// A packet in several lines is put together here when its destination is not known.
    whole: Vec<u8>,
}

/// What became of the oldest message of the inbox.
enum Taken {
    /// It was handed over, or meant nothing: whom to wake.
    Message(u32),
    /// It announced a ring: whom to wake.
    OfRing(u32),
    /// A ring ends whose last packet is not complete.
    Later,
    None,
}

impl Incoming {
    pub(crate) fn new(segment: &Arc<Segment>, me: u32) -> Incoming {
        Incoming {
            segment: segment.clone(),
            inbox: Inbox::new(segment, me),
            pipes: Vec::new(),
        }
    }

    /// Polls up to `spins` times, less one, until there is something.
    #[inline]
    pub(crate) fn wait(&self, mut spins: u32) {
        // The loop that waits for a message: nothing in it but the loads that find one.
        while spins > 1
            && !self.inbox.has_next()
            && self.pipes.iter().all(|pipe| pipe.ring.awaits_next())
        {
            spins -= 1;
            margay_sys_os::cpu::pause();
        }
    }

    /// Hands over what has arrived, a bounded number of packets from each sender.
    #[inline]
    pub(crate) fn take_arrived(&mut self, sink: &mut dyn Sink) -> bool {
        let mut any = self.inbox.has_next() && self.take_letters(sink);
        for pipe in &mut self.pipes {
            for _ in 0..BURST {
                let Some(report) = pipe.take_packet(sink) else {
                    break;
                };
                any = true;
                if report {
                    self.segment.wake(pipe.from);
                }
            }
        }
        any
    }

    #[cold]
    fn take_letters(&mut self, sink: &mut dyn Sink) -> bool {
        let mut any = false;
        for _ in 0..INBOX_BURST {
            match self.take_letter(sink) {
                // The sender may wait for the cell.
                Taken::Message(from) => {
                    any = true;
                    self.segment.wake(from);
                }
                Taken::OfRing(from) => self.segment.wake(from),
                Taken::Later | Taken::None => break,
            }
        }
        any
    }

    fn take_letter(&mut self, sink: &mut dyn Sink) -> Taken {
        let mut chunk = None;
        let (mut is_of_ring, mut later) = (false, false);
        let pipes = &mut self.pipes;
        let taken = self.inbox.take(|letter| {
            if letter.is_of_ring() {
                is_of_ring = true;
                later = !of_ring(letter, pipes, sink);
                return !later;
            }
            let (_, len) = line::form_and_len(letter.top);
            let words = letter.words();
            let head = line::head(letter.top, &words[..7].try_into().expect("seven words"));
            if letter.has_chunk() {
                chunk = Some((letter.from, head, [words[2], words[3]], len));
                return false;
            }
            letter.payload(len).with(|payload| {
                let args = [0; 2];
                sink.packet(
                    letter.from,
                    Packet {
                        head,
                        args,
                        payload,
                    },
                );
            });
            true
        });
        if let Some((from, head, args, len)) = chunk {
            self.inbox.drain(len, |payload| {
                sink.packet(
                    from,
                    Packet {
                        head,
                        args,
                        payload,
                    },
                );
            });
            return Taken::Message(from);
        }
        match taken {
            Some(from) if is_of_ring => Taken::OfRing(from),
            Some(from) => Taken::Message(from),
            None if later => Taken::Later,
            None => Taken::None,
        }
    }
}

/// A ring begins or ends. Returns false when it ends and not all of it could be read.
fn of_ring(letter: &Letter<'_>, pipes: &mut Vec<Pipe>, sink: &mut dyn Sink) -> bool {
    if let Some(ring) = letter.opened() {
        pipes.push(Pipe {
            from: letter.from,
            ring,
            whole: Vec::new(),
        });
        return true;
    }
    let Some(end) = letter.closed() else {
        // A ring that has a consumer already: its sender does not keep the format.
        return true;
    };
    let Some(index) = pipes.iter().position(|pipe| pipe.from == letter.from) else {
        return true;
    };
    let pipe = &mut pipes[index];
    // What comes after it in the inbox has to wait for all of it.
    while pipe.ring.position() < end {
        if pipe.take_packet(sink).is_none() {
            return false;
        }
    }
    pipes.swap_remove(index).ring.leave();
    true
}

impl Pipe {
    /// Hands the next packet over, if all of it is here. Says then whether its sender was
    /// notified of room.
    #[inline]
    fn take_packet(&mut self, sink: &mut dyn Sink) -> Option<bool> {
        let (top, words) = self.ring.peek()?;
        let (form, len) = line::form_and_len(top);
        let head = line::head(top, &words);
        Some(match form {
            Form::Whole if len <= SHORT => {
                let payload = &ring::as_bytes(&words[2..])[..len];
                let args = [0; 2];
                sink.packet(
                    self.from,
                    Packet {
                        head,
                        args,
                        payload,
                    },
                );
                self.ring.release(1)
            }
            Form::Whole => {
                if !self.take_run(&words, head, len, sink) {
                    // The sender is still writing; come back for the rest.
                    return None;
                }
                self.ring
                    .release(1 + (len - SHORT).div_ceil(LINE_BYTES) as u64)
            }
            Form::Chunk => {
                let args = [words[2], words[3]];
                let from = self.from;
                self.ring.drain(len, |payload| {
                    sink.packet(
                        from,
                        Packet {
                            head,
                            args,
                            payload,
                        },
                    );
                });
                self.ring.release(1);
                true
            }
        })
    }

    /// Takes a packet of `len` bytes in several lines whose first line has these words: straight to
    /// where it belongs when that is known, else by way of memory of our own. Returns false when
    /// not all of it is here yet; the next call begins anew.
    #[inline]
    fn take_run(
        &mut self,
        words: &ring::LineWords,
        head: Head,
        len: usize,
        sink: &mut dyn Sink,
    ) -> bool {
        let len = len.min(WHOLE);
        let first = &ring::as_bytes(&words[2..])[..SHORT];
        if let Some(place) = sink.destination(self.from, &head, len)
            && (place.exclusive || self.ring.has_run(len - SHORT))
        {
            let mem = place.mem;
            let complete = mem.with_bytes_mut(place.offset, len, |to| self.copy(first, to));
            if complete {
                sink.landed(self.from, &head, len);
            }
            return complete;
        }
        let mut whole = std::mem::take(&mut self.whole);
        whole.resize(WHOLE, 0);
        let complete = self.copy(first, &mut whole[..len]);
        if complete {
            let args = [0; 2];
            let payload = &whole[..len];
            sink.packet(
                self.from,
                Packet {
                    head,
                    args,
                    payload,
                },
            );
        }
        self.whole = whole;
        complete
    }

    /// Copies a packet into `to` as far as it has arrived. Since the sender is writing it right
    /// now, a few spins are well spent before giving up.
    #[inline]
    fn copy(&self, first: &[u8], to: &mut [u8]) -> bool {
        let (start, rest) = to.split_at_mut(SHORT);
        start.copy_from_slice(first);
        let mut done = 0;
        for _ in 0..SPINS {
            done = self.ring.copy_run(rest, done);
            if done == rest.len() {
                return true;
            }
        }
        false
    }
}
