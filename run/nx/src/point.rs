//! Messages from process to process.

use margay_run_engine::{Arrived, Data, Envelope, Failed, Mode, Outcome, Pattern, ReqId};
use margay_sys_os::user::{Mem, Piece};

use crate::error::*;
use crate::{CONTEXT, Info, Nx, ptype_of, refuse};

/// The bit that marks force types.
const FORCE: u32 = 1 << 30;
/// The bit of a type selector that makes it a mask.
const MASK: u32 = 1 << 31;

/// Which messages a receive or a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pattern: Pattern,
    /// The rank of the sender, if only one can be it.
    from: Option<u32>,
}

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Its type.
    pub kind: i64,
    /// Its bytes.
    pub piece: Piece,
    /// The node that it goes to; -1: all but this one.
    pub node: i64,
    /// The type of the process there.
    pub ptype: i64,
}

impl Nx {
    /// Returns what messages of these types to this process are wanted, from this node and process
    /// type (-1: any).
    ///
    /// # Errors
    /// When there is no such node or type.
    #[inline]
    pub fn wanted(&self, typesel: i64, nodesel: i64, ptypesel: i64) -> Result<Wanted> {
        let context = CONTEXT + (self.own() >> 16);
        let mut pattern = select(Pattern::new(context, None, None), typesel)?;
        let mut from = None;
        if nodesel != -1 {
            from = self.nodes.alone(nodesel)?;
        }
        pattern = match (nodesel, ptypesel) {
            (-1, -1) => pattern,
            (node, -1) => pattern.with_source_bits(node as u32, 0xffff),
            (-1, ptype) => pattern.with_source_bits(ptype_of(ptype)? << 16, 0xffff_0000),
            (node, ptype) => {
                let source = crate::address(node as u32, ptype_of(ptype)?);
                pattern.with_source_bits(source, u32::MAX)
            }
        };
        Ok(Wanted { pattern, from })
    }

    /// `csend`: sends, and waits until the bytes may be changed.
    ///
    /// # Errors
    /// When there is no such process or type, or it has died.
    #[inline]
    pub fn send(&self, out: Outgoing) -> Result<()> {
        if out.node == -1 {
            return self.send_to_all(out);
        }
        let (to, envelope) = self.target(&out)?;
        if self.rank.send_at_once(out.piece, to, envelope) {
            return Ok(());
        }
        let data = Data::bytes(out.piece.mem(), out.piece.size() as u64);
        match self.rank.send(Mode::Standard, &data, to, envelope) {
            None => Ok(()),
            Some(failed) => Err(broken(failed, &format!("node {}", out.node))),
        }
    }

    #[cold]
    fn send_to_all(&self, out: Outgoing) -> Result<()> {
        self.target(&Outgoing {
            node: self.node(),
            ..out
        })
        .map(drop)?;
        let parts = self.isend_to_all(out)?;
        self.finish(&parts, |_, _| {})
    }

