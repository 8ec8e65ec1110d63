//! `forkit`, and the guard, which learns how the processes of the group end.
//!
//! ```text
//! process 1 (calls forkit)
//!    `-- guard: waits, computes nothing
//!          |-- process 2
//!          `-- process n
//! ```
//!
//! The system reports only to a parent how a process ended, and a program must not be disturbed by
//! children that end; so the guard is the parent. It sleeps until a process ends, records that in
//! the arena, reports it, and ends the group unless the group continues without its dead. The guard
//! ends when all processes have ended. Process 1 waits for that when it exits, so a parent that
//! waits for process 1 has waited for all. If the guard itself is killed, the system kills its
//! children with it, and process 1 notices that at its next wait.

use std::ffi::c_void;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use margay_core_topology::{Placement, place};
use margay_sys_mlp::group::{Arena, MAX_SLOTS, Phase, State, UNKNOWN};
use margay_sys_mlp::openmp::flush_output;
use margay_sys_mlp::robust::MAX_PROCESSES;
use margay_sys_os::descriptor::{PollSet, set_nonblocking};
use margay_sys_os::process::{self, Forked, PidFd};
use margay_sys_os::signal::{self, SignalSet};

use crate::constants::*;
use crate::error::Result;
use crate::{Group, how, refuse, system};

/// How long a process may take to end in order when the group is ended.
const GRACE: Duration = Duration::from_secs(1);
/// The longest sleep of a process that waits for the group to start.
const START_SLICE_NS: u64 = 20_000_000;

impl Group {
    /// `forkit`: makes processes until the group has as many as `threads` has entries, process n
    /// with `threads[n - 1]` threads on CPUs of their own, counted up from those of the processes
    /// before it. Returns this process's number, in each of them. `exits` is called when a process
    /// exits in order; it calls [`leave`](Self::leave).
    ///
    /// # Errors
    /// When an argument is wrong, the process has several threads, or the system makes no
    /// processes. Then there are none.
    pub fn forkit(&self, threads: &[i32], exits: extern "C" fn(i32, *mut c_void)) -> Result<u32> {
        let threads = checked_threads(threads)?;
        crate::binding()?;
        if self.is_running() {
            refuse!(
                MLP_ERR_STATE,
                "the group has been made already; forkit is called once, by one process"
            );
        }
        let arena = self.arena()?;
        let slots = place(self.topology(), &threads);
        self.describe(arena, &threads, &slots);
        if threads.len() == 1 {
            arena.header().set_phase(Phase::Running);
        } else {
            self.make_processes(arena, threads.len() as u32, exits)?;
        }
        self.use_threads()?;
        self.care_for_shared_cpus(arena);
        Ok(self.process())
    }

    /// Records the processes and threads that the group will have.
    fn describe(&self, arena: &Arena, threads: &[u32], slots: &[Placement]) {
        let header = arena.header();
        header.slots.store(slots.len() as u32, Ordering::Release);
        for (cell, slot) in arena.slots().iter().zip(slots) {
            cell.assign(slot.cpu.number, slot.cpu.node);
        }
        let mut first = 0;
        for (process, &threads) in (1..).zip(threads) {
            let member = arena.member(process);
            member.first_slot.store(first, Ordering::Relaxed);
            member.threads.store(threads, Ordering::Relaxed);
            member.active.store(threads, Ordering::Relaxed);
            first += threads;
        }
        let processes = threads.len() as u32;
        header.processes.store(processes, Ordering::SeqCst);
    }

