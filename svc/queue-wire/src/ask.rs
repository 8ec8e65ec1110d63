//! Asking the head.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::{Answer, Request, find_head, read, write};

/// How long the head may take to answer what needs no waiting.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// Asks the head, and waits for its answer.
///
/// # Errors
/// In words, when there is no head or no answer.
pub fn ask(request: &Request) -> Result<Answer, String> {
    converse(&mut find_head()?, request)
}

/// Asks over a connection.
///
/// # Errors
/// In words, when no answer comes.
pub fn converse(stream: &mut UnixStream, request: &Request) -> Result<Answer, String> {
    let timeout = match request {
        Request::Wait { .. } => None,
        _ => Some(ANSWERED_WITHIN),
    };
    let _ = stream.set_read_timeout(timeout);
    // A head that does not take all of it has answered why.
    let sent = write(stream, request);
    read(stream).map_err(|error| match (sent, error.kind()) {
        (_, ErrorKind::WouldBlock) => {
            let seconds = ANSWERED_WITHIN.as_secs();
            format!("the head of the queue does not answer within {seconds} s; is it stopped?")
        }
        (Err(error), _) => format!("the head of the queue does not listen: {error}"),
        _ => format!(
            "the head of the queue has ended before it answered ({error}); start it again with margay up, and see with \
             margay queue what it has accepted"
        ),
    })
}
