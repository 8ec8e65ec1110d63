//! Messages.

use std::ffi::c_long;

use margay_run_nx::error::{EQPARAM, Result};
use margay_run_nx::mids;
use margay_run_nx::point::Outgoing;
use margay_run_nx::refuse;

use crate::call::nx;
use crate::info::note;
use crate::user::{Bytes, Longs, Room};

/// A message to be sent.
pub fn outgoing(
    type_: c_long,
    buf: Bytes,
    count: c_long,
    node: c_long,
    ptype: c_long,
) -> Result<Outgoing> {
    Ok(Outgoing {
        kind: type_,
        piece: buf.piece(count)?,
        node,
        ptype,
    })
}

/// A place for what is known of a message.
fn place(info: Longs) -> Result<usize> {
    if info.is_null() {
        refuse!(
            EQPARAM,
            "info is a null pointer; msginfo is an array for it"
        );
    }
    Ok(info.number())
}

nx! {
    /// Sends a message, and waits until its bytes may be changed.
    fn csend(type_: c_long, buf: Bytes, count: c_long, node: c_long, ptype: c_long) |nx| {
        nx.send(outgoing(type_, buf, count, node, ptype)?)
    }

    /// Waits for a message.
    fn crecv(typesel: c_long, buf: Room, count: c_long) |nx| {
        let info = nx.receive(buf.piece(count)?, nx.wanted(typesel, -1, -1)?)?;
        note(0, info);
        Ok(())
    }

    /// Waits for a message of certain nodes and process types.
    fn crecvx(typesel: c_long, buf: Room, count: c_long, nodesel: c_long, ptypesel: c_long, info: Longs) |nx| {
        let place = place(info)?;
        let info = nx.receive(buf.piece(count)?, nx.wanted(typesel, nodesel, ptypesel)?)?;
        note(place, info);
        Ok(())
    }

    /// Sends a message and waits for another one; its length.
    fn csendrecv(type_: c_long, sbuf: Bytes, scount: c_long, node: c_long, ptype: c_long, typesel: c_long, rbuf: Room, rcount: c_long) -> c_long |nx| {
        let out = outgoing(type_, sbuf, scount, node, ptype)?;
        let info = nx.send_and_receive(out, rbuf.piece(rcount)?, nx.wanted(typesel, -1, -1)?)?;
        note(0, info);
        Ok(info.count)
    }

    /// Begins to send; an id.
    fn isend(type_: c_long, buf: Bytes, count: c_long, node: c_long, ptype: c_long) -> c_long |nx| {
        nx.isend(outgoing(type_, buf, count, node, ptype)?)
    }

    /// Posts a receive; an id.
    fn irecv(typesel: c_long, buf: Room, count: c_long) -> c_long |nx| {
        nx.irecv(buf.mem(count)?, nx.wanted(typesel, -1, -1)?, 0)
    }

    /// Posts a receive for messages of certain nodes and process types; an id.
    fn irecvx(typesel: c_long, buf: Room, count: c_long, nodesel: c_long, ptypesel: c_long, info: Longs) -> c_long |nx| {
        nx.irecv(buf.mem(count)?, nx.wanted(typesel, nodesel, ptypesel)?, place(info)?)
    }

    /// Begins to send, and posts a receive; an id for both.
    fn isendrecv(type_: c_long, sbuf: Bytes, scount: c_long, node: c_long, ptype: c_long, typesel: c_long, rbuf: Room, rcount: c_long) -> c_long |nx| {
        let out = outgoing(type_, sbuf, scount, node, ptype)?;
        nx.isendrecv(out, rbuf.mem(rcount)?, nx.wanted(typesel, -1, -1)?)
    }

    /// Sends a message to each node of a list.
    fn gsendx(type_: c_long, buf: Bytes, count: c_long, nodes: Longs, nnodes: c_long) |nx| {
        nx.send_to(type_, buf.piece(count)?, &nodes.take("nodes", nnodes)?)
    }

    /// Waits until a message is there.
    fn cprobe(typesel: c_long) |nx| {
        note(0, nx.probe(nx.wanted(typesel, -1, -1)?)?);
        Ok(())
    }

    /// Waits until a message of certain nodes and process types is there.
    fn cprobex(typesel: c_long, nodesel: c_long, ptypesel: c_long, info: Longs) |nx| {
        let place = place(info)?;
        note(place, nx.probe(nx.wanted(typesel, nodesel, ptypesel)?)?);
        Ok(())
    }

    /// Whether a message is there.
    fn iprobe(typesel: c_long) -> c_long |nx| {
        let found = nx.iprobe(nx.wanted(typesel, -1, -1)?);
        Ok(found.map(|info| note(0, info)).is_some().into())
    }

    /// Whether a message of certain nodes and process types is there.
    fn iprobex(typesel: c_long, nodesel: c_long, ptypesel: c_long, info: Longs) -> c_long |nx| {
        let place = place(info)?;
        let found = nx.iprobe(nx.wanted(typesel, nodesel, ptypesel)?);
        Ok(found.map(|info| note(place, info)).is_some().into())
    }

    /// Waits until the message with this id is complete.
    fn msgwait(mid: c_long) |nx| {
        nx.wait(mid, note)
    }

    /// Whether the message with this id is complete; if so, the id is gone.
    fn msgdone(mid: c_long) -> c_long |nx| {
        Ok(nx.is_done(mid, note)?.into())
    }

    /// Nobody will ask for this id any more.
    fn msgignore(mid: c_long) |nx| {
        nx.ignore(mid)
    }

    /// Takes a message back, as far as that is possible.
    fn msgcancel(mid: c_long) |nx| {
        nx.cancel(mid)
    }

    /// One id for what two stand for; -1 stands for nothing.
    fn msgmerge(mid1: c_long, mid2: c_long) -> c_long |nx| {
        nx.merge(mid1, mid2)
    }

    /// Drops messages that are there.
    fn flushmsg(typesel: c_long, nodesel: c_long, ptypesel: c_long) |nx| {
        nx.flush(nx.wanted(typesel, nodesel, ptypesel)?);
        Ok(())
    }
}

// Ids must fit a Fortran integer.
const _: () = assert!(mids::MOST <= i32::MAX as i64);