    fn make_processes(
        &self,
        arena: &Arena,
        processes: u32,
        exits: extern "C" fn(i32, *mut c_void),
    ) -> Result<()> {
        let header = arena.header();
        let alone = || {
            header.processes.store(1, Ordering::SeqCst);
            header.set_phase(Phase::Alone);
        };
        let (wake_reader, wake_writer) = match io::pipe().and_then(|(wake_reader, wake_writer)| {
            set_nonblocking(wake_reader.as_fd())?;
            set_nonblocking(wake_writer.as_fd())?;
            Ok((wake_reader, wake_writer))
        }) {
            Ok(pipe) => pipe,
            Err(error) => {
                alone();
                return Err(system("no pipe for the guard", &error));
            }
        };
        header.set_phase(Phase::Forking);
        flush_output();
        let pid = std::process::id();
        match process::fork() {
            Err(error) => {
                alone();
                Err(system(
                    "the process cannot be copied; forkit comes before the first parallel region and before threads are made",
                    &error,
                ))
            }
            Ok(Forked::Child) => {
                let guard = Guard {
                    arena,
                    first: (pid, PidFd::open(pid).ok()),
                    wake_reader: &wake_reader,
                    others: Vec::new(),
                    ending: None,
                    failed: false,
                };
                let number = guard.run(processes);
                self.me.store(number, Ordering::Relaxed);
                self.enter((wake_reader, wake_writer), exits)
            }
            Ok(Forked::Parent(guard)) => {
                let handle =
                    PidFd::open(guard).map_err(|e| system("no handle of the guard", &e))?;
                while header.phase() == Phase::Forking && !handle.has_ended() {
                    let settled = || header.phase() != Phase::Forking;
                    header.event_count.sleep(START_SLICE_NS, settled);
                }
                if header.phase() != Phase::Running {
                    let _ = process::reap_one(guard);
                    let error =
                        io::Error::from_raw_os_error(header.fork_error.load(Ordering::SeqCst));
                    alone();
                    refuse!(
                        MLP_ERR_SYSTEM,
                        "the system makes no {processes} processes: {error}; ask for fewer, or raise the limit (ulimit -u)"
                    );
                }
                header.guard.store(guard, Ordering::SeqCst);
                let _ = self.guard.set(handle);
                self.enter((wake_reader, wake_writer), exits)
            }
        }
    }

    /// The first steps of each process of a new group.
    fn enter(
        &self,
        wake_pipe: (io::PipeReader, io::PipeWriter),
        exits: extern "C" fn(i32, *mut c_void),
    ) -> Result<()> {
        let _ = self.wake_pipe.set(wake_pipe);
        if !process::at_exit(exits) {
            refuse!(
                MLP_ERR_SYSTEM,
                "no room for a function that is called at the end"
            );
        }
        Ok(())
    }

    /// A process exits in order with `code`: it leaves the group, and process 1 waits for the
    /// others. If one of those has failed, process 1 exits with code 1.
    pub fn leave(&self, code: i32) {
        let Some(arena) = self.arena.get() else {
            return;
        };
        let (header, number) = (arena.header(), self.process());
        let member = arena.member(number);
        // A copy of this process that the program made by itself is no part of the group.
        if !self.is_running() || member.pid.load(Ordering::Relaxed) != std::process::id() {
            return;
        }
        let first = number == 1;
        let state = if code == 0 { State::Ended } else { State::Dead };
        // The guard learns from the system how its children end, and reports it.
        if (code == 0 || first) && member.set_gone(state, code & 0xff) {
            header.gone.fetch_add(1, Ordering::SeqCst);
            header.event_count.wake();
            header.barrier.wake();
        }
        if let Some((_, wake_writer)) = self.wake_pipe.get() {
            let _ = { wake_writer }.write(&[0]);
        }
        let guard = header.guard.load(Ordering::SeqCst);
        if first && guard != 0 {
            let ended = process::reap_one(guard);
            let tolerant = header.tolerant.load(Ordering::SeqCst) != 0;
            if code == 0 && !tolerant && ended.is_ok_and(|status| !status.success()) {
                flush_output();
                process::leave(1);
            }
        }
    }
}

