//! Executes collective schedules: the one executor for blocking, nonblocking and persistent
//! operations.
//!
//! A schedule (`margay-core-schedule`) says what one rank sends, receives, copies and combines and
//! what waits for what. [`Execution`] binds it to memory, datatypes and a context, starts each step
//! as soon as it may and is asked again whenever requests have ended.

use std::sync::Arc;

use margay_core_datatype::{Basic, Datatype};
use margay_core_group::Group;
use margay_core_matching::{Envelope, Pattern};
use margay_core_reduce::Op;
use margay_core_schedule::{self as schedule, Peer, Progress, Region, Schedule, TAGS, Temp};
use margay_sys_os::cpu;
use margay_sys_os::user::Mem;

use crate::call::{Failed, Mode, Outcome, ReqId};
use crate::data::{self, Data};
use crate::spare::Spare;

/// What an execution asks of the engine that runs it.
pub(crate) trait Requests {
    /// Begins a send.
    fn isend(&mut self, mode: Mode, data: Data, to: u32, envelope: Envelope) -> ReqId;
    /// Posts a receive.
    fn irecv(&mut self, data: Data, pattern: Pattern, from: Option<u32>) -> ReqId;
    /// Returns the outcome of a request that has ended.
    fn take(&mut self, id: ReqId) -> Option<Outcome>;
    /// Gives up a request of an operation that has failed.
    fn abandon(&mut self, id: ReqId);
    /// Why an operation among these processes cannot be completed, if it cannot.
    fn broken(&self, context: u32, group: &Group) -> Option<Failed>;
    /// Temporary memory.
    fn spare(&mut self) -> &mut Spare;
}

/// A user's buffer in a collective operation.
#[derive(Clone, Debug)]
pub enum Buffer {
    /// There is none (not significant on this rank, or in place).
    None,
    /// Elements of one datatype.
    Typed {
        /// The memory; its base is the user's address.
        mem: Mem,
        /// The datatype.
        datatype: Arc<Datatype>,
    },
    /// A datatype for each peer (the `w` forms); displacements are in bytes.
    PerPeer {
        /// The memory; its base is the user's address.
        mem: Mem,
        /// One datatype for each peer.
        datatypes: Arc<[Arc<Datatype>]>,
    },
}

/// What a reduction does with its elements.
#[derive(Clone)]
pub struct Reduction {
    /// The operation.
    pub operator: Operator,
    /// The type of an element.
    pub datatype: Arc<Datatype>,
}

/// The operation of a reduction.
#[derive(Clone)]
pub enum Operator {
    /// A predefined operation on a predefined type; [`margay_core_reduce::is_valid`] holds for the
    /// two.
    Builtin(Op, Basic),
    /// An operation of the user's.
    User(Arc<dyn UserOp>),
}

/// An operation that the user defined.
pub trait UserOp: Send + Sync {
    /// `inout[i] = input[i] op inout[i]` for `count` elements. Called with the engine locked: it
    /// may ask the library about datatypes, but not communicate.
    fn apply(&self, input: &Mem, inout: &Mem, count: u64, datatype: &Arc<Datatype>);
}

/// What a collective operation is made of.
#[derive(Clone)]
pub struct Collective {
    /// This rank's steps.
    pub schedule: Arc<Schedule>,
    /// Context of the communicator's collective plane.
    pub context: u32,
    /// Which collective operation of the communicator this is; wraps around.
    pub sequence: u32,
    /// This rank in the local group.
    pub me: u32,
    /// The communicator's group, or an intercommunicator's local group.
    pub local: Arc<Group>,
    /// An intercommunicator's remote group.
    pub remote: Option<Arc<Group>>,
    /// The user's send buffer.
    pub send: Buffer,
    /// The user's receive buffer.
    pub recv: Buffer,
    /// What combine steps do.
    pub reduction: Option<Reduction>,
}

/// A collective operation under way.
pub struct Execution {
    collective: Collective,
    progress: Progress,
    /// From the first run on; each with the displacement of its base.
    temps: Vec<(Mem, i64)>,
    /// Requests under way and what each is.
    children: Vec<(ReqId, Child)>,
    /// The first message whose size was not that of its step: `bytes` expected, `truncated` sent.
    mismatch: Option<Outcome>,
    failed: Option<Failed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    Waiting,
}

