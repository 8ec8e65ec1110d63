//! Messages with handlers.

use std::ffi::c_long;

use margay_run_nx::error::{EQPARAM, Result};
use margay_run_nx::{Info, handler, refuse};

use crate::call::nx;
use crate::info::note;
use crate::message::outgoing;
use crate::user::{Bytes, Claim, Handler, Room, Small, XHandler};

/// The program's handler, which finds in `infocount` and its like what is known of the message.
fn noting(handler: Handler) -> Result<handler::Handler> {
    if handler.is_null() {
        refuse!(EQPARAM, "handler is a null pointer");
    }
    Ok(Box::new(move |info: Info| {
        note(info);
        handler.call(info);
    }))
}

/// The same for a handler that gets a parameter.
fn noting_x(xhandler: XHandler, hparam: c_long) -> Result<handler::Handler> {
    if xhandler.is_null() {
        refuse!(EQPARAM, "xhandler is a null pointer");
    }
    Ok(Box::new(move |info: Info| {
        note(info);
        xhandler.call(hparam);
    }))
}

nx! {
    /// Begins to send; the handler is called when the bytes may be changed.
    fn hsend(type_: Small, buf: Bytes, count: c_long, node: Small, ptype: Small, handler: Handler) |nx| {
        nx.hsend("hsend", outgoing(type_, buf, count, node, ptype)?, noting(handler)?)
    }

    /// The same with a handler that gets a parameter.
    fn hsendx(type_: Small, buf: Bytes, count: c_long, node: Small, ptype: Small, xhandler: XHandler, hparam: c_long) |nx| {
        nx.hsend("hsendx", outgoing(type_, buf, count, node, ptype)?, noting_x(xhandler, hparam)?)
    }

    /// Posts a receive; the handler is called when a message is there. Without a handler the call
    /// withdraws the receives with handlers that were posted with the same selectors.
    fn hrecv(typesel: Small, buf: Room, count: c_long, handler: Handler) |nx| {
        if handler.is_null() {
            nx.withdraw(nx.wanted(typesel, -1, -1)?);
            return Ok(());
        }
        nx.hrecv("hrecv", buf.mem(count)?, nx.wanted(typesel, -1, -1)?, noting(handler)?)
    }

    /// The same for certain nodes and process types, with a handler that gets a parameter.
    fn hrecvx(typesel: Small, buf: Room, count: c_long, nodesel: Small, ptypesel: Small, xhandler: XHandler, hparam: c_long) |nx| {
        if xhandler.is_null() {
            nx.withdraw(nx.wanted(typesel, nodesel, ptypesel)?);
            return Ok(());
        }
        nx.hrecv("hrecvx", buf.mem(count)?, nx.wanted(typesel, nodesel, ptypesel)?, noting_x(xhandler, hparam)?)
    }

    /// Begins to send, and posts a receive; the handler is called when both are complete.
    fn hsendrecv(type_: Small, sbuf: Bytes, scount: c_long, node: Small, ptype: Small, typesel: Small, rbuf: Room, rcount: c_long, handler: Handler) |nx| {
        let out = outgoing(type_, sbuf, scount, node, ptype)?;
        nx.hsendrecv(out, rbuf.mem(rcount)?, nx.wanted(typesel, -1, -1)?, noting(handler)?)
    }

    /// Holds handlers back (1) or lets them run (0); what it was before.
    fn masktrap(state: Small) -> c_long |nx| {
        nx.mask(state)
    }
}
