//! Multi-Level Parallelism (Taft, NASA Ames): processes that share an arena and have threads of
//! their own, pinned.
//!
//! The interface is that of the paper (Ciotti, "Towards Scalable 1024 Processor Shared Memory
//! Systems", 2001, section 5.2), with what it takes to use it without surprises: names for parts of
//! the arena, a barrier and locks that survive the death of a process, a report of the placement,
//! and lending CPUs.
//!
//! | module | what it has |
//! | --- | --- |
//! | [`Group`], here | the processes; what every call needs |
//! | `fork` | `forkit` and the guard, which knows how processes end |
//! | `names` | named parts of the arena |
//! | `together` | barrier, locks, going on without the dead |
//! | `threads` | threads on CPUs, memory on nodes |
//! | `lend` | lending CPUs |
//! | `report` | the placement as text |
//!
//! A [`Group`] is a value; `abi/mlp` keeps the one of the process.
#![forbid(unsafe_code)]

pub mod constants;
pub mod error;
mod fork;
mod lend;
mod names;
mod report;
mod threads;
mod together;

use std::cell::Cell;
use std::io::{PipeReader, PipeWriter};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use constants::*;
use error::{Error, Result};
use margay_core_topology::Topology;
use margay_sys_mlp::group::{Arena, Phase, State};
use margay_sys_mlp::robust::{Holder, WaitPolicy};
use margay_sys_os::cpu;
use margay_sys_os::process::PidFd;

/// Variable of the environment: bytes of the arena, perhaps with K, M, G or T.
pub const ENV_ARENA: &str = "MARGAY_MLP_ARENA";
/// Variable of the environment: what is bound, `none`, `cpu` or `memory` (which includes CPUs).
pub const ENV_BIND: &str = "MARGAY_MLP_BIND";
/// Variable of the environment: the folder that describes the machine, instead of `/sys`.
pub const ENV_TOPOLOGY: &str = "MARGAY_TOPOLOGY";

/// The group that this process belongs to; alone before [`forkit`](Group::forkit).
///
/// All methods may be called from any thread, but for `forkit`, which the only thread calls.
#[derive(Debug)]
pub struct Group {
    arena: OnceLock<Arena>,
    topology: OnceLock<Topology>,
    /// The number of this process, from 1.
    me: AtomicU32,
    /// Whether calls return their errors.
    returns: AtomicBool,
    /// How many of the group had gone when this process last agreed to go on without them.
    accepted: AtomicU32,
    /// In process 1: the guard.
    guard: OnceLock<PidFd>,
    /// Wakes the guard. The end that it reads is kept too, so that writing is no SIGPIPE when the
    /// guard was killed.
    wake_pipe: OnceLock<(PipeReader, PipeWriter)>,
}

/// What is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Nothing,
    Cpus,
    Memory,
}

impl Default for Group {
    fn default() -> Self {
        Self::new()
    }
}

impl Group {
    /// Returns a process alone.
    #[must_use]
    pub const fn new() -> Group {
        Group {
            arena: OnceLock::new(),
            topology: OnceLock::new(),
            me: AtomicU32::new(1),
            returns: AtomicBool::new(false),
            accepted: AtomicU32::new(0),
            guard: OnceLock::new(),
            wake_pipe: OnceLock::new(),
        }
    }

    /// Returns the number of this process, from 1.
    #[must_use]
    #[inline]
    pub fn process(&self) -> u32 {
        self.me.load(Ordering::Relaxed)
    }

    /// Returns how many processes the group was made of.
    #[must_use]
    pub fn processes(&self) -> u32 {
        let arena = self.arena.get();
        arena.map_or(1, |a| a.header().processes.load(Ordering::Relaxed))
    }

    /// Whether calls return their errors; else they end the process, and the death of a process
    /// ends the group.
    #[must_use]
    pub fn returns_errors(&self) -> bool {
        self.returns.load(Ordering::Relaxed)
    }

    /// Says what is done about errors: a constant `MLP_ERRORS_`. For calls it counts in this
    /// process, for deaths the last word of any process of the group.
    ///
    /// # Errors
    /// When it is no such constant.
    pub fn set_errors(&self, mode: i64) -> Result<()> {
        if mode != MLP_ERRORS_END && mode != MLP_ERRORS_RETURN {
            refuse!(
                MLP_ERR_ARGUMENT,
                "{mode} is neither MLP_ERRORS_END nor MLP_ERRORS_RETURN"
            );
        }
        let returns = mode == MLP_ERRORS_RETURN;
        self.returns.store(returns, Ordering::Relaxed);
        if let Some(arena) = self.arena.get() {
            let tolerant = &arena.header().tolerant;
            tolerant.store(u32::from(returns), Ordering::SeqCst);
        }
        Ok(())
    }

