//! Direct copying: once from the sender's arena, or by cross-memory attach from both sides.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_net_transport::{Advance, Thresholds, Ticket};
use margay_sys_os::cma;
use margay_sys_os::user::Mem;
use margay_sys_shm::arena::{self, Arena};
use margay_sys_shm::segment::Segment;
use margay_sys_shm::transfer::{self, Cells, End, Target};

const BY_ARENA: u64 = 1;
const BY_ATTACH: u64 = 2;

/// Returns the end from which this rank copies messages from and to another.
fn end(me: u32, other: u32) -> End {
    if me < other { End::Front } else { End::Back }
}

/// Low word of the offer: how; the cell's offset is in the next, address or arena offset in the
/// last.
pub(crate) struct Direct {
    segment: Arc<Segment>,
    me: u32,
    thresholds: Arc<Thresholds>,
    pub(crate) arena: Arena,
    cells: Option<Cells>,
    /// Cleared when the system refuses to let us read, or write, a peer.
    may_read: bool,
    may_write: bool,
    /// A memory checker watches this process. It does not see what peers write here and would take
    /// that for uninitialised, so this rank reads all by itself.
    watched: bool,
    /// Each rank as one that is written to, from the first time on.
    peers: Box<[Option<cma::Peer>]>,
    copies: Vec<Option<Copy>>,
}

enum Copy {
    /// We are the sender.
    Push {
        cell: usize,
        to: u32,
        from: Mem,
        offset: i64,
        /// The receiver reads our arena by itself.
        passive: bool,
    },
    /// We are the receiver and read the sender's memory.
    Pull {
        cell: u64,
        from: u32,
        address: u64,
        into: Mem,
        offset: i64,
    },
    /// We are the receiver and read the sender's arena.
    Load {
        cell: u64,
        from: u32,
        source: u64,
        into: Mem,
        offset: i64,
        len: u64,
    },
}

impl Direct {
    pub(crate) fn new(segment: &Arc<Segment>, me: u32, thresholds: Arc<Thresholds>) -> Direct {
        cma::allow_attach();
        Direct {
            segment: segment.clone(),
            me,
            thresholds,
            arena: Arena::new(segment, me),
            cells: None,
            may_read: true,
            may_write: true,
            watched: std::env::var("LD_PRELOAD").is_ok_and(|list| list.contains("vgpreload")),
            peers: vec![None; segment.ranks() as usize].into(),
            copies: Vec::new(),
        }
    }

    pub(crate) fn offer(
        &mut self,
        to: u32,
        from: &Mem,
        offset: i64,
        len: u64,
    ) -> Option<(Ticket, [u64; 3])> {
        let arena = self.thresholds.arena.load(Ordering::Relaxed);
        let attach = self.thresholds.attach.load(Ordering::Relaxed);
        if len < arena.min(attach) || !from.covers(offset, len as usize) {
            return None;
        }
        let address = from.address().wrapping_add_signed(offset as isize);
        let in_arena = self.arena.offset_of(address, len);
        let (how, last) = match in_arena {
            Some(at)
                if len >= arena
                    && (len < self.thresholds.arena_end.load(Ordering::Relaxed)
                        || !self.may_read) =>
            {
                (BY_ARENA, at)
            }
            _ if len >= attach && self.may_read => (BY_ATTACH, address as u64),
            _ => return None,
        };
        if self.cells.is_none() {
            self.cells = Cells::create(&self.segment, self.me);
        }
        let pushed = |index: usize| {
            let mut copies = self.copies.iter().flatten();
            copies.any(|copy| matches!(copy, Copy::Push { cell, .. } if *cell == index))
        };
        let (cell, cell_offset) = self.cells.as_ref()?.offer(pushed)?;
        let ticket = self.enter(Copy::Push {
            cell,
            to,
            from: from.clone(),
            offset,
            passive: how == BY_ARENA,
        });
        Some((ticket, [how, cell_offset, last]))
    }

    pub(crate) fn accept(
        &mut self,
        from: u32,
        words: [u64; 3],
        into: &Mem,
        offset: i64,
        len: u64,
    ) -> Option<Ticket> {
        let [how, cell_offset, last] = words;
        if !into.covers(offset, len as usize) {
            return None;
        }
        let cell = transfer::at(&self.segment, from, cell_offset)?;
        let address = into.address().wrapping_add_signed(offset as isize) as u64;
        let target = Target {
            pid: if self.watched { 0 } else { std::process::id() },
            address,
            bytes: len,
        };
        match how {
            BY_ARENA if cell.accept(target, len) => Some(self.enter(Copy::Load {
                cell: cell_offset,
                from,
                source: last,
                into: into.clone(),
                offset,
                len,
            })),
            BY_ATTACH if self.may_read && cell.accept(target, self.thresholds.part_of(len)) => {
                self.segment.wake(from);
                Some(self.enter(Copy::Pull {
                    cell: cell_offset,
                    from,
                    address: last,
                    into: into.clone(),
                    offset,
                }))
            }
            _ => None,
        }
    }

