//! The ways to the other ranks: a ring to some of them, the inbox of each of the others.
//!
//! A rank has at most [`MOST`](margay_sys_shm::ring::MOST) rings. Its first partners get one each
//! with the first message; in most programs that is all. Where there are more partners than rings,
//! those to whom most is sent shall have them: a partner that has got [`HOT`] messages by its inbox
//! since its last try takes the ring to which least was sent lately, if that is little. The ring's
//! own messages are counted by its position, so a message in a ring costs nothing for this.
//!
//! "Lately" is measured in tries, not in time: the current period and the one before. A period ends
//! when a partner fails for the second time in it, so that each of several partners that are
//! equally busy had its try before the rings' counts begin anew.
//!
//! A ring that changes hands is announced in the inboxes ([`margay_sys_shm::inbox`]), which keeps
//! the order of messages. The former receiver leaves the ring when it has read what is in it; until
//! then the new one is reached by its inbox.

use std::sync::Arc;

use margay_net_transport::{Head, SHORT};
use margay_sys_shm::inbox::Outbox;
use margay_sys_shm::pool::Pool;
use margay_sys_shm::ring::{LineWords, Producer};
use margay_sys_shm::segment::Segment;

use crate::line::{self, Form};

/// Messages to a partner's inbox after which it tries to get a ring.
const HOT: u32 = 64;
/// Messages after which it checks whether a ring has become free meanwhile.
const LOOK: u32 = 8;
/// A ring with fewer lines than this in two periods may be taken from its partner.
const QUIET: u64 = 16;
/// Rings that may be in return at the same time: a former partner that computes does not
/// hold up the others.
const MOST_CLOSING: usize = 4;

/// What a partner has instead of a ring.
const INBOX: u8 = u8::MAX;

/// What is known of the way to a rank.
#[derive(Clone, Copy)]
struct Partner {
    /// Index of its ring, or [`INBOX`].
    ring: u8,
    /// Messages to its inbox.
    messages: u32,
    /// How many there were at its last try to get a ring.
    tried: u32,
    /// The period in which it failed to get one.
    failed: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Used,
    /// Its partner has been notified of its end, and may not have read all of it.
    Closing,
    Free,
}

struct Ring {
    producer: Producer,
    /// Whose it is, or was.
    to: u32,
    state: State,
    /// Where it was at the begin of the current period and of the one before.
    begin: u64,
    before: u64,
}

/// The sending side of a rank.
pub(crate) struct Outgoing {
    segment: Arc<Segment>,
    outbox: Outbox,
    partners: Vec<Partner>,
    rings: Vec<Ring>,
    /// How many there may be.
    most_rings: usize,
    /// Those that are not used.
    unused: usize,
    /// Numbers the periods.
    period: u32,
    pool: Option<Pool>,
}

impl Outgoing {
    pub(crate) fn new(segment: &Arc<Segment>, me: u32, most_rings: usize) -> Outgoing {
        let partner = Partner {
            ring: INBOX,
            messages: 0,
            tried: 0,
            failed: 0,
        };
        Outgoing {
            segment: segment.clone(),
            outbox: Outbox::new(segment, me).expect("a rank has one transport"),
            partners: vec![partner; segment.ranks() as usize],
            rings: Vec::new(),
            most_rings: most_rings.min(usize::from(INBOX)),
            unused: 0,
            period: 1,
            pool: None,
        }
    }

    /// Sends a packet in one piece. Returns false when there is no room.
    #[inline]
    pub(crate) fn send(&mut self, to: u32, head: Head, payload: &[u8]) -> bool {
        let top = line::top(head.kind, Form::Whole, payload.len());
        let Some(ring) = self.ring(to) else {
            return self.send_by_inbox(to, top, head, payload);
        };
        if payload.len() <= SHORT {
            ring.push(top, |words| line::whole(words, head, payload))
        } else {
            let first = |words: &mut LineWords| line::whole(words, head, payload);
            ring.push_run(top, first, &payload[SHORT..])
        }
    }

    #[cold]
    fn send_by_inbox(&mut self, to: u32, top: u32, head: Head, payload: &[u8]) -> bool {
        let sent = self.outbox.push(to, top, payload, |words| {
            [words[0], words[1]] = line::envelope(head);
        });
        self.count_message(to, sent);
        sent
    }

    fn count_message(&mut self, to: u32, sent: bool) {
        let messages = &mut self.partners[to as usize].messages;
        *messages = messages.wrapping_add(u32::from(sent));
    }

