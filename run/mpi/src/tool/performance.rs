//! Performance variables: sessions and their handles.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_run_engine::monitor::{Mark, Monitor};

use super::control::Value;
use super::table::{Measure, PERFORMANCE, Performance};
use super::{Result, State, Tools, entry};
use crate::comm::Comm;
use crate::constants::error_class::*;

/// What a handle is bound to.
pub type Object = Option<Arc<Comm>>;

/// Handles that belong together.
#[derive(Default)]
pub(super) struct Session {
    handles: BTreeMap<u64, Handle>,
}

struct Handle {
    variable: &'static Performance,
    comm: Object,
    /// What it counted while it was started before.
    total: u64,
    /// Started: what the sum was then.
    since: Option<u64>,
    /// Started, of a peak.
    mark: Option<Arc<Mark>>,
}

impl Session {
    pub(super) fn end(self, monitor: &Monitor) {
        for mut handle in self.handles.into_values() {
            handle.stop(monitor);
        }
    }
}

impl Handle {
    /// Returns what its sum is for the whole process or communicator.
    fn sum(&self, monitor: &Monitor) -> u64 {
        match (self.variable.measure, &self.comm) {
            (Measure::Sum(sum), _) => sum(monitor),
            (Measure::CommSum(part), Some(comm)) => part(&comm.traffic).load(Ordering::Relaxed),
            _ => 0,
        }
    }

    fn start(&mut self, monitor: &Monitor) {
        match self.variable.measure {
            Measure::Peak(level) if self.mark.is_none() => {
                self.mark = Some(monitor.counters.mark(level));
            }
            Measure::Sum(_) | Measure::CommSum(_) if self.since.is_none() => {
                self.since = Some(self.sum(monitor));
            }
            _ => {}
        }
    }

    fn stop(&mut self, monitor: &Monitor) {
        if let Some(mark) = self.mark.take() {
            monitor.counters.unmark(&mark);
            self.total = self.total.max(mark.highest());
        }
        if self.since.is_some() {
            self.total = self.count(monitor);
            self.since = None;
        }
    }

    /// Returns the sum over the times in which it was started.
    fn count(&self, monitor: &Monitor) -> u64 {
        match self.since {
            Some(since) => {
                let now = self.sum(monitor);
                self.total.wrapping_add(now.wrapping_sub(since))
            }
            None => self.total,
        }
    }

    fn value(&self, monitor: &Monitor) -> Value {
        match self.variable.measure {
            Measure::Sum(_) | Measure::CommSum(_) => Value::Number(self.count(monitor)),
            Measure::Peak(_) => {
                let now = self.mark.as_ref().map_or(0, |mark| mark.highest());
                Value::Number(self.total.max(now))
            }
            Measure::Now(now) => Value::Number(now(monitor)),
            Measure::Share(share) => Value::Real(share(monitor)),
            Measure::State(state) => Value::Int(state(monitor)),
        }
    }

    fn set(&mut self, monitor: &Monitor, value: u64) {
        self.total = value;
        if self.since.is_some() {
            self.since = Some(self.sum(monitor));
        }
        if let (Some(mark), Measure::Peak(level)) = (&self.mark, self.variable.measure) {
            // From a reset on, the highest is at least what the level is now.
            mark.set(monitor.counters.level(level));
        }
    }
}

impl State {
    fn session(&mut self, session: u64) -> Result<&mut Session> {
        self.sessions
            .get_mut(&session)
            .ok_or(MPI_T_ERR_INVALID_SESSION)
    }

    fn handle(&mut self, session: u64, handle: u64) -> Result<&mut Handle> {
        let handles = &mut self.session(session)?.handles;
        handles.get_mut(&handle).ok_or(MPI_T_ERR_INVALID_HANDLE)
    }
}

impl Tools {
    /// `MPI_T_pvar_session_create`
    ///
    /// # Errors
    /// When the interface is not initialized.
    pub fn session_open(&self) -> Result<u64> {
        let mut state = self.initialized()?;
        let session = state.new_handle();
        state.sessions.insert(session, Session::default());
        Ok(session)
    }

    /// `MPI_T_pvar_session_free`
    ///
    /// # Errors
    /// When the session is invalid.
    pub fn session_close(&self, session: u64) -> Result<()> {
        let removed = self.initialized()?.sessions.remove(&session);
        removed.ok_or(MPI_T_ERR_INVALID_SESSION)?.end(&self.monitor);
        Ok(())
    }

