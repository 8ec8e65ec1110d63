//! How the segment is laid out: its header, the cell of a rank, the table of boards, and where the
//! parts begin.
//!
//! `docs/segment.md` draws it byte by byte. Every shared field is an atomic, so a corrupt or
//! hostile peer can make values wrong, never references invalid.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use margay_sys_os::event_count::EventCount;

use crate::inbox::format::all_bytes;
use crate::owner::OwnerLock;
use crate::waits::WaitList;

/// The version of everything that lies in the segment. A changed layout gets a new version.
pub const VERSION: u8 = 9;

/// `MARGAY` and the format's version in the last byte.
pub const MAGIC: u64 = u64::from_ne_bytes([b'M', b'A', b'R', b'G', b'A', b'Y', 0, VERSION]);

/// Bytes of a page; the parts begin on one.
pub(crate) const PAGE: u64 = 4096;
/// Longest text of the command line kept for displays, in bytes.
pub(crate) const COMMAND_BYTES: usize = 512;
/// Notes that libraries may leave with a rank.
pub const NOTES: usize = 4;

/// Facts about the job, written by the launcher before the first rank starts.
// Fields: the words that docs/segment.md draws.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) ranks: AtomicU32,
    pub(crate) usable_cores: AtomicU32,
    pub(crate) total_bytes: AtomicU64,
    pub(crate) cells_offset: AtomicU64,
    pub(crate) inboxes_offset: AtomicU64,
    pub(crate) heap_offset: AtomicU64,
    pub(crate) heap_end: AtomicU64,
    pub(crate) arena_offset: AtomicU64,
    pub(crate) arena_stride: AtomicU64,
    pub(crate) job_id: AtomicU64,
    pub(crate) started_ns: AtomicU64,
    pub(crate) launcher_pid: AtomicU32,
    /// 0, or 1 + the rank that called abort.
    pub(crate) aborted_by: AtomicU32,
    pub(crate) abort_code: AtomicI32,
    pub(crate) command_len: AtomicU32,
    pub(crate) command: [AtomicU64; COMMAND_BYTES / 8],
    /// How many ranks have died before they were finalized.
    pub(crate) failures: AtomicU32,
    /// 1 when the others go on then.
    pub(crate) tolerant: AtomicU32,
    /// The next free byte of the heap; alone on its line, since everybody adds to it.
    pub(crate) heap_next: Line<AtomicU64>,
}

/// A value that has a cache line to itself.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Line<T>(pub(crate) T);

/// Words in the heap that a library keeps for a rank.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct NoteSlot {
    /// 0 while it is free, `u32::MAX` while it is made.
    pub(crate) key: AtomicU32,
    pub(crate) words: AtomicU32,
    pub(crate) offset: AtomicU64,
}

/// One rank's cell: the word it sleeps on, who it is, what it does. Written by its own rank
/// except for the event count and for what the launcher enters before the rank starts.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct RankCell {
    pub(crate) event_count: Line<EventCount>,
    pub(crate) pid: AtomicU32,
    /// 1 + the core to which the launcher bound the rank, 0 when it is not bound.
    pub(crate) core: AtomicU32,
    pub(crate) phase: AtomicU32,
    /// Index of the program in an MPMD job.
    pub(crate) app: AtomicU32,
    pub(crate) exited: AtomicU32,
    /// The name of the current or last library call, NUL-padded.
    pub(crate) call: [AtomicU64; 4],
    pub(crate) notes: [NoteSlot; NOTES],
    /// Heap offset of the rank's [transfer cells](crate::transfer), 0 before the first.
    pub(crate) transfer: AtomicU64,
    pub(crate) waits: Line<WaitList>,
}

/// Communicators of a job that can have a board at the same time. Beyond, they do without.
pub(crate) const BOARDS: usize = 4096;

/// Where a board lies, and for whom.
#[repr(C)]
pub(crate) struct BoardEntry {
    /// 0 where there is no board.
    pub(crate) key: AtomicU64,
    pub(crate) offset: AtomicU64,
    pub(crate) ranks: AtomicU32,
    /// Ranks that have left; with all of them the board is free.
    pub(crate) left: AtomicU32,
}

/// The [boards](crate::board) of the job; the heap begins with it.
#[repr(C, align(128))]
pub(crate) struct BoardTable {
    pub(crate) lock: OwnerLock,
    /// Entries that were ever used.
    pub(crate) used: AtomicU32,
    pub(crate) entries: [BoardEntry; BOARDS],
}

/// How big the parts of a new segment are.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Ranks in the job, at least 1.
    pub ranks: u32,
    /// Address space for pipes, pools and control blocks, in bytes.
    pub heap_bytes: u64,
    /// Address space for the arena of each rank (memory that a rank shares on request), in bytes.
    pub arena_bytes: u64,
}

impl Sizes {
    /// The sizes for processes of several jobs, which only talk: they share no arenas.
    #[must_use]
    pub fn for_bridge(ranks: u32) -> Self {
        Sizes {
            ranks,
            heap_bytes: u64::from(ranks) * (2 << 20),
            arena_bytes: 0,
        }
    }

