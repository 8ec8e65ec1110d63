//! Messages, blocking and with ids.

use std::sync::Arc;

use margay_core_datatype::{Basic, Datatype};
use margay_run_engine::{Data, Envelope, Mode, Outcome, Pattern, ReqId};
use margay_sys_os::user::{Mem, Piece};

use crate::error::*;
use crate::{ALLMSG, CONTEXT, DONTCARE, Mpl, NULLTASK, deny};

/// Bits of an id, less 1, for its place in the table; those above count how often the place was
/// used before.
const PLACE_BITS: u32 = 20;
const GENERATIONS: u32 = (1 << 11) - 1;

/// A message that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The task that it is from.
    pub source: i32,
    /// Its type.
    pub kind: i32,
    /// Bytes that were received.
    pub bytes: u64,
}

/// Where the program wants source and type of a message at its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places {
    /// Of the source, 0 for none.
    pub source: usize,
    /// Of the type, 0 for none.
    pub kind: usize,
}

/// Equal blocks of bytes whose beginnings lie equally far apart.
#[derive(Clone, Copy, Debug)]
pub struct Strided {
    /// Bytes of a block.
    pub block: u64,
    /// Bytes from one beginning to the next.
    pub offset: u64,
    /// How many blocks.
    pub blocks: u64,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    /// Over already, with this many bytes.
    Done(Option<Received>, u64),
    Send(ReqId, u64),
    Receive(ReqId, u64),
}

/// The ids in use.
#[derive(Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

struct Entry {
    generation: u32,
    used: bool,
    part: Part,
    places: Places,
    /// It has a routine, so nobody else waits for it.
    called: bool,
    /// The id that `mpc_status` reported as complete last, and its bytes.
    reported: Option<(i32, u64)>,
}

/// Ids are above 0, which programs take for none.
fn id_of(place: u32, generation: u32) -> i32 {
    (generation << PLACE_BITS | place) as i32 + 1
}

impl Table {
    fn insert(&mut self, part: Part, places: Places, called: bool) -> Result<i32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.entries.len() == 1 << PLACE_BITS => deny!(
                MPL_MSGID,
                "{} messages are not waited for; call mpc_wait for them",
                self.entries.len()
            ),
            None => {
                self.entries.push(Entry {
                    generation: 0,
                    used: false,
                    part,
                    places,
                    called,
                    reported: None,
                });
                self.entries.len() as u32 - 1
            }
        };
        let entry = &mut self.entries[place as usize];
        let (generation, reported) = (entry.generation, entry.reported);
        *entry = Entry {
            generation,
            used: true,
            part,
            places,
            called,
            reported,
        };
        Ok(id_of(place, generation))
    }

    fn entry(&self, id: i32) -> Result<(u32, &Entry)> {
        let found = u32::try_from(id).ok().and_then(|id| {
            let id = id.checked_sub(1)?;
            let (place, generation) = (id & ((1 << PLACE_BITS) - 1), id >> PLACE_BITS);
            let entry = self.entries.get(place as usize)?;
            (entry.used && entry.generation == generation).then_some((place, entry))
        });
        match found {
            Some(found) => Ok(found),
            None => deny!(
                MPL_MSGID,
                "{id} is not the id of a message under way; was it waited for already?"
            ),
        }
    }

    fn reported(&mut self, id: i32) -> Option<&mut Option<(i32, u64)>> {
        let place = id.wrapping_sub(1) as usize & ((1 << PLACE_BITS) - 1);
        self.entries.get_mut(place).map(|entry| &mut entry.reported)
    }

    /// Takes the bytes of a message that `mpc_status` has reported as complete, unless they have
    /// been taken since.
    fn take_reported(&mut self, id: i32) -> Option<u64> {
        let reported = self.reported(id)?;
        let (_, bytes) = (*reported).filter(|&(of, _)| of == id)?;
        *reported = None;
        Some(bytes)
    }

    fn remove(&mut self, id: i32) -> Result<(Part, Places)> {
        let (place, entry) = self.entry(id)?;
        let taken = (entry.part, entry.places);
        let entry = &mut self.entries[place as usize];
        entry.used = false;
        entry.generation = (entry.generation + 1) % GENERATIONS;
        self.free.push(place);
        Ok(taken)
    }

    /// Returns the ids that a wait for any or all means.
    fn waited(&self) -> Vec<i32> {
        let used = (0u32..)
            .zip(&self.entries)
            .filter(|(_, e)| e.used && !e.called);
        used.map(|(place, e)| id_of(place, e.generation)).collect()
    }
}

