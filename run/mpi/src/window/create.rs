//! Making and freeing windows of all flavors.
//!
//! Making one takes two exchanges. In the first everybody tells where its memory is, and rank 0 the number of the window's
//! communicator and where the control block is. In the second everybody votes whether it can map what the others have
//! told and attach to their processes; so all know alike which ways there are.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicIsize, AtomicU8, AtomicU32};
use std::sync::{Arc, Mutex};

use margay_run_engine::Inlet;
use margay_sys_os::cma;
use margay_sys_os::sweep::Sweep;
use margay_sys_os::user::Mem;
use margay_sys_shm::arena;
use margay_sys_shm::inbox::{self, Inbox};
use margay_sys_shm::window::Block;

use super::attach::Attachments;
use super::epoch::{CLOSED, Epoch};
use super::mail::{self, Inboxes, Outbox};
use super::server::{Served, Serving};
use super::{Flavor, State, Target, Values, Way, Window, hints};
use crate::attribute::Attributes;
use crate::comm::{Comm, Parts};
use crate::constants::errhandler::MPI_ERRORS_ARE_FATAL;
use crate::constants::win::MPI_WIN_NULL;
use crate::constants::window::MPI_WIN_UNIFIED;
use crate::error::*;
use crate::info::Info;
use crate::{Mpi, Operation, fail};

/// The memory of one process's part of a window.
#[derive(Clone)]
pub enum Memory {
    /// The program's.
    User(Mem),
    /// Shared memory of this process, which goes back when the window is freed: its address, and where in it the window begins.
    Arena(usize, usize),
    /// Memory of our own that is not shared.
    Pages(Mem),
    /// There is none, or it belongs to another process.
    Nothing,
}

/// Where an allocated window begins in its first page. Buffers of programs mostly begin at a page or 16 bytes behind (large ones of
/// `malloc`), and reading one stream while another of nearly the same offset in its pages is written is slow: a bare loop adds
/// 64 KiB of doubles in 0.61 µs (Zen 5), but in 0.89 when they come from 16 bytes behind the offset of the sums, and a copy to 32
/// bytes behind takes 0.66 instead of 0.50.
const SKEW: usize = 2048;

/// What a process that tries to attach to another one reads there, and writes behind it.
const PROBE: u64 = 0x7769_6e64_6f77_0a0d;

/// What a process tells the others.
#[derive(Clone, Copy, Default)]
struct Told {
    /// Of rank 0: the number of the window's communicator.
    id: u64,
    /// Of rank 0: where the control block is: 1 + process, offset in its arena.
    block: (u64, u64),
    /// Where the memory is, if it is in an arena.
    place: (u64, u64),
    /// Where its inboxes are: 1 + process, offset in its arena.
    inboxes: (u64, u64),
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

impl Told {
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
            self.inboxes.0,
            self.inboxes.1,
        ]
    }

    fn from_words(w: &[u64]) -> Told {
        Told {
            id: w[0],
            block: (w[1], w[2]),
            place: (w[3], w[4]),
            base: w[5],
            size: w[6],
            unit: w[7],
            probe: w[8],
            pid: w[9],
            fine: w[10],
            inboxes: (w[11], w[12]),
        }
    }
}

/// Votes of the second exchange.
const BLOCK: u64 = 1;
const VIEWS: u64 = 2;
const ATTACH: u64 = 4;

impl Mpi {
    /// `MPI_Win_create` over `size` bytes at the base of `mem`.
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn window_create(
        &self,
        comm: u32,
        mem: Mem,
        (size, unit): (i64, i64),
        info: u32,
    ) -> Result<u32> {
        let parent = self.intracomm(comm)?;
        let size = check_sizes(size, unit)?;
        let hints = self.info(info)?;
        if size > 0 && mem.address() == 0 {
            fail!(
                MPI_ERR_BASE,
                "base is a null pointer and size is {size}; use size 0 for a window without memory"
            );
        }
        self.make(
            &parent,
            Flavor::Create,
            Memory::User(mem),
            (size, unit),
            &hints,
        )
    }

