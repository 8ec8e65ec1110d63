//! Calls of several threads of a process.
//!
//! The record before a call is written before it begins, the one after it when it has returned. So
//! a thread that makes a call between the two records of another thread's call is not ordered with
//! it by the program: both may happen at the same time, whether or not they did.

use crate::calls::{Sort, collective_comm, sort};
use crate::checker::Checker;
use crate::finding::{Call, Finding, Kind};
use crate::record::{Item, Record};
use crate::state::*;

const MPI_THREAD_FUNNELED: i64 = 1024;
const MPI_THREAD_SERIALIZED: i64 = 2048;
const MPI_THREAD_MULTIPLE: i64 = 4096;

/// What of a process's threads is known.
#[derive(Default)]
pub struct Threads {
    /// The thread that has called `MPI_Init`, and the level that this has provided.
    pub initialized: Option<(u64, i64)>,
    /// The level has been exceeded, and that has been said.
    is_level_said: bool,
}

impl Checker {
    /// What is wrong with a call because of the thread that makes it or of those that make others.
    pub(crate) fn threads_begin(&mut self, process: usize, record: &Record, call: &Call) {
        let found = [
            self.exceeds_level(process, record, call),
            self.finalizes_elsewhere(process, record, call),
            self.together(process, record, call),
            self.completes_twice(process, record, call),
        ];
        found.into_iter().flatten().for_each(|f| self.report(f));
    }

    fn exceeds_level(&mut self, process: usize, record: &Record, call: &Call) -> Option<Finding> {
        let own = &self.processes[process];
        let (main, level) = own.threads.initialized?;
        // These may be called by any thread at any time.
        let is_free = |name: &str| name.starts_with("MPI_Info_") || name == "MPI_Abort";
        if level >= MPI_THREAD_MULTIPLE || own.threads.is_level_said || is_free(call.name.as_str())
        {
            return None;
        }
        let other = (others(own, record.thread)).find(|r| !is_free(r.call.name.as_str()));
        let found = Finding::new(Kind::Threads)
            .say(format!("rank {}: ", own.rank))
            .call(call);
        let (found, needed) = match other {
            Some(other) => (
                found.say(" while another thread is in ").call(&other.call),
                "MPI_THREAD_MULTIPLE, or let one thread at a time call",
            ),
            None if level < MPI_THREAD_SERIALIZED && record.thread != main => (
                found.say(" by a thread that has not called MPI_Init"),
                "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE",
            ),
            None if level < MPI_THREAD_FUNNELED && record.code != 0 => (
                found.say(" in a parallel region of OpenMP"),
                "MPI_THREAD_FUNNELED",
            ),
            None => return None,
        };
        let level = match level {
            MPI_THREAD_SERIALIZED => "MPI_THREAD_SERIALIZED",
            MPI_THREAD_FUNNELED => "MPI_THREAD_FUNNELED",
            _ => "MPI_THREAD_SINGLE",
        };
        self.processes[process].threads.is_level_said = true;
        Some(found.say(format!(
            ", but the program has {level}; call MPI_Init_thread for {needed}"
        )))
    }

    fn finalizes_elsewhere(&self, process: usize, record: &Record, call: &Call) -> Option<Finding> {
        let own = &self.processes[process];
        let (main, _) = own.threads.initialized?;
        (call.name == "MPI_Finalize" && record.thread != main).then(|| {
            Finding::new(Kind::Threads)
                .say(format!("rank {}: ", own.rank))
                .call(call)
                .say(" by another thread than MPI_Init; call it in that one")
        })
    }

    /// Collective calls on one communicator that are not ordered.
    fn together(&mut self, process: usize, record: &Record, call: &Call) -> Option<Finding> {
        let comm = collective_comm(&record.name, &record.items)?;
        let own = &self.processes[process];
        let other = others(own, record.thread)
            .find(|r| collective_comm(&r.call.name, &r.items) == Some(comm))?;
        let found = Finding::new(Kind::Collective)
            .say(format!("rank {}: ", own.rank))
            .call(call)
            .say(" while another thread is in ")
            .call(&other.call)
            .say(
                " on the same communicator; let one thread at a time make collective calls on it, \
                 or give each thread one of its own by MPI_Comm_dup",
            );
        // Which of them comes first differs from rank to rank.
        self.collective_failed(process, comm);
        Some(found)
    }

    /// Two threads that complete one request.
    fn completes_twice(&self, process: usize, record: &Record, call: &Call) -> Option<Finding> {
        if sort(&record.name) != Sort::Complete {
            return None;
        }
        let own = &self.processes[process];
        let are_tests = |other: &Running| other.call.name == "MPI_Test" && call.name == "MPI_Test";
        let (other, request) = others(own, record.thread)
            .filter(|other| sort(&other.call.name) == Sort::Complete && !are_tests(other))
            .find_map(|other| {
                let Some(Item::List(handles)) = other.items.first() else {
                    return None;
                };
                let shared = (record.list(0).iter()).find(|handle| handles.contains(handle))?;
                Some((other, own.requests.get(&(*shared as u64))?))
            })?;
        let found = Finding::new(Kind::Request)
            .say(format!("rank {}: ", own.rank))
            .call(call)
            .say(" and another thread in ")
            .call(&other.call)
            .say(" complete one request, that of ")
            .call(&request.call);
        Some(found.say("; let one thread complete it"))
    }

    /// A request has been made. A call that still names its handle has completed an older one.
    pub(crate) fn handle_is_new(&mut self, process: usize, handle: u64) {
        for running in self.processes[process].running.values_mut() {
            if sort(&running.call.name) == Sort::Complete
                && let Some(Item::List(handles)) = running.items.first_mut()
            {
                handles.retain(|h| *h as u64 != handle);
            }
        }
    }
}

/// The calls in which other threads are.
fn others(own: &Process, thread: u64) -> impl Iterator<Item = &Running> {
    let others = own.running.iter().filter(move |(t, _)| **t != thread);
    others.map(|(_, running)| running)
}