impl Mpl {
    /// Returns the data of blocks in `mem`.
    ///
    /// # Errors
    /// When they overlap or are too large.
    pub fn strided(&self, mem: Mem, strided: Strided) -> Result<Data> {
        let Strided {
            block,
            offset,
            blocks,
        } = strided;
        let total = block.checked_mul(blocks);
        let Some(total) = total.filter(|_| blocks <= 1 || offset >= block) else {
            deny!(
                MPL_ARGUMENT,
                "{blocks} blocks of {block} bytes cannot begin {offset} bytes after each other"
            );
        };
        if total == 0 || offset == block {
            return Ok(Data::bytes(mem, total));
        }
        let byte = self.mpi.basic(Basic::Byte);
        let made = Datatype::hvector(blocks as i64, block as i64, offset as i64, &byte);
        match made {
            Ok(datatype) => Ok(Data::typed(mem, 1, &Arc::new(datatype))),
            Err(_) => deny!(
                MPL_ARGUMENT,
                "{blocks} blocks {offset} bytes apart do not fit into memory"
            ),
        }
    }

    /// `mpc_bsend`: sends, and waits until the bytes may be changed.
    ///
    /// # Errors
    /// When there is no such task or type.
    #[inline]
    pub fn send(&self, piece: Piece, dest: i32, kind: i32) -> Result<()> {
        let Some((to, envelope)) = self.target(dest, kind)? else {
            return Ok(());
        };
        if self.rank.send_at_once(piece, to, envelope) {
            return Ok(());
        }
        self.send_blocks(&Data::bytes(piece.mem(), piece.size() as u64), dest, kind)
    }