    /// `gsendx`: sends to each node of a list.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_to(&self, kind: i64, piece: Piece, nodes: &[i64]) -> Result<()> {
        let ptype = self.ptype();
        let to = |&node| Outgoing {
            kind,
            piece,
            node,
            ptype,
        };
        for out in nodes.iter().map(to) {
            self.target(&out)?;
        }
        let mut parts = Vec::new();
        for out in nodes.iter().map(to) {
            parts.extend(self.isend_one(out)?);
        }
        self.finish(&parts, |_, _| {})
    }

    /// `crecv`: waits for a message.
    ///
    /// # Errors
    /// When it is longer than the buffer, or cannot come.
    #[inline]
    pub fn receive(&self, piece: Piece, wanted: Wanted) -> Result<Info> {
        let room = piece.size() as u64;
        if let Some(info) = self
            .rank
            .recv_at_once(piece, wanted.pattern, |outcome| received(outcome, room))
        {
            return info;
        }
        let data = Data::bytes(piece.mem(), room);
        received(
            &self.rank.recv_posted(data, wanted.pattern, wanted.from),
            room,
        )
    }

    /// `csendrecv`: sends, and waits for a message.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`receive`](Self::receive).
    pub fn send_and_receive(&self, out: Outgoing, piece: Piece, wanted: Wanted) -> Result<Info> {
        let mut last = Info::default();
        let parts = self.isend_and_receive(out, piece.mem(), wanted, 0)?;
        self.finish(&parts, |_, info| last = info)?;
        Ok(last)
    }

    /// `cprobe`: waits until a message is there.
    ///
    /// # Errors
    /// When none can come.
    pub fn probe(&self, wanted: Wanted) -> Result<Info> {
        let found = self.rank.probe(wanted.pattern, wanted.from);
        found.map(there).map_err(|f| broken(f, "a sender"))
    }

    /// `iprobe`: whether a message is there.
    #[must_use]
    pub fn iprobe(&self, wanted: Wanted) -> Option<Info> {
        self.rank.iprobe(wanted.pattern).map(there)
    }

    /// `flushmsg`: drops the messages that are there.
    pub fn flush(&self, wanted: Wanted) {
        while self.rank.progress() {}
        while let Some((message, _)) = self.rank.improbe(wanted.pattern) {
            let id = self.rank.imrecv(message, Data::bytes(Mem::empty(), 0));
            self.rank.wait(id);
        }
    }

    /// Begins a send. Nothing is under way any more when it gives no parts.
    pub(crate) fn isend_parts(&self, out: Outgoing) -> Result<Vec<Part>> {
        if out.node == -1 {
            self.target(&Outgoing {
                node: self.node(),
                ..out
            })?;
            return self.isend_to_all(out);
        }
        Ok(self.isend_one(out)?.into_iter().collect())
    }

    pub(crate) fn isend_one(&self, out: Outgoing) -> Result<Option<Part>> {
        let (to, envelope) = self.target(&out)?;
        if self.rank.send_at_once(out.piece, to, envelope) {
            return Ok(None);
        }
        let data = Data::bytes(out.piece.mem(), out.piece.size() as u64);
        let id = self.rank.isend(Mode::Standard, data, to, envelope);
        Ok(Some(Part::Send(id)))
    }

    fn isend_to_all(&self, out: Outgoing) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        for node in self.nodes.others() {
            parts.extend(self.isend_one(Outgoing { node, ..out })?);
        }
        Ok(parts)
    }

    /// Posts a receive whose message's info goes to `place`.
    #[inline]
    pub(crate) fn ireceive_part(&self, mem: Mem, room: u64, wanted: Wanted, place: usize) -> Part {
        let data = Data::bytes(mem, room);
        let id = self.rank.irecv(data, wanted.pattern, wanted.from);
        Part::Receive(id, room, place)
    }

    pub(crate) fn isend_and_receive(
        &self,
        out: Outgoing,
        mem: Mem,
        wanted: Wanted,
        place: usize,
    ) -> Result<Vec<Part>> {
        // Errors of the send must be reported before the receive is posted.
        let probe = match out.node {
            -1 => self.node(),
            node => node,
        };
        self.target(&Outgoing { node: probe, ..out })?;
        let room = mem.room();
        let receive = self.ireceive_part(mem, room, wanted, place);
        let mut parts = self.isend_parts(out)?;
        parts.push(receive);
        Ok(parts)
    }

    /// Waits for all parts; `note` gets what is known of each message that was received, with its
    /// place.
    pub(crate) fn finish(&self, parts: &[Part], mut note: impl FnMut(usize, Info)) -> Result<()> {
        let mut problem = None;
        for part in parts {
            match *part {
                Part::Send(id) => {
                    if let Some(failed) = self.rank.wait(id).failed {
                        problem.get_or_insert(broken(failed, "a receiver"));
                    }
                }
                Part::Receive(id, room, place) => match received(&self.rank.wait(id), room) {
                    Ok(info) => note(place, info),
                    Err(error) => {
                        problem.get_or_insert(error);
                    }
                },
            }
        }
        problem.map_or(Ok(()), Err)
    }

    /// Whether all parts have ended; makes no progress.
    pub(crate) fn are_done(&self, parts: &[Part]) -> bool {
        parts.iter().all(|part| self.rank.is_done(part.id()))
    }

    #[inline]
    fn target(&self, out: &Outgoing) -> Result<(u32, Envelope)> {
        let Ok(tag @ 0..MASK) = u32::try_from(out.kind) else {
            return bad_type(out.kind);
        };
        let ptype = ptype_of(out.ptype)?;
        let to = self.nodes.find(&self.rank, out.node, ptype)?;
        let envelope = Envelope {
            context: CONTEXT + ptype,
            source: self.own(),
            tag,
        };
        Ok((to, envelope))
    }
}