/// A request of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// It is a step of the schedule, with this number.
    Step(u32),
    /// A send that waits for nothing and for which nothing waits.
    Send,
    /// Such a receive, of this many bytes.
    Receive(u64),
}

impl Execution {
    /// At the beginning.
    #[must_use]
    pub fn new(collective: Collective) -> Execution {
        Execution {
            progress: Progress::new(&collective.schedule),
            temps: Vec::new(),
            collective,
            children: Vec::new(),
            mismatch: None,
            failed: None,
        }
    }

    /// Returns the bytes that this rank copies in its own memory.
    pub(crate) fn copied_bytes(&self) -> u64 {
        let copied = |step: &schedule::Step| match step {
            schedule::Step::Copy { from, .. } => from.bytes,
            _ => 0,
        };
        self.collective.schedule.steps().iter().map(copied).sum()
    }

    /// One whose messages have all been begun, without a schedule: those in `children`, between the
    /// rank `me` of `group` and other members of it.
    #[must_use]
    pub fn begun(
        (context, me): (u32, u32),
        group: &Arc<Group>,
        children: Vec<(ReqId, Child)>,
    ) -> Execution {
        Execution {
            children,
            ..Execution::new(Collective {
                schedule: Arc::default(),
                context,
                sequence: 0,
                me,
                local: group.clone(),
                remote: None,
                send: Buffer::None,
                recv: Buffer::None,
                reduction: None,
            })
        }
    }

    /// Takes what has ended and starts what may start.
    pub(crate) fn run(&mut self, engine: &mut impl Requests) -> Step {
        if self.temps.is_empty() {
            let temps = self.collective.schedule.temps().iter();
            self.temps = temps
                .map(|temp| {
                    let (bytes, base) = match *temp {
                        Temp::Bytes(bytes) => (bytes as usize, 0),
                        Temp::Elements(count) => elements(&self.collective.reduction, count),
                    };
                    (engine.spare().take(bytes), base)
                })
                .collect();
        }
        let step = self.run_steps(engine);
        if step == Step::Done {
            for (block, _) in self.temps.drain(..) {
                engine.spare().give(block);
            }
        }
        step
    }

    fn run_steps(&mut self, engine: &mut impl Requests) -> Step {
        loop {
            let mut at = 0;
            while at < self.children.len() {
                let (id, child) = self.children[at];
                if let Some(outcome) = engine.take(id) {
                    self.failed = self.failed.or(outcome.failed);
                    self.children.swap_remove(at);
                    self.ended(child, outcome);
                } else {
                    at += 1;
                }
            }
            if self.failed.is_some() {
                // Nothing more is begun; what is under way comes to its end, or is let go of.
                for &(id, _) in &self.children {
                    engine.abandon(id);
                }
                self.children.retain(|&(id, _)| engine.take(id).is_none());
                return if self.children.is_empty() {
                    Step::Done
                } else {
                    Step::Waiting
                };
            }
            let mut started = false;
            while let Some(step) = self.progress.next() {
                started = true;
                self.start(engine, step);
            }
            if self.progress.is_done() && self.children.is_empty() {
                return Step::Done;
            }
            if !started {
                return Step::Waiting;
            }
        }
    }

    /// A request has ended: what waits for it may start. Notes if the ranks did not agree about the
    /// size of a message.
    fn ended(&mut self, child: Child, outcome: Outcome) {
        let schedule = &self.collective.schedule;
        let expected = match child {
            Child::Send => None,
            Child::Receive(bytes) => Some(bytes),
            Child::Step(step) => {
                self.progress.complete(schedule, step);
                match schedule.steps()[step as usize] {
                    schedule::Step::Recv { region, .. } => Some(region.bytes),
                    _ => None,
                }
            }
        };
        let outcome = expected.map(|bytes| outcome.of_exactly(bytes));
        let differs = |outcome: &Outcome| outcome.truncated.is_some();
        self.mismatch = self.mismatch.or(outcome.filter(differs));
    }

