//! Message ids: what `isend` and `irecv` give, and what is asked of them.

use margay_sys_os::user::Mem;

use crate::error::*;
use crate::point::{Outgoing, Part, Wanted};
use crate::{Info, Nx, refuse};

/// Bits of an id, less 1, for its place in the table; those above count how often the place was
/// used before. Together they fit a Fortran integer.
const PLACE_BITS: u32 = 20;
const GENERATIONS: u32 = (1 << 11) - 1;

/// The largest id.
pub const MOST: i64 = (GENERATIONS as i64) << PLACE_BITS;

/// The ids in use.
#[derive(Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Entry {
    generation: u32,
    used: bool,
    /// The id that `msgdone` reported as complete last.
    reported: Option<i64>,
    /// The usual case is one part.
    first: Option<Part>,
    more: Vec<Part>,
}

impl Table {
    fn insert(&mut self, first: Option<Part>, more: Vec<Part>) -> Result<i64> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.entries.len() == 1 << PLACE_BITS => refuse!(
                EQNOMID,
                "{} messages are under way and not asked for; call msgwait or msgignore for them",
                self.entries.len()
            ),
            None => {
                self.entries.push(Entry::default());
                self.entries.len() as u32 - 1
            }
        };
        let entry = &mut self.entries[place as usize];
        entry.used = true;
        entry.first = first;
        entry.more = more;
        // Programs take 0 for no id, and change the sign of one that they have used.
        Ok(i64::from(entry.generation << PLACE_BITS | place) + 1)
    }

    fn entry(&mut self, mid: i64) -> Result<(u32, &mut Entry)> {
        let found = u32::try_from(mid.wrapping_sub(1)).ok().and_then(|mid| {
            let (place, generation) = (mid & ((1 << PLACE_BITS) - 1), mid >> PLACE_BITS);
            let entry = self.entries.get_mut(place as usize)?;
            (entry.used && entry.generation == generation).then_some((place, entry))
        });
        match found {
            Some(found) => Ok(found),
            None => refuse!(
                EQMID,
                "{mid} is not the id of a message under way; was it waited for already?"
            ),
        }
    }

    /// Notes that `msgdone` reports this as complete.
    fn report(&mut self, mid: i64) {
        let place = mid.wrapping_sub(1) as usize & ((1 << PLACE_BITS) - 1);
        if let Some(entry) = self.entries.get_mut(place) {
            entry.reported = Some(mid);
        }
    }

    /// Whether `msgdone` has reported this as complete, and it has not been taken since.
    fn take_reported(&mut self, mid: i64) -> bool {
        let place = mid.wrapping_sub(1) as usize & ((1 << PLACE_BITS) - 1);
        let entry = self
            .entries
            .get_mut(place)
            .filter(|e| e.reported == Some(mid));
        entry.is_some_and(|entry| entry.reported.take().is_some())
    }

    fn remove(&mut self, mid: i64) -> Result<(Option<Part>, Vec<Part>)> {
        let (place, entry) = self.entry(mid)?;
        entry.used = false;
        entry.generation = (entry.generation + 1) % GENERATIONS;
        let parts = (entry.first.take(), std::mem::take(&mut entry.more));
        self.free.push(place);
        Ok(parts)
    }
}

impl Nx {
    /// `isend`: an id.
    ///
    /// # Errors
    /// As [`send`](Self::send), and when there are too many ids.
    pub fn isend(&self, out: Outgoing) -> Result<i64> {
        if out.node != -1 {
            let part = self.isend_one(out)?;
            return self.mids.lock().insert(part, Vec::new());
        }
        let parts = self.isend_parts(out)?;
        self.mids.lock().insert(None, parts)
    }

    /// `irecv` and `irecvx`: an id. `place` comes back with the message's info.
    ///
    /// # Errors
    /// When there are too many ids.
    pub fn irecv(&self, mem: Mem, wanted: Wanted, place: usize) -> Result<i64> {
        let room = mem.room();
        let part = self.ireceive_part(mem, room, wanted, place);
        self.mids.lock().insert(Some(part), Vec::new())
    }

