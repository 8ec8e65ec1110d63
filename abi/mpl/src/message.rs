//! Messages.

use std::ffi::c_int;

use margay_run_engine::Data;
use margay_run_mpl::error::Result;
use margay_run_mpl::message::{Places, Received, Strided};
use margay_run_mpl::{ALLMSG, DONTCARE, Mpl};

use crate::call::{joined, mpl, tell};
use crate::user::{Bytes, Claim, Ints, Room, Routine, SizePlace};

/// # Safety
/// The program vouches for `len` bytes.
unsafe fn bytes(buf: Bytes, len: usize) -> Result<Data> {
    // SAFETY: by the caller's promise.
    Ok(Data::bytes(unsafe { buf.mem(len) }?, len as u64))
}

/// # Safety
/// The program vouches for `len` bytes.
unsafe fn room(buf: Room, len: usize) -> Result<Data> {
    // SAFETY: by the caller's promise.
    Ok(Data::bytes(unsafe { buf.mem(len) }?, len as u64))
}

/// # Safety
/// The program vouches for the bytes from the first block to the end of the last.
unsafe fn blocks(
    mpl: &Mpl,
    buf: Room,
    (block, offset, count): (usize, usize, usize),
) -> Result<Data> {
    let strided = Strided {
        block: block as u64,
        offset: offset as u64,
        blocks: count as u64,
    };
    let reach = match count {
        0 => 0,
        count => (count - 1).saturating_mul(offset).saturating_add(block),
    };
    // SAFETY: by the caller's promise.
    mpl.strided(unsafe { buf.mem(reach) }?, strided)
}

fn places(source: Ints, kind: Ints) -> Places {
    Places {
        source: source.number(),
        kind: kind.number(),
    }
}

/// Writes what is known of a message to where the program wanted it when it posted the receive.
///
/// # Safety
/// The places come from [`places`], and the program keeps them until the message is complete.
#[inline]
unsafe fn note(places: Places, received: Received) {
    // SAFETY: by the caller's promise.
    let (source, kind) = unsafe { (Ints::at(places.source), Ints::at(places.kind)) };
    source.offer(received.source);
    kind.offer(received.kind);
}

#[inline]
fn come(source: Ints, kind: Ints, nbytes: SizePlace, received: Received) -> Result<()> {
    source.offer(received.source);
    kind.offer(received.kind);
    nbytes.put("nbytes", Some(received.bytes))
}

