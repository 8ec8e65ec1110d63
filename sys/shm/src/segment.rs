//! The job's shared memory: one memfd that the launcher makes and every rank inherits.
//!
//! The layout is drawn byte by byte in `docs/segment.md`. The file is sparse: its length is
//! address space, memory is used when a page is touched, and a memfd has no size limit but memory
//! itself, so touching a page inside the length never ends in SIGBUS. Nothing has a name in the
//! file system, so nothing is left behind when everybody dies.
//!
//! Every shared field is an atomic; a corrupt or hostile peer can make values wrong, never
//! references invalid: each offset that is read from the segment is checked before use.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::board::Table;
use margay_sys_os::doorbell::Doorbell;

/// The version of everything that lies in the segment. A changed layout gets a new version.
pub const VERSION: u8 = 5;

/// `MARGAY` and the format's version in the last byte.
pub const MAGIC: u64 = u64::from_ne_bytes([b'M', b'A', b'R', b'G', b'A', b'Y', 0, VERSION]);

/// The environment variable that tells a rank the number of the inherited segment descriptor.
pub const ENV_SEGMENT: &str = "MARGAY_SEGMENT_FD";
/// Environment variable with the number of ranks, for programs.
pub const ENV_SIZE: &str = "MARGAY_SIZE";
/// The environment variable that tells a rank its number in the job, from 0.
pub const ENV_RANK: &str = "MARGAY_RANK";

/// The environment variable that tells a rank the launcher's executable, for spawning.
pub const ENV_LAUNCHER: &str = "MARGAY_LAUNCHER";
/// The environment variable that tells a launcher who spawns by it: the name at which that program waits for the
/// launcher, and the port at which it waits for the processes.
pub const ENV_SPAWN: &str = "MARGAY_SPAWN";
/// The environment variable that tells a spawned rank the port at which its parents wait.
pub const ENV_PARENT: &str = "MARGAY_PARENT";

/// The name under which the segment's memfd appears in `/proc/<pid>/fd`.
pub const MEMFD_NAME: &str = "margay-job";

const PAGE: u64 = 4096;
/// Longest text of the command line kept for displays, in bytes.
const COMMAND_BYTES: usize = 512;

/// Facts about the job, written by the launcher before the first rank starts.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Header {
    magic: AtomicU64,
    ranks: AtomicU32,
    usable_cores: AtomicU32,
    total_bytes: AtomicU64,
    cells_offset: AtomicU64,
    inbox_offset: AtomicU64,
    heap_offset: AtomicU64,
    heap_end: AtomicU64,
    arena_offset: AtomicU64,
    arena_stride: AtomicU64,
    job_id: AtomicU64,
    started_ns: AtomicU64,
    launcher_pid: AtomicU32,
    /// 0, or 1 + the rank that called abort.
    aborted_by: AtomicU32,
    abort_code: AtomicI32,
    command_len: AtomicU32,
    command: [AtomicU64; COMMAND_BYTES / 8],
    /// How many ranks have died before they were finalized.
    failures: AtomicU32,
    /// 1 when the others go on then.
    tolerant: AtomicU32,
    /// The next free byte of the heap; alone on its line, since everybody adds to it.
    heap_next: Line<AtomicU64>,
}

#[repr(C, align(64))]
#[derive(Debug)]
struct Line<T>(T);

/// Where a rank stands in its life.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The process has not called into the library yet.
    Starting = 0,
    /// Between init and finalize.
    Running = 1,
    /// Finalize is done.
    Finalized = 2,
}

/// What a waiting rank waits for; what `showmesh` shows and what explains a hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which kind of event.
    pub kind: WaitKind,
    /// World rank waited for, if it is one rank.
    pub peer: Option<u32>,
    /// Tag, if the wait has one.
    pub tag: Option<i32>,
    /// Context (communicator) of the wait.
    pub context: u32,
    /// Since when, in [`margay_sys_os::clock::now_ns`] nanoseconds.
    pub since_ns: u64,
}

/// The kinds of event that a rank waits for.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// A message to arrive (receive, probe).
    Receive = 1,
    /// A message to be taken by its receiver.
    Send = 2,
    /// Other ranks to arrive in a collective operation.
    Collective = 3,
    /// One of several requests.
    Several = 4,
    /// Something of another job.
    Elsewhere = 5,
}

/// The process type of a rank whose process is not known yet.
pub const UNPLACED: u32 = u32::MAX;

