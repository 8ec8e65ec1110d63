//! Messages: which send belongs to which receive, and which other one it could have been.
//!
//! Messages of one sender with one tag arrive in the order in which they were sent, and receives
//! take them in the order in which they were posted. So the n-th send of a sender, receiver and tag
//! belongs to the n-th receive that got such a message, once it is known of all earlier receives
//! what they got.

use std::collections::VecDeque;

use crate::checker::Checker;
use crate::finding::{Call, Finding, Kind};
use crate::objects::{Messages, Posted, Sent};
use crate::record::Record;
use crate::state::*;
use crate::takers::Come;
use crate::types::{Data, Mismatch};

/// Receives of any source that are remembered for the search for races.
const MOST_REMEMBERED: usize = 4096;

impl Messages {
    fn is_wanted(posted: &Posted, sent: &Sent) -> bool {
        posted.at == sent.to
            && (posted.source == MPI_ANY_SOURCE || posted.source == sent.from as i64)
            && (posted.tag == MPI_ANY_TAG || posted.tag == sent.tag)
    }
}

impl Checker {
    /// A process sends. Returns the number of its message; none when nothing is known of its
    /// communicator.
    pub(crate) fn send(
        &mut self,
        process: usize,
        call: Call,
        data: Data,
        to: i64,
        tag: i64,
        comm: u64,
    ) -> Option<usize> {
        let moment = self.processes[process].tick();
        let (id, own) = self.place(process, comm)?;
        let peers = self.comms[id].peers().len();
        let to = usize::try_from(to).ok().filter(|&to| to < peers)?;
        let messages = &mut self.comms[id].messages;
        if messages.is_unknown {
            return None;
        }
        let number = messages.next_sent;
        messages.next_sent += 1;
        let sent = Sent {
            call,
            data,
            from: own,
            to,
            tag,
            moment,
            taken_by: None,
        };
        messages.sent.insert(number, sent);
        messages
            .sends
            .entry((own, to, tag))
            .or_default()
            .push_back(number);
        self.pair(id, (own, to, tag));
        Some(number)
    }

    /// A call that was to send this message has failed.
    pub(crate) fn not_sent(&mut self, process: usize, comm: u64, number: usize) {
        let Some((id, own)) = self.place(process, comm) else {
            return;
        };
        let messages = &mut self.comms[id].messages;
        let key = messages.sent.get(&number).map(|s| (own, s.to, s.tag));
        let sends = key.and_then(|key| messages.sends.get_mut(&key));
        let place = (sends.as_ref()).and_then(|sends| sends.iter().position(|n| *n == number));
        match (sends, place) {
            (Some(sends), Some(place)) => {
                sends.remove(place);
                messages.sent.remove(&number);
            }
            // Which message a receive got instead is not known.
            _ => messages.is_unknown = true,
        }
    }

    /// A process posts a receive. Returns its number; none when nothing is known of its
    /// communicator.
    pub(crate) fn post(
        &mut self,
        process: usize,
        call: Call,
        data: Option<Data>,
        source: i64,
        tag: i64,
        comm: u64,
    ) -> Option<usize> {
        let (id, own) = self.place(process, comm)?;
        let peers = self.comms[id].peers().len();
        let is_any = source == MPI_ANY_SOURCE;
        if !is_any && !usize::try_from(source).is_ok_and(|s| s < peers) {
            return None;
        }
        let messages = &mut self.comms[id].messages;
        if messages.is_unknown {
            return None;
        }
        let number = messages.next_posted;
        messages.next_posted += 1;
        let got = (!is_any && tag != MPI_ANY_TAG).then_some((source as usize, tag));
        let posted = Posted {
            call,
            data,
            at: own,
            source,
            tag,
            got,
            is_gone: false,
            ended: None,
            message: None,
            is_kept: false,
        };
        messages.posted.insert(number, posted);
        messages.order.entry(own).or_default().push_back(number);
        self.advance(id, own);
        Some(number)
    }

