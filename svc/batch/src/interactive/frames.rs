//! What command and attendant say to each other over their Unix socket: a byte for the kind, four
//! for the length, the most significant first, and the bytes.

use std::io::{self, Read, Write};

use margay_svc_queue_wire::Bytes;
use serde::{Deserialize, Serialize};

/// Longest frame.
const MOST_BYTES: u32 = 16 << 20;

/// What is run in a job.
#[derive(Debug, Serialize, Deserialize)]
pub struct Program {
    /// Without any, nothing is run, and the job lasts until the command goes.
    pub arguments: Vec<Bytes>,
    /// Where it begins; none for the job's own directory.
    pub directory: Option<Bytes>,
    /// Rows and columns, where it gets a terminal.
    pub terminal: Option<(u16, u16)>,
    /// Variables beside those of the job.
    pub variables: Vec<(String, String)>,
}

/// A frame.
#[derive(Debug)]
pub enum Frame {
    /// From the command.
    Run(Program),
    Input(Vec<u8>),
    InputEnd,
    Resize(u16, u16),
    Signal(i32),
    /// From the attendant: the job's environment.
    Begun(Vec<Bytes>),
    Output(Vec<u8>),
    Error(Vec<u8>),
    /// The program has ended, with this exit code.
    Exit(u8),
}

impl Frame {
    /// Writes the frame.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, bytes) = match self {
            Frame::Run(program) => (b'r', serde_json::to_vec(program)?),
            Frame::Input(bytes) => (b'i', bytes.clone()),
            Frame::InputEnd => (b'e', vec![]),
            Frame::Resize(rows, columns) => (b's', serde_json::to_vec(&(rows, columns))?),
            Frame::Signal(number) => (b'k', serde_json::to_vec(number)?),
            Frame::Begun(environment) => (b'B', serde_json::to_vec(environment)?),
            Frame::Output(bytes) => (b'O', bytes.clone()),
            Frame::Error(bytes) => (b'E', bytes.clone()),
            Frame::Exit(code) => (b'X', vec![*code]),
        };
        let mut whole = vec![kind];
        whole.extend((bytes.len() as u32).to_be_bytes());
        whole.extend(bytes);
        to.write_all(&whole)
    }

    /// Reads a frame; none at the end of the stream.
    ///
    /// # Errors
    /// What the system says, and `InvalidData` for what is no frame.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut head = [0; 5];
        match from.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        if length > MOST_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; length as usize];
        from.read_exact(&mut bytes)?;
        let invalid = |error: serde_json::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        Ok(Some(match head[0] {
            b'r' => Frame::Run(serde_json::from_slice(&bytes).map_err(invalid)?),
            b'i' => Frame::Input(bytes),
            b'e' => Frame::InputEnd,
            b's' => {
                let (rows, columns) = serde_json::from_slice(&bytes).map_err(invalid)?;
                Frame::Resize(rows, columns)
            }
            b'k' => Frame::Signal(serde_json::from_slice(&bytes).map_err(invalid)?),
            b'B' => Frame::Begun(serde_json::from_slice(&bytes).map_err(invalid)?),
            b'O' => Frame::Output(bytes),
            b'E' => Frame::Error(bytes),
            b'X' => Frame::Exit(bytes.first().copied().unwrap_or(1)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_noise_is_refused() {
        let mut bytes = Vec::new();
        Frame::Resize(24, 80).write(&mut bytes).unwrap();
        Frame::Output(b"a\0b".to_vec()).write(&mut bytes).unwrap();
        Frame::Exit(7).write(&mut bytes).unwrap();
        let mut from = bytes.as_slice();
        assert!(matches!(
            Frame::read(&mut from),
            Ok(Some(Frame::Resize(24, 80)))
        ));
        assert!(matches!(Frame::read(&mut from), Ok(Some(Frame::Output(b))) if b == b"a\0b"));
        assert!(matches!(Frame::read(&mut from), Ok(Some(Frame::Exit(7)))));
        assert!(matches!(Frame::read(&mut from), Ok(None)));
        for noise in [
            &b"zzzzz"[..],
            b"r\0\0\0\x01{",
            b"O\xff\xff\xff\xff",
            b"O\0\0\0\x09a",
        ] {
            assert!(Frame::read(&mut &noise[..]).is_err(), "{noise:?}");
        }
    }
}