    /// `MPI_T_pvar_handle_alloc`. `object` is asked for if the variable is of a communicator.
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn performance_open(
        &self,
        session: u64,
        index: i32,
        object: impl FnOnce() -> Result<Object>,
    ) -> Result<u64> {
        let mut state = self.initialized()?;
        state.session(session)?;
        let variable = entry(PERFORMANCE, index)?;
        let comm = if variable.is_of_comm() {
            object()?
        } else {
            None
        };
        let new = state.new_handle();
        let handle = Handle {
            variable,
            comm,
            total: 0,
            since: None,
            mark: None,
        };
        state.session(session)?.handles.insert(new, handle);
        Ok(new)
    }

    /// `MPI_T_pvar_handle_free`
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn performance_close(&self, session: u64, handle: u64) -> Result<()> {
        let mut state = self.initialized()?;
        let removed = state.session(session)?.handles.remove(&handle);
        removed.ok_or(MPI_T_ERR_INVALID_HANDLE)?.stop(&self.monitor);
        Ok(())
    }

    /// `MPI_T_pvar_start`; no handle: all of the session that can be started.
    ///
    /// # Errors
    /// When an argument is invalid or the variable always runs.
    pub fn performance_start(&self, session: u64, handle: Option<u64>) -> Result<()> {
        self.each(session, handle, MPI_T_ERR_PVAR_NO_STARTSTOP, Handle::start)
    }

    /// `MPI_T_pvar_stop`; no handle: all of the session that can be stopped.
    ///
    /// # Errors
    /// As [`performance_start`](Self::performance_start).
    pub fn performance_stop(&self, session: u64, handle: Option<u64>) -> Result<()> {
        self.each(session, handle, MPI_T_ERR_PVAR_NO_STARTSTOP, Handle::stop)
    }

    /// `MPI_T_pvar_reset`; no handle: all of the session that can be reset.
    ///
    /// # Errors
    /// When an argument is invalid or the variable cannot be reset.
    pub fn performance_reset(&self, session: u64, handle: Option<u64>) -> Result<()> {
        self.each(session, handle, MPI_T_ERR_PVAR_NO_WRITE, |h, m| h.set(m, 0))
    }

    fn each(
        &self,
        session: u64,
        handle: Option<u64>,
        refusal: i32,
        mut change: impl FnMut(&mut Handle, &Monitor),
    ) -> Result<()> {
        let mut state = self.initialized()?;
        match handle {
            Some(handle) => {
                let handle = state.handle(session, handle)?;
                if handle.variable.is_continuous() {
                    return Err(refusal);
                }
                change(handle, &self.monitor);
            }
            None => {
                let handles = state.session(session)?.handles.values_mut();
                handles
                    .filter(|h| !h.variable.is_continuous())
                    .for_each(|h| change(h, &self.monitor));
            }
        }
        Ok(())
    }

    /// `MPI_T_pvar_read`
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn performance_read(&self, session: u64, handle: u64) -> Result<Value> {
        let mut state = self.initialized()?;
        Ok(state.handle(session, handle)?.value(&self.monitor))
    }

    /// `MPI_T_pvar_write`: enters a value of the variable's type.
    ///
    /// # Errors
    /// When an argument is invalid or the variable cannot be written.
    pub fn performance_write(
        &self,
        session: u64,
        handle: u64,
        value: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        let mut state = self.initialized()?;
        let handle = state.handle(session, handle)?;
        if handle.variable.is_continuous() {
            return Err(MPI_T_ERR_PVAR_NO_WRITE);
        }
        handle.set(&self.monitor, value()?);
        Ok(())
    }

    /// `MPI_T_pvar_readreset`
    ///
    /// # Errors
    /// When an argument is invalid or the variable cannot be reset.
    pub fn performance_take(&self, session: u64, handle: u64) -> Result<Value> {
        let mut state = self.initialized()?;
        let handle = state.handle(session, handle)?;
        if handle.variable.is_continuous() {
            return Err(MPI_T_ERR_PVAR_NO_ATOMIC);
        }
        // What is counted between the two is counted again after the reset, never lost.
        let value = handle.value(&self.monitor);
        match handle.since {
            Some(since) => {
                if let Value::Number(number) = value {
                    let counted = number.wrapping_sub(handle.total);
                    handle.since = Some(since.wrapping_add(counted));
                }
                handle.total = 0;
            }
            None => handle.set(&self.monitor, 0),
        }
        Ok(value)
    }
}
