//! What programs and other hosts say to the service, for fuzz targets: they call here what the
//! service calls.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use margay_fs_storage::direct::wire::INVITATION;
use margay_fs_stripes::Store;

use crate::direct::Direct;
use crate::fuse::AccessTimes;
use crate::hosts::disk::Request;
use crate::hosts::locks::Locks;
use crate::hosts::requests;
use crate::hosts::session::{BEFORE, Session};
use crate::hosts::share::sort;
use crate::hosts::wire::greeted;

/// Begins direct ways and lets this user in for a file, which is opened for reading and writing.
///
/// # Errors
/// What the system says.
pub fn invitation(store: &Arc<Store>, ino: u64) -> io::Result<[u8; INVITATION]> {
    let direct = Direct::begin(store, &Arc::default(), &Arc::default())?;
    let handle = direct.opened(ino, 2);
    let user = margay_sys_os::port::user();
    let invitation = direct.invite(ino, handle, user, AccessTimes::Never);
    invitation.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
}

/// Mounts of other hosts, by what their messages do to sessions and locks.
#[derive(Default)]
pub struct Hosts {
    sessions: BTreeMap<u64, Session>,
    locks: Locks,
}

impl Hosts {
    /// Takes a message of a mount. Returns the answers that it gets at once; none where the
    /// connection is given up.
    pub fn hear(&mut self, mount: u64, message: &[u8]) -> Option<Vec<u8>> {
        let session = self.sessions.entry(mount).or_default();
        let Some(at) = session.take(message).ok()? else {
            return Some(session.confirmation().map_or_else(Vec::new, Vec::from));
        };
        let _ = sort(message);
        let done = requests::look(&mut self.locks, mount, &message[at..]);
        for waiter in done.granted {
            let answer = requests::answer(waiter.request, 0, &[]);
            let session = self.sessions.entry(waiter.mount).or_default();
            session.send([&[0; BEFORE], answer.as_slice()].concat());
        }
        Some(done.answer.unwrap_or_default())
    }

    /// A mount that has ended.
    pub fn leave(&mut self, mount: u64) {
        self.sessions.remove(&mount);
        self.locks.leave(mount);
    }

    /// Whether nobody holds what is in the way of another one.
    #[must_use]
    pub fn are_in_order(&self) -> bool {
        self.locks.are_in_order()
    }
}

/// Whether a greeting, or a request to a stripe directory, is refused or is what it says.
#[must_use]
pub fn is_read_whole(bytes: &[u8]) -> bool {
    let session = greeted(bytes).is_none_or(|_| bytes.len() == 20);
    session && Request::read(bytes).is_none_or(|request| request.is(bytes))
}
