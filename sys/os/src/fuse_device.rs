//! The kernel's end of a file system in a process: mounting it, so that its requests can be read
//! and its answers written, by this process or by another one that they are passed on to.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

use crate::descriptor::set_nonblocking;
use crate::packets::received;
use crate::port::user;

const DEVICE: &str = "/dev/fuse";

/// The program that mounts for users other than root.
const HELPER: &str = "fusermount3";

/// Mounts a file system at `path`. The descriptor gives requests of the kernel and takes the
/// answers; it does not block. Permissions are checked by the kernel; what root mounts is for all
/// users. `source` and `subtype` are what lists of mounts show.
///
/// # Errors
/// What the system says, or the helper, in its words.
pub fn mount(source: &str, subtype: &str, path: &Path) -> io::Result<OwnedFd> {
    let device = match user() {
        0 => mount_as_root(source, subtype, path)?,
        _ => mount_by_helper(source, subtype, path)?,
    };
    set_nonblocking(device.as_fd())?;
    Ok(device)
}

/// Whether the kernel has ended the file system whose requests come from `device`: nothing uses it,
/// and no request comes any more.
#[must_use]
pub fn has_ended(device: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(device, PollFlags::empty())];
    let now = Timespec::default();
    rustix::event::poll(&mut fds, Some(&now))
        .is_ok_and(|_| fds[0].revents().contains(PollFlags::ERR))
}

fn mount_as_root(source: &str, subtype: &str, path: &Path) -> io::Result<OwnedFd> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
        device.as_raw_fd()
    );
    let options = std::ffi::CString::new(options)?;
    rustix::mount::mount(
        source,
        path,
        format!("fuse.{subtype}"),
        MountFlags::NOSUID | MountFlags::NODEV,
        options.as_c_str(),
    )?;
    Ok(device)
}

fn mount_by_helper(source: &str, subtype: &str, path: &Path) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let options = format!("default_permissions,fsname={source},subtype={subtype}");
    let output = Command::new(HELPER)
        .args(["-o", &options, "--"])
        .arg(path)
        // The descriptor with this number is where it sends the device.
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(said.trim().to_owned()));
    }
    let sent = received(ours.as_fd());
    sent.map_err(|error| io::Error::new(error.kind(), format!("{HELPER} sent no device")))
}

/// Something that is to the end of a file system what the device is: each read of one end gives
/// what one write to the other took, of up to `most` bytes. The first end does not block.
///
/// # Errors
/// When there is no descriptor left.
pub fn stand_in(most: usize) -> io::Result<(File, OwnedFd)> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    for end in [&ours, &theirs] {
        sockopt::set_socket_send_buffer_size(end, most)?;
    }
    set_nonblocking(ours.as_fd())?;
    Ok((ours.into(), theirs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn what_stands_in_for_the_device_keeps_messages_apart() {
        let most = 260 << 10;
        let (mut ours, theirs) = stand_in(most).expect("two ends");
        let mut theirs = File::from(theirs);
        let mut buffer = vec![0; 2 * most];
        let long: Vec<u8> = (0..most).map(|n| n as u8).collect();
        assert_eq!(ours.write(&long).expect("it takes all"), most);
        assert_eq!(theirs.read(&mut buffer).expect("it has come"), most);
        assert!(buffer[..most] == long);
        assert!(
            ours.read(&mut buffer)
                .is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
        );
        for text in ["one", "two two"] {
            theirs.write_all(text.as_bytes()).expect("it takes it");
        }
        for text in ["one", "two two"] {
            let len = ours.read(&mut buffer).expect("it has come");
            assert_eq!(&buffer[..len], text.as_bytes());
        }
        drop(theirs);
        assert_eq!(ours.read(&mut buffer).expect("the end"), 0);
    }

    #[test]
    fn nothing_is_mounted_where_there_is_no_directory() {
        let error = mount("pfs:none", "margay", Path::new("/none")).expect_err("it is not there");
        assert!(!error.to_string().is_empty());
    }
}
