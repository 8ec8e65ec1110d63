//! What the engine does when a process dies or a context is revoked.
//!
//! Everything that needs a dead process ends with [`Failed::Process`], once what it sent completely
//! has been taken in: sends to it, receives from it, collectives of whose group it is. Receives
//! from any source stay, but stall: a wait for one reports [`Failed::Pending`] until the failure is
//! acknowledged.
//!
//! A revoked context ends what has not been matched in it with [`Failed::Revoked`]; what is being
//! moved goes on to its end, so that nobody writes to memory that its owner uses again. A message
//! that comes for such a context is dropped; its sender, if it waits, is answered with REFUSED. The
//! process that revokes sends REVOKE to all of the communicator, and each process that receives it
//! for the first time sends it to all again, so that all receive it even if the first one dies
//! meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use margay_sys_os::user::Mem;

use super::*;

/// Failures, revocations, and which processes are in which communicator.
#[derive(Default)]
pub(super) struct Recovery {
    /// Something in here matters for sends: a revoked communicator that is not freed.
    pub restricted: bool,
    /// Something is in here; may be read without holding the engine.
    failure_pending: Arc<AtomicBool>,
    dead: BTreeSet<u32>,
    /// Numbers of revoked communicators; kept, since messages for them may still come.
    revoked: BTreeSet<u32>,
    /// Members of communicators, by number.
    members: BTreeMap<u32, Vec<Arc<Group>>>,
    /// Contexts in which receives from any source stall.
    stalled: BTreeSet<u32>,
}

impl Recovery {
    pub(super) fn is_revoked(&self, context: u32) -> bool {
        !self.revoked.is_empty()
            && communicator(context).is_some_and(|number| self.revoked.contains(&number))
    }

    pub(super) fn is_stalled(&self, context: u32) -> bool {
        !self.stalled.is_empty() && self.stalled.contains(&context)
    }

    pub(super) fn is_dead(&self, process: u32) -> bool {
        !self.dead.is_empty() && self.dead.contains(&process)
    }
}

/// Beside its own two contexts a communicator has two with this bit: an even one, in which its
/// processes agree about what is left of it and which stays when it is revoked, and an odd one for
/// the partitions of messages, which goes with it.
const BESIDE: u32 = 1 << 31;
/// Numbers of communicators are below this, so that each has its contexts.
pub(super) const NUMBERS: u32 = BESIDE / 2;

/// Returns the number of the communicator with which a context is revoked.
fn communicator(context: u32) -> Option<u32> {
    let stays = context & BESIDE != 0 && context.is_multiple_of(2);
    (!stays).then_some((context & !BESIDE) / 2)
}

impl Engine {
    /// Set when somebody has died or a communicator was revoked.
    #[must_use]
    pub fn failure_pending(&self) -> &Arc<AtomicBool> {
        &self.state.recovery.failure_pending
    }

    /// Whether anybody has died or a communicator was revoked.
    #[must_use]
    #[inline]
    pub fn has_failures(&self) -> bool {
        self.state.recovery.failure_pending.load(Ordering::Relaxed)
    }

    /// Whether that process has died.
    #[must_use]
    pub fn is_dead(&self, process: u32) -> bool {
        self.state.recovery.is_dead(process)
    }

    /// Returns those that have died.
    #[must_use]
    pub fn dead(&self) -> Vec<u32> {
        self.state.recovery.dead.iter().copied().collect()
    }

    /// Whether the context is revoked.
    #[must_use]
    pub fn is_revoked(&self, context: u32) -> bool {
        self.state.recovery.is_revoked(context)
    }

    /// Why an operation of `members` in that context cannot be done, if it cannot.
    #[must_use]
    pub fn broken(&self, context: u32, members: &Group) -> Option<Failed> {
        let recovery = &self.state.recovery;
        if recovery.is_revoked(context) {
            return Some(Failed::Revoked);
        }
        if recovery.dead.is_empty() {
            return None;
        }
        let dead = recovery.dead.iter().any(|&p| members.rank(p).is_some());
        dead.then_some(Failed::Process)
    }

