//! How requests end for who asks: done or not, the outcome, what is waited for.

use margay_core_registry::detail::Unexpected;

use super::*;

impl Engine {
    /// Whether a request has ended. A request that is gone has.
    #[must_use]
    #[inline]
    pub fn is_done(&self, id: ReqId) -> bool {
        let over = |r: &Request| r.done || r.kept_bytes != 0 || self.state.is_stalled(r);
        self.state.requests.get(id).is_none_or(over)
    }

    /// Returns the outcome of a request that has ended; the request stays.
    #[must_use]
    pub fn look(&self, id: ReqId) -> Option<Outcome> {
        let request = self.state.requests.get(id)?;
        if request.done {
            return Some(request.outcome);
        }
        if request.kept_bytes != 0 {
            // It is over for the program; the message goes on.
            return Some(Outcome::default());
        }
        let failed = if request.lost {
            Failed::Process
        } else if self.state.is_stalled(request) {
            Failed::Pending
        } else {
            return None;
        };
        Some(Outcome {
            failed: Some(failed),
            ..Outcome::default()
        })
    }

    /// Returns the outcome of a request that has ended; the request is gone then.
    #[inline]
    pub fn take(&mut self, id: ReqId) -> Option<Outcome> {
        let request = self.state.requests.get(id)?;
        if !request.done {
            return self.take_failed(id);
        }
        let outcome = request.outcome;
        self.state.note_received(id.index);
        self.state.requests.discard(id.index);
        Some(outcome)
    }

    /// As [`take`](Self::take), of a request that is not done.
    fn take_failed(&mut self, id: ReqId) -> Option<Outcome> {
        let outcome = self.look(id)?;
        // One that is stalled stays. A send of which the message is kept goes on. Of those that are
        // lost, a receive vanishes when its message is here; a send that was offered may never be
        // answered.
        if let Some(request) = self.state.requests.get_mut(id) {
            let goes_on = request.kept_bytes != 0;
            let is_receive = matches!(request.kind, Kind::Receive(_));
            request.detached = goes_on || request.lost && is_receive;
        }
        Some(outcome)
    }

    /// Returns the receive at a place that [`irecv_named`](Self::irecv_named) was given a word for,
    /// if `is_it` says yes to its key: the key, the word, and the bytes that it has room for.
    #[must_use]
    #[inline]
    pub fn named(&self, index: u32, is_it: impl Fn(ReqId) -> bool) -> Option<(ReqId, u32, u64)> {
        let key = self.state.requests.key_at(index)?;
        let Some(Request {
            kind: Kind::Receive(receive),
            detached: false,
            ..
        }) = self.state.requests.look(index)
        else {
            return None;
        };
        (receive.word != 0 && is_it(key)).then(|| (key, receive.word, receive.data.size()))
    }

    /// Returns the call site that posted a receive which [`named`](Self::named) finds; 0 for
    /// unknown.
    #[must_use]
    pub fn posted_at(&self, id: ReqId) -> u16 {
        match self.state.requests.get(id).map(|request| &request.kind) {
            Some(Kind::Receive(receive)) => receive.site,
            _ => 0,
        }
    }

    /// Takes the outcome of a receive that [`named`](Self::named) finds, when it has ended without
    /// a fault of any kind.
    #[inline(always)]
    pub fn take_faultless(&mut self, index: u32, is_it: impl Fn(ReqId) -> bool) -> Option<Outcome> {
        let (key, ..) = self.named(index, is_it)?;
        let request = self.state.requests.get(key)?;
        let outcome = request.outcome;
        if !request.done || !outcome.is_faultless() {
            return None;
        }
        self.state.note_received(index);
        self.state.requests.discard(index);
        Some(outcome)
    }

    /// Nobody will ask for the outcome; the request goes on and then vanishes.
    pub fn detach(&mut self, id: ReqId) {
        if let Some(request) = self.state.requests.get_mut(id) {
            if request.done {
                self.state.requests.discard(id.index);
            } else {
                request.detached = true;
            }
        }
    }

    /// Returns the messages between ranks of a program that are here and that no receive matches:
    /// `most` kinds, and how many are of further kinds.
    #[must_use]
    pub fn unexpected(&self, most: usize) -> (Vec<Unexpected>, u32) {
        let mut kinds: Vec<Unexpected> = Vec::new();
        let mut more = 0;
        for message in self.state.messages.iter() {
            let Message { envelope, from, .. } = message;
            // Others are of collective operations and of partitions.
            if !envelope.context.is_multiple_of(2) || envelope.context > i32::MAX as u32 {
                continue;
            }
            let (tag, context) = (envelope.tag as i32, envelope.context);
            let same = |k: &&mut Unexpected| (k.from, k.tag, k.context) == (*from, tag, context);
            if let Some(kind) = kinds.iter_mut().find(same) {
                kind.messages += 1;
            } else if kinds.len() < most {
                kinds.push(Unexpected {
                    from: *from,
                    tag,
                    context,
                    messages: 1,
                });
            } else {
                more += 1;
            }
        }
        (kinds, more)
    }

    /// Returns what somebody waits for who goes on when one of these requests has ended.
    #[must_use]
    pub fn pending_one_of(&self, ids: &[ReqId]) -> Option<Pending> {
        let pending: Vec<Pending> = ids.iter().filter_map(|&id| self.pending(id)).collect();
        let send = pending.iter().find_map(|pending| match pending {
            Pending::Send(to, ..) => Some(*to),
            _ => None,
        });
        match &pending[..] {
            [] => None,
            [one] => Some(*one),
            several if several.contains(&Pending::Elsewhere) => Some(Pending::Elsewhere),
            _ => Some(Pending::OneOf(send)),
        }
    }

    /// Returns what a request waits for; none when it has ended.
    #[must_use]
    pub fn pending(&self, id: ReqId) -> Option<Pending> {
        let request = self.state.requests.get(id).filter(|r| !r.done)?;
        Some(match &request.kind {
            Kind::Send(send) if self.state.lacks_room_to_keep(id) => {
                Pending::FullSend(send.to, send.envelope.tag, send.envelope.context)
            }
            Kind::Send(send) => Pending::Send(send.to, send.envelope.tag, send.envelope.context),
            Kind::Receive(r) => Pending::Receive(r.from, r.pattern.tag(), r.pattern.context),
            Kind::Collective(None) => Pending::Elsewhere,
            Kind::Collective(Some(execution)) => {
                let peer = execution.children().find_map(|child| {
                    match self.state.requests.get(child).filter(|r| !r.done)?.kind {
                        Kind::Send(ref send) => Some(send.to),
                        Kind::Receive(ref receive) => receive.from,
                        Kind::Collective(_)
                        | Kind::Task(_)
                        | Kind::Promise(..)
                        | Kind::Exchange(_) => None,
                    }
                });
                Pending::Collective(peer, execution.context())
            }
            Kind::Task(task) => return task.as_ref().map(|task| task.pending()),
            Kind::Promise(from, context) => Pending::Collective(Some(*from), *context),
            Kind::Exchange(context) => Pending::Collective(None, *context),
        })
    }
}