    /// Sends a fragment in a chunk, which `fill` fills. Returns false, without calling it, when
    /// there is no room.
    pub(crate) fn send_fragment(
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
        let has_room = match self.ring(to) {
            Some(ring) => ring.has_room(1),
            None => self.outbox.has_room(0),
        };
        if !has_room {
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
        let top = line::top(head.kind, Form::Chunk, len);
        let index = usize::from(self.partners[to as usize].ring);
        match self.rings.get_mut(index) {
            Some(ring) => ring.producer.push_chunk(top, words, pool, chunk, to),
            None => {
                let sent = self.outbox.push_chunk(to, top, words, pool, chunk);
                self.count_message(to, sent);
                sent
            }
        }
    }

    /// A peer has died: what it had of this rank's comes back, if its process is gone.
    pub(crate) fn forget(&mut self, peer: u32) {
        if let Some(pool) = &mut self.pool {
            pool.forget(peer);
        }
        self.outbox.forget(peer);
        for ring in &mut self.rings {
            let has_it = ring.to == peer && ring.state != State::Free;
            if has_it && ring.producer.restart_without(peer) {
                self.unused += usize::from(ring.state == State::Used);
                ring.state = State::Free;
                self.partners[peer as usize].ring = INBOX;
            }
        }
    }

    /// The ring to a partner. None where its inbox is the way.
    #[inline]
    fn ring(&mut self, to: u32) -> Option<&mut Producer> {
        let mut index = self.partners[to as usize].ring;
        if index == INBOX {
            index = self.find_ring(to)?;
        }
        Some(&mut self.rings[usize::from(index)].producer)
    }

    /// A ring for a partner without one, if it is to have one.
    #[cold]
    fn find_ring(&mut self, to: u32) -> Option<u8> {
        let partner = &mut self.partners[to as usize];
        let (messages, is_first) = (partner.messages, partner.messages == 0);
        if !is_first {
            let is_due = messages >= HOT && messages.is_multiple_of(LOOK);
            if !is_due || messages == partner.tried {
                return None;
            }
            partner.tried = messages;
        }
        if let Some(index) = self.take_unused() {
            return self.open(index, to);
        }
        if is_first && self.rings.len() < self.most_rings {
            self.rings.push(Ring {
                producer: Producer::create(&self.segment)?,
                to,
                state: State::Free,
                begin: 0,
                before: 0,
            });
            self.unused += 1;
            return self.open(self.rings.len() - 1, to);
        }
        if !is_first && messages.is_multiple_of(HOT) {
            self.close_quiet_ring(to);
        }
        None
    }

    /// A ring that nobody has.
    fn take_unused(&mut self) -> Option<usize> {
        if self.unused == 0 {
            return None;
        }
        let mut rings = self.rings.iter_mut();
        rings.position(|ring| {
            if ring.state == State::Closing && ring.producer.restart() {
                ring.state = State::Free;
            }
            ring.state == State::Free
        })
    }

    /// Gives a partner a ring that nobody has, if there is a cell to tell it.
    fn open(&mut self, index: usize, to: u32) -> Option<u8> {
        let ring = &mut self.rings[index];
        if !self.outbox.push_opened(to, &ring.producer) {
            return None;
        }
        self.unused -= 1;
        ring.to = to;
        ring.state = State::Used;
        // As if it had been busy: another one that is busy shall not take it before it was used.
        ring.begin = ring.producer.position().wrapping_sub(u64::from(HOT));
        ring.before = ring.begin;
        self.partners[to as usize].ring = index as u8;
        Some(index as u8)
    }

    /// Ends the ring of the partner to which least was sent, if that is little, for the sake of
    /// another one.
    fn close_quiet_ring(&mut self, to: u32) {
        if self.unused >= MOST_CLOSING {
            return;
        }
        let lately = |ring: &Ring| ring.producer.position().wrapping_sub(ring.before);
        let used = self.rings.iter_mut().filter(|r| r.state == State::Used);
        let Some(ring) = used.min_by_key(|ring| lately(ring)) else {
            return;
        };
        if lately(ring) < QUIET {
            let former = ring.to;
            if self.outbox.push_closed(former, &ring.producer) {
                ring.state = State::Closing;
                self.unused += 1;
                let partner = &mut self.partners[former as usize];
                (partner.ring, partner.messages, partner.tried) = (INBOX, 1, 0);
                self.segment.wake(former);
            }
            return;
        }
        let failed = &mut self.partners[to as usize].failed;
        if *failed == self.period {
            self.period = self.period.wrapping_add(1);
            for ring in &mut self.rings {
                ring.before = ring.begin;
                ring.begin = ring.producer.position();
            }
        }
        *failed = self.period;
    }
}

#[cfg(test)]
impl Outgoing {
    /// How many rings were made.
    pub(crate) fn rings(&self) -> usize {
        self.rings.len()
    }

    /// Whether a partner has one.
    pub(crate) fn has_ring(&self, to: u32) -> bool {
        self.partners[to as usize].ring != INBOX
    }
}
