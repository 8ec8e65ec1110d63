//! Threads on CPUs, memory on nodes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use margay_sys_mlp::group::{Arena, ThreadSlot, Use};
use margay_sys_mlp::openmp::OpenMp;
use margay_sys_os::{cpu, memory, process};

use crate::constants::*;
use crate::error::Result;
use crate::{Binding, Group, binding, refuse, system};

impl Group {
    /// `mlp_threads`: returns the CPUs that others have reclaimed. Returns how many threads this
    /// process is to use now: one for each CPU that it has or has borrowed, at least one. Sets that
    /// number in an OpenMP runtime of the program, and binds its threads. Called between parallel
    /// regions.
    ///
    /// # Errors
    /// When it is called in a parallel region, or the system does not bind a thread.
    pub fn use_threads(&self) -> Result<u32> {
        let arena = self.arena()?;
        if arena.slots().is_empty() {
            refuse!(MLP_ERR_STATE, "there is no group yet; forkit makes it");
        }
        let runtime = OpenMp::find();
        if runtime.is_some_and(|r| r.in_parallel()) {
            refuse!(
                MLP_ERR_STATE,
                "the call was made in a parallel region, whose threads cannot change; call it before the region"
            );
        }
        self.give_back_wanted(arena);
        let slots = self.slots_in_use(arena);
        let threads = slots.len() as u32;
        let member = arena.member(self.process());
        member.active.store(threads, Ordering::Relaxed);
        process::set_variable("OMP_NUM_THREADS", threads.to_string());
        let binding = binding()?;
        if binding == Binding::Nothing {
            if let Some(runtime) = runtime {
                runtime.set_threads(threads);
            }
            return Ok(threads);
        }
        let all: BTreeSet<usize> = slots.iter().map(|slot| number(slot)).collect();
        let all: Vec<usize> = all.into_iter().collect();
        // Threads that a runtime makes now inherit the CPUs of the calling thread; each is bound to
        // its own below.
        bind(0, &all)?;
        if let Some(runtime) = runtime.filter(OpenMp::has_members) {
            let cpus: Vec<u32> = slots.iter().map(|slot| number(slot) as u32).collect();
            if !runtime.bind_members(&cpus) {
                refuse!(MLP_ERR_SYSTEM, "OpenMP does not bind the members of teams");
            }
        }
        match runtime {
            _ if threads == 1 => {
                // LLVM's runtime sets the CPUs of the calling thread itself at its first region.
                if let Some(runtime) = runtime {
                    let _ = runtime.in_each_thread(1, &|_| ());
                }
                self.pin(0)?;
            }
            Some(runtime) => self.bind_team(arena, runtime, &slots, binding)?,
            None => {}
        }
        if let Some(runtime) = runtime {
            runtime.set_threads(threads);
        }
        Ok(threads)
    }

    /// Binds the threads of a runtime's team of this size.
    fn bind_team(
        &self,
        arena: &Arena,
        runtime: OpenMp,
        slots: &[&ThreadSlot],
        binding: Binding,
    ) -> Result<()> {
        let threads = slots.len() as u32;
        let Some(mut numbers) = thread_numbers(runtime, threads) else {
            return Ok(());
        };
        if runtime.has_members() {
            // It binds them itself, and has a thread for each when the threads have woken up. With
            // more members than threads some share one, which it moves.
            for _ in 1..MOST_TRIES {
                if are_distinct(&numbers) {
                    break;
                }
                numbers = thread_numbers(runtime, threads).unwrap_or(numbers);
            }
        } else if !are_distinct(&numbers) {
            // One thread of the system runs several members, and the runtime has no way to say
            // where: nothing is bound.
            for slot in slots {
                slot.thread.store(0, Ordering::Relaxed);
            }
            return Ok(());
        }
        for (slot, &thread) in slots.iter().zip(&numbers) {
            if thread != 0 && !runtime.has_members() {
                bind(thread, &[number(slot)])?;
            }
            slot.thread.store(thread, Ordering::Relaxed);
        }
        if binding == Binding::Memory && self.topology().has_nodes() {
            runtime.in_each_thread(threads, &|thread| {
                if let Some(slot) = slots.get(thread as usize) {
                    self.take_memory_of(arena, slot);
                }
            });
        }
        Ok(())
    }

