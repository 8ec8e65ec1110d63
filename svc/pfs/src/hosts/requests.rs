//! The requests of kernels that do not go to the store: locks, and that a request is not wanted any
//! more. The layouts are those of the kernel's interface (`linux/fuse.h`).

use super::locks::{Asked, Holder, Locks, Range, Waiter};

/// Bytes of what every request, and every answer, begins with.
const REQUEST: usize = 40;
const ANSWER: usize = 16;

/// Kinds of requests.
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const GETLK: u32 = 31;
const SETLK: u32 = 32;
const SETLKW: u32 = 33;
const INTERRUPT: u32 = 36;

/// Kinds of locks.
const READ: u32 = 0;
const WRITE: u32 = 1;
const NONE: u32 = 2;

/// A flag of a lock: it is `flock`'s. One of a release: that lock goes.
const IS_FLOCK: u32 = 1;
const UNLOCKS_FLOCK: u32 = 2;

const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const EINVAL: i32 = 22;
const EDEADLK: i32 = 35;

/// What becomes of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The store has it as well.
    pub is_for_store: bool,
    /// What is answered.
    pub answer: Option<Vec<u8>>,
    /// Whose locks are granted now.
    pub granted: Vec<Waiter>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// The answer of a request, with an error or 0.
pub fn answer(request: u64, errno: i32, body: &[u8]) -> Vec<u8> {
    let len = (ANSWER + body.len()) as u32;
    [
        &len.to_le_bytes()[..],
        &(-errno).to_le_bytes(),
        &request.to_le_bytes(),
        body,
    ]
    .concat()
}

/// Looks at a request of a mount.
pub fn look(locks: &mut Locks, mount: u64, request: &[u8]) -> Done {
    let passed_on = Done {
        is_for_store: true,
        ..Done::default()
    };
    let (Some(kind), Some(number), Some(file)) =
        (u32_at(request, 4), u64_at(request, 8), u64_at(request, 16))
    else {
        return passed_on;
    };
    let body = request.get(REQUEST..).unwrap_or_default();
    match kind {
        FLUSH => released(locks, mount, file, u64_at(body, 16), false),
        RELEASE if u32_at(body, 12).is_some_and(|flags| flags & UNLOCKS_FLOCK != 0) => {
            released(locks, mount, file, u64_at(body, 16), true)
        }
        // A request that is being served is ended by its answer alone.
        INTERRUPT => {
            let request = u64_at(body, 0).unwrap_or(0);
            let was_waiting = locks.cancel(Waiter { mount, request });
            Done {
                answer: was_waiting.then(|| answer(request, EINTR, &[])),
                ..Done::default()
            }
        }
        GETLK | SETLK | SETLKW => {
            let (errno, body, granted) = match lock(locks, mount, (kind, number, file), body) {
                Some(Locked::Waits) => return Done::default(),
                Some(Locked::Done(errno, body, granted)) => (errno, body, granted),
                None => (EINVAL, vec![], vec![]),
            };
            Done {
                answer: Some(answer(number, errno, &body)),
                granted,
                ..Done::default()
            }
        }
        _ => passed_on,
    }
}

/// A program has closed a file: its locks go.
fn released(locks: &mut Locks, mount: u64, file: u64, owner: Option<u64>, is_whole: bool) -> Done {
    let granted = owner.map_or(vec![], |owner| {
        let holder = Holder {
            mount,
            owner,
            is_whole,
        };
        locks.unlock(file, holder, 0, u64::MAX)
    });
    Done {
        is_for_store: true,
        granted,
        ..Done::default()
    }
}

enum Locked {
    Waits,
    Done(i32, Vec<u8>, Vec<Waiter>),
}

