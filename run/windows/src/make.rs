//! Making a window.
//!
//! It takes two exchanges. In the first every rank reports where its memory is, and rank 0 the
//! number of the window's communicator and where the control block is. In the second every rank
//! votes whether it can map what the others have reported and attach to their processes; so all
//! know alike which paths there are.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicIsize, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use margay_run_engine::ProgressHook;
use margay_run_mpi::attribute::Attributes;
use margay_run_mpi::comm::{Comm, Parts};
use margay_run_mpi::constants::errhandler::MPI_ERRORS_ARE_FATAL;
use margay_run_mpi::constants::win::MPI_WIN_NULL;
use margay_run_mpi::constants::window::MPI_WIN_UNIFIED;
use margay_run_mpi::error::*;
use margay_run_mpi::info::Info;
use margay_run_mpi::{Mpi, Operation, fail};
use margay_sys_os::cma;
use margay_sys_os::sweep::Sweep;
use margay_sys_os::user::Mem;
use margay_sys_shm::arena;
use margay_sys_shm::rma_queue::{self, RmaQueue};
use margay_sys_shm::segment::Segment;
use margay_sys_shm::window::Block;

use super::attach::Attachments;
use super::epoch::{CLOSED, Epoch};
use super::rma::{self, OriginQueue, RmaQueues};
use super::server::{Served, Serving};
use super::{AccessPath, Flavor, State, Target, Values, Window, Windows, hints};

/// The memory of one process's part of a window.
#[derive(Clone)]
pub(super) enum Memory {
    /// The program's.
    User(Mem),
    /// Shared memory of this process, which goes back when the window is freed: its address, and
    /// where in it the window begins.
    Arena(usize, usize),
    /// Memory of our own that is not shared.
    Pages(Mem),
    /// There is none, or it belongs to another process.
    Nothing,
}

/// What this process has made for a window, and gives back when the window is freed.
pub(super) struct Made {
    memory: Memory,
    /// The address of the control block in its arena, if it made it.
    block: Option<usize>,
    /// The address of the queues in its arena, if it made some: its memory is not mapped by others.
    queues: Option<usize>,
}

/// The window that the program asks for.
pub(super) struct Wanted<'a> {
    parent: &'a Arc<Comm>,
    flavor: Flavor,
    /// Of this rank's part, in bytes.
    size: u64,
    /// Bytes of one displacement.
    unit: i64,
    info: &'a Info,
    /// Memory that all processes have in common.
    segment: Option<&'a Arc<Segment>>,
    /// All parts are one piece of memory of rank 0.
    contiguous: bool,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(
        mpi: &'a Mpi,
        parent: &'a Arc<Comm>,
        flavor: Flavor,
        (size, unit): (u64, i64),
        info: &'a Info,
    ) -> Wanted<'a> {
        let segment = mpi.rank().memory_among(parent.group.processes());
        let segment = segment.filter(|_| !mpi.spans(parent));
        let contiguous = flavor == Flavor::Shared && !hints::is_set(info, "alloc_shared_noncontig");
        Wanted {
            parent,
            flavor,
            size,
            unit,
            info,
            segment,
            contiguous,
        }
    }

    fn ranks(&self) -> u32 {
        self.parent.size()
    }

    fn me(&self) -> u32 {
        self.parent.rank
    }

    /// Returns where memory of this process is, if it is in an arena: 1 + process, offset there.
    fn place(&self, address: usize, bytes: u64) -> Option<(u64, u64)> {
        let (owner, offset) = self.segment?.place_of(address, bytes)?;
        Some((u64::from(owner) + 1, offset))
    }

    /// Whether this process has to have memory of its own.
    fn needs_memory(&self) -> bool {
        match self.flavor {
            Flavor::Create | Flavor::Dynamic => false,
            Flavor::Allocate => true,
            Flavor::Shared => !self.contiguous || self.me() == 0,
        }
    }
}

/// What a process that tries to attach to another one reads there, and writes behind it.
const PROBE: u64 = 0x7769_6e64_6f77_0a0d;