fn checked_threads(threads: &[i32]) -> Result<Vec<u32>> {
    if threads.is_empty() || threads.len() > MAX_PROCESSES as usize {
        refuse!(
            MLP_ERR_ARGUMENT,
            "{} processes are asked for; a group has 1 to {MAX_PROCESSES}",
            threads.len()
        );
    }
    let mut all = Vec::new();
    for (&threads, process) in threads.iter().zip(1..) {
        match u32::try_from(threads) {
            Ok(threads @ 1..=MAX_SLOTS) => all.push(threads),
            _ => refuse!(
                MLP_ERR_ARGUMENT,
                "{threads} threads are asked for process {process}; it has at least one, and all together at most {MAX_SLOTS}"
            ),
        }
    }
    let total: u32 = all.iter().sum();
    if total > MAX_SLOTS {
        refuse!(
            MLP_ERR_ARGUMENT,
            "{total} threads are asked for; all processes together have at most {MAX_SLOTS}"
        );
    }
    Ok(all)
}

/// The process that makes the others and waits for their ends.
struct Guard<'a> {
    arena: &'a Arena,
    /// Process 1: its id and handle, none when it has ended.
    first: (u32, Option<PidFd>),
    wake_reader: &'a io::PipeReader,
    /// Number, id and handle of the others that have not been reaped.
    others: Vec<(u32, u32, PidFd)>,
    /// Since when the group is being ended.
    ending: Option<Instant>,
    failed: bool,
}

