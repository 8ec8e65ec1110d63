//! A world without a network: executes one schedule for each process in a random order of
//! everything that may happen. A "byte" of user data is a cell of any type, so that a test can
//! follow where each came from.
#![allow(dead_code)] // each test file uses its own part

use std::collections::{HashMap, HashSet, VecDeque};

use fastrand::Rng;
use margay_core_schedule::{
    Buffer, Peer, Progress, Ranks, Region, Schedule, Step, TAGS, Temp, Tuning,
};

/// A datatype: cells of data in an element, and cells from one element to the next.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    pub size: usize,
    pub extent: usize,
}

impl Layout {
    pub const BYTE: Layout = Layout { size: 1, extent: 1 };

    /// A type that divides `bytes`, and its count.
    pub fn dividing(bytes: usize, rng: &mut Rng) -> (Layout, usize) {
        let sizes: Vec<usize> = (1..=bytes.clamp(1, 5))
            .filter(|s| bytes.is_multiple_of(*s))
            .collect();
        let size = sizes[rng.usize(..sizes.len())];
        (
            Layout {
                size,
                extent: size + rng.usize(..3),
            },
            bytes / size,
        )
    }

    /// Cell of packed position `at` of the elements from cell `base`.
    pub fn cell(&self, base: usize, at: usize) -> usize {
        base + at / self.size * self.extent + at % self.size
    }
}

/// One process.
pub struct Process<C> {
    pub schedule: Schedule,
    pub send: Vec<C>,
    pub recv: Vec<C>,
    pub send_type: Layout,
    pub recv_type: Layout,
    /// The types of `SendOf` and `RecvOf`.
    pub send_types: Vec<Layout>,
    pub recv_types: Vec<Layout>,
}

impl<C> Process<C> {
    pub fn new(schedule: Schedule, send: (Vec<C>, Layout), recv: (Vec<C>, Layout)) -> Process<C> {
        Process {
            schedule,
            send: send.0,
            recv: recv.0,
            send_type: send.1,
            recv_type: recv.1,
            send_types: vec![],
            recv_types: vec![],
        }
    }
}

/// When a send completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// At once: the data is copied when it starts.
    Buffered,
    /// When the receive has been posted and the data has moved, some time later.
    Rendezvous,
}

/// Memory that a region lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    Send,
    Recv,
    Temp(u32),
}

fn place(buffer: Buffer) -> Place {
    match buffer {
        Buffer::Send | Buffer::SendOf(_) => Place::Send,
        Buffer::Recv | Buffer::RecvOf(_) => Place::Recv,
        Buffer::Temp(i) => Place::Temp(i),
    }
}

impl<C> Process<C> {
    /// The cells of a region, in packed order.
    fn cells(&self, region: Region) -> impl Iterator<Item = usize> + use<C> {
        let (layout, unit) = match region.buffer {
            Buffer::Send => (self.send_type, self.send_type.extent),
            Buffer::Recv => (self.recv_type, self.recv_type.extent),
            Buffer::SendOf(i) => (self.send_types[i as usize], 1),
            Buffer::RecvOf(i) => (self.recv_types[i as usize], 1),
            Buffer::Temp(i) => match self.schedule.temps()[i as usize] {
                Temp::Bytes(_) => (Layout::BYTE, 1),
                Temp::Elements(_) => (self.recv_type, self.recv_type.extent),
            },
        };
        let base =
            usize::try_from(region.start).expect("tests have no negative displacements") * unit;
        let skip = region.skip as usize;
        (skip..skip + region.bytes as usize).map(move |at| layout.cell(base, at))
    }
}

enum Event {
    Start { process: usize, step: u32 },
    Move(Message),
}

/// A message that has met its receive.
struct Message {
    from: usize,
    send: u32,
    to: usize,
    recv: u32,
    data: Option<Vec<usize>>,
}

#[derive(Default)]
struct Channel {
    /// (step, index of captured data)
    sends: VecDeque<(u32, Option<Vec<usize>>)>,
    recvs: VecDeque<u32>,
}

/// Processes at work.
struct World<'a, C> {
    processes: Vec<Process<C>>,
    /// The first process of the other group.
    split: usize,
    mode: Mode,
    combine: &'a dyn Fn(&C, &C) -> C,
    temps: Vec<Vec<Vec<C>>>,
    progress: Vec<Progress>,
    /// By sender, receiver and tag.
    channels: HashMap<(usize, usize, u32), Channel>,
    /// Data of buffered sends.
    captured: Vec<C>,
    events: Vec<Event>,
}

