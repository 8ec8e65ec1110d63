//! Rendezvous: receives that met an offer, and the copies between two memories that come of it.

use super::*;

impl Engine {
    /// Answers senders that wait for a receive, and takes back offers that were declined.
    pub(super) fn after_match(&mut self) -> bool {
        if self.state.rendezvous.is_empty() && self.state.declined.is_empty() {
            return false;
        }
        while let Some(offered) = self.state.rendezvous.pop() {
            self.answer_rendezvous(offered);
        }
        while let Some(ticket) = self.state.declined.pop() {
            self.transport.withdraw(ticket);
        }
        true
    }

    fn answer_rendezvous(&mut self, offered: PendingRendezvous) {
        let PendingRendezvous {
            request: index,
            from,
            sender,
            words,
        } = offered;
        let Some(Request {
            kind: Kind::Receive(receive),
            ..
        }) = self.state.requests.at(index)
        else {
            return;
        };
        let wanted = receive.total.unwrap_or(0).min(receive.data.size());
        if words[0] != 0
            && let Some((mem, at)) = receive.data.dense()
            && let Some(ticket) = self.transport.accept(from, words, mem, at, wanted)
        {
            self.state.copies.push(Direct {
                ticket,
                request: index,
                receiving: Some((from, sender)),
            });
            if !self.is_helped {
                self.advance_copies();
            }
            return;
        }
        let empty = receive.total == Some(0);
        self.clear_to_send(index, from, sender);
        if empty {
            self.state.end(index);
        }
    }

    pub(super) fn advance_copies(&mut self) -> bool {
        let mut any = false;
        let mut at = 0;
        while at < self.state.copies.len() {
            let copy = &self.state.copies[at];
            let (ticket, index) = (copy.ticket, copy.request);
            match self.transport.advance(ticket) {
                Advance::Pending(moved) => {
                    any |= moved;
                    at += 1;
                }
                Advance::Done => {
                    any = true;
                    self.state.copies.swap_remove(at);
                    self.state.copied(index);
                }
                Advance::Refused => {
                    any = true;
                    let copy = self.state.copies.swap_remove(at);
                    if let Some((from, sender)) = copy.receiving {
                        self.clear_to_send(index, from, sender);
                    }
                }
            }
        }
        any
    }
}

impl State {
    /// A direct copy is complete on this side.
    pub(super) fn copied(&mut self, index: u32) {
        if let Some(Request {
            kind: Kind::Receive(receive),
            ..
        }) = self.requests.at(index)
        {
            receive.arrived = receive.total.unwrap_or(0);
        }
        self.end(index);
    }
}