    /// What a receive got is known. Its status: source, tag, bytes, whether it was cancelled.
    pub(crate) fn received(&mut self, process: usize, comm: u64, number: usize, status: &[i64]) {
        let Some((id, own)) = self.place(process, comm) else {
            return;
        };
        let messages = &mut self.comms[id].messages;
        let Some(posted) = messages.posted.get_mut(&number) else {
            return;
        };
        match status {
            [_, _, _, cancelled] if *cancelled != 0 => posted.is_gone = true,
            [source, tag, ..] if *source >= 0 && posted.got.is_none() => {
                posted.got = Some((*source as usize, *tag));
            }
            [..] if posted.got.is_none() => {
                // It failed: what it took is not known.
                messages.is_unknown = true;
            }
            _ => {}
        }
        self.advance(id, own);
    }

    /// Whether a receive that is over has to wait until the record of its message has come.
    pub(crate) fn receive_waits(
        &self,
        process: usize,
        comm: u64,
        number: usize,
        status: &[i64],
    ) -> bool {
        let Some((id, own)) = self.place(process, comm) else {
            return false;
        };
        let messages = &self.comms[id].messages;
        let Some(posted) = messages.posted.get(&number) else {
            return false;
        };
        let [source, tag, _, 0] = *status else {
            return false;
        };
        let is_first = messages
            .order
            .get(&own)
            .is_none_or(|o| o.front().is_none_or(|f| *f >= number));
        let Ok(source) = usize::try_from(source) else {
            return false;
        };
        let sends = messages.sends.get(&(source, own, tag));
        is_first
            && !messages.is_unknown
            && posted.message.is_none()
            && !posted.is_gone
            && sends.is_none_or(VecDeque::is_empty)
    }

    /// A receive is over: what was sent before its message came before this.
    pub(crate) fn receive_ended(&mut self, process: usize, comm: u64, number: usize) {
        let Some((id, own)) = self.place(process, comm) else {
            return;
        };
        let messages = &mut self.comms[id].messages;
        let moment = (messages.posted.get(&number))
            .and_then(|p| p.message)
            .and_then(|m| messages.sent.get(&m))
            .map(|sent| sent.moment.clone());
        if let Some(moment) = moment {
            self.processes[process].join(&moment);
        }
        let now = self.processes[process].tick();
        let end = now.get(self.processes[process].rank as usize).copied();
        let messages = &mut self.comms[id].messages;
        if let Some(posted) = messages.posted.get_mut(&number) {
            posted.ended = Some(now);
            if posted.is_kept {
                messages.any.end(own, number, posted.asked(), end);
            }
        }
        self.forget(id, number);
    }

    /// A probe has found the message of this receive, and has given it a handle.
    pub(crate) fn probed(&mut self, process: usize, comm: u64, number: usize, handle: u64) {
        let found = self.place(process, comm).and_then(|(id, _)| {
            let messages = &self.comms[id].messages;
            let sent = messages.sent.get(&messages.posted.get(&number)?.message?)?;
            Some((sent.from, sent.call.clone(), sent.data.clone()))
        });
        let probed = &mut self.processes[process].probed;
        probed.remove(&handle);
        probed.extend(found.map(|found| (handle, found)));
    }

    /// A call receives the message of such a handle.
    pub(crate) fn receives_probed(&mut self, process: usize, record: &Record, call: &Call) {
        self.uses_of_call(process, record, call);
        let own = &mut self.processes[process];
        let wanted = Data {
            count: record.number(1),
            of: own.data_type(record.handle(2)),
        };
        let found = own
            .probed
            .remove(&record.handle(3))
            .and_then(|(from, sender, sent)| {
                let mismatch = sent.mismatch(&wanted, true)?;
                let receiver = (own.rank as usize, call, &wanted);
                Some(differs(mismatch, (from, &sender, &sent), receiver))
            });
        if let Some(found) = found {
            self.report(found);
        }
    }

    /// Whether it is known of a receive that no message has come to it.
    pub(crate) fn has_no_message(&self, process: usize, comm: u64, number: usize) -> bool {
        let posted = (self.place(process, comm))
            .map(|(id, _)| &self.comms[id].messages)
            .filter(|messages| !messages.is_unknown)
            .and_then(|messages| messages.posted.get(&number));
        posted.is_some_and(|p| p.message.is_none() && !p.is_gone)
    }

    /// Messages of a communicator can no longer be followed.
    pub(crate) fn lose_track(&mut self, process: usize, comm: u64) {
        if let Some((id, _)) = self.place(process, comm) {
            self.comms[id].messages.is_unknown = true;
        }
    }