/// One rank's cell: the word it sleeps on, who it is, what it does. Written by its own rank
/// except for the doorbell and for what the launcher enters before the rank starts.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct RankCell {
    bell: Line<Doorbell>,
    pid: AtomicU32,
    /// 1 + the core to which the launcher bound the rank, 0 when it is not bound.
    core: AtomicU32,
    phase: AtomicU32,
    /// Index of the program in an MPMD job.
    app: AtomicU32,
    /// 0, or a [`WaitKind`] while the rank waits.
    wait_kind: AtomicU32,
    wait_peer: AtomicI32,
    wait_tag: AtomicI32,
    wait_has_tag: AtomicU32,
    wait_context: AtomicU32,
    exited: AtomicU32,
    wait_since_ns: AtomicU64,
    /// The rank's address in NX: number of its node, and type of the process on that node.
    node: AtomicU32,
    process_type: AtomicU32,
    /// The type that it was started with.
    first_type: AtomicU32,
    /// The name of the current or last library call, NUL-padded.
    call: [AtomicU64; 4],
    /// Where in the heap the rank's row of markers is, 0 for none.
    markers: AtomicU64,
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
    pub fn for_meeting(ranks: u32) -> Self {
        let pairs = u64::from(ranks) * u64::from(ranks);
        Sizes {
            ranks,
            heap_bytes: pairs * (32 << 10) + u64::from(ranks) * (1 << 20),
            arena_bytes: 0,
        }
    }

    /// The usual sizes for a job: room for a pipe between every two ranks and an arena as large as
    /// the machine's memory for each rank. All of it is address space until it is touched.
    #[must_use]
    pub fn for_job(ranks: u32) -> Self {
        let pairs = u64::from(ranks) * u64::from(ranks);
        Sizes {
            ranks,
            heap_bytes: pairs * (64 << 10) + u64::from(ranks) * (8 << 20) + (1 << 30),
            arena_bytes: round_up(physical_memory_bytes().max(1 << 30), 1 << 30),
        }
    }
}

/// A mapping of the job's segment. Cheap to share by `Arc`; all access is through atomics or
/// through the typed parts ([`crate::ring`], [`crate::pool`], [`crate::board`]).
#[derive(Debug)]
pub struct Segment {
    fd: OwnedFd,
    /// The number of the file, which no other segment of the machine has at the same time.
    id: u64,
    base: NonNull<u8>,
    /// Bytes mapped at `base`: everything but the arenas.
    mapped: usize,
    ranks: u32,
    cells_offset: u64,
    inbox_offset: u64,
    heap_offset: u64,
    heap_end: u64,
    arena_offset: u64,
    arena_stride: u64,
    /// Address of each rank's arena in this process, 0 until it is mapped.
    arenas: Box<[AtomicUsize]>,
}

// SAFETY: the mapping stays at one place until drop and is only reached through atomics or through
// the typed parts, which carry their own argument.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// Why a segment could not be made or joined.
#[derive(Debug)]
pub enum SegmentError {
    /// A system call failed.
    Os {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// The descriptor is not a segment of this version.
    Format(String),
}

impl std::fmt::Display for SegmentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SegmentError::Os { what, error } => {
                write!(f, "cannot {what} the job's shared memory: {error}")
            }
            SegmentError::Format(why) => write!(
                f,
                "the job's shared memory is not usable: {why}; launcher and library must come from \
                 the same Margay"
            ),
        }
    }
}

impl std::error::Error for SegmentError {}

