//! The transport between ranks of one machine, over the job's shared segment.
//!
//! | size | way |
//! | --- | --- |
//! | up to 40 bytes | one cache line of the pair's ring ([`margay_sys::ring`]) |
//! | up to 4 KiB | a run of lines of the ring, read while they are being written |
//! | longer, in fragments | chunks of the sender's pool ([`margay_sys::pool`]), both sides copying at the same time |
//! | direct, buffer in the arena | the receiver copies once from the sender's arena |
//! | direct, any buffer | cross-memory attach, parts claimed by both sides ([`margay_sys::transfer`]) |
//!
//! A pair's ring is made the first time that the pair talks, and a rank polls the rings of those
//! who have talked to it, as the SP2 kept a list of its active pipes (Snir et al., IBM Systems
//! Journal 34(2), 1995): memory and polling grow with the pairs that are active.

#![forbid(unsafe_code)]

mod bell;
mod direct;
mod line;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use margay_net_transport::{Advance, Bell, Head, Packet, SHORT, Sink, Ticket, Transport, WHOLE};
use margay_sys::pool::{self, Place, Pool};
use margay_sys::ring::{self, Consumer, LINE_BYTES, Producer};
use margay_sys::segment::Segment;
use margay_sys::user::Mem;

use bell::ShmBell;
use direct::Direct;
use line::Form;

pub use direct::Thresholds;

/// Packets taken from one sender before the next one has its turn.
const BURST: usize = 32;

/// One rank's end of the shared segment.
pub struct Shm {
    segment: Arc<Segment>,
    me: u32,
    outgoing: Vec<Option<Producer>>,
    incoming: Vec<Incoming>,
    pool: Option<Pool>,
    direct: Direct,
    bell: Arc<ShmBell>,
}

struct Incoming {
    from: u32,
    ring: Consumer,
    /// A packet in several lines, put together here.
    whole: Vec<u8>,
    /// Bytes of it that are here.
    done: usize,
}

impl Shm {
    /// The transport of rank `me` over `segment`.
    ///
    /// # Panics
    /// When `me` is not a rank of the segment.
    #[must_use]
    pub fn new(segment: &Arc<Segment>, me: u32, thresholds: Thresholds) -> Shm {
        assert!(me < segment.ranks(), "rank {me} of {}", segment.ranks());
        Shm {
            segment: segment.clone(),
            me,
            outgoing: (0..segment.ranks()).map(|_| None).collect(),
            incoming: Vec::new(),
            pool: None,
            direct: Direct::new(segment, me, thresholds),
            bell: Arc::new(ShmBell::new(segment, me)),
        }
    }

    /// `bytes` of zeroed memory that all ranks of the machine can reach; its address.
    pub fn alloc_shared(&mut self, bytes: u64) -> Option<usize> {
        self.direct.arena.alloc(bytes)
    }

    /// Frees what [`alloc_shared`](Self::alloc_shared) gave; false when it did not give that.
    pub fn free_shared(&mut self, address: usize) -> bool {
        self.direct.arena.free(address)
    }

    /// The producer of the pipe to `to`; makes it at the first use. None when the segment's address
    /// space is used up.
    #[inline]
    fn producer(&mut self, to: u32) -> Option<&mut Producer> {
        if self.outgoing[to as usize].is_none() {
            self.connect(to);
        }
        self.outgoing[to as usize].as_mut()
    }

    #[cold]
    fn connect(&mut self, to: u32) {
        if let Some((producer, offset)) = Producer::create(&self.segment) {
            self.outgoing[to as usize] = Some(producer);
            self.segment.inbox(to).announce(self.me, offset);
        }
    }

    /// Opens the rings of those who have begun to talk since the last look.
    #[cold]
    fn welcome(&mut self) {
        while let Some((from, offset)) = self
            .segment
            .inbox(self.me)
            .sender(self.incoming.len() as u32)
        {
            let Some(ring) = Consumer::open(&self.segment, offset) else {
                return;
            };
            self.incoming.push(Incoming {
                from,
                ring,
                whole: Vec::new(),
                done: 0,
            });
        }
    }

    #[inline]
    fn ring_bell(&self, of: u32) {
        self.segment.cell(of).bell().ring();
    }

    fn counter(&self) -> &AtomicU32 {
        self.segment.inbox(self.me).counter()
    }
}