impl<'a, C: Clone + Default> World<'a, C> {
    fn new(
        processes: Vec<Process<C>>,
        split: usize,
        combine: &'a dyn Fn(&C, &C) -> C,
        mode: Mode,
    ) -> World<'a, C> {
        let temps = |p: &Process<C>| {
            let cells = |temp: &Temp| match *temp {
                Temp::Bytes(n) => n as usize,
                Temp::Elements(n) => n as usize * p.recv_type.extent,
            };
            let temps = p.schedule.temps().iter();
            temps.map(|t| vec![C::default(); cells(t)]).collect()
        };
        let mut world = World {
            split,
            mode,
            combine,
            temps: processes.iter().map(temps).collect(),
            progress: processes
                .iter()
                .map(|p| Progress::new(&p.schedule))
                .collect(),
            channels: HashMap::new(),
            captured: vec![],
            events: vec![],
            processes,
        };
        (0..world.processes.len()).for_each(|process| world.start_next(process));
        world
    }

    /// What a process may start now.
    fn start_next(&mut self, process: usize) {
        while let Some(step) = self.progress[process].next() {
            self.events.push(Event::Start { process, step });
        }
    }

    fn complete(&mut self, process: usize, step: u32) {
        self.progress[process].complete(&self.processes[process].schedule, step);
        self.start_next(process);
    }

    fn memory(&mut self, process: usize, buffer: Buffer) -> &mut Vec<C> {
        match place(buffer) {
            Place::Send => &mut self.processes[process].send,
            Place::Recv => &mut self.processes[process].recv,
            Place::Temp(i) => &mut self.temps[process][i as usize],
        }
    }

    fn read(&mut self, process: usize, region: Region) -> Vec<C> {
        let cells = self.processes[process].cells(region);
        let memory = self.memory(process, region.buffer);
        cells.map(|cell| memory[cell].clone()).collect()
    }

    fn write(&mut self, process: usize, region: Region, data: Vec<C>) {
        let cells = self.processes[process].cells(region);
        let memory = self.memory(process, region.buffer);
        for (cell, value) in cells.zip(data) {
            memory[cell] = value;
        }
    }

    /// The process that `me` calls `peer`.
    fn resolve(&self, me: usize, peer: Peer) -> usize {
        let (own, other) = if me < self.split {
            (0, self.split)
        } else {
            (self.split, 0)
        };
        match peer {
            Peer::Local(rank) => own + rank as usize,
            Peer::Remote(rank) => other + rank as usize,
        }
    }

    /// Starts a step; the channel of a send or a receive.
    fn start(&mut self, process: usize, step: u32) -> Option<(usize, usize, u32)> {
        match self.processes[process].schedule.steps()[step as usize] {
            Step::Send { to, tag, region } => {
                assert!(tag < TAGS);
                let key = (process, self.resolve(process, to), tag);
                let is_buffered = self.mode == Mode::Buffered;
                let data = is_buffered.then(|| {
                    let data = self.read(process, region);
                    let first = self.captured.len();
                    self.captured.extend(data);
                    (first..self.captured.len()).collect()
                });
                let channel = self.channels.entry(key).or_default();
                channel.sends.push_back((step, data));
                if is_buffered {
                    self.complete(process, step);
                }
                return Some(key);
            }
            Step::Recv { from, tag, .. } => {
                let key = (self.resolve(process, from), process, tag);
                let channel = self.channels.entry(key).or_default();
                channel.recvs.push_back(step);
                return Some(key);
            }
            Step::Copy { from, to } => {
                assert_eq!(from.bytes, to.bytes);
                let data = self.read(process, from);
                self.write(process, to, data);
            }
            Step::Combine {
                left,
                right,
                out,
                count,
            } => {
                let size = self.processes[process].recv_type.size as u64;
                assert_eq!(count * size, out.bytes);
                let (left, right) = (self.read(process, left), self.read(process, right));
                let both = left.iter().zip(&right);
                let data = both.map(|(l, r)| (self.combine)(l, r)).collect();
                self.write(process, out, data);
            }
        }
        self.complete(process, step);
        None
    }

    /// Lets the first send and the first receive of a channel meet, if there are both.
    fn meet(&mut self, key: (usize, usize, u32)) {
        let (from, to, _) = key;
        let channel = self.channels.entry(key).or_default();
        if channel.sends.is_empty() || channel.recvs.is_empty() {
            return;
        }
        let (send, data) = channel.sends.pop_front().unwrap();
        let recv = channel.recvs.pop_front().unwrap();
        self.events.push(Event::Move(Message {
            from,
            send,
            to,
            recv,
            data,
        }));
    }

    /// The data of a message arrives.
    fn deliver(&mut self, message: Message) {
        let Message {
            from,
            send,
            to,
            recv,
            data,
        } = message;
        let (Step::Send { region: source, .. }, Step::Recv { region: target, .. }) = (
            self.processes[from].schedule.steps()[send as usize],
            self.processes[to].schedule.steps()[recv as usize],
        ) else {
            unreachable!()
        };
        assert_eq!(source.bytes, target.bytes, "message {from} -> {to}");
        match data {
            Some(cells) => {
                let data = cells.iter().map(|&c| self.captured[c].clone()).collect();
                self.write(to, target, data);
            }
            None => {
                let data = self.read(from, source);
                self.write(to, target, data);
                self.complete(from, send);
            }
        }
        self.complete(to, recv);
    }
}