    /// As [`broken`](Self::broken), of a receive from any source or a probe of it.
    #[must_use]
    pub fn stalls(&self, context: u32, from: Option<u32>) -> Option<Failed> {
        let recovery = &self.state.recovery;
        if recovery.is_revoked(context) {
            return Some(Failed::Revoked);
        }
        match from {
            Some(process) => recovery.is_dead(process).then_some(Failed::Process),
            None => recovery.is_stalled(context).then_some(Failed::Pending),
        }
    }

    /// Enters the members of the communicator with this number.
    pub fn enter_members(&mut self, number: u32, members: Vec<Arc<Group>>) {
        let recovery = &mut self.state.recovery;
        let has = |p: &u32| members.iter().any(|group| group.rank(*p).is_some());
        if recovery.dead.iter().any(has) {
            recovery.stalled.insert(2 * number);
        }
        recovery.members.insert(number, members);
        if recovery.revoked.contains(&number) {
            recovery.restricted = true;
        }
    }

    /// The communicator with this number is freed.
    pub fn remove_members(&mut self, number: u32) {
        let recovery = &mut self.state.recovery;
        recovery.members.remove(&number);
        recovery.stalled.remove(&(2 * number));
        recovery.restricted = recovery
            .revoked
            .iter()
            .any(|n| recovery.members.contains_key(n));
    }

    /// The failures in the communicator with this number are acknowledged: receives from any source
    /// go on.
    pub fn acknowledge(&mut self, number: u32) {
        self.state.recovery.stalled.remove(&(2 * number));
    }

    /// A process has died: takes in what it sent, then ends what needs it.
    pub fn fail(&mut self, process: u32) {
        if process == self.state.me || self.state.recovery.is_dead(process) {
            return;
        }
        // Its last messages are in its pipe; each poll takes a bounded number of them.
        const SPINS: u32 = 4096;
        for _ in 0..SPINS {
            if !self.transport.poll(&mut self.state, 1) {
                break;
            }
            self.progress_rest();
        }
        let recovery = &mut self.state.recovery;
        recovery.dead.insert(process);
        recovery.failure_pending.store(true, Ordering::Relaxed);
        for (&number, members) in &recovery.members {
            if members.iter().any(|group| group.rank(process).is_some()) {
                recovery.stalled.insert(2 * number);
            }
        }
        let peer = &mut self.state.peers[process as usize];
        peer.queue.clear();
        peer.streams.clear();
        peer.controls.clear();
        peer.assembling = None;
        // So that nothing goes to it on the short way.
        peer.unmatched = u32::MAX;
        self.state.rendezvous.retain(|m| m.from != process);
        self.state.forget_late(process);
        for index in self.state.requests.indices() {
            self.fail_request(index, process);
        }
        self.transport.forget(process);
        self.state.ended += 1;
    }

    fn fail_request(&mut self, index: u32, process: u32) {
        let Some(request) = self.state.requests.at(index).filter(|r| !r.done) else {
            return;
        };
        let ends = match &mut request.kind {
            Kind::Send(send) if send.to == process && send.stage == SendStage::Sent => {
                return self.state.end(index);
            }
            Kind::Send(send) => send.to == process,
            Kind::Receive(receive) => receive.from == Some(process),
            Kind::Collective(None) => return,
            Kind::Collective(Some(execution)) => {
                if execution.has(process) {
                    execution.fail(Failed::Process);
                    // It ends when its own requests have.
                    self.abandon(index);
                }
                return;
            }
            Kind::Promise(from, _) => *from == process,
            // Progress ends those of a communicator that is broken.
            Kind::Task(_) | Kind::Exchange(_) => return,
        };
        if ends {
            self.give_up(index, Failed::Process);
        }
    }

