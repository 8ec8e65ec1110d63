//! Nonblocking collectives through shared memory: exchanges that progress carries on.
//!
//! A communicator has a second channel for them, because blocking and nonblocking collectives never
//! match each other. On it they are done one after the other, in the order in which all ranks begin
//! them: a rank contributes to one when it has finished those before. What a rank has finished
//! needs it no more, so nobody waits for calls that it need not make.
//!
//! Long data is not exchanged on the board: ranks publish where it is, copy it, and say in a second
//! operation that they have.

use std::sync::{Arc, OnceLock};

use margay_sys_shm::board::{Operation, STAGE_BYTES};

use super::direct::{Exposed, expose, pull_into, write_address};
use super::exchange::Awaited;
use super::{Cause, Channel, Disagreement, Exchange, LEAST_PULL, looks_again, put};
use crate::call::ReqId;
use crate::data;

/// Longer blocks go by schedule, which copies in parts: progress does not stay with one of them.
const MOST_DIRECT: u64 = 1 << 20;

/// The arguments of a nonblocking collective, kept until it ends.
pub trait Arguments: Send {
    /// Returns what this rank does; the same each time.
    fn exchange(&self) -> Exchange<'_>;
}

/// What became of a nonblocking exchange. The request ends when it is known.
pub struct Posted {
    pub(crate) id: ReqId,
    pub(crate) problem: OnceLock<Disagreement>,
}

/// An exchange that is under way.
pub(crate) struct Posting {
    pub(crate) arguments: Box<dyn Arguments>,
    /// Whom the rank waits for, once it has contributed, and how many have been seen.
    awaited: Option<Awaited>,
    seen: u32,
    direct: Option<Direct>,
}

/// How far an exchange is in which ranks copy from each other's buffers.
#[derive(Default)]
struct Direct {
    exposed: Option<Exposed>,
    /// This rank has copied what it gets; the second operation.
    has_copied: bool,
    unreadable: Option<u32>,
    problem: Option<Disagreement>,
}

/// The exchanges of a channel that are under way; the first is on the board.
pub(crate) struct PostQueue {
    pub(crate) channel: Arc<Channel>,
    pub(crate) waiting: std::collections::VecDeque<(Posting, Arc<Posted>)>,
}

impl Posted {
    /// Its request.
    #[must_use]
    pub fn id(&self) -> ReqId {
        self.id
    }

    /// What went wrong.
    #[must_use]
    pub fn problem(&self) -> Option<Disagreement> {
        self.problem.get().copied()
    }
}

impl Posting {
    /// `is_direct`: as [`Exchange::is_direct`] says.
    pub(crate) fn new(arguments: Box<dyn Arguments>, is_direct: bool) -> Posting {
        Posting {
            arguments,
            awaited: None,
            seen: 0,
            direct: is_direct.then(Direct::default),
        }
    }
}

impl Channel {
    /// Carries the first exchange of the channel on as far as that is possible. Returns how it has
    /// ended, when it has.
    pub(crate) fn advance(&self, posting: &mut Posting) -> Option<Result<(), Disagreement>> {
        if posting.direct.is_some() {
            return self.advance_direct(posting);
        }
        let op = self.current()?;
        let awaited = match posting.awaited {
            Some(awaited) => awaited,
            None => {
                let exchange = posting.arguments.exchange();
                if !self.may_contribute(&op, &exchange) {
                    op.suspend();
                    return None;
                }
                self.contribute_to(&op, &exchange);
                *posting.awaited.insert(exchange.awaited(self.board.me()))
            }
        };
        if !self.is_ready(&op, awaited, &mut posting.seen) {
            op.suspend();
            return None;
        }
        Some(self.finish(&op, &posting.arguments.exchange()))
    }

    fn current(&self) -> Option<Operation<'_>> {
        self.board.resume().or_else(|| self.board.begin())
    }

    fn advance_direct(&self, posting: &mut Posting) -> Option<Result<(), Disagreement>> {
        let (me, ranks) = (self.board.me(), self.board.ranks());
        let exchange = posting.arguments.exchange();
        let direct = posting.direct.get_or_insert_default();
        loop {
            let op = self.current()?;
            let awaited = match posting.awaited {
                Some(awaited) => awaited,
                None => {
                    if !(op.may_put() || looks_again(&op, || op.may_put())) {
                        op.suspend();
                        return None;
                    }
                    let tag = exchange.tag_of(me, ranks);
                    let awaited = exchange.awaited(me);
                    let awaited = if direct.has_copied {
                        put(&op, tag, 0, |_| {});
                        awaited.reversed(me, exchange.root())
                    } else {
                        direct.exposed = exchange.expose(me, ranks);
                        let address = direct.exposed.as_ref().map_or(0, |e| e.address);
                        put(&op, tag, 16, |slot| write_address(slot, address));
                        awaited
                    };
                    self.tell(&op, &exchange, awaited);
                    posting.seen = 0;
                    *posting.awaited.insert(awaited)
                }
            };
            if !self.is_ready(&op, awaited, &mut posting.seen) {
                op.suspend();
                return None;
            }
            if let Err(disagreement) = self.check_awaited(&op, &exchange, awaited) {
                direct.problem.get_or_insert(disagreement);
            }
            if direct.has_copied {
                let unreadable = direct.unreadable;
                let unreadable = unreadable.map(|member| self.unreadable_later(member));
                return Some(direct.problem.or(unreadable).map_or(Ok(()), Err));
            }
            // Who disagrees copies nothing, and stays in step with the others.
            if direct.problem.is_none() {
                exchange.pull(&op, (me, ranks), &mut direct.unreadable);
            }
            direct.has_copied = true;
            posting.awaited = None;
        }
    }

    /// The memory of a member cannot be read any more. Where ranks may die, it has died or has
    /// noticed a death.
    fn unreadable_later(&self, member: u32) -> Disagreement {
        Disagreement {
            rank: member,
            bytes: None,
            expected: 0,
            cause: Some(match self.is_watching {
                true => Cause::Failed(crate::call::Failed::Process),
                false => Cause::Unreadable,
            }),
        }
    }
}