/// Executes the schedules and returns the processes with what they hold. Processes from `split` on
/// are the other group of an intercommunicator.
pub fn run<C: Clone + Default + PartialEq + std::fmt::Debug>(
    processes: Vec<Process<C>>,
    split: Option<usize>,
    combine: &dyn Fn(&C, &C) -> C,
    mode: Mode,
    rng: &mut Rng,
) -> Vec<Process<C>> {
    let split = split.unwrap_or(processes.len());
    let originals: Vec<Vec<C>> = processes.iter().map(|p| p.send.clone()).collect();
    let mut world = World::new(processes, split, combine, mode);
    while !world.events.is_empty() {
        let chosen = rng.usize(..world.events.len());
        match world.events.swap_remove(chosen) {
            Event::Start { process, step } => {
                if let Some(channel) = world.start(process, step) {
                    world.meet(channel);
                }
            }
            Event::Move(message) => world.deliver(message),
        }
    }
    for (process, progress) in world.progress.iter().enumerate() {
        assert!(
            progress.is_done(),
            "deadlock: process {process} has {} steps left",
            progress.left()
        );
    }
    assert!(
        world
            .channels
            .values()
            .all(|c| c.sends.is_empty() && c.recvs.is_empty()),
        "a message nobody receives"
    );
    for (process, send) in world.processes.iter().zip(originals) {
        assert_eq!(process.send, send, "a send buffer was written to");
    }
    world.processes
}

/// Checks that steps which may run at the same time do not touch the same cells, unless both only
/// read; that what a step reads and writes is apart, except a combination in place; and that each
/// tag is used once.
pub fn check_hazards<C>(process: &Process<C>) {
    let steps = process.schedule.steps();
    // Steps that are complete before each step starts.
    let mut before: Vec<HashSet<u32>> = vec![HashSet::new(); steps.len()];
    let mut waits = vec![0; steps.len()];
    for step in 0..steps.len() as u32 {
        for &next in process.schedule.successors(step) {
            assert!(next > step);
            let set: Vec<u32> = before[step as usize]
                .iter()
                .copied()
                .chain([step])
                .collect();
            before[next as usize].extend(set);
            waits[next as usize] += 1;
        }
    }
    let mut tags = HashSet::new();
    // For each place and cell: (step, whether it writes).
    let mut touched: HashMap<(Place, usize), Vec<(u32, bool)>> = HashMap::new();
    for (i, step) in steps.iter().enumerate() {
        assert_eq!(process.schedule.waits(i as u32), waits[i]);
        let (reads, writes): (Vec<Region>, Vec<Region>) = match *step {
            Step::Send { to, tag, region } => {
                assert!(tags.insert((true, to, tag)), "tag {tag} to {to} twice");
                (vec![region], vec![])
            }
            Step::Recv { from, tag, region } => {
                assert!(
                    tags.insert((false, from, tag)),
                    "tag {tag} from {from} twice"
                );
                (vec![], vec![region])
            }
            Step::Copy { from, to } => (vec![from], vec![to]),
            Step::Combine {
                left, right, out, ..
            } if right == out => (vec![left], vec![out]),
            Step::Combine {
                left, right, out, ..
            } => (vec![left, right], vec![out]),
        };
        let cells = |regions: &[Region]| -> Vec<(Place, usize)> {
            regions
                .iter()
                .flat_map(|&r| process.cells(r).map(move |c| (place(r.buffer), c)))
                .collect()
        };
        let (reads, writes) = (cells(&reads), cells(&writes));
        let written: HashSet<_> = writes.iter().collect();
        assert!(
            reads.iter().all(|cell| !written.contains(cell)),
            "step {i} overwrites what it reads: {step:?}"
        );
        for (cells, write) in [(&reads, false), (&writes, true)] {
            for &cell in cells {
                let others = touched.entry(cell).or_default();
                for &(other, wrote) in others.iter() {
                    assert!(
                        !(write || wrote) || before[i].contains(&other),
                        "steps {other} and {i} both touch {cell:?}: {:?} and {step:?}",
                        steps[other as usize]
                    );
                }
                others.push((i as u32, write));
            }
        }
    }
}

