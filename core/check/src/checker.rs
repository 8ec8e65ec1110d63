//! Takes the records of all processes and handles them in the order in which things happened: what
//! a process did after it received a message comes after what the sender did before.

use std::collections::{BTreeMap, HashMap};

use crate::finding::{Finding, Kind, Part, Site};
use crate::objects::{Comm, Window};
use crate::record::{Phase, Record};
use crate::state::*;

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its connection was closed.
    Closed,
}

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As its program wanted.
    Well,
    /// Perhaps by the launcher, because no rank could go on.
    Failed,
    /// By a rank: it has crashed, got an error, or ended with a code of its own.
    Broken,
    /// From outside, at any moment: by a time limit or a signal.
    Cut,
}

/// All that is known of a job.
#[derive(Default)]
pub struct Checker {
    pub(crate) processes: Vec<Process>,
    /// By world rank, of the job's first world.
    ranks: HashMap<u32, usize>,
    pub(crate) comms: Vec<Comm>,
    pub(crate) made_comms: HashMap<(usize, u64, Vec<u32>), usize>,
    pub(crate) windows: Vec<Window>,
    pub(crate) made_windows: HashMap<(usize, u64), usize>,
    findings: Vec<Finding>,
    /// What is no longer looked at, because there was too much of it.
    left_out: Vec<&'static str>,
    /// Nobody has received a message.
    is_a_message_lost: bool,
    /// By process: messages that could have come in another order, which is no error as such.
    pub(crate) orders: BTreeMap<usize, Finding>,
    /// Records that wait are handled all the same: nothing more will come.
    is_over: bool,
    pub(crate) world: Option<usize>,
}

impl Checker {
    #[must_use]
    pub fn new() -> Checker {
        Checker::default()
    }

    /// A process has connected; returns its number.
    pub fn connected(&mut self) -> usize {
        self.processes.push(Process::default());
        self.processes.len() - 1
    }

    /// Its rank, once that is known.
    #[must_use]
    pub fn rank(&self, process: usize) -> Option<u32> {
        let own = self.processes.get(process)?;
        own.is_known.then_some(own.rank)
    }

    /// How many ranks of the job have been looked at, and of how many.
    #[must_use]
    pub fn looked_at(&self) -> (usize, usize) {
        let world = self.world.and_then(|world| self.comms.get(world));
        (self.ranks.len(), world.map_or(0, |comm| comm.members.len()))
    }

    /// Takes what has been found since the last time.
    pub fn found(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Takes what is no longer looked at, since the last time, because there was too much of it.
    pub fn newly_left_out(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.left_out)
    }

    pub(crate) fn left_out(&mut self, what: &'static str) {
        if !self.left_out.contains(&what) {
            self.left_out.push(what);
        }
    }

    /// Takes records of a process.
    pub fn take(&mut self, process: usize, records: impl IntoIterator<Item = Record>) {
        let own = &mut self.processes[process];
        own.waiting.extend(records);
        let mut all = own.waiting.iter();
        if let Some(last) = all.rfind(|record| record.phase == Phase::Before) {
            own.last = Some(own.call(process, &last.name, last.site));
        }
        self.proceed();
    }

    /// A process has ended, or goes on without records.
    pub fn ended(&mut self, process: usize, _how: Ended) {
        self.processes[process].has_ended = true;
        self.proceed();
    }

    /// The job is over.
    pub fn finish(&mut self, end: End) {
        let is_good = end == End::Well;
        self.is_over = true;
        self.proceed();
        let are_held = end == End::Failed && self.processes.iter().all(is_held);
        if are_held {
            self.waited_for();
            self.crossed_collectives();
        } else if matches!(end, End::Failed | End::Broken) {
            self.report_orders();
        }
        for process in 0..self.processes.len() {
            self.died_in_a_call(process);
        }
        let all_finalized = |c: &Checker| {
            (c.processes.iter()).all(|p| !p.is_known || p.is_finalized || !p.is_of_job)
        };
        if is_good && all_finalized(self) {
            self.unmatched();
        } else if is_good || are_held {
            self.stuck();
        }
        self.incomplete_collectives(is_good);
        self.late_conflicts();
        if !is_good || self.is_a_message_lost {
            self.waited_in_vain();
        }
        let silent = (self.processes.iter())
            .filter(|p| p.is_initialized && !p.is_finalized && is_good)
            .map(|p| (p.rank, p.last.clone()));
        for (rank, last) in silent.collect::<Vec<_>>() {
            let found = Finding::new(Kind::CallOrder)
                .say(format!("rank {rank} has ended without MPI_Finalize"));
            self.report(match &last {
                Some(last) => found.say("; its last call was ").call(last),
                None => found,
            });
        }
    }