impl Awaited {
    /// Whom a rank waits for that has to know when its own buffer is free again.
    fn reversed(self, me: u32, root: Option<u32>) -> Awaited {
        match (self, root) {
            (Awaited::Nobody, Some(root)) if root == me => Awaited::AllAlone,
            (Awaited::Nobody, Some(root)) => Awaited::One(root),
            (Awaited::One(_) | Awaited::AllAlone, _) => Awaited::Nobody,
            (all, _) => all,
        }
    }
}

impl Exchange<'_> {
    /// Whether ranks copy from each other's buffers, if they may. All ranks find the same.
    #[must_use]
    pub fn is_direct(&self, channel: &Channel) -> bool {
        let published = channel.published_bytes() as u64;
        let (sent, lane) = (channel.sent_bytes(), channel.board.lane_bytes() as u64);
        let ranks = u64::from(channel.board.ranks());
        let (block, least) = match self {
            Exchange::Bcast { data, .. } => (data.size(), sent),
            Exchange::Gather { .. } | Exchange::Allgather { .. } if !channel.roomy => return false,
            Exchange::Gather { bytes, .. } => (*bytes, sent.min(lane)),
            Exchange::Scatter { bytes, .. } => (*bytes, sent.min(STAGE_BYTES as u64 / ranks)),
            Exchange::Allgather { recv, .. } => (recv.bytes(), published),
            Exchange::Alltoall { recv, .. } if recv.bytes() < LEAST_PULL => return false,
            Exchange::Alltoall { recv, .. } => (recv.bytes(), published / ranks),
            _ => return false,
        };
        block > least && (LEAST_PULL..=MOST_DIRECT).contains(&block)
    }

    /// Whether messages are better. All ranks find the same.
    #[must_use]
    pub fn is_message(&self, channel: &Channel) -> bool {
        let block = match self {
            Exchange::Bcast { data, .. } => data.size(),
            Exchange::Gather { bytes, .. } | Exchange::Scatter { bytes, .. } => *bytes,
            Exchange::Allgather { recv, .. } | Exchange::Alltoall { recv, .. } => recv.bytes(),
            _ => return false,
        };
        channel.is_message(block, self.root().is_some())
    }

    /// What others copy, and copies what this rank has for itself.
    fn expose(&self, me: u32, ranks: u32) -> Option<Exposed> {
        match self {
            Exchange::Bcast { data, root } => (*root == me).then(|| expose(data)),
            Exchange::Gather { send, recv, .. } => match (send, recv) {
                (Some(send), Some(recv)) => {
                    data::copy(send, &recv.data(me, 1));
                    None
                }
                (send, _) => send.as_ref().map(expose),
            },
            Exchange::Scatter { send, recv, .. } => {
                if let (Some(send), Some(recv)) = (send, recv) {
                    data::copy(&send.data(me, 1), recv);
                }
                send.map(|send| expose(&send.data(0, ranks)))
            }
            Exchange::Allgather { send, recv, .. } => {
                let own = recv.data(me, 1);
                if let Some(send) = send {
                    data::copy(send, &own);
                }
                Some(expose(send.as_ref().unwrap_or(&own)))
            }
            Exchange::Alltoall { send, recv } => {
                data::copy(&send.data(me, 1), &recv.data(me, 1));
                Some(expose(&send.data(0, ranks)))
            }
            _ => None,
        }
    }

    /// Copies what this rank gets.
    fn pull(&self, op: &Operation<'_>, (me, ranks): (u32, u32), unreadable: &mut Option<u32>) {
        // Staggered, so that not all read the same rank's memory at once.
        let others = (1..ranks).map(|step| (me + step) % ranks);
        match self {
            Exchange::Bcast { data, root } if *root != me => {
                pull_into(op, *root, 0, data, unreadable);
            }
            Exchange::Gather {
                recv: Some(recv), ..
            } => others.for_each(|from| pull_into(op, from, 0, &recv.data(from, 1), unreadable)),
            Exchange::Scatter {
                recv: Some(recv),
                bytes,
                root,
                ..
            } if *root != me => {
                pull_into(op, *root, bytes * u64::from(me), recv, unreadable);
            }
            Exchange::Allgather { recv, .. } => {
                others.for_each(|from| pull_into(op, from, 0, &recv.data(from, 1), unreadable));
            }
            Exchange::Alltoall { recv, .. } => others.for_each(|from| {
                let offset = recv.bytes() * u64::from(me);
                pull_into(op, from, offset, &recv.data(from, 1), unreadable);
            }),
            _ => {}
        }
    }
}