    /// A communicator and the rank of a process in it, where messages on it are followed.
    fn place(&self, process: usize, comm: u64) -> Option<(usize, usize)> {
        let own = &self.processes[process];
        let id = *own.comms.get(&comm)?;
        let comm = &self.comms[id];
        let is_followed = own.is_of_job && !comm.is_inter && !comm.is_opaque;
        Some((id, comm.rank_of(own.rank).filter(|_| is_followed)?))
    }

    /// Gives messages to the receives of a rank in their order.
    fn advance(&mut self, id: usize, at: usize) {
        loop {
            let messages = &mut self.comms[id].messages;
            let Some(order) = messages.order.get_mut(&at) else {
                return;
            };
            let Some(posted) = order.front().and_then(|n| messages.posted.get(n)) else {
                return;
            };
            let number = order[0];
            if posted.is_gone {
                order.pop_front();
                messages.posted.remove(&number);
                continue;
            }
            let Some((from, tag)) = posted.got else {
                return;
            };
            order.pop_front();
            let key = (from, at, tag);
            messages.receives.entry(key).or_default().push_back(number);
            self.pair(id, key);
        }
    }

    fn pair(&mut self, id: usize, key: (usize, usize, i64)) {
        loop {
            let messages = &mut self.comms[id].messages;
            let (Some(sends), Some(receives)) = (
                messages.sends.get_mut(&key),
                messages.receives.get_mut(&key),
            ) else {
                return;
            };
            let (Some(&send), Some(&receive)) = (sends.front(), receives.front()) else {
                return;
            };
            sends.pop_front();
            receives.pop_front();
            if sends.is_empty() {
                messages.sends.remove(&key);
            }
            if receives.is_empty() {
                messages.receives.remove(&key);
            }
            let (Some(sent), Some(posted)) = (
                messages.sent.get_mut(&send),
                messages.posted.get_mut(&receive),
            ) else {
                continue;
            };
            sent.taken_by = Some(receive);
            posted.message = Some(send);
            let found = (posted.data.as_ref())
                .and_then(|wanted| Some((sent.data.mismatch(wanted, true)?, wanted)))
                .map(|(mismatch, wanted)| {
                    differs(
                        mismatch,
                        (key.0, &sent.call, &sent.data),
                        (key.1, &posted.call, wanted),
                    )
                });
            if let Some(found) = found {
                self.report(found);
            }
            self.races_of(id, send, receive);
            self.forget(id, receive);
        }
    }

    /// Whether a receive of any source could have got a message that another receive needs: the one
    /// that has just been paired, with the receives of any source before it.
    fn races_of(&mut self, id: usize, send: usize, receive: usize) {
        let comm = &self.comms[id];
        let messages = &comm.messages;
        let (sent, taker) = (&messages.sent[&send], &messages.posted[&receive]);
        let own = comm.members[taker.at] as usize;
        let come = Come {
            from: sent.from,
            to: sent.to,
            tag: sent.tag,
            known: sent.moment.get(own).copied(),
        };
        let rivals = |is_same: bool| {
            let rival = messages.any.rival(come, taker.asked(), is_same)?;
            messages.posted.get(&rival)
        };
        let rival = rivals(false);
        let process = self.process_of(self.comms[id].members[taker.at]);
        let is_first = |process: &usize| !self.orders.contains_key(process);
        let order = process
            .filter(is_first)
            .and_then(|process| Some((process, rivals(true)?)))
            .map(|(process, p)| (process, self.order(id, p, sent)));
        // Who has to wait for a lock of a window is ordered by that.
        let has_locked = |rank: usize| {
            let process = (self.comms[id].members.get(rank)).and_then(|r| self.process_of(*r));
            process.is_some_and(|process| self.processes[process].has_locked)
        };
        let rival = rival.filter(|p| !has_locked(p.at) || !has_locked(sent.from));
        let found = rival.map(|p| {
            Finding::new(Kind::Race)
                .say(format!("rank {}: ", self.comms[id].members[p.at]))
                .call(&p.call)
                .say(" takes a message from any source; it could have got that of rank ")
                .say(format!("{} (", self.comms[id].members[sent.from]))
                .call(&sent.call)
                .say("), which ")
                .call(&taker.call)
                .say(" needs; then that one gets another message, or waits for ever. Name the source, use tags that differ, or let the sender wait")
        });
        let Messages { any, posted, .. } = &mut self.comms[id].messages;
        if let Some(taker) = posted.get_mut(&receive)
            && taker.source == MPI_ANY_SOURCE
        {
            let end = (taker.ended.as_ref()).and_then(|end| end.get(own).copied());
            taker.is_kept = true;
            any.enter((taker.at, receive), taker.asked(), come.from, end);
            if any.len() > MOST_REMEMBERED
                && let Some(old) = any.drop_first()
            {
                posted.entry(old).and_modify(|old| old.is_kept = false);
                self.forget(id, old);
            }
        }
        if let Some(found) = found {
            self.report(found);
        }
        self.orders.extend(order);
    }