/// What a process sends the others about its part of the window.
#[derive(Clone, Copy, Default)]
struct WindowInfo {
    /// Of rank 0: the number of the window's communicator.
    id: u64,
    /// Of rank 0: where the control block is: 1 + process, offset in its arena.
    block: (u64, u64),
    /// Where the memory is, if it is in an arena.
    place: (u64, u64),
    /// Where its queues are: 1 + process, offset in its arena.
    queues: (u64, u64),
    base: u64,
    size: u64,
    unit: u64,
    /// Address of a word that holds [`PROBE`]; behind it is one that may be written.
    probe: u64,
    pid: u64,
    /// It got the memory that was asked for.
    fine: u64,
}

const WORDS: usize = 13;

impl WindowInfo {
    fn words(&self) -> [u64; WORDS] {
        [
            self.id,
            self.block.0,
            self.block.1,
            self.place.0,
            self.place.1,
            self.base,
            self.size,
            self.unit,
            self.probe,
            self.pid,
            self.fine,
            self.queues.0,
            self.queues.1,
        ]
    }

    fn from_words(w: &[u64]) -> WindowInfo {
        WindowInfo {
            id: w[0],
            block: (w[1], w[2]),
            place: (w[3], w[4]),
            base: w[5],
            size: w[6],
            unit: w[7],
            probe: w[8],
            pid: w[9],
            fine: w[10],
            queues: (w[11], w[12]),
        }
    }
}

/// Votes of the second exchange.
const BLOCK: u64 = 1;
const VIEWS: u64 = 2;
const ATTACH: u64 = 4;

/// What this process brings to a window, before the others have reported anything.
struct Offer {
    made: Made,
    info: WindowInfo,
    /// The control block, if this process made it.
    block: Option<Block>,
    /// The queues of the other processes, with their process numbers.
    queues: Vec<(u32, RmaQueue)>,
    /// What others read and write to find out whether they may attach.
    probe: Mem,
}

/// What all have agreed on by their votes.
struct AccessPaths {
    block: Option<Arc<Block>>,
    /// All can map all memory that is in arenas.
    map: bool,
    /// All may attach to each other.
    attach: bool,
}