    /// `isendrecv`: an id.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    pub fn isendrecv(&self, out: Outgoing, mem: Mem, wanted: Wanted) -> Result<i64> {
        let parts = self.isend_and_receive(out, mem, wanted, 0)?;
        self.mids.lock().insert(None, parts)
    }

    /// `msgwait`: waits until all messages that the id stands for are complete. `note` gets place
    /// and info of each that was received. The id is gone. One that `msgdone` has reported as
    /// complete may be waited for once more.
    ///
    /// # Errors
    /// When there is no such id, or a message was too long or cannot be completed.
    pub fn wait(&self, mid: i64, mut note: impl FnMut(usize, Info)) -> Result<()> {
        if mid == -1 {
            return Ok(());
        }
        let removed = {
            let mut mids = self.mids.lock();
            if mids.take_reported(mid) {
                return Ok(());
            }
            mids.remove(mid)?
        };
        let (first, more) = removed;
        self.finish(first.as_slice(), &mut note)?;
        self.finish(&more, note)
    }

    /// `msgdone`: whether they are complete; if so, it is as if they had been waited for.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn is_done(&self, mid: i64, note: impl FnMut(usize, Info)) -> Result<bool> {
        if mid == -1 {
            return Ok(true);
        }
        self.rank.progress();
        let done = {
            let mut mids = self.mids.lock();
            let (_, entry) = mids.entry(mid)?;
            self.are_done(entry.first.as_slice()) && self.are_done(&entry.more)
        };
        if done {
            self.wait(mid, note)?;
            self.mids.lock().report(mid);
        } else {
            self.rank.yield_if_oversubscribed();
        }
        Ok(done)
    }

    /// `msgignore`: nobody will ask for it any more; the messages go on.
    ///
    /// # Errors
    /// When there is no such id.
    pub fn ignore(&self, mid: i64) -> Result<()> {
        let (first, more) = self.mids.lock().remove(mid)?;
        for part in first.iter().chain(&more) {
            match *part {
                Part::Send(id) | Part::Receive(id, ..) => self.rank.detach(id),
            }
        }
        Ok(())
    }

    /// `msgcancel`: takes back what can be taken back, and waits for a message that is being
    /// received. A send whose message has been matched goes on.
    ///
    /// # Errors
    /// When there is no such id.
    pub fn cancel(&self, mid: i64) -> Result<()> {
        let (first, more) = self.mids.lock().remove(mid)?;
        self.cancel_parts(first.iter().chain(&more));
        Ok(())
    }

    pub(crate) fn cancel_parts<'a>(&self, parts: impl IntoIterator<Item = &'a Part>) {
        for part in parts {
            match *part {
                Part::Send(id) => {
                    self.rank.cancel(id);
                    self.rank.detach(id);
                }
                Part::Receive(id, ..) => {
                    self.rank.cancel(id);
                    self.rank.wait(id);
                }
            }
        }
    }

    /// `msgmerge`: one id for what two stand for; -1 stands for nothing.
    ///
    /// # Errors
    /// When one of them does not exist, or both are the same.
    pub fn merge(&self, one: i64, other: i64) -> Result<i64> {
        match (one, other) {
            (-1, mid) | (mid, -1) => {
                if mid != -1 {
                    self.mids.lock().entry(mid)?;
                }
                Ok(mid)
            }
            (one, other) if one == other => {
                refuse!(
                    EQMID,
                    "both ids are {one}; an id is merged with another one"
                )
            }
            (one, other) => {
                let mut mids = self.mids.lock();
                mids.entry(one)?;
                let (first, more) = mids.remove(other)?;
                let (_, entry) = mids.entry(one)?;
                entry.more.extend(first);
                entry.more.extend(more);
                Ok(one)
            }
        }
    }
}
