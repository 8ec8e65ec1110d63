//! Messages with handlers.

use std::ffi::{c_int, c_long};

use margay_run_nx::error::{EQPARAM, Result};
use margay_run_nx::{Info, refuse};

use crate::call::nx;
use crate::info::note;
use crate::message::outgoing;
use crate::user::{Bytes, Claim, Handler, Room, Small, XHandler};

nx! {
    /// Begins to send; the handler is called when the bytes may be changed.
    fn hsend(type_: Small, buf: Bytes, count: c_long, node: Small, ptype: Small, handler: Handler) |nx| {
        nx.hsend("hsend", outgoing(type_, buf, count, node, ptype)?, handler.closure()?)
    }

    /// The same with a handler that gets a parameter.
    fn hsendx(type_: Small, buf: Bytes, count: c_long, node: Small, ptype: Small, xhandler: XHandler, hparam: c_long) |nx| {
        nx.hsend("hsendx", outgoing(type_, buf, count, node, ptype)?, xhandler.closure(hparam)?)
    }

    /// Posts a receive; the handler is called when a message is there.
    fn hrecv(typesel: Small, buf: Room, count: c_long, handler: Handler) |nx| {
        nx.hrecv("hrecv", buf.mem(count)?, nx.wanted(typesel, -1, -1)?, handler.closure()?)
    }

    /// The same for certain nodes and process types, with a handler that gets a parameter.
    fn hrecvx(typesel: Small, buf: Room, count: c_long, nodesel: Small, ptypesel: Small, xhandler: XHandler, hparam: c_long) |nx| {
        nx.hrecv("hrecvx", buf.mem(count)?, nx.wanted(typesel, nodesel, ptypesel)?, xhandler.closure(hparam)?)
    }

    /// Begins to send, and posts a receive; the handler is called when both are complete.
    fn hsendrecv(type_: Small, sbuf: Bytes, scount: c_long, node: Small, ptype: Small, typesel: Small, rbuf: Room, rcount: c_long, handler: Handler) |nx| {
        let out = outgoing(type_, sbuf, scount, node, ptype)?;
        nx.hsendrecv(out, rbuf.mem(rcount)?, nx.wanted(typesel, -1, -1)?, handler.closure()?)
    }

    /// Holds handlers back (1) or lets them run (0); what it was before.
    fn masktrap(state: Small) -> c_long |nx| {
        nx.mask(state)
    }
}

impl Handler {
    /// As a function that is called with what is known of the message.
    pub fn closure(self) -> Result<margay_run_nx::handler::Handler> {
        let Some(routine) = self.routine else {
            refuse!(EQPARAM, "handler is a null pointer");
        };
        let fortran = self.fortran != 0;
        Ok(Box::new(move |info: Info| {
            let Info {
                kind,
                count,
                node,
                ptype,
            } = info;
            note(0, info);
            if fortran {
                let [kind, count, node, ptype] = [kind, count, node, ptype].map(|n| n as c_int);
                // SAFETY: see `user.rs`; Fortran's handlers take four integers by reference.
                let call: extern "C" fn(&c_int, &c_int, &c_int, &c_int) =
                    unsafe { std::mem::transmute(routine) };
                call(&kind, &count, &node, &ptype);
            } else {
                // SAFETY: see `user.rs`; C's handlers take four values.
                let call: extern "C" fn(c_long, c_long, c_long, c_long) =
                    unsafe { std::mem::transmute(routine) };
                call(kind, count, node, ptype);
            }
        }))
    }
}

impl XHandler {
    /// As a function that is called with the program's parameter.
    pub fn closure(self, hparam: c_long) -> Result<margay_run_nx::handler::Handler> {
        let Some(routine) = self.routine else {
            refuse!(EQPARAM, "xhandler is a null pointer");
        };
        let fortran = self.fortran != 0;
        Ok(Box::new(move |info: Info| {
            note(0, info);
            if fortran {
                // SAFETY: see `user.rs`; Fortran's handlers take one integer by reference.
                let call: extern "C" fn(&c_int) = unsafe { std::mem::transmute(routine) };
                call(&(hparam as c_int));
            } else {
                // SAFETY: see `user.rs`; C's handlers take one value.
                let call: extern "C" fn(c_long) = unsafe { std::mem::transmute(routine) };
                call(hparam);
            }
        }))
    }
}
