//! Direct copying: once from the sender's arena, or by cross-memory attach from both sides.

use std::sync::Arc;

use margay_net_transport::{Advance, Ticket};
use margay_sys::arena::{self, Arena};
use margay_sys::cma;
use margay_sys::segment::Segment;
use margay_sys::transfer::{self, Cells, Target};
use margay_sys::user::Mem;

/// From which size on a way is taken, in bytes. See [`Thresholds::default`] for the reasons.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// A buffer in the arena is copied once from there.
    pub arena: u64,
    /// Any other buffer is copied by cross-memory attach.
    pub attach: u64,
    /// Size of the parts that both sides claim.
    pub part: u64,
}

impl Default for Thresholds {
    /// Measured on two cores of a virtual machine: a well-fed pipe moves 45 to 60 GB/s up to a few
    /// hundred KiB, cross-memory attach from both sides 25 GB/s on 4 KiB pages and 110 on huge ones
    /// from 512 KiB on; a copy from the arena costs a handshake of a quarter of a microsecond and
    /// then moves 120 GB/s. A part must be long beside a system call and short beside the message.
    fn default() -> Self {
        Thresholds {
            arena: 8 << 10,
            attach: 256 << 10,
            part: 64 << 10,
        }
    }
}

const BY_ARENA: u64 = 1;
const BY_ATTACH: u64 = 2;

/// Low word of the offer: how; the cell's offset is in the next, address or arena offset in the
/// last.
pub(crate) struct Direct {
    segment: Arc<Segment>,
    me: u32,
    thresholds: Thresholds,
    pub(crate) arena: Arena,
    cells: Option<Cells>,
    /// Cleared when the system refuses to let us read, or write, a peer.
    may_read: bool,
    may_write: bool,
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
    pub(crate) fn new(segment: &Arc<Segment>, me: u32, thresholds: Thresholds) -> Direct {
        cma::allow_attach();
        Direct {
            segment: segment.clone(),
            me,
            thresholds,
            arena: Arena::new(segment, me),
            cells: None,
            may_read: true,
            may_write: true,
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
        if len < self.thresholds.arena.min(self.thresholds.attach)
            || !from.covers(offset, len as usize)
        {
            return None;
        }
        let address = from.address().wrapping_add_signed(offset as isize);
        let in_arena = self.arena.offset_of(address, len);
        let (how, last) = match in_arena {
            Some(at) if len >= self.thresholds.arena => (BY_ARENA, at),
            _ if len >= self.thresholds.attach && self.may_read => (BY_ATTACH, address as u64),
            _ => return None,
        };
        if self.cells.is_none() {
            self.cells = Cells::create(&self.segment);
        }
        let (cell, cell_offset) = self.cells.as_ref()?.offer()?;
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
        let cell = transfer::at(&self.segment, cell_offset)?;
        let address = into.address().wrapping_add_signed(offset as isize) as u64;
        let target = Target {
            pid: std::process::id(),
            address,
            bytes: len,
        };
        match how {
            BY_ARENA => {
                cell.accept(target, len);
                Some(self.enter(Copy::Load {
                    cell: cell_offset,
                    from,
                    source: last,
                    into: into.clone(),
                    offset,
                    len,
                }))
            }
            BY_ATTACH if self.may_read => {
                cell.accept(target, self.thresholds.part);
                self.segment.cell(from).bell().ring();
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
                    && let Some((start, len)) = cell.claim()
                {
                    let written = cma::write(
                        target.pid,
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
                    self.segment.cell(*to).bell().ring();
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
                let cell = transfer::at(&self.segment, *cell).expect("checked when accepted");
                let part = cell.claim().or_else(|| cell.take_back());
                match part {
                    Some((start, len)) => {
                        let pid = self.segment.cell(*from).pid();
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
                let cell = transfer::at(&self.segment, *cell).expect("checked when accepted");
                if arena::read(&self.segment, *from, *source, into, *offset, *len as usize) {
                    cell.finish(*len);
                    Advance::Done
                } else {
                    Advance::Refused
                }
            }
        };
        // A pull that just moved its last bytes is done now, not at the next look.
        let step = match (step, copy) {
            (Advance::Pending(true), Copy::Pull { cell, .. })
                if transfer::at(&self.segment, *cell).is_some_and(transfer::Cell::is_complete) =>
            {
                Advance::Done
            }
            (step, _) => step,
        };
        if step == Advance::Done
            && let Copy::Pull { cell, from, .. } | Copy::Load { cell, from, .. } = copy
        {
            transfer::at(&self.segment, *cell)
                .expect("checked when accepted")
                .leave();
            self.segment.cell(*from).bell().ring();
        }
        if !matches!(step, Advance::Pending(_)) {
            self.copies[ticket.0 as usize] = None;
        }
        step
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