    /// As many of these bytes as a limit of file size leaves: first the arenas shrink, without
    /// which ranks that want to share memory share it in other ways, then the part of the heap
    /// beyond what the ranks need at least.
    pub(crate) fn within(self, limit_bytes: u64) -> Self {
        let without = Sizes {
            arena_bytes: 0,
            ..self
        };
        let fixed = Layout::new(without).total_bytes();
        if let Some(left) = limit_bytes.checked_sub(fixed) {
            let each = left / u64::from(self.ranks.max(1));
            return Sizes {
                arena_bytes: self.arena_bytes.min(each - each % (2 << 20)),
                ..self
            };
        }
        let ranks = u64::from(self.ranks);
        let least = ranks * (2 << 20) + (64 << 20);
        let excess = round_up(fixed - limit_bytes, 2 << 20);
        Sizes {
            heap_bytes: self.heap_bytes - self.heap_bytes.saturating_sub(least).min(excess),
            ..without
        }
    }

    /// The usual sizes for a job: room for the pipes and the pool of every rank, for boards, and an
    /// arena as large as the machine's memory for each rank. All of it is address space until it is
    /// touched.
    #[must_use]
    pub fn for_job(ranks: u32) -> Self {
        Sizes {
            ranks,
            heap_bytes: u64::from(ranks) * (8 << 20) + (1 << 30),
            arena_bytes: round_up(
                margay_sys_os::memory::installed_bytes().max(1 << 30),
                1 << 30,
            ),
        }
    }
}

/// Where the parts of a segment begin, in bytes from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) ranks: u32,
    pub(crate) cells_offset: u64,
    pub(crate) inboxes_offset: u64,
    pub(crate) heap_offset: u64,
    pub(crate) heap_end: u64,
    pub(crate) arena_offset: u64,
    pub(crate) arena_stride: u64,
}

impl Layout {
    /// The layout of a new segment.
    pub(crate) fn new(sizes: Sizes) -> Layout {
        let ranks = sizes.ranks.max(1);
        let cells_offset = round_up(size_of::<Header>() as u64, PAGE);
        let inboxes_offset = round_up(
            cells_offset + u64::from(ranks) * size_of::<RankCell>() as u64,
            PAGE,
        );
        let heap_offset = round_up(inboxes_offset + all_bytes(ranks), PAGE);
        let heap_bytes = BOARD_TABLE_BYTES + sizes.heap_bytes;
        let heap_end = round_up(heap_offset + heap_bytes, 2 << 20);
        Layout {
            ranks,
            cells_offset,
            inboxes_offset,
            heap_offset,
            heap_end,
            arena_offset: heap_end,
            arena_stride: round_up(sizes.arena_bytes, 2 << 20),
        }
    }

    /// Where the part of a new segment's heap begins that nobody has.
    pub(crate) fn first_free(&self) -> u64 {
        self.heap_offset + BOARD_TABLE_BYTES
    }

    /// Length of the whole segment.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.heap_end + self.arena_stride * u64::from(self.ranks)
    }

    /// Enters it in a header, all but the magic.
    pub(crate) fn write(&self, header: &Header) {
        use std::sync::atomic::Ordering::Relaxed;
        header.ranks.store(self.ranks, Relaxed);
        header.total_bytes.store(self.total_bytes(), Relaxed);
        header.cells_offset.store(self.cells_offset, Relaxed);
        header.inboxes_offset.store(self.inboxes_offset, Relaxed);
        header.heap_offset.store(self.heap_offset, Relaxed);
        header.heap_end.store(self.heap_end, Relaxed);
        header.arena_offset.store(self.arena_offset, Relaxed);
        header.arena_stride.store(self.arena_stride, Relaxed);
    }

    /// The layout that a header names, if it is one for a file of `length` bytes.
    pub(crate) fn read(header: &Header, length: u64) -> Option<Layout> {
        use std::sync::atomic::Ordering::Relaxed;
        let layout = Layout {
            ranks: header.ranks.load(Relaxed),
            cells_offset: header.cells_offset.load(Relaxed),
            inboxes_offset: header.inboxes_offset.load(Relaxed),
            heap_offset: header.heap_offset.load(Relaxed),
            heap_end: header.heap_end.load(Relaxed),
            arena_offset: header.arena_offset.load(Relaxed),
            arena_stride: header.arena_stride.load(Relaxed),
        };
        layout.is_sound(length).then_some(layout)
    }

    /// Whether all parts follow each other, aligned, inside of `length` bytes.
    fn is_sound(&self, length: u64) -> bool {
        let r = u64::from(self.ranks);
        let after = |offset: u64, each: u64| offset.saturating_add(r.saturating_mul(each));
        let parts = [
            self.cells_offset,
            self.inboxes_offset,
            self.heap_offset,
            self.arena_offset,
            self.arena_stride,
        ];
        self.ranks >= 1
            && parts.iter().all(|part| part.is_multiple_of(PAGE))
            && self.cells_offset >= size_of::<Header>() as u64
            && self.inboxes_offset >= after(self.cells_offset, size_of::<RankCell>() as u64)
            && self.heap_offset >= self.inboxes_offset.saturating_add(all_bytes(self.ranks))
            && self.heap_end >= self.heap_offset
            && self.arena_offset >= self.heap_end
            && length >= after(self.arena_offset, self.arena_stride)
    }
}