    /// Receives of any source that could have got each other's messages. A master that takes
    /// results in any order is right, so it is said only of a program that fails.
    fn order(&self, id: usize, first: &Posted, sent: &Sent) -> Finding {
        let rank = |at: usize| self.comms[id].members[at];
        let got = first
            .message
            .and_then(|m| self.comms[id].messages.sent.get(&m));
        let got = got.map_or(sent.from, |got| got.from);
        Finding::new(Kind::Race)
            .say(format!("rank {}: ", rank(first.at)))
            .call(&first.call)
            .say(format!(
                " took the message of rank {} from any source; it could have got that of rank {} (",
                rank(got),
                rank(sent.from)
            ))
            .call(&sent.call)
            .say("). If the program needs one order, name the source")
    }

    /// Of a job that has failed: messages that could have come in another order.
    pub(crate) fn report_orders(&mut self) {
        let found = std::mem::take(&mut self.orders);
        found.into_values().for_each(|f| self.report(f));
    }

    /// Drops a receive and its message when nothing more is to be asked of them.
    fn forget(&mut self, id: usize, receive: usize) {
        let messages = &mut self.comms[id].messages;
        let is_over = |p: &Posted| p.ended.is_some() && p.message.is_some();
        if !(messages.posted.get(&receive)).is_some_and(|p| is_over(p) && !p.is_kept) {
            return;
        }
        if let Some(message) = messages.posted.remove(&receive).and_then(|p| p.message) {
            messages.sent.remove(&message);
        }
    }

    /// At the end of a job that has ended well: messages that nobody has received.
    pub(crate) fn unmatched(&mut self) {
        let mut found = Vec::new();
        for comm in self
            .comms
            .iter()
            .filter(|c| !c.messages.is_unknown && !c.is_inter)
        {
            for send in comm.messages.sends.values().flatten() {
                let Some(sent) = comm.messages.sent.get(send) else {
                    continue;
                };
                found.push(
                    Finding::new(Kind::Unmatched)
                        .say(format!("rank {}: ", comm.members[sent.from]))
                        .call(&sent.call)
                        .say(format!(
                            " sends {} to rank {}, tag {}, which never receives it; receive each message before MPI_Finalize",
                            sent.data.in_words(),
                            comm.members.get(sent.to).copied().unwrap_or_default(),
                            sent.tag
                        )),
                );
            }
        }
        found.into_iter().for_each(|f| self.report(f));
    }

    /// What is waited for at the end of a job that did not end well: receives without a message,
    /// and sends that could be meant for them.
    pub(crate) fn stuck(&mut self) {
        let mut found = Vec::new();
        for comm in self
            .comms
            .iter()
            .filter(|c| !c.messages.is_unknown && !c.is_inter)
        {
            let open = comm
                .messages
                .posted
                .values()
                .filter(|p| p.message.is_none() && !p.is_gone);
            for posted in open {
                let near = comm
                    .messages
                    .sends
                    .values()
                    .flatten()
                    .filter_map(|s| comm.messages.sent.get(s));
                let near = near
                    .into_iter()
                    .find(|s| s.to == posted.at && posted.source == s.from as i64);
                if let Some(sent) =
                    near.filter(|s| posted.tag != MPI_ANY_TAG && s.tag != posted.tag)
                {
                    found.push(
                        Finding::new(Kind::Unmatched)
                            .say(format!("rank {}: ", comm.members[posted.at]))
                            .call(&posted.call)
                            .say(format!(
                                " waits for tag {} from rank {}, which sends tag {} (",
                                posted.tag, comm.members[sent.from], sent.tag
                            ))
                            .call(&sent.call)
                            .say("); the tags must be the same"),
                    );
                }
            }
        }
        let all = self.comms.iter().map(|comm| &comm.messages);
        let followed = (0..).zip(all).filter(|(_, messages)| !messages.is_unknown);
        found.extend(followed.filter_map(|(id, _)| self.lost_race(id)));
        found.extend(self.other_communicator());
        found.into_iter().for_each(|f| self.report(f));
    }