impl Windows<'_> {
    /// Makes a window whose own part is `memory` (collective).
    pub(super) fn make(&self, wanted: &Wanted<'_>, memory: Memory) -> Result<u32> {
        let parent = wanted.parent;
        let mut offer = self.offer(wanted, memory)?;
        let all = self.exchange_infos(wanted, &offer.info)?;
        let comm = Arc::new(Comm::new(Parts {
            id: Some(all[0].id as u32),
            rank: wanted.me(),
            group: parent.group.clone(),
            remote: None,
            inner: None,
            topology: None,
        }));
        comm.state().session = parent.state().session;
        let view = |part: &WindowInfo| {
            let owner = part.place.0.checked_sub(1)?;
            arena::view(wanted.segment?, owner as u32, part.place.1, part.size)
        };
        let mut views: Vec<Option<Mem>> = all.iter().map(view).collect();
        let paths = self.vote(wanted, &comm, &mut offer, &all, &views)?;
        if all.iter().any(|part| part.fine == 0) {
            self.give_memory_back(&offer.made);
            fail!(
                MPI_ERR_NO_MEM,
                "not all processes of {} got the memory that they asked for, this one {} bytes",
                parent.describe(),
                wanted.size
            );
        }
        // Where this rank's memory is, whichever path others take.
        let view = &mut views[wanted.me() as usize];
        let own = match (&offer.made.memory, view.take()) {
            (Memory::User(mem) | Memory::Pages(mem), _) => mem.clone(),
            (_, Some(view)) => view,
            (_, None) => Mem::empty(),
        };
        *view = Some(own.clone());
        let targets = self.targets(wanted, &all, views, &paths);
        let attachments = Arc::new(Mutex::new(Attachments::default()));
        let serving = self.serving(wanted, &comm, &paths, &targets, || match wanted.flavor {
            Flavor::Dynamic => Served::Attached(attachments.clone()),
            _ => Served::Fixed(own.clone()),
        });
        let hook = self.hook(wanted, &paths, offer.queues, &own);
        let uses_queues = targets
            .iter()
            .any(|target| matches!(target.path, AccessPath::Attach(Some(_))));
        let window = Arc::new(Window {
            sweep: Sweep::new(),
            handle: AtomicU32::new(MPI_WIN_NULL),
            values: Values {
                base: own.address(),
                size: AtomicIsize::new(wanted.size as isize),
                unit: AtomicI32::new(wanted.unit as i32),
                flavor: AtomicI32::new(wanted.flavor.value()),
                model: AtomicI32::new(MPI_WIN_UNIFIED),
            },
            comm,
            flavor: wanted.flavor,
            targets,
            made: offer.made,
            block: paths.block,
            hook,
            uses_queues,
            attach: paths.attach,
            serving,
            attachments,
            all: AtomicBool::new(false),
            passive: AtomicBool::new(false),
            epoch: Mutex::new(Epoch::new(wanted.ranks())),
            polls: AtomicU32::new(0),
            state: Mutex::new(State {
                errhandler: MPI_ERRORS_ARE_FATAL,
                name: String::new(),
                attributes: Attributes::default(),
                info: hints::in_force(wanted.info),
            }),
        });
        // No rank accesses the others' memory before it is what it was made to be.
        self.mpi.collective(&window.comm, Operation::Barrier)?;
        let Some(handle) = self.table().insert(window.clone()) else {
            fail!(
                MPI_ERR_OTHER,
                "a million windows exist; free some with MPI_Win_free"
            );
        };
        window.handle.store(handle, Ordering::Relaxed);
        Ok(handle)
    }

    /// Makes what this process has to make, and what it sends the others about it.
    fn offer(&self, wanted: &Wanted<'_>, memory: Memory) -> Result<Offer> {
        let base = match &memory {
            Memory::User(mem) | Memory::Pages(mem) => mem.address(),
            Memory::Arena(_, base) => *base,
            Memory::Nothing => 0,
        };
        let fine = !wanted.needs_memory() || !matches!(memory, Memory::Nothing);
        let probe = Mem::from_vec([PROBE.to_ne_bytes(), [0; 8]].concat());
        let mut info = WindowInfo {
            base: base as u64,
            size: wanted.size,
            unit: wanted.unit as u64,
            pid: u64::from(std::process::id()),
            fine: u64::from(fine),
            probe: probe.address() as u64,
            ..WindowInfo::default()
        };
        if base != 0 {
            info.place = wanted.place(base, wanted.size).unwrap_or_default();
        }
        let mut made = Made {
            memory,
            block: None,
            queues: None,
        };
        let queues = self.make_queues(wanted, &mut info, &mut made);
        let mut block = None;
        if wanted.me() == 0 {
            info.id = u64::from(self.mpi.propose(wanted.parent)?);
            block = self.make_block(wanted, &mut info, &mut made);
        }
        Ok(Offer {
            made,
            info,
            block,
            queues,
            probe,
        })
    }

    /// Makes queues where this rank's memory is not mapped by others. They are of no use where the
    /// others cannot attach, but that is not known yet.
    fn make_queues(
        &self,
        wanted: &Wanted<'_>,
        info: &mut WindowInfo,
        made: &mut Made,
    ) -> Vec<(u32, RmaQueue)> {
        let (ranks, me) = (wanted.ranks(), wanted.me());
        let is_of_use = wanted.flavor != Flavor::Dynamic && wanted.size > 0 && info.place.0 == 0;
        let Some(segment) = wanted.segment else {
            return Vec::new();
        };
        if !is_of_use || !(2..=rma::RANKS).contains(&ranks) {
            return Vec::new();
        }
        let bytes = u64::from(ranks) * rma_queue::BYTES;
        made.queues = self.mpi.rank().alloc_shared(bytes);
        let Some((owner, offset)) = made.queues.and_then(|at| segment.place_of(at, bytes)) else {
            return Vec::new();
        };
        info.queues = (u64::from(owner) + 1, offset);
        let queues = (0..ranks).filter(|&origin| origin != me).map(|origin| {
            let offset = offset + u64::from(origin) * rma_queue::BYTES;
            let process = wanted.parent.group.process(origin)?;
            Some((process, RmaQueue::create(segment, owner, offset)?))
        });
        queues.flatten().collect()
    }

    /// Makes the control block where the ranks share memory.
    fn make_block(
        &self,
        wanted: &Wanted<'_>,
        info: &mut WindowInfo,
        made: &mut Made,
    ) -> Option<Block> {
        let (segment, ranks) = (wanted.segment?, wanted.ranks());
        let bytes = Block::bytes(ranks);
        let address = self.mpi.rank().alloc_shared(bytes)?;
        made.block = Some(address);
        let (owner, offset) = segment.place_of(address, bytes)?;
        info.block = (u64::from(owner) + 1, offset);
        Block::create(segment, owner, offset, ranks)
    }

    /// The first exchange.
    fn exchange_infos(&self, wanted: &Wanted<'_>, own: &WindowInfo) -> Result<Vec<WindowInfo>> {
        let words = self.exchange_longs(wanted.parent, &own.words())?;
        let mut all: Vec<WindowInfo> = words.iter().map(|w| WindowInfo::from_words(w)).collect();
        if wanted.contiguous {
            // Everybody's part follows the one before.
            let (owner, mut offset) = all[0].place;
            for part in &mut all {
                part.place = (owner, offset);
                offset += part.size;
            }
        }
        Ok(all)
    }

    /// The second exchange: what everybody can do is done.
    fn vote(
        &self,
        wanted: &Wanted<'_>,
        comm: &Arc<Comm>,
        offer: &mut Offer,
        all: &[WindowInfo],
        views: &[Option<Mem>],
    ) -> Result<AccessPaths> {
        let (ranks, me) = (wanted.ranks(), wanted.me());
        let block = match (offer.block.take(), wanted.segment) {
            (Some(block), _) => Some(block),
            (None, Some(segment)) if me != 0 => {
                let (owner, offset) = all[0].block;
                let owner = owner.checked_sub(1);
                owner.and_then(|owner| Block::open(segment, owner as u32, offset, ranks))
            }
            _ => None,
        };
        let maps_all = match wanted.flavor {
            // What will be attached may lie in any arena.
            Flavor::Dynamic => wanted.segment.is_some_and(|segment| {
                let mut members = wanted.parent.group.processes();
                members.all(|process| arena::view(segment, process, 0, 0).is_some())
            }),
            _ => {
                let mut parts = all.iter().zip(views);
                parts.all(|(part, view)| part.place.0 == 0 || view.is_some())
            }
        };
        let next = &all[((me + 1) % ranks) as usize];
        // A single rank need not attach to itself.
        let attaches = || ranks == 1 || may_attach(next);
        let can = [
            (BLOCK, block.is_some()),
            (VIEWS, maps_all),
            (ATTACH, wanted.segment.is_some() && attaches()),
        ];
        let vote = can
            .iter()
            .map(|&(bit, yes)| if yes { bit } else { 0 })
            .sum();
        let votes = self.exchange_longs(comm, &[vote])?;
        // All have tried to attach.
        offer.probe = Mem::empty();
        let agreed = votes.iter().fold(u64::MAX, |all, v| all & v[0]);
        let needed = match wanted.flavor {
            Flavor::Dynamic => BLOCK | VIEWS,
            _ => BLOCK,
        };
        Ok(AccessPaths {
            block: block.filter(|_| agreed & needed == needed).map(Arc::new),
            map: agreed & VIEWS != 0,
            attach: agreed & ATTACH != 0,
        })
    }

    /// Returns the parts of the window, each with the way to it.
    fn targets(
        &self,
        wanted: &Wanted<'_>,
        all: &[WindowInfo],
        views: Vec<Option<Mem>>,
        paths: &AccessPaths,
    ) -> Box<[Target]> {
        let me = wanted.me();
        let origin = |part: &WindowInfo| {
            let owner = part.queues.0.checked_sub(1)?;
            let offset = part.queues.1 + u64::from(me) * rma_queue::BYTES;
            let queue = RmaQueue::open(wanted.segment?, owner as u32, offset)?;
            Some(Box::new(OriginQueue::new(
                queue,
                !self.mpi.rank().is_oversubscribed(),
            )))
        };
        let target = |(rank, (part, view)): (u32, (&WindowInfo, Option<Mem>))| {
            let mapped = rank == me || (part.place.0 != 0 && view.is_some());
            let all_map = paths.map && part.place.0 != 0;
            let may_map = mapped && (all_map || paths.attach || wanted.ranks() == 1);
            let path = match view {
                _ if wanted.flavor == Flavor::Dynamic => AccessPath::Dynamic,
                _ if paths.block.is_none() => AccessPath::Message,
                Some(mem) if may_map => AccessPath::Mapped(mem),
                _ if paths.attach => AccessPath::Attach(origin(part)),
                _ => AccessPath::Message,
            };
            Target {
                process: wanted.parent.group.process(rank).expect("a rank of it"),
                peer: cma::Peer::new(part.pid as u32),
                base: part.base,
                size: part.size,
                unit: part.unit as i64,
                open: AtomicU8::new(CLOSED),
                path,
            }
        };
        (0u32..).zip(all.iter().zip(views)).map(target).collect()
    }

    /// Returns the server, where the memory of some process is out of reach. What is asked of one
    /// is served by all: they made the window with the same votes.
    fn serving(
        &self,
        wanted: &Wanted<'_>,
        comm: &Comm,
        paths: &AccessPaths,
        targets: &[Target],
        served: impl FnOnce() -> Served,
    ) -> Option<Serving> {
        let asks = |target: &Target| match target.path {
            AccessPath::Message => true,
            AccessPath::Dynamic => paths.block.is_none() || !paths.attach,
            _ => false,
        };
        let is_needed = paths.block.is_none() || targets.iter().any(asks);
        is_needed.then(|| {
            let context = comm.point_to_point();
            Serving::start(self.mpi.rank(), context, wanted.me(), &comm.group, served())
        })
    }

    /// Puts this rank's queues to use, if there are some and the others can attach.
    fn hook(
        &self,
        wanted: &Wanted<'_>,
        paths: &AccessPaths,
        queues: Vec<(u32, RmaQueue)>,
        own: &Mem,
    ) -> Option<Arc<dyn ProgressHook>> {
        let (block, segment) = (paths.block.as_ref()?, wanted.segment?);
        if !paths.attach || queues.is_empty() {
            return None;
        }
        let hook: Arc<dyn ProgressHook> = Arc::new(RmaQueues {
            queues,
            mem: own.clone(),
            me: wanted.me(),
            block: block.clone(),
            segment: segment.clone(),
            processes: wanted.parent.group.processes().collect(),
        });
        let added = hook.clone();
        self.mpi
            .rank()
            .with_engine(|engine| engine.add_progress_hook(added));
        Some(hook)
    }

    /// Gives back what this process has made for a window.
    pub(super) fn give_memory_back(&self, made: &Made) {
        let shared = match made.memory {
            Memory::Arena(address, _) => Some(address),
            _ => None,
        };
        for address in [made.block, made.queues, shared].into_iter().flatten() {
            let _ = self.mpi.rank().free_shared(address);
        }
    }

    /// Every process's words, equally many (collective).
    pub(super) fn exchange_longs(&self, comm: &Arc<Comm>, words: &[u64]) -> Result<Vec<Vec<u64>>> {
        let halves: Vec<i32> = words
            .iter()
            .flat_map(|&w| [w as u32 as i32, (w >> 32) as u32 as i32])
            .collect();
        let all = self.mpi.gather_all(comm, &halves)?;
        let long = |pair: &[i32]| u64::from(pair[0] as u32) | u64::from(pair[1] as u32) << 32;
        Ok(all
            .iter()
            .map(|halves| halves.chunks(2).map(long).collect())
            .collect())
    }
}

/// Whether the system lets this process read and write a process's memory.
fn may_attach(other: &WindowInfo) -> bool {
    let word = Mem::owned(8);
    let pid = other.pid as u32;
    cma::read(pid, other.probe, &word, 0, 8).is_ok()
        && word.with_bytes(0, 8, |bytes| bytes == PROBE.to_ne_bytes())
        && cma::write(cma::Peer::new(pid), other.probe + 8, &word, 0, 8).is_ok()
}
