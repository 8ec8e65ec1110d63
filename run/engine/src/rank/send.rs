//! The calls that send.

use margay_core_matching::Envelope;
use margay_sys_os::user::Piece;

use super::Rank;
use crate::call::{Failed, Mode, Pending, ReqId};
use crate::data::Data;
use crate::engine::Engine;

/// What has become of the messages of sends that have waited for a while.
pub(super) enum Keeping {
    /// They are kept, and their sends are complete.
    Kept,
    /// The connection that they wait for may be there before these nanoseconds are over.
    Later(u64),
    /// There is none, or it cannot be kept.
    Nothing,
}

impl Rank {
    /// Sends a short message if nothing stands in the way. Returns whether it went.
    #[inline(always)]
    pub fn send_at_once(&self, piece: Piece, to: u32, envelope: Envelope) -> bool {
        self.call(|engine| engine.send_at_once(piece, to, envelope))
    }

    /// As [`send_at_once`](Self::send_at_once), of data that need not be one piece: then it does
    /// not go.
    #[inline]
    pub fn send_soon(&self, data: &Data, to: u32, envelope: Envelope) -> bool {
        let piece = data.piece();
        piece.is_some_and(|piece| self.send_at_once(piece, to, envelope))
    }

    /// As [`send_at_once`](Self::send_at_once), and returns the message's
    /// [`Sent::number`](crate::Sent::number).
    #[inline(always)]
    pub fn isend_at_once(&self, piece: Piece, to: u32, envelope: Envelope) -> Option<u32> {
        self.call(|engine| engine.isend_at_once(piece, to, envelope))
    }

    /// Sends and waits until the buffer may be used again. Returns why it could not be sent, if so.
    #[inline]
    pub fn send(&self, mode: Mode, data: &Data, to: u32, envelope: Envelope) -> Option<Failed> {
        let id = self.call(|engine| {
            let sent = mode != Mode::Synchronous
                && data
                    .piece()
                    .is_some_and(|piece| engine.send_at_once(piece, to, envelope));
            (!sent).then(|| begin(engine, mode, data.clone(), to, envelope))
        });
        id.and_then(|id| self.wait(id).failed)
    }

    /// Sends are complete, to the rank that `find` returns among others. What the network has not
    /// taken yet would stay here until the next call of MPI, while the receiver waits for it: so it
    /// is awaited for a moment.
    #[inline]
    pub(super) fn let_go(&self, find: impl FnOnce(&Engine) -> Option<u32>) {
        let engine = self.engine.lock();
        let to = match engine.has_queued() {
            true => find(&engine),
            false => None,
        };
        drop(engine);
        if let Some(to) = to {
            self.push_out(to);
        }
    }

    #[cold]
    fn push_out(&self, to: u32) {
        let since = self.clock.now_ns();
        loop {
            let waited_ns = self.clock.now_ns().saturating_sub(since);
            let left = self.engine.lock().pushes_within(to, waited_ns);
            let Some(left_ns) = left else { return };
            self.sleep_until_woken(left_ns, &mut || {
                let mut engine = self.engine.lock();
                self.advance(&mut engine) || !engine.is_queued(to)
            });
        }
    }

    /// Begins a send.
    #[inline]
    pub fn isend(&self, mode: Mode, data: Data, to: u32, envelope: Envelope) -> ReqId {
        self.call(|engine| begin(engine, mode, data, to, envelope))
    }

    /// A wait has lasted for a while: if it is for a send whose message may be kept, it is kept
    /// now, and so are all others to the same receiver.
    #[cold]
    pub(super) fn keep_awaited(
        &self,
        pending: &impl Fn(&Engine) -> Option<Pending>,
        waited_ns: u64,
    ) -> Keeping {
        let mut engine = self.engine.lock();
        let (Some(Pending::Send(to, ..)) | Some(Pending::OneOf(Some(to)))) = pending(&engine)
        else {
            return Keeping::Nothing;
        };
        if let Some(left_ns) = engine.meets_within(to, waited_ns) {
            return Keeping::Later(left_ns);
        }
        let kept = engine.keep_sends(to);
        drop(engine);
        if !kept {
            return Keeping::Nothing;
        }
        if self.engine.is_shared() {
            self.wake_up.wake_own();
        }
        Keeping::Kept
    }
}

/// Begins a send of the program, whose message is kept where others are kept before it.
#[inline]
fn begin(engine: &mut Engine, mode: Mode, data: Data, to: u32, envelope: Envelope) -> ReqId {
    let id = engine.isend(mode, data, to, envelope);
    engine.keep_behind(id);
    id
}