    pub(crate) fn advance(&mut self, ticket: Ticket) -> Advance {
        let Some(copy) = &self.copies[ticket.0 as usize] else {
            return Advance::Done;
        };
        let step = match copy {
            Copy::Push {
                cell,
                to,
                from,
                offset,
                passive,
            } => {
                let cell = self.cells.as_ref().expect("offered").get(*cell);
                if cell.is_complete() {
                    Advance::Done
                } else if *passive || !self.may_write {
                    Advance::Pending(false)
                } else if let Some(target) = cell.target()
                    && target.pid != 0
                    && let Some((start, len)) = cell.claim(end(self.me, *to))
                {
                    let known = &mut self.peers[*to as usize];
                    let peer = match *known {
                        Some(peer) if peer.pid() == target.pid => peer,
                        _ => *known.insert(cma::Peer::new(target.pid)),
                    };
                    let written = cma::write(
                        peer,
                        target.address + start,
                        from,
                        offset + start as i64,
                        len as usize,
                    );
                    if written.is_ok() {
                        cell.finish(len);
                    } else {
                        self.may_write = false;
                        cell.hand_back(start);
                    }
                    self.segment.wake(*to);
                    Advance::Pending(true)
                } else {
                    Advance::Pending(false)
                }
            }
            Copy::Pull {
                cell,
                from,
                address,
                into,
                offset,
            } => {
                let cell =
                    transfer::at(&self.segment, *from, *cell).expect("checked when accepted");
                let part = cell.claim(end(self.me, *from)).or_else(|| cell.take_back());
                match part {
                    Some((start, len)) => {
                        let pid = self.segment.registry().identity(*from).pid;
                        let at = offset + start as i64;
                        match cma::read(pid, address + start, into, at, len as usize) {
                            Ok(()) => {
                                cell.finish(len);
                                Advance::Pending(true)
                            }
                            Err(_) => {
                                self.may_read = false;
                                Advance::Refused
                            }
                        }
                    }
                    None if cell.is_complete() => Advance::Done,
                    None => Advance::Pending(false),
                }
            }
            Copy::Load {
                cell,
                from,
                source,
                into,
                offset,
                len,
            } => {
                let cell =
                    transfer::at(&self.segment, *from, *cell).expect("checked when accepted");
                if arena::read(&self.segment, *from, *source, into, *offset, *len as usize) {
                    cell.finish(*len);
                    Advance::Done
                } else {
                    Advance::Refused
                }
            }
        };
        // A pull that just moved its last bytes is done now, not at the next call.
        let step = match (step, copy) {
            (Advance::Pending(true), Copy::Pull { cell, from, .. })
                if transfer::at(&self.segment, *from, *cell)
                    .is_some_and(transfer::Cell::is_complete) =>
            {
                Advance::Done
            }
            (step, _) => step,
        };
        if step == Advance::Done
            && let Copy::Pull { cell, from, .. } | Copy::Load { cell, from, .. } = copy
        {
            transfer::at(&self.segment, *from, *cell)
                .expect("checked when accepted")
                .leave();
            self.segment.wake(*from);
        }
        if !matches!(step, Advance::Pending(_)) {
            self.copies[ticket.0 as usize] = None;
        }
        step
    }

    pub(crate) fn revoke(&mut self, ticket: Ticket) -> bool {
        let Some(Copy::Push { cell, .. }) = &self.copies[ticket.0 as usize] else {
            return false;
        };
        self.cells.as_ref().expect("offered").get(*cell).revoke()
    }

    pub(crate) fn withdraw(&mut self, ticket: Ticket) {
        if let Some(Copy::Push { cell, .. }) = self.copies[ticket.0 as usize].take() {
            self.cells.as_ref().expect("offered").get(cell).withdraw();
        }
    }

    fn enter(&mut self, copy: Copy) -> Ticket {
        debug_assert!(self.me < self.segment.ranks());
        let at = match self.copies.iter().position(Option::is_none) {
            Some(at) => at,
            None => {
                self.copies.push(None);
                self.copies.len() - 1
            }
        };
        self.copies[at] = Some(copy);
        Ticket(at as u32)
    }
}
