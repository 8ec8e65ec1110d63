//! The transport between ranks of one machine, over the job's shared segment.
//!
//! | size | way |
//! | --- | --- |
//! | up to 40 bytes | one cache line of the pair's ring ([`margay_sys_shm::ring`]) |
//! | up to 4 KiB | a run of lines of the ring, read while they are being written |
//! | longer, in fragments | chunks of the sender's pool ([`margay_sys_shm::pool`]), both sides copying at the same time |
//! | direct, buffer in the arena | the receiver copies once from the sender's arena |
//! | direct, any buffer | cross-memory attach, parts claimed by both sides ([`margay_sys_shm::transfer`]) |
//!
//! A pair's ring is made the first time that the pair talks, and a rank polls the rings of the
//! ranks that have talked to it, as the SP2 kept a list of its active pipes (Snir et al., IBM
//! Systems Journal 34(2), 1995): memory and polling grow with the pairs that are active.

#![forbid(unsafe_code)]

mod direct;
mod line;
mod platform;
mod wake_up;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use margay_net_transport::{
    Advance, Head, Packet, SHORT, Sink, Thresholds, Ticket, Transport, WHOLE,
};
use margay_sys_os::event_count;
use margay_sys_os::user::Mem;
use margay_sys_shm::pool::{self, Pool};
use margay_sys_shm::ring::{self, Consumer, LINE_BYTES, Producer};
use margay_sys_shm::segment::Segment;

use direct::Direct;
use line::Form;
use wake_up::ShmWakeUp;

pub use platform::{SegmentPeers, platform};

/// Packets taken from one sender before the next one has its turn.
const BURST: usize = 32;

/// Spins for the next line of a packet before its sender counts as interrupted.
const SPINS: u32 = 200;

/// One rank's end of the shared segment.
pub struct Shm {
    segment: Arc<Segment>,
    me: u32,
    outgoing: Vec<Option<Producer>>,
    incoming: Vec<Incoming>,
    /// Entries of the list of senders that were looked at.
    welcomed: u32,
    /// Those of them that were not complete.
    holes: Vec<u32>,
    pool: Option<Pool>,
    direct: Direct,
}

struct Incoming {
    from: u32,
    ring: Consumer,
    /// A packet in several lines is put together here when its destination is not known.
    whole: Vec<u8>,
}

impl Shm {
    /// Returns the transport of rank `me` over `segment`.
    ///
    /// # Panics
    /// When `me` is not a rank of the segment.
    #[must_use]
    pub fn new(segment: &Arc<Segment>, me: u32, thresholds: Arc<Thresholds>) -> Shm {
        assert!(me < segment.ranks(), "rank {me} of {}", segment.ranks());
        event_count::register();
        Shm {
            segment: segment.clone(),
            me,
            outgoing: (0..segment.ranks()).map(|_| None).collect(),
            incoming: Vec::new(),
            welcomed: 0,
            holes: Vec::new(),
            pool: None,
            direct: Direct::new(segment, me, thresholds),
        }
    }

    /// Returns the producer of the pipe to `to`; makes it at the first use. None when the segment's
    /// address space is used up.
    #[inline]
    fn producer(&mut self, to: u32) -> Option<&mut Producer> {
        if self.outgoing[to as usize].is_none() {
            self.connect(to);
        }
        self.outgoing[to as usize].as_mut()
    }

    #[cold]
    fn connect(&mut self, to: u32) {
        if let Some((producer, place)) = Producer::create(&self.segment) {
            self.outgoing[to as usize] = Some(producer);
            self.segment.senders(to).announce(self.me, place);
        }
    }

    /// Opens the rings of the ranks that have begun to send since the last call.
    #[cold]
    fn welcome(&mut self) {
        let senders = self.segment.senders(self.me);
        let mut places = std::mem::take(&mut self.holes);
        // One reading of the length for both, or an entry made between two would never be looked at.
        let len = senders.len();
        places.extend(self.welcomed..len);
        self.welcomed = len;
        for place in places {
            let sender = senders.sender(place);
            let ring = sender.and_then(|(_, place)| Consumer::open(&self.segment, place));
            match (sender, ring) {
                (Some((from, _)), Some(ring)) => self.incoming.push(Incoming {
                    from,
                    ring,
                    whole: Vec::new(),
                }),
                // It is being entered, or the rank that entered it died meanwhile.
                _ => self.holes.push(place),
            }
        }
    }