    /// Returns where a process stands and how it ended: its exit code, minus the number of a
    /// signal, or `MLP_UNKNOWN`.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn state_of(&self, process: i64) -> Result<(i64, i32)> {
        let process = self.checked(process)?;
        let member = self.arena()?.member(process);
        Ok(match member.state() {
            State::Ended => (MLP_ENDED, member.status.load(Ordering::Relaxed)),
            State::Dead => (MLP_DEAD, member.status.load(Ordering::Relaxed)),
            State::Living | State::Absent => (MLP_LIVING, 0),
        })
    }

    /// Returns a process's number that was passed by the program.
    fn checked(&self, process: i64) -> Result<u32> {
        let all = self.processes();
        match u32::try_from(process) {
            Ok(process) if (1..=all).contains(&process) => Ok(process),
            _ => refuse!(
                MLP_ERR_ARGUMENT,
                "there is no process {process}; the group has the processes 1 to {all}"
            ),
        }
    }

    /// Returns the arena; made now if this is the first use.
    fn arena(&self) -> Result<&Arena> {
        if let Some(arena) = self.arena.get() {
            return Ok(arena);
        }
        let arena = names::default_arena()?;
        Ok(self.keep(arena))
    }

    fn keep(&self, arena: Arena) -> &Arena {
        let tolerant = u32::from(self.returns_errors());
        arena.header().tolerant.store(tolerant, Ordering::SeqCst);
        let cores = cpu::usable_cores() as u32;
        let header = arena.header();
        header.usable_cores.store(cores, Ordering::Relaxed);
        margay_sys_os::event_count::register();
        self.arena.get_or_init(|| arena)
    }

    /// Returns the machine as far as this process may use it, as it was at the first call.
    fn topology(&self) -> &Topology {
        self.topology.get_or_init(|| {
            let usable: Vec<u32> = cpu::affinity().into_iter().map(|c| c as u32).collect();
            let root = std::env::var_os(ENV_TOPOLOGY).map_or_else(|| "/sys".into(), PathBuf::from);
            Topology::read(&usable, |path| {
                std::fs::read_to_string(root.join(path)).ok()
            })
        })
    }

    /// Returns how the processes wait for each other.
    fn policy(&self, arena: &Arena) -> WaitPolicy {
        let header = arena.header();
        let cores = header.usable_cores.load(Ordering::Relaxed);
        if header.slots.load(Ordering::Relaxed) > cores {
            WaitPolicy::SHARED_CORES
        } else {
            WaitPolicy::CORE_EACH
        }
    }

    /// Returns the calling thread as a holder of locks.
    #[inline]
    fn holder(&self) -> Holder {
        // The only thread of a copied process has another number than the one in the inherited
        // variable.
        thread_local!(static HERE: Cell<(u32, u32)> = const { Cell::new((0, 0)) });
        let me = self.process();
        let thread = HERE.with(|here| match here.get() {
            (process, thread) if process == me => thread,
            _ => {
                let thread = cpu::thread_number();
                here.set((me, thread));
                thread
            }
        });
        Holder::new(me, thread)
    }

    /// Whether the group was made.
    fn is_running(&self) -> bool {
        let arena = self.arena.get();
        arena.is_some_and(|arena| arena.header().phase() == Phase::Running)
    }
}

/// Returns what the environment says is to be bound.
fn binding() -> Result<Binding> {
    let Some(word) = std::env::var_os(ENV_BIND) else {
        return Ok(Binding::Memory);
    };
    Ok(match word.to_string_lossy().trim() {
        "none" => Binding::Nothing,
        "cpu" => Binding::Cpus,
        "memory" | "" => Binding::Memory,
        other => refuse!(
            MLP_ERR_ARGUMENT,
            "{ENV_BIND} is '{other}'; it is none, cpu or memory"
        ),
    })
}

/// Returns how a process ended, as a part of a sentence.
fn how(status: i32) -> String {
    match status {
        margay_sys_mlp::group::UNKNOWN => "has ended, and the system does not tell how".into(),
        code if code >= 0 => format!("exited with code {code}"),
        signal => {
            let (name, meaning) = margay_sys_os::signal::describe(-signal);
            format!("was killed by {name} ({meaning})")
        }
    }
}

/// Returns a number of bytes for people.
fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() / 10).min(4);
    if unit == 0 {
        return format!("{bytes} bytes");
    }
    let value = bytes as f64 / (1u64 << (10 * unit)) as f64;
    format!("{value:.1} {}", UNITS[unit as usize])
}

fn system(what: &str, error: &std::io::Error) -> Error {
    Error::new(MLP_ERR_SYSTEM, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes_for_people() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1536, "1.5 KiB"),
            (3 << 30, "3.0 GiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(bytes_text(bytes), text);
        }
    }

    #[test]
    fn ends_are_reported() {
        assert_eq!(how(3), "exited with code 3");
        assert_eq!(how(-11), "was killed by SIGSEGV (invalid memory access)");
        assert!(how(MLP_UNKNOWN as i32).contains("does not tell"));
    }

    #[test]
    fn a_process_alone_is_process_one_of_one() {
        let group = Group::new();
        assert_eq!((group.process(), group.processes()), (1, 1));
        assert_eq!(group.state_of(1).unwrap(), (MLP_LIVING, 0));
        assert_eq!(group.state_of(2).unwrap_err().number(), MLP_ERR_ARGUMENT);
        assert!(group.set_errors(7).is_err());
        group.barrier().unwrap();
        group.barrier().unwrap();
    }
}
