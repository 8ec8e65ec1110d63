//! Waiting for requests.

use margay_core_registry::detail::Awaited;

use super::Rank;
use crate::call::{Outcome, ReqId};
use crate::engine::Engine;

impl Rank {
    /// Waits for a request; it is gone then.
    #[inline]
    pub fn wait(&self, id: ReqId) -> Outcome {
        self.wait_for(id, &|| None)
    }

    /// As [`wait`](Self::wait), for the request of which `awaited` tells more.
    #[inline]
    pub fn wait_for(&self, id: ReqId, awaited: &dyn Fn() -> Option<Awaited>) -> Outcome {
        let mut engine = self.engine.lock();
        let to = match engine.has_queued() {
            true => engine.receiver_of(id),
            false => None,
        };
        let over = engine.take(id);
        drop(engine);
        match over {
            Some(outcome) if to.is_some() => {
                self.let_go(|_| to);
                outcome
            }
            Some(outcome) => outcome,
            None => self.wait_long(id, awaited),
        }
    }

    fn wait_long(&self, id: ReqId, awaited: &dyn Fn() -> Option<Awaited>) -> Outcome {
        let pending = |engine: &Engine| engine.pending(id);
        let to = self.engine.lock().receiver_of(id);
        let outcome = self.block_for(|engine| engine.take(id), pending, awaited);
        if to.is_some() {
            self.let_go(|_| to);
        }
        outcome
    }

    /// Waits until one of the requests has ended; its index. The request stays.
    ///
    /// # Panics
    /// When `ids` is empty.
    pub fn wait_any(&self, ids: &[ReqId]) -> usize {
        assert!(!ids.is_empty(), "waiting for one of no requests");
        self.block(
            |engine| ids.iter().position(|&id| engine.is_done(id)),
            |engine| engine.pending_one_of(ids),
        )
    }

    /// Waits until all of the requests have ended. They stay.
    pub fn wait_all(&self, ids: &[ReqId]) {
        let mut ended = 0;
        self.block(
            |engine| {
                while ended < ids.len() && engine.is_done(ids[ended]) {
                    ended += 1;
                }
                (ended == ids.len()).then_some(())
            },
            |engine| ids.iter().find_map(|&id| engine.pending(id)),
        );
        self.let_go(|engine| {
            let mut receivers = ids.iter().filter_map(|&id| engine.receiver_of(id));
            receivers.find(|&to| engine.is_queued(to))
        });
    }
}
