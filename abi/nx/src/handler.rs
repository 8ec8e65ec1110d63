//! Messages with handlers.

use std::ffi::c_long;

use crate::call::nx;
use crate::message::outgoing;
use crate::user::{Bytes, Handler, Room, XHandler};

nx! {
    /// Begins to send; the handler is called when the bytes may be changed.
    fn hsend(type_: c_long, buf: Bytes, count: c_long, node: c_long, ptype: c_long, handler: Handler) |nx| {
        nx.hsend("hsend", outgoing(type_, buf, count, node, ptype)?, handler.closure()?)
    }

    /// The same with a handler that gets a parameter.
    fn hsendx(type_: c_long, buf: Bytes, count: c_long, node: c_long, ptype: c_long, xhandler: XHandler, hparam: c_long) |nx| {
        nx.hsend("hsendx", outgoing(type_, buf, count, node, ptype)?, xhandler.closure(hparam)?)
    }

    /// Posts a receive; the handler is called when a message is there.
    fn hrecv(typesel: c_long, buf: Room, count: c_long, handler: Handler) |nx| {
        nx.hrecv("hrecv", buf.mem(count)?, nx.wanted(typesel, -1, -1)?, handler.closure()?)
    }

    /// The same for certain nodes and process types, with a handler that gets a parameter.
    fn hrecvx(typesel: c_long, buf: Room, count: c_long, nodesel: c_long, ptypesel: c_long, xhandler: XHandler, hparam: c_long) |nx| {
        nx.hrecv("hrecvx", buf.mem(count)?, nx.wanted(typesel, nodesel, ptypesel)?, xhandler.closure(hparam)?)
    }

    /// Begins to send, and posts a receive; the handler is called when both are complete.
    fn hsendrecv(type_: c_long, sbuf: Bytes, scount: c_long, node: c_long, ptype: c_long, typesel: c_long, rbuf: Room, rcount: c_long, handler: Handler) |nx| {
        let out = outgoing(type_, sbuf, scount, node, ptype)?;
        nx.hsendrecv(out, rbuf.mem(rcount)?, nx.wanted(typesel, -1, -1)?, handler.closure()?)
    }

    /// Holds handlers back (1) or lets them run (0); what it was before.
    fn masktrap(state: c_long) -> c_long |nx| {
        nx.mask(state)
    }
}