    /// `MPI_Win_allocate`: the window and the address of its memory here.
    ///
    /// # Errors
    /// When an argument is invalid or some process gets no memory.
    pub fn window_allocate(
        &self,
        comm: u32,
        (size, unit): (i64, i64),
        info: u32,
    ) -> Result<(u32, usize)> {
        let parent = self.intracomm(comm)?;
        let size = check_sizes(size, unit)?;
        let hints = self.info(info)?;
        let alignment = hints::alignment(&hints);
        let shared = if self.spans(&parent) {
            None
        } else {
            let bytes = size.checked_add(alignment.max(SKEW) as u64);
            bytes.and_then(|bytes| self.rank.alloc_shared(bytes))
        };
        let memory = match shared {
            Some(address) if alignment > SKEW => {
                Memory::Arena(address, address.next_multiple_of(alignment))
            }
            Some(address) => Memory::Arena(address, address + SKEW),
            // More than fits the arena, and the others attach to it; or there is no memory for all.
            None => Mem::pages(size as usize).map_or(Memory::Nothing, Memory::Pages),
        };
        let handle = self.make(&parent, Flavor::Allocate, memory, (size, unit), &hints)?;
        Ok((handle, self.window(handle)?.values.base))
    }

    /// `MPI_Win_allocate_shared`: the window and the address of the own part.
    ///
    /// # Errors
    /// When an argument is invalid, the processes share no memory or not enough is left.
    pub fn window_allocate_shared(
        &self,
        comm: u32,
        (size, unit): (i64, i64),
        info: u32,
    ) -> Result<(u32, usize)> {
        let parent = self.intracomm(comm)?;
        let size = check_sizes(size, unit)?;
        let hints = self.info(info)?;
        let alone = parent.size() == 1;
        if !alone && (self.rank.common_memory().is_none() || self.spans(&parent)) {
            fail!(
                MPI_ERR_RMA_SHARED,
                "the processes of {} share no memory (they are of several jobs, or {} is set); make the communicator with MPI_Comm_split_type",
                parent.describe(),
                margay_run_engine::ENV_BYTES_ONLY
            );
        }
        let own = |bytes| match self.rank.alloc_shared(bytes) {
            Some(address) => Memory::Arena(address, address),
            None if alone => Mem::pages(bytes as usize).map_or(Memory::Nothing, Memory::Pages),
            None => Memory::Nothing,
        };
        let memory = if hints::is_set(&hints, "alloc_shared_noncontig") {
            own(size)
        } else {
            // All parts in one piece of memory of rank 0, in the order of ranks.
            let sizes = self.exchange_longs(&parent, &[size])?;
            let total = sizes.iter().try_fold(0u64, |sum, s| sum.checked_add(s[0]));
            match total {
                Some(total) if parent.rank == 0 => own(total),
                Some(_) => Memory::Nothing,
                None => fail!(MPI_ERR_SIZE, "the sizes together exceed 64 bits"),
            }
        };
        let handle = self.make(&parent, Flavor::Shared, memory, (size, unit), &hints)?;
        Ok((handle, self.window(handle)?.values.base))
    }

    /// `MPI_Win_create_dynamic`
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn window_create_dynamic(&self, comm: u32, info: u32) -> Result<u32> {
        let parent = self.intracomm(comm)?;
        let hints = self.info(info)?;
        self.make(&parent, Flavor::Dynamic, Memory::Nothing, (0, 1), &hints)
    }

    fn exchange_longs(&self, comm: &Arc<Comm>, words: &[u64]) -> Result<Vec<Vec<u64>>> {
        let halves: Vec<i32> = words
            .iter()
            .flat_map(|&w| [w as u32 as i32, (w >> 32) as u32 as i32])
            .collect();
        let all = self.gather_all(comm, &halves)?;
        let long = |pair: &[i32]| u64::from(pair[0] as u32) | u64::from(pair[1] as u32) << 32;
        Ok(all
            .iter()
            .map(|halves| halves.chunks(2).map(long).collect())
            .collect())
    }

