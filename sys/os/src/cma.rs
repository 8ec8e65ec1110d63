//! Cross-memory attach: reading and writing the memory of another process of the same user.
//!
//! Reading only makes a copy, also of this process's own memory. Writing there would alter what
//! Rust's references rely on, without their knowing, so it takes a [`Peer`]: one whose number is
//! that of this process or of one of its threads cannot be written to.

use std::ffi::{c_ulong, c_void};
use std::io;

use rustix::io::Errno;

use crate::copy::{Between, copy_bytes, is_slow};
use crate::user::Mem;

/// Lets any process of the same user attach to this one where the Yama module restricts it to
/// ancestors (`ptrace_scope` 1). Harmless where there is no Yama.
pub fn allow_attach() {
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
}

/// A process that is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pid: u32,
    is_other: bool,
}

impl Peer {
    /// The process with that id. Asks the system, once for all writes.
    #[must_use]
    pub fn new(pid: u32) -> Peer {
        // SAFETY: signal 0 is sent to nobody; the system looks whether this process has a thread
        // with that id, as which it would take the number.
        let own = unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), pid, 0) } == 0;
        Peer {
            pid,
            is_other: !own,
        }
    }

    /// Its id.
    #[must_use]
    #[inline]
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// The id for a call that writes there.
    fn writable(self) -> io::Result<libc::pid_t> {
        match self.is_other {
            true => Ok(self.pid as libc::pid_t),
            false => Err(Errno::PERM.into()),
        }
    }
}

/// Copies `len` bytes from `address` in process `pid` to `offset` of `to`. All or an error.
///
/// # Errors
/// What the kernel says: EPERM where attaching is forbidden, ENOSYS where there is no such call,
/// EFAULT when the other process's memory is not there.
///
/// # Panics
/// When `to` does not cover the range.
pub fn read(pid: u32, address: u64, to: &Mem, offset: i64, len: usize) -> io::Result<()> {
    let local = to.at(offset, len);
    if !is_slow(address as usize, local.addr(), len) {
        // SAFETY: the range is covered by the claim (checked by `at`).
        return unsafe { read_to(pid, address, local, len) };
    }
    let mut between = Between::new(address as usize, len);
    for done in (0..len).step_by(Between::LEN) {
        let part = (len - done).min(Between::LEN);
        // SAFETY: `Between` has room for a part; the part of the range is covered by the claim.
        unsafe {
            read_to(
                pid,
                address.wrapping_add(done as u64),
                between.start(),
                part,
            )?;
            copy_bytes(between.start(), local.wrapping_add(done), part);
        }
    }
    Ok(())
}

/// # Safety
/// `len` bytes must be writable at `to`.
unsafe fn read_to(pid: u32, address: u64, to: *mut u8, len: usize) -> io::Result<()> {
    whole(len, |done| {
        let (here, there) = vectors(to, address, done, len);
        // SAFETY: by the contract; the remote range is the kernel's to check.
        unsafe { libc::process_vm_readv(pid as libc::pid_t, &here, 1, &there, 1, 0) }
    })
}

/// Copies `len` bytes from `offset` of `from` to `address` in another process. All or an error.
///
/// # Errors
/// As [`read`], and EPERM for this process.
///
/// # Panics
/// When `from` does not cover the range.
pub fn write(peer: Peer, address: u64, from: &Mem, offset: i64, len: usize) -> io::Result<()> {
    let (pid, local) = (peer.writable()?, from.at(offset, len));
    if !is_slow(local.addr(), address as usize, len) {
        // SAFETY: the range is covered by the claim (checked by `at`); the other process is not
        // this one.
        return unsafe { write_from(pid, address, local, len) };
    }
    let mut between = Between::new(local.addr(), len);
    for done in (0..len).step_by(Between::LEN) {
        let part = (len - done).min(Between::LEN);
        // SAFETY: as in `read`; the other process is not this one.
        unsafe {
            copy_bytes(local.wrapping_add(done), between.start(), part);
            write_from(
                pid,
                address.wrapping_add(done as u64),
                between.start(),
                part,
            )?;
        }
    }
    Ok(())
}

