//! Events: registrations, callbacks, and delivery.
//!
//! Events are delivered at the end of the call in which they were noticed, without any lock, by one
//! thread at a time; so a callback may call any function, and that is what it is promised
//! ([`MPI_T_CB_REQUIRE_NONE`](NONE)).

use std::sync::Arc;

use margay_run_engine::monitor::{Event, EventKind};

use super::table::{EVENTS, Element, EventType};
use super::{Result, State, Tools, entry};
use crate::constants::error_class::*;

/// No restrictions on a callback (`MPI_T_CB_REQUIRE_NONE`).
pub const NONE: i32 = 0;
/// The levels of safety, lowest first.
pub const LEVELS: [i32; 4] = [NONE, 0x03, 0x0f, 0x3f];

/// Called with an instance, its registration and the level of safety.
pub type Callback = Arc<dyn Fn(u64, u64, i32) + Send + Sync>;
/// Called with a count, a registration, a source, the level of safety, and what came with the
/// callback.
pub type Dropped = Arc<dyn Fn(i64, u64, i32, i32, usize) + Send + Sync>;
/// Called with a registration that is gone and the level of safety.
pub type Freed = Box<dyn FnOnce(u64, i32) + Send>;

/// Somebody wants to know of a type of event.
pub(super) struct Registration {
    event: &'static EventType,
    /// With what the program gave for the handler of dropped events.
    callbacks: [Option<(Callback, usize)>; 4],
    dropped: Option<Dropped>,
    since_ns: u64,
}

/// An event as a callback sees it.
#[derive(Clone, Copy)]
pub struct Instance {
    event: &'static EventType,
    what: Event,
}

impl Instance {
    /// When it happened, in ticks of its source.
    #[must_use]
    pub fn time(&self) -> i64 {
        self.what.time_ns as i64
    }

    /// Returns an element's bytes.
    ///
    /// # Errors
    /// When there is no such element.
    pub fn element(&self, index: i32) -> Result<Vec<u8>> {
        let &(_, element) = entry(self.event.elements, index)?;
        let word = self.what.words[index as usize];
        Ok(match element {
            Element::Int => (word as u32).to_ne_bytes().to_vec(),
            Element::Number => word.to_ne_bytes().to_vec(),
        })
    }

    /// Returns all elements at their displacements.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (index, displacement) in self.event.displacements().into_iter().enumerate() {
            bytes.resize(displacement, 0);
            bytes.extend(self.element(index as i32).expect("it has this element"));
        }
        bytes
    }
}

impl EventType {
    /// Returns where the elements are in a copy of all, in bytes: as in a C structure.
    #[must_use]
    pub fn displacements(&self) -> Vec<usize> {
        let mut end = 0usize;
        let places = self.elements.iter().map(|(_, element)| {
            let at = end.next_multiple_of(element.size());
            end = at + element.size();
            at
        });
        places.collect()
    }
}

impl State {
    fn registration(&mut self, handle: u64) -> Result<&mut Registration> {
        self.registrations
            .get_mut(&handle)
            .ok_or(MPI_T_ERR_INVALID_HANDLE)
    }
}

/// Returns the place of a level of safety.
fn level(safety: i32) -> Result<usize> {
    let found = LEVELS.iter().position(|&l| l == safety);
    found.ok_or(MPI_T_ERR_INVALID)
}

impl Tools {
    /// `MPI_T_event_handle_alloc`
    ///
    /// # Errors
    /// When there is no such type of event.
    pub fn event_open(&self, index: i32) -> Result<u64> {
        let mut state = self.initialized()?;
        let event = entry(EVENTS, index)?;
        let handle = state.new_handle();
        let registration = Registration {
            event,
            callbacks: Default::default(),
            dropped: None,
            since_ns: self.monitor.clock().now_ns(),
        };
        state.registrations.insert(handle, registration);
        Ok(handle)
    }

    /// `MPI_T_event_register_callback`; no callback takes the one of this level away.
    ///
    /// # Errors
    /// When an argument is invalid.
    pub fn event_listen(
        &self,
        handle: u64,
        safety: i32,
        callback: Option<(Callback, usize)>,
    ) -> Result<()> {
        let mut state = self.initialized()?;
        let place = level(safety)?;
        state.registration(handle)?.callbacks[place] = callback;
        self.update_wanted(&state);
        Ok(())
    }