    fn make(
        &self,
        parent: &Arc<Comm>,
        flavor: Flavor,
        memory: Memory,
        (size, unit): (u64, i64),
        info: &Info,
    ) -> Result<u32> {
        let (ranks, me) = (parent.size(), parent.rank);
        let segment = self.rank.common_memory().filter(|_| !self.spans(parent));
        let contiguous = flavor == Flavor::Shared && !hints::is_set(info, "alloc_shared_noncontig");
        let base = match &memory {
            Memory::User(mem) | Memory::Pages(mem) => mem.address(),
            Memory::Arena(_, base) => *base,
            Memory::Nothing => 0,
        };
        let mut told = Told {
            base: base as u64,
            size,
            unit: unit as u64,
            pid: u64::from(std::process::id()),
            ..Told::default()
        };
        let needs = match flavor {
            Flavor::Create | Flavor::Dynamic => false,
            Flavor::Allocate => true,
            Flavor::Shared => !contiguous || me == 0,
        };
        told.fine = u64::from(!needs || !matches!(memory, Memory::Nothing));
        let place = |address, bytes| segment?.place_of(address, bytes);
        if let Some((owner, offset)) = place(base, size).filter(|_| base != 0) {
            told.place = (u64::from(owner) + 1, offset);
        }
        // Of no use where the others cannot attach, but that is not known yet.
        let asks_for_mail = flavor != Flavor::Dynamic && size > 0 && told.place.0 == 0;
        let mut made_inboxes = None;
        let mut inboxes = Vec::new();
        if let Some(segment) = segment
            && asks_for_mail
            && (2..=mail::RANKS).contains(&ranks)
        {
            let bytes = u64::from(ranks) * inbox::BYTES;
            made_inboxes = self.rank.alloc_shared(bytes);
            if let Some((owner, offset)) = made_inboxes.and_then(|at| place(at, bytes)) {
                told.inboxes = (u64::from(owner) + 1, offset);
                let made = (0..ranks).filter(|&origin| origin != me).map(|origin| {
                    let offset = offset + u64::from(origin) * inbox::BYTES;
                    let process = parent.group.process(origin)?;
                    Some((process, Inbox::create(segment, owner, offset)?))
                });
                inboxes = made.flatten().collect();
            }
        }
        let mut made_block = None;
        if me == 0 {
            told.id = u64::from(self.propose(parent)?);
            made_block = segment.and_then(|_| self.rank.alloc_shared(Block::bytes(ranks)));
        }
        let made = made_block.and_then(|address| {
            let (owner, offset) = place(address, Block::bytes(ranks))?;
            told.block = (u64::from(owner) + 1, offset);
            Block::create(segment?, owner, offset, ranks)
        });
        let probe = Mem::from_vec([PROBE.to_ne_bytes(), [0; 8]].concat());
        told.probe = probe.address() as u64;

        let words = self.exchange_longs(parent, &told.words())?;
        let mut all: Vec<Told> = words.iter().map(|w| Told::from_words(w)).collect();
        if contiguous {
            // Everybody's part follows the one before.
            let (owner, first) = all[0].place;
            let mut offset = first;
            for part in &mut all {
                part.place = (owner, offset);
                offset += part.size;
            }
        }
        let fine = all.iter().all(|part| part.fine != 0);

        let comm = Arc::new(Comm::new(Parts {
            id: Some(all[0].id as u32),
            rank: me,
            group: parent.group.clone(),
            remote: None,
            inner: None,
            topology: None,
        }));
        comm.state().session = parent.state().session;
        let block = match (made, segment, all[0].block.0.checked_sub(1)) {
            (Some(block), ..) => Some(block),
            (None, Some(segment), Some(owner)) if me != 0 => {
                Block::open(segment, owner as u32, all[0].block.1, ranks)
            }
            _ => None,
        };
        let view = |part: &Told| {
            let owner = part.place.0.checked_sub(1)?;
            arena::view(segment?, owner as u32, part.place.1, part.size)
        };
        let mut views: Vec<Option<Mem>> = all.iter().map(view).collect();
        let next = &all[((me + 1) % ranks) as usize];
        let maps_all = match flavor {
            // What will be attached may lie in any arena.
            Flavor::Dynamic => segment.is_some_and(|segment| {
                let mut members = parent.group.processes();
                members.all(|process| arena::view(segment, process, 0, 0).is_some())
            }),
            _ => {
                let mut parts = all.iter().zip(&views);
                parts.all(|(part, view)| part.place.0 == 0 || view.is_some())
            }
        };
        let vote = [
            (BLOCK, block.is_some()),
            (VIEWS, maps_all),
            (ATTACH, segment.is_some() && may_attach(next)),
        ];
        let vote = vote
            .iter()
            .map(|&(bit, yes)| if yes { bit } else { 0 })
            .sum();
        let votes = self.exchange_longs(&comm, &[vote])?;
        drop(probe);
        let agreed = votes.iter().fold(u64::MAX, |all, v| all & v[0]);
        let needed = match flavor {
            Flavor::Dynamic => BLOCK | VIEWS,
            _ => BLOCK,
        };
        let block = block.filter(|_| agreed & needed == needed).map(Arc::new);
        let attach = agreed & ATTACH != 0;

        if !fine {
            self.give_memory_back(&memory, [made_block, made_inboxes]);
            fail!(
                MPI_ERR_NO_MEM,
                "not all processes of {} got the memory that they asked for, this one {size} bytes",
                parent.describe()
            );
        }
        // Where the own memory is, whichever way others take.
        let own = match (&memory, views[me as usize].take()) {
            (Memory::User(mem) | Memory::Pages(mem), _) => mem.clone(),
            (_, Some(view)) => view,
            (_, None) => Mem::empty(),
        };
        views[me as usize] = Some(own.clone());
        let outbox = |part: &Told| {
            let owner = part.inboxes.0.checked_sub(1)?;
            let offset = part.inboxes.1 + u64::from(me) * inbox::BYTES;
            let inbox = Inbox::open(segment?, owner as u32, offset)?;
            Some(Box::new(Outbox::new(inbox, !self.rank.is_crowded())))
        };
        let targets: Box<[Target]> = all
            .iter()
            .zip(views)
            .enumerate()
            .map(|(rank, (part, view))| {
                let mapped = rank as u32 == me || (part.place.0 != 0 && view.is_some());
                let all_map = agreed & VIEWS != 0 && part.place.0 != 0;
                let way = match view {
                    _ if flavor == Flavor::Dynamic => Way::Dynamic,
                    _ if block.is_none() => Way::Message,
                    Some(mem) if mapped && (all_map || attach || ranks == 1) => Way::Mapped(mem),
                    _ if attach => Way::Attach(outbox(part)),
                    _ => Way::Message,
                };
                Target {
                    process: comm.group.process(rank as u32).expect("a rank of it"),
                    pid: part.pid as u32,
                    base: part.base,
                    size: part.size,
                    unit: part.unit as i64,
                    open: AtomicU8::new(CLOSED),
                    way,
                }
            })
            .collect();
        let asks = |target: &Target| match target.way {
            Way::Message => true,
            Way::Dynamic => block.is_none() || !attach,
            _ => false,
        };
        // What is asked of one is served by all: they made the window with the same votes.
        let attachments = Arc::new(Mutex::new(Attachments::default()));
        let serving = (block.is_none() || targets.iter().any(asks)).then(|| {
            let served = match flavor {
                Flavor::Dynamic => Served::Attached(attachments.clone()),
                _ => Served::Fixed(own.clone()),
            };
            Serving::start(&self.rank, comm.point_to_point(), me, &comm.group, served)
        });
        let inlet = match (&block, segment) {
            (Some(block), Some(segment)) if attach && !inboxes.is_empty() => {
                let inlet: Arc<dyn Inlet> = Arc::new(Inboxes {
                    inboxes,
                    mem: own.clone(),
                    me,
                    block: block.clone(),
                    segment: segment.clone(),
                    processes: comm.group.processes().collect(),
                });
                let added = inlet.clone();
                self.rank.with_engine(|engine| engine.add_inlet(added));
                Some(inlet)
            }
            _ => None,
        };
        let has_mail = targets
            .iter()
            .any(|target| matches!(target.way, Way::Attach(Some(_))));
        let window = Arc::new(Window {
            sweep: Sweep::new(),
            handle: AtomicU32::new(MPI_WIN_NULL),
            values: Values {
                base: own.address(),
                size: AtomicIsize::new(size as isize),
                unit: AtomicI32::new(unit as i32),
                flavor: AtomicI32::new(flavor.value()),
                model: AtomicI32::new(MPI_WIN_UNIFIED),
            },
            comm,
            flavor,
            targets,
            memory,
            block,
            made_block,
            made_inboxes,
            inlet,
            has_mail,
            attach,
            serving,
            attachments,
            all: AtomicBool::new(false),
            passive: AtomicBool::new(false),
            epoch: Mutex::new(Epoch::new(ranks)),
            polls: AtomicU32::new(0),
            state: Mutex::new(State {
                errhandler: MPI_ERRORS_ARE_FATAL,
                name: String::new(),
                attributes: Attributes::default(),
                info: hints::in_force(info),
            }),
        });
        // Nobody looks at the others' memory before it is what it was made to be.
        self.collective(&window.comm, Operation::Barrier)?;
        let Some(handle) = self.objects().windows.insert(window.clone()) else {
            fail!(
                MPI_ERR_OTHER,
                "a million windows exist; free some with MPI_Win_free"
            );
        };
        window
            .handle
            .store(handle, std::sync::atomic::Ordering::Relaxed);
        Ok(handle)
    }

