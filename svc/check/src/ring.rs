//! Records in memory of a process, which it writes without a system call and leaves behind when it
//! dies. Numbers are in the byte order of the host.
//!
//! ```text
//! 0      "margayc1"
//! 8      u64   end: bytes written since the begin
//! 16     u64   the same with all bits inverted: when it is not, the end is just being written
//! 4096   256 KiB: the byte with number n stands at n modulo 256 KiB
//! ```
//!
//! The process makes it, and says where it is in its first record on the socket. Afterwards a byte
//! on the socket wakes the reader, and the reader sends back one for each 16 KiB that it has read:
//! the process never writes over what has not been read. The end of the socket is that of the
//! process.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use margay_sys_os::descriptor::PollSet;

const MAGIC: &[u8; 8] = b"margayc1";
/// What is said on the socket: at the begin, that rings are read; then, whether one has been
/// opened.
pub const READS_RINGS: u8 = b'r';
const HAS_OPENED: u8 = b'o';
const REFUSES: u8 = b'n';
const HEADER: u64 = 4096;
const BYTES: u64 = 256 << 10;
const CREDIT: u64 = 16 << 10;
/// How often the reader looks by itself, the longer nothing has come the less.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(160);

pub struct Ring {
    file: File,
    socket: UnixStream,
    end: u64,
    read: u64,
    wait: Duration,
    is_closed: bool,
}

impl Ring {
    /// Opens the ring of a process, and says whether that went well: the process waits for it.
    pub fn open(path: &str, mut socket: UnixStream) -> io::Result<Ring> {
        let file = File::open(path).and_then(|file| {
            let mut magic = [0; 8];
            file.read_exact_at(&mut magic, 0)?;
            let is_ring = &magic == MAGIC;
            is_ring
                .then_some(file)
                .ok_or_else(|| ErrorKind::InvalidData.into())
        });
        socket.write_all(&[if file.is_ok() { HAS_OPENED } else { REFUSES }])?;
        let file = file?;
        socket.set_nonblocking(true)?;
        Ok(Ring {
            file,
            socket,
            end: 0,
            read: 0,
            wait: SHORTEST,
            is_closed: false,
        })
    }

    /// Looks how much has been written.
    fn look(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16];
        self.file.read_exact_at(&mut bytes, 8)?;
        let (end, inverse) = bytes.split_at(8);
        let number = |b: &[u8]| u64::from_ne_bytes(b.try_into().unwrap_or_default());
        let (end, inverse) = (number(end), number(inverse));
        // The process is between the two, and may be stopped there: it is looked at again later.
        // One that was killed there leaves them so; then the end is right.
        let is_whole = end == !inverse;
        if !is_whole && !self.is_closed {
            return Ok(());
        }
        // What was written before the end is read after it.
        fence(Ordering::SeqCst);
        if end < self.end || end - self.read > BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        self.end = end;
        Ok(())
    }

    /// Waits until the process wakes this, or for a while.
    fn rest(&mut self) {
        let mut set = PollSet::default();
        set.add_readable(self.socket.as_fd());
        let _ = set.wait(Some(self.wait));
        let mut bytes = [0; 64];
        match self.socket.read(&mut bytes) {
            Ok(0) => self.is_closed = true,
            Err(error)
                if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                self.is_closed = true;
            }
            _ => {}
        }
    }
}

impl Read for Ring {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.end == self.read {
            let was_closed = self.is_closed;
            self.look()?;
            if self.end > self.read {
                break;
            }
            if was_closed {
                return Ok(0);
            }
            self.rest();
            self.wait = (self.wait * 2).min(LONGEST);
        }
        self.wait = SHORTEST;
        let at = self.read % BYTES;
        let part = (self.end - self.read)
            .min(BYTES - at)
            .min(into.len() as u64) as usize;
        let n = self.file.read_at(&mut into[..part], HEADER + at)?;
        let credits = (self.read + n as u64) / CREDIT - self.read / CREDIT;
        self.read += n as u64;
        // Few enough that the socket has room; when the process has gone nobody needs them.
        let _ = self
            .socket
            .write(&[0; (BYTES / CREDIT) as usize][..credits as usize]);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of which `end` bytes have been written, the last ones of `text`; the other number
    /// beside the end is that of `beside`.
    fn write(file: &File, text: &[u8], (end, beside): (u64, u64)) {
        let (mut at, mut text) = (end - text.len() as u64, text);
        while !text.is_empty() {
            let room = (BYTES - at % BYTES) as usize;
            let (part, rest) = text.split_at(text.len().min(room));
            file.write_all_at(part, HEADER + at % BYTES).unwrap();
            (at, text) = (at + part.len() as u64, rest);
        }
        file.write_at(&end.to_ne_bytes(), 8).unwrap();
        file.write_at(&(!beside).to_ne_bytes(), 16).unwrap();
    }

    fn ring() -> (tempfile::NamedTempFile, UnixStream, Ring) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(HEADER + BYTES).unwrap();
        file.as_file().write_at(MAGIC, 0).unwrap();
        write(file.as_file(), b"", (0, 0));
        let (mut process, reader) = UnixStream::pair().unwrap();
        let ring = Ring::open(file.path().to_str().unwrap(), reader).unwrap();
        let mut said = [0];
        process.read_exact(&mut said).unwrap();
        assert_eq!(said, [HAS_OPENED]);
        (file, process, ring)
    }

    #[test]
    fn bytes_come_in_order_round_the_end_and_each_16_kib_are_credited() {
        let (file, mut process, mut ring) = ring();
        let text: Vec<u8> = (0..3 * BYTES).map(|n| (n % 251) as u8).collect();
        let mut read = Vec::new();
        for part in text.chunks(100_000) {
            let end = (read.len() + part.len()) as u64;
            write(file.as_file(), part, (end, end));
            while read.len() < end as usize {
                let mut bytes = [0; 70_000];
                let n = ring.read(&mut bytes).unwrap();
                read.extend_from_slice(&bytes[..n]);
            }
        }
        assert!(read == text);
        drop(ring);
        let mut credits = Vec::new();
        process.read_to_end(&mut credits).unwrap();
        assert_eq!(credits.len() as u64, 3 * BYTES / CREDIT);
    }

    #[test]
    fn a_process_that_dies_while_it_writes_the_end_has_written_it() {
        let (file, process, mut ring) = ring();
        write(file.as_file(), b"hello", (5, 0));
        let dies = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(process);
        });
        let mut read = Vec::new();
        ring.read_to_end(&mut read).unwrap();
        assert_eq!(read, b"hello");
        dies.join().unwrap();
    }

    #[test]
    fn an_end_that_cannot_be_is_an_error() {
        let (file, _process, mut ring) = ring();
        write(file.as_file(), b"", (BYTES + 1, BYTES + 1));
        assert!(ring.read(&mut [0; 8]).is_err());
    }
}
