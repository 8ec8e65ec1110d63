//! The transport between ranks of one machine, over the job's shared segment.
//!
//! | size | way |
//! | --- | --- |
//! | up to 40 bytes | one cache line of the pair's ring ([`margay_sys::ring`]) |
//! | up to 6 KiB in one piece | the ring's byte area |
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

use margay_net_transport::{Advance, Bell, Head, Packet, Sink, Ticket, Transport};
use margay_sys::pool::{self, Place, Pool};
use margay_sys::ring::{self, Consumer, Producer};
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
            self.incoming.push(Incoming { from, ring });
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

impl Transport for Shm {
    fn me(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.segment.ranks()
    }

    #[inline]
    fn send_short(&mut self, to: u32, head: Head, payload: &[u8]) -> bool {
        let (words, used) = line::short(head, payload);
        let top = line::top(head.kind, Form::Short, payload.len());
        let Some(ring) = self.producer(to) else {
            return false;
        };
        let sent = ring.push(top, &words[..used]);
        if sent {
            self.ring_bell(to);
        }
        sent
    }

    fn send_long(
        &mut self,
        to: u32,
        head: Head,
        args: [u64; 2],
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        let sent = if len <= ring::MAX_FRAGMENT {
            let Some(ring) = self.producer(to) else {
                return false;
            };
            let Some(room) = ring.room(len) else {
                return false;
            };
            let words = line::in_ring(head, args, room);
            ring.push_with(
                line::top(head.kind, Form::Ring, len),
                &words,
                room,
                len,
                fill,
            )
        } else {
            if self.pool.is_none() {
                self.pool = Pool::create(&self.segment);
            }
            if self.producer(to).is_none_or(|ring| !ring.has_room()) {
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
            ring.push(line::top(head.kind, Form::Chunk, len), &words)
        };
        if sent {
            self.ring_bell(to);
        }
        sent
    }

    fn fragment(&self, remaining: u64) -> usize {
        if remaining <= line::ONE_PIECE {
            remaining as usize
        } else {
            // Two and more fragments, so that both sides copy at the same time, each big enough
            // that its line costs nothing beside it.
            let part = (remaining / 4).next_multiple_of(4096);
            part.clamp(line::LEAST_CHUNK, pool::CHUNK as u64)
                .min(remaining) as usize
        }
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> bool {
        if self.counter().load(Ordering::Relaxed) as usize != self.incoming.len() {
            self.welcome();
        }
        let mut any = false;
        for Incoming { from, ring } in &mut self.incoming {
            for _ in 0..BURST {
                let Some((top, words)) = ring.peek() else {
                    break;
                };
                any = true;
                let (form, len) = line::form_and_len(top);
                let head = line::head(top, &words);
                let told = match form {
                    Form::Short => {
                        let payload = &ring::as_bytes(&words[3..])[..len.min(40)];
                        let args = [0; 2];
                        sink.packet(
                            *from,
                            Packet {
                                head,
                                args,
                                payload,
                            },
                        );
                        ring.release(0)
                    }
                    Form::Ring => {
                        let (start, advance) = line::room_of(&words);
                        // A peer that breaks the format is as good as dead; what it says is dropped.
                        if let Some(payload) = ring.bytes(start, len) {
                            let args = [words[3], words[4]];
                            sink.packet(
                                *from,
                                Packet {
                                    head,
                                    args,
                                    payload,
                                },
                            );
                        }
                        ring.release(advance)
                    }
                    Form::Chunk => {
                        let place = Place {
                            bytes: words[5],
                            flag: words[6],
                        };
                        let args = [words[3], words[4]];
                        pool::drain(&self.segment, place, len, |payload| {
                            sink.packet(
                                *from,
                                Packet {
                                    head,
                                    args,
                                    payload,
                                },
                            );
                        });
                        ring.release(0);
                        true
                    }
                };
                if told {
                    self.segment.cell(*from).bell().ring();
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