    /// `MPI_Win_free`
    ///
    /// # Errors
    /// When an epoch is open, a delete function of an attribute refuses, or an operation failed at its target.
    pub fn window_free(&self, handle: u32) -> Result<()> {
        let window = self.window(handle)?;
        {
            let epoch = window.epoch();
            if !epoch.is_quiet() {
                return window.refused("MPI_Win_free", &epoch);
            }
        }
        let attributes = std::mem::take(&mut *window.attributes());
        if let Err((rest, error)) = attributes.delete_all(handle) {
            *window.attributes() = rest;
            return Err(error);
        }
        let completed = self.complete_all(&window);
        // Nobody's memory goes before all who live are done with it.
        if self.may_be_survived(&window.comm) {
            self.agree_to_go_on(&window.comm);
        } else {
            self.collective(&window.comm, Operation::Barrier)?;
        }
        if let Some(serving) = &window.serving {
            serving.stop(&self.rank);
        }
        let errhandler = std::mem::replace(&mut window.state().errhandler, MPI_ERRORS_ARE_FATAL);
        let _ = self.errhandler_release(errhandler);
        self.objects().windows.remove(handle);
        window.comm.close_channel();
        for table in window.attachments().take_made() {
            let _ = self.rank.free_shared(table);
        }
        if let Some(inlet) = &window.inlet {
            self.rank.with_engine(|engine| engine.remove_inlet(inlet));
        }
        self.give_memory_back(&window.memory, [window.made_block, window.made_inboxes]);
        completed
    }

    fn give_memory_back(&self, memory: &Memory, others: [Option<usize>; 2]) {
        let shared = match memory {
            Memory::Arena(address, _) => Some(*address),
            _ => None,
        };
        for address in others.into_iter().chain([shared]).flatten() {
            let _ = self.rank.free_shared(address);
        }
    }
}

/// Whether the system lets this process read and write a process's memory.
fn may_attach(other: &Told) -> bool {
    let word = Mem::owned(8);
    let pid = other.pid as u32;
    cma::read(pid, other.probe, &word, 0, 8).is_ok()
        && word.with_bytes(0, 8, |bytes| bytes == PROBE.to_ne_bytes())
        && cma::write(pid, other.probe + 8, &word, 0, 8).is_ok()
}

fn check_sizes(size: i64, unit: i64) -> Result<u64> {
    if unit <= 0 {
        fail!(MPI_ERR_DISP, "disp_unit is {unit}; it must be positive");
    }
    match u64::try_from(size) {
        Ok(size) => Ok(size),
        Err(_) => fail!(MPI_ERR_SIZE, "size is {size}; it must not be negative"),
    }
}