impl Guard<'_> {
    /// Makes the processes 2 to `processes` and returns in each of them with its number. The guard
    /// itself does not return.
    fn run(mut self, processes: u32) -> u32 {
        let mask = SignalSet::all().block();
        let guard = std::process::id();
        process::set_name(c"mlp-guard");
        for number in 2..=processes {
            let made = process::fork().and_then(|forked| match forked {
                Forked::Child => Ok(None),
                Forked::Parent(pid) => PidFd::open(pid).map(|handle| Some((pid, handle))),
            });
            match made {
                Ok(None) => {
                    process::die_with_parent();
                    self.wait_for_start(number, guard);
                    mask.block_exactly();
                    return number;
                }
                Ok(Some((pid, handle))) => {
                    let member = self.arena.member(number);
                    member.pid.store(pid, Ordering::Relaxed);
                    member.set_state(State::Living);
                    self.others.push((number, pid, handle));
                }
                Err(error) => self.give_up(&error),
            }
        }
        self.arena.header().set_phase(Phase::Running);
        self.watch(processes)
    }

    /// In a new process: waits until all are there. Ends when they will not be.
    fn wait_for_start(&self, number: u32, guard: u32) {
        let header = self.arena.header();
        while header.phase() == Phase::Forking && process::parent() == guard {
            header
                .event_count
                .sleep(START_SLICE_NS, || header.phase() != Phase::Forking);
        }
        // A guard that was killed before this process asked to end with it does not end it.
        if header.phase() != Phase::Running || process::parent() != guard {
            process::leave(1);
        }
        let member = self.arena.member(number);
        member.pid.store(std::process::id(), Ordering::Relaxed);
    }

    /// A process could not be made: the others end, and process 1 reports it.
    fn give_up(&self, error: &io::Error) -> ! {
        for (number, pid, handle) in &self.others {
            handle.kill();
            let _ = process::reap_one(*pid);
            self.arena.member(*number).set_state(State::Absent);
        }
        let header = self.arena.header();
        let number = error.raw_os_error().unwrap_or_default();
        header.fork_error.store(number, Ordering::SeqCst);
        header.set_phase(Phase::Failed);
        process::leave(1)
    }

    /// Waits for processes to end until none is left.
    fn watch(mut self, processes: u32) -> ! {
        let mut set = PollSet::default();
        loop {
            set.clear();
            set.add_readable(self.wake_reader.as_fd());
            for (_, _, handle) in &self.others {
                set.add_readable(handle.as_fd());
            }
            if let Some(first) = &self.first.1 {
                set.add_readable(first.as_fd());
            }
            let limit = self.ending.map(|since| {
                let left = GRACE.saturating_sub(since.elapsed());
                left.max(Duration::from_millis(20))
            });
            let _ = set.wait(limit);
            while matches!({ self.wake_reader }.read(&mut [0; 64]), Ok(1..)) {}
            self.note_ends(processes);
            let first_lives = self.arena.member(1).state() == State::Living;
            if self.others.is_empty() && !first_lives {
                process::leave(i32::from(self.failed));
            }
            if self.ending.is_some_and(|since| since.elapsed() >= GRACE) {
                self.send(signal::SIGKILL);
            }
        }
    }

    /// Records the processes that have ended since the last time.
    fn note_ends(&mut self, processes: u32) {
        let mut ended = Vec::new();
        let arena = self.arena;
        self.others.retain(|(number, pid, handle)| {
            if !handle.has_ended() {
                return true;
            }
            let status = process::reap_one(*pid).map_or(UNKNOWN, status_number);
            ended.push((*number, status));
            false
        });
        let (pid, handle) = &self.first;
        if let Some(handle) = handle
            && handle.has_ended()
        {
            let status = handle.how_it_ended(*pid);
            ended.push((1, status.map_or(UNKNOWN, status_number)));
            self.first.1 = None;
        } else if arena.member(1).state() == State::Dead {
            // It exits with an error, and is waiting for this process.
            ended.push((1, arena.member(1).status.load(Ordering::Relaxed)));
        }
        for (number, status) in ended {
            self.note(number, status, processes);
        }
    }

    /// Process `number` has ended.
    fn note(&mut self, number: u32, status: i32, processes: u32) {
        let (header, member) = (self.arena.header(), self.arena.member(number));
        let state = if status == 0 {
            State::Ended
        } else {
            State::Dead
        };
        let is_news = member.set_gone(state, status);
        if is_news {
            header.gone.fetch_add(1, Ordering::SeqCst);
            header.event_count.wake();
            header.barrier.wake();
        }
        let died_by_itself = number == 1 && member.state() == State::Dead;
        if status == 0 || !(is_news || died_by_itself) || self.ending.is_some() {
            return;
        }
        let tolerant = header.tolerant.load(Ordering::SeqCst) != 0;
        let then = if tolerant {
            "the others go on: their next barrier fails, and mlp_shrink leaves it out"
        } else {
            "the group is ended"
        };
        if is_news || !tolerant {
            let pid = member.pid.load(Ordering::Relaxed);
            // One write, so that lines of several groups do not mix. There is nobody to report an
            // error to.
            let text = format!(
                "mlp: process {number} of {processes} (pid {pid}) {}; {then}\n",
                how(status)
            );
            let _ = io::stderr().write_all(text.as_bytes());
        }
        if !tolerant {
            self.failed = true;
            self.ending = Some(Instant::now());
            self.send(signal::SIGTERM);
        }
    }

    /// Sends all that live a signal. A process 1 that is waiting for this process ends by itself.
    fn send(&self, signal: i32) {
        for (_, _, handle) in &self.others {
            handle.signal(signal);
        }
        if self.arena.member(1).state() == State::Living
            && let Some(first) = &self.first.1
        {
            first.signal(signal);
        }
    }
}

fn status_number(status: ExitStatus) -> i32 {
    let signal = status.signal().map_or(UNKNOWN, |signal| -signal);
    status.code().unwrap_or(signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_checked() {
        assert_eq!(checked_threads(&[1, 3]).unwrap(), [1, 3]);
        for (threads, text) in [
            (&[][..], "0 processes are asked for; a group has 1 to 511"),
            (&[1; 512], "512 processes are asked for"),
            (&[1, 0], "0 threads are asked for process 2"),
            (&[-1], "-1 threads are asked for process 1"),
            (&[8000, 193], "8193 threads are asked for"),
        ] {
            let error = checked_threads(threads).unwrap_err();
            assert_eq!(error.number(), MLP_ERR_ARGUMENT);
            assert!(error.to_string().starts_with(text), "{error}");
        }
    }

    #[test]
    fn statuses_are_numbers() {
        assert_eq!(status_number(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(status_number(ExitStatus::from_raw(9)), -9);
    }
}