impl Segment {
    /// Makes a new segment and maps it. The descriptor is close-on-exec; the launcher lets ranks
    /// inherit it by clearing that flag in the child.
    ///
    /// # Errors
    /// When the kernel refuses the memfd, its size or the mapping.
    pub fn create(sizes: Sizes) -> Result<Segment, SegmentError> {
        let ranks = sizes.ranks.max(1);
        let cells_offset = round_up(size_of::<Header>() as u64, PAGE);
        let inbox_offset = round_up(
            cells_offset + u64::from(ranks) * size_of::<RankCell>() as u64,
            PAGE,
        );
        let heap_offset = round_up(inbox_offset + u64::from(ranks) * inbox_bytes(ranks), PAGE);
        let heap_end = round_up(
            heap_offset + size_of::<Table>() as u64 + sizes.heap_bytes,
            2 << 20,
        );
        let arena_stride = round_up(sizes.arena_bytes, 2 << 20);
        let total = heap_end + arena_stride * u64::from(ranks);

        let fd = memfd_create()?;
        let file = File::from(fd);
        file.set_len(total).map_err(|error| SegmentError::Os {
            what: "size",
            error,
        })?;
        let id = metadata(&file)?.ino();
        let fd = OwnedFd::from(file);
        let base = map(fd.as_raw_fd(), 0, heap_end as usize)?;
        let segment = Segment {
            fd,
            id,
            base,
            mapped: heap_end as usize,
            ranks,
            cells_offset,
            inbox_offset,
            heap_offset,
            heap_end,
            arena_offset: heap_end,
            arena_stride,
            arenas: (0..ranks).map(|_| AtomicUsize::new(0)).collect(),
        };
        let h = segment.header();
        h.ranks.store(ranks, Ordering::Relaxed);
        h.total_bytes.store(total, Ordering::Relaxed);
        h.cells_offset.store(cells_offset, Ordering::Relaxed);
        h.inbox_offset.store(inbox_offset, Ordering::Relaxed);
        h.heap_offset.store(heap_offset, Ordering::Relaxed);
        h.heap_end.store(heap_end, Ordering::Relaxed);
        h.arena_offset.store(heap_end, Ordering::Relaxed);
        h.arena_stride.store(arena_stride, Ordering::Relaxed);
        h.heap_next
            .0
            .store(heap_offset + size_of::<Table>() as u64, Ordering::Relaxed);
        for rank in 0..ranks {
            segment.cell(rank).set_place(rank, 0);
        }
        h.magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// Joins the segment behind an inherited descriptor (see [`ENV_SEGMENT`]) or one opened through
    /// `/proc/<pid>/fd`. Takes the descriptor over.
    ///
    /// # Errors
    /// When it is not a segment of this version or cannot be mapped.
    pub fn join(fd: OwnedFd) -> Result<Segment, SegmentError> {
        let file = File::from(fd);
        let facts = metadata(&file)?;
        let (id, length) = (facts.ino(), facts.len());
        let fd = OwnedFd::from(file);
        if length < PAGE {
            return Err(SegmentError::Format(format!("it has {length} bytes")));
        }
        let probe = Mapping::new(fd.as_raw_fd(), PAGE as usize)?;
        // SAFETY: the mapping is a page long, page-aligned, and `Header` consists of atomics and
        // fits into a page (asserted below at compile time).
        let h = unsafe { probe.base.cast::<Header>().as_ref() };
        let magic = h.magic.load(Ordering::Acquire);
        if magic != MAGIC {
            return Err(SegmentError::Format(other_magic(magic)));
        }
        let ranks = h.ranks.load(Ordering::Relaxed);
        let cells_offset = h.cells_offset.load(Ordering::Relaxed);
        let inbox_offset = h.inbox_offset.load(Ordering::Relaxed);
        let heap_offset = h.heap_offset.load(Ordering::Relaxed);
        let heap_end = h.heap_end.load(Ordering::Relaxed);
        let arena_offset = h.arena_offset.load(Ordering::Relaxed);
        let arena_stride = h.arena_stride.load(Ordering::Relaxed);
        let r = u64::from(ranks);
        let sound = ranks >= 1
            && cells_offset.is_multiple_of(PAGE)
            && cells_offset >= size_of::<Header>() as u64
            && inbox_offset >= cells_offset.saturating_add(r * size_of::<RankCell>() as u64)
            && heap_offset >= inbox_offset.saturating_add(r.saturating_mul(inbox_bytes(ranks)))
            && heap_end >= heap_offset
            && arena_offset >= heap_end
            && inbox_offset.is_multiple_of(PAGE)
            && heap_offset.is_multiple_of(PAGE)
            && arena_offset.is_multiple_of(PAGE)
            && arena_stride.is_multiple_of(PAGE)
            && length >= arena_offset.saturating_add(r.saturating_mul(arena_stride));
        if !sound {
            return Err(SegmentError::Format(format!(
                "its header contradicts its length of {length} bytes"
            )));
        }
        drop(probe);
        let base = map(fd.as_raw_fd(), 0, heap_end as usize)?;
        Ok(Segment {
            fd,
            id,
            base,
            mapped: heap_end as usize,
            ranks,
            cells_offset,
            inbox_offset,
            heap_offset,
            heap_end,
            arena_offset,
            arena_stride,
            arenas: (0..ranks).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    /// Joins by the number of an inherited descriptor; marks it close-on-exec again so that the
    /// rank's own children do not hold the job's memory.
    ///
    /// # Errors
    /// As [`Segment::join`], and when the descriptor is not open.
    pub fn join_inherited(number: RawFd) -> Result<Segment, SegmentError> {
        // SAFETY: fcntl with F_SETFD touches no memory of ours; a bad number gives an error.
        if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            return Err(SegmentError::Os {
                what: "find the descriptor of",
                error: io::Error::last_os_error(),
            });
        }
        // SAFETY: the descriptor is open (checked above) and was handed down for us to own.
        Segment::join(unsafe { OwnedFd::from_raw_fd(number) })
    }

    /// Joins the segment with that id which a process holds as its descriptor `number`.
    ///
    /// # Errors
    /// As [`Segment::join`], and when the process does not hold it (any more).
    pub fn join_of(pid: u32, number: RawFd, id: u64) -> Result<Segment, SegmentError> {
        let path = format!("/proc/{pid}/fd/{number}");
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(|error| SegmentError::Os {
            what: "open another job's memory beside",
            error,
        })?;
        if metadata(&file)?.ino() != id {
            return Err(SegmentError::Format(format!(
                "process {pid} does not hold it any more"
            )));
        }
        Segment::join(file.into())
    }

    /// What tells this segment from all others of the machine.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The job's header.
    #[must_use]
    pub fn header(&self) -> &Header {
        // SAFETY: offset 0 is mapped for at least a page, aligned, and holds only atomics.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// The cell of a rank.
    ///
    /// # Panics
    /// When `rank` is not in the job.
    #[must_use]
    #[inline]
    pub fn cell(&self, rank: u32) -> &RankCell {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        let offset = self.cells_offset as usize + rank as usize * size_of::<RankCell>();
        // SAFETY: create and join make sure that all cells lie inside the mapping, aligned.
        unsafe { self.base.add(offset).cast::<RankCell>().as_ref() }
    }

    /// The cell of a rank, to keep.
    ///
    /// # Panics
    /// When `rank` is not in the job.
    #[must_use]
    pub fn keep_cell(self: &Arc<Self>, rank: u32) -> KeptCell {
        KeptCell {
            cell: NonNull::from(self.cell(rank)),
            _segment: self.clone(),
        }
    }

    /// Ranks in the job.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Takes `bytes` of zeroed memory from the heap, aligned to a page when it is at least 64 KiB
    /// long, else to a pair of cache lines. The heap never shrinks. None when the address space is
    /// used up.
    #[must_use]
    pub fn heap_alloc(&self, bytes: u64) -> Option<u64> {
        let align = if bytes >= 64 << 10 { PAGE } else { 128 };
        let next = &self.header().heap_next.0;
        let mut at = next.load(Ordering::Relaxed);
        loop {
            let start = round_up(at.max(self.heap_offset), align);
            let end = start.checked_add(round_up(bytes, 64))?;
            if end > self.heap_end {
                return None;
            }
            match next.compare_exchange_weak(at, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(start),
                Err(now) => at = now,
            }
        }
    }

    /// Bytes of the heap that have not been taken yet.
    #[must_use]
    pub fn heap_left(&self) -> u64 {
        let next = self.header().heap_next.0.load(Ordering::Relaxed);
        self.heap_end.saturating_sub(next)
    }

    /// Bytes of the heap that have been taken so far.
    #[must_use]
    pub fn heap_used(&self) -> u64 {
        self.header()
            .heap_next
            .0
            .load(Ordering::Relaxed)
            .saturating_sub(self.heap_offset)
    }

    /// The table of boards, at the start of the heap. None when the heap is too short for it.
    pub(crate) fn boards(&self) -> Option<&Table> {
        let at = self.heap_at(self.heap_offset, size_of::<Table>() as u64, 128)?;
        // SAFETY: inside the heap, aligned (checked), kept free of allocations by `create`; zeroed
        // memory is an empty table of atomics.
        Some(unsafe { at.cast::<Table>().as_ref() })
    }

    /// The list of those who send to `rank`.
    #[must_use]
    #[inline]
    pub fn inbox(&self, rank: u32) -> Inbox<'_> {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        let at = self.inbox_offset as usize + rank as usize * inbox_bytes(self.ranks) as usize;
        // SAFETY: create and join make sure that all inboxes lie inside the mapping; each starts
        // with a count on its own line, then one pipe offset for every rank, then the order of
        // arrival, all of them atomics.
        unsafe {
            let start = self.base.add(at);
            let n = self.ranks as usize;
            Inbox {
                count: start.cast::<AtomicU32>().as_ref(),
                pipes: std::slice::from_raw_parts(start.add(64).cast().as_ptr(), n),
                order: std::slice::from_raw_parts(start.add(64 + 8 * n).cast().as_ptr(), n),
            }
        }
    }

    /// The descriptor, for handing down.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The address in this process of `[offset, offset + bytes)` of the heap, checked.
    pub(crate) fn heap_at(&self, offset: u64, bytes: u64, align: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        let inside = offset >= self.heap_offset && end <= self.heap_end;
        // SAFETY: the heap lies inside the mapping and the range inside the heap.
        (inside && offset.is_multiple_of(align)).then(|| unsafe { self.base.add(offset as usize) })
    }

    /// Length of every rank's arena in bytes.
    #[must_use]
    pub fn arena_bytes(&self) -> u64 {
        self.arena_stride
    }

    /// The address of a rank's arena in this process; maps it at the first call. None when the
    /// kernel refuses the address space (`ulimit -v`).
    pub(crate) fn arena(&self, rank: u32) -> Option<NonNull<u8>> {
        let place = self.arenas.get(rank as usize)?;
        let known = place.load(Ordering::Acquire);
        if let Some(known) = NonNull::new(known as *mut u8) {
            return Some(known);
        }
        let offset = self.arena_offset + u64::from(rank) * self.arena_stride;
        let new = map(self.fd.as_raw_fd(), offset, self.arena_stride as usize).ok()?;
        advise_huge(new, self.arena_stride as usize);
        match place.compare_exchange(
            0,
            new.as_ptr() as usize,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => Some(new),
            Err(other) => {
                unmap(new, self.arena_stride as usize);
                NonNull::new(other as *mut u8)
            }
        }
    }

    /// The arena in which `[address, address + bytes)` of this process lies, and where in it; none for
    /// memory outside of the arenas that are mapped.
    #[must_use]
    pub fn place_of(&self, address: usize, bytes: u64) -> Option<(u32, u64)> {
        (0u32..).zip(&self.arenas).find_map(|(rank, place)| {
            let base = place.load(Ordering::Acquire);
            let offset = (address as u64).checked_sub(base as u64)?;
            let end = offset.checked_add(bytes)?;
            (base != 0 && end <= self.arena_stride).then_some((rank, offset))
        })
    }

    /// Gives the pages of `[offset, offset + bytes)` of a rank's arena back to the system.
    pub(crate) fn arena_discard(&self, rank: u32, offset: u64, bytes: u64) {
        let at = self.arena_offset + u64::from(rank) * self.arena_stride + offset;
        // SAFETY: punching a hole into our own file; the pages read as zero afterwards.
        unsafe {
            libc::fallocate(
                self.fd.as_raw_fd(),
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                at as libc::off_t,
                bytes as libc::off_t,
            )
        };
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        for place in &self.arenas {
            if let Some(at) = NonNull::new(place.load(Ordering::Acquire) as *mut u8) {
                unmap(at, self.arena_stride as usize);
            }
        }
        unmap(self.base, self.mapped);
    }
}

/// Those who send to one rank: who they are, in the order in which they began, and where the pipe
/// of each lies. Grows, never shrinks, so polling costs what is active.
#[derive(Clone, Copy, Debug)]
pub struct Inbox<'a> {
    count: &'a AtomicU32,
    pipes: &'a [AtomicU64],
    order: &'a [AtomicU32],
}

impl<'a> Inbox<'a> {
    /// How many send to this rank so far.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u32 {
        self.count
            .load(Ordering::Acquire)
            .min(self.pipes.len() as u32)
    }

    /// Whether nobody sends to this rank yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counter itself, for a poller that keeps it at hand.
    #[must_use]
    pub fn counter(&self) -> &'a AtomicU32 {
        self.count
    }

