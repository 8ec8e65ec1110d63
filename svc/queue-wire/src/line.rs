//! Lines of JSON over a stream.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest line, in bytes.
pub const MOST_BYTES: usize = 64 << 20;

/// Writes a value as one line.
///
/// # Errors
/// What the system says.
pub fn write(to: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a value; the other side writes nothing behind it.
///
/// # Errors
/// What the system says, `UnexpectedEof` when the stream ends within the line, `FileTooLarge` when
/// the line is longer than [`MOST_BYTES`], and `InvalidData` when it is no such value.
pub fn read<T: DeserializeOwned>(from: &mut dyn Read) -> io::Result<T> {
    read_within(from, &mut |bytes| bytes <= MOST_BYTES)
}

/// The same, where `has_room` says each time whether a line may have that number of bytes.
///
/// # Errors
/// As [`read`]; `FileTooLarge` when there is no room.
pub fn read_within<T: DeserializeOwned>(
    from: &mut dyn Read,
    has_room: &mut dyn FnMut(usize) -> bool,
) -> io::Result<T> {
    let mut line = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        let count = match from.read(&mut part) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(&part[..count]);
        if part[..count].contains(&b'\n') {
            return serde_json::from_slice(&line)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
        }
        if !has_room(line.len()) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, Target};

    #[test]
    fn what_is_said_is_heard_and_noise_is_refused() {
        let jobs = vec![Target { job: 7, task: None }];
        let mut bytes = Vec::new();
        write(&mut bytes, &Request::Cancel { jobs }).unwrap();
        let heard: Request = read(&mut bytes.as_slice()).unwrap();
        assert!(matches!(heard, Request::Cancel { jobs } if jobs[0].job == 7));
        for len in 0..bytes.len() {
            let error = read::<Request>(&mut &bytes[..len]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
        for noise in [&b"\n"[..], b"{}\n", b"\xff\xff\n", b"\"Nonsense\"\n"] {
            let error = read::<Request>(&mut &noise[..]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        let error = read::<Request>(&mut io::repeat(b'x')).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