/// # Safety
/// `len` bytes must be readable at `from`, and `pid` be another process than this one.
unsafe fn write_from(pid: libc::pid_t, address: u64, from: *mut u8, len: usize) -> io::Result<()> {
    whole(len, |done| {
        let (here, there) = vectors(from, address, done, len);
        // SAFETY: by the contract; the remote range is the kernel's to check.
        unsafe { libc::process_vm_writev(pid, &here, 1, &there, 1, 0) }
    })
}

/// A piece of another process's memory: address and bytes.
pub type Piece = (u64, usize);

/// Pieces that go in one system call (the kernel's limit is 1024).
const PIECES: usize = 512;

/// Copies pieces of process `pid`, one after the other, into `to`, which is as long as they
/// together.
///
/// # Errors
/// As [`read`].
///
/// # Panics
/// When the lengths do not fit.
pub fn gather(pid: u32, pieces: &[Piece], to: &mut [u8]) -> io::Result<()> {
    let at = to.as_mut_ptr();
    each(pieces, to.len(), |done, len, there| {
        let here = libc::iovec {
            iov_base: at.wrapping_add(done).cast(),
            iov_len: len,
        };
        // SAFETY: the local range lies inside of `to` (`each` keeps to its length); the remote ones
        // are the kernel's to check.
        unsafe {
            let n = there.len() as c_ulong;
            libc::process_vm_readv(pid as libc::pid_t, &here, 1, there.as_ptr(), n, 0)
        }
    })
}

/// The reverse of [`gather`]: distributes `from` over pieces of another process.
///
/// # Errors
/// As [`write()`].
///
/// # Panics
/// When the lengths do not fit.
pub fn scatter(peer: Peer, pieces: &[Piece], from: &[u8]) -> io::Result<()> {
    let (pid, at) = (peer.writable()?, from.as_ptr());
    each(pieces, from.len(), |done, len, there| {
        let here = libc::iovec {
            iov_base: at.wrapping_add(done).cast_mut().cast(),
            iov_len: len,
        };
        // SAFETY: as in `gather`; the kernel only reads the local range, and writes no memory of
        // this process.
        unsafe {
            let n = there.len() as c_ulong;
            libc::process_vm_writev(pid, &here, 1, there.as_ptr(), n, 0)
        }
    })
}

/// Copies pieces of process `pid` to pieces of `to`, given by offset and bytes; pairs of equal
/// length. In one system call where that is possible.
///
/// # Errors
/// As [`read`].
///
/// # Panics
/// When `to` does not cover a piece.
pub fn read_pairs(pid: u32, pairs: &[Pair], to: &Mem) -> io::Result<()> {
    pairwise(pairs, to, |here, there| {
        let (n, m) = (here.len() as c_ulong, there.len() as c_ulong);
        // SAFETY: the local ranges are covered by the claim (checked by `at`); the remote ones are
        // the kernel's to check.
        unsafe {
            libc::process_vm_readv(pid as libc::pid_t, here.as_ptr(), n, there.as_ptr(), m, 0)
        }
    })
}

/// The reverse of [`read_pairs`], to another process.
///
/// # Errors
/// As [`write()`].
///
/// # Panics
/// When `from` does not cover a piece.
pub fn write_pairs(peer: Peer, pairs: &[Pair], from: &Mem) -> io::Result<()> {
    let pid = peer.writable()?;
    pairwise(pairs, from, |here, there| {
        let (n, m) = (here.len() as c_ulong, there.len() as c_ulong);
        // SAFETY: as in `read_pairs`; what is written is no memory of this process.
        unsafe { libc::process_vm_writev(pid, here.as_ptr(), n, there.as_ptr(), m, 0) }
    })
}

/// An address in another process, an offset in memory of this one, and bytes.
pub type Pair = (u64, i64, usize);