    /// Whether the handle and the level are valid, for hints of which there are none.
    ///
    /// # Errors
    /// When one is not.
    pub fn event_check(&self, handle: u64, safety: Option<i32>) -> Result<()> {
        let mut state = self.initialized()?;
        state.registration(handle)?;
        safety.map_or(Ok(()), |safety| level(safety).map(|_| ()))
    }

    /// `MPI_T_event_set_dropped_handler`
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn event_set_dropped(&self, handle: u64, dropped: Option<Dropped>) -> Result<()> {
        self.initialized()?.registration(handle)?.dropped = dropped;
        Ok(())
    }

    /// `MPI_T_event_handle_free`: `freed` is called when no callback of the registration runs any
    /// more.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn event_close(&self, handle: u64, freed: Option<Freed>) -> Result<()> {
        let mut state = self.initialized()?;
        let removed = state.registrations.remove(&handle);
        removed.ok_or(MPI_T_ERR_INVALID_HANDLE)?;
        self.update_wanted(&state);
        if let Some(freed) = freed {
            state.freed.push((handle, freed));
        }
        drop(state);
        // A thread that delivers events now does it at the end.
        if let Ok(turn) = self.telling.try_lock() {
            let freed = std::mem::take(&mut self.state().freed);
            drop(turn);
            freed
                .into_iter()
                .for_each(|(handle, call)| call(handle, NONE));
        }
        Ok(())
    }

    /// Returns what a callback was called with.
    ///
    /// # Errors
    /// When no callback runs for it any more.
    pub fn event_instance(&self, instance: u64) -> Result<Instance> {
        let found = self.initialized()?.instances.get(&instance).copied();
        found.ok_or(MPI_T_ERR_INVALID_HANDLE)
    }

    pub(super) fn update_wanted(&self, state: &State) {
        let kinds = state.registrations.values().filter(|r| r.is_heard());
        let wanted = kinds.fold(0, |all, r| all | 1 << r.event.kind as u32);
        self.monitor.events.want(wanted);
    }

    /// Tells what has happened, unless somebody is doing that: another thread, or this one in a
    /// callback.
    pub(super) fn tell(&self) {
        let Ok(turn) = self.telling.try_lock() else {
            return;
        };
        while let Some(what) = self.monitor.events.take() {
            self.tell_one(what);
        }
        for event in EVENTS {
            self.tell_dropped(event.kind);
        }
        let freed = std::mem::take(&mut self.state().freed);
        drop(turn);
        freed
            .into_iter()
            .for_each(|(handle, call)| call(handle, NONE));
    }

    fn tell_one(&self, what: Event) {
        let mut state = self.state();
        let listeners: Vec<_> = state
            .registrations
            .iter()
            .filter(|(_, r)| r.event.kind == what.kind && r.since_ns <= what.time_ns)
            .filter_map(|(&handle, r)| {
                let (callback, _) = r.callbacks.iter().flatten().next()?;
                Some((handle, r.event, callback.clone()))
            })
            .collect();
        for (handle, event, callback) in listeners {
            if !state.registrations.contains_key(&handle) {
                // Freed by the callback before.
                continue;
            }
            let instance = state.new_handle();
            state.instances.insert(instance, Instance { event, what });
            drop(state);
            callback(instance, handle, NONE);
            state = self.state();
            state.instances.remove(&instance);
        }
    }

    fn tell_dropped(&self, kind: EventKind) {
        let count = self.monitor.events.take_dropped(kind);
        if count == 0 {
            return;
        }
        let state = self.state();
        let handlers: Vec<_> = state
            .registrations
            .iter()
            .filter(|(_, r)| r.event.kind == kind)
            .filter_map(|(&handle, r)| {
                let (_, data) = r.callbacks.iter().flatten().next()?;
                Some((handle, r.dropped.clone()?, *data))
            })
            .collect();
        drop(state);
        for (handle, dropped, data) in handlers {
            dropped(count as i64, handle, 0, NONE, data);
        }
    }
}

impl Registration {
    fn is_heard(&self) -> bool {
        self.callbacks.iter().any(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_lie_as_in_a_structure() {
        let event = &EVENTS[0];
        assert_eq!(event.displacements(), [0, 4, 8, 16]);
        let what = Event {
            kind: event.kind,
            time_ns: 5,
            words: [1, 2, 3, 1 << 40],
        };
        let instance = Instance { event, what };
        assert_eq!(instance.bytes().len(), 24);
        assert_eq!(instance.element(1), Ok(2i32.to_ne_bytes().to_vec()));
        assert_eq!(instance.element(4), Err(MPI_T_ERR_INVALID_INDEX));
        assert_eq!(instance.time(), 5);
    }
}