    /// Where more threads share a CPU, those that wait must not keep it: a region of a few
    /// microseconds takes milliseconds when the threads that it waits for have to wait for a CPU.
    /// Informs the runtime of that, or the user where the runtime has no such call.
    pub(crate) fn care_for_shared_cpus(&self, arena: &Arena) {
        let header = arena.header();
        let (slots, cores) = (
            header.slots.load(Ordering::Relaxed),
            header.usable_cores.load(Ordering::Relaxed),
        );
        let Some(runtime) = OpenMp::find().filter(|_| slots > cores) else {
            return;
        };
        if runtime.wait_asleep() || self.process() != 1 || !teams_spin(arena) {
            return;
        }
        eprintln!(
            "forkit: {slots} threads share {cores} CPUs, and those of OpenMP spin while they wait; set OMP_WAIT_POLICY=passive, \
             or use fewer threads"
        );
    }

    /// `mlp_pin`: binds the calling thread to the CPU of thread `thread` of this process, from 0,
    /// and its memory to that CPU's node. For threads that no OpenMP runtime makes.
    ///
    /// # Errors
    /// When the process has no such thread, or the system does not bind it.
    pub fn pin(&self, thread: i64) -> Result<()> {
        let arena = self.arena()?;
        let slots = self.slots_in_use(arena);
        let Some(slot) = usize::try_from(thread).ok().and_then(|t| slots.get(t)) else {
            refuse!(
                MLP_ERR_ARGUMENT,
                "there is no thread {thread}; this process has {} (from 0) now",
                slots.len()
            );
        };
        let binding = binding()?;
        if binding == Binding::Nothing {
            return Ok(());
        }
        bind(0, &[number(slot)])?;
        slot.thread.store(cpu::thread_number(), Ordering::Relaxed);
        if binding == Binding::Memory && self.topology().has_nodes() {
            self.take_memory_of(arena, slot);
        }
        Ok(())
    }

    /// The calling thread gets memory from the node of a slot's CPU from now on. Whether the system
    /// accepts that is recorded for the report.
    fn take_memory_of(&self, arena: &Arena, slot: &ThreadSlot) {
        let code = match memory::take_from(slot.node.load(Ordering::Relaxed)) {
            Ok(()) => 1,
            Err(error) => -error.raw_os_error().unwrap_or(1),
        };
        let member = &arena.member(self.process()).memory;
        // A refusal is not hidden by another thread's success.
        if code < 0 || member.load(Ordering::Relaxed) == 0 {
            member.store(code, Ordering::Relaxed);
        }
    }

