//! What the launcher runs as its remote shell: standard streams of an agent on a host that has
//! joined.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::is_trusted;

use crate::message::{Framed, Kind, PIECE, ROOM, message, read};

/// Runs an agent on a host; `at` is the name of the socket of who knows the hosts. Returns its exit
/// status.
///
/// # Errors
/// In words, when the host or that process is gone.
pub fn run(at: &str, host: &str) -> Result<u8, String> {
    let connect = || {
        let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(at)?)?;
        if !is_trusted(stream.as_fd()) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        stream.set_nonblocking(true)?;
        Ok(Framed::new(stream))
    };
    let stream = connect();
    let mut stream = stream.map_err(|error| gone(host, &error))?;
    pump(&mut stream, host).map_err(|error| gone(host, &error))
}

fn gone(host: &str, error: &io::Error) -> String {
    let why = match error.kind() {
        ErrorKind::UnexpectedEof => "its connection has ended".into(),
        _ => error.to_string(),
    };
    format!("host {host}, which has joined, cannot be reached: {why}")
}

fn pump(stream: &mut Framed<UnixStream>, host: &str) -> io::Result<u8> {
    stream.send(&message(0, Kind::Open, host.as_bytes()))?;
    let mut poll = PollSet::default();
    let mut is_open = true;
    loop {
        while let Some(got) = stream.receive()? {
            match read(&got) {
                Some((_, Kind::Output, bytes)) => {
                    io::stdout().write_all(bytes)?;
                    io::stdout().flush()?;
                }
                Some((_, Kind::Error, bytes)) => io::stderr().write_all(bytes)?,
                Some((_, Kind::Ended, bytes)) => return Ok(bytes.first().copied().unwrap_or(1)),
                _ => {}
            }
        }
        poll.clear();
        poll.add_readable(stream.descriptor());
        if stream.waiting() > 0 {
            poll.add_writable(stream.descriptor());
        }
        let takes = is_open && stream.waiting() < ROOM;
        let input = takes.then(|| poll.add_readable(io::stdin().as_fd()));
        poll.wait(None)?;
        if input.is_some_and(|at| poll.ready(at).readable) {
            let mut bytes = vec![0; PIECE];
            // The launcher may have made it one that does not wait.
            let n = match io::stdin().lock().read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                read => read?,
            };
            is_open = n > 0;
            stream.send(&message(0, Kind::Input, &bytes[..n]))?;
        }
    }
}