/// Calls `call` with as many pieces as it takes until all are moved. No piece may be empty.
fn pairwise(
    pairs: &[Pair],
    mem: &Mem,
    mut call: impl FnMut(&[libc::iovec], &[libc::iovec]) -> isize,
) -> io::Result<()> {
    let mut rest = pairs;
    let (mut here, mut there) = (Vec::new(), Vec::<libc::iovec>::new());
    while !rest.is_empty() {
        here.clear();
        there.clear();
        for &(address, offset, len) in rest.iter().take(PIECES) {
            here.push(libc::iovec {
                iov_base: mem.at(offset, len).cast(),
                iov_len: len,
            });
            // Pieces that touch each other there cost the kernel as much as one.
            match there.last_mut() {
                Some(last) if last.iov_base as u64 + last.iov_len as u64 == address => {
                    last.iov_len += len;
                }
                _ => there.push(libc::iovec {
                    iov_base: address as usize as *mut c_void,
                    iov_len: len,
                }),
            }
        }
        let moved = call(&here, &there);
        if moved < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            continue;
        }
        let mut left = moved as usize;
        // Only where memory is not there does the kernel stop, and it may do so within a piece.
        while let Some((&(_, _, len), behind)) = rest.split_first()
            && left >= len
            && left > 0
        {
            left -= len;
            rest = behind;
        }
        if moved == 0 || left > 0 {
            return Err(Errno::FAULT.into());
        }
    }
    Ok(())
}

