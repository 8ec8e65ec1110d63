//! What is said between an application's keeper, commands, and who looks after turns: messages of
//! fields. `docs/partitions.md` lists them.

use std::io::{self, ErrorKind};

use margay_sys_os::descriptor::PollSet;
use margay_sys_os::port::Channel;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Between the fields of a message.
const FIELD: char = '\u{1f}';

/// The text of a message. Fields have no control characters.
#[must_use]
pub fn text(fields: &[&str]) -> String {
    let plain = |field: &&str| field.replace(char::is_control, " ");
    let fields: Vec<String> = fields.iter().map(plain).collect();
    fields.join(&FIELD.to_string())
}

/// The fields of a message.
#[must_use]
pub fn fields(message: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(message);
    text.split(FIELD).map(str::to_owned).collect()
}

/// Sends a message without waiting.
///
/// # Errors
/// When the other end is gone or does not listen.
pub fn send(channel: &Channel, parts: &[&str]) -> io::Result<()> {
    channel.send_now(text(parts).as_bytes())
}

/// Waits for the next message until a time.
///
/// # Errors
/// When the other end is gone, or says nothing in time.
pub fn receive(channel: &mut Channel, until: Option<Instant>) -> io::Result<Vec<String>> {
    let mut poll = PollSet::default();
    loop {
        if let Some(message) = channel.receive()? {
            return Ok(fields(&message));
        }
        let rest = until.map(|at| at.saturating_duration_since(Instant::now()));
        if rest == Some(Duration::ZERO) {
            return Err(ErrorKind::TimedOut.into());
        }
        poll.clear();
        poll.add_readable(channel.as_fd());
        poll.wait(rest)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_survive_and_control_characters_do_not() {
        let sent = text(&["join", "a\u{1f}b\n", ""]);
        assert_eq!(fields(sent.as_bytes()), ["join", "a b ", ""]);
    }
}