    /// A receive that waits for ever, because an earlier one of any source took its message; the
    /// message of another rank, which that one could have got, is still there.
    fn lost_race(&self, id: usize) -> Option<Finding> {
        let (comm, messages) = (&self.comms[id], &self.comms[id].messages);
        let rank = |at: usize| comm.members[at];
        let mut open = messages.posted.values();
        let is_open = |p: &&Posted| p.message.is_none() && !p.is_gone && p.source >= 0;
        open.by_ref().filter(is_open).find_map(|open| {
            let takers = messages.any.receives().into_iter();
            let mut takers = takers.filter_map(|n| messages.posted.get(&n));
            takers.find_map(|taker| {
                let taken = messages.sent.get(&taker.message?)?;
                if taker.at != open.at || !Messages::is_wanted(open, taken) {
                    return None;
                }
                let end = taker
                    .ended
                    .as_ref()
                    .and_then(|e| e.get(rank(taker.at) as usize));
                let left = messages.sends.values().flatten();
                let other = left.filter_map(|n| messages.sent.get(n)).find(|s| {
                    // Not sent because of what the receive had got.
                    let known = s.moment.get(rank(taker.at) as usize);
                    Messages::is_wanted(taker, s) && s.from != taken.from && known < end
                })?;
                let found = Finding::new(Kind::Race)
                    .say(format!("rank {}: ", rank(open.at)))
                    .call(&open.call)
                    .say(" waits for ever: the message of rank ")
                    .say(format!("{} (", rank(taken.from)))
                    .call(&taken.call)
                    .say(") has been taken by ")
                    .call(&taker.call)
                    .say(", which takes one from any source, before that of rank ")
                    .say(format!("{} (", rank(other.from)))
                    .call(&other.call)
                    .say("). Name the source, use tags that differ, or let the sender wait");
                Some(found)
            })
        })
    }

    /// A message on one communicator and a receive on another one that would match it.
    fn other_communicator(&self) -> Option<Finding> {
        for (a, comm) in self.comms.iter().enumerate() {
            for posted in comm
                .messages
                .posted
                .values()
                .filter(|p| p.message.is_none() && !p.is_gone)
            {
                let at = *comm.members.get(posted.at)?;
                for (_, other) in self.comms.iter().enumerate().filter(|(b, _)| *b != a) {
                    let sent = (other.messages.sends.values().flatten())
                        .filter_map(|s| other.messages.sent.get(s))
                        .find(|s| {
                            other.members.get(s.to) == Some(&at)
                                && (posted.tag == MPI_ANY_TAG || posted.tag == s.tag)
                        });
                    if let Some(sent) = sent {
                        return Some(
                            Finding::new(Kind::Unmatched)
                                .say(format!("rank {at}: "))
                                .call(&posted.call)
                                .say(" and ")
                                .call(&sent.call)
                                .say(format!(
                                    " of rank {} use different communicators; a message is received on the communicator on which it was sent",
                                    other.members[sent.from]
                                )),
                        );
                    }
                }
            }
        }
        None
    }
}

fn differs(
    mismatch: Mismatch,
    sender: (usize, &Call, &Data),
    receiver: (usize, &Call, &Data),
) -> Finding {
    let (kind, remedy) = match mismatch {
        Mismatch::Types => (Kind::Type, "send and receive with the same datatype"),
        Mismatch::Counts => (Kind::Count, "receive as much as is sent"),
    };
    Finding::new(kind)
        .say(format!("rank {} sends {} (", sender.0, sender.2.in_words()))
        .call(sender.1)
        .say(format!(
            "), but rank {} receives {} (",
            receiver.0,
            receiver.2.in_words()
        ))
        .call(receiver.1)
        .say("); ")
        .say(remedy)
}