/// Calls `call` with bytes done, bytes to do and the remote pieces for them until all is moved.
fn each(
    pieces: &[Piece],
    total: usize,
    mut call: impl FnMut(usize, usize, &[libc::iovec]) -> isize,
) -> io::Result<()> {
    let sum: usize = pieces.iter().map(|p| p.1).sum();
    assert_eq!(sum, total, "length of the pieces");
    let mut done = 0;
    // The first piece that is not done, and how much of it is.
    let (mut next, mut within) = (0, 0);
    let mut there = Vec::with_capacity(pieces.len().min(PIECES));
    while done < total {
        there.clear();
        let mut bytes = 0;
        for (i, &(address, len)) in pieces[next..].iter().take(PIECES).enumerate() {
            let skip = if i == 0 { within } else { 0 };
            bytes += len - skip;
            there.push(libc::iovec {
                iov_base: (address as usize).wrapping_add(skip) as *mut c_void,
                iov_len: len - skip,
            });
        }
        if bytes == 0 {
            next += there.len();
            within = 0;
            continue;
        }
        match call(done, bytes, &there) {
            0 => return Err(Errno::FAULT.into()),
            moved if moved > 0 => {
                done += moved as usize;
                within += moved as usize;
                while next < pieces.len() && within >= pieces[next].1 {
                    within -= pieces[next].1;
                    next += 1;
                }
            }
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

fn vectors(local: *mut u8, address: u64, done: usize, len: usize) -> (libc::iovec, libc::iovec) {
    (
        libc::iovec {
            iov_base: local.wrapping_add(done).cast(),
            iov_len: len - done,
        },
        libc::iovec {
            iov_base: (address as usize).wrapping_add(done) as *mut c_void,
            iov_len: len - done,
        },
    )
}

/// The kernel may move less than asked: go on until all is moved.
fn whole(len: usize, mut call: impl FnMut(usize) -> isize) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        match call(done) {
            moved if moved > 0 => done += moved as usize,
            0 => return Err(Errno::FAULT.into()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This process as one that may be written to: the tests write to memory of their own.
    fn me() -> Peer {
        let pid = std::process::id();
        Peer {
            pid,
            is_other: true,
        }
    }

    #[test]
    fn this_process_and_its_threads_are_not_written_to() {
        let source = Mem::owned(8);
        let target = Mem::from_vec(vec![7; 8]);
        let refused = |pid: u32| {
            let (peer, to) = (Peer::new(pid), target.address() as u64);
            let errors = [
                write(peer, to, &source, 0, 8),
                scatter(peer, &[(to, 8)], &[0; 8]),
                write_pairs(peer, &[(to, 0, 8)], &source),
            ];
            let is_refused = |e: &io::Result<()>| {
                e.as_ref()
                    .is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
            };
            assert!(errors.iter().all(is_refused));
        };
        refused(std::process::id());
        let own = || rustix::thread::gettid().as_raw_nonzero().get() as u32;
        refused(own());
        std::thread::scope(|s| s.spawn(|| refused(own())).join().unwrap());
        target.with_bytes(0, 8, |b| assert_eq!(b, [7; 8]));
        assert!(Peer::new(1).is_other);
    }

    #[test]
    fn own_process_both_ways() {
        let source = Mem::from_vec((0..=255).collect());
        let target = Mem::owned(256);
        let pid = std::process::id();
        read(pid, source.address() as u64 + 10, &target, 0, 100).unwrap();
        target.with_bytes(0, 100, |b| assert_eq!(b[0], 10));
        write(me(), target.address() as u64 + 200, &source, 50, 2).unwrap();
        target.with_bytes(200, 2, |b| assert_eq!(b, [50, 51]));
    }

    #[test]
    fn long_copies_are_whole_at_every_distance() {
        let bytes: Vec<u8> = (0..200_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let source = Mem::from_vec(bytes.clone());
        let pid = std::process::id();
        for len in [2112, 65_536, 65_537, 150_000] {
            for behind in [0, 1, 16, 31, 32] {
                // Where the destination lies that far behind the source in its page.
                let target = Mem::owned(len + 8192);
                let own = (source.address() + 100).wrapping_sub(target.address()) % 4096;
                let at = (own + behind) as i64;
                read(pid, source.address() as u64 + 100, &target, at, len).unwrap();
                target.with_bytes(at, len, |b| assert!(b == &bytes[100..100 + len]));

                let target = Mem::owned(len + 8192);
                let own = (source.address() + 100).wrapping_sub(target.address()) % 4096;
                let to = target.address() + own + behind;
                write(me(), to as u64, &source, 100, len).unwrap();
                target.with_bytes((own + behind) as i64, len, |b| {
                    assert!(b == &bytes[100..100 + len]);
                });
            }
        }
    }

    #[test]
    fn pieces_are_gathered_and_scattered() {
        let source: Vec<u8> = (0..=255).cycle().take(1 << 16).collect();
        let pid = std::process::id();
        let at = source.as_ptr() as u64;
        // More pieces than one call takes, of all small lengths, also none.
        let pieces: Vec<Piece> = (0..3000u64)
            .map(|i| (at + 20 * i, i as usize % 5))
            .collect();
        let total = pieces.iter().map(|p| p.1).sum();
        let mut packed = vec![0; total];
        gather(pid, &pieces, &mut packed).unwrap();
        let expected: Vec<u8> = pieces
            .iter()
            .flat_map(|&(a, n)| source[(a - at) as usize..][..n].iter().copied())
            .collect();
        assert_eq!(packed, expected);
        let target = Mem::owned(1 << 16);
        let to = target.address() as u64;
        let places: Vec<Piece> = pieces.iter().map(|&(a, n)| (a - at + to, n)).collect();
        scatter(me(), &places, &packed).unwrap();
        let mut back = vec![0; total];
        gather(pid, &places, &mut back).unwrap();
        assert_eq!(back, expected);
    }

    #[test]
    fn pairs_go_both_ways() {
        let source = Mem::from_vec((0..=255).cycle().take(1 << 16).collect());
        let (packed, target) = (Mem::owned(1 << 16), Mem::owned(1 << 16));
        let pid = std::process::id();
        let at = source.address() as u64;
        // More than one call takes; some touch each other there, but not here.
        let pairs: Vec<Pair> = (0..1500)
            .map(|i| (at + 20 * i, 17 * i as i64, 1 + i as usize % 20))
            .rev()
            .filter(|pair| pair.2 <= 17)
            .collect();
        read_pairs(pid, &pairs, &packed).unwrap();
        let to = target.address() as u64;
        let back: Vec<Pair> = pairs.iter().map(|&(a, o, n)| (a - at + to, o, n)).collect();
        write_pairs(me(), &back, &packed).unwrap();
        for &(address, _, len) in &pairs {
            let (mut expected, mut found) = ([0; 20], [0; 20]);
            source.read((address - at) as i64, &mut expected[..len]);
            target.read((address - at) as i64, &mut found[..len]);
            assert_eq!(expected, found);
        }
        assert!(write_pairs(me(), &[(to, 0, 8), (8, 8, 8)], &packed).is_err());
    }

    #[test]
    fn bad_addresses_are_errors() {
        let target = Mem::owned(8);
        assert!(read(std::process::id(), 8, &target, 0, 8).is_err());
        assert!(read(u32::MAX >> 1, 4096, &target, 0, 8).is_err());
    }
}
