//! What a program and the service of a parallel file system say to each other on the direct way,
//! drawn in docs/pfs-format.md.

/// The number by which a program asks the service, on a file's descriptor, for an [`Invitation`].
pub const INVITES: u16 = 0x4d50;

/// Bytes of an invitation, a request and an answer.
pub const INVITATION: usize = 48;
pub const REQUEST: usize = 24;
pub const ANSWER: usize = 8;

/// Most bytes of a request.
pub const MOST: usize = 1 << 20;

/// Requests of a connection that may be under way, each with a place in the memory that both have.
pub const PLACES: usize = 2;

const MAGIC: [u8; 4] = *b"MPD1";

/// What a program needs to come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// Whose process the service is.
    pub user: u32,
    /// Where it listens.
    pub hall: [u8; 16],
    /// What shows that the program has the file open. It lets one connection in.
    pub ticket: [u8; 16],
}

/// The name of the socket of a hall.
#[must_use]
pub fn socket_name(hall: [u8; 16]) -> Vec<u8> {
    let digits = u128::from_le_bytes(hall);
    format!("margay-pfs-{digits:032x}").into_bytes()
}

impl Invitation {
    #[must_use]
    pub fn to_bytes(self) -> [u8; INVITATION] {
        let mut bytes = [0; INVITATION];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.user.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.hall);
        bytes[24..40].copy_from_slice(&self.ticket);
        bytes
    }

    /// None: of another version, or of another program's.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; INVITATION]) -> Option<Invitation> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (user, rest) = rest.split_first_chunk()?;
        let (hall, rest) = rest.split_first_chunk()?;
        let (ticket, rest) = rest.split_first_chunk()?;
        let is_one = *magic == MAGIC && rest == [0; 8];
        is_one.then_some(Invitation {
            user: u32::from_le_bytes(*user),
            hall: *hall,
            ticket: *ticket,
        })
    }
}

/// Bytes to be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub writes: bool,
    /// Whether a write is always answered with [`Answer::Grown`] where the file has grown: the
    /// program itself may map it.
    pub maps: bool,
    /// Whether it goes on where the request before it ends: a write is not done then if that one
    /// was not done as a whole.
    pub follows: bool,
    /// The thread that waits, by the kernel's number.
    pub thread: u32,
    pub offset: u64,
    pub len: u32,
    /// Which of the places has them.
    pub place: u32,
}

impl Request {
    #[must_use]
    pub fn to_bytes(self) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        bytes[0] = u8::from(self.writes) | u8::from(self.maps) << 1 | u8::from(self.follows) << 2;
        bytes[4..8].copy_from_slice(&self.thread.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.len.to_le_bytes());
        bytes[20..].copy_from_slice(&self.place.to_le_bytes());
        bytes
    }

    /// None: that is no request.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; REQUEST]) -> Option<Request> {
        let word = |at: usize| {
            let word = bytes.get(at..)?.first_chunk()?;
            Some(u32::from_le_bytes(*word))
        };
        let (kind, len, place) = (word(0)?, word(16)?, word(20)?);
        let is_one = kind < 8 && len as usize <= MOST && (place as usize) < PLACES;
        is_one.then_some(Request {
            writes: kind & 1 != 0,
            maps: kind & 2 != 0,
            follows: kind & 4 != 0,
            thread: word(4)?,
            offset: u64::from_le_bytes(*bytes.get(8..)?.first_chunk()?),
            len,
            place,
        })
    }
}

const GROWN: i32 = -2;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This many bytes were read or written.
    Done(u32),
    /// They were written, and the file is longer than the kernel knows, while others have it open:
    /// the program has to ask the kernel for its size before it goes on.
    Grown(u32),
    /// An error of the system.
    Failed(i32),
    /// Nothing was done: the program has to take the way through the kernel.
    Refused,
}

impl Answer {
    #[must_use]
    pub fn to_bytes(self) -> [u8; ANSWER] {
        let (status, len) = match self {
            Answer::Done(len) => (0, len),
            Answer::Failed(errno) => (errno.max(1), 0),
            Answer::Refused => (-1, 0),
            Answer::Grown(len) => (GROWN, len),
        };
        let mut bytes = [0; ANSWER];
        bytes[..4].copy_from_slice(&status.to_le_bytes());
        bytes[4..].copy_from_slice(&len.to_le_bytes());
        bytes
    }

    #[must_use]
    pub fn from_bytes(bytes: &[u8; ANSWER]) -> Answer {
        let (status, len) = bytes.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
        match number(status).cast_signed() {
            0 => Answer::Done(number(len)),
            GROWN => Answer::Grown(number(len)),
            errno if errno > 0 => Answer::Failed(errno),
            _ => Answer::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard_and_noise_is_refused() {
        let invitation = Invitation {
            user: 1000,
            hall: [3; 16],
            ticket: [4; 16],
        };
        let bytes = invitation.to_bytes();
        assert_eq!(Invitation::from_bytes(&bytes), Some(invitation));
        for at in [0, 3, 40, 47] {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(Invitation::from_bytes(&other), None);
        }
        let request = Request {
            writes: true,
            maps: false,
            follows: true,
            thread: 77,
            offset: 1 << 40,
            len: MOST as u32,
            place: 1,
        };
        let bytes = request.to_bytes();
        assert_eq!(Request::from_bytes(&bytes), Some(request));
        // Another kind, more bytes than there may be, a place that is not there.
        for at in [0, 1, 16, 20] {
            let mut other = bytes;
            other[at] |= 10;
            assert_eq!(Request::from_bytes(&other), None);
        }
        let (grown, failed) = (Answer::Grown(9), Answer::Failed(28));
        for answer in [Answer::Done(9), grown, failed, Answer::Refused] {
            assert_eq!(Answer::from_bytes(&answer.to_bytes()), answer);
        }
        assert_eq!(socket_name([0; 16]).len(), 43);
    }
}
