//! Messages between a service and another host that survive the loss of the connection between
//! them: both ends keep what the other one has not confirmed, and send it again over the next
//! connection. Drawn in docs/wire.md.

use std::collections::VecDeque;

/// Bytes in front of each message: how many messages of the other end have come.
pub const BEFORE: usize = 8;

/// Messages that may come before they are confirmed by one that has nothing else to say.
const CONFIRMED_AFTER: u64 = 32;

/// What is wrong with what the other end says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// One end.
#[derive(Debug, Default)]
pub struct Session {
    /// What was sent and is not confirmed, with room in front.
    sent: VecDeque<Vec<u8>>,
    /// Bytes of it.
    bytes: usize,
    /// Messages that were confirmed by the other end.
    confirmed: u64,
    /// Messages that have come, and how many of them were confirmed.
    received: u64,
    said: u64,
}

impl Session {
    /// Messages that have come.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes that are kept for another connection.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a message, whose first [`BEFORE`] bytes are free, and returns it as it is sent.
    pub fn send(&mut self, message: Vec<u8>) -> &[u8] {
        self.bytes += message.len();
        self.sent.push_back(message);
        self.said = self.received;
        let at = self.sent.len() - 1;
        stamped(&mut self.sent[at], self.received)
    }

    /// What is sent when much has come and nothing was said.
    pub fn confirmation(&mut self) -> Option<[u8; BEFORE]> {
        if self.received - self.said < CONFIRMED_AFTER {
            return None;
        }
        self.said = self.received;
        Some(self.received.to_le_bytes())
    }

    /// Takes what has come; returns where in it the message begins, if there is one.
    ///
    /// # Errors
    /// When it confirms what was never sent, or is too short.
    pub fn take(&mut self, message: &[u8]) -> Result<Option<usize>, Broken> {
        let count = message.first_chunk::<BEFORE>().ok_or(Broken)?;
        self.confirm(u64::from_le_bytes(*count))?;
        if message.len() == BEFORE {
            return Ok(None);
        }
        self.received += 1;
        Ok(Some(BEFORE))
    }

    /// Forgets what the other end has, as it says on a new connection, and calls `send` with the
    /// rest.
    ///
    /// # Errors
    /// When it says that it has what was never sent.
    pub fn resume(&mut self, has: u64, mut send: impl FnMut(&[u8])) -> Result<(), Broken> {
        self.confirm(has)?;
        self.said = self.received;
        for message in &mut self.sent {
            send(stamped(message, self.received));
        }
        Ok(())
    }

    fn confirm(&mut self, count: u64) -> Result<(), Broken> {
        let new = count.checked_sub(self.confirmed).ok_or(Broken)?;
        let new = usize::try_from(new).map_err(|_| Broken)?;
        if new > self.sent.len() {
            return Err(Broken);
        }
        self.bytes -= self.sent.drain(..new).map(|m| m.len()).sum::<usize>();
        self.confirmed = count;
        Ok(())
    }
}

fn stamped(message: &mut [u8], received: u64) -> &[u8] {
    message[..BEFORE].copy_from_slice(&received.to_le_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u64) -> Vec<u8> {
        [[0; BEFORE], number.to_le_bytes()].concat()
    }

    /// Two ends send at random and lose their connection at random, with all that is on its way.
    #[test]
    fn each_message_comes_once_and_in_order_however_often_the_connection_is_lost() {
        for seed in 0..200 {
            let mut state: u64 = seed;
            let mut next = |most: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % most
            };
            let mut ends = [Session::default(), Session::default()];
            let mut ways = [VecDeque::new(), VecDeque::new()];
            let (mut sent, mut came) = ([0_u64; 2], [0_u64; 2]);
            for step in 0..2000 {
                let from = next(2) as usize;
                let is_last = step > 1900;
                match next(if is_last { 6 } else { 20 }) {
                    0..6 => {
                        if let Some(bytes) = ways[from].pop_front() {
                            let bytes: Vec<u8> = bytes;
                            let end = &mut ends[1 - from];
                            if let Some(at) = end.take(&bytes).unwrap() {
                                assert_eq!(bytes[at..], came[from].to_le_bytes());
                                came[from] += 1;
                            }
                            if let Some(bytes) = end.confirmation() {
                                ways[1 - from].push_back(bytes.to_vec());
                            }
                        }
                    }
                    6 => {
                        ways = [VecDeque::new(), VecDeque::new()];
                        for n in 0..2 {
                            let has = ends[1 - n].received();
                            let way = &mut ways[n];
                            let again = ends[n].resume(has, |bytes| way.push_back(bytes.to_vec()));
                            assert_eq!(again, Ok(()));
                        }
                    }
                    _ => {
                        let bytes = ends[from].send(message(sent[from])).to_vec();
                        ways[from].push_back(bytes);
                        sent[from] += 1;
                    }
                }
            }
            for from in [0, 1] {
                while let Some(bytes) = ways[from].pop_front() {
                    came[from] += u64::from(ends[1 - from].take(&bytes).unwrap().is_some());
                }
                assert_eq!(came[from], sent[from]);
                assert!(ends[from].bytes() <= 16 * 2000);
            }
        }
    }

    #[test]
    fn what_was_never_sent_cannot_be_confirmed() {
        let mut end = Session::default();
        end.send(message(1));
        assert_eq!(end.take(&2_u64.to_le_bytes()), Err(Broken));
        assert_eq!(end.take(&[0; 7]), Err(Broken));
        assert_eq!(end.take(&1_u64.to_le_bytes()), Ok(None));
        assert_eq!(end.bytes(), 0);
        assert_eq!(end.take(&0_u64.to_le_bytes()), Err(Broken));
        assert_eq!(end.resume(2, |_| ()), Err(Broken));
        assert_eq!(end.resume(1, |_| panic!("nothing is left")), Ok(()));
    }
}