    /// Returns what the operation ends with when the ranks did not agree: `truncated` bytes were
    /// sent by `source` where this rank expected `bytes`, which may be more or less.
    pub(crate) fn mismatch(&self) -> Option<Outcome> {
        self.mismatch
    }

    /// Why it cannot be completed, if it cannot.
    pub(crate) fn failed(&self) -> Option<Failed> {
        self.failed
    }

    /// It cannot be completed.
    pub(crate) fn fail(&mut self, failed: Failed) {
        self.failed.get_or_insert(failed);
    }

    /// Why it cannot be completed from the beginning, if it cannot.
    pub(crate) fn broken(&self, engine: &impl Requests) -> Option<Failed> {
        let groups = std::iter::once(&self.collective.local).chain(&self.collective.remote);
        let mut broken = groups.filter_map(|g| engine.broken(self.collective.context, g));
        broken.next()
    }

    /// Whether that process takes part.
    pub(crate) fn has(&self, process: u32) -> bool {
        let of = |group: &Group| group.rank(process).is_some();
        of(&self.collective.local) || self.collective.remote.as_ref().is_some_and(|g| of(g))
    }

    /// Requests under way.
    pub(crate) fn children(&self) -> impl Iterator<Item = ReqId> {
        self.children.iter().map(|&(id, _)| id)
    }

    /// Context of the operation.
    pub(crate) fn context(&self) -> u32 {
        self.collective.context
    }

    fn start(&mut self, engine: &mut impl Requests, step: u32) {
        let schedule = self.collective.schedule.clone();
        match schedule.steps()[step as usize] {
            schedule::Step::Send { to, tag, region } => {
                let data = self.data(region);
                let (world, _) = self.peer(to);
                let envelope = Envelope {
                    context: self.collective.context,
                    source: self.collective.me,
                    tag: self.tag(tag),
                };
                let id = engine.isend(Mode::Standard, data, world, envelope);
                self.children.push((id, Child::Step(step)));
            }
            schedule::Step::Recv { from, tag, region } => {
                let data = self.data(region);
                let (world, rank) = self.peer(from);
                let pattern =
                    Pattern::new(self.collective.context, Some(rank), Some(self.tag(tag)));
                let id = engine.irecv(data, pattern, Some(world));
                self.children.push((id, Child::Step(step)));
            }
            schedule::Step::Copy { from, to } => {
                data::copy(&self.data(from), &self.data(to));
                self.progress.complete(&schedule, step);
            }
            schedule::Step::Combine {
                left,
                right,
                out,
                count,
            } => {
                self.combine(left, right, out, count);
                self.progress.complete(&schedule, step);
            }
        }
    }

    fn combine(&self, left: Region, right: Region, out: Region, count: u64) {
        let Some(reduction) = &self.collective.reduction else {
            unreachable!("only schedules of reductions combine");
        };
        let target = self.place(out);
        if out != right {
            data::copy(&self.data(right), &self.data(out));
        }
        combine(reduction, &self.place(left), &target, count);
    }

    /// World rank and rank in its group.
    fn peer(&self, peer: Peer) -> (u32, u32) {
        let (group, rank) = match peer {
            Peer::Local(rank) => (&self.collective.local, rank),
            Peer::Remote(rank) => (
                self.collective
                    .remote
                    .as_ref()
                    .expect("only intercommunicators have remote peers"),
                rank,
            ),
        };
        let world = group.process(rank).expect("schedules name group members");
        (world, rank)
    }

    fn tag(&self, tag: u32) -> u32 {
        self.collective.sequence.wrapping_mul(TAGS) | tag
    }

    /// Memory whose base is where the region's elements begin.
    fn place(&self, region: Region) -> Mem {
        let (mem, unit) = match region.buffer {
            schedule::Buffer::Temp(index) => {
                let unit = match self.collective.schedule.temps()[index as usize] {
                    Temp::Bytes(_) => 1,
                    Temp::Elements(_) => self.reduced().extent(),
                };
                let (block, base) = &self.temps[index as usize];
                return block.shifted(base + region.start * unit);
            }
            schedule::Buffer::Send => self.collective.send.typed(),
            schedule::Buffer::Recv => self.collective.recv.typed(),
            schedule::Buffer::SendOf(_) => (self.collective.send.mem(), 1),
            schedule::Buffer::RecvOf(_) => (self.collective.recv.mem(), 1),
        };
        mem.shifted(region.start * unit)
    }