impl Incoming {
    /// Puts the packet of `len` bytes together whose first line has these words. Returns whether
    /// all of it is here; if not, what is here is kept and the next call goes on.
    fn gather(&mut self, words: &ring::LineWords, len: usize) -> bool {
        let len = len.min(WHOLE);
        if self.done == 0 {
            self.whole.resize(WHOLE, 0);
            self.whole[..SHORT].copy_from_slice(ring::as_bytes(&words[3..]));
        }
        let rest = &mut self.whole[SHORT..len];
        self.done = self.ring.copy_run(rest, self.done);
        let complete = self.done == rest.len();
        if complete {
            self.done = 0;
        }
        complete
    }
}

impl Transport for Shm {
    fn me(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.segment.ranks()
    }

    #[inline]
    fn send(&mut self, to: u32, head: Head, payload: &[u8]) -> bool {
        assert!(payload.len() <= WHOLE, "{} bytes whole", payload.len());
        let (words, used) = line::whole(head, payload);
        let top = line::top(head.kind, Form::Whole, payload.len());
        let Some(ring) = self.producer(to) else {
            return false;
        };
        let sent = if payload.len() <= SHORT {
            ring.push(top, &words[..used])
        } else {
            ring.push_run(top, &words, &payload[SHORT..])
        };
        if sent {
            self.ring_bell(to);
        }
        sent
    }

    fn send_fragment(
        &mut self,
        to: u32,
        head: Head,
        args: [u64; 2],
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        if self.pool.is_none() {
            self.pool = Pool::create(&self.segment);
        }
        if self.producer(to).is_none_or(|ring| !ring.has_room(1)) {
            return false;
        }
        let Some(pool) = self.pool.as_mut() else {
            return false;
        };
        let Some(chunk) = pool.take() else {
            return false;
        };
        pool.fill(&chunk, len, fill);
        let place = pool.hand_over(chunk);
        let words = line::in_chunk(head, args, place);
        let ring = self.outgoing[to as usize].as_mut().expect("it has room");
        let sent = ring.push(line::top(head.kind, Form::Chunk, len), &words);
        self.ring_bell(to);
        sent
    }

    fn fragment(&self, remaining: u64) -> usize {
        // Two and more fragments, so that both sides copy at the same time, each big enough that
        // its line costs nothing beside it.
        let part = (remaining / 4).next_multiple_of(4096);
        part.clamp(line::LEAST_CHUNK, pool::CHUNK as u64)
            .min(remaining) as usize
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> bool {
        if self.counter().load(Ordering::Relaxed) as usize != self.incoming.len() {
            self.welcome();
        }
        let mut any = false;
        for incoming in &mut self.incoming {
            for _ in 0..BURST {
                let Some((top, words)) = incoming.ring.peek() else {
                    break;
                };
                let (form, len) = line::form_and_len(top);
                let head = line::head(top, &words);
                let told = match form {
                    Form::Whole if len <= SHORT => {
                        let payload = &ring::as_bytes(&words[3..])[..len];
                        let args = [0; 2];
                        sink.packet(
                            incoming.from,
                            Packet {
                                head,
                                args,
                                payload,
                            },
                        );
                        incoming.ring.release(1)
                    }
                    Form::Whole => {
                        if !incoming.gather(&words, len) {
                            // The sender is still writing; come back for the rest.
                            break;
                        }
                        let payload = &incoming.whole[..len];
                        let args = [0; 2];
                        sink.packet(
                            incoming.from,
                            Packet {
                                head,
                                args,
                                payload,
                            },
                        );
                        incoming
                            .ring
                            .release(1 + (len - SHORT).div_ceil(LINE_BYTES) as u64)
                    }
                    Form::Chunk => {
                        let place = Place {
                            bytes: words[5],
                            flag: words[6],
                        };
                        let args = [words[3], words[4]];
                        pool::drain(&self.segment, place, len, |payload| {
                            sink.packet(
                                incoming.from,
                                Packet {
                                    head,
                                    args,
                                    payload,
                                },
                            );
                        });
                        incoming.ring.release(1);
                        true
                    }
                };
                any = true;
                if told {
                    self.segment.cell(incoming.from).bell().ring();
                }
            }
        }
        any
    }

    fn offer(&mut self, to: u32, from: &Mem, offset: i64, len: u64) -> Option<(Ticket, [u64; 3])> {
        self.direct.offer(to, from, offset, len)
    }

    fn accept(
        &mut self,
        from: u32,
        words: [u64; 3],
        into: &Mem,
        offset: i64,
        len: u64,
    ) -> Option<Ticket> {
        self.direct.accept(from, words, into, offset, len)
    }

    fn advance(&mut self, ticket: Ticket) -> Advance {
        self.direct.advance(ticket)
    }

    fn withdraw(&mut self, ticket: Ticket) {
        self.direct.withdraw(ticket);
    }

    fn bell(&self) -> Arc<dyn Bell> {
        self.bell.clone()
    }
}