    /// Ends a request that nothing more will come for.
    fn give_up(&mut self, index: u32, failed: Failed) {
        let copies = &mut self.state.copies;
        if let Some(at) = copies.iter().position(|copy| copy.request == index) {
            let copy = copies.swap_remove(at);
            self.transport.withdraw(copy.ticket);
        }
        let Some(request) = self.state.requests.at(index) else {
            return;
        };
        request.outcome.failed = Some(failed);
        if let Kind::Receive(receive) = &mut request.kind {
            receive.landing = false;
            if receive.total.is_none() {
                let pattern = receive.pattern;
                self.state.matching.withdraw(pattern, index);
                self.state.note_posted();
            }
        }
        self.state.end(index);
    }

    /// Cancels what a collective that cannot be completed has under way, as far as that is
    /// possible.
    fn abandon(&mut self, index: u32) {
        let Some(Request {
            kind: Kind::Collective(Some(execution)),
            ..
        }) = self.state.requests.at(index)
        else {
            return;
        };
        let children: Vec<ReqId> = execution.children().collect();
        for child in children {
            self.abandon_one(child);
        }
        self.state.ended += 1;
    }

    /// The same for one of its requests.
    pub(crate) fn abandon_one(&mut self, id: ReqId) {
        self.take_back(id);
        self.lose(id);
    }

    /// Lets go of a message between two live processes, of a collective that cannot be completed:
    /// the other process may have given up already. The entry stays, without the program's memory,
    /// so that whatever the other still says means nothing else.
    fn lose(&mut self, id: ReqId) {
        if self.state.kept_sends.bytes != 0 {
            self.state.release_kept(id.index);
        }
        let Some(request) = self.state.requests.get_mut(id).filter(|r| !r.done) else {
            return;
        };
        let nothing = |size: u64| Data::bytes(Mem::owned(size as usize), size);
        match &mut request.kind {
            // In pieces that the other's pipe takes in any case.
            Kind::Send(send) if matches!(send.stage, SendStage::Queued | SendStage::Eager) => {
                return;
            }
            Kind::Send(send) => {
                let to = send.to;
                self.state.peers[to as usize]
                    .streams
                    .retain(|&s| s != id.index);
            }
            Kind::Receive(receive) => {
                receive.data = nothing(receive.data.size());
                receive.walk = receive.data.walk();
                receive.landing = false;
            }
            _ => return,
        }
        request.kind = match std::mem::replace(&mut request.kind, Kind::Promise(u32::MAX, 0)) {
            receive @ Kind::Receive(_) => receive,
            _ => Kind::Promise(u32::MAX, 0),
        };
        request.lost = true;
        self.state.copies.retain(|copy| copy.request != id.index);
        self.state.rendezvous.retain(|m| m.request != id.index);
    }

    /// Revokes the communicator with this number: here, and by a message to all of its processes.
    pub fn revoke(&mut self, number: u32) {
        if !self.state.recovery.revoked.insert(number) {
            return;
        }
        self.state
            .recovery
            .failure_pending
            .store(true, Ordering::Relaxed);
        let members = self.state.recovery.members.get(&number).cloned();
        self.state.recovery.restricted |= members.is_some();
        let members: BTreeSet<u32> = members
            .iter()
            .flatten()
            .flat_map(|group| group.processes())
            .collect();
        for process in members {
            if process != self.state.me && !self.state.recovery.is_dead(process) {
                let peer = &mut self.state.peers[process as usize];
                peer.controls.push_back(Control::Revoke { number });
                self.state.list(process);
                self.push_peer(process);
            }
        }
        for index in self.state.requests.indices() {
            self.revoke_request(index, number);
        }
        // What has come for it and was not received: senders that wait for it are answered.
        for context in [2 * number, 2 * number + 1, BESIDE | (2 * number + 1)] {
            let pattern = Pattern::new(context, None, None);
            while let Some((_, message)) = self.state.matching.take(pattern) {
                for peer in &mut self.state.peers {
                    // The rest of it is dropped too.
                    let ours = |t: &mut Target| matches!(t, Target::Message(m) if *m == message);
                    peer.assembling.take_if(ours);
                }
                if let Some(message) = self.state.messages.remove(message) {
                    if message.number.is_some() {
                        self.state.peers[message.from as usize].kept -= 1;
                    }
                    self.state.refuse_message(&message);
                }
            }
        }
        self.state.ended += 1;
    }