    /// The sender at place `index` in the order of beginning and the heap offset of its pipe. None
    /// while the entry is still being written.
    #[must_use]
    pub fn sender(&self, index: u32) -> Option<(u32, u64)> {
        let sender = self
            .order
            .get(index as usize)?
            .load(Ordering::Acquire)
            .checked_sub(1)?;
        let offset = self.pipes.get(sender as usize)?.load(Ordering::Acquire);
        (offset != 0).then_some((sender, offset))
    }

    /// Enters the pipe of `sender`; call once for each sender.
    pub fn announce(&self, sender: u32, pipe_offset: u64) {
        self.pipes[sender as usize].store(pipe_offset, Ordering::Release);
        let place = self.count.fetch_add(1, Ordering::AcqRel);
        self.order[place as usize].store(sender + 1, Ordering::Release);
    }
}

impl Header {
    /// Cores that the job may use, as the launcher counted them (affinity and quota).
    #[must_use]
    pub fn usable_cores(&self) -> u32 {
        self.usable_cores.load(Ordering::Relaxed)
    }

    /// Enters the facts of the job; the launcher calls it once before the first rank starts.
    /// `command` is cut to 512 bytes.
    pub fn describe(&self, job_id: u64, launcher_pid: u32, usable_cores: u32, command: &str) {
        self.job_id.store(job_id, Ordering::Relaxed);
        self.launcher_pid.store(launcher_pid, Ordering::Relaxed);
        self.usable_cores.store(usable_cores, Ordering::Relaxed);
        self.started_ns
            .store(margay_sys_os::clock::now_ns(), Ordering::Relaxed);
        let bytes = &command.as_bytes()[..command.len().min(COMMAND_BYTES)];
        for (word, eight) in self.command.iter().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..eight.len()].copy_from_slice(eight);
            word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
        self.command_len
            .store(bytes.len() as u32, Ordering::Release);
    }

    /// The job's number, as the launcher chose it.
    #[must_use]
    pub fn job_id(&self) -> u64 {
        self.job_id.load(Ordering::Relaxed)
    }

    /// Process id of the launcher.
    #[must_use]
    pub fn launcher_pid(&self) -> u32 {
        self.launcher_pid.load(Ordering::Relaxed)
    }

    /// When the job began, in [`margay_sys_os::clock::now_ns`] nanoseconds.
    #[must_use]
    pub fn started_ns(&self) -> u64 {
        self.started_ns.load(Ordering::Relaxed)
    }

    /// The command line of the job.
    #[must_use]
    pub fn command(&self) -> String {
        let len = (self.command_len.load(Ordering::Acquire) as usize).min(COMMAND_BYTES);
        let bytes: Vec<u8> = self
            .command
            .iter()
            .flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes())
            .take(len)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Ranks that have died before they were finalized, as far as the launcher knows.
    #[must_use]
    #[inline]
    pub fn failures(&self) -> u32 {
        self.failures.load(Ordering::Acquire)
    }

    /// Enters (by the launcher) that another rank has died so; call it when its cell says that it is gone.
    pub fn add_failure(&self) {
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the ranks go on when one of them dies.
    #[must_use]
    pub fn is_tolerant(&self) -> bool {
        self.tolerant.load(Ordering::Relaxed) != 0
    }

    /// Enters (by the launcher) that they do.
    pub fn set_tolerant(&self) {
        self.tolerant.store(1, Ordering::Relaxed);
    }

    /// Enters that `rank` aborts the job with `code`. Only the first one counts: a first cause is
    /// never masked. Returns whether this was the first.
    pub fn abort(&self, rank: u32, code: i32) -> bool {
        let first = self
            .aborted_by
            .compare_exchange(0, u32::MAX, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if first {
            self.abort_code.store(code, Ordering::Relaxed);
            self.aborted_by.store(rank + 1, Ordering::Release);
        }
        first
    }

    /// The rank that aborted the job and its code.
    #[must_use]
    pub fn aborted(&self) -> Option<(u32, i32)> {
        match self.aborted_by.load(Ordering::Acquire) {
            0 | u32::MAX => None,
            r => Some((r - 1, self.abort_code.load(Ordering::Relaxed))),
        }
    }
}

impl RankCell {
    /// The doorbell on which the rank sleeps.
    #[must_use]
    #[inline]
    pub fn bell(&self) -> &Doorbell {
        &self.bell.0
    }

    /// Enters who the rank is: process id, core if bound, index of its program in an MPMD job.
    pub fn identify(&self, pid: u32, core: Option<u32>, app: u32) {
        self.pid.store(pid, Ordering::Relaxed);
        self.core
            .store(core.map_or(0, |c| c + 1), Ordering::Relaxed);
        self.app.store(app, Ordering::Relaxed);
    }

    /// Enters the number of the rank's node and the type of the process on it, its address in NX. A new segment has a node
    /// for each rank and the type 0.
    pub fn set_place(&self, node: u32, process_type: u32) {
        self.node.store(node, Ordering::Relaxed);
        self.first_type.store(process_type, Ordering::Relaxed);
        self.process_type.store(process_type, Ordering::Release);
    }

    /// What [`set_place`](Self::set_place) entered: node and type.
    #[must_use]
    pub fn place(&self) -> (u32, u32) {
        let first_type = self.first_type.load(Ordering::Acquire);
        (self.node.load(Ordering::Relaxed), first_type)
    }

    /// Enters (by the rank) that the process has another type now.
    pub fn set_process_type(&self, process_type: u32) {
        self.process_type.store(process_type, Ordering::Release);
    }

    /// The type that the process has now.
    #[must_use]
    pub fn process_type(&self) -> u32 {
        self.process_type.load(Ordering::Acquire)
    }

    /// Enters the process id alone (a rank whose launcher could not know it).
    pub fn set_pid(&self, pid: u32) {
        self.pid.store(pid, Ordering::Release);
    }

    /// Process id, 0 while unknown.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Acquire)
    }

    /// The core to which the launcher bound the rank.
    #[must_use]
    pub fn core(&self) -> Option<u32> {
        self.core.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Index of the rank's program in an MPMD job.
    #[must_use]
    pub fn app(&self) -> u32 {
        self.app.load(Ordering::Relaxed)
    }

    /// Enters a new phase.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u32, Ordering::Release);
    }

    /// The phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Running,
            _ => Phase::Finalized,
        }
    }

    /// Enters (by the launcher) that the process is gone.
    pub fn set_exited(&self) {
        self.exited.store(1, Ordering::Release);
    }

    /// Whether the rank has died before it was finalized.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.exited() && self.phase() != Phase::Finalized
    }

    /// Whether the process is gone.
    #[must_use]
    pub fn exited(&self) -> bool {
        self.exited.load(Ordering::Acquire) != 0
    }

    /// Enters the name of the library call that begins. `name` comes from [`call_name`].
    #[inline]
    pub fn set_call(&self, name: &[u64; 4]) {
        for (word, &value) in self.call.iter().zip(name) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The name of the current or last library call, empty before the first.
    #[must_use]
    pub fn call(&self) -> String {
        let bytes: Vec<u8> = self
            .call
            .iter()
            .flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes())
            .take_while(|&b| b != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Enters (by the rank) where in the heap its row of markers is.
    pub(crate) fn set_markers(&self, offset: u64) {
        self.markers.store(offset, Ordering::Release);
    }

    /// Where in the heap the rank's row of markers is, 0 for none.
    pub(crate) fn markers(&self) -> u64 {
        self.markers.load(Ordering::Acquire)
    }

    /// Enters what the rank begins to wait for, or that it goes on.
    pub fn set_waiting(&self, waiting: Option<Waiting>) {
        match waiting {
            None => self.wait_kind.store(0, Ordering::Release),
            Some(w) => {
                self.wait_peer
                    .store(w.peer.map_or(-1, |p| p as i32), Ordering::Relaxed);
                self.wait_tag.store(w.tag.unwrap_or(0), Ordering::Relaxed);
                self.wait_has_tag
                    .store(u32::from(w.tag.is_some()), Ordering::Relaxed);
                self.wait_context.store(w.context, Ordering::Relaxed);
                self.wait_since_ns.store(w.since_ns, Ordering::Relaxed);
                self.wait_kind.store(w.kind as u32, Ordering::Release);
            }
        }
    }

    /// What the rank waits for, none while it computes.
    #[must_use]
    pub fn waiting(&self) -> Option<Waiting> {
        let kind = match self.wait_kind.load(Ordering::Acquire) {
            1 => WaitKind::Receive,
            2 => WaitKind::Send,
            3 => WaitKind::Collective,
            4 => WaitKind::Several,
            5 => WaitKind::Elsewhere,
            _ => return None,
        };
        Some(Waiting {
            kind,
            peer: u32::try_from(self.wait_peer.load(Ordering::Relaxed)).ok(),
            tag: (self.wait_has_tag.load(Ordering::Relaxed) != 0)
                .then(|| self.wait_tag.load(Ordering::Relaxed)),
            context: self.wait_context.load(Ordering::Relaxed),
            since_ns: self.wait_since_ns.load(Ordering::Relaxed),
        })
    }
}

fn metadata(file: &File) -> Result<std::fs::Metadata, SegmentError> {
    file.metadata().map_err(|error| SegmentError::Os {
        what: "examine",
        error,
    })
}

/// The cell of a rank with the segment in which it lies: for who uses it at every call.
#[derive(Debug)]
pub struct KeptCell {
    cell: NonNull<RankCell>,
    _segment: Arc<Segment>,
}

// SAFETY: the cell lies in a mapping that lives as long as the segment; all access is atomic.
unsafe impl Send for KeptCell {}
// SAFETY: as above.
unsafe impl Sync for KeptCell {}

impl Deref for KeptCell {
    type Target = RankCell;

    #[inline]
    fn deref(&self) -> &RankCell {
        // SAFETY: from a reference into the mapping, which the segment keeps.
        unsafe { self.cell.as_ref() }
    }
}

/// The words that [`RankCell::set_call`] stores for a name; names are cut to 32 bytes.
#[must_use]
pub const fn call_name(name: &str) -> [u64; 4] {
    let bytes = name.as_bytes();
    let mut words = [0u64; 4];
    let mut i = 0;
    while i < bytes.len() && i < 32 {
        words[i / 8] |= (bytes[i] as u64) << (8 * (i % 8));
        i += 1;
    }
    words
}

/// Installed memory in bytes.
#[must_use]
pub fn physical_memory_bytes() -> u64 {
    // SAFETY: sysconf touches no memory of ours.
    let (pages, size) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    (pages.max(0) as u64).saturating_mul(size.max(0) as u64)
}

const _: () = assert!(size_of::<Header>() <= PAGE as usize);

/// A mapping that goes away at the end of its scope.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(fd: RawFd, len: usize) -> Result<Mapping, SegmentError> {
        map(fd, 0, len).map(|base| Mapping { base, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

/// What is wrong with a magic that is not ours.
fn other_magic(magic: u64) -> String {
    let [name @ .., version] = magic.to_ne_bytes();
    if MAGIC.to_ne_bytes().starts_with(&name) {
        format!("its format has version {version}, this one reads version {VERSION}")
    } else {
        format!("it does not begin with 'MARGAY' but with {magic:#018x}")
    }
}

const fn inbox_bytes(ranks: u32) -> u64 {
    round_up(64 + 12 * ranks as u64, 64)
}

const fn round_up(value: u64, to: u64) -> u64 {
    value.div_ceil(to) * to
}

fn memfd_create() -> Result<OwnedFd, SegmentError> {
    let name = std::ffi::CString::new(MEMFD_NAME).expect("no NUL in the name");
    // SAFETY: `name` is a valid C string for the time of the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(SegmentError::Os {
            what: "create",
            error: io::Error::last_os_error(),
        });
    }
    // SAFETY: the kernel just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn map(fd: RawFd, offset: u64, len: usize) -> Result<NonNull<u8>, SegmentError> {
    // SAFETY: a new shared mapping at an address of the kernel's choice touches nothing of ours.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            fd,
            offset as libc::off_t,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(SegmentError::Os {
            what: "map",
            error: io::Error::last_os_error(),
        });
    }
    // A core dump of a rank need not hold the whole job's memory.
    // SAFETY: advice about a mapping that we just made.
    unsafe { libc::madvise(at, len, libc::MADV_DONTDUMP) };
    Ok(NonNull::new(at.cast()).expect("mmap does not return null"))
}

