//! Messages that are fetched before a receive asks for them.
//!
//! A sender without credits sends envelopes only, and a message's bytes when a receive has matched
//! its envelope. A receiver that falls behind many such messages would have them one by one, each
//! for a round trip; where ranks share cores, that is two changes of the running rank for each. So
//! when a receiver has taken most of what a sender sent eagerly, it asks for the next messages of
//! that sender in one go. They become unexpected messages like others, whose bytes go on coming.
//!
//! What is under way or here in this way counts less than credits would allow. Order, matching and
//! cancelling do not change: the envelope is where it was.

use std::collections::HashMap;

use super::*;
use crate::slab::Key;

/// In the number of a receiver's request, as DATA brings it back: it is an entry of
/// [`Fetches::under_way`].
const FETCH: u64 = 1 << 63;

/// Messages of one sender that are fetched at a time; half of them is asked for when half has been
/// received.
const MOST: u32 = 256;

pub(super) struct Fetches {
    under_way: Slab<Fetch>,
    senders: HashMap<u32, Late>,
}

impl Fetches {
    pub(super) fn new() -> Fetches {
        Fetches {
            under_way: Slab::new(),
            senders: HashMap::new(),
        }
    }
}

/// A message whose bytes have been asked for.
struct Fetch {
    to: Fetched,
    left: u64,
}

enum Fetched {
    Message(Key),
    Request(Key),
}

/// The messages of a sender whose envelopes came alone, though they are short.
#[derive(Default)]
struct Late {
    /// Not fetched, in the order of sending; some have been received.
    waiting: VecDeque<Key>,
    /// Fetched and not received.
    fetched: u32,
    fetched_bytes: u64,
}

impl State {
    /// The envelope of an unexpected message has come, with words that offer a direct copy or not.
    pub(super) fn note_late(&mut self, from: u32, message: u32, (total, words): (u64, [u64; 3])) {
        let is_short = total <= self.monitor.tuning.limits().eager;
        if words[0] == 0
            && is_short
            && let Some(key) = self.messages.key_at(message)
        {
            let waiting = &mut self.fetches.senders.entry(from).or_default().waiting;
            if waiting.len() == waiting.capacity() {
                // Before it grows: receives may have taken any of them.
                waiting.retain(|&key| self.messages.get(key).is_some());
                waiting.reserve(waiting.len() + 1);
            }
            waiting.push_back(key);
        }
    }

    /// A message of a sender has been received: if few more are here, some are fetched.
    #[inline]
    pub(super) fn fetch_more(&mut self, from: u32) {
        if !self.fetches.senders.is_empty() {
            self.fetch(from);
        }
    }

    #[cold]
    fn fetch(&mut self, from: u32) {
        let limits = self.monitor.tuning.limits();
        let few = limits.credits / 4;
        let Fetches { under_way, senders } = &mut self.fetches;
        let Some(sender) = senders.get_mut(&from) else {
            return;
        };
        let peer = &mut self.peers[from as usize];
        if peer.kept > few || sender.fetched > MOST / 2 {
            return;
        }
        let most = MOST.min(few);
        while sender.fetched < most && sender.fetched_bytes < limits.credit_bytes / 4 {
            let Some(key) = sender.waiting.pop_front() else {
                break;
            };
            let Some(message) = self.messages.get_mut(key) else {
                continue;
            };
            let (
                left,
                Body::Rendezvous {
                    sender: request, ..
                },
            ) = (message.total, &message.body)
            else {
                continue;
            };
            let to = Fetched::Message(key);
            // Of an empty message nothing will come.
            let fetch = (left > 0).then(|| under_way.insert(Fetch { to, left }).index);
            peer.controls.push_back(Control::Cts {
                sender: *request,
                receiver: FETCH | u64::from(fetch.unwrap_or(u32::MAX)),
            });
            message.body = Body::Fetched {
                fetch,
                bytes: Vec::with_capacity(left as usize),
            };
            sender.fetched += 1;
            sender.fetched_bytes += left;
        }
        if sender.fetched == 0 && sender.waiting.is_empty() {
            senders.remove(&from);
        }
        self.list(from);
    }

    /// A message that was fetched is received, or dropped.
    pub(super) fn unfetch(&mut self, from: u32, total: u64) {
        if let Some(sender) = self.fetches.senders.get_mut(&from) {
            sender.fetched = sender.fetched.saturating_sub(1);
            sender.fetched_bytes = sender.fetched_bytes.saturating_sub(total);
        }
    }

    /// What has still to come of a message goes to a receive.
    pub(super) fn fetch_for(&mut self, fetch: Option<u32>, receive: u32) {
        if let Some(fetch) = fetch.and_then(|index| self.fetches.under_way.at(index))
            && let Some(key) = self.requests.key_at(receive)
        {
            fetch.to = Fetched::Request(key);
        }
    }

    /// Bytes for the receiver's request with this number, which is a receive or a fetch.
    #[inline]
    pub(super) fn data_for(&mut self, receiver: u64, payload: &[u8]) {
        if receiver & FETCH == 0 {
            self.data(receiver as u32, payload);
        } else {
            self.fetched(receiver as u32, payload);
        }
    }

    #[cold]
    fn fetched(&mut self, index: u32, payload: &[u8]) {
        let Some(fetch) = self.fetches.under_way.at(index) else {
            return;
        };
        fetch.left = fetch.left.saturating_sub(payload.len() as u64);
        let is_complete = fetch.left == 0;
        match fetch.to {
            Fetched::Message(key) => {
                if let Some(message) = self.messages.get_mut(key)
                    && let Body::Fetched { bytes, .. } = &mut message.body
                {
                    bytes.extend_from_slice(payload);
                }
            }
            Fetched::Request(key) => {
                if self.requests.get(key).is_some() {
                    self.data(key.index, payload);
                }
            }
        }
        if is_complete {
            self.fetches.under_way.discard(index);
        }
    }

    /// A process has died: nothing more comes from it.
    pub(super) fn forget_late(&mut self, process: u32) {
        self.fetches.senders.remove(&process);
    }
}