/// Returns the pattern for a type selector: a type, or a mask, in which bits 0 to 29 select the
/// types 0 to 29, and bit 30 all other types but the force types. -1 is the mask of all.
#[inline]
fn select(pattern: Pattern, typesel: i64) -> Result<Pattern> {
    let selector = match u32::try_from(typesel) {
        // A mask as programs for 32 bits write it.
        Ok(selector) => selector,
        Err(_) => match i32::try_from(typesel) {
            Ok(selector) => selector as u32,
            Err(_) => return bad_type(typesel),
        },
    };
    if selector & MASK == 0 {
        return Ok(pattern.with_tag_bits(selector, u32::MAX));
    }
    let ordinary = pattern.with_tag_bits(0, FORCE);
    Ok(match selector & !MASK {
        0 => refuse!(EQTYPE, "the selector {typesel} selects no type at all"),
        all if all == !MASK => ordinary,
        some => ordinary.with_tags(some),
    })
}

/// Returns the information about an ended receive.
#[inline]
fn received(outcome: &Outcome, room: u64) -> Result<Info> {
    let info = info(outcome.source, outcome.tag, outcome.bytes);
    if outcome.failed.is_none() && outcome.truncated.is_none() {
        return Ok(info);
    }
    Err(not_received(outcome, info, room))
}

#[cold]
fn not_received(outcome: &Outcome, info: Info, room: u64) -> Error {
    if let Some(failed) = outcome.failed {
        return broken(failed, "a sender");
    }
    let bytes = outcome.truncated.unwrap_or(outcome.bytes);
    let Info { kind, node, .. } = info;
    Error::new(
        EQMSGLONG,
        format!(
            "a message of {bytes} bytes, type {kind}, from node {node} is longer than the buffer of {room} bytes"
        ),
    )
}

fn there(arrived: Arrived) -> Info {
    info(arrived.source, arrived.tag, arrived.bytes)
}

#[inline]
fn info(source: u32, tag: u32, bytes: u64) -> Info {
    Info {
        kind: i64::from(tag),
        count: bytes as i64,
        node: i64::from(source & 0xffff),
        ptype: i64::from(source >> 16),
    }
}

#[cold]
fn broken(failed: Failed, who: &str) -> Error {
    let why = match failed {
        Failed::Process | Failed::Pending => "has died",
        Failed::Revoked => "is not to be reached any more",
    };
    Error::new(EQFAULT, format!("{who} {why}"))
}

#[cold]
fn bad_type<T>(kind: i64) -> Result<T> {
    refuse!(
        EQTYPE,
        "{kind} is not a message type; they are 0 to {}, force types from {FORCE} on",
        MASK - 1
    )
}

/// One message under way that an id stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Send(ReqId),
    /// With the room of the buffer, and the place that the caller wants the info at.
    Receive(ReqId, u64, usize),
}

impl Part {
    fn id(&self) -> ReqId {
        match *self {
            Part::Send(id) | Part::Receive(id, ..) => id,
        }
    }
}
