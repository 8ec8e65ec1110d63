//! What the ranks of an agent's host write and read, on its way to and from the relay.

use std::io::{ErrorKind, Read, Write};

use super::local::{Input, Output, Part};
use super::wire::{Writer, kind};

const READ_BYTES: usize = 64 << 10;

/// What [`read_output`] has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Something; there may be more.
    Some,
    /// Nothing: there is no more now.
    Nothing,
    /// Nothing: the relay takes no more now.
    NoRoom,
}

/// Sends the last words of a rank that has ended, and then says that they were all.
pub(super) fn drain(output: &mut Output, said: &mut Vec<u8>) {
    if !output.drains {
        return;
    }
    let last = loop {
        match read_output(output, said, false) {
            Taken::Some => {}
            other => break other,
        }
    };
    if last == Taken::Nothing {
        output.drains = false;
        said.extend(Writer::new(kind::DRAINED).number(output.stream).done());
    }
}

/// Reads what a stream has and the relay takes; `is_last`: nobody writes any more.
pub(super) fn read_output(output: &mut Output, said: &mut Vec<u8>, is_last: bool) -> Taken {
    let Some(mut pipe) = output.pipe.as_ref() else {
        return Taken::Nothing;
    };
    let most = output.window.min(READ_BYTES);
    if most == 0 {
        return Taken::NoRoom;
    }
    let mut bytes = vec![0; most];
    let read = match pipe.read(&mut bytes) {
        Ok(n) => n,
        Err(error) if error.kind() == ErrorKind::Interrupted => return Taken::Some,
        Err(error) if error.kind() == ErrorKind::WouldBlock && !is_last => return Taken::Nothing,
        Err(_) => 0,
    };
    output.window -= read;
    if read == 0 {
        output.pipe = None;
    }
    let mut message = Writer::new(kind::OUTPUT);
    message.number(output.stream).bytes(&bytes[..read]);
    said.extend(message.done());
    match read {
        0 => Taken::Nothing,
        _ => Taken::Some,
    }
}

/// Reads what the recorder has written and the relay takes.
pub(super) fn read_part(part: &mut Part, said: &mut Vec<u8>) {
    let Some(mut pipe) = part.pipe.as_ref() else {
        return;
    };
    let mut bytes = vec![0; part.window.min(READ_BYTES)];
    match pipe.read(&mut bytes) {
        Ok(0) => part.pipe = None,
        Ok(n) => {
            part.window -= n;
            said.extend(Writer::new(kind::PART).bytes(&bytes[..n]).done());
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
        Err(_) => part.pipe = None,
    }
}

/// Writes what a rank takes of its input, and gives the relay room for as much.
pub(super) fn write_input(input: &mut Input, writable: bool, said: &mut Vec<u8>) {
    let mut taken = 0;
    if let Some(mut pipe) = input.pipe.as_ref().filter(|_| writable) {
        match pipe.write(&input.waiting) {
            Ok(n) => taken = n,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // The rank has closed it or is gone.
            Err(_) => input.pipe = None,
        }
    }
    if input.pipe.is_none() {
        taken = input.waiting.len();
    }
    if taken > 0 {
        input.waiting.drain(..taken);
        let mut credit = Writer::new(kind::CREDIT);
        credit.number(input.rank.into()).number(taken as u64);
        said.extend(credit.done());
    }
    if input.is_over && input.waiting.is_empty() {
        input.pipe = None;
    }
}
