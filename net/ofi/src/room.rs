//! Sending: packets into messages, and messages to the provider.

use crate::Ofi;
use crate::message::{self, BEFORE, Sender};
use crate::peer::{MOST_SENDING, MOST_WAITING, State, Waiting};

/// Where a packet goes.
enum Room {
    /// Behind the others of the last message that waits.
    Last,
    /// Into a message of its own, in this buffer.
    New(usize),
    /// Nowhere: its receiver is gone.
    Nowhere,
}

impl Ofi {
    /// Puts a packet of `len` bytes, which `fill` writes, into a message to a rank. Returns false
    /// where there is no room now.
    pub(crate) fn put(&mut self, to: u32, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        let room = self.room(to, len).or_else(|| {
            // Completions make room.
            self.collect();
            self.send_waiting(to);
            self.room(to, len)
        });
        let at = match room {
            None => return false,
            Some(Room::Nowhere) => {
                // The engine counts on it that a fragment is read.
                fill(&mut vec![0; len]);
                return true;
            }
            Some(Room::Last) => self.peers[to as usize].waiting.len() - 1,
            Some(Room::New(buffer)) => {
                let peer = &mut self.peers[to as usize];
                let len = BEFORE;
                peer.waiting.push_back(Waiting { buffer, len });
                if peer.waiting.len() == 1 && !self.queued.contains(&to) {
                    self.queued.push(to);
                }
                peer.waiting.len() - 1
            }
        };
        let waiting = &mut self.peers[to as usize].waiting[at];
        let end = waiting.len + len;
        fill(&mut self.endpoint.buffer(waiting.buffer)[waiting.len..end]);
        waiting.len = end;
        self.send_waiting(to);
        true
    }

    /// Whether a rank is known, or was; it is greeted where it is not. Until then the engine has
    /// what is sent, and knows who waits for it.
    pub(crate) fn is_met(&mut self, to: u32) -> bool {
        if matches!(self.peers[to as usize].state, State::Idle) {
            self.greet(to);
        }
        !matches!(self.peers[to as usize].state, State::Greeted)
    }

    /// Sends a message without packets, where none waits: the first of a pair.
    pub(crate) fn open(&mut self, to: u32) {
        if self.peers[to as usize].waiting.is_empty() {
            self.put(to, 0, &mut |_| {});
        }
    }

    fn room(&mut self, to: u32, len: usize) -> Option<Room> {
        let peer = &self.peers[to as usize];
        if let State::Gone = peer.state {
            return Some(Room::Nowhere);
        }
        match peer.waiting.back() {
            Some(last) if last.len + len <= message::LONGEST => return Some(Room::Last),
            _ if peer.waiting.len() >= MOST_WAITING => return None,
            _ => {}
        }
        // As many as all peers together may use, which are made when they are needed.
        let buffer = self.free.pop().or_else(|| self.add_buffer().ok());
        buffer.map(Room::New)
    }

    /// Lets the provider have the messages that wait for it.
    pub(crate) fn send_queued(&mut self) {
        for at in (0..self.queued.len()).rev() {
            if let Some(&rank) = self.queued.get(at) {
                self.send_waiting(rank);
            }
        }
    }

    /// Lets the provider have what waits for a rank, as far as it takes it.
    pub(crate) fn send_waiting(&mut self, to: u32) {
        let peer = &mut self.peers[to as usize];
        let State::Up(address) = peer.state else {
            return;
        };
        // The first message of a pair is one of the lower rank's.
        if self.me > to && peer.received == 0 {
            return;
        }
        let mut failed = None;
        while peer.broken.is_none()
            && peer.sending < MOST_SENDING
            && self.sending < self.endpoint.most_sends()
            && let Some(&Waiting { buffer, len }) = peer.waiting.front()
        {
            let of = Sender {
                from: self.me,
                token: peer.token,
                number: peer.sent,
            };
            message::begin(self.endpoint.buffer(buffer), &of);
            match self.endpoint.send(buffer, len, address) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
            peer.waiting.pop_front();
            peer.sending += 1;
            peer.sent += 1;
            self.sending += 1;
            self.goes_to[buffer] = Some(to);
        }
        if peer.waiting.is_empty() {
            self.queued.retain(|&rank| rank != to);
        }
        if let Some(error) = failed {
            self.doubt(to, error.raw_os_error().unwrap_or(crate::EPROTO));
        }
    }
}