    fn revoke_request(&mut self, index: u32, number: u32) {
        let Some(request) = self.state.requests.at(index).filter(|r| !r.done) else {
            return;
        };
        let within = |context: u32| communicator(context) == Some(number);
        match &mut request.kind {
            Kind::Receive(receive)
                if within(receive.pattern.context)
                    && receive.total.is_none()
                    && !receive.landing =>
            {
                self.give_up(index, Failed::Revoked);
            }
            Kind::Send(send)
                if within(send.envelope.context) && send.stage == SendStage::Queued =>
            {
                let queue = &mut self.state.peers[send.to as usize].queue;
                queue.retain(|&queued| queued != index);
                self.give_up(index, Failed::Revoked);
            }
            Kind::Collective(Some(execution)) if within(execution.context()) => {
                execution.fail(Failed::Revoked);
                self.abandon(index);
            }
            Kind::Promise(_, context) if within(*context) => self.give_up(index, Failed::Revoked),
            _ => {}
        }
    }

    /// Does what REVOKE and REFUSED packets have asked for.
    pub(super) fn after_news(&mut self) {
        while let Some(number) = self.state.revocations.pop() {
            self.revoke(number);
        }
        while let Some((from, index)) = self.state.refusals.pop() {
            let waits = matches!(
                self.state.requests.at(index),
                Some(Request {
                    done: false,
                    kind: Kind::Send(Send {
                        stage: SendStage::Offered(_) | SendStage::Unacknowledged,
                        to,
                        ..
                    }),
                    ..
                }) if *to == from
            );
            if waits {
                self.give_up(index, Failed::Revoked);
            }
        }
    }
}

impl State {
    /// A packet for a revoked context: it is dropped. Returns whether it is one.
    pub(super) fn refuse(&mut self, from: u32, head: Head, args: [u64; 2], payload: &[u8]) -> bool {
        if !self.recovery.is_revoked(head.context) {
            return false;
        }
        let (total, ack, body) = match head.kind {
            EAGER => (payload.len() as u64, head.word, Body::Bytes(Vec::new())),
            FIRST => {
                // The rest of it is dropped too.
                self.peers[from as usize].assembling = None;
                (args[0], head.word, Body::Bytes(Vec::new()))
            }
            RTS => {
                let sender = number(payload, 1);
                let words = [0; 3];
                (0, 0, Body::Rendezvous { sender, words })
            }
            _ => return false,
        };
        self.refuse_message(&Message {
            envelope: envelope(head),
            from,
            total,
            ack,
            number: None,
            body,
        });
        true
    }

    /// Tells the sender of a message that will not be received, if it waits; its credits go back.
    fn refuse_message(&mut self, message: &Message) {
        let Message {
            from, total, ack, ..
        } = *message;
        let sender = match message.body {
            Body::Rendezvous { sender, .. } => Some(sender as u32),
            Body::Fetched { .. } => {
                self.unfetch(from, total);
                None
            }
            _ => ack.checked_sub(1),
        };
        if let Some(sender) = sender
            && !self.recovery.is_dead(from)
        {
            let peer = &mut self.peers[from as usize];
            peer.controls.push_back(Control::Refused { sender });
            self.list(from);
        }
        if message.body.has_credit() {
            self.account(from, total, 0, true);
        }
    }
}