/// Tunings that lead to every algorithm.
pub fn tunings() -> Vec<Tuning> {
    let short = Tuning {
        bcast_long: u64::MAX,
        bcast_chain: u64::MAX,
        gather_tree: u64::MAX,
        allgather_short: u64::MAX,
        alltoall_short: u64::MAX,
        alltoall_short_ranks: 1,
        reduce_long: u64::MAX,
        allreduce_long: u64::MAX,
        allreduce_ring: u64::MAX,
        reduce_scatter_short: u64::MAX,
        hosts_blocks: u64::MAX,
        ..Tuning::default()
    };
    let long = Tuning {
        direct_ranks: 0,
        bcast_long: 0,
        bcast_long_ranks: 0,
        bcast_chain: u64::MAX,
        gather_tree: 0,
        allgather_short: 0,
        alltoall_short: 0,
        alltoall_short_ranks: u32::MAX,
        window: 3,
        reduce_long: 0,
        allreduce_long: 0,
        allreduce_ring: u64::MAX,
        reduce_scatter_short: 0,
        hosts_blocks: 0,
        operands_ahead: 0,
        ..Tuning::default()
    };
    let longest = Tuning {
        bcast_chain: 0,
        bcast_chain_ranks: u32::MAX,
        segment: 61,
        allreduce_ring: 0,
        window: 1,
        ..long.clone()
    };
    let direct = Tuning {
        direct_ranks: u32::MAX,
        window: 2,
        ..long.clone()
    };
    vec![short, long, longest, direct]
}

/// Each size with each tuning; small sizes with each root, larger ones with three.
pub fn for_all(f: &mut dyn FnMut(u32, u32, &Tuning, Mode, &mut Rng)) {
    for_sizes(&mut |size, tuning, mode, rng| {
        let roots: Vec<u32> = if size <= 6 {
            (0..size).collect()
        } else {
            vec![0, size - 1, 1 + rng.usize(..size as usize - 2) as u32]
        };
        for root in roots {
            f(size, root, tuning, mode, rng);
        }
    });
}

/// The number of processes in the largest world. Miri takes a thousand times as long.
pub const MOST: u32 = if cfg!(miri) { 3 } else { 67 };

/// Each size from 1 to [`MOST`] with each tuning.
pub fn for_sizes(f: &mut dyn FnMut(u32, &Tuning, Mode, &mut Rng)) {
    for size in 1..=MOST {
        for (i, tuning) in tunings().iter().enumerate() {
            let mut rng = Rng::with_seed(u64::from(size) * 100 + i as u64);
            let modes = [Mode::Rendezvous, Mode::Buffered];
            // Small worlds in both modes, large ones in turn.
            for mode in modes {
                if size <= 20 || (size % 2 == 0) == (mode == Mode::Buffered) {
                    f(size, tuning, mode, &mut rng);
                }
            }
        }
    }
}

/// The processes of a world.
pub fn world<C>(size: u32, mut process: impl FnMut(Ranks) -> Process<C>) -> Vec<Process<C>> {
    (0..size)
        .map(|rank| process(Ranks { rank, size }))
        .collect()
}

/// Runs processes whose cells are never combined, after checking small ones for hazards.
pub fn run_data(
    world: Vec<Process<u64>>,
    split: Option<usize>,
    mode: Mode,
    rng: &mut Rng,
) -> Vec<Process<u64>> {
    if world.len() <= 11 {
        world.iter().for_each(check_hazards);
    }
    run(
        world,
        split,
        &|_, _| unreachable!("nothing to combine"),
        mode,
        rng,
    )
}
