//! The tools interface: what can be asked and set from outside, before MPI is initialized, while it
//! runs and after it was finalized, from any thread.
//!
//! [`table`] defines what there is; [`Tools`] is the state of the interface in one process. Nothing
//! here raises an error on a communicator: functions give codes (`MPI_T_ERR_*`).

mod control;
pub mod environment;
mod event;
mod performance;
pub mod table;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use margay_run_engine::monitor::Monitor;
use margay_run_engine::{Clock, Policy};
use margay_sys_shm::environment::ENV_SIZE;

use crate::constants::error_class::*;

pub use control::{Value, parse};
pub use event::{Callback, Dropped, Freed, Instance};
pub use performance::Object;

use event::Registration;
use performance::Session;

/// The result of a function of the tools interface: the error is its code.
pub type Result<T> = std::result::Result<T, i32>;

/// The tools interface of a process.
pub struct Tools {
    monitor: Arc<Monitor>,
    /// Ranks of the job, as far as the environment says.
    ranks: u32,
    progress_thread: AtomicBool,
    /// Whether a rank runs in this process, so that some variables can no longer be set.
    running: AtomicBool,
    /// Held by the thread that calls callbacks, so that they run one after the other.
    telling: Mutex<()>,
    state: Mutex<State>,
    /// What the environment asked for and could not have, for the start to report.
    complaints: Vec<String>,
}

#[derive(Default)]
struct State {
    /// How often it was initialized more than finalized.
    users: u32,
    /// Handles are never used again, so an old one is found out.
    last_handle: u64,
    controls: BTreeMap<u64, usize>,
    sessions: BTreeMap<u64, Session>,
    registrations: BTreeMap<u64, Registration>,
    instances: BTreeMap<u64, Instance>,
    /// Registrations that were freed while callbacks ran.
    freed: Vec<(u64, Freed)>,
}

impl State {
    fn new_handle(&mut self) -> u64 {
        // Above the constants of the standard, and like an address.
        self.last_handle += 16;
        self.last_handle + 0x1000
    }
}

impl Tools {
    /// Returns the interface of this process, with that clock; reads the environment.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Tools> {
        Tools::with_environment(clock, |name| std::env::var(name).ok())
    }

    /// As [`new`](Self::new) with another environment.
    #[must_use]
    pub fn with_environment(
        clock: Arc<dyn Clock>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Arc<Tools> {
        let monitor = Monitor::new(clock);
        let ranks = environment(ENV_SIZE).and_then(|n| n.parse().ok());
        let mut tools = Tools {
            monitor,
            ranks: ranks.unwrap_or(1),
            progress_thread: AtomicBool::new(false),
            running: AtomicBool::new(false),
            telling: Mutex::new(()),
            state: Mutex::default(),
            complaints: Vec::new(),
        };
        tools.complaints = tools.read_environment(environment);
        let tools = Arc::new(tools);
        let listener = Arc::downgrade(&tools);
        tools.monitor.events.listen(Box::new(move || {
            if let Some(tools) = listener.upgrade() {
                tools.tell();
            }
        }));
        tools
    }

    /// Returns what is seen and set of the rank.
    #[must_use]
    pub fn monitor(&self) -> &Arc<Monitor> {
        &self.monitor
    }

    /// Whether the rank is to have a progress thread.
    #[must_use]
    pub fn wants_progress_thread(&self) -> bool {
        self.progress_thread.load(Ordering::Relaxed)
    }

    /// Sentences about environment variables that were not heeded.
    #[must_use]
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// A rank begins or ends to run in this process.
    pub fn set_running(&self, running: bool) {
        self.running.store(running, Ordering::Relaxed);
        self.monitor.set_running(running);
    }

    /// `MPI_T_init_thread`. Before the start of MPI the variables of waiting get the values that
    /// it is expected to give them.
    pub fn init(&self) {
        if !self.running.load(Ordering::Relaxed) {
            let cores = margay_sys_os::cpu::usable_cores() as u32;
            (self.monitor.tuning).suggest_policy(Policy::new(self.ranks, cores));
        }
        self.state().users += 1;
    }

    /// `MPI_T_finalize`: the last one frees all handles.
    ///
    /// # Errors
    /// When it was not initialized.
    pub fn finalize(&self) -> Result<()> {
        let mut state = self.initialized()?;
        state.users -= 1;
        if state.users == 0 {
            state.controls.clear();
            state.registrations.clear();
            let sessions = std::mem::take(&mut state.sessions);
            self.update_wanted(&state);
            drop(state);
            for session in sessions.into_values() {
                session.end(&self.monitor);
            }
        }
        Ok(())
    }

    /// Whether it is initialized.
    ///
    /// # Errors
    /// When it is not.
    pub fn check(&self) -> Result<()> {
        self.initialized().map(|_| ())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    fn initialized(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.users == 0 {
            return Err(MPI_T_ERR_NOT_INITIALIZED);
        }
        Ok(state)
    }
}

/// Returns the entry of a table at an index that a program passed.
///
/// # Errors
/// When there is none.
pub fn entry<T>(table: &[T], index: i32) -> Result<&T> {
    usize::try_from(index)
        .ok()
        .and_then(|i| table.get(i))
        .ok_or(MPI_T_ERR_INVALID_INDEX)
}

/// The index of the first entry that pleases.
///
/// # Errors
/// When there is none.
pub fn index_of<T>(table: &[T], pleases: impl Fn(&T) -> bool) -> Result<i32> {
    let found = table.iter().position(pleases);
    found.map(|i| i as i32).ok_or(MPI_T_ERR_INVALID_NAME)
}