    fn data(&self, region: Region) -> Data {
        if region.bytes == 0 {
            return Data::bytes(Mem::empty(), 0);
        }
        let mem = self.place(region);
        let datatype = match region.buffer {
            schedule::Buffer::Temp(index) => {
                match self.collective.schedule.temps()[index as usize] {
                    Temp::Bytes(_) => {
                        return Data::bytes(mem.shifted(region.skip as i64), region.bytes);
                    }
                    Temp::Elements(_) => self.reduced(),
                }
            }
            schedule::Buffer::Send => self.collective.send.datatype(0),
            schedule::Buffer::Recv => self.collective.recv.datatype(0),
            schedule::Buffer::SendOf(index) => self.collective.send.datatype(index),
            schedule::Buffer::RecvOf(index) => self.collective.recv.datatype(index),
        };
        Data::part(mem, datatype, region.skip, region.bytes)
    }

    fn reduced(&self) -> &Arc<Datatype> {
        match &self.collective.reduction {
            Some(reduction) => &reduction.datatype,
            None => unreachable!("only reductions have temporaries of elements"),
        }
    }
}

impl Buffer {
    fn mem(&self) -> &Mem {
        match self {
            Buffer::Typed { mem, .. } | Buffer::PerPeer { mem, .. } => mem,
            Buffer::None => unreachable!("the schedule does not use a buffer that is not there"),
        }
    }

    fn typed(&self) -> (&Mem, i64) {
        match self {
            Buffer::Typed { mem, datatype } => (mem, datatype.extent()),
            _ => (self.mem(), 1),
        }
    }

    fn datatype(&self, index: u32) -> &Arc<Datatype> {
        match self {
            Buffer::Typed { datatype, .. } => datatype,
            Buffer::PerPeer { datatypes, .. } => &datatypes[index as usize],
            Buffer::None => unreachable!("the schedule does not use a buffer that is not there"),
        }
    }
}

/// `inout[i] = input[i] op inout[i]` for `count` elements at the bases.
pub fn combine(reduction: &Reduction, input: &Mem, inout: &Mem, count: u64) {
    match &reduction.operator {
        Operator::User(op) => op.apply(input, inout, count, &reduction.datatype),
        Operator::Builtin(op, basic) => {
            let len = count as usize * basic.extent() as usize;
            if input.covers(0, len) && inout.covers(0, len) {
                inout.with_operands(0, input, 0, len, |inout, input| {
                    cpu::Widest::FORWARDS
                        .apply(*op, *basic, inout, input)
                        .expect("the operation was checked against the type");
                });
            } else {
                // The last element's padding is not the user's: combine in memory that has it.
                let whole = |mem: &Mem| Data::typed(mem.clone(), count, &reduction.datatype);
                let (a, b) = (Mem::owned(len), Mem::owned(len));
                data::copy(&whole(input), &whole(&a));
                data::copy(&whole(inout), &whole(&b));
                combine(reduction, &a, &b, count);
                data::copy(&whole(&b), &whole(inout));
            }
        }
    }
}

/// Returns the bytes that `count` elements of the reduction's type need, and where among them the
/// first begins.
fn elements(reduction: &Option<Reduction>, count: u64) -> (usize, i64) {
    let Some(Reduction { datatype, .. }) = reduction else {
        unreachable!("only reductions have temporaries of elements");
    };
    if count == 0 {
        return (0, 0);
    }
    let reach = datatype.extent() * (count as i64 - 1);
    let low = datatype.lb().min(datatype.true_lb()) + reach.min(0);
    let high = (datatype.ub()).max(datatype.true_lb() + datatype.true_extent()) + reach.max(0);
    ((high - low) as usize, -low)
}
