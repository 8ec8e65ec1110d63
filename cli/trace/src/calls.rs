//! The calls of each thread in the order of time: what it did at a moment, in the library and
//! outside of it.

use margay_core_record::Kind;

use crate::format::{At, Trace, duration, end};

/// A call of a thread, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    pub at: At,
    pub start: u64,
    pub end: u64,
    pub site: u16,
    /// It is short and neither waits nor has a message: `MPI_Comm_rank`, `MPI_Wtime`.
    pub is_local: bool,
}

impl Timed {
    /// Calls without a message that take less are local, in nanoseconds.
    const LOCAL: u64 = 5000;
}

/// The calls of all threads. Calls that were only counted are left out: their times are not known.
pub struct Calls<'a> {
    trace: &'a Trace,
    of_thread: Vec<Vec<Timed>>,
}

impl<'a> Calls<'a> {
    pub fn of(trace: &'a Trace) -> Calls<'a> {
        let of_thread = (trace.threads.iter().zip(0..)).map(|(of, thread)| {
            let next = |index: u32| of.records.get(index as usize + 1);
            let has_message = |index| next(index).is_some_and(|record| record.kind.is_further());
            let is_call = |kind: Kind| !kind.is_further() && kind != Kind::Total;
            let calls = (of.records.iter().zip(0..)).filter(|(record, _)| is_call(record.kind));
            let mut calls: Vec<Timed> = calls
                .map(|(record, index)| Timed {
                    at: At { thread, index },
                    start: record.start,
                    end: end(trace, record),
                    site: record.site,
                    is_local: record.kind == Kind::Call
                        && duration(trace, record) < Timed::LOCAL
                        && !has_message(index),
                })
                .collect();
            calls.sort_by_key(|call| call.start);
            calls
        });
        Calls {
            trace,
            of_thread: of_thread.collect(),
        }
    }

    pub fn threads(&self) -> impl Iterator<Item = &[Timed]> {
        self.of_thread.iter().map(Vec::as_slice)
    }

    /// The calls of a thread.
    pub fn thread(&self, thread: u32) -> &[Timed] {
        &self.of_thread[thread as usize]
    }

    /// The place among the calls of a thread of the first that has not ended by then.
    pub fn first_after(&self, thread: u32, moment: u64) -> usize {
        self.thread(thread)
            .partition_point(|call| call.end <= moment)
    }

    /// The call to which a record belongs: itself, or the one before it.
    pub fn call_of(&self, at: At) -> At {
        let records = &self.trace.threads[at.thread as usize].records;
        let before = records[..=at.index as usize]
            .iter()
            .rposition(|r| !r.kind.is_further());
        At {
            index: before.map_or(at.index, |index| index as u32),
            ..at
        }
    }

    /// How long a thread does something of its own after a call, before its next one.
    pub fn gap_after(&self, at: At) -> u64 {
        let of = self.thread(at.thread);
        let record = &self.trace.threads[at.thread as usize].records[at.index as usize];
        let moment = end(self.trace, record);
        let next = of[self.first_after(at.thread, moment)..]
            .iter()
            .find(|call| !call.is_local);
        next.map_or(0, |next| next.start.saturating_sub(moment))
    }

    /// The call in which a thread waits at that moment for requests, if it does.
    pub fn waiting(&self, thread: u32, moment: u64) -> Option<Timed> {
        let call = *self.thread(thread).get(self.first_after(thread, moment))?;
        let name = &self.trace.sites.get(&call.site)?.call;
        let waits = ["MPI_Wait", "msgwait", "mpc_wait"];
        (call.start < moment && waits.iter().any(|word| name.starts_with(word))).then_some(call)
    }
}