mpl! {
    /// Sends a message, and waits until its bytes may be changed.
    fn bsend(buf: Bytes, msglen: usize, dest: c_int, type_: c_int) |mpl| {
        mpl.send(buf.piece(msglen)?, dest, type_)
    }

    /// Waits for a message.
    fn brecv(buf: Room, msglen: usize, source: Ints, type_: Ints, nbytes: SizePlace) |mpl| {
        let (from, kind) = (source.take("source")?, type_.take("type")?);
        come(source, type_, nbytes, mpl.receive(buf.piece(msglen)?, from, kind)?)
    }

    /// Begins to send; msgid gets an id.
    fn send(buf: Bytes, msglen: usize, dest: c_int, type_: c_int, msgid: Ints) |mpl| {
        msgid.put("msgid", &[-1])?;
        msgid.put("msgid", &[mpl.isend(bytes(buf, msglen)?, dest, type_)?])
    }

    /// Posts a receive; msgid gets an id. Source and type are written when the message is complete.
    fn recv(buf: Room, msglen: usize, source: Ints, type_: Ints, msgid: Ints) |mpl| {
        let (from, kind) = (source.take("source")?, type_.take("type")?);
        msgid.put("msgid", &[-1])?;
        let id = mpl.ireceive(room(buf, msglen)?, from, kind, places(source, type_), false)?;
        msgid.put("msgid", &[id])
    }

    /// Sends a message, and waits for one of the same type.
    fn bsendrecv(sbuf: Bytes, slen: usize, dest: c_int, type_: c_int, rbuf: Room, rlen: usize, source: Ints, nbytes: SizePlace) |mpl| {
        let from = source.take("source")?;
        let received = mpl.send_and_receive((bytes(sbuf, slen)?, dest), (room(rbuf, rlen)?, from), type_)?;
        source.put("source", &[received.source])?;
        nbytes.put("nbytes", Some(received.bytes))
    }

    /// Sends blknum blocks of blklen bytes that begin offset bytes apart.
    fn bvsend(buf: Room, blklen: usize, offset: usize, blknum: usize, dest: c_int, type_: c_int) |mpl| {
        mpl.send_blocks(&blocks(mpl, buf, (blklen, offset, blknum))?, dest, type_)
    }

    /// Receives into such blocks.
    fn bvrecv(buf: Room, blklen: usize, offset: usize, blknum: usize, source: Ints, type_: Ints, nbytes: SizePlace) |mpl| {
        let (from, kind) = (source.take("source")?, type_.take("type")?);
        let data = blocks(mpl, buf, (blklen, offset, blknum))?;
        come(source, type_, nbytes, mpl.receive_blocks(data, from, kind)?)
    }

    /// Begins to send such blocks.
    fn vsend(buf: Room, blklen: usize, offset: usize, blknum: usize, dest: c_int, type_: c_int, msgid: Ints) |mpl| {
        msgid.put("msgid", &[-1])?;
        let data = blocks(mpl, buf, (blklen, offset, blknum))?;
        msgid.put("msgid", &[mpl.isend(data, dest, type_)?])
    }

    /// Posts a receive into such blocks.
    fn vrecv(buf: Room, blklen: usize, offset: usize, blknum: usize, source: Ints, type_: Ints, msgid: Ints) |mpl| {
        let (from, kind) = (source.take("source")?, type_.take("type")?);
        msgid.put("msgid", &[-1])?;
        let data = blocks(mpl, buf, (blklen, offset, blknum))?;
        let id = mpl.ireceive(data, from, kind, places(source, type_), false)?;
        msgid.put("msgid", &[id])
    }

    /// Waits for the message with an id, for any (dontcare; msgid gets which) or for all (allmsg).
    fn wait(msgid: Ints, nbytes: SizePlace) |mpl| {
        let id = msgid.take("msgid")?;
        let (which, bytes) = mpl.wait(id, |at, received| {
            // SAFETY: MPL keeps for a message the places that it was posted with here; the program
            // keeps them until it is complete.
            unsafe { note(at, received) }
        })?;
        if id == DONTCARE && id != ALLMSG {
            msgid.put("msgid", &[which])?;
        }
        nbytes.put("nbytes", Some(bytes))
    }

    /// Whether a message is there: nbytes gets its length, or -1.
    fn probe(source: Ints, type_: Ints, nbytes: SizePlace) |mpl| {
        let (from, kind) = (source.take("source")?, type_.take("type")?);
        match mpl.probe(from, kind)? {
            Some(received) => come(source, type_, nbytes, received),
            None => nbytes.put("nbytes", None),
        }
    }

    /// Copies blocks that begin offset bytes apart to one after the other.
    fn pack(in_: Room, out: Room, blklen: usize, offset: usize, blknum: usize) |mpl| {
        let from = blocks(mpl, in_, (blklen, offset, blknum))?;
        let bytes = from.size() as usize;
        margay_run_engine::copy(&from, &room(out, bytes)?);
        Ok(())
    }

    /// Copies blocks that stand one after the other to beginnings offset bytes apart.
    fn unpack(in_: Room, out: Room, blklen: usize, offset: usize, blknum: usize) |mpl| {
        let to = blocks(mpl, out, (blklen, offset, blknum))?;
        let bytes = to.size() as usize;
        margay_run_engine::copy(&room(in_, bytes)?, &to);
        Ok(())
    }

    /// Posts a receive; the routine is called with the id when the message is there, and has to
    /// wait for it.
    fn rcvncall(buf: Room, msglen: usize, source: Ints, type_: Ints, msgid: Ints, routine: Routine) |mpl| {
        let (from, kind) = (source.take("source")?, type_.take("type")?);
        msgid.put("msgid", &[-1])?;
        let tell = |id| {
            // The place was written just now.
            let _ = msgid.put("msgid", &[id]);
        };
        mpl.receive_and_call(room(buf, msglen)?, from, kind, places(source, type_), routine.closure()?, tell)
    }

    /// Holds routines back (1) or lets them run (0); oldval gets what it was.
    fn lockrnc(newval: c_int, oldval: Ints) |mpl| {
        oldval.put("oldval", &[0])?;
        oldval.put("oldval", &[mpl.lock_routines(newval)?])
    }
}

/// The bytes of a message that is complete, whose id is gone then; -1 when it is not, -2 when there
/// is no such id.
#[unsafe(export_name = "margay_mpl_status")]
extern "C" fn status(msgid: c_int) -> c_int {
    let asked = joined("mpc_status").and_then(|mpl| {
        mpl.status(msgid, |at, received| {
            // SAFETY: MPL keeps for a message the places that it was posted with here; the program
            // keeps them until it is complete.
            unsafe { note(at, received) }
        })
    });
    match asked {
        Ok(Some(bytes)) => c_int::try_from(bytes).unwrap_or(c_int::MAX),
        Ok(None) => -1,
        Err(error) => tell("mpc_status", &error) - 1,
    }
}