fn advise_huge(at: NonNull<u8>, len: usize) {
    // SAFETY: advice about a mapping of ours.
    unsafe { libc::madvise(at.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
}

fn unmap(at: NonNull<u8>, len: usize) {
    // SAFETY: only called for mappings that this module made, when nothing refers to them any more.
    unsafe { libc::munmap(at.as_ptr().cast(), len) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn header_and_cell_are_as_drawn() {
        assert_eq!(size_of::<Header>(), 704);
        assert_eq!(MAGIC.to_ne_bytes(), *b"MARGAY\0\x05");
        let header = [
            (offset_of!(Header, magic), 0),
            (offset_of!(Header, ranks), 8),
            (offset_of!(Header, usable_cores), 12),
            (offset_of!(Header, total_bytes), 16),
            (offset_of!(Header, cells_offset), 24),
            (offset_of!(Header, inbox_offset), 32),
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
        assert_eq!(size_of::<RankCell>(), 192);
        let cell = [
            (offset_of!(RankCell, bell), 0),
            (offset_of!(RankCell, pid), 64),
            (offset_of!(RankCell, core), 68),
            (offset_of!(RankCell, phase), 72),
            (offset_of!(RankCell, app), 76),
            (offset_of!(RankCell, wait_kind), 80),
            (offset_of!(RankCell, wait_peer), 84),
            (offset_of!(RankCell, wait_tag), 88),
            (offset_of!(RankCell, wait_has_tag), 92),
            (offset_of!(RankCell, wait_context), 96),
            (offset_of!(RankCell, exited), 100),
            (offset_of!(RankCell, wait_since_ns), 104),
            (offset_of!(RankCell, node), 112),
            (offset_of!(RankCell, process_type), 116),
            (offset_of!(RankCell, first_type), 120),
            (offset_of!(RankCell, call), 128),
            (offset_of!(RankCell, markers), 160),
        ];
        assert_eq!(cell.map(|(is, _)| is), cell.map(|(_, drawn)| drawn));
        assert_eq!(inbox_bytes(1), 128);
        assert_eq!(inbox_bytes(16), 256);
    }

    fn small(ranks: u32) -> Segment {
        Segment::create(Sizes {
            ranks,
            heap_bytes: 1 << 20,
            arena_bytes: 1 << 21,
        })
        .unwrap()
    }

    #[test]
    fn a_second_mapping_sees_what_the_first_wrote() {
        let a = small(3);
        a.header().describe(77, 4, 2, "a.out -x");
        a.cell(2).identify(1234, Some(1), 0);
        a.cell(2).set_call(&call_name("MPI_Allreduce"));
        let b = Segment::join(a.fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(b.ranks(), 3);
        assert_eq!(b.header().job_id(), 77);
        assert_eq!(b.header().command(), "a.out -x");
        assert_eq!(b.cell(2).pid(), 1234);
        assert_eq!(b.cell(2).core(), Some(1));
        assert_eq!(b.cell(2).call(), "MPI_Allreduce");
    }

    #[test]
    fn waits_are_told_whole() {
        let s = small(1);
        assert_eq!(s.cell(0).waiting(), None);
        let w = Waiting {
            kind: WaitKind::Receive,
            peer: Some(7),
            tag: None,
            context: 3,
            since_ns: 9,
        };
        s.cell(0).set_waiting(Some(w));
        assert_eq!(s.cell(0).waiting(), Some(w));
        s.cell(0).set_waiting(None);
        assert_eq!(s.cell(0).waiting(), None);
    }

    #[test]
    fn only_the_first_abort_counts() {
        let s = small(2);
        assert!(s.header().abort(1, 9));
        assert!(!s.header().abort(0, 3));
        assert_eq!(s.header().aborted(), Some((1, 9)));
    }

    #[test]
    fn the_heap_ends_with_none_and_never_overlaps() {
        let s = small(1);
        let a = s.heap_alloc(100).unwrap();
        let b = s.heap_alloc(70_000).unwrap();
        assert!(b >= a + 128 && b.is_multiple_of(4096));
        assert_eq!(s.heap_alloc(64 << 20), None);
        assert!(s.heap_at(b, 5000, 64).is_some());
        assert!(s.heap_at(0, 64, 64).is_none());
        assert!(s.heap_at(u64::MAX - 8, 64, 64).is_none());
    }

    #[test]
    fn other_files_are_refused() {
        let file = File::open("/proc/self/exe").unwrap();
        let error = Segment::join(OwnedFd::from(file)).unwrap_err();
        assert!(error.to_string().contains("shared memory"), "{error}");
        let empty = memfd_create().unwrap();
        let error = Segment::join(empty).unwrap_err();
        assert!(matches!(error, SegmentError::Format(_)), "{error}");
    }

    #[test]
    fn senders_are_listed_in_the_order_of_beginning() {
        let s = small(4);
        let inbox = s.inbox(1);
        assert!(inbox.is_empty());
        inbox.announce(3, 4096);
        inbox.announce(0, 8192);
        assert_eq!(inbox.len(), 2);
        assert_eq!(inbox.sender(0), Some((3, 4096)));
        assert_eq!(inbox.sender(1), Some((0, 8192)));
        assert_eq!(inbox.sender(2), None);
    }
}