    /// Handles all records that can be handled.
    fn proceed(&mut self) {
        loop {
            let mut moved = false;
            for process in 0..self.processes.len() {
                while let Some(mut record) = self.processes[process].waiting.pop_front() {
                    if !self.is_over && self.waits(process, &record) {
                        self.processes[process].waiting.push_front(record);
                        break;
                    }
                    self.handle(process, &mut record);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn handle(&mut self, process: usize, record: &mut Record) {
        match record.phase {
            Phase::Site | Phase::Unwatched | Phase::Memory => {}
            Phase::Hello => self.hello(process, record),
            Phase::Before => self.before(process, record),
            Phase::After => self.after(process, record),
            Phase::Changed => self.changed(process, record),
            Phase::Touched => self.touched(process, record),
        }
    }

    fn hello(&mut self, process: usize, record: &Record) {
        let (Ok(rank), Ok(size)) = (
            u32::try_from(record.number(0)),
            u32::try_from(record.number(1)),
        ) else {
            return;
        };
        let is_of_job = !self.ranks.contains_key(&rank)
            && self
                .world
                .is_none_or(|w| self.comms[w].members.len() == size as usize);
        let own = &mut self.processes[process];
        own.rank = rank;
        own.size = size;
        own.tag_limit = record.number(3);
        own.is_known = true;
        own.is_initialized = true;
        own.is_of_job = is_of_job;
        own.moment = if is_of_job {
            vec![0; size as usize]
        } else {
            Vec::new()
        };
        if is_of_job {
            self.ranks.insert(rank, process);
        }
        let world = match self.world {
            Some(world) if is_of_job => world,
            _ => self.add_comm((0..size).collect(), !is_of_job),
        };
        if is_of_job {
            self.world = Some(world);
        }
        let alone = self.add_comm(vec![rank], !is_of_job);
        let comms = &mut self.processes[process].comms;
        comms.insert(MPI_COMM_WORLD, world);
        comms.insert(MPI_COMM_SELF, alone);
    }

    fn add_comm(&mut self, members: Vec<u32>, is_opaque: bool) -> usize {
        self.comms.push(Comm {
            members,
            is_opaque,
            ..Comm::default()
        });
        self.comms.len() - 1
    }

    pub(crate) fn process_of(&self, world_rank: u32) -> Option<usize> {
        self.ranks.get(&world_rank).copied()
    }

    pub(crate) fn report(&mut self, finding: Finding) {
        self.is_a_message_lost |= finding.kind == Kind::Unmatched;
        self.findings.push(finding);
    }

    /// Of a process that has ended inside a call: what was wrong with its arguments.
    fn died_in_a_call(&mut self, process: usize) {
        let own = &mut self.processes[process];
        let problems: Vec<Finding> = own.running.drain().filter_map(|(_, r)| r.problem).collect();
        problems.into_iter().for_each(|p| self.report(p));
    }

    /// The program has itself loaded from or stored to memory that MPI is using.
    fn touched(&mut self, process: usize, record: &Record) {
        let own = &self.processes[process];
        let rank = own.rank;
        let at = |address: u64| Part::Site(Site { process, address });
        let (what, why) = match record.name.as_str() {
            "load" | "store" => return self.touches_window(process, record),
            "sent" => (
                "the store ",
                ", which may still be sent; wait for the request first, or send from a copy",
            ),
            "received" => (
                "the load or store ",
                ", which may not have been received; wait for the request first",
            ),
            "put" => (
                "the store ",
                ", which may still be read; end the epoch or flush first",
            ),
            _ => (
                "the load or store ",
                ", which may not have been written; end the epoch or flush first",
            ),
        };
        let of = match record.text(1) {
            "" => (record.list(0).first())
                .and_then(|handle| own.requests.get(&(*handle as u64)))
                .map(|request| request.call.clone()),
            name => Some(own.call(process, name, record.handle(0))),
        };
        let Some(of) = of else {
            return;
        };
        let mut found = Finding::new(Kind::Buffer).say(format!("rank {rank}: {what}"));
        found.parts.push(at(record.site));
        self.report(found.say(" uses the buffer of ").call(&of).say(why));
    }

    fn changed(&mut self, process: usize, record: &Record) {
        let own = &self.processes[process];
        let at = |address: u64| Part::Site(Site { process, address });
        let found = Finding::new(Kind::Buffer).say(format!("rank {}: the buffer of ", own.rank));
        let request = record
            .list(0)
            .first()
            .and_then(|r| own.requests.get(&(*r as u64)));
        let mut found = match (request, record.name.as_str()) {
            (Some(request), _) => found.call(&request.call),
            (None, "w") => {
                let mut found = found.say("the access ");
                found.parts.push(at(record.handle(0)));
                found
            }
            (None, _) => return,
        };
        found = found.say(" was written to before the call ");
        found.parts.push(at(record.site));
        let why = match record.name.as_str() {
            "r" => ", while a message may arrive in it; wait for the request first",
            "w" => ", while it may still be read; end the epoch first",
            _ => ", while it may still be sent; wait for the request first, or send from a copy",
        };
        self.report(found.say(why));
    }
}

/// Whether a process has ended or is inside a call that may wait.
fn is_held(process: &Process) -> bool {
    let is_in = |running: &Running| running.call.name != "MPI_Abort";
    let is_other = !process.is_known || !process.is_of_job || process.is_finalized;
    is_other || process.running.values().any(is_in)
}
