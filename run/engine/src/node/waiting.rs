//! Waiting for others on a board, and waking them.

use margay_sys_shm::board::Operation;

use super::exchange::{Awaited, has_put_below};
use super::{Cause, Channel, Disagreement, SHORT_BYTES, TAG_BYTES, Tag};
use crate::call::Pending;
use crate::engine::Engine;
use crate::rank::Rank;

impl Channel {
    /// Waits until all have put this operation. Where cores are short, the last to come lets the
    /// others go.
    #[inline]
    pub(super) fn all(
        &self,
        rank: &Rank,
        op: &Operation<'_>,
        tag: Tag,
    ) -> Result<(), Disagreement> {
        if self.roomy {
            self.wake();
            self.wait_for_all(rank, op)?;
            return self.check_all(op, tag);
        }
        if op.arrive() {
            let agreed = self.check_all(op, tag);
            return self.release(op, tag, agreed, 0, |_| {});
        }
        self.wait(rank, None, || op.is_released())?;
        match tag.check(self.board.me(), op.result(TAG_BYTES)) {
            Ok(()) => Ok(()),
            // Two ranks disagree: find one that disagrees with this rank, if any.
            Err(general) => self.check_all(op, tag).and(Err(general)),
        }
    }

    /// The last rank to arrive writes a result of `len` bytes by `fill`, if all agree, and lets the
    /// others go.
    #[inline]
    pub(super) fn release(
        &self,
        op: &Operation<'_>,
        tag: Tag,
        mut agreed: Result<(), Disagreement>,
        len: usize,
        fill: impl Fn(&mut [u8]),
    ) -> Result<(), Disagreement> {
        let (short, long) = if len <= SHORT_BYTES {
            (len, 0)
        } else {
            (0, len)
        };
        if long > 0 && agreed.is_ok() && !op.stage(long, &fill) {
            // A rank has staged although its tag says that it does not.
            agreed = Err(tag.other(self.board.me(), None));
        }
        op.release(TAG_BYTES + short, |result| {
            // The result carries the tag of the ranks that agree with the last to arrive.
            result[..TAG_BYTES].copy_from_slice(&tag.0.to_ne_bytes());
            if agreed.is_err() {
                result[..TAG_BYTES].fill(0xff);
            } else if short > 0 {
                fill(&mut result[TAG_BYTES..]);
            }
        });
        self.wake();
        agreed
    }

    #[inline]
    pub(super) fn wait_for_all(&self, rank: &Rank, op: &Operation<'_>) -> Result<(), Disagreement> {
        let mut seen = 0;
        self.wait(rank, None, || {
            has_put_below(op, &mut seen, self.board.ranks())
        })
    }

    #[inline]
    pub(super) fn wake(&self) {
        let me = self.board.me() as usize;
        self.board.wake(
            self.members
                .processes()
                .enumerate()
                .filter(|&(at, _)| at != me)
                .map(|(_, world)| world),
        );
    }

    /// Wakes those that wait for what this rank has put in an operation in which not all wait for
    /// all. `awaited`: whom this rank waits for itself.
    pub(super) fn tell_of(&self, op: &Operation<'_>, awaited: Awaited, root: Option<u32>) {
        let me = self.board.me();
        let is_last = !self.roomy && op.arrive();
        match (awaited, root) {
            _ if self.roomy => self.wake(),
            // The root waits for all. The others sleep only where they take another one for it.
            (Awaited::Nobody, Some(root)) if root != me => {
                if is_last {
                    self.wake();
                }
            }
            // The others wait for this rank.
            (Awaited::Nobody | Awaited::Below(_) | Awaited::All, _) => self.wake(),
            // Nobody does.
            (Awaited::One(_) | Awaited::AllAlone, _) => {}
        }
        if is_last {
            self.board.make_room(|member| self.members.process(member));
        }
    }

    #[inline]
    pub(super) fn wait(
        &self,
        rank: &Rank,
        on: Option<u32>,
        mut ready: impl FnMut() -> bool,
    ) -> Result<(), Disagreement> {
        let world = on.and_then(|member| self.members.process(member));
        let pending = |_: &Engine| Some(Pending::Collective(world, self.context));
        if rank.spin_until(&mut ready) {
            return Ok(());
        }
        let come = |engine: &mut Engine| match ready() {
            true => Some(Ok(())),
            false => engine.broken(self.context, &self.members).map(Err),
        };
        rank.block(come, pending).map_err(|failed| Disagreement {
            rank: on.unwrap_or(self.board.me()),
            bytes: None,
            expected: 0,
            cause: Some(Cause::Failed(failed)),
        })
    }
}

/// Has this rank woken when all have come as far as it needs, which `may` says, and looks again.
#[cold]
pub(super) fn looks_again(op: &Operation<'_>, may: impl FnOnce() -> bool) -> bool {
    op.wait_for_room();
    may()
}
