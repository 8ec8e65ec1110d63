//! Cross-memory attach: reading and writing the memory of another process of the same user.

use std::io;

use crate::user::Mem;

/// Lets any process of the same user attach to this one where the Yama module restricts it to
/// ancestors (`ptrace_scope` 1). Harmless where there is no Yama.
pub fn allow_attach() {
    // SAFETY: prctl with these arguments changes a property of the process, no memory.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
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
    whole(len, |done| {
        let (here, there) = vectors(local, address, done, len);
        // SAFETY: the local range is covered by the claim (checked by `at`); the remote range is
        // the kernel's to check.
        unsafe { libc::process_vm_readv(pid as libc::pid_t, &here, 1, &there, 1, 0) }
    })
}

/// Copies `len` bytes from `offset` of `from` to `address` in process `pid`. All or an error.
///
/// # Errors
/// As [`read`].
///
/// # Panics
/// When `from` does not cover the range.
pub fn write(pid: u32, address: u64, from: &Mem, offset: i64, len: usize) -> io::Result<()> {
    let local = from.at(offset, len);
    whole(len, |done| {
        let (here, there) = vectors(local, address, done, len);
        // SAFETY: as in `read`.
        unsafe { libc::process_vm_writev(pid as libc::pid_t, &here, 1, &there, 1, 0) }
    })
}

fn vectors(local: *mut u8, address: u64, done: usize, len: usize) -> (libc::iovec, libc::iovec) {
    (
        libc::iovec {
            iov_base: local.wrapping_add(done).cast(),
            iov_len: len - done,
        },
        libc::iovec {
            iov_base: (address as usize).wrapping_add(done) as *mut libc::c_void,
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
            0 => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
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

    #[test]
    fn own_process_both_ways() {
        let source = Mem::from_vec((0..=255).collect());
        let target = Mem::owned(256);
        let me = std::process::id();
        read(me, source.address() as u64 + 10, &target, 0, 100).unwrap();
        target.with_bytes(0, 100, |b| assert_eq!(b[0], 10));
        write(me, target.address() as u64 + 200, &source, 50, 2).unwrap();
        target.with_bytes(200, 2, |b| assert_eq!(b, [50, 51]));
    }

    #[test]
    fn bad_addresses_are_errors() {
        let target = Mem::owned(8);
        assert!(read(std::process::id(), 8, &target, 0, 8).is_err());
        assert!(read(u32::MAX >> 1, 4096, &target, 0, 8).is_err());
    }
}
