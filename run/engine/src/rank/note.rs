//! What displays and the search for deadlocks learn of a wait.

use std::sync::atomic::Ordering;

use margay_core_registry::{WaitKind, Waiting};
use margay_net_platform::Noted;
use margay_sys_os::process::thread_id;

use super::Rank;
use crate::call::Pending;
use crate::engine::Engine;

impl Rank {
    #[cold]
    pub(super) fn note_wait(
        &self,
        pending: &impl Fn(&Engine) -> Option<Pending>,
        since_ns: u64,
    ) -> Box<dyn Noted + '_> {
        let waits_for = pending(&self.engine.lock());
        let (kind, peer, tag, context) = match waits_for {
            Some(Pending::Receive(from, tag, context)) => (WaitKind::Receive, from, tag, context),
            Some(Pending::Send(to, tag, context)) => (WaitKind::Send, Some(to), Some(tag), context),
            Some(Pending::FullSend(to, tag, context)) => {
                (WaitKind::FullSend, Some(to), Some(tag), context)
            }
            Some(Pending::Collective(peer, context)) => (WaitKind::Collective, peer, None, context),
            Some(Pending::Elsewhere) => (WaitKind::Elsewhere, None, None, 0),
            None => (WaitKind::Several, None, None, 0),
        };
        // What may come from another job is not the launcher's to judge.
        let elsewhere = match peer {
            Some(process) => process >= self.size,
            None => self.met_others.load(Ordering::Relaxed),
        };
        let (kind, peer) = if elsewhere {
            (WaitKind::Elsewhere, None)
        } else {
            (kind, peer)
        };
        let since_ns = if since_ns == 0 {
            self.clock.now_ns()
        } else {
            since_ns
        };
        let waiting = Waiting {
            thread: thread_id(),
            kind,
            peer,
            tag: tag.map(|t| t as i32),
            context,
            since_ns,
        };
        self.peers.begin_wait(self.me, &waiting)
    }
}