const _: () = assert!(size_of::<Header>() <= PAGE as usize);

const BOARD_TABLE_BYTES: u64 = size_of::<BoardTable>() as u64;

/// The next multiple of `to`.
pub(crate) const fn round_up(value: u64, to: u64) -> u64 {
    value.div_ceil(to) * to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::WaitEntry;
    use std::mem::offset_of;

    #[test]
    fn sizes_shrink_to_a_limit_of_file_size() {
        let full = Sizes {
            ranks: 3,
            heap_bytes: 3 * (8 << 20) + (1 << 30),
            arena_bytes: 8 << 30,
        };
        let bytes = |sizes: Sizes| Layout::new(sizes).total_bytes();
        for limit in [200 << 20, 1 << 30, 2 << 30, 24 << 30] {
            let cut = full.within(limit);
            assert!(bytes(cut) <= limit, "{limit}");
            // No more is lost than the units of the parts.
            assert!(limit - bytes(cut) <= 3 * (2 << 20) + (4 << 20), "{limit}");
            assert!(cut.heap_bytes >= 64 << 20 && cut.arena_bytes <= full.arena_bytes);
        }
        assert_eq!(bytes(full.within(u64::MAX)), bytes(full));
        // What cannot be is reported by its least size.
        assert!(bytes(full.within(1 << 20)) > 1 << 20);
    }

    #[test]
    fn table_of_boards_is_as_drawn() {
        assert_eq!((size_of::<BoardTable>(), BOARDS), (98_432, 4096));
        assert_eq!(offset_of!(BoardTable, lock), 0);
        assert_eq!(offset_of!(BoardTable, used), 4);
        assert_eq!(offset_of!(BoardTable, entries), 8);
        assert_eq!(size_of::<BoardEntry>(), 24);
        assert_eq!(offset_of!(BoardEntry, key), 0);
        assert_eq!(offset_of!(BoardEntry, offset), 8);
        assert_eq!(offset_of!(BoardEntry, ranks), 16);
        assert_eq!(offset_of!(BoardEntry, left), 20);
    }

    #[test]
    fn header_and_cell_are_as_drawn() {
        assert_eq!(size_of::<Header>(), 704);
        assert_eq!(MAGIC.to_ne_bytes(), *b"MARGAY\0\x09");
        let header = [
            (offset_of!(Header, magic), 0),
            (offset_of!(Header, ranks), 8),
            (offset_of!(Header, usable_cores), 12),
            (offset_of!(Header, total_bytes), 16),
            (offset_of!(Header, cells_offset), 24),
            (offset_of!(Header, inboxes_offset), 32),
            (offset_of!(Header, heap_offset), 40),
            (offset_of!(Header, heap_end), 48),
            (offset_of!(Header, arena_offset), 56),
            (offset_of!(Header, arena_stride), 64),
            (offset_of!(Header, job_id), 72),
            (offset_of!(Header, started_ns), 80),
            (offset_of!(Header, launcher_pid), 88),
            (offset_of!(Header, aborted_by), 92),
            (offset_of!(Header, abort_code), 96),
            (offset_of!(Header, command_len), 100),
            (offset_of!(Header, command), 104),
            (offset_of!(Header, heap_next), 640),
        ];
        assert_eq!(header.map(|(is, _)| is), header.map(|(_, drawn)| drawn));
        assert_eq!(size_of::<RankCell>(), 768);
        let cell = [
            (offset_of!(RankCell, event_count), 0),
            (offset_of!(RankCell, pid), 64),
            (offset_of!(RankCell, core), 68),
            (offset_of!(RankCell, phase), 72),
            (offset_of!(RankCell, app), 76),
            (offset_of!(RankCell, exited), 80),
            (offset_of!(RankCell, call), 88),
            (offset_of!(RankCell, notes), 120),
            (offset_of!(NoteSlot, words), 4),
            (offset_of!(NoteSlot, offset), 8),
            (size_of::<NoteSlot>(), 16),
            (offset_of!(RankCell, transfer), 184),
            (offset_of!(RankCell, waits), 192),
        ];
        assert_eq!(cell.map(|(is, _)| is), cell.map(|(_, drawn)| drawn));
        let wait = [
            (offset_of!(WaitEntry, sequence), 0),
            (offset_of!(WaitEntry, thread), 4),
            (offset_of!(WaitEntry, kind), 8),
            (offset_of!(WaitEntry, peer), 12),
            (offset_of!(WaitEntry, tag), 16),
            (offset_of!(WaitEntry, has_tag), 20),
            (offset_of!(WaitEntry, context), 24),
            (offset_of!(WaitEntry, since_ns), 32),
            (size_of::<WaitEntry>(), 64),
            (offset_of!(WaitList, unlisted), 512),
        ];
        assert_eq!(wait.map(|(is, _)| is), wait.map(|(_, drawn)| drawn));
    }
}