    /// Returns the slots whose CPUs this process uses: its own that it has not lent, and those that
    /// it has borrowed. At least one.
    pub(crate) fn slots_in_use<'a>(&self, arena: &'a Arena) -> Vec<&'a ThreadSlot> {
        let me = self.process();
        let own = own_slots(arena, me);
        let mut used: Vec<&ThreadSlot> = own.iter().filter(|s| s.usage() == Use::Own).collect();
        let borrowed = |slot: &&ThreadSlot| matches!(slot.usage(), Use::Borrowed(p) | Use::Wanted(p) if p == me);
        used.extend(arena.slots().iter().filter(borrowed));
        if used.is_empty() {
            used.extend(own.first());
        }
        used
    }

    /// `mlp_place`: the pages of a range of the named part lie on the node of a process's first CPU
    /// from now on, those that are elsewhere move. A page belongs to the range in which it begins.
    /// Returns how many pages of the range that are there are elsewhere all the same; always 0 on a
    /// machine with one node.
    ///
    /// # Errors
    /// When there is no such part, range or process, or the system refuses.
    pub fn place(&self, name: &str, offset: u64, bytes: u64, process: i64) -> Result<u64> {
        let (address, bytes, node) = self.range(name, offset, bytes, process)?;
        if self.topology().has_nodes() && bytes > 0 {
            memory::bind(address, bytes, node).map_err(|error| {
                system(&format!("'{name}' cannot be bound to node {node}"), &error)
            })?;
        }
        self.elsewhere(name, offset, bytes as u64, process)
    }

    /// `mlp_elsewhere`: how many pages of the range that are there lie on another node than the
    /// process's first CPU.
    ///
    /// # Errors
    /// As [`place`](Self::place).
    pub fn elsewhere(&self, name: &str, offset: u64, bytes: u64, process: i64) -> Result<u64> {
        let (address, bytes, node) = self.range(name, offset, bytes, process)?;
        if !self.topology().has_nodes() || bytes == 0 {
            return Ok(0);
        }
        let nodes = memory::nodes_of(address, bytes)
            .map_err(|error| system("the system does not tell where pages are", &error))?;
        let elsewhere = nodes.iter().flatten().filter(|&&n| n != node).count();
        Ok(elsewhere as u64)
    }

    /// Address and bytes of the whole pages of a range, and the node of a process's first CPU.
    fn range(
        &self,
        name: &str,
        offset: u64,
        bytes: u64,
        process: i64,
    ) -> Result<(usize, usize, u32)> {
        const PAGE: u64 = 4096;
        let process = self.checked(process)?;
        let part = self.part(name)?;
        let Some(end) = offset.checked_add(bytes).filter(|&end| end <= part.bytes) else {
            refuse!(
                MLP_ERR_ARGUMENT,
                "{bytes} bytes from byte {offset} on are asked for, and '{name}' has {}",
                part.bytes
            );
        };
        let arena = self.arena()?;
        let first = (part.offset + offset).next_multiple_of(PAGE);
        let end = (part.offset + end).next_multiple_of(PAGE);
        let node = own_slots(arena, process).first();
        let node = node.map_or(0, |slot| slot.node.load(Ordering::Relaxed));
        let bytes = end.min(arena.data().end).saturating_sub(first);
        Ok((arena.address(first), bytes as usize, node))
    }
}

/// How many regions are tried until each member of a team has a thread of its own.
const MOST_TRIES: u32 = 50;

/// Returns the kernel's numbers of the threads that run the members of a team of this size, 0 for
/// members that there are not.
fn thread_numbers(runtime: OpenMp, threads: u32) -> Option<Vec<u32>> {
    let numbers: Vec<AtomicU32> = (0..threads).map(|_| AtomicU32::new(0)).collect();
    let note = |thread: u32| {
        if let Some(number) = numbers.get(thread as usize) {
            number.store(cpu::thread_number(), Ordering::Relaxed);
        }
    };
    let could = runtime.in_each_thread(threads, &note);
    could.then(|| numbers.into_iter().map(AtomicU32::into_inner).collect())
}

fn are_distinct(numbers: &[u32]) -> bool {
    let there = || numbers.iter().filter(|&&number| number != 0);
    there().collect::<BTreeSet<_>>().len() == there().count()
}

/// Whether OpenMP's threads may wait for each other and spin, as far as that is visible from
/// outside.
fn teams_spin(arena: &Arena) -> bool {
    let is_team = |process| arena.member(process).threads.load(Ordering::Relaxed) > 1;
    let processes = arena.header().processes.load(Ordering::Relaxed);
    let policy = std::env::var("OMP_WAIT_POLICY").unwrap_or_default();
    let is_passive = policy.trim().eq_ignore_ascii_case("passive")
        || std::env::var_os("GOMP_SPINCOUNT").is_some();
    // Margay's own runtime does not spin where others want the CPU.
    let is_ours = OpenMp::find().is_some_and(|runtime| runtime.has_members());
    (1..=processes).any(is_team) && !is_passive && !is_ours
}

/// Returns the slots that a process was given.
pub(crate) fn own_slots(arena: &Arena, process: u32) -> &[ThreadSlot] {
    let member = arena.member(process);
    let first = member.first_slot.load(Ordering::Relaxed) as usize;
    let threads = member.threads.load(Ordering::Relaxed) as usize;
    arena
        .slots()
        .get(first..first.saturating_add(threads))
        .unwrap_or_default()
}

fn number(slot: &ThreadSlot) -> usize {
    slot.cpu.load(Ordering::Relaxed) as usize
}

fn bind(thread: u32, cpus: &[usize]) -> Result<()> {
    cpu::bind_thread(thread, cpus)
        .map_err(|error| system(&format!("a thread cannot be bound to CPU {cpus:?}"), &error))
}
