//! Messages.

use std::ffi::c_long;

use margay_run_nx::error::{EQPARAM, Result};
use margay_run_nx::mids;
use margay_run_nx::point::Outgoing;
use margay_run_nx::refuse;

use crate::call::nx;
use crate::info::{note, note_posted};
use crate::user::{Bytes, Claim, Longs, Room, Small};

/// A message to be sent.
///
/// # Safety
/// The program vouches for `count` bytes.
pub unsafe fn outgoing(
    type_: c_long,
    buf: Bytes,
    count: c_long,
    node: c_long,
    ptype: c_long,
) -> Result<Outgoing> {
    Ok(Outgoing {
        kind: type_,
        // SAFETY: by the caller's promise.
        piece: unsafe { buf.piece(count) }?,
        node,
        ptype,
    })
}

/// A place for what is known of a message.
fn place(info: Longs) -> Result<Longs> {
    if info.is_null() {
        refuse!(
            EQPARAM,
            "info is a null pointer; msginfo is an array for it"
        );
    }
    Ok(info)
}

nx! {
    /// Sends a message, and waits until its bytes may be changed.
    fn csend(type_: Small, buf: Bytes, count: c_long, node: Small, ptype: Small) |nx| {
        nx.send(outgoing(type_, buf, count, node, ptype)?)
    }

    /// Waits for a message.
    fn crecv(typesel: Small, buf: Room, count: c_long) |nx| {
        let info = nx.receive(buf.piece(count)?, nx.wanted(typesel, -1, -1)?)?;
        note(info);
        Ok(())
    }

    /// Waits for a message of certain nodes and process types.
    fn crecvx(typesel: Small, buf: Room, count: c_long, nodesel: Small, ptypesel: Small, info: Longs) |nx| {
        let place = place(info)?;
        let info = nx.receive(buf.piece(count)?, nx.wanted(typesel, nodesel, ptypesel)?)?;
        place.put_info(info);
        Ok(())
    }

    /// Sends a message and waits for another one; its length.
    fn csendrecv(type_: Small, sbuf: Bytes, scount: c_long, node: Small, ptype: Small, typesel: Small, rbuf: Room, rcount: c_long) -> c_long |nx| {
        let out = outgoing(type_, sbuf, scount, node, ptype)?;
        let info = nx.send_and_receive(out, rbuf.piece(rcount)?, nx.wanted(typesel, -1, -1)?)?;
        note(info);
        Ok(info.count)
    }

    /// Begins to send; an id.
    fn isend(type_: Small, buf: Bytes, count: c_long, node: Small, ptype: Small) -> c_long |nx| {
        nx.isend(outgoing(type_, buf, count, node, ptype)?)
    }

    /// Posts a receive; an id.
    fn irecv(typesel: Small, buf: Room, count: c_long) -> c_long |nx| {
        nx.irecv(buf.mem(count)?, nx.wanted(typesel, -1, -1)?, 0)
    }

    /// Posts a receive for messages of certain nodes and process types; an id.
    fn irecvx(typesel: Small, buf: Room, count: c_long, nodesel: Small, ptypesel: Small, info: Longs) -> c_long |nx| {
        nx.irecv(buf.mem(count)?, nx.wanted(typesel, nodesel, ptypesel)?, place(info)?.number())
    }

    /// Begins to send, and posts a receive; an id for both.
    fn isendrecv(type_: Small, sbuf: Bytes, scount: c_long, node: Small, ptype: Small, typesel: Small, rbuf: Room, rcount: c_long) -> c_long |nx| {
        let out = outgoing(type_, sbuf, scount, node, ptype)?;
        nx.isendrecv(out, rbuf.mem(rcount)?, nx.wanted(typesel, -1, -1)?)
    }

    /// Sends a message to each node of a list.
    fn gsendx(type_: Small, buf: Bytes, count: c_long, nodes: Longs, nnodes: Small) |nx| {
        nx.send_to(type_, buf.piece(count)?, &nodes.take("nodes", nnodes)?)
    }

    /// Waits until a message is there.
    fn cprobe(typesel: Small) |nx| {
        note(nx.probe(nx.wanted(typesel, -1, -1)?)?);
        Ok(())
    }

    /// Waits until a message of certain nodes and process types is there.
    fn cprobex(typesel: Small, nodesel: Small, ptypesel: Small, info: Longs) |nx| {
        let place = place(info)?;
        place.put_info(nx.probe(nx.wanted(typesel, nodesel, ptypesel)?)?);
        Ok(())
    }

    /// Whether a message is there.
    fn iprobe(typesel: Small) -> c_long |nx| {
        let found = nx.iprobe(nx.wanted(typesel, -1, -1)?);
        Ok(found.map(note).is_some().into())
    }

    /// Whether a message of certain nodes and process types is there.
    fn iprobex(typesel: Small, nodesel: Small, ptypesel: Small, info: Longs) -> c_long |nx| {
        let place = place(info)?;
        let found = nx.iprobe(nx.wanted(typesel, nodesel, ptypesel)?);
        Ok(found.map(|info| place.put_info(info)).is_some().into())
    }

    /// Waits until the message with this id is complete.
    fn msgwait(mid: Small) |nx| {
        nx.wait(mid, |place, info| {
            // SAFETY: NX keeps for a message the place that it was posted with here; the program
            // keeps it until it is complete.
            unsafe { note_posted(place, info) }
        })
    }

    /// Whether the message with this id is complete; if so, the id is gone.
    fn msgdone(mid: Small) -> c_long |nx| {
        Ok(nx.is_done(mid, |place, info| {
            // SAFETY: NX keeps for a message the place that it was posted with here; the program
            // keeps it until it is complete.
            unsafe { note_posted(place, info) }
        })?.into())
    }

    /// Nobody will ask for this id any more.
    fn msgignore(mid: Small) |nx| {
        nx.ignore(mid)
    }

    /// Takes a message back, as far as that is possible.
    fn msgcancel(mid: Small) |nx| {
        nx.cancel(mid)
    }

    /// One id for what two stand for; -1 stands for nothing.
    fn msgmerge(mid1: Small, mid2: Small) -> c_long |nx| {
        nx.merge(mid1, mid2)
    }

    /// Drops messages that are there.
    fn flushmsg(typesel: Small, nodesel: Small, ptypesel: Small) |nx| {
        nx.flush(nx.wanted(typesel, nodesel, ptypesel)?);
        Ok(())
    }
}

// Ids must fit a Fortran integer.
const _: () = assert!(mids::MOST <= i32::MAX as i64);