    /// Hands over what has arrived, up to a burst from each sender.
    fn take_arrived(&mut self, sink: &mut dyn Sink) -> bool {
        if self.counter().load(Ordering::Relaxed) != self.welcomed || !self.holes.is_empty() {
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
                        let payload = &ring::as_bytes(&words[2..])[..len];
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
                        if !incoming.take_run(&words, head, len, sink) {
                            // The sender is still writing; come back for the rest.
                            break;
                        }
                        incoming
                            .ring
                            .release(1 + (len - SHORT).div_ceil(LINE_BYTES) as u64)
                    }
                    Form::Chunk => {
                        let args = [words[2], words[3]];
                        let from = incoming.from;
                        incoming.ring.drain(len, |payload| {
                            sink.packet(
                                from,
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
                    self.segment.wake(incoming.from);
                }
            }
        }
        any
    }

    #[inline]
    fn wake(&self, of: u32) {
        self.segment.wake(of);
    }

    fn counter(&self) -> &AtomicU32 {
        self.segment.senders(self.me).counter()
    }
}

impl Incoming {
    /// Takes a packet of `len` bytes in several lines whose first line has these words: straight to
    /// where it belongs when that is known, else by way of memory of our own. Returns false when not
    /// all of it is here yet; the next call begins anew.
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
        let top = line::top(head.kind, Form::Whole, payload.len());
        let Some(ring) = self.producer(to) else {
            return false;
        };
        let sent = if payload.len() <= SHORT {
            ring.push(top, |words| line::whole(words, head, payload))
        } else {
            let first = |words: &mut ring::LineWords| line::whole(words, head, payload);
            ring.push_run(top, first, &payload[SHORT..])
        };
        if sent {
            self.wake(to);
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
        let words = line::in_chunk(head, args);
        let ring = self.outgoing[to as usize].as_mut().expect("it has room");
        let top = line::top(head.kind, Form::Chunk, len);
        let sent = ring.push_chunk(top, words, pool, chunk, to);
        self.wake(to);
        sent
    }

    fn fragment(&self, remaining: u64) -> usize {
        // Two and more fragments, so that both sides copy at the same time, each big enough that
        // its line costs nothing beside it.
        let part = (remaining / 4).next_multiple_of(4096);
        part.clamp(line::LEAST_CHUNK, pool::CHUNK as u64)
            .min(remaining) as usize
    }

    fn poll(&mut self, sink: &mut dyn Sink, spins: u32) -> bool {
        // The loop that waits for a message: nothing in it but the loads that find one.
        let mut spins = spins;
        while spins > 1
            && self.counter().load(Ordering::Relaxed) == self.welcomed
            && self.incoming.iter().all(|i| i.ring.awaits_next())
        {
            spins -= 1;
            margay_sys_os::cpu::pause();
        }
        self.take_arrived(sink)
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

    fn alloc_shared(&mut self, bytes: u64) -> Option<usize> {
        self.direct.arena.alloc(bytes)
    }

    fn free_shared(&mut self, address: usize) -> bool {
        self.direct.arena.free(address)
    }

    fn forget(&mut self, process: u32) {
        if let Some(pool) = &mut self.pool {
            pool.forget(process);
        }
    }
}

#[cfg(test)]
mod tests {
    use margay_net_transport::Destination;
    use margay_sys_shm::layout::Sizes;

    use super::*;

    const LEN: usize = SHORT + LINE_BYTES;

    /// Knows where packets go; `exclusive` tells whether another sender's may go there too.
    struct Place {
        mem: Mem,
        exclusive: bool,
        landed: bool,
    }

    impl Sink for Place {
        fn packet(&mut self, _: u32, packet: Packet<'_>) {
            self.mem.write(0, packet.payload);
        }

        fn destination(&mut self, _: u32, _: &Head, _: usize) -> Option<Destination> {
            Some(Destination {
                mem: self.mem.clone(),
                offset: 0,
                exclusive: self.exclusive,
            })
        }

        fn landed(&mut self, _: u32, _: &Head, _: usize) {
            self.landed = true;
        }
    }

    /// A place that another sender's packet may take first is not written before all bytes are here.
    #[test]
    fn a_part_of_a_packet_goes_to_exclusive_places_only() {
        for (exclusive, part) in [(true, 7), (false, 0)] {
            let sizes = Sizes {
                ranks: 2,
                heap_bytes: 1 << 20,
                arena_bytes: 1 << 21,
            };
            let segment = Arc::new(Segment::create(sizes).unwrap());
            let mut shm = Shm::new(&segment, 0, Arc::new(Thresholds::measured()));
            let (mut producer, pipe) = Producer::create(&segment).unwrap();
            segment.senders(0).announce(1, pipe);
            let head = Head {
                kind: 1,
                ..Head::default()
            };
            let payload = [7; LEN];
            let mut place = Place {
                mem: Mem::owned(LEN),
                exclusive,
                landed: false,
            };
            let first = |words: &mut ring::LineWords| line::whole(words, head, &payload);
            assert!(producer.push(line::top(1, Form::Whole, LEN), first));
            shm.poll(&mut place, 1);
            assert!(!place.landed);
            place.mem.with_bytes(0, LEN, |b| assert_eq!(b[0], part));
            assert!(producer.push(0, |words| *words = [0x0707_0707_0707_0707; 7]));
            shm.poll(&mut place, 1);
            assert!(place.landed);
            place.mem.with_bytes(0, LEN, |b| assert_eq!(b, payload));
        }
    }
}
