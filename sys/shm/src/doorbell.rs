//! Waking a rank that sleeps on sockets instead of its futex word.
//!
//! A rank of a job on several hosts waits for its neighbours on this host and for sockets at the
//! same time. The kernel has no call for a futex and descriptors together that all versions know,
//! so such a rank sleeps on descriptors, of which one is its doorbell: a datagram socket with a
//! name in the abstract namespace, made of the segment's number and the rank. Who finds it asleep
//! sends it a byte. A full queue is as good as a byte; a stranger's byte wakes without a reason.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::Ordering;

use crate::segment::Segment;

/// What a rank sleeps on beside its sockets.
#[derive(Debug)]
pub struct Doorbell(UnixDatagram);

impl Doorbell {
    /// Takes back what has been rung.
    pub fn silence(&self) {
        let mut byte = [0; 8];
        while self.0.recv(&mut byte).is_ok() {}
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Segment {
    fn doorbell_name(&self, rank: u32) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("margay-bell-{}-{rank}", self.id()))
    }

    /// Makes the doorbell of a rank.
    ///
    /// # Errors
    /// When it exists, or there is no descriptor left.
    pub fn doorbell(&self, rank: u32) -> io::Result<Doorbell> {
        let socket = UnixDatagram::bind_addr(&self.doorbell_name(rank)?)?;
        socket.set_nonblocking(true)?;
        Ok(Doorbell(socket))
    }

    /// From now on ranks of this segment are also woken by their doorbells. A process that joins
    /// later finds that out by itself, from the table of hosts.
    pub fn use_doorbells(&self) {
        self.has_doorbells.store(true, Ordering::Relaxed);
    }

    /// A rank sleeps, and perhaps not on its futex word.
    #[cold]
    pub(crate) fn ring(&self, rank: u32) {
        let ringer = self.ringer.get_or_init(|| {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        });
        if let (Some(socket), Ok(name)) = (ringer, self.doorbell_name(rank)) {
            // Who has no doorbell sleeps on its word; a full queue wakes as well.
            let _ = socket.send_to_addr(&[1], &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::segment::tests::small;
    use std::sync::Arc;

    #[test]
    fn a_rank_that_sleeps_on_its_doorbell_is_woken() {
        let segment = Arc::new(small(2));
        segment.use_doorbells();
        let doorbell = segment.doorbell(1).unwrap();
        assert!(segment.doorbell(1).is_err(), "it has one already");
        segment.wake(1);
        assert!(doorbell.0.recv(&mut [0]).is_err(), "nobody slept");
        segment.registry().event_count(1).sleep_by(
            1_000_000_000,
            || false,
            |_| {
                segment.wake(1);
                assert_eq!(doorbell.0.recv(&mut [0]).unwrap(), 1);
                segment.wake(1);
            },
        );
        doorbell.silence();
        assert!(doorbell.0.recv(&mut [0]).is_err());
    }
}