    /// `mpc_bvsend`: the same with blocks.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_blocks(&self, data: &Data, dest: i32, kind: i32) -> Result<()> {
        let Some((to, envelope)) = self.target(dest, kind)? else {
            return Ok(());
        };
        match self.rank.send(Mode::Standard, data, to, envelope) {
            None => Ok(()),
            Some(_) => deny!(MPL_FAULT, "task {dest} has died"),
        }
    }

    /// `mpc_brecv`: waits for a message.
    ///
    /// # Errors
    /// When there is no such task or type, or the message is too long and that is an error.
    #[inline]
    pub fn receive(&self, piece: Piece, source: i32, kind: i32) -> Result<Received> {
        let Some((pattern, from)) = self.pattern(source, kind)? else {
            return Ok(nothing(kind));
        };
        let room = piece.size() as u64;
        let take = |outcome: &Outcome| self.received(outcome, room);
        if let Some(received) = self.rank.recv_at_once(piece, pattern, take) {
            return received;
        }
        let data = Data::bytes(piece.mem(), room);
        self.received(&self.rank.recv_posted(data, pattern, from), room)
    }

    /// `mpc_bvrecv`: the same with blocks.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_blocks(&self, data: Data, source: i32, kind: i32) -> Result<Received> {
        let Some((pattern, from)) = self.pattern(source, kind)? else {
            return Ok(nothing(kind));
        };
        let room = data.size();
        let outcome = self.rank.recv(data, pattern, from);
        self.received(&outcome, room)
    }

    /// `mpc_bsendrecv`: sends, and waits for a message of the same type.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`receive`](Self::receive).
    pub fn send_and_receive(
        &self,
        (out, dest): (Data, i32),
        (data, source): (Data, i32),
        kind: i32,
    ) -> Result<Received> {
        let target = self.target(dest, kind)?;
        let wanted = self.pattern(source, kind)?;
        let room = data.size();
        let receive = wanted.map(|(pattern, from)| self.rank.irecv(data, pattern, from));
        if let Some((to, envelope)) = target
            && self.rank.send(Mode::Standard, &out, to, envelope).is_some()
        {
            deny!(MPL_FAULT, "task {dest} has died");
        }
        match receive {
            Some(id) => self.received(&self.rank.wait(id), room),
            None => Ok(nothing(kind)),
        }
    }

    /// `mpc_send`: an id.
    ///
    /// # Errors
    /// As [`send`](Self::send), and when there are too many ids.
    pub fn isend(&self, data: Data, dest: i32, kind: i32) -> Result<i32> {
        let bytes = data.size();
        let part = match self.target(dest, kind)? {
            Some((to, envelope)) => {
                Part::Send(self.rank.isend(Mode::Standard, data, to, envelope), bytes)
            }
            None => Part::Done(None, 0),
        };
        self.requests.lock().insert(part, Places::default(), false)
    }

    /// `mpc_recv`: an id. `called`: it has a routine.
    ///
    /// # Errors
    /// As [`receive`](Self::receive), and when there are too many ids.
    pub fn ireceive(
        &self,
        data: Data,
        source: i32,
        kind: i32,
        places: Places,
        called: bool,
    ) -> Result<i32> {
        let part = match self.pattern(source, kind)? {
            Some((pattern, from)) => {
                let room = data.size();
                Part::Receive(self.rank.irecv(data, pattern, from), room)
            }
            None => Part::Done(Some(nothing(kind)), 0),
        };
        // What was named exactly stands there already, and there are programs whose places do not
        // live until the end.
        let places = Places {
            source: if source == DONTCARE { places.source } else { 0 },
            kind: if kind == DONTCARE { places.kind } else { 0 },
        };
        self.requests.lock().insert(part, places, called)
    }

    /// `mpc_wait`: waits for a message, for any (the id says which) or for all. The id and the
    /// bytes; of all messages, those of all. `note` gets what is known of each that was received.
    ///
    /// # Errors
    /// When there is no such id, or a message cannot be completed.
    pub fn wait(&self, id: i32, mut note: impl FnMut(Places, Received)) -> Result<(i32, u64)> {
        let waited = match id {
            DONTCARE | ALLMSG => self.requests.lock().waited(),
            _ => {
                let reported = self.requests.lock().take_reported(id);
                let bytes = match reported {
                    Some(bytes) => bytes,
                    None => self.complete(id, &mut note)?,
                };
                return Ok((id, bytes));
            }
        };
        if id == ALLMSG {
            let mut bytes = 0;
            for id in waited {
                bytes += self.complete(id, &mut note)?;
            }
            return Ok((id, bytes));
        }
        if waited.is_empty() {
            deny!(
                MPL_MSGID,
                "no message is under way that could be waited for"
            );
        }
        let mut ids = Vec::new();
        for &id in &waited {
            match self.requests.lock().entry(id)?.1.part {
                Part::Done(..) => return Ok((id, self.complete(id, &mut note)?)),
                Part::Send(request, _) | Part::Receive(request, _) => ids.push(request),
            }
        }
        let first = waited[self.rank.wait_any(&ids)];
        Ok((first, self.complete(first, &mut note)?))
    }

    /// `mpc_status`: the bytes if the message is complete; the id is gone then, but may be waited
    /// for once more.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn status(&self, id: i32, mut note: impl FnMut(Places, Received)) -> Result<Option<u64>> {
        self.requests.lock().entry(id)?;
        self.rank.progress();
        if !self.is_done(id)? {
            self.rank.yield_if_oversubscribed();
            return Ok(None);
        }
        let bytes = self.complete(id, &mut note)?;
        if let Some(reported) = self.requests.lock().reported(id) {
            *reported = Some((id, bytes));
        }
        Ok(Some(bytes))
    }

    /// `mpc_probe`: what is known of a message that is there.
    ///
    /// # Errors
    /// When there is no such task or type.
    pub fn probe(&self, source: i32, kind: i32) -> Result<Option<Received>> {
        let Some((pattern, _)) = self.pattern(source, kind)? else {
            return Ok(Some(nothing(kind)));
        };
        Ok(self.rank.iprobe(pattern).map(|found| Received {
            source: found.source as i32,
            kind: found.tag as i32,
            bytes: found.bytes,
        }))
    }

    pub(crate) fn is_done(&self, id: i32) -> Result<bool> {
        let part = self.requests.lock().entry(id)?.1.part;
        Ok(match part {
            Part::Done(..) => true,
            Part::Send(request, _) | Part::Receive(request, _) => self.rank.is_done(request),
        })
    }

    fn complete(&self, id: i32, note: &mut impl FnMut(Places, Received)) -> Result<u64> {
        let (part, places) = self.requests.lock().remove(id)?;
        match part {
            Part::Done(received, bytes) => {
                received.into_iter().for_each(|r| note(places, r));
                Ok(bytes)
            }
            Part::Send(request, bytes) => match self.rank.wait(request).failed {
                None => Ok(bytes),
                Some(_) => deny!(MPL_FAULT, "the task that the message is for has died"),
            },
            Part::Receive(request, room) => {
                let received = self.received(&self.rank.wait(request), room)?;
                note(places, received);
                Ok(received.bytes)
            }
        }
    }

    #[inline]
    fn received(&self, outcome: &Outcome, room: u64) -> Result<Received> {
        if outcome.failed.is_some() || outcome.truncated.is_some() {
            self.check(outcome, room)?;
        }
        Ok(Received {
            source: outcome.source as i32,
            kind: outcome.tag as i32,
            bytes: outcome.bytes.min(room),
        })
    }

    #[cold]
    fn check(&self, outcome: &Outcome, room: u64) -> Result<()> {
        if outcome.failed.is_some() {
            deny!(MPL_FAULT, "a task that the message could be from has died");
        }
        if let Some(bytes) = outcome.truncated
            && self.strict.load(std::sync::atomic::Ordering::Relaxed)
        {
            deny!(
                MPL_OVERFLOW,
                "a message of {bytes} bytes, type {}, from task {} is longer than the buffer of {room} bytes",
                outcome.tag,
                outcome.source
            );
        }
        Ok(())
    }

    #[inline]
    fn target(&self, dest: i32, kind: i32) -> Result<Option<(u32, Envelope)>> {
        let Ok(tag) = u32::try_from(kind) else {
            deny!(MPL_TYPE, "the type is {kind}; it must not be negative");
        };
        if dest == NULLTASK {
            return Ok(None);
        }
        let envelope = Envelope {
            context: CONTEXT,
            source: self.rank.world_rank(),
            tag,
        };
        Ok(Some((self.existing(dest)?, envelope)))
    }

    #[inline]
    fn pattern(&self, source: i32, kind: i32) -> Result<Option<(Pattern, Option<u32>)>> {
        let tag = match kind {
            DONTCARE => None,
            0.. => Some(kind as u32),
            _ => deny!(
                MPL_TYPE,
                "the type is {kind}; it must not be negative, or dontcare"
            ),
        };
        let from = match source {
            NULLTASK => return Ok(None),
            DONTCARE => None,
            task => Some(self.existing(task)?),
        };
        Ok(Some((Pattern::new(CONTEXT, from, tag), from)))
    }

    #[inline]
    pub(crate) fn existing(&self, task: i32) -> Result<u32> {
        if (0..self.tasks()).contains(&task) {
            return Ok(task as u32);
        }
        self.no_task(task)
    }

    #[cold]
    fn no_task(&self, task: i32) -> Result<u32> {
        deny!(
            MPL_TASK,
            "there is no task {task}; the job has the tasks 0 to {}",
            self.tasks() - 1
        )
    }
}

/// Returns what comes from no task.
fn nothing(kind: i32) -> Received {
    Received {
        source: NULLTASK,
        kind,
        bytes: 0,
    }
}
