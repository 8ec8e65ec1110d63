//! The semantics of MPL, the message-passing library of IBM's SP1 and SP2 (EUI), in safe Rust.
//!
//! [`Mpl`] is one task's MPL on the rank that it shares with MPI: messages and their ids
//! ([`message`]), routines that are called when a message is there ([`service`]), groups
//! ([`group`]), collective operations ([`collective`]), the parallel utility calls ([`utility`]),
//! and programs that start themselves ([`poe`]).

#![forbid(unsafe_code)]

pub mod collective;
pub mod error;
pub mod group;
pub mod message;
pub mod poe;
pub mod service;
pub mod utility;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use margay_core_group::Group;
use margay_run_engine::monitor::InCall;
use margay_run_engine::{Callbacks, Rank};
use margay_run_mpi::{Mpi, library};
use margay_sys_os::lock::RankLock;

use error::*;
use group::Members;
use message::Table;
use service::Routine;

/// Any task, any type, any message.
pub const DONTCARE: i32 = -1;
/// All messages.
pub const ALLMSG: i32 = -2;
/// No task.
pub const NULLTASK: i32 = -3;
/// The group of all tasks.
pub const ALLGRP: i32 = 0;

/// The context of messages between tasks.
const CONTEXT: u32 = library::context(library::MPL + 1);

/// One task's MPL.
pub struct Mpl {
    mpi: &'static Mpi,
    rank: Arc<Rank>,
    /// A message that is too long for its buffer is an error.
    strict: AtomicBool,
    requests: RankLock<Table>,
    groups: Mutex<Vec<Members>>,
    /// Receives whose routine is called, by their ids.
    routines: Callbacks<(i32, Routine)>,
    /// Lights of this task's row of markers.
    lights: u32,
    /// Held by the thread that marks.
    marking: Mutex<()>,
}

impl Mpl {
    /// Returns MPL on the rank that it shares with MPI; a row of markers has `lights` lights.
    ///
    /// # Errors
    /// When the job cannot be a group.
    pub fn new(mpi: &'static Mpi, lights: u32) -> Result<Mpl> {
        let rank = mpi.shared_rank();
        let everybody = Arc::new(Group::range(0, rank.application().end));
        let world = mpi.library_comm(library::MPL, &everybody, "all tasks")?;
        Ok(Mpl {
            mpi,
            rank,
            strict: AtomicBool::new(false),
            requests: RankLock::new(Table::default()),
            groups: Mutex::new(vec![Members {
                comm: world,
                label: 0,
            }]),
            routines: Callbacks::default(),
            lights,
            marking: Mutex::default(),
        })
    }

    /// Returns the rank under it.
    #[must_use]
    pub fn mpi(&self) -> &'static Mpi {
        self.mpi
    }

    /// Notes and records the call that begins; `from` is the address to which it returns.
    #[inline]
    pub fn begin_call(&self, name: &'static [u64; 4], from: u64) -> InCall<'_> {
        self.rank.begin_call(name, from)
    }

    /// Returns how many tasks there are.
    #[must_use]
    pub fn tasks(&self) -> i32 {
        self.rank.application().len() as i32
    }

    /// Returns the number of this one.
    #[must_use]
    pub fn task(&self) -> i32 {
        self.rank.world_rank() as i32
    }

    /// `mpc_task_query`: what a kind of question is answered with.
    ///
    /// # Errors
    /// When there is no such question, or it has more answers than asked for.
    pub fn query(&self, kind: i32, most: i32) -> Result<Vec<i32>> {
        let mut answers = match kind {
            1 => vec![i32::from(self.strict.load(Ordering::Relaxed))],
            2 => vec![0, i32::MAX],
            3 => vec![DONTCARE, ALLMSG, NULLTASK, ALLGRP],
            _ => deny!(
                MPL_ARGUMENT,
                "{kind} is no question; 1 asks for the setting of overflow, 2 for the types, 3 for the wildcards"
            ),
        };
        if most < 1 || most as usize > answers.len() {
            deny!(
                MPL_ARGUMENT,
                "{most} answers are asked for; question {kind} has {}",
                answers.len()
            );
        }
        answers.truncate(most as usize);
        Ok(answers)
    }

    /// `mpc_task_set`: setting 1 is whether a message that is too long for its buffer is an error.
    ///
    /// # Errors
    /// When there is no such setting or value.
    pub fn set(&self, kind: i32, value: i32) -> Result<()> {
        match (kind, value) {
            (1, 0 | 1) => self.strict.store(value == 1, Ordering::Relaxed),
            (1, _) => deny!(
                MPL_ARGUMENT,
                "the setting is {value}; 1 makes overflow an error, 0 does not"
            ),
            _ => deny!(MPL_ARGUMENT, "{kind} is no setting; 1 is that of overflow"),
        }
        Ok(())
    }
}