fn lock(
    locks: &mut Locks,
    mount: u64,
    (kind, number, file): (u32, u64, u64),
    body: &[u8],
) -> Option<Locked> {
    let holder = Holder {
        mount,
        owner: u64_at(body, 8)?,
        is_whole: u32_at(body, 40)? & IS_FLOCK != 0,
    };
    let wanted = u32_at(body, 32)?;
    let range = Range {
        first: u64_at(body, 16)?,
        last: u64_at(body, 24)?,
        is_write: wanted == WRITE,
        pid: u32_at(body, 36)?,
    };
    if wanted > NONE || range.first > range.last {
        return None;
    }
    if kind == GETLK {
        let there = locks.conflict(file, holder, range);
        let (range, kind) = match there {
            Some((_, there)) if there.is_write => (there, WRITE),
            Some((_, there)) => (there, READ),
            None => (range, NONE),
        };
        let body = [
            &range.first.to_le_bytes()[..],
            &range.last.to_le_bytes(),
            &kind.to_le_bytes(),
            &range.pid.to_le_bytes(),
        ];
        return Some(Locked::Done(0, body.concat(), vec![]));
    }
    if wanted == NONE {
        let granted = locks.unlock(file, holder, range.first, range.last);
        return Some(Locked::Done(0, vec![], granted));
    }
    let request = number;
    let waiter = (kind == SETLKW).then_some(Waiter { mount, request });
    Some(match locks.lock(file, holder, range, waiter) {
        Asked::Granted => Locked::Done(0, vec![], vec![]),
        Asked::Refused => Locked::Done(EAGAIN, vec![], vec![]),
        Asked::Deadlock => Locked::Done(EDEADLK, vec![], vec![]),
        Asked::Waits => Locked::Waits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: u32, number: u64, body: &[u8]) -> Vec<u8> {
        let mut request = vec![0; REQUEST];
        request[4..8].copy_from_slice(&kind.to_le_bytes());
        request[8..16].copy_from_slice(&number.to_le_bytes());
        request[16..24].copy_from_slice(&5_u64.to_le_bytes());
        request.extend_from_slice(body);
        request
    }

    fn lock_body(owner: u64, kind: u32, flags: u32) -> Vec<u8> {
        [
            &0_u64.to_le_bytes()[..],
            &owner.to_le_bytes(),
            &10_u64.to_le_bytes(),
            &19_u64.to_le_bytes(),
            &kind.to_le_bytes(),
            &77_u32.to_le_bytes(),
            &flags.to_le_bytes(),
            &0_u32.to_le_bytes(),
        ]
        .concat()
    }

    fn answered(number: u64, errno: i32) -> Option<Vec<u8>> {
        Some(answer(number, errno, &[]))
    }

    #[test]
    fn a_lock_is_granted_refused_shown_waited_for_and_given_back_by_the_close() {
        let mut locks = Locks::default();
        let held = look(&mut locks, 1, &request(SETLK, 1, &lock_body(3, WRITE, 0)));
        assert_eq!((held.answer, held.is_for_store), (answered(1, 0), false));
        let other = lock_body(3, READ, 0);
        let refused = look(&mut locks, 2, &request(SETLK, 2, &other));
        assert_eq!(refused.answer, answered(2, EAGAIN));
        let shown = look(&mut locks, 2, &request(GETLK, 3, &other))
            .answer
            .unwrap();
        assert_eq!(shown.len(), ANSWER + 24);
        assert_eq!(shown[ANSWER + 16..][..8], [1, 0, 0, 0, 77, 0, 0, 0]);
        let waits = look(&mut locks, 2, &request(SETLKW, 4, &other));
        assert_eq!(waits, Done::default());
        let ended = look(&mut locks, 2, &request(INTERRUPT, 5, &4_u64.to_le_bytes()));
        assert_eq!(ended.answer, answered(4, EINTR));
        assert_eq!(
            look(&mut locks, 2, &request(SETLKW, 6, &other)),
            Done::default()
        );
        let mut flush = vec![0; 24];
        flush[16] = 3;
        let closed = look(&mut locks, 1, &request(FLUSH, 7, &flush));
        assert!(closed.is_for_store && closed.answer.is_none());
        assert_eq!(
            closed.granted,
            [Waiter {
                mount: 2,
                request: 6
            }]
        );
        // By flock it is another lock, which the release gives back.
        let whole = look(
            &mut locks,
            1,
            &request(SETLK, 8, &lock_body(9, WRITE, IS_FLOCK)),
        );
        assert_eq!(whole.answer, answered(8, 0));
        let wanted = look(
            &mut locks,
            2,
            &request(SETLKW, 9, &lock_body(4, WRITE, IS_FLOCK)),
        );
        assert_eq!(wanted, Done::default());
        let mut release = vec![0; 24];
        (release[12], release[16]) = (2, 9);
        let released = look(&mut locks, 1, &request(RELEASE, 10, &release));
        assert_eq!(
            released.granted,
            [Waiter {
                mount: 2,
                request: 9
            }]
        );
    }

    #[test]
    fn other_requests_are_for_the_store_and_wrong_ones_are_refused() {
        let mut locks = Locks::default();
        assert!(look(&mut locks, 1, &request(1, 1, b"name\0")).is_for_store);
        assert!(look(&mut locks, 1, &[0; 7]).is_for_store);
        for body in [vec![], vec![0; 43], lock_body(1, 3, 0)] {
            let done = look(&mut locks, 1, &request(SETLKW, 2, &body));
            assert_eq!(done.answer, answered(2, EINVAL));
        }
    }
}
