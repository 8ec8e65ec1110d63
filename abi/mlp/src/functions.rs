//! The functions.

use std::ffi::{c_int, c_long};

use margay_run_mlp::constants::MLP_OWNER_DIED;
use margay_sys_mlp::robust::Taken;

use crate::call::{Address, exits, last, mlp};
use crate::user::{IntPlace, Ints, Lock, Room, SizePlace, Text};

mlp! {
    /// Makes processes until there are numpro; process n gets n in nowpro and nthread[n - 1]
    /// threads.
    fn forkit(nthread: Ints, numpro: c_int, nowpro: IntPlace) -> c_int |group| {
        nowpro.check("nowpro")?;
        // SAFETY: the prototype says that there is one for each process.
        let threads = unsafe { nthread.read("nthread", numpro) }?;
        nowpro.put(group.forkit(&threads, exits)? as c_int);
        Ok(0)
    }

    /// Makes the arena with this size; without the call the first use makes one of half the memory.
    fn mlp_arena(bytes: usize) -> c_int |group| {
        group.make_arena(bytes as u64)?;
        Ok(0)
    }

    /// The address of the part of the arena with that name, made with zeroes if it is not there.
    fn mlp_alloc(name: Text, bytes: usize) -> Address |group| {
        let address = group.alloc(&name.read("name")?, bytes as u64)?;
        Ok(Address(address as *mut _))
    }

    /// The address of the part with that name, and its bytes; null when it is not there.
    fn mlp_find(name: Text, bytes: SizePlace) -> Address |group| {
        let found = group.find(&name.read("name")?)?;
        bytes.put(found.map_or(0, |(_, bytes)| bytes));
        Ok(Address(found.map_or(0, |(address, _)| address) as *mut _))
    }

    /// Gives the part with that name back.
    fn mlp_free(name: Text) -> c_int |group| {
        group.free(&name.read("name")?)?;
        Ok(0)
    }

    /// The number of this process, from 1.
    fn mlp_process() -> c_int |group| {
        Ok(group.process() as c_int)
    }

    /// How many processes the group was made of.
    fn mlp_processes() -> c_int |group| {
        Ok(group.processes() as c_int)
    }

    /// Returns when all processes have called it.
    fn mlp_barrier() -> c_int |group| {
        group.barrier()?;
        Ok(0)
    }

    /// Takes the lock, an integer in the arena that was 0 at first; MLP_OWNER_DIED if its holder
    /// died.
    fn mlp_lock(lock: Lock) -> c_int |group| {
        Ok(taken(group.lock(lock.address())?))
    }

    /// As mlp_lock if that need not wait, and got is 1; else got is 0.
    fn mlp_trylock(lock: Lock, got: IntPlace) -> c_int |group| {
        got.check("got")?;
        let result = group.try_lock(lock.address())?;
        got.put(c_int::from(result.is_some()));
        Ok(result.map_or(0, taken))
    }

    /// Releases the lock.
    fn mlp_unlock(lock: Lock) -> c_int |group| {
        group.unlock(lock.address())?;
        Ok(0)
    }

    /// How many threads this process is to use now; sets OpenMP's number and binds the threads.
    fn mlp_threads() -> c_int |group| {
        Ok(group.use_threads()? as c_int)
    }

    /// Binds the calling thread to the CPU of a thread of this process, from 0.
    fn mlp_pin(thread: c_int) -> c_int |group| {
        group.pin(thread.into())?;
        Ok(0)
    }

    /// Lends up to this many CPUs of this process to others; returns how many it lends in addition.
    fn mlp_lend(cpus: c_int) -> c_int |group| {
        Ok(group.lend(cpus.into())? as c_int)
    }

    /// Borrows up to this many CPUs that others lend; returns how many.
    fn mlp_borrow(cpus: c_int) -> c_int |group| {
        Ok(group.borrow(cpus.into())? as c_int)
    }

    /// Wants all CPUs of this process back; returns how many others still use.
    fn mlp_reclaim() -> c_int |group| {
        Ok(group.reclaim()? as c_int)
    }

    /// Returns all borrowed CPUs to their owners; returns how many.
    fn mlp_return() -> c_int |group| {
        Ok(group.give_back()? as c_int)
    }

    /// How many CPUs could be borrowed now.
    fn mlp_idle() -> c_int |group| {
        Ok(group.idle()? as c_int)
    }

    /// Binds a range of the part to a process's node; returns how many pages are still elsewhere.
    fn mlp_place(name: Text, offset: usize, bytes: usize, process: c_int) -> c_long |group| {
        let name = name.read("name")?;
        Ok(group.place(&name, offset as u64, bytes as u64, process.into())? as c_long)
    }

    /// How many pages of a range of the part lie on another node than that of the process.
    fn mlp_elsewhere(name: Text, offset: usize, bytes: usize, process: c_int) -> c_long |group| {
        let name = name.read("name")?;
        Ok(group.elsewhere(&name, offset as u64, bytes as u64, process.into())? as c_long)
    }

    /// Prints the placement on standard error.
    fn mlp_report() -> c_int |group| {
        eprint!("{}", group.report()?);
        Ok(0)
    }

    /// The placement as text, cut to size; returns how many bytes all of it has.
    fn mlp_report_text(text: Room, size: usize) -> c_long |group| {
        let report = group.report()?;
        // SAFETY: the prototype says that the room has this size.
        Ok(unsafe { text.put(size, &report) } as c_long)
    }

    /// What is done about errors and deaths: MLP_ERRORS_END or MLP_ERRORS_RETURN.
    fn mlp_errors(mode: c_int) -> c_int |group| {
        group.set_errors(mode.into())?;
        Ok(0)
    }

    /// The text of the last error that was returned, cut to size; returns the bytes of all of it.
    fn mlp_error(text: Room, size: usize) -> c_long |_group| {
        // SAFETY: the prototype says that the room has this size.
        Ok(unsafe { text.put(size, &last()) } as c_long)
    }

    /// MLP_LIVING, MLP_ENDED or MLP_DEAD; in status the exit code, minus the signal, or
    /// MLP_UNKNOWN.
    fn mlp_state(process: c_int, status: IntPlace) -> c_int |group| {
        let (state, how) = group.state_of(process.into())?;
        status.put(how);
        Ok(state as c_int)
    }

    /// Agrees with all living processes to go on without the ended ones; returns how many go on.
    fn mlp_shrink() -> c_int |group| {
        Ok(group.shrink()? as c_int)
    }
}

fn taken(taken: Taken) -> c_int {
    match taken {
        Taken::InOrder => 0,
        Taken::FromDead(_) => MLP_OWNER_DIED as c_int,
    }
}
